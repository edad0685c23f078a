"""What experiments.calibrate has recorded, read for the chapter.

`of` is a length in tokens, for SmolLM2, or the name of another model.

Chapter: calibration.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicHermiteSpline

from attnlib import files
from attnlib.calibration import Needles, ScaleGradient
from attnlib.checking import FloatArray
from experiments.lab.comparison import Interval, interval
from experiments.records import RECORDED, Fields

FITTED, JUDGING = slice(0, None, 2), slice(1, None, 2)
"""The texts that a factor is fitted to, and those that judge it."""


@cache
def pieces() -> tuple[Fields, ...]:
    """Return all pieces of the record."""
    return tuple(files.lines(RECORDED / "calibrate.jsonl"))


def select(**at: Any) -> list[Fields]:
    """Return the pieces that are of this, in the order of their texts."""
    found = [one for one in pieces() if at.items() <= one["at"].items()]
    return sorted(found, key=lambda one: one["at"].get("text", 0))


def place(of: int | str) -> Fields:
    """Return how the pieces of a length, or of another model, are marked."""
    return {"model" if isinstance(of, str) else "length": of}


def gradient(of: int | str) -> ScaleGradient:
    """Return ∂L/∂log t of each head, text by text."""
    found = select(what="gradient", **place(of))
    samples = np.array([one["gradient"] for one in found])
    layers = [f"layer {i}" for i in range(samples.shape[1])]
    return ScaleGradient(layers, np.array([one["loss"] for one in found]), samples)


def needles(kind: str, length: int) -> Needles:
    """Return what each head's rows with a target are, without weights at other factors."""
    found = select(what="needles", kind=kind, length=length)
    names = "rows", "weight", "gap", "slope", "reach", "derivatives"
    sums = {name: np.array([one[name] for one in found]) for name in names}
    layers = [f"layer {i}" for i in range(sums["rows"].shape[1])]
    return Needles(layers, **sums, weights=np.zeros_like(sums["derivatives"]))


class Curves(NamedTuple):
    """Losses when all logits are multiplied, and their slopes in log t."""

    log_t: FloatArray
    losses: FloatArray
    """(texts, len(log_t)), and so are the slopes."""
    slopes: FloatArray

    def at(self, log_t: FloatArray | float, derivative: int = 0) -> FloatArray:
        """Return each text's loss at other factors, or a derivative of it."""
        spline = CubicHermiteSpline(self.log_t, self.losses, self.slopes, axis=1)
        found: FloatArray = spline(log_t, derivative)
        return found

    def best(self, texts: slice = slice(None)) -> float:
        """Return the factor at which the mean loss of these texts is least."""
        fine = np.linspace(self.log_t[0], self.log_t[-1], 4001)
        return float(np.exp(fine[self.at(fine)[texts].mean(axis=0).argmin()]))

    def wants(self) -> FloatArray:
        """Return log t of each text: from the best of all, its own slope over the mean rise."""
        best = np.log(self.best())
        wants: FloatArray = best - self.at(best, 1) / self.at(best, 2).mean()
        return wants

    def gain(self) -> Interval:
        """Return what the factor of some texts gains on the others, with 95 % over texts."""
        best = np.log(self.best(FITTED))
        return interval((self.at(0.0) - self.at(best))[JUDGING])


def curves(of: int | str) -> Curves:
    """Return the losses at t = 1 and at the other factors."""
    here, moved = gradient(of), select(what="shift", **place(of))
    of_shift = {0.0: np.array([here.losses, np.nansum(here.samples, axis=(1, 2))])}
    for shift in {one["at"]["log_t"] for one in moved}:
        these = [one for one in moved if one["at"]["log_t"] == shift]
        of_shift[shift] = np.array([[one[name] for one in these] for name in ("loss", "slope")])
    log_t = sorted(of_shift)
    losses, slopes = np.stack([of_shift[shift] for shift in log_t], axis=-1)
    return Curves(np.array(log_t), losses, slopes)
