"""Heads that learn to find: what is read off the runs of length_head.toml.

predictions/length.md has what was predicted of them. Chapters: length_extrapolation, short_answer.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.judging import Values
from experiments.lab.comparison import by_variant
from experiments.lab.recall import LAWS, multipliers
from experiments.lab.sweep import Outcome

START = 64
LENGTHS = (16, 64, 256, 1024, 4096)
FAR = 1024
"""16 times the length of training."""
STEPS = (100, 300, 1000, 3000, 10000)
BRIEF, LONG = STEPS[0], STEPS[-1]

DISTINCT = tuple(law for law in LAWS if law != "qwen")
"""The laws beyond n₀: Qwen's is SSMax's there, and its numbers are not counted a second time."""


class Heads:
    """The runs, by variant, steps and length: an array over the seeds for each number."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.runs = by_variant(outcomes)

    def found(self, variant: str, steps: int, n: int) -> list[dict[str, Any]]:
        """Return all that is measured at n, of each seed."""
        return [one for run in self.runs[variant, steps] for one in run.measured if one["n"] == n]

    def __call__(self, name: str, variant: str, steps: int, n: int) -> Values:
        """Return a number of each seed; "none" and the laws are losses, a model's of the answer."""
        entries = self.found(variant, steps, n)
        answers = "answers" in entries[0]
        if name in LAWS:
            return np.array([one["answers" if answers else "laws"][name] for one in entries])
        if name == "none":
            name = "answer_loss" if answers else "loss"
        return np.array([one[name] for one in entries])


def rule_wrong(heads: Heads, *, at_start: bool = False) -> list[bool]:
    """Return for each cell and law whether "it beats none where t* > √r" is wrong at 16 n₀.

    t* is the factor of least loss at 16 n₀ itself, where the rule follows from the shape of the
    loss, or `at_start` that at n₀, which is all that can be measured there. Cells where t* and √r
    are within 5 % are left out.
    """
    wrong: list[bool] = []
    for variant, steps in heads.runs:
        start = 256 if variant.endswith("_256") else START
        n = 16 * start
        best = float(heads("best", variant, steps, start if at_start else n).mean())
        factors = multipliers(n, start, 32)
        for law in DISTINCT:
            factor = factors[law]
            if abs(math.log(best / math.sqrt(factor))) > 0.05:
                gain = heads("none", variant, steps, n) - heads(law, variant, steps, n)
                wrong.append((best > math.sqrt(factor)) != (gain.mean() > 0.0))
    return wrong
