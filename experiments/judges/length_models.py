"""Verdicts on the predictions about Transformers that learn to find.

They are 22 to 33 of predictions/length.md; `length` judges those of single heads. The runs are
those of length_recall.toml and length_induction.toml, the losses those of the answer.
"""

from collections.abc import Iterator
from itertools import pairwise, product

from experiments import records
from experiments.judges.judging import Part, Values, above, near, number
from experiments.judges.length import DISTINCT, FAR, START, MeasuredRuns
from experiments.lab.head_measures import LAWS
from experiments.lab.sweep import Outcome

LENGTHS = (64, 256, 1024, 4096)
FARTHEST = LENGTHS[-1]
BRIEF, LONG = 400, 2000
INDUCTION = 3000
SHORTER = ("root_log", "ssmax", "llama_4", "infoscale")
"""The laws that change a row of n₀ tokens: its first positions have fewer keys than n₀."""
LEARNED = 0.9
"""The accuracy at n₀ of a run that has learned its task."""


def judge_recall(models: MeasuredRuns) -> Iterator[Part]:
    """Yield the parts of 22 to 26 and 29: associative recall, a key that stands there once."""

    def measure(name: str, n: int) -> Values:
        """Return a measure of the models at n, by seed."""
        return models(name, "fixed", LONG, n)

    def less(law: str, against: str, n: int = FAR) -> tuple[str, Values]:
        """Return the loss under one law less that under another: its name, and by seed."""
        return f"{law} − {against} at {n}", measure(law, n) - measure(against, n)

    yield number(22, "accuracy at 64", measure("accuracy", START), "above 0.98")
    yield number(22, "loss at 64", measure("none", START), "below 0.05")
    for before, after in pairwise(LENGTHS):
        yield above(
            23,
            f"loss at {after} less at {before}",
            measure("none", after) - measure("none", before),
        )
    yield number(23, "loss at 1024", measure("none", FAR), "at least 0.3")
    ratio = measure("weight", FAR) / measure("weight", START)
    yield number(23, "weight at 1024 over 64", ratio, "below 0.6")
    yield above(23, "t* − 1 at 1024", measure("best", FAR) - 1.0)
    for n in (FAR, FARTHEST):
        for law in DISTINCT:
            yield above(24, *less("none", law, n))
    yield number(24, *less("none", "ssmax"), "at least 0.3")
    yield number(24, "ssmax at 1024", measure("ssmax", FAR), "below 0.1")
    for worse, better in (("root_log", "qwen"), ("root_log", "yarn"), ("llama_4", "root_log")):
        yield above(24, *less(worse, better))
    # At 4096 the multipliers of √log n and Llama 4 are one: 1.41 and 1.42.
    for worse, better in product(("root_log", "llama_4"), ("qwen", "yarn")):
        yield above(24, *less(worse, better, FARTHEST))
    yield number(24, *less("none", "ssmax", FARTHEST), "at least 0.5")
    gain = models("none", "fixed", BRIEF, FAR) - models("ssmax", "fixed", BRIEF, FAR)
    yield above(25, "400 steps, none − ssmax at 1024", gain)
    for variant, law in product(("fixed", "noise"), SHORTER):
        cost = models(law, variant, LONG, START) - models("none", variant, LONG, START)
        yield near(26, f"{variant}, {law} − none at 64", cost, 0.0, 0.01)
    for n in LENGTHS[1:]:
        excess = measure("predicted_weight", n) - measure("weight", n)
        yield near(29, f"weight, predicted less measured at {n}", excess, 0.0, 0.12)


def judge_false_matches(models: MeasuredRuns) -> Iterator[Part]:
    """Yield the parts of 27 and 28: associative recall with false matches."""
    losses = {law: models(law, "noise", LONG, FAR) for law in ("none", *LAWS)}
    yield above(27, "ssmax − none at 1024", losses["ssmax"] - losses["none"])
    best = min(LAWS, key=lambda law: float(losses[law].mean()))
    yield number(27, f"none − {best} at 1024", losses["none"] - losses[best], "at most 0.03")
    yield number(28, "loss at 4096", models("none", "noise", LONG, FARTHEST), "at least 1")


def judge_trained_laws(models: MeasuredRuns) -> Iterator[Part]:
    """Yield the parts of 30 and 31: models that are trained with a law, or with a gain."""

    def far_loss(variant: str) -> Values:
        """Return the loss at 1024 without a law added, by seed."""
        return models("none", variant, LONG, FAR)

    gain = far_loss("fixed") - far_loss("fixed_ssmax")
    yield number(30, "none − SSMax, at 1024", gain, "at least 0.2")
    yield above(30, "none − gradient, at 1024", far_loss("fixed") - far_loss("fixed_gradient"))
    yield above(
        30, "gradient − SSMax, at 1024", far_loss("fixed_gradient") - far_loss("fixed_ssmax")
    )
    yield above(31, "gain − SSMax, at 1024", far_loss("fixed_qk") - far_loss("fixed_ssmax"))


def judge_induction(models: MeasuredRuns) -> Iterator[Part]:
    """Yield the parts of 32 and 33: induction, two layers, rotary positions."""
    right = models("accuracy", "rotary", INDUCTION, START)
    learned = right > LEARNED
    yield number(32, "seeds with accuracy above 0.9 at 64", learned.sum(), "at least 3")
    beyond = models("accuracy", "rotary", INDUCTION, FAR)[learned]
    yield number(32, "accuracy at 1024", beyond, "below 0.3")
    none = models("none", "rotary", INDUCTION, FAR)[learned]
    for law in LAWS:
        ratio = models(law, "rotary", INDUCTION, FAR)[learned] / none
        yield near(32, f"{law} over none at 1024", ratio, 1.0, 0.15)
    beyond = models("accuracy", "rotary_ssmax", INDUCTION, FAR)
    yield number(33, "trained with SSMax, accuracy at 1024", beyond, "below 0.3")


def judge_length_models() -> list[Part]:
    """Return the parts of length.md from 22 on, in their order."""
    models = MeasuredRuns(outcomes())
    judges = (judge_recall, judge_false_matches, judge_trained_laws, judge_induction)
    parts = [part for judge in judges for part in judge(models)]
    return sorted(parts, key=lambda part: part.prediction)


def outcomes() -> list[Outcome]:
    """Return the recorded runs of both tasks."""
    return [*records.runs("length_recall"), *records.runs("length_induction")]
