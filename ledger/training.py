"""Claims on training with a scaled output (source 002), decided by the recorded runs.

Losses are in nats a byte. Chapter: training.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlib.checking import FloatArray
from experiments.lab import comparison
from ledger.registry import Decision, Verdict, claim, holds, listed

if TYPE_CHECKING:  # the runs load torch, and the other claims need none
    from experiments.lab.sweep import Outcome

ROUNDED = 1e-9
"""Losses are the same up to rounding, which 100 steps of training multiply by a thousand or so."""

FURTHER = {"cause": ("cause_seeds", "cause_rates")}
"""Experiments with more seeds or learning rates for another one."""


def recorded(experiment: str) -> "Sequence[Outcome]":
    """Return the recorded runs of an experiment."""
    from experiments import records

    return records.together(experiment, *FURTHER.get(experiment, ()))


class Compared(NamedTuple):
    """Two variants of an experiment: at which rates one is surely worse, or better, and words."""

    worse: NDArray[np.bool_]
    better: NDArray[np.bool_]
    lower: str
    evidence: str


def compare(experiment: str, changed: str, against: str) -> Compared:
    """Compare the final losses of two variants, rate by rate."""
    runs = recorded(experiment)
    harm = comparison.harm(runs, changed, against)
    gaps = comparison.interval(harm)
    rates = [*map(_rate, comparison.learning_rates(runs))]
    counts = zip((harm < 0.0).sum(axis=-1), rates, strict=True)
    return Compared(
        gaps.mean > gaps.half_width,
        gaps.mean < -gaps.half_width,
        ", ".join(f"{count} at {rate}" for count, rate in counts if count) or "none",
        f"{_size(runs)}: the factor changes the final loss by {_listed(harm)} nats a byte at "
        f"learning rates {', '.join(rates)} (95 % intervals over {harm.shape[-1]} seeds).",
    )


@claim("training.worse", experiments=("source_start", "learning_rate"), refuted=Verdict.WRONG)
@claim("training.bert", experiments=("encoder", "encoder_longer"), refuted=Verdict.OPEN)
def worse(
    experiments: tuple[str, str],
    refuted: Verdict,
    changed: str = "note",
    against: str = "baseline",
) -> Decision:
    """The variant `changed` is worse than `against` in both experiments."""
    found = [compare(one, changed, against) for one in experiments]
    if all(one.worse.all() for one in found):
        verdict = Verdict.HOLDS_WITHIN
    else:
        better = any(one.better.any() for one in found)
        verdict = refuted if better else Verdict.NEEDS_A_CONDITION
    seeds = len({one.setting.training.seed for one in recorded(experiments[0])})
    return verdict, {
        "first": found[0].evidence,
        "second": found[1].evidence,
        "seeds": seeds,
        "lower": found[0].lower,
    }


def apart(variant: str, precision: str) -> FloatArray:
    """Return |loss − loss of the baseline| at each step of the experiment "residual"."""
    runs: list[Any] = [*recorded("residual")]
    losses = {(one.setting.variant, one.setting.training.precision): one.run.losses for one in runs}
    gaps: FloatArray = np.abs(losses[variant, precision] - losses["baseline", precision])
    return gaps


@claim("training.residual")
def residual(
    power_of_two: str = "eight", inexact: str = "undone", whole: str = "eight_with_bias"
) -> Decision:
    """The runs of all three variants are those of the baseline; the last weights the bias too."""
    exactly = [apart(power_of_two, precision) for precision in ("float32", "float64")]
    rounded = apart(inexact, "float64")[:100].max()
    biased = apart(whole, "float64")
    largest = max(gaps.max() for gaps in exactly)
    if largest == 0.0 and rounded < ROUNDED:
        verdict = Verdict.HOLDS if biased.max() < ROUNDED else Verdict.NEEDS_A_CONDITION
    else:
        verdict = Verdict.WRONG
    return verdict, {
        "steps": exactly[0].size,
        "same": "are the same to the last bit" if not largest else f"differ by up to {largest:.2g}",
        "rounded": rounded,
        "part_at": np.argmax(biased > 0.0) + 1,
        "biased": biased.max(),
        "last": biased[-20:].mean(),
        "size": _size(recorded("residual"), steps=False),
    }


@claim("training.scale-dependent")
def scale_dependent(changed: str = "note", undone: str = "eight", skip: bool = True) -> Decision:
    """The harm of `changed` is gone if the factor is undone before the addition, or after it.

    Before it in the variant `undone`; after it by the normalisation that reads the sum, if with
    `skip` all else that is added has the factor as well. And there is harm at the best rate.
    """
    runs = recorded("source_start")
    best = _best_rate(runs)
    harm = comparison.harm(runs, changed)[best]
    gap = comparison.interval(harm)
    before = max(apart(undone, precision).max() for precision in ("float32", "float64"))
    rest, branch = np.sin(np.outer((1.0, 1.7), np.arange(128.0)))
    c = (128 / math.e) ** 0.5
    plain = _normalised(rest + branch)
    alone = float(np.abs(_normalised(rest + c * branch) - plain).max())
    after = float(np.abs(_normalised(c * rest + c * branch) - plain).max()) if skip else alone
    return holds(max(before, after) < ROUNDED and gap.mean > gap.half_width), {
        "before": before,
        "after": after,
        "alone": alone,
        "harm": _listed(harm),
        "rate": _rate(comparison.learning_rates(runs)[best]),
        "seeds": harm.size,
    }


def _normalised(total: FloatArray) -> FloatArray:
    """Return what a LayerNorm without ε makes of a sum."""
    normalised: FloatArray = (total - total.mean()) / total.std()
    return normalised


@claim("training.cause")
def cause(suspect: str = "larger", other: str = "smaller") -> Decision:
    """The variant `suspect` alone surely costs more than `other` alone, from both starts.

    A factor c on z is a start of W that is c times larger and a learning rate of W that is c times
    larger. "larger" has the first alone, "smaller" the second alone.
    """
    (source, of_source), (ours, of_ours) = (
        _halves(name, suspect, other) for name in ("source_start", "cause")
    )
    verdict = Verdict.ANSWERED if source and ours else Verdict.OPEN
    return verdict, {"of_source": of_source, "of_ours": of_ours}


def _halves(experiment: str, suspect: str, other: str) -> tuple[bool, str]:
    """Return whether `suspect` surely costs more than `other` at the best rate, and the numbers."""
    runs = recorded(experiment)
    best = _best_rate(runs)
    both, alone, rest = (comparison.harm(runs, one)[best] for one in ("note", suspect, other))
    more = comparison.interval(alone - rest)
    return bool(more.mean > more.half_width), (
        f"{_size(runs)}: at the best rate, {_rate(comparison.learning_rates(runs)[best])}, both "
        f"cost {_listed(both)} nats a byte, the start alone {_listed(alone)}, the rate alone "
        f"{_listed(rest)} (95 % intervals over {both.size} seeds). The start costs more than the "
        f"rate by {_listed(alone - rest)}, and both more than the sum of the two by "
        f"{_listed(both - alone - rest)}."
    )


def _best_rate(runs: "Sequence[Outcome]") -> int:
    """Return which rate is the baseline's best, by its mean loss."""
    return int(comparison.losses(runs, "baseline").mean(axis=-1).argmin())


def _rate(rate: float) -> str:
    return f"2^({np.log2(rate):g})"


def _size(runs: "Sequence[Outcome]", steps: bool = True) -> str:
    """Return the size of the models, and how long they were trained, in words."""
    setting: Any = runs[0].setting
    size = setting.config
    words = f"{size.depth} layers, width {size.width}, n = {size.sequence}"
    return f"{words}, {setting.training.steps} steps" if steps else words


def _listed(values: FloatArray) -> str:
    """Return the mean over the seeds, at each rate, with its interval."""
    gaps = comparison.interval(values)
    return listed("{:+.3f} ± {:.3f}", np.ravel(gaps.mean), np.ravel(gaps.half_width))
