"""Recommend a scale for each length on the command line: where a text's loss is least."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from attnlib import _checking
from attnlib.calibration.fit import Fitting, Per, Report, ScaleFit, fit_scales
from attnlib.calibration.gradient import ScaleGradient
from attnlib.calibration.pass_cache import Cache
from attnlib.calibration.passes import own_loss

FEWEST = 4
"""The fewest windows that a text must have: half of them judge."""


@dataclass(frozen=True)
class Recommendation:
    """Hold the recommended scale of a model at one length, with its fit."""

    length: int
    gradient: ScaleGradient
    fit: ScaleFit

    def __str__(self) -> str:
        """Return the verdict in a line: the factor, its gain, and whether a change is worth it."""
        low, high = self.fit.gain_interval
        advice = "a change is worth it" if self.fit.recommended else "leave it"
        # The last digit is a tenth to a hundredth of the interval: more would not be repeated.
        places = 4 if not high > low else int(np.clip(1 - np.floor(np.log10(high - low)), 0, 9))
        value, start, end = (f"{x:+.{places}f}" for x in (self.fit.gain.value, low, high))
        gain = f"gain {value} nats per token, {start} to {end}"
        if self.fit.per != "model":
            return f"at {self.length}: a factor per {self.fit.per}, {gain}: {advice}"
        factor = float(np.nanmax(self.fit.factor(self.length)))
        ends = self.fit.interval
        between = "" if ends is None else f", {ends[0]:.2f} to {ends[1]:.2f}"
        verdict = f"at {self.length}: ×{factor:.2f}{between} ({gain}): {advice}"
        return verdict + self.fit.doubt

    def to_dict(self) -> dict[str, Any]:
        """Return length, verdict, fit and a dictionary for each head, as a dictionary for JSON."""
        return {
            "length": self.length,
            "verdict": str(self),
            "fit": json.loads(self.fit.to_json()),
            "heads": self.gradient.rows(),
        }


def windows(ids: Tensor, length: int, most: int) -> list[Tensor]:
    """Return at most `most` windows of `length` tokens, (1, length), spread evenly over `ids`.

    Raises ValueError where that makes fewer than four.
    """
    count = min(most, ids.numel() // length)
    if count < FEWEST:
        raise ValueError(
            f"the text must hold {FEWEST} windows of {length} tokens, got {ids.numel()} tokens"
        )
    starts = np.linspace(0, ids.numel() - length, count).astype(int)
    return [ids.flatten()[start : start + length][None] for start in starts]


def answer(
    model: nn.Module,
    ids: Tensor,
    length: int,
    *,
    per: Per = "model",
    law: str = "constant",
    texts: int = 16,
    memory: Cache | None = None,
    report: Report | None = None,
) -> Recommendation:
    """Recommend the scale at which a language model's loss is least on windows of `length` tokens.

    `ids` are the text's tokens. Of at most `texts` windows every second is fitted to and the others
    judge; all count for the gradients. The loss is the model's own; other arguments and errors are
    those of `fit_scales`. Raises ValueError for a text of fewer than four windows.
    Chapter: calibration.
    """
    pieces = windows(ids, _checking.integer("length", length, minimum=2), texts)
    memory = memory or Cache()
    fit = fit_scales(
        model, pieces[::2], pieces[1::2], per=per, law=law, memory=memory, report=report
    )
    return Recommendation(length, _gradient(model, pieces, memory, report), fit)


def _gradient(
    model: nn.Module, texts: list[Tensor], memory: Cache, report: Report | None
) -> ScaleGradient:
    """Return the result of `scale_gradient`, from the cache where that has it."""
    fitting = Fitting(model, texts, own_loss, "head", "constant", None, memory)
    losses, samples = [], []
    for text in texts:
        loss, slope = fitting.slope(text, np.zeros(fitting.parameters))
        losses.append(loss)
        samples.append(np.where(fitting.there, slope.reshape(fitting.shape), np.nan))
        if report is not None:
            report("gradient", loss)
    return ScaleGradient(fitting.layers, np.array(losses), np.stack(samples))
