"""The factor c = (n/e)^½ on attention's output: the harm it does, and verdicts on predictions.

The sweeps of the same names have them in words and with what refutes them. Of the variants "note"
has the factor, "larger" its larger start of W alone, "smaller" its larger rate alone.

Chapters: almost_scaled_training, training_details, predictions.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from attnlib.sampling import mean_and_error
from experiments import records
from experiments.judges.judging import Part, Values, above, between, decided, number
from experiments.judges.rates import best_log2_rates
from experiments.lab import comparison
from experiments.lab.comparison import (
    loss_curves,
    loss_increase,
    loss_increase_with_own_rates,
    losses,
    power_of_two,
)
from experiments.lab.sweep import Outcome

HALVES = ("larger", "smaller", "note")
"""The two changes that make up the factor, and both."""
PARTS, EARLY = 60, 14
"""Parts of 100 steps in a run of 6000, and the index of the part that ends at step 1500."""


class Branch(NamedTuple):
    """The size of a run's first branch, and the rise of its final loss."""

    variant: str
    learning_rate: float
    largest: float
    """The largest recorded ratio of branch to skip in the first block."""
    rise: float
    """The final loss less the base's at the same rate and seed, in nats per byte."""


def branches(experiment: str, base: str = "baseline") -> list[Branch]:
    """Return a branch for each run of an experiment but those of the variant `base`."""
    runs: Sequence[Any] = records.runs(experiment)
    rates = list(comparison.learning_rates(runs))
    points = []
    for setting, run in runs:
        if setting.variant != base:
            rate, seed = setting.training.learning_rate, setting.training.seed
            rise = loss_increase(runs, setting.variant, base)[rates.index(rate), seed]
            largest = run.branch_ratios[:, 0].max()
            points.append(Branch(setting.variant, rate, float(largest), float(rise)))
    return points


def rank_correlation(runs: Sequence[Branch]) -> float:
    """Return the rank correlation of the largest branch with the rise."""
    return float(spearmanr([r.largest for r in runs], [r.rise for r in runs]).statistic)


def cause_runs() -> Sequence[Outcome]:
    """Return the runs from our start with each of `HALVES`, five rates and five seeds."""
    return records.merge_runs("cause", "cause_seeds", "cause_rates")


def judge_source_start() -> Iterator[Part]:
    """Yield the parts of source_start.toml: start and rate from the post's start, six rates."""
    runs = records.runs("source_start")
    rates = _rates(runs)
    for rate, rises in zip(rates, loss_increase(runs, "note"), strict=True):
        yield number(1, f"both, {rate}", rises, "above 0")
    start, speed, both = (loss_increase(runs, name).mean(axis=1) for name in HALVES)
    base = losses(runs, "baseline").mean(axis=1)
    best = base.argmin()
    share = float(start[best] / both[best])
    yield number(2, f"start over both, {rates[best]}", share, "below 0.5")
    for rate, rise, other in zip(rates[:2], speed, both, strict=False):
        yield number(3, f"rate over both, {rate}", float(rise / other), "above 0.5")
    at_best = float((base + both).min() - base.min())
    yield number(4, "both, each at its best rate", at_best, "above 0")


def judge_cause_seeds() -> Iterator[Part]:
    """Yield the parts of cause_seeds.toml: start and rate from our start, two rates."""
    start, speed, _ = (loss_increase(cause_runs(), name) for name in HALVES)
    for at, rate in ((2, "2⁻⁹"), (3, "2⁻¹⁰")):
        yield above(1, f"start − rate, {rate}", start[at] - speed[at])


def judge_cause_rates() -> Iterator[Part]:
    """Yield the parts of cause_rates.toml: the largest and the smallest rate from our start."""
    start, speed, both = (loss_increase(cause_runs(), name).mean(axis=1) for name in HALVES)
    yield number(1, "start over both, 2⁻¹¹", float(start[4] / both[4]), "at least 0.8")
    yield number(1, "rate, 2⁻¹¹", loss_increase(cause_runs(), "smaller")[4], "below 0.05")
    for name, rises in (("start", start), ("rate", speed)):
        yield number(2, f"{name} over both, 2⁻⁷", float(rises[0] / both[0]), "at least 0.5")


def judge_dose() -> Iterator[Part]:
    """Yield the parts of dose.toml: other starts of W in the post's model."""
    yield from _judge_other_starts("dose")
    new = {"inverse", "c2", "factor_c", "factor_c2", "skip"}
    runs = [run for run in branches("dose", "1") if run.variant in new]
    yield number(4, f"rank correlation, {len(runs)} runs", rank_correlation(runs), "at least 0.8")
    largest_rise = max(run.rise for run in runs if run.largest < 2.0)
    yield number(5, "highest rise, branch below 2", largest_rise, "below 0.15")
    least_rise = min(run.rise for run in runs if run.largest > 30.0)
    yield number(5, "lowest rise, branch above 30", least_rise, "above 0.4")


def judge_dose_unit() -> Iterator[Part]:
    """Yield the parts of dose_unit.toml: other starts of W in a model that starts as ours."""
    return _judge_other_starts("dose_unit")


def _judge_other_starts(experiment: str) -> Iterator[Part]:
    """Yield the parts of 1 to 3, which dose.toml and dose_unit.toml have alike."""
    runs = records.runs(experiment)
    once, twice, factor, skip = (
        loss_increase(runs, name, "1") for name in ("c", "c2", "factor", "skip")
    )
    rates = _rates(runs)
    for i, rate in enumerate(rates):
        yield _positive_part(1, f"c − 1, {rate}", once[i])
        yield _positive_part(1, f"c² − c, {rate}", twice[i] - once[i])
    for i, rate in enumerate(rates):
        share = float(skip[i].mean() / factor[i].mean())
        yield number(2, f"skip over factor, {rate}", share, "below 0.5")
    for i, rate in enumerate(rates):
        share = float(factor[i].mean() / once[i].mean())
        yield number(3, f"factor over c, {rate}", share, "at least 0.5")


def _positive_part(at: int, what: str, values: Values) -> Part:
    """Return a part that holds above 0, and is refuted where two standard errors are below 0."""
    mean, error = mean_and_error(values)
    return decided(at, what, "> 0", values, bool(mean > 0.0), refuted=bool(mean + 2 * error < 0.0))


def judge_both_branches() -> Iterator[Part]:
    """Yield the parts of both_branches.toml: both branches of a block are multiplied."""
    runs = records.runs("dose")
    skip, factor = (loss_increase(runs, name, "1") for name in ("skip", "factor"))
    both = losses(records.runs("both_branches"), "skip_both") - losses(runs, "1")
    for i, rate in enumerate(_rates(runs)):
        yield number(1, f"both branches − skip, {rate}", both[i] - skip[i], "below 0")
        share = float(both[i].mean() / factor[i].mean())
        yield number(2, f"both branches over factor, {rate}", share, "below 0.5")


def judge_exact_source() -> Iterator[Part]:
    """Yield the parts of exact_source.toml: the exact factor of each position."""
    runs, others = records.runs("exact_source"), records.runs("source_start")
    shared = np.isin(comparison.learning_rates(others), comparison.learning_rates(runs))
    base, note = (losses(others, name)[shared] for name in ("baseline", "note"))
    exact, rates = losses(runs, "exact"), _rates(runs)
    own, source = (rises[rates.index("2⁻⁹")].mean() for rises in (exact - base, note - base))
    yield number(1, "exact over (n/e)^½, 2⁻⁹", float(own / source), "at least 0.5")
    for i, rate in enumerate(rates):
        yield number(2, f"exact − (n/e)^½, {rate}", exact[i] - note[i], "below 0")


def judge_longer() -> Iterator[Part]:
    """Yield the parts of longer.toml: 6000 steps at a constant rate."""
    runs = records.runs("longer")
    for rate, eta in zip(_rates(runs), comparison.learning_rates(runs), strict=True):
        note, base = (loss_curves(runs, name, eta, PARTS) for name in ("note", "baseline"))
        rise = (note - base).mean(axis=0)
        left = float(rise[-1] / rise[EARLY])
        yield number(1, f"rise at 6000 over 1500, {rate}", left, "below 0.5")


def judge_people_factor() -> Iterator[Part]:
    """Yield the parts of people_factor.toml: 6000 steps with warm-up and decay."""
    runs = records.runs("people_factor")
    final, unseen = (loss_increase_with_own_rates(runs, "note", of) for of in comparison.MEASURES)
    yield between(1, "rise, each at its best rate", final[-1], 0.0, 0.03)
    yield number(2, "rise at 2⁻⁸ − at 2⁻¹⁰", final[0] - final[2], "above 0")
    yield between(3, "rise on unseen text, at best rates", unseen[-1], -0.03, 0.03)


def judge_encoder_slower() -> Iterator[Part]:
    """Yield the parts of encoder_slower.toml: the two smallest rates of a masked encoder."""
    slower, faster = records.runs("encoder_slower"), records.runs("encoder")
    last = losses(faster, "baseline")[-1]
    yield number(1, "baseline at 2⁻¹¹ − at 2⁻¹⁰", losses(slower, "baseline")[0] - last, "above 0")
    for rate, rises in zip(_rates(slower), loss_increase(slower, "note"), strict=True):
        yield number(2, f"factor − baseline, {rate}", rises, "above 0.02")


def _rates(runs: Sequence[Outcome]) -> list[str]:
    """Return the learning rates of a sweep as the pages write them, such as 2⁻⁹."""
    return [power_of_two(eta) for eta in comparison.learning_rates(runs)]


# --- with the best rate of each way of training ---------------------------------------------------


def factor_harm(sweep: str, way: str, measure: str = "final_loss") -> Values:
    """Return the loss with the factor less without, of one way of training, (seeds,).

    `way` is "constant", a constant rate, "people", with all that people add, or one ingredient.
    """
    return records.losses(sweep, f"{way}_note", measure) - records.losses(
        sweep, f"{way}_baseline", measure
    )


def harm_removed(way: str) -> Values:
    """Return the harm at a constant rate less that of a way of training, (seeds,)."""
    return factor_harm("factor_ingredients", "constant") - factor_harm("factor_ingredients", way)


def share_removed(way: str) -> float:
    """Return the mean harm that a way of training removes, over that at a constant rate."""
    whole = factor_harm("factor_ingredients", "constant").mean()
    return float(harm_removed(way).mean() / whole)


def judge_factor_ingredients() -> Iterator[Part]:
    """Yield the parts of factor_ingredients.toml: warm-up, cosine, decay, clipping one by one."""
    constant = factor_harm("factor_ingredients", "constant")
    yield between(1, "harm at a constant rate", constant, 0.12, 0.28)
    yield above(1, "its interval", constant)
    yield above(2, "harm that all four take away", harm_removed("all"))
    yield number(2, "share that all four take away", share_removed("all"), "at least 0.5")
    yield number(3, "share that warm-up takes away", share_removed("warmup"), "at least 0.3333")
    yield above(3, "half the rate less warm-up", harm_removed("warmup") - harm_removed("lower"))
    yield between(4, "share that decay takes away", share_removed("decay"), -0.2, 0.2)
    yield number(5, "share that clipping takes away", share_removed("clip"), "below 0.3333")
    yield above(6, "harm with all four", factor_harm("factor_ingredients", "all"))


def judge_factor_short() -> Iterator[Part]:
    """Yield the parts of factor_short.toml: 1500 steps."""
    constant, people = (factor_harm("factor_short", way) for way in ("constant", "people"))
    yield number(1, "harm at a constant rate", constant, "above 0.08")
    yield above(1, "its interval", constant)
    yield number(2, "harm as people train", people, "below 0.06")
    yield above(3, "constant less people's", constant - people)


def judge_factor_short_rates() -> Iterator[Part]:
    """Yield the parts of factor_short_rates.toml: the best rates, in powers of 2."""
    best = best_log2_rates("factor_short_rates")
    for model in ("baseline", "note"):
        gain = best[f"people_{model}"] - best[f"constant_{model}"]
        yield number(1, f"{model}, people's over constant", gain, "at least 1")
    for way in ("constant", "people"):
        gain = best[f"{way}_note"] - best[f"{way}_baseline"]
        yield number(2, f"{way}, factor's over baseline's", gain, "at most 0")


def judge_factor_long() -> Iterator[Part]:
    """Yield the parts of factor_long.toml: 6000 steps."""
    constant, people = (factor_harm("factor_long", way) for way in ("constant", "people"))
    yield above(1, "harm at a constant rate", constant)
    yield between(2, "harm as people train", people, 0.0, 0.04)
    yield number(3, "constant less people's", constant - people, "below 0.1")
    brief = factor_harm("factor_short", "constant").mean()
    yield number(4, "harm over that of 1500 steps", float(constant.mean() / brief), "below 0.5")


def judge_factor_long_rates() -> Iterator[Part]:
    """Yield the parts of factor_long_rates.toml: the best rates."""
    for cell, rate in best_log2_rates("factor_long_rates").items():
        low, high = (-10.0, -9.0) if cell.startswith("constant") else (-8.0, -7.0)
        yield between(1, f"{cell}, log₂ of the best rate", rate, low, high)
