"""Decoders that do not divide q·k by √d, with and without QK-norm: losses and verdicts.

A scale is "one", "root", 1/√d, "over", 1/d, or "learned"; d is the dimension of a head. The sweeps
no_scale*.toml, people_undivided*.toml and undivided_low*.toml have the predictions in words.

Chapters: unscaled, qk_norm, predictions.
"""

from collections.abc import Iterator
from typing import Any

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
    require_interval_above_0,
)
from experiments.judges.rates import best_log2_rates
from experiments.records import losses, of_variant, runs

SIZES = (16, 64, 256)
"""Dimensions of a head; the width is 256 each time."""

NORM_SWEEPS = ("no_scale_norm", "no_scale_norm_wider")
"""The sweeps that choose rates with QK-norm, on one seed."""
NEAR = 0.03
"""What the predictions call no difference, in nats per byte."""


def losses_by_rate(variant: str, *sweeps: str) -> Values:
    """Return the learning rates of a variant's runs and their losses, (2, rates).

    A run of another sweep counts where its model is the same.
    """
    outcomes: list[Any] = [outcome for sweep in sweeps for outcome in runs(sweep)]
    config_of = {setting.variant: setting.config for setting, _ in outcomes}
    points = sorted(
        (setting.training.learning_rate, run.final_loss)
        for setting, run in outcomes
        if setting.config == config_of[variant]
    )
    return np.transpose(points)


def _above_root(sweep: str, scale: str, d: int, measure: str = "final_loss") -> Values:
    """Return the loss of a scale less that of 1/√d in a sweep of best rates, (seeds,)."""
    return losses(sweep, f"{scale}_{d}", measure) - losses(sweep, f"root_{d}", measure)


def best_runs(scale: str, d: int) -> list[Any]:
    """Return the runs of a scale at its best rate, by seed."""
    return of_variant("no_scale_seeds", f"{scale}_{d}")


def rise(scale: str, d: int, measure: str = "final_loss") -> Values:
    """Return the loss of a scale less that of 1/√d, each at its best rate, (seeds,)."""
    return _above_root("no_scale_seeds", scale, d, measure)


def best_norm_run(scale: str, d: int) -> Any:
    """Return the outcome of a scale with QK-norm whose final loss is least; one seed."""
    outcomes: list[Any] = [
        outcome for sweep in NORM_SWEEPS for outcome in of_variant(sweep, f"norm_{scale}_{d}")
    ]
    return min(outcomes, key=lambda outcome: float(outcome.run.final_loss))


def norm_rise(scale: str, d: int, measure: str = "final_loss") -> float:
    """Return the loss of a scale less that of 1/√d with QK-norm, each at its best rate."""
    ends = (getattr(best_norm_run(name, d).run, measure) for name in (scale, "root"))
    return float(np.subtract(*ends))


def norm_rise_unseen(scale: str, d: int) -> Values:
    """Return the same of the two seeds that chose no rate, (2,)."""
    loss, root = (losses("no_scale_norm_seeds", f"norm_{name}_{d}") for name in (scale, "root"))
    return loss - root


def inverse_d_rise(measure: str = "final_loss") -> Values:
    """Return by how much the loss with 1/d exceeds that with 1/√d, in nats a byte, (5,).

    Heads have 256 dimensions. `measure` names the field of the run. The seeds are 1 to 5: none took
    part in the choice of the rate; the last three were run to test it.
    """
    first, more = (
        _above_root(sweep, "over", 256, measure) for sweep in ("no_scale_seeds", "no_scale_unseen")
    )
    return np.concatenate([first[1:], more])


def people_rise(d: int, measure: str = "final_loss") -> Values:
    """Return the loss of scale 1 less that of 1/√d with warm-up and decay, (seeds,)."""
    return _above_root("people_undivided", "one", d, measure)


def undivided_low_rise(measure: str = "final_loss") -> Values:
    """Return the same in heads of 256 where smaller rates were tried too, (seeds,)."""
    return losses("undivided_low", "one", measure) - losses("undivided_low", "root", measure)


def spreads(scale: str, d: int) -> tuple[tuple[int, ...], Values]:
    """Return the recorded steps, and the spread of the logits there, (seeds, records).

    The spread is the root of the mean square over both layers.
    """
    best = [outcome.run for outcome in best_runs(scale, d)]
    squares = [np.square(run.spreads).mean(axis=1) for run in best]
    return best[0].recorded_at, np.sqrt(squares)


def judge_no_scale() -> Iterator[Part]:
    """Yield the parts of no_scale.toml: without QK-norm, each scale at its best rate."""
    for d in (16, 64):
        yield between(1, f"scale 1 − 1/√d, d = {d}", rise("one", d), -NEAR, NEAR)
    yield number(1, "scale 1 − 1/√d, d = 256", rise("one", 256), f"above {NEAR}")
    yield between(2, "1/d − 1/√d, d = 16", rise("over", 16), -NEAR, NEAR)
    yield number(2, "1/d − 1/√d, d = 256", rise("over", 256), "above 0")
    for d in SIZES:
        yield between(3, f"learned − 1/√d, d = {d}", rise("learned", d), -NEAR, NEAR)
    for d in SIZES:
        yield number(4, f"1/√d, last spread, d = {d}", spreads("root", d)[1][:, -1], "above 1")


def judge_no_scale_norm() -> Iterator[Part]:
    """Yield the parts of no_scale_norm.toml: with QK-norm, one seed."""
    for d in (64, 256):
        yield number(1, f"1/d − 1/√d, d = {d}", norm_rise("over", d), "above 0.1")
    yield number(1, "scale 1 − 1/√d, d = 256", norm_rise("one", 256), "above 0.1")
    for d in SIZES:
        yield between(2, f"learned − 1/√d, d = {d}", norm_rise("learned", d), -NEAR, NEAR)


def judge_no_scale_norm_seeds() -> Iterator[Part]:
    """Yield the parts of no_scale_norm_seeds.toml: the two seeds that chose no rate."""
    for d in (64, 256):
        yield near(1, f"learned − 1/√d, d = {d}", norm_rise_unseen("learned", d), 0.0, NEAR)
    for d in (64, 256):
        yield number(2, f"1/d − 1/√d, d = {d}", norm_rise_unseen("over", d), "above 0.1")


def judge_no_scale_unseen() -> Iterator[Part]:
    """Yield the parts of no_scale_unseen.toml: 1/d in heads of 256 with more seeds."""
    gaps = inverse_d_rise()
    yield between(1, "1/√d − 1/d, three new seeds", -gaps[2:], 0.0, 0.05)
    low, high = limits(gaps)
    yield number(2, "from 0 to the interval of five seeds", max(low, -high, 0.0), "at most 0")


def judge_people_undivided_rates() -> Iterator[Part]:
    """Yield the parts of people_undivided_rates.toml: the best rates, in powers of 2."""
    for d in (64, 256):
        undivided, root = (
            of_variant("people_undivided", f"{name}_{d}")[0].setting.training.learning_rate
            for name in ("one", "root")
        )
        what = f"steps of 2 below 1/√d's rate, d = {d}"
        yield graded(1, what, np.log2(root / undivided), 1.0, 0.0)


def judge_people_undivided() -> Iterator[Part]:
    """Yield the parts of people_undivided.toml: scale 1 with warm-up and decay."""
    for d, half in ((64, 0.145), (256, 0.17)):
        yield number(1, f"scale 1 − 1/√d, d = {d}", people_rise(d), f"below {half}")
    for d in (64, 256):
        yield require_interval_above_0(
            number(2, f"scale 1 − 1/√d, d = {d}", people_rise(d), "above 0.02")
        )


def judge_undivided_low() -> Iterator[Part]:
    """Yield the parts of undivided_low.toml: heads of 256 with warm-up and decay."""
    increase = undivided_low_rise()
    yield number(1, "undivided less 1/√d", increase, "below 0.45")
    yield number(2, "undivided less 1/√d", increase, "above 0.1")
    yield above(2, "its interval", increase)
    low, high = limits(increase)
    yield decided(
        3, "undivided less 1/√d", "at least 0.25", increase, low > 0.25, refuted=high < 0.25
    )


def judge_undivided_low_rates() -> Iterator[Part]:
    """Yield the parts of undivided_low_rates.toml: their best rates."""
    best = best_log2_rates("undivided_low_rates")
    yield number(1, "undivided, log₂ of the best rate", best["one"], "at most -12")
    yield between(2, "1/√d, log₂ of the best rate", best["root"], -10.0, -9.0)
