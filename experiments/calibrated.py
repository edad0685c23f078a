"""What experiments.calibrate has recorded, read for the chapter.

`of` is a length in tokens, for SmolLM2, or the name of another model. predictions/calibrate.md has
what was predicted of them. Chapter: calibration.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicHermiteSpline

from attnlib import _files
from attnlib._checking import FloatArray
from attnlib.calibration import Needles, ScaleGradient
from experiments.records import RECORDED, Fields

KINDS = ("prose", "Bible", "Shakespeare", "Python")
"""Of the texts of SmolLM2, in turn: the texts of one kind are no independent sample of all text."""
FITTED, JUDGING = slice(0, None, 2), slice(1, None, 2)
"""The texts that a factor of the predictions is fitted to, and those that judge it.

Each half has two of the four kinds, so the halves differ in kind; those of `Curves.crossed` do not.
"""
OTHERS = ("AntiBERTy", "RXNMapper", "rxnfp", "MiniLM")
FOUND, SOUGHT = 0.3, 0.1
"""The weight on its target of a head that finds it, and of one whose t* is compared."""


@cache
def pieces() -> tuple[Fields, ...]:
    """Return all pieces of the record."""
    return tuple(_files.lines(RECORDED / "calibrate.jsonl"))


def select(**at: Any) -> list[Fields]:
    """Return the pieces that are of this, in the order of their texts."""
    lines = [line for line in pieces() if at.items() <= line["at"].items()]
    return sorted(lines, key=lambda line: line["at"].get("text", 0))


def place(of: int | str) -> Fields:
    """Return how the pieces of a length, or of another model, are marked."""
    return {"model" if isinstance(of, str) else "length": of}


def gradient(of: int | str) -> ScaleGradient:
    """Return ∂L/∂log t of each head, text by text."""
    lines = select(what="gradient", **place(of))
    samples = np.array([line["gradient"] for line in lines])
    layers = [f"layer {i}" for i in range(samples.shape[1])]
    return ScaleGradient(layers, np.array([line["loss"] for line in lines]), samples)


def needles(kind: str, length: int) -> Needles:
    """Return what each head's rows with a target are, without weights at other factors."""
    lines = select(what="needles", kind=kind, length=length)
    names = "rows", "weight", "gap", "slope", "reach", "derivatives"
    sums = {name: np.array([line[name] for line in lines]) for name in names}
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
        values: FloatArray = spline(log_t, derivative)
        return values

    def best(self, texts: slice | NDArray[np.bool_] = slice(None)) -> float:
        """Return the factor at which the mean loss of these texts is least."""
        fine = np.linspace(self.log_t[0], self.log_t[-1], 4001)
        return float(np.exp(fine[self.at(fine)[texts].mean(axis=0).argmin()]))

    def wants(self) -> FloatArray:
        """Return log t of each text: from the best of all, its own slope over the mean rise."""
        best = np.log(self.best())
        wants: FloatArray = best - self.at(best, 1) / self.at(best, 2).mean()
        return wants

    def gains(self) -> FloatArray:
        """Return what the factor of the texts `FITTED` gains on each of the others."""
        best = np.log(self.best(FITTED))
        gains: FloatArray = (self.at(0.0) - self.at(best))[JUDGING]
        return gains

    def halves(self) -> list[NDArray[np.bool_]]:
        """Return two halves of the texts, each with as many texts of each of the `KINDS`."""
        first = np.arange(len(self.losses)) // len(KINDS) % 2 == 0
        return [first, ~first]

    def crossed(self) -> FloatArray:
        """Return what the factor of one half gains on each text of the other, both ways."""
        gains = np.empty(len(self.losses))
        for half in self.halves():
            best = np.log(self.best(half))
            gains[~half] = (self.at(0.0) - self.at(best))[~half]
        return gains


def by_kind(values: ArrayLike) -> FloatArray:
    """Return the mean over the texts of each of the `KINDS`, from values of all texts, in turn."""
    means: FloatArray = np.reshape(values, (-1, len(KINDS))).mean(axis=0)
    return means


def curves(of: int | str) -> Curves:
    """Return the losses at t = 1 and at the other factors."""
    here, moved = gradient(of), select(what="shift", **place(of))
    of_shift = {0.0: np.array([here.losses, np.nansum(here.samples, axis=(1, 2))])}
    for shift in {line["at"]["log_t"] for line in moved}:
        these = [line for line in moved if line["at"]["log_t"] == shift]
        of_shift[shift] = np.array([[line[name] for line in these] for name in ("loss", "slope")])
    log_t = sorted(of_shift)
    losses, slopes = np.stack([of_shift[shift] for shift in log_t], axis=-1)
    return Curves(np.array(log_t), losses, slopes)


class Target(NamedTuple):
    """A head of SmolLM2 with a known target at 512 tokens, and its gradients in plain text."""

    kind: str
    layer: int
    head: int
    weight: float
    needle: Fields
    """The head's line of `Needles.table`: the ratio, t* as `best_factor`, its interval."""
    near: float
    """∂L/∂log t at 2048 tokens."""
    far: float
    """∂L/∂log t at 8192 tokens."""


def targets(kind: str) -> list[Target]:
    """Return all heads with rows of a target: "repeat" or "previous"."""
    heads = []
    near, far = (gradient(n).value for n in (2048, 8192))
    for line in needles(kind, 512).table():
        layer, head = int(line["layer"].removeprefix("layer ")), line["head"]
        slopes = near[layer, head], far[layer, head]
        heads.append(Target(kind, layer, head, line["weight"], line, *slopes))
    return heads
