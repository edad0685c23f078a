"""The best learning rates of recorded sweeps.

Chapters: length_extrapolation, qk_norm, predictions.
"""

from collections.abc import Iterable
from math import log2
from typing import Any

from experiments.lab import sweep
from experiments.records import SWEEPS, runs

RateLosses = dict[str, dict[float, float]]
"""Losses by variant and learning rate."""


def best_log2_rates(name: str) -> dict[str, float]:
    """Return log₂ of the best learning rate of each variant, of a sweep that chooses rates."""
    chosen = sweep.best_rates(sweep.read(SWEEPS / f"{name}.toml"))
    return {variant: log2(rate) for variant, rate in chosen.items()}


def losses_by_rate(name: str) -> RateLosses:
    """Return the loss of each variant at each learning rate, from a sweep of one seed.

    Of a text model it is the validation loss, of a recall model the last loss of training.
    """
    losses: RateLosses = {}
    outcomes: Iterable[Any] = runs(name)
    for setting, run in outcomes:
        loss = run.validation_loss if setting.corpus else run.losses[-1]
        losses.setdefault(setting.variant, {})[setting.training.learning_rate] = loss
    return losses


def best_rate(losses: dict[float, float]) -> float:
    """Return the learning rate of the smallest loss."""
    return min(losses, key=losses.__getitem__)


def count_best(losses: RateLosses, rates: tuple[float, ...]) -> int:
    """Return the number of variants whose best rate is one of `rates`."""
    return sum(best_rate(of_variant) in rates for of_variant in losses.values())
