"""Sweeps compared: one variant against another, rate by rate and seed by seed.

Runs of the same seed start from the same parameters and see the same batches, so a difference of
two variants is taken within a seed, and its confidence interval over the seeds.

Source 002. Chapter: training.
"""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from attnlib import checking
from attnlib.checking import FloatArray

if TYPE_CHECKING:  # a sweep loads torch, and to compare what is finished needs none
    from experiments.lab.sweep import Outcome

MEASURES = ("final_loss", "validation_loss")
"""The losses of a run that are compared."""
CONFIDENCE = 0.95
"""Of every interval."""


class Interval(NamedTuple):
    """A confidence interval: its middle `mean`, and `half_width`. Chapter: training."""

    mean: FloatArray
    half_width: FloatArray


def interval(values: ArrayLike, comparisons: int = 1) -> Interval:
    """Return the 95 % confidence interval of the mean over the last axis.

    Student's: it assumes that the values are independent and normal, and is wide for few of them:
    4.3 standard errors with three. As one of several `comparisons` it is wider, so that all of them
    hold together with at least 95 % (Bonferroni's correction). Raises ValueError for fewer than two
    values and for what is not finite. Chapter: training.

    >>> mean, half_width = interval([1.0, 2.0, 3.0])
    >>> float(mean), float(half_width)
    (2.0, 2.484...)
    """
    given = checking.finite("values", values)
    comparisons = checking.integer("comparisons", comparisons, minimum=1)
    count = given.shape[-1] if given.ndim else 0
    if count < 2:
        raise ValueError(f"values must be at least two along the last axis, got {count}")
    # A power of two, so that no sum and no square overflows and no digit is lost.
    power = np.frexp(np.abs(given).max(axis=-1))[1]
    unit = np.ldexp(given, -power[..., None])
    error = unit.std(axis=-1, ddof=1) / np.sqrt(count)
    factor = stats.t.isf((1.0 - CONFIDENCE) / 2.0 / comparisons, count - 1)
    with np.errstate(over="ignore"):
        half_width = np.ldexp(factor * error, power)
    return Interval(np.asarray(np.ldexp(unit.mean(axis=-1), power)), np.asarray(half_width))


def learning_rates(outcomes: "Sequence[Outcome]") -> FloatArray:
    """Return the learning rates of a sweep, shape (rates,), in its order.

    Raises TypeError for what are no outcomes. Chapter: training.
    """
    checking.instance("outcomes", outcomes, Sequence)
    for one in outcomes:
        if not (hasattr(one, "setting") and hasattr(one, "run")):
            raise TypeError(f"outcomes must be those of a sweep, got one of {type(one).__name__}")
    return np.array(list(dict.fromkeys(one.setting.training.learning_rate for one in outcomes)))


def losses(outcomes: "Sequence[Outcome]", variant: str, measure: str = "final_loss") -> FloatArray:
    """Return the losses of a variant, shape (rates, seeds), both in the order of the sweep.

    A run that diverged has the loss ∞. Raises ValueError where a run is missing, and for another
    `measure` than "final_loss" and "validation_loss"; TypeError as `learning_rates`. Chapter:
    training.
    """
    rates = learning_rates(outcomes)
    checking.choice("measure", measure, MEASURES)
    checking.choice(
        "variant", variant, list(dict.fromkeys(one.setting.variant for one in outcomes))
    )
    found = {
        (one.setting.training.learning_rate, one.setting.training.seed): getattr(one.run, measure)
        for one in outcomes
        if one.setting.variant == variant
    }
    seeds = dict.fromkeys(one.setting.training.seed for one in outcomes)
    wanted = [[(rate, seed) for seed in seeds] for rate in rates]
    for rate, seed in chain.from_iterable(wanted):
        if (rate, seed) not in found:
            raise ValueError(
                f"outcomes must have every rate and seed of variant={variant!r}, "
                f"got none with learning_rate={rate:g} and seed={seed}"
            )
    return np.array(
        [[np.inf if found[run] is None else found[run] for run in row] for row in wanted]
    )


def losses_at_best(
    outcomes: "Sequence[Outcome]", variant: str, measure: str = "final_loss"
) -> FloatArray:
    """Return the losses of a variant at its own best learning rate, shape (seeds,).

    The rate of each seed is the one whose mean loss over the *other* seeds is smallest, so that
    choosing does not make the losses smaller than they are. Raises ValueError for one seed, and as
    `losses`. Chapter: training.
    """
    found = losses(outcomes, variant, measure)
    seeds = found.shape[1]
    if seeds < 2:
        raise ValueError(f"outcomes must be of at least two seeds, got {seeds}")
    others = [np.delete(found, seed, axis=1).mean(axis=1).argmin() for seed in range(seeds)]
    return found[others, range(seeds)]


def harm(
    outcomes: "Sequence[Outcome]",
    changed: str,
    against: str = "baseline",
    measure: str = "final_loss",
) -> FloatArray:
    """Return the loss of the variant `changed` less that of `against`, shape (rates, seeds).

    In nats a byte, and above 0 where the change is for the worse; 0 where both diverged. Raises
    ValueError as `losses`. Chapter: training.
    """
    one, other = losses(outcomes, changed, measure), losses(outcomes, against, measure)
    return np.subtract(one, other, out=np.zeros_like(one), where=(one != other))
