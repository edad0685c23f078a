"""Recommend the scale at which the loss of a text is least, for `attnlib calibrate`."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from attnlib import _checking
from attnlib.calibration.fit import Fitting, OnPass, Per, ScaleFit, fit_scales
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
        """Return the recommendation in a line: the factor, its gain, and whether to change."""
        low, high = self.fit.gain_interval
        advice = "a change is worth it" if self.fit.recommended else "leave it"
        # The last digit is a tenth to a hundredth of the interval: more would not be repeated.
        digits = 4 if not high > low else int(np.clip(1 - np.floor(np.log10(high - low)), 0, 9))
        gain_text, start, end = (f"{x:+.{digits}f}" for x in (self.fit.gain.value, low, high))
        gain = f"gain {gain_text} nats per token, {start} to {end}"
        if self.fit.per != "model":
            return f"at {self.length}: a factor per {self.fit.per}, {gain}: {advice}"
        factor = float(np.nanmax(self.fit.factor(self.length)))
        bounds = self.fit.interval
        interval = "" if bounds is None else f", {bounds[0]:.2f} to {bounds[1]:.2f}"
        verdict = f"at {self.length}: ×{factor:.2f}{interval} ({gain}): {advice}"
        return verdict + self.fit.doubt

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON: length, verdict, fit, and a dictionary for each head."""
        return {
            "length": self.length,
            "verdict": str(self),
            "fit": json.loads(self.fit.to_json()),
            "heads": self.gradient.rows(),
        }


def cut_windows(ids: Tensor, length: int, max_windows: int) -> list[Tensor]:
    """Return at most `max_windows` windows of `length` tokens, (1, length), evenly over `ids`.

    Raises ValueError if there are fewer than four.
    """
    count = min(max_windows, ids.numel() // length)
    if count < FEWEST:
        raise ValueError(
            f"the text must hold {FEWEST} windows of {length} tokens, got {ids.numel()} tokens"
        )
    starts = np.linspace(0, ids.numel() - length, count).astype(int)
    return [ids.flatten()[start : start + length][None] for start in starts]


def recommend(
    model: nn.Module,
    ids: Tensor,
    length: int,
    *,
    per: Per = "model",
    law: str = "constant",
    texts: int = 16,
    memory: Cache | None = None,
    report: OnPass | None = None,
) -> Recommendation:
    """Recommend the scale at which a language model's loss is least on windows of `length` tokens.

    - `ids`: the tokens of the text.
    - `texts`: the largest number of windows. Every second one is for the fit, and the others test
      it; gradients are over all.

    The loss is the model's own; other arguments and errors are those of `fit_scales`. Raises
    ValueError for a text of fewer than four windows. Chapter: calibration.
    """
    windows = cut_windows(ids, _checking.integer("length", length, minimum=2), texts)
    memory = memory or Cache()
    fit = fit_scales(
        model, windows[::2], windows[1::2], per=per, law=law, memory=memory, report=report
    )
    return Recommendation(length, _scale_gradient(model, windows, memory, report), fit)


def _scale_gradient(
    model: nn.Module, windows: list[Tensor], memory: Cache, report: OnPass | None
) -> ScaleGradient:
    """Return the result of `scale_gradient` on the windows, with passes from the cache."""
    fitting = Fitting(model, windows, own_loss, "head", "constant", None, memory)
    losses, samples = [], []
    for text in windows:
        loss, gradient = fitting.objective(text, np.zeros(fitting.parameter_count))
        losses.append(loss)
        samples.append(np.where(fitting.head_exists, gradient.reshape(fitting.shape), np.nan))
        if report is not None:
            report("gradient", loss)
    return ScaleGradient(fitting.layers, np.array(losses), np.stack(samples))
