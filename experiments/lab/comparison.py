"""Compare the variants of a sweep, rate by rate and seed by seed.

Runs of the same seed start from the same parameters and see the same batches, so a difference of
two variants is taken within a seed, and its confidence interval over the seeds.

Source 002. Chapters: almost_scaled_training, training_details.
"""

from collections.abc import Iterable, Sequence
from math import log2
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from attnlib import _checking
from attnlib._checking import FloatArray

if TYPE_CHECKING:  # a sweep loads torch, and to compare what is finished needs none
    from experiments.lab.sweep import Outcome

MEASURES = ("final_loss", "validation_loss")
"""The losses of a run that are compared."""


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Interval(NamedTuple):
    """A confidence interval: its middle `mean`, and `half_width`.

    Chapter: almost_scaled_training.
    """

    mean: FloatArray
    half_width: FloatArray


def interval(values: ArrayLike, comparisons: int = 1) -> Interval:
    """Return the 95 % confidence interval of the mean over the last axis.

    Student's: it assumes that the values are independent and normal, and is wide for few of them:
    4.3 standard errors with three. As one of several `comparisons` it is wider, so that all of them
    hold together with at least 95 % (Bonferroni's correction). Raises ValueError for what is not
    finite. Chapter: almost_scaled_training.

    >>> mean, half_width = interval([1.0, 2.0, 3.0])
    >>> float(mean), float(half_width)
    (2.0, 2.484...)
    """
    array = _checking.finite("values", values)
    count = array.shape[-1]
    factor = -stdtrit(count - 1, (1.0 - 0.95) / 2.0 / comparisons)
    error = array.std(axis=-1, ddof=1) / np.sqrt(count)
    return Interval(np.asarray(array.mean(axis=-1)), factor * error)


def by_variant(outcomes: "Iterable[Outcome]") -> dict[tuple[str, int], list[Any]]:
    """Return the runs by variant and steps, each in the order of its seeds.

    Chapter: length_extrapolation.
    """
    runs: dict[tuple[str, int], list[Any]] = {}
    for setting, run in outcomes:
        runs.setdefault((setting.variant, setting.training.steps), []).append(run)
    return runs


def learning_rates(outcomes: "Sequence[Outcome]") -> FloatArray:
    """Return the learning rates of a sweep, shape (rates,), in its order.

    Chapter: almost_scaled_training.
    """
    rates = (setting.training.learning_rate for setting, _ in outcomes)
    return np.array(list(dict.fromkeys(rates)))


def losses(outcomes: "Sequence[Outcome]", variant: str, measure: str = "final_loss") -> FloatArray:
    """Return the losses of a variant, shape (rates, seeds), both in the order of the sweep.

    A run that diverged has the loss ∞. Raises KeyError where a run is missing.
    Chapter: almost_scaled_training.
    """
    by_rate = {}
    for setting, run in outcomes:
        if setting.variant == variant:
            loss = getattr(run, measure)
            rate_and_seed = setting.training.learning_rate, setting.training.seed
            by_rate[rate_and_seed] = np.inf if loss is None else loss
    seeds = dict.fromkeys(setting.training.seed for setting, _ in outcomes)
    return np.array([[by_rate[rate, seed] for seed in seeds] for rate in learning_rates(outcomes)])


def losses_at_best(
    outcomes: "Sequence[Outcome]", variant: str, measure: str = "final_loss"
) -> FloatArray:
    """Return the losses of a variant at its own best learning rate, shape (seeds,).

    The rate of each seed is the one whose mean loss over the *other* seeds is smallest, so that
    choosing does not make the losses smaller than they are. Raises as `losses`.
    Chapter: almost_scaled_training.
    """
    by_rate = losses(outcomes, variant, measure)
    seeds = range(by_rate.shape[1])
    others = [np.delete(by_rate, seed, axis=1).mean(axis=1).argmin() for seed in seeds]
    return by_rate[others, seeds]


def loss_increase(
    outcomes: "Sequence[Outcome]",
    changed: str,
    against: str = "baseline",
    measure: str = "final_loss",
) -> FloatArray:
    """Return the loss of the variant `changed` less that of `against`, shape (rates, seeds).

    In nats a byte, and above 0 where the change is for the worse; 0 where both diverged. Raises as
    `losses`. Chapter: almost_scaled_training.
    """
    loss, reference = losses(outcomes, changed, measure), losses(outcomes, against, measure)
    return np.subtract(loss, reference, out=np.zeros_like(loss), where=(loss != reference))


def loss_increase_with_own_rates(
    outcomes: "Sequence[Outcome]", changed: str, measure: str = "final_loss"
) -> FloatArray:
    """Return the increase over the baseline, and in a last row that with each at its best rate.

    Shape (rates + 1, seeds). Raises as `losses`.
    Chapters: almost_scaled_training, training_details.
    """
    at_best = [losses_at_best(outcomes, name, measure) for name in (changed, "baseline")]
    return np.vstack([loss_increase(outcomes, changed, measure=measure), np.subtract(*at_best)])


def loss_curves(
    outcomes: "Sequence[Outcome]", variant: str, learning_rate: float, parts: int
) -> FloatArray:
    """Return the losses of a variant at one rate as means over equal parts of training.

    Shape (seeds, parts). Raises ValueError where the losses of a run do not divide into `parts`.
    Chapters: almost_scaled_training, training_details.
    """
    runs = [
        np.reshape(run.losses, (parts, -1)).mean(axis=1)
        for setting, run in outcomes
        if (setting.variant, setting.training.learning_rate) == (variant, learning_rate)
    ]
    return np.array(runs)


def signed(differences: ArrayLike, digits: int = 2) -> str:
    """Return the mean over the seeds with its interval as text, such as "+0.20 ± 0.04".

    Raises as `interval`. Chapters: almost_scaled_training, training_details.

    >>> signed([1.0, 2.0, 3.0])
    '+2.00 ± 2.48'
    """
    mean, half_width = interval(differences)
    return f"{mean:+.{digits}f} ± {half_width:.{digits}f}"


def power_of_two(x: float) -> str:
    """Return a power of two, such as a learning rate, as the pages write it.

    >>> power_of_two(2**-10)
    '2⁻¹⁰'
    """
    return "2" + f"{log2(x):g}".translate(SUPERSCRIPTS)
