"""Claims on training with a scaled output (source 002), decided by recorded runs.

What a check needs of those runs is in training_runs.json, beside this file. Chapter: training.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from attnlib.checking import FloatArray
from attnlib.claims.registry import TENTH, Finding, Verdict, claim
from attnlib.lab import comparison
from attnlib.lab.comparison import Interval

RUNS = "training_runs.json"

EARLY = slice(480, 500)
"""The steps whose mean loss is a run's early loss."""

ROUNDED = 1e-9
"""Losses are the same up to rounding, which 100 steps of training multiply by a thousand or so."""

ALIKE = 0.25
"""Two costs are one if they differ by less than a quarter: the intervals over seeds are as wide."""


@dataclass(frozen=True)
class Run:
    """What a check needs of one recorded run. Losses are in nats a byte."""

    variant: str
    learning_rate: float
    seed: int
    precision: str
    final_loss: float
    early_loss: float
    losses: Sequence[float] = ()  # of each step, where a check compares them step by step


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
    text = resources.files("attnlib.claims").joinpath(RUNS).read_text("utf-8")
    found = json.loads(text)["recorded"][experiment]
    return Experiment(**{**found, "runs": tuple(Run(**run) for run in found["runs"])})


@claim("training.worse")
def worse(changed: str = "note", against: str = "baseline") -> Finding:
    """The variant `changed` is worse than `against`."""
    above, below, evidence = _compared("learning_rate", changed, against)
    if above.all():
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.WRONG if below.any() else Verdict.NEEDS_A_CONDITION
    return Finding(verdict, evidence)


@claim("training.bert")
def bert(changed: str = "note", against: str = "baseline") -> Finding:
    """In small masked encoders the variant `changed` is worse than `against`."""
    above, below, evidence = _compared("encoder", changed, against)
    longer_above, longer_below, longer = _compared("encoder_longer", changed, against)
    if above.all() and longer_above.all():
        verdict = Verdict.HOLDS_WITHIN
    else:
        verdict = Verdict.OPEN if (below | longer_below).any() else Verdict.NEEDS_A_CONDITION
    return Finding(verdict, f"Not BERT, but small masked encoders. {evidence} {longer}")


def _compared(
    experiment: str, changed: str, against: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], str]:
    """Return at which rates `changed` is surely worse, at which surely better, and the numbers."""
    found = recorded(experiment)
    gaps = comparison.interval(found.harm(changed, against))
    seeds = {run.seed for run in found.runs}
    evidence = (
        f"{found.depth} layers, width {found.width}, n = {found.sequence}, {found.steps} "
        f"steps: the factor changes the final loss by {_listed(gaps)} nats a byte at learning "
        f"rates {_rates(found)} (95 % intervals over {len(seeds)} seeds)."
    )
    return gaps.mean > gaps.half_width, gaps.mean < -gaps.half_width, evidence


def _listed(gaps: Interval) -> str:
    pairs = zip(gaps.mean, gaps.half_width, strict=True)
    return ", ".join(f"{mean:+.3f} ± {half:.3f}" for mean, half in pairs)


def _rates(experiment: Experiment) -> str:
    return ", ".join(f"2^({power:g})" for power in np.log2(experiment.learning_rates()))


def _apart(variant: str, precision: str) -> FloatArray:
    """Return |loss − loss of the baseline| at each step of the experiment "residual"."""
    losses = {
        run.variant: np.array(run.losses, dtype=precision).astype(np.float64)
        for run in recorded("residual").runs
        if run.precision == precision
    }
    return np.abs(losses[variant] - losses["baseline"])


@claim("training.residual")
def residual(power_of_two: str = "eight", inexact: str = "undone") -> Finding:
    """The runs of both variants are those of the baseline."""
    exactly = [_apart(power_of_two, precision) for precision in ("float32", "float64")]
    rounded = _apart(inexact, "float64")
    biased = _apart("eight_with_bias", "float64")
    largest = max(gaps.max() for gaps in exactly)
    same = "are the same to the last bit" if largest == 0.0 else f"differ by up to {largest:.2g}"
    holds = largest == 0.0 and rounded[:100].max() < ROUNDED
    return Finding(
        Verdict.HOLDS if holds else Verdict.WRONG,
        f"With r·c = 1 and c = 8, all {exactly[0].size} losses {same}, in float32 and in float64. "
        f"With c = (n/e)^½, which rounds, the first 100 differ by at most "
        f"{rounded[:100].max():.1g} (float64). r multiplies the projection and not its bias: if it "
        f"multiplies the bias too, the losses part at step {np.flatnonzero(biased)[0] + 1}.",
    )


@claim("training.scale-dependent")
def scale_dependent(experiment: str = "residual", undone: str = "eight") -> Finding:
    """In `experiment`, the variant `undone` has a factor, but not where the branch is added."""
    full = _excess("cause", "note")
    left = _excess(experiment, undone)
    return Finding(
        Verdict.HOLDS if abs(left) < TENTH * full else Verdict.WRONG,
        f"A factor on z that is undone just before the addition changes the loss after "
        f"{EARLY.stop} steps by {left:.3f} nats a byte; one that reaches it by {full:.3f} (one "
        "seed). All between the two is linear, and Adam does not see the size of a gradient.",
    )


def _excess(experiment: str, variant: str) -> float:
    """Return how much larger the early loss of a variant is; seed 0, rate 2⁻⁹, float32."""
    losses = {
        run.variant: run.early_loss
        for run in recorded(experiment).runs
        if (run.seed, run.learning_rate, run.precision) == (0, 2.0**-9, "float32")
    }
    return losses[variant] - losses["baseline"]


@claim("training.cause")
def cause(suspect: str = "baseline_larger", other: str = "note_smaller") -> Finding:
    """The variant `suspect` alone costs what the factor costs at every rate, and `other` does not.

    A factor c on z is a start of W that is c times larger and a learning rate of W that is c times
    larger. "baseline_larger" has the first alone, "note_smaller" the second alone.
    """
    found = recorded("cause")
    both, alone, rest = (found.harm(variant) for variant in ("note", suspect, other))
    shares, others = (part.mean(axis=-1) / both.mean(axis=-1) for part in (alone, rest))
    answered = np.abs(shares - 1.0).max() < ALIKE < np.abs(others - 1.0).max()
    listed, listed_others = (
        ", ".join(f"{100 * share:.0f}" for share in part) for part in (shares, others)
    )
    return Finding(
        Verdict.NEEDS_A_CONDITION if answered else Verdict.OPEN,
        "Not in this small model; of large ones nothing is known here. The factor is a start of "
        "the projection W that is c times larger and a learning rate of W that is c times larger, "
        f"nothing else. At learning rates {_rates(found)} it costs "
        f"{_listed(comparison.interval(both))} nats a byte. The larger start alone costs {listed} "
        f"% of that, the larger rate alone {listed_others} %.",
    )
