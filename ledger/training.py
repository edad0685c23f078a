"""Claims on training with a scaled output (source 002), decided by recorded runs.

What a check needs of those runs is in training_runs.json, beside this file. Chapter: training.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from attnlib.checking import FloatArray
from experiments.lab import comparison
from experiments.lab.comparison import Interval
from ledger.registry import Finding, Verdict, claim

RUNS = "training_runs.json"

ROUNDED = 1e-9
"""Losses are the same up to rounding, which 100 steps of training multiply by a thousand or so."""


@dataclass(frozen=True)
class Run:
    """What a check needs of one recorded run. Losses are in nats a byte."""

    variant: str
    learning_rate: float
    seed: int
    precision: str
    final_loss: float
    apart: Sequence[float] = ()  # |loss − baseline's| at each step, where a check compares these


@dataclass(frozen=True)
class Experiment:
    """The size of the models of one experiment, and its runs in the order of the sweep."""

    depth: int
    width: int
    sequence: int
    steps: int
    runs: tuple[Run, ...]

    def learning_rates(self) -> FloatArray:
        """Return the learning rates, in the order of the sweep."""
        return np.array(list(dict.fromkeys(run.learning_rate for run in self.runs)))

    def size(self) -> str:
        """Return the size of the models, and how long they were trained, in words."""
        return f"{self.depth} layers, width {self.width}, n = {self.sequence}, {self.steps} steps"

    def rate(self, index: int) -> str:
        """Return one of them as a power of two."""
        return f"2^({np.log2(self.learning_rates()[index]):g})"

    def seeds(self) -> int:
        """Return the number of seeds."""
        return len({run.seed for run in self.runs})

    def best_rate(self) -> int:
        """Return which rate is the baseline's best, by its mean loss."""
        return int(self.final_losses("baseline").mean(axis=-1).argmin())

    def final_losses(self, variant: str) -> FloatArray:
        """Return the final losses of a variant, shape (rates, seeds)."""
        found = [run for run in self.runs if run.variant == variant]
        rates = self.learning_rates()
        return np.array(
            [[run.final_loss for run in found if run.learning_rate == r] for r in rates]
        )

    def harm(self, changed: str, against: str = "baseline") -> FloatArray:
        """Return how much larger the final loss of `changed` is, shape (rates, seeds).

        Both variants of a seed start from the same parameters and see the same batches.
        """
        return self.final_losses(changed) - self.final_losses(against)


@cache
def recorded(experiment: str) -> Experiment:
    """Return what is recorded of an experiment."""
    text = resources.files("ledger").joinpath(RUNS).read_text("utf-8")
    found = json.loads(text)["recorded"][experiment]
    return Experiment(**{**found, "runs": tuple(Run(**run) for run in found["runs"])})


@claim("training.worse")
def worse(changed: str = "note", against: str = "baseline") -> Finding:
    """The variant `changed` is worse than `against`."""
    above, below, evidence = _compared("source_start", changed, against)
    ours_above, ours_below, ours = _compared("learning_rate", changed, against)
    if above.all() and ours_above.all():
        verdict = Verdict.HOLDS_WITHIN
    else:
        better = (below | ours_below).any()
        verdict = Verdict.WRONG if better else Verdict.NEEDS_A_CONDITION
    return Finding(
        verdict,
        f"At half the source's size and from its own start. {evidence} From a start of ours, with "
        f"larger weights. {ours} One interval that reaches 0 makes it a matter of the rate, or of "
        f"the seed, one below 0 would refute it. {_lower('source_start', changed, against)}",
    )


@claim("training.bert")
def bert(changed: str = "note", against: str = "baseline") -> Finding:
    """In small masked encoders the variant `changed` is worse than `against`."""
    above, below, evidence = _compared("encoder", changed, against)
    longer_above, longer_below, longer = _compared("encoder_longer", changed, against)
    if above.all() and longer_above.all():
        verdict = Verdict.HOLDS_WITHIN
    else:
        verdict = Verdict.OPEN if (below | longer_below).any() else Verdict.NEEDS_A_CONDITION
    return Finding(
        verdict,
        "Not BERT, which these runs can neither confirm nor refute, but small masked encoders. "
        f"{evidence} {longer} Only intervals that are all above 0 would be for it.",
    )


def _lower(experiment: str, changed: str, against: str) -> str:
    """Say where runs of `changed` end lower than those of `against` with the same seed."""
    found = recorded(experiment)
    lower = (found.harm(changed, against) < 0.0).sum(axis=-1)
    rates = [f"{count} at {found.rate(i)}" for i, count in enumerate(lower) if count]
    listed = ", ".join(rates) if rates else "none"
    return f"Of the {found.seeds()} runs of a rate from its own start, so many end lower: {listed}."


def _compared(
    experiment: str, changed: str, against: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], str]:
    """Return at which rates `changed` is surely worse, at which surely better, and the numbers."""
    found = recorded(experiment)
    gaps = comparison.interval(found.harm(changed, against))
    rates = ", ".join(map(found.rate, range(gaps.mean.size)))
    evidence = (
        f"{found.size()}: the factor changes the final loss by {_listed(gaps)} nats a byte at "
        f"learning rates {rates} (95 % intervals over {found.seeds()} seeds)."
    )
    return gaps.mean > gaps.half_width, gaps.mean < -gaps.half_width, evidence


def _listed(gaps: Interval) -> str:
    return ", ".join(f"{mean:+.3f} ± {half:.3f}" for mean, half in np.column_stack(gaps))


def _apart(variant: str, precision: str) -> FloatArray:
    """Return |loss − loss of the baseline| at each step of the experiment "residual"."""
    (found,) = (
        run
        for run in recorded("residual").runs
        if (run.variant, run.precision) == (variant, precision)
    )
    return np.array(found.apart)


@claim("training.residual")
def residual(
    power_of_two: str = "eight", inexact: str = "undone", whole: str = "eight_with_bias"
) -> Finding:
    """The runs of all three variants are those of the baseline; the last weights the bias too."""
    exactly = [_apart(power_of_two, precision) for precision in ("float32", "float64")]
    rounded = _apart(inexact, "float64")
    biased = _apart(whole, "float64")
    largest = max(gaps.max() for gaps in exactly)
    same = "are the same to the last bit" if largest == 0.0 else f"differ by up to {largest:.2g}"
    holds = largest == 0.0 and rounded[:100].max() < ROUNDED
    found = recorded("residual")
    if holds:
        verdict = Verdict.HOLDS if biased.max() < ROUNDED else Verdict.NEEDS_A_CONDITION
    else:
        verdict = Verdict.WRONG
    return Finding(
        verdict,
        "If the weight r multiplies the projection and not its bias, r·c = 1 is the baseline. With "
        f"c = 8, all {exactly[0].size} losses {same}, in float32 and in float64. With "
        f"c = (n/e)^½, which rounds, the first 100 differ by at most {rounded[:100].max():.1g} "
        "(float64). A weight on all that the branch adds multiplies the bias too, which had no "
        f"factor: then the losses part at step {np.argmax(biased > 0.0) + 1}, by up to "
        f"{biased.max():.1g}, and by {biased[-20:].mean():.1g} in the mean of the last "
        "20: the same curve to the eye, but not exactly the same effect. "
        f"({found.depth} layers, width {found.width}, n = {found.sequence}, one seed: an identity "
        "needs no more.)",
    )


@claim("training.scale-dependent")
def scale_dependent(changed: str = "note", undone: str = "eight", skip: bool = True) -> Finding:
    """The harm of `changed` is gone if the factor is undone before the addition, or after it.

    Before it in the variant `undone`; after it by the normalisation that reads the sum, if with
    `skip` all else that is added has the factor as well. And there is harm at the best rate.
    """
    found = recorded("source_start")
    best = found.best_rate()
    gap = comparison.interval(found.harm(changed)[best])
    before = max(_apart(undone, precision).max() for precision in ("float32", "float64"))
    rest, branch = np.sin(np.outer((1.0, 1.7), np.arange(128.0)))
    c = (128 / math.e) ** 0.5
    plain = _normalised(rest, branch)
    after = float(np.abs(_normalised(c * rest if skip else rest, c * branch) - plain).max())
    alone = float(np.abs(_normalised(rest, c * branch) - plain).max())
    holds = max(before, after) < ROUNDED and bool(gap.mean > gap.half_width)
    return Finding(
        Verdict.HOLDS if holds else Verdict.WRONG,
        f"A factor that is undone just before the addition changes no loss (by {before:.1g}). That "
        "is an identity, wherever on the way to the addition it is undone, and says only that the "
        "harm is not done before. If all else that is added to the stream had the factor too, the "
        f"normalisations that read the stream would undo it (to {after:.0e}); with the branch "
        f"alone, what they give changes by up to {alone:.1f} standard deviations. So the factor "
        "acts as a weight of the branch against what it is added to, and as nothing else. That "
        f"costs {_listed(gap)} nats a byte at the best rate, {found.rate(best)} (95 % interval "
        f"over {found.seeds()} seeds). In which way it does harm, this does not say.",
    )


def _normalised(skip: FloatArray, branch: FloatArray) -> FloatArray:
    """Return what a LayerNorm without ε makes of the sum."""
    total = skip + branch
    normalised: FloatArray = (total - total.mean()) / total.std()
    return normalised


@claim("training.cause")
def cause(suspect: str = "larger", other: str = "smaller") -> Finding:
    """The variant `suspect` alone surely costs more than `other` alone, from both starts.

    A factor c on z is a start of W that is c times larger and a learning rate of W that is c times
    larger. "larger" has the first alone, "smaller" the second alone.
    """
    source, ours = (_halves(name, suspect, other) for name in ("source_start", "cause"))
    return Finding(
        Verdict.ANSWERED if source[0] and ours[0] else Verdict.OPEN,
        "The factor is a start of the projection W that is c times larger and a learning rate of W "
        f"that is c times larger, nothing else. From the source's start: {source[1]} From a start "
        f"of ours, with larger weights: {ours[1]} The start would be the answer, and for this "
        "model alone, if it surely cost more than the rate from both starts.",
    )


def _halves(experiment: str, suspect: str, other: str) -> tuple[bool, str]:
    """Return whether `suspect` surely costs more than `other` at the best rate, and the numbers."""
    found = recorded(experiment)
    best = found.best_rate()
    both, alone, rest = (found.harm(variant)[best] for variant in ("note", suspect, other))
    more = comparison.interval(alone - rest)
    gaps = (both, alone, rest, alone - rest, both - alone - rest)
    costs, start, rate, difference, together = (_listed(comparison.interval(gap)) for gap in gaps)
    return bool(more.mean > more.half_width), (
        f"{found.size()}: at the best rate, {found.rate(best)}, both cost {costs} nats a byte, the "
        f"start alone {start}, the rate alone {rate} (95 % intervals over {found.seeds()} seeds). "
        f"The start costs more than the rate by {difference}, and both more than the sum of the "
        f"two by {together}."
    )
