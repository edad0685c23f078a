"""The evidence for each headline of the book: a row of numbers from the records, in words.

`evidence.toml` has the words of each field of `Row`. A sentence may say no more than its row.
Chapters: how_sure, short_answer.
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiments.judges import (
    calibrated,
    decoder_scale,
    gains,
    kinds_of_text,
    length,
    no_scale,
    output_factor,
    trained,
)
from experiments.judges.judging import Values
from experiments.kinds import LONG
from experiments.lab import comparison
from experiments.lab.comparison import interval, signed
from experiments.records import load, runs


class Row(NamedTuple):
    """The evidence for a headline."""

    estimate: str
    """The mean of paired differences, with 95 %."""
    quantity: str
    """What was measured, and its unit."""
    pairs: str
    """The number of the differences, and their clusters."""
    chosen: str
    """What was chosen by looking, and the data for that."""
    differs: str
    """What else differs between the two sides."""
    among: str
    """The number of comparisons of its kind."""
    against: str
    """What speaks against it."""
    covers: str
    """The models, sizes, texts and lengths that it holds for."""


WORDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
"""The words of the rows by name, in their order."""


def row(name: str) -> Row:
    """Return a row, its numbers computed from the records; KeyError for another name."""
    words = dict(WORDS[name])
    digits, values = words.pop("digits", 2), ESTIMATES[name]()
    estimate = values if isinstance(values, str) else signed(values, digits).replace("-", "−")
    numbers = NUMBERS.get(name, dict)()
    return Row(estimate, **{field: text.format_map(numbers) for field, text in words.items()})


# --- what is compared -----------------------------------------------------------------------------


def _policy_rise(name: str) -> Values:
    """Return the loss of a policy less that of 1/√d, by seed."""
    increase: Values = comparison.loss_increase(runs("policies"), name)[0]
    return increase


def _gain_rise(kind: str) -> Values:
    """Return the loss of gains from α = 2.25 less that from 1, by seed."""
    return gains.norm_loss(kind, 2.25, 2000) - gains.norm_loss(kind, 1.0, 2000)


def _loss_far(variant: str, applied: str = "none") -> Values:
    """Return the loss of recall models at 16 n₀, or under a rule applied after, by seed."""
    return trained.RecallRuns(runs("trained_law"))(variant, length.FAR, applied)


def _best_factors(strength: int) -> str:
    """Return t* of the seeds of single heads, as text."""
    heads = length.MeasuredRuns(runs("length_head"))
    best = heads("best", f"noise_{strength}", length.LONG, length.START)
    return ", ".join(f"{t:.2f}" for t in sorted(best)) + " (the seeds)"


def _own_gains() -> dict[str, Values]:
    """Return the gains of windows by their kind's own factor, in thousandths of a nat, by kind."""
    return {kind: 1000 * gains for kind, gains in kinds_of_text.own_gains(LONG).items()}


def _mean_gains() -> Values:
    """Return the mean of these for each kind."""
    return np.array([gains.mean() for gains in _own_gains().values()])


def _found_bugs() -> str:
    """Return the number of known bugs in which the audit finds a fault, "of" all."""
    bugs = [entry for entry in load("known_bugs").entries if "bug" in entry.key]
    return f"{sum(bool(entry.result['audit']) for entry in bugs)} of {len(bugs)}"


ESTIMATES: dict[str, Callable[[], ArrayLike | str]] = {
    "undivided": lambda: no_scale.rise("one", 64),
    "undivided-unseen": lambda: no_scale.rise("one", 64, "validation_loss"),
    "undivided-usual": lambda: no_scale.people_rise(64),
    "inverse-d": no_scale.inverse_d_rise,
    "largest-gradient": lambda: _policy_rise("annealed"),
    "norm": lambda: _policy_rise("normalised"),
    "gain-learned": lambda: _gain_rise("learned"),
    "gain-fixed": lambda: _gain_rise("fixed"),
    "output-short": lambda: output_factor.factor_harm("factor_short", "constant"),
    "output-constant": lambda: output_factor.factor_harm("factor_long", "constant"),
    "output-usual": lambda: output_factor.factor_harm("factor_long", "people"),
    "late-recall": lambda: _loss_far("growing_none", "ssmax") - _loss_far("growing_log"),
    "trained-text": lambda: trained.trained_less_applied("root_log"),
    "applied-once": lambda: _loss_far("fixed_none", "ssmax") - _loss_far("fixed_none"),
    "applied-noise": lambda: _loss_far("noise_none", "ssmax") - _loss_far("noise_none"),
    "single-heads": lambda: _best_factors(50),
    "single-heads-strong": lambda: _best_factors(70),
    "learning-direction": lambda: decoder_scale.direction_shares("sizes_adam", "start_1"),
    "learning-size": lambda: decoder_scale.explained_shares("start_1"),
    "smollm2-factor": lambda: calibrated.mean_by_kind(calibrated.curves(4096).best_log_t()),
    "smollm2-gain": lambda: 1000 * calibrated.mean_by_kind(calibrated.curves(4096).crossed_gains()),
    "kinds-gain": _mean_gains,
    "reactions-gain": lambda: calibrated.curves("RXNMapper").crossed_gains(),
    "audit": _found_bugs,
}
"""The paired differences of each row, or its estimate as text."""


# --- other numbers of the rows --------------------------------------------------------------------


def _unsigned(values: ArrayLike, digits: int = 2) -> str:
    """Return a mean with its interval as text, without a sign where it is above 0."""
    return signed(values, digits).removeprefix("+")


def _earlier_text() -> str:
    """Return √log n trained in less applied after, of the three earlier seeds."""
    texts = trained.text_runs()
    applied = texts("quarter_none", 16, "root_log")
    return signed(texts("quarter_root_log", 16) - applied)


def _rule_gain() -> str:
    """Return the gain of the fitted rule in n, in thousandths of a nat."""
    [rule] = calibrated.select(what="fit log")
    return _unsigned(1000 * np.subtract(rule["before"], rule["after"]), 1)


def _other_gains() -> dict[str, str]:
    """Return the excess over one factor for all kinds, and the kind that gains most."""
    gains = _own_gains()
    most = max(gains, key=lambda kind: float(gains[kind].mean()))
    more = _mean_gains() - 1000 * kinds_of_text.common_gains(LONG)
    return {"more": _unsigned(more, 1), "kind": most, "most": _unsigned(gains[most], 1)}


def _half_width_of_four() -> str:
    """Return the half width for RXNMapper if the intervals of all four models are to hold."""
    gained = calibrated.curves("RXNMapper").crossed_gains()
    return f"{interval(gained, comparisons=len(calibrated.OTHERS)).half_width:.3f}"


def _unseen_reports() -> dict[str, str]:
    """Return the number of reports on which the audit had not been tried, and of those found."""
    right = [entry.result["found"] for entry in load("known_bugs.unseen_first").entries]
    return {"reports": str(len(right)), "right": str(sum(right))}


NUMBERS: dict[str, Callable[[], dict[str, str]]] = {
    "undivided-usual": lambda: {"wide": signed(no_scale.undivided_low_rise())},
    "output-usual": lambda: {
        "short": signed(output_factor.factor_harm("factor_short", "people"), 3)
    },
    "trained-text": lambda: {"earlier": _earlier_text()},
    "learning-direction": lambda: {
        "smaller": _unsigned(decoder_scale.direction_shares("sizes_adam", "start_256th")),
        "first": _unsigned(decoder_scale.direction_shares("sizes_adam", "start_1", layer=0)),
    },
    "smollm2-gain": lambda: {"rule": _rule_gain()},
    "kinds-gain": _other_gains,
    "reactions-gain": lambda: {"family": _half_width_of_four()},
    "audit": _unseen_reports,
}
"""Numbers that the words of a row name in braces, as text."""
