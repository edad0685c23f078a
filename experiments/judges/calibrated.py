"""The record of experiments.calibrate, and the verdicts on predictions/calibrate.md.

`of` is a length in tokens, for SmolLM2, or the name of another model. The predictions are C1 to
C10.

Chapters: calibration, predictions.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicHermiteSpline
from scipy.stats import spearmanr

from attnlib import _files
from attnlib._checking import FloatArray
from attnlib.calibration import Needles, ScaleGradient
from experiments.judges.judging import (
    Part,
    above,
    between,
    limits,
    number,
    require_interval_above_0,
)
from experiments.real_heads import verdicts
from experiments.records import RECORDED, Fields

KINDS = ("prose", "Bible", "Shakespeare", "Python")
"""Of the texts of SmolLM2, in turn: the texts of one kind are no independent sample of all text."""
FITTED, JUDGING = slice(0, None, 2), slice(1, None, 2)
"""The texts that a factor of the predictions is fitted to, and those that judge it.

Each half has two of the four kinds, so the halves differ in kind; those of
`Curves.crossed_gains` do not.
"""
OTHERS = ("AntiBERTy", "RXNMapper", "rxnfp", "MiniLM")
FOUND, SOUGHT = 0.3, 0.1
"""The weight on its target of a head that finds it, and of one whose t* is compared."""


@cache
def recorded_pieces() -> tuple[Fields, ...]:
    """Return all pieces of the record, one a line."""
    return tuple(_files.lines(RECORDED / "calibrate.jsonl"))


def select(of: int | str | None = None, **at: Any) -> list[Fields]:
    """Return the pieces of a length or a model with these fields, in the order of their texts."""
    if of is not None:
        at["model" if isinstance(of, str) else "length"] = of
    lines = [line for line in recorded_pieces() if at.items() <= line["at"].items()]
    return sorted(lines, key=lambda line: line["at"].get("text", 0))


def gradient(of: int | str) -> ScaleGradient:
    """Return ∂L/∂log t of each head and text."""
    lines = select(of, what="gradient")
    samples = np.array([line["gradient"] for line in lines])
    layers = [f"layer {i}" for i in range(samples.shape[1])]
    return ScaleGradient(layers, np.array([line["loss"] for line in lines]), samples)


def needles(kind: str, length: int) -> Needles:
    """Return the sums over each head's rows with a target; the weights at other factors are 0."""
    lines = select(length, what="needles", kind=kind)
    names = "rows", "weight", "gap", "slope", "reach", "derivatives"
    sums = {name: np.array([line[name] for line in lines]) for name in names}
    layers = [f"layer {i}" for i in range(sums["rows"].shape[1])]
    return Needles(layers, **sums, weights=np.zeros_like(sums["derivatives"]))


class Curves(NamedTuple):
    """The losses of texts at factors t on all logits, and their slopes ∂L/∂log t."""

    log_t: FloatArray
    losses: FloatArray
    """Shape (texts, len(log_t)), and so the slopes; in nats."""
    slopes: FloatArray

    def at(self, log_t: FloatArray | float, derivative: int = 0) -> FloatArray:
        """Return each text's loss at other factors, or its derivative in log t of that order."""
        spline = CubicHermiteSpline(self.log_t, self.losses, self.slopes, axis=1)
        values: FloatArray = spline(log_t, derivative)
        return values

    def best(self, texts: slice | NDArray[np.bool_] = slice(None)) -> float:
        """Return the factor t at which the mean loss of these texts is least."""
        fine = np.linspace(self.log_t[0], self.log_t[-1], 4001)
        return float(np.exp(fine[self.at(fine)[texts].mean(axis=0).argmin()]))

    def best_log_t(self) -> FloatArray:
        """Return each text's best log t, (texts,): one Newton step from the best one of all.

        The step is the text's slope over the mean second derivative.
        """
        best = np.log(self.best())
        log_t: FloatArray = best - self.at(best, 1) / self.at(best, 2).mean()
        return log_t

    def gains(self) -> FloatArray:
        """Return the fall of the loss of each text of `JUDGING` by the best factor of `FITTED`."""
        best = np.log(self.best(FITTED))
        gains: FloatArray = (self.at(0.0) - self.at(best))[JUDGING]
        return gains

    def halves(self) -> list[NDArray[np.bool_]]:
        """Return masks of two halves of the texts, alike in the `KINDS`."""
        first = np.arange(len(self.losses)) // len(KINDS) % 2 == 0
        return [first, ~first]

    def crossed_gains(self) -> FloatArray:
        """Return the fall of the loss of each text by the best factor of the other half."""
        gains = np.empty(len(self.losses))
        for half in self.halves():
            best = np.log(self.best(half))
            gains[~half] = (self.at(0.0) - self.at(best))[~half]
        return gains


def mean_by_kind(values: ArrayLike) -> FloatArray:
    """Return the mean of the values of texts over each of the `KINDS`, (kinds,)."""
    means: FloatArray = np.reshape(values, (-1, len(KINDS))).mean(axis=0)
    return means


def curves(of: int | str) -> Curves:
    """Return the losses and slopes at t = 1 and at the other recorded factors."""
    unchanged, shifted = gradient(of), select(of, what="shift")
    slopes_at_0 = np.nansum(unchanged.samples, axis=(1, 2))
    of_shift = {0.0: np.array([unchanged.losses, slopes_at_0])}
    for shift in {piece["at"]["log_t"] for piece in shifted}:
        pieces = [piece for piece in shifted if piece["at"]["log_t"] == shift]
        of_shift[shift] = np.array(
            [[piece[name] for piece in pieces] for name in ("loss", "slope")]
        )
    log_t = sorted(of_shift)
    losses, slopes = np.stack([of_shift[shift] for shift in log_t], axis=-1)
    return Curves(np.array(log_t), losses, slopes)


class Target(NamedTuple):
    """A head of SmolLM2 at rows of 512 tokens whose target is known, and its gradients."""

    kind: str
    layer: int
    head: int
    weight: float
    """The mean weight on the target."""
    needle: Fields
    """The head's line of `Needles.table`: the ratio, t* as `best_factor`, its interval."""
    near: float
    """∂L/∂log t at 2048 tokens of plain text."""
    far: float
    """∂L/∂log t at 8192 tokens of plain text."""


def targets(kind: str) -> list[Target]:
    """Return all heads, with the target of a kind: "repeat" or "previous"."""
    heads = []
    near, far = (gradient(n).value for n in (2048, 8192))
    for line in needles(kind, 512).table():
        at = int(line["layer"].removeprefix("layer ")), line["head"]
        heads.append(Target(kind, *at, line["weight"], line, near[at], far[at]))
    return heads


def judge_calibrate() -> Iterator[Part]:
    """Yield the parts of calibrate.md: SmolLM2, and four smaller models."""
    yield from _judge_one_factor("C1", (512, 1024, 2048), 0.95, 1.02, 0.005)
    yield above("C2", "∂L/∂log t at 512 tokens", gradient(512).samples.sum(axis=(1, 2)))
    yield from _judge_one_factor("C3", (4096, 8192), 0.93, 1.03, 0.01)
    yield from _judge_heads()
    [per_head], [rule] = (select(what=f"fit {name}") for name in ("head", "log"))
    gains = np.subtract(per_head["before"], per_head["after"])
    yield require_interval_above_0(between("C6", "gain of a factor per head", gains, 0.002, 0.02))
    yield between("C7", "b of the rule in n", rule["fit"]["b"][0][0], -0.05, 0.05)
    heads = [head for head in targets("repeat") + targets("previous") if head.weight >= SOUGHT]
    best = [head.needle["best_factor"] for head in heads]
    rank = float(spearmanr(best, [-head.far for head in heads]).statistic)
    yield number("C8", "rank correlation of t* and −∂L/∂log t at 8192", rank, "below 0.4")
    yield from _judge_one_factor("C9", OTHERS, 0.9, 1.1, 0.01)
    sums = [limits(np.nansum(gradient(name).samples, axis=(1, 2))) for name in OTHERS]
    differ = sum(low > 0.0 or high < 0.0 for low, high in sums)
    yield number("C10", "models whose ∂L/∂log t is not 0", differ, "at most 1")


def _judge_one_factor(
    name: str, places: tuple[int | str, ...], low: float, high: float, most: float
) -> Iterator[Part]:
    """Yield a part for each best factor, and one for each gain, which `most` bounds."""
    of_place = {of if isinstance(of, str) else f"{of} tokens": curves(of) for of in places}
    for where, losses in of_place.items():
        yield between(name, f"{where}, the best factor", losses.best(FITTED), low, high)
    for where, losses in of_place.items():
        yield number(name, f"{where}, its gain", losses.gains(), f"below {most}")


def _judge_heads() -> Iterator[Part]:
    """Yield the parts of C4 and C5: signs of the gradients of single heads at 2048 tokens."""
    of_heads = gradient(2048)
    differ = of_heads.p_values() < 0.05
    yield number("C4", "heads that differ from 0 at 2048", float(differ.sum()), "at least 40")
    larger = float((of_heads.value[differ] < 0.0).mean())
    yield between("C4", "share of these with larger logits", larger, 0.25, 0.75)
    repeats = [target.near < 0.0 for target in targets("repeat") if target.weight >= FOUND]
    yield number("C5", "heads that repeat, share larger", float(np.mean(repeats)), "above 0.5")
    sinks = verdicts.heads(2048, "first").reshape(of_heads.value.shape) > FOUND
    smaller = float((of_heads.value[sinks] > 0.0).mean())
    yield number("C5", "sinks, share smaller", smaller, "above 0.5")
