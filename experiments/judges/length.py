"""Verdicts on the predictions about single heads that learn to find: 1 to 21 of length.md.

The runs are those of length_head.toml.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.judges.judging import Part, Values, above, between, near, number
from experiments.lab.comparison import by_variant
from experiments.lab.head_measures import LAWS, multipliers
from experiments.lab.sweep import Outcome
from experiments.records import runs

START = 64
"""n₀, the length of training, in keys or tokens."""
LENGTHS = (16, 64, 256, 1024, 4096)
FAR = 1024
"""16 times the length of training."""
STEPS = (100, 300, 1000, 3000, 10000)
BRIEF, LONG = STEPS[0], STEPS[-1]

DISTINCT = tuple(law for law in LAWS if law != "qwen")
"""The laws beyond n₀: Qwen's is SSMax's there, and its numbers are not counted a second time."""


class MeasuredRuns:
    """Runs that were tested at several lengths: an array over the seeds for each number."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.runs = by_variant(outcomes)

    def measured(self, variant: str, steps: int, n: int) -> list[dict[str, Any]]:
        """Return the test at n of each seed."""
        return [
            test for run in self.runs[variant, steps] for test in run.measured if test["n"] == n
        ]

    def __call__(self, name: str, variant: str, steps: int, n: int) -> Values:
        """Return a number of the tests at n, (seeds,).

        `name` is one of a test's numbers, or "none" or a law for the loss under it, in nats; of a
        Transformer that is the loss of the answer.
        """
        values = []
        for test in self.measured(variant, steps, n):
            none = test.get("answer_loss", test["loss"])
            losses = {"none": none, **test.get("answers", test["laws"])}
            values.append((test | losses)[name])
        return np.array(values)


def judge_training_end(heads: MeasuredRuns) -> Iterator[Part]:
    """Yield the parts of 1 to 8: t* and the gap at the end of training."""

    def long(name: str, variant: str, n: int = START) -> Values:
        """Return a number after the longest training, by seed."""
        return heads(name, variant, LONG, n)

    for n in LENGTHS:
        yield near(1, f"noise_50, t* at {n}", long("best", "noise_50", n), 1.0, 0.06)
    gap = long("gap", "noise_50")
    yield near(2, "noise_50, g/κ'(1)", gap / long("slope", "noise_50"), 1.0, 0.06)
    yield near(2, "noise_50, gap/variance", gap / long("variance", "noise_50"), 0.759, 0.04)
    for n in LENGTHS[3:]:
        yield between(3, f"noise_70, t* at {n}", long("best", "noise_70", n), 0.95, 1.25)
    of_variance = long("gap", "noise_70") / long("variance", "noise_70")
    yield number(3, "noise_70, gap/variance", of_variance, "above 0.50")
    for variant in ("noise_50", "noise_70"):
        for n in LENGTHS[1:]:
            values = heads("best", variant, BRIEF, n) - 1.0
            yield above(4, f"{variant}, brief, t* − 1 at {n}", values)
    of_50 = [("noise_50", n, START) for n in LENGTHS[2:]]
    for variant, n, first in (*of_50, ("noise_70", 4096, FAR)):
        ratio = heads("best", variant, BRIEF, n) / heads("best", variant, BRIEF, first)
        yield near(4, f"{variant}, brief, t* at {n} over {first}", ratio, 1.0, 0.12)
    for variant, n, first, exact in (
        ("noise_50", 4096, START, 1.196),
        ("noise_70", 4096, START, 2.115),
        ("noise_70_256", 16384, 256, 1.746),
    ):
        ratio = long("least", variant, n) / long("least", variant, first)
        yield near(5, f"{variant}, least at {n} over {first}", ratio, exact, 0.08 * exact)
    for variant in ("noise_50", "noise_70"):
        for before, after in pairwise(STEPS):
            rise = heads("best", variant, after, FAR) - heads("best", variant, before, FAR)
            what = f"{variant}, t* after {after} less after {before}"
            yield number(6, what, rise, "at most 0.05")
    for at, variant, ratios in (
        (7, "fixed_50", {256: 0.911, 1024: 0.714, 4096: 0.599}),
        (8, "growing_50", {16: 2 / 3, 256: 4 / 3, 1024: 5 / 3, 4096: 2.0}),
    ):
        for n, wanted in ratios.items():
            ratio = long("best", variant, n) / long("best", variant)
            margin = 0.05 if at == 7 else (0.10 if n < START else 0.07) * wanted
            yield near(at, f"{variant}, t* at {n} over {START}", ratio, wanted, margin)


def judge_foresight(heads: MeasuredRuns) -> Iterator[Part]:
    """Yield the parts of 9 to 11: other lengths, foretold from n₀ alone."""
    for variant in ("noise_50", "noise_70", "fixed_50"):
        for steps in STEPS[2:]:
            for n in LENGTHS[2:]:
                yield from _judge_foretold(
                    9, heads, variant, steps, n, lambda loss: 0.06 + 0.05 * loss
                )
    exact = {"noise_50": (0.26, 0.21, 0.13, 0.06), "noise_70": (0.08, 0.14, 0.21, 0.27)}
    for variant, excesses in exact.items():
        for n, predicted in zip(LENGTHS[1:], excesses, strict=True):
            excess = heads("annealed_loss", variant, LONG, n) - heads("loss", variant, LONG, n)
            what = f"{variant}, by g and κ less loss at {n}"
            if variant == "noise_50":
                yield near(10, what, excess, predicted, 0.06)
            else:
                yield between(10, what, excess, -0.03, predicted + 0.06)
    for n in LENGTHS[2:]:
        yield from _judge_foretold(11, heads, "noise_50", BRIEF, n, lambda _: 0.3)


def _judge_foretold(
    at: int, heads: MeasuredRuns, variant: str, steps: int, n: int, margin: Callable[[float], float]
) -> Iterator[Part]:
    """Yield the parts of a weight and a loss at n; `margin` is for a loss."""
    case = f"{variant}, {steps} steps, predicted less measured at {n}"
    weight = heads("predicted_weight", variant, steps, n) - heads("weight", variant, steps, n)
    yield near(at, f"weight: {case}", weight, 0.0, 0.04)
    loss = heads("loss", variant, steps, n)
    excess = heads("predicted_loss", variant, steps, n) - loss
    yield near(at, f"loss: {case}", excess, 0.0, margin(float(loss.mean())))


def judge_laws(heads: MeasuredRuns) -> Iterator[Part]:
    """Yield the parts of 12 to 19: the law that wins at 16 n₀, and its cost below n₀."""

    def less(
        variant: str, law: str, other: str, steps: int = LONG, n: int = FAR
    ) -> tuple[str, Values]:
        """Return the loss under one law less that under another: its name, and by seed."""
        runs_name = variant if steps == LONG else f"{variant}, {steps} steps"
        where = "" if n == FAR else f" at {n}"
        values = heads(law, variant, steps, n) - heads(other, variant, steps, n)
        return f"{runs_name}, {law} − {other}{where}", values

    wrong = rule_wrong(heads)
    what = f"laws that win where t* > √r, wrong of {len(wrong)} cells"
    yield number(12, what, float(np.mean(wrong)), "at most 0.1")
    exact = {"root_log": 0.120, "ssmax": 0.476, "llama_4": 0.062, "yarn": 0.437, "infoscale": 0.085}
    for law, excess in exact.items():
        yield near(13, *less("noise_50", law, "none"), excess, 0.35 * excess)
    yield near(13, *less("noise_50", "ssmax", "none", n=4096), 1.25, 0.35 * 1.25)
    for law, other in (("llama_4", "none"), ("infoscale", "none"), ("llama_4", "infoscale")):
        yield near(14, *less("noise_70", law, other), 0.0, 0.01)
    yield above(14, *less("noise_70", "ssmax", "none"))
    for law in DISTINCT:
        yield above(15, *less("fixed_50", law, "none"))
    yield number(15, *less("fixed_50", "ssmax", "none"), "at least 0.4")
    others = ("none", "root_log", "llama_4", "yarn", "infoscale")
    for law in others:
        yield above(16, *less("growing_50", law, "ssmax"))
    for law, excess, margin in (("none", 0.17, 0.06), ("root_log", 0.035, 0.03)):
        yield near(16, *less("growing_50", law, "ssmax"), excess, margin)
    for variant in ("noise_50", "noise_70", "growing_50"):
        for law in DISTINCT:
            yield above(17, *less(variant, "none", law, BRIEF))
    for law in others[1:]:
        yield above(17, *less("growing_50", law, "ssmax", BRIEF))
    yield above(17, *less("fixed_50", "none", "ssmax", BRIEF))
    for steps in STEPS:
        yield number(18, *less("fixed_70", "ssmax", "none", steps), "at most 0.02")
    yield above(18, *less("fixed_70", "none", "ssmax", BRIEF))
    # Qwen's and YaRN's factors are 1 below n₀: their zeros are by construction.
    below = {"root_log": 0.011, "infoscale": 0.009, "ssmax": 0.046}
    for law, excess in below.items():
        yield near(19, *less("noise_50", law, "none", n=16), excess, 0.02)


def rule_wrong(heads: MeasuredRuns, *, at_start: bool = False) -> list[bool]:
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


def judge_learned_factors(heads: MeasuredRuns) -> Iterator[Part]:
    """Yield the parts of 20 and 21: factors that are learned."""
    more = heads("loss", "noise_70_ssmax", LONG, FAR) - heads("loss", "noise_70", LONG, FAR)
    yield near(20, "noise_70, learned s less plain", more, 0.0, 0.02)
    for steps, least in ((300, 2.5), (1000, 1.4)):
        best = heads("best", "noise_70_qk", steps, FAR)
        yield number(21, f"gain, t* after {steps}", best, f"above {least}")
        more = best - heads("best", "noise_70", steps, FAR)
        yield above(21, f"gain, t* less the plain head's after {steps}", more)
        won = heads("none", "noise_70_qk", steps, FAR) - heads("ssmax", "noise_70_qk", steps, FAR)
        yield above(21, f"gain, none − ssmax after {steps}", won)
    yield between(21, "gain, t* after 10000", heads("best", "noise_70_qk", LONG, FAR), 0.95, 1.25)


def judge_length() -> list[Part]:
    """Return the parts of length.md up to 21."""
    heads = MeasuredRuns(runs("length_head"))
    judges = (judge_training_end, judge_foresight, judge_laws, judge_learned_factors)
    return [part for judge in judges for part in judge(heads)]
