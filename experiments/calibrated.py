"""What experiments.calibrate has recorded, read for the chapter.

Chapter: calibrate.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicHermiteSpline

from attnlib.calibration.needles import GRID, root
from attnlib.checking import FloatArray
from experiments.lab import results
from experiments.lab.comparison import Interval, interval
from experiments.records import RECORDED, Fields

FITTED, JUDGING = slice(0, None, 2), slice(1, None, 2)
"""The texts that a factor is fitted to, and those that judge it."""


@cache
def pieces() -> tuple[Fields, ...]:
    """Return all pieces of the record."""
    return tuple(results.lines(RECORDED / "calibrate.jsonl"))


def select(**at: Any) -> list[Fields]:
    """Return the pieces that are of this, in the order of their texts."""
    found = [one for one in pieces() if at.items() <= one["at"].items()]
    return sorted(found, key=lambda one: one["at"].get("text", 0))


def gradients(length: int) -> FloatArray:
    """Return ∂L/∂log t of each head, (texts, layers, heads)."""
    return np.array([one["gradient"] for one in select(what="gradient", length=length)])


class Curves(NamedTuple):
    """Losses of a length when all logits are multiplied, and their slopes in log t."""

    log_t: FloatArray
    losses: FloatArray
    """(texts, len(log_t)), and so are the slopes."""
    slopes: FloatArray

    def at(self, log_t: FloatArray | float) -> FloatArray:
        """Return the losses at other factors, between those that were measured."""
        found: FloatArray = CubicHermiteSpline(self.log_t, self.losses, self.slopes, axis=1)(log_t)
        return found

    def best(self, texts: slice = slice(None)) -> float:
        """Return the factor at which the mean loss of these texts is least."""
        spline = CubicHermiteSpline(self.log_t, self.losses[texts].mean(0), self._mean(texts))
        fine = np.linspace(self.log_t[0], self.log_t[-1], 4001)
        return float(np.exp(fine[spline(fine).argmin()]))

    def error(self) -> Interval:
        """Return the best factor of all texts with 95 % over texts: the slope's over its rise."""
        best = np.log(self.best())
        spline = CubicHermiteSpline(self.log_t, self.losses, self.slopes, axis=1)
        curvature = spline(best, 2).mean()
        _, half = interval(spline(best, 1))
        return Interval(np.exp(best), np.exp(best) * half / curvature)

    def gain(self) -> Interval:
        """Return what the factor of some texts gains on the others, with 95 % over texts."""
        best = np.log(self.best(FITTED))
        here = self.at(0.0) - self.at(best)
        return interval(here[JUDGING])

    def _mean(self, texts: slice) -> FloatArray:
        mean: FloatArray = self.slopes[texts].mean(axis=0)
        return mean


def curves(length: int) -> Curves:
    """Return the losses of a length, at t = 1 and at the others."""
    here = select(what="gradient", length=length)
    moved = select(what="shift", length=length)
    shifts = sorted({one["at"]["log_t"] for one in moved})
    of_shift = {
        s: np.array([[p["loss"], p["slope"]] for p in moved if p["at"]["log_t"] == s])
        for s in shifts
    }
    of_shift[0.0] = np.array([[one["loss"], np.sum(one["gradient"])] for one in here])
    log_t = np.array(sorted(of_shift))
    losses, slopes = np.moveaxis(np.array([of_shift[s] for s in log_t]), 0, -1).swapaxes(0, 1)
    return Curves(log_t, losses, slopes)


class Targets(NamedTuple):
    """The rows of each head that are meant to find a key, (layers, heads)."""

    weight: FloatArray
    """P, the mean."""
    ratio: FloatArray
    """Σ(1 − P)g / Σ(1 − P)κ′(1)."""
    best_factor: FloatArray
    """t*, between an eighth and eight."""


def targets(kind: str, length: int) -> Targets:
    """Return the heads as they are with a target, over all texts."""
    found = select(what="needles", kind=kind, length=length)
    names = "rows", "weight", "gap", "slope", "derivatives"
    total = {name: np.sum([one[name] for one in found], axis=0) for name in names}
    best = root(-total["derivatives"]).clip(GRID[0], GRID[-1])
    return Targets(total["weight"] / total["rows"], total["gap"] / total["slope"], best)
