"""What became of the predictions about learning rates that were chosen for later runs.

The sweeps gain_text_rates.toml, gain_recall_rates.toml, trained_law_rates.toml and
trained_text_rates.toml have them in words; `experiments.judging` says what a part is.

Chapters: length_extrapolation, qk_norm, predictions.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from experiments.judging import Part, number
from experiments.records import runs
from experiments.trained import POSITIONS, TASKS

Curves = dict[str, dict[float, float]]
"""Losses by variant and learning rate."""


def curves(sweep: str) -> Curves:
    """Return the loss of each variant at each learning rate, of the one seed of a sweep.

    Of a text model it is that of validation, of a recall model the last one.
    """
    losses: Curves = {}
    outcomes: Iterable[Any] = runs(sweep)
    for setting, run in outcomes:
        loss = run.validation_loss if setting.corpus else run.losses[-1]
        losses.setdefault(setting.variant, {})[setting.training.learning_rate] = loss
    return losses


def best(of_variant: dict[float, float]) -> float:
    """Return the learning rate of the smallest loss."""
    return min(of_variant, key=of_variant.__getitem__)


def _among(losses: Curves, rates: tuple[float, ...]) -> float:
    """Return how many variants have their best rate among these."""
    return float(sum(best(of_variant) in rates for of_variant in losses.values()))


def gain_text() -> Iterator[Part]:
    """Yield what was predicted of gains of text models."""
    losses = curves("gain_text_rates")
    yield number(1, "of 7, best at 2⁻⁷ or 2⁻⁸", _among(losses, (2.0**-7, 2.0**-8)), "at least 7")


def gain_recall() -> Iterator[Part]:
    """Yield what was predicted of gains of recall models."""
    losses = curves("gain_recall_rates")
    yield number(1, "of 12, best at .003 or .006", _among(losses, (0.003, 0.006)), "at least 10")


def trained_law() -> Iterator[Part]:
    """Yield what was predicted of recall models with a rule."""
    losses = curves("trained_law_rates")
    yield number(1, "of 15, best at .003 or .006", _among(losses, (0.003, 0.006)), "at least 15")
    for task in TASKS:
        rates = [best(of_variant) for name, of_variant in losses.items() if name.startswith(task)]
        yield number(2, f"{task}, largest over smallest", max(rates) / min(rates), "at most 2")


def trained_text() -> Iterator[Part]:
    """Yield what was predicted of text models with a rule."""
    losses = curves("trained_text_rates")
    yield number(1, "of 6, best at 2⁻⁸ or 2⁻⁹", _among(losses, (2.0**-8, 2.0**-9)), "at least 6")
    for positions in POSITIONS:
        pair = [losses[f"{positions}_{rule}"] for rule in ("none", "ssmax")]
        rates = [best(of_variant) for of_variant in pair]
        costs = [curve[rate] - min(curve.values()) for curve in pair for rate in rates]
        yield number(2, f"{positions}, cost of the other's rate", max(costs), "below 0.01")
