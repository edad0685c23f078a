"""Designs that were run again as they should have been: what is read off their runs.

Each cell has its own best learning rate, chosen on seeds that are not judged, the best rate inside
the range that was tried. The sweeps of the same names have the predictions in words and with what
refutes them.

Chapters: qk_norm, unscaled, length_extrapolation, almost_scaled_training.
"""

from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np

from experiments.gains import Gains
from experiments.judging import (
    Values,
)
from experiments.lab import sweep
from experiments.lab.comparison import interval
from experiments.records import SWEEPS, runs

ALPHAS = (0.5, 1.0, 2.25, 4.0, 8.0)
"""At which QK-norm's gain begins, or stays."""
KINDS = ("learned", "fixed")


def losses(name: str, variant: str, measure: str = "final_loss") -> Values:
    """Return the losses of a variant of a sweep, (seeds,), in nats a byte."""
    of_variant = [one.run for one in runs(name) if one.setting.variant == variant]
    return np.array([getattr(run, measure) for run in of_variant])


def best_rates(name: str) -> dict[str, float]:
    """Return log₂ of the best learning rate of each variant of a sweep that chooses them."""
    chosen = sweep.best_rates(sweep.read(SWEEPS / f"{name}.toml"))
    return {variant: log2(rate) for variant, rate in chosen.items()}


# --- QK-norm: where the gain begins ---------------------------------------------------------------


def of_gain(kind: str, alpha: float, steps: int) -> Values:
    """Return the validation losses of QK-norm whose gain begins at α, "learned" or "fixed"."""
    return losses(f"norm_{steps}", f"{kind}_{round(100 * alpha):03d}", "validation_loss")


def best_alpha(kind: str, steps: int) -> float:
    """Return the α of the least mean loss."""
    return min(ALPHAS, key=lambda alpha: float(of_gain(kind, alpha, steps).mean()))


def above_best(kind: str, alpha: float, steps: int) -> Values:
    """Return the loss from an α less that from the best one, by seed."""
    return of_gain(kind, alpha, steps) - of_gain(kind, best_alpha(kind, steps), steps)


def best_alphas(kind: str, steps: int) -> list[float]:
    """Return the α that are not surely above the best one: no paired 95 % interval above 0."""
    gaps = {alpha: interval(above_best(kind, alpha, steps)) for alpha in ALPHAS}
    return [alpha for alpha, gap in gaps.items() if gap.mean <= gap.half_width]


def gains(steps: int) -> Gains:
    """Return the runs of QK-norm after 500 or 2000 steps."""
    return Gains(runs(f"norm_{steps}"))


def forgiven(alpha: float, steps: int) -> Values:
    """Return the loss of a fixed gain less that of a learned one which begins there, by seed."""
    return of_gain("fixed", alpha, steps) - of_gain("learned", alpha, steps)


# --- heads of 256 that are not divided ------------------------------------------------------------


def undivided_harm(measure: str = "final_loss") -> Values:
    """Return the loss of undivided heads of 256 as people train less that of 1/√d, by seed."""
    return losses("undivided_low", "one", measure) - losses("undivided_low", "root", measure)


# --- a rule in n, trained in and applied after training -------------------------------------------

RULES = ("none", "root_log", "log")
LENGTHS = (1, 4, 16, 64)
"""Times n₀."""


def reading(trained: str, times: int, under: str = "") -> Values:
    """Return the losses of models at times · n₀, trained with a rule, or read `under` one."""
    row, column = LENGTHS.index(times), RULES.index(under) if under else 0
    outcomes: Sequence[Any] = runs("trained_quarter")
    chosen = [one.run for one in outcomes if one.setting.variant == trained]
    return np.array([run.readings[row, column] for run in chosen])


def trained_in(rule: str, times: int = 16) -> Values:
    """Return the loss with a rule trained in less that with it applied after, by seed."""
    return reading(rule, times) - reading("none", times, rule)


# --- the factor on the output of attention --------------------------------------------------------


def factor_harm(name: str, way: str, measure: str = "final_loss") -> Values:
    """Return the loss with the factor less without, trained in one way, by seed."""
    return losses(name, f"{way}_note", measure) - losses(name, f"{way}_baseline", measure)


def taken_away(way: str) -> Values:
    """Return the harm at a constant rate less that of a way of training, by seed."""
    return factor_harm("factor_ingredients", "constant") - factor_harm("factor_ingredients", way)


def share(way: str) -> float:
    """Return the share of the harm at a constant rate that a way of training takes away."""
    whole = factor_harm("factor_ingredients", "constant").mean()
    return float(taken_away(way).mean() / whole)
