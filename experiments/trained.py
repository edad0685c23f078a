"""Models that are trained with a rule in n: what is read off their runs.

Those of trained_law.toml, trained_text.toml and trained_text_more.toml. Chapter:
length_extrapolation.
"""

from collections.abc import Iterable

import numpy as np

from experiments.judging import Values
from experiments.lab.comparison import by_variant
from experiments.lab.sweep import Outcome
from experiments.length import Heads

STEPS, TEXT_STEPS = 2000, 1500

# Where `Run.readings` have the model as it is, and under log n.
AS_IT_IS, UNDER_ROOT_LOG, UNDER_LOG = 0, 1, 2


class Recall:
    """Models of trained_law.toml, by task, rule and length: an array over the seeds."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.heads = Heads(outcomes)

    def __call__(self, variant: str, n: int, name: str = "none") -> Values:
        """Return the loss of the answer of each seed, or that under a rule, or another number."""
        return self.heads(name, variant, STEPS, n)

    def gain(self, variant: str, which: int) -> Values:
        """Return what the heads have learned, (seeds, heads): s or a, which is 0, or b, 1."""
        return np.array([run.learned[0][which] for run in self.heads.runs[variant, STEPS]])


class Text:
    """Models of both files of texts, by positions, rule and multiple of n₀: arrays of seeds."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.runs = by_variant(outcomes)

    def __call__(self, variant: str, times: int, column: int = AS_IT_IS) -> Values:
        """Return the loss at `times` n₀, in nats a byte, of each seed."""
        at = (1, 4, 16, 64).index(times)
        return np.array([run.readings[at, column] for run in self.runs[variant, TEXT_STEPS]])

    def lost(self, variant: str, times: int = 16) -> Values:
        """Return the loss at `times` n₀ above that at n₀."""
        return self(variant, times) - self(variant, 1)

    def gains(self, variant: str) -> Values:
        """Return what is learned at the end, (seeds, blocks, 1 or 2, heads)."""
        return np.array([run.gains[-1] for run in self.runs[variant, TEXT_STEPS]])
