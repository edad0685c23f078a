"""The factor c = (n/e)^½ on attention's output: what is read off the runs.

"note" has the factor, "larger" its larger start of W alone, "smaller" its larger rate alone.
Chapters: almost_scaled_training, training_details.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from scipy.stats import spearmanr

from experiments import records
from experiments.lab import comparison
from experiments.lab.comparison import (
    loss_increase,
)
from experiments.lab.sweep import Outcome

HALVES = ("larger", "smaller", "note")


class Branch(NamedTuple):
    """How large a run's first branch became, and how much higher the run ended."""

    variant: str
    learning_rate: float
    largest: float
    """The largest recorded ratio of branch to skip in the first block."""
    rise: float
    """The final loss minus the base's at the same rate and seed, in nats per byte."""


def branches(experiment: str, base: str = "baseline") -> list[Branch]:
    """Return each run of an experiment beside those of `base`."""
    runs: Sequence[Any] = records.runs(experiment)
    rates = list(comparison.learning_rates(runs))
    found = []
    for setting, run in runs:
        if setting.variant != base:
            rate, seed = setting.training.learning_rate, setting.training.seed
            rise = loss_increase(runs, setting.variant, base)[rates.index(rate), seed]
            largest = run.branch_ratios[:, 0].max()
            found.append(Branch(setting.variant, rate, float(largest), float(rise)))
    return found


def rank(some: Sequence[Branch]) -> float:
    """Return the rank correlation of the largest branch with the rise."""
    return float(spearmanr([r.largest for r in some], [r.rise for r in some]).statistic)


def ours() -> Sequence[Outcome]:
    """Return the cross of start and rate from our start, five rates and five seeds."""
    return records.merge_runs("cause", "cause_seeds", "cause_rates")
