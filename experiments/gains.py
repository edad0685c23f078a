"""The gain at which QK-norm begins: what is read off the runs.

Those of gain_text.toml, gain_text_longer.toml, gain_text_faster.toml and gain_recall.toml. A gain
is given by its α, what multiplies the cosine over √d: 1 is √d on the cosine. Chapter: qk_norm.
"""

from typing import Any

import numpy as np

from experiments.judging import Values
from experiments.length import Heads

KINDS = ("learned", "fixed")
BRIEF, LONG = 500, 2000


class Gains(Heads):
    """Runs by the name of their variant and their steps, each in the order of its seeds."""

    def alphas(self, kind: str, steps: int) -> list[float]:
        """Return the α at which runs of a kind begin, "learned" or "noise_fixed", say, in order."""
        names = [variant.rpartition("_") for variant, at in self.runs if at == steps]
        return sorted(int(alpha) / 100 for before, _, alpha in names if before == kind)

    def of(self, kind: str, alpha: float, steps: int) -> list[Any]:
        """Return the runs of a kind that begin at α, one a seed."""
        return self.runs[variant(kind, alpha), steps]

    def loss(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the validation loss of each seed, in nats a byte."""
        return np.array([run.validation_loss for run in self.of(kind, alpha, steps)])

    def ends(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the α at which the learned gains end, (seeds, blocks, heads)."""
        return alpha * np.array([run.gains[-1][:, 0] for run in self.of(kind, alpha, steps)])

    def moved(self, kind: str, alpha: float, steps: int) -> Values:
        """Return what a recall model's learned gain has become of its start, of each seed."""
        return np.array([np.mean(run.learned[0][0]) for run in self.of(kind, alpha, steps)])


def variant(kind: str, alpha: float) -> str:
    """Return what a sweep calls runs of a kind that begin at α."""
    return f"{kind}_{round(100 * alpha):03d}"
