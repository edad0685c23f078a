"""Models that are trained with a rule in n: losses, and verdicts on predictions.

The sweeps trained_*.toml have the predictions in words. A rule multiplies the logits by a function
of n: log n, or √log n, over the same at n₀; or a + b log n/log n₀, where a and b are learned.

Chapters: length_extrapolation, predictions.
"""

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from experiments.judges.judging import (
    Part,
    Values,
    above,
    between,
    decided,
    graded,
    limits,
    near,
    number,
)
from experiments.judges.length import FAR, START, MeasuredRuns
from experiments.judges.rates import best_log2_rates, best_rate, count_best, losses_by_rate
from experiments.lab.comparison import by_variant
from experiments.lab.sweep import Outcome
from experiments.records import runs

TASKS = ("fixed", "noise", "growing")
RULES = ("root_log", "ssmax", "log", "own")
STEPS, TEXT_STEPS = 2000, 1500
POSITIONS = ("rotary", "quarter", "preceding")

TIMES = (1, 4, 16, 64)
"""The lengths of `Run.readings`, times n₀."""
APPLIED = ("none", "root_log", "log")
"""The rules of `Run.readings`, applied after training to a model without a rule of its own."""


class RecallRuns:
    """Models of trained_law.toml; a variant is a task of `TASKS` and a rule: "fixed_ssmax", say."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.heads = MeasuredRuns(outcomes)

    def __call__(self, variant: str, n: int, name: str = "none") -> Values:
        """Return a number of `MeasuredRuns` at n, (seeds,): by default the loss, in nats."""
        return self.heads(name, variant, STEPS, n)

    def gain(self, variant: str, which: int) -> Values:
        """Return the learned numbers, (seeds, heads): s or a where `which` is 0, b where 1."""
        return np.array([run.learned[0][which] for run in self.heads.runs[variant, STEPS]])

    def wanted(self, variant: str, n: int) -> Values:
        """Return t* at n, the mean over the heads, (seeds,)."""
        tests = self.heads.measured(variant, STEPS, n)
        return np.array([np.mean([head["best"] for head in test["heads"]]) for test in tests])


def judge_trained_law() -> Iterator[Part]:
    """Yield the parts of trained_law.toml: associative recall, trained with each rule."""
    models = RecallRuns(runs("trained_law"))

    def less(task: str, rule: str, other: str, n: int = FAR) -> tuple[str, Values]:
        """Return the loss with one rule less that with another: its name, and by seed."""
        where = "" if n == FAR else f" at {n}"
        values = models(f"{task}_{rule}", n) - models(f"{task}_{other}", n)
        return f"{task}, {rule} − {other}{where}", values

    for task, rule in product(TASKS, RULES):
        yield near(1, *less(task, rule, "none", START), 0.0, 0.01)
    for rule in ("ssmax", "log"):
        yield number(2, *less("fixed", "none", rule), "at least 0.3")
        yield number(2, f"fixed, {rule}", models(f"fixed_{rule}", FAR), "below 0.1")
        yield number(3, *less("growing", "none", rule), "at least 0.15")
    yield above(3, *less("growing", "none", "root_log"))
    yield above(3, *less("growing", "root_log", "ssmax"))
    for rule in RULES:
        yield number(4, *less("noise", "none", rule), "at most 0.02")
    for task in ("fixed", "growing"):
        late = models(f"{task}_none", FAR, "ssmax") - models(f"{task}_log", FAR)
        yield near(5, f"{task}, none read under log n − log", late, 0.0, 0.03)
    for task in TASKS:
        moved = np.abs(models.gain(f"{task}_ssmax", 0) - 1.0).mean(axis=1)
        yield number(6, f"{task}, |s − 1|", moved, "below 0.15")
        yield near(6, *less(task, "ssmax", "log"), 0.0, 0.03)
    for task in ("fixed", "growing"):
        none = models(f"{task}_none", FAR)
        share = (none - models(f"{task}_own", FAR)) / (none - models(f"{task}_log", FAR)).mean()
        yield number(7, f"{task}, own's gain over log's", share, "below 0.5")
    yield from _judge_several_lengths(models)


def _judge_several_lengths(models: RecallRuns) -> Iterator[Part]:
    """Yield the parts of 8 to 10: models trained on several lengths, which tell a from b."""
    from scipy.stats import spearmanr  # takes longer to load than all else of this page

    slopes = {task: models.gain(f"{task}_own_mixed", 1).mean(axis=1) for task in TASKS}
    yield number(8, "growing, b", slopes["growing"], "above 0.15")
    yield number(8, "fixed, b", slopes["fixed"], "above 0.08")
    yield near(8, "noise, b", slopes["noise"], 0.0, 0.08)
    yield above(8, "b, growing − noise", slopes["growing"] - slopes["noise"])
    own = models("growing_own_mixed", FAR)
    yield above(9, "growing, none − own, mixed", models("growing_none_mixed", FAR) - own)
    yield above(9, "growing, own mixed − ssmax", own - models("growing_ssmax", FAR))
    grows = [
        models.wanted(f"{task}_none_mixed", 4 * START) / models.wanted(f"{task}_none_mixed", START)
        for task in TASKS
    ]
    rank = spearmanr(np.concatenate(list(slopes.values())), np.concatenate(grows)).statistic
    yield graded(10, "rank correlation of b and growth of t*", rank, 0.5, 0.2)


class TextRuns:
    """Models of text; a variant is of `POSITIONS` and a rule: "quarter_ssmax", say."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.runs = by_variant(outcomes)

    def __call__(self, variant: str, times: int, applied: str = "none") -> Values:
        """Return the loss at `times` n₀ under a rule of `APPLIED`, (seeds,), in nats a byte."""
        at = TIMES.index(times), APPLIED.index(applied)
        return np.array([run.readings[at] for run in self.runs[variant, TEXT_STEPS]])

    def lost(self, variant: str, times: int = 16) -> Values:
        """Return the loss at `times` n₀ less that at n₀, (seeds,)."""
        return self(variant, times) - self(variant, 1)

    def gains(self, variant: str) -> Values:
        """Return the learned s, or a and b, at the end: (seeds, blocks, 1 or 2, heads)."""
        return np.array([run.gains[-1] for run in self.runs[variant, TEXT_STEPS]])


def text_runs() -> TextRuns:
    """Return the decoders of trained_text.toml and trained_text_more.toml."""
    return TextRuns([*runs("trained_text"), *runs("trained_text_more")])


def judge_trained_text() -> Iterator[Part]:
    """Yield the parts of trained_text.toml: models of text, trained with each rule."""
    models = text_runs()
    for positions, rule in product(POSITIONS, ("ssmax", "own")):
        cost = models(f"{positions}_{rule}", 1) - models(f"{positions}_none", 1)
        yield near(1, f"{positions}, {rule} − none at 128", cost, 0.0, 0.02)
    lost = {positions: models.lost(f"{positions}_none") for positions in POSITIONS}
    whole = lost["rotary"]
    yield number(2, "rotary, lost at 2048", whole, "at least 0.3")
    for positions, share in (("quarter", 0.5), ("preceding", 0.2)):
        part = lost[positions] / whole.mean()
        yield number(3, f"{positions}, share of rotary's", part, f"below {share}")
    mended = (models("rotary_none", 16) - models("rotary_ssmax", 16)) / whole.mean()
    yield between(4, "rotary, share that ssmax mends", mended, 0.25, 0.9)
    apart = models("preceding_ssmax", 16) - models("preceding_none", 16)
    yield near(5, "preceding, ssmax − none at 2048", apart, 0.0, 0.03)
    for positions in POSITIONS:
        slopes = models.gains(f"{positions}_own")[:, :, 1].reshape(len(whole), -1)
        yield near(6, f"{positions}, b", slopes.mean(axis=1), 0.0, 0.15)
        spread = slopes.std(axis=1)
        yield number(6, f"{positions}, spread of b", spread, "at least 0.05")
    late = models("rotary_none", 16, "log") - models("rotary_ssmax", 16)
    yield near(7, "rotary, none read under log n − ssmax", late, 0.0, 0.1)


def judge_trained_text_more() -> Iterator[Part]:
    """Yield the parts of trained_text_more.toml: fixed rules, and no positions at all."""
    models = text_runs()
    for positions, times in product((*POSITIONS, "nowhere"), (1, 16)):
        apart = models(f"{positions}_log", times) - models(f"{positions}_ssmax", times)
        yield near(1, f"{positions}, log − ssmax at {128 * times}", apart, 0.0, 0.03)
    none, root, log = (models(f"rotary_{rule}", 16) for rule in ("none", "root_log", "log"))
    share = (none - root) / (none - log).mean()
    yield between(2, "rotary, root_log between none, 0, and log, 1", share, 0.0, 1.0)
    lost = models.lost("nowhere_none") - models.lost("preceding_none")
    yield above(3, "none, lost at 2048, nowhere − preceding", lost)


def judge_trained_law_rates() -> Iterator[Part]:
    """Yield the parts of trained_law_rates.toml: the best rates of recall models."""
    losses = losses_by_rate("trained_law_rates")
    yield number(
        1, "of 15, best at .003 or .006", count_best(losses, (0.003, 0.006)), "at least 15"
    )
    for task in TASKS:
        rates = [
            best_rate(of_variant) for name, of_variant in losses.items() if name.startswith(task)
        ]
        yield number(2, f"{task}, largest over smallest", max(rates) / min(rates), "at most 2")


def judge_trained_text_rates() -> Iterator[Part]:
    """Yield the parts of trained_text_rates.toml: the best rates of text models."""
    losses = losses_by_rate("trained_text_rates")
    yield number(
        1, "of 6, best at 2⁻⁸ or 2⁻⁹", count_best(losses, (2.0**-8, 2.0**-9)), "at least 6"
    )
    for positions in POSITIONS:
        pair = [losses[f"{positions}_{rule}"] for rule in ("none", "ssmax")]
        rates = [best_rate(of_variant) for of_variant in pair]
        costs = [curve[rate] - min(curve.values()) for curve in pair for rate in rates]
        yield number(2, f"{positions}, cost of the other's rate", max(costs), "below 0.01")


# --- rules trained in against rules applied after, each at its own best learning rate -------------


def quarter_loss(rule: str, times: int, applied: str = "none") -> Values:
    """Return the losses at `times` n₀ of models trained with a rule, or with one applied after.

    The models are those of trained_quarter.toml; shape (seeds,), in nats a byte.
    """
    return TextRuns(runs("trained_quarter"))(rule, times, applied)


def trained_less_applied(rule: str, times: int = 16) -> Values:
    """Return the loss with a rule trained in less that with it applied after, (seeds,)."""
    return quarter_loss(rule, times) - quarter_loss("none", times, rule)


def judge_trained_quarter() -> Iterator[Part]:
    """Yield the parts of trained_quarter.toml: rules trained in against applied after."""
    root_log, log = trained_less_applied("root_log"), trained_less_applied("log")
    low, high = limits(root_log)
    wrong = low > 0.0 or max(abs(low), abs(high)) < 0.05
    what = "√log n at 16 n₀, trained in less after"
    yield decided(1, what, "below 0", root_log, high < 0.0, refuted=wrong)
    low, high = limits(log)
    yield decided(2, "log n at 16 n₀, trained in less after", "holds 0", log, low <= 0.0 <= high)
    for rule in APPLIED[1:]:
        cost = quarter_loss(rule, 1) - quarter_loss("none", 1)
        yield near(3, f"{rule} at n₀, trained in less none", cost, 0.0, 0.02)
    for rule in APPLIED[1:]:
        for times in TIMES[1:]:
            cost = quarter_loss("none", times, rule) - quarter_loss("none", times)
            yield number(4, f"{rule} applied after, at {times} n₀", cost, "above 0")
    yield above(
        5, "at 16 n₀, none less √log n", quarter_loss("none", 16) - quarter_loss("root_log", 16)
    )


def judge_trained_quarter_rates() -> Iterator[Part]:
    """Yield the parts of trained_quarter_rates.toml: the best rates."""
    for rule, rate in best_log2_rates("trained_quarter_rates").items():
        yield between(1, f"{rule}, log₂ of the best rate", rate, -8.0, -7.0)
