"""What became of the predictions about the factor c = (n/e)^½ on attention's output.

The sweeps of the same names have them in words and with what refutes them; `experiments.length`
says what a part is. "note" has the factor, "larger" its larger start of W alone, "smaller" its
larger rate alone. Chapters: almost_scaled_training, training_details, predictions.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from attnlib.sampling import mean_and_error
from experiments import records
from experiments.judging import Part, Values, above, between, decided, number, power_of_2
from experiments.lab import comparison
from experiments.lab.comparison import (
    loss_curves,
    loss_increase,
    loss_increase_with_own_rates,
    losses,
)
from experiments.lab.sweep import Outcome

HALVES = ("larger", "smaller", "note")
PARTS, EARLY = 60, 14
"""6000 steps in parts of 100, and the part that ends at step 1500."""


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
    points = []
    for setting, run in runs:
        if setting.variant != base:
            rate, seed = setting.training.learning_rate, setting.training.seed
            rise = loss_increase(runs, setting.variant, base)[rates.index(rate), seed]
            largest = run.branch_ratios[:, 0].max()
            points.append(Branch(setting.variant, rate, float(largest), float(rise)))
    return points


def rank(some: Sequence[Branch]) -> float:
    """Return the rank correlation of the largest branch with the rise."""
    return float(spearmanr([r.largest for r in some], [r.rise for r in some]).statistic)


def ours() -> Sequence[Outcome]:
    """Return the cross of start and rate from our start, five rates and five seeds."""
    return records.merge_runs("cause", "cause_seeds", "cause_rates")


def source_start() -> Iterator[Part]:
    """Yield what was predicted of start and rate from the post's start, six rates."""
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


def cause_seeds() -> Iterator[Part]:
    """Yield what was predicted of start and rate from our start, at two rates."""
    start, speed, _ = (loss_increase(ours(), name) for name in HALVES)
    for at, rate in ((2, "2⁻⁹"), (3, "2⁻¹⁰")):
        yield above(1, f"start − rate, {rate}", start[at] - speed[at])


def cause_rates() -> Iterator[Part]:
    """Yield what was predicted of the largest and the smallest rate from our start."""
    start, speed, both = (loss_increase(ours(), name).mean(axis=1) for name in HALVES)
    yield number(1, "start over both, 2⁻¹¹", float(start[4] / both[4]), "at least 0.8")
    yield number(1, "rate, 2⁻¹¹", loss_increase(ours(), "smaller")[4], "below 0.05")
    for name, rises in (("start", start), ("rate", speed)):
        yield number(2, f"{name} over both, 2⁻⁷", float(rises[0] / both[0]), "at least 0.5")


def dose() -> Iterator[Part]:
    """Yield what was predicted of other starts of W in the post's model."""
    yield from _other_starts("dose")
    new = {"inverse", "c2", "factor_c", "factor_c2", "skip"}
    runs = [run for run in branches("dose", "1") if run.variant in new]
    yield number(4, f"rank correlation, {len(runs)} runs", rank(runs), "at least 0.8")
    small = max(run.rise for run in runs if run.largest < 2.0)
    yield number(5, "highest rise, branch below 2", small, "below 0.15")
    large = min(run.rise for run in runs if run.largest > 30.0)
    yield number(5, "lowest rise, branch above 30", large, "above 0.4")


def dose_unit() -> Iterator[Part]:
    """Yield the same of a model that starts as ours."""
    return _other_starts("dose_unit")


def _other_starts(experiment: str) -> Iterator[Part]:
    runs = records.runs(experiment)
    once, twice, factor, skip = (
        loss_increase(runs, name, "1") for name in ("c", "c2", "factor", "skip")
    )
    rates = _rates(runs)
    for i, rate in enumerate(rates):
        yield _step(1, f"c − 1, {rate}", once[i])
        yield _step(1, f"c² − c, {rate}", twice[i] - once[i])
    for i, rate in enumerate(rates):
        share = float(skip[i].mean() / factor[i].mean())
        yield number(2, f"skip over factor, {rate}", share, "below 0.5")
    for i, rate in enumerate(rates):
        share = float(factor[i].mean() / once[i].mean())
        yield number(3, f"factor over c, {rate}", share, "at least 0.5")


def _step(at: int, what: str, values: Values) -> Part:
    """Return a part whose mean has to be positive, refuted by two standard errors below 0."""
    mean, error = mean_and_error(values)
    return decided(at, what, "> 0", values, bool(mean > 0.0), refuted=bool(mean + 2 * error < 0.0))


def both_branches() -> Iterator[Part]:
    """Yield what was predicted where both branches of a block are multiplied."""
    runs = records.runs("dose")
    skip, factor = (loss_increase(runs, name, "1") for name in ("skip", "factor"))
    both = losses(records.runs("both_branches"), "skip_both") - losses(runs, "1")
    for i, rate in enumerate(_rates(runs)):
        yield number(1, f"both branches − skip, {rate}", both[i] - skip[i], "below 0")
        share = float(both[i].mean() / factor[i].mean())
        yield number(2, f"both branches over factor, {rate}", share, "below 0.5")


def exact_source() -> Iterator[Part]:
    """Yield what was predicted of the exact factor of each position."""
    runs, others = records.runs("exact_source"), records.runs("source_start")
    here = np.isin(comparison.learning_rates(others), comparison.learning_rates(runs))
    base, note = (losses(others, name)[here] for name in ("baseline", "note"))
    exact, rates = losses(runs, "exact"), _rates(runs)
    own, source = (rises[rates.index("2⁻⁹")].mean() for rises in (exact - base, note - base))
    yield number(1, "exact over (n/e)^½, 2⁻⁹", float(own / source), "at least 0.5")
    for i, rate in enumerate(rates):
        yield number(2, f"exact − (n/e)^½, {rate}", exact[i] - note[i], "below 0")


def longer() -> Iterator[Part]:
    """Yield what was predicted of 6000 steps at a constant rate."""
    runs = records.runs("longer")
    for rate, eta in zip(_rates(runs), comparison.learning_rates(runs), strict=True):
        note, base = (loss_curves(runs, name, eta, PARTS) for name in ("note", "baseline"))
        rise = (note - base).mean(axis=0)
        left = float(rise[-1] / rise[EARLY])
        yield number(1, f"rise at 6000 over 1500, {rate}", left, "below 0.5")


def people_factor() -> Iterator[Part]:
    """Yield what was predicted of 6000 steps with warm-up and decay."""
    runs = records.runs("people_factor")
    final, unseen = (loss_increase_with_own_rates(runs, "note", of) for of in comparison.MEASURES)
    yield between(1, "rise, each at its best rate", final[-1], 0.0, 0.03)
    yield number(2, "rise at 2⁻⁸ − at 2⁻¹⁰", final[0] - final[2], "above 0")
    yield between(3, "rise on unseen text, at best rates", unseen[-1], -0.03, 0.03)


def encoder() -> Iterator[Part]:
    """Yield what was predicted of the two smallest rates of a masked encoder."""
    slower, faster = records.runs("encoder_slower"), records.runs("encoder")
    last = losses(faster, "baseline")[-1]
    yield number(1, "baseline at 2⁻¹¹ − at 2⁻¹⁰", losses(slower, "baseline")[0] - last, "above 0")
    for rate, rises in zip(_rates(slower), loss_increase(slower, "note"), strict=True):
        yield number(2, f"factor − baseline, {rate}", rises, "above 0.02")


def _rates(runs: Sequence[Outcome]) -> list[str]:
    """Return the learning rates of a sweep as they are written, such as 2⁻⁹."""
    return [power_of_2(eta) for eta in comparison.learning_rates(runs)]
