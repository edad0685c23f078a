"""What the headlines of the book rest on: one row for each, computed from the records.

A row says what was measured, on how many pairs, what was chosen by looking, what else differs
between the two sides, and what speaks against it: `evidence.toml` has the words. A sentence may say
no more than its row. Chapters: how_sure, short_answer.
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
    """A headline's evidence, in words beside its numbers."""

    estimate: str
    """Paired, with 95 %."""
    quantity: str
    pairs: str
    """How many differences, and which clusters they are."""
    chosen: str
    """What was chosen by looking, and on which data."""
    differs: str
    """What else differs between the two sides."""
    among: str
    """How many comparisons of its kind there are."""
    against: str
    covers: str
    """The models, sizes, texts and lengths that it holds for."""


WORDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
"""The words of the rows by name, in their order."""


def row(name: str) -> Row:
    """Return a row, computed."""
    words = dict(WORDS[name])
    digits, values = words.pop("digits", 2), ESTIMATES[name]()
    estimate = values if isinstance(values, str) else signed(values, digits).replace("-", "−")
    numbers = NUMBERS.get(name, dict)()
    return Row(estimate, **{field: text.format_map(numbers) for field, text in words.items()})


# --- what is compared -----------------------------------------------------------------------------


def _policy(name: str) -> Values:
    increase: Values = comparison.loss_increase(runs("policies"), name)[0]
    return increase


def _gain(kind: str) -> Values:
    return gains.norm_loss(kind, 2.25, 2000) - gains.norm_loss(kind, 1.0, 2000)


def _far(variant: str, name: str = "none") -> Values:
    """Return what recall models lose at 16 n₀, or would lose under a rule."""
    return trained.RecallRuns(runs("trained_law"))(variant, length.FAR, name)


def _single(strength: int) -> str:
    heads = length.MeasuredRuns(runs("length_head"))
    best = heads("best", f"noise_{strength}", length.LONG, length.START)
    return ", ".join(f"{t:.2f}" for t in sorted(best)) + " (the seeds)"


def _kinds() -> dict[str, Values]:
    """Return thousandths of a nat that a kind's own factor gains, by kind, window by window."""
    return {kind: 1000 * gains for kind, gains in kinds_of_text.own_gains(LONG).items()}


def _means() -> Values:
    return np.array([gains.mean() for gains in _kinds().values()])


def _audit() -> str:
    bugs = [entry for entry in load("known_bugs").entries if "bug" in entry.key]
    return f"{sum(bool(entry.result['audit']) for entry in bugs)} of {len(bugs)}"


ESTIMATES: dict[str, Callable[[], ArrayLike | str]] = {
    "undivided": lambda: no_scale.rise("one", 64),
    "undivided-unseen": lambda: no_scale.rise("one", 64, "validation_loss"),
    "undivided-usual": lambda: no_scale.people_rise(64),
    "inverse-d": no_scale.inverse_d_rise,
    "largest-gradient": lambda: _policy("annealed"),
    "norm": lambda: _policy("normalised"),
    "gain-learned": lambda: _gain("learned"),
    "gain-fixed": lambda: _gain("fixed"),
    "output-short": lambda: output_factor.factor_harm("factor_short", "constant"),
    "output-constant": lambda: output_factor.factor_harm("factor_long", "constant"),
    "output-usual": lambda: output_factor.factor_harm("factor_long", "people"),
    "late-recall": lambda: _far("growing_none", "ssmax") - _far("growing_log"),
    "trained-text": lambda: trained.trained_less_applied("root_log"),
    "applied-once": lambda: _far("fixed_none", "ssmax") - _far("fixed_none"),
    "applied-noise": lambda: _far("noise_none", "ssmax") - _far("noise_none"),
    "single-heads": lambda: _single(50),
    "single-heads-strong": lambda: _single(70),
    "learning-direction": lambda: decoder_scale.by_direction("sizes_adam", "start_1"),
    "learning-size": lambda: decoder_scale.explained("start_1"),
    "smollm2-factor": lambda: calibrated.by_kind(calibrated.curves(4096).wants()),
    "smollm2-gain": lambda: 1000 * calibrated.by_kind(calibrated.curves(4096).crossed()),
    "kinds-gain": _means,
    "reactions-gain": lambda: calibrated.curves("RXNMapper").crossed(),
    "audit": _audit,
}
"""The paired differences of each row, or its estimate as text."""


# --- other numbers of the rows --------------------------------------------------------------------


def _plain(values: ArrayLike, digits: int = 2) -> str:
    """Return a mean with its interval, without a sign where it is above 0."""
    return signed(values, digits).removeprefix("+")


def _earlier_text() -> str:
    texts = trained.text_runs()
    late = texts("quarter_none", 16, "root_log")
    return signed(texts("quarter_root_log", 16) - late)


def _rule_in_n() -> str:
    [rule] = calibrated.select(what="fit log")
    return _plain(1000 * np.subtract(rule["before"], rule["after"]), 1)


def _other_gains() -> dict[str, str]:
    gains = _kinds()
    most = max(gains, key=lambda kind: float(gains[kind].mean()))
    more = _means() - 1000 * kinds_of_text.common_gains(LONG)
    return {"more": _plain(more, 1), "kind": most, "most": _plain(gains[most], 1)}


def _of_all_four() -> str:
    gained = calibrated.curves("RXNMapper").crossed()
    return f"{interval(gained, comparisons=len(calibrated.OTHERS)).half_width:.3f}"


def _unseen() -> dict[str, str]:
    right = [entry.result["found"] for entry in load("known_bugs.unseen_first").entries]
    return {"reports": str(len(right)), "right": str(sum(right))}


NUMBERS: dict[str, Callable[[], dict[str, str]]] = {
    "undivided-usual": lambda: {"wide": signed(no_scale.undivided_low_rise())},
    "output-usual": lambda: {
        "short": signed(output_factor.factor_harm("factor_short", "people"), 3)
    },
    "trained-text": lambda: {"earlier": _earlier_text()},
    "learning-direction": lambda: {
        "smaller": _plain(decoder_scale.by_direction("sizes_adam", "start_256th")),
        "first": _plain(decoder_scale.by_direction("sizes_adam", "start_1", layer=0)),
    },
    "smollm2-gain": lambda: {"rule": _rule_in_n()},
    "kinds-gain": _other_gains,
    "reactions-gain": lambda: {"family": _of_all_four()},
    "audit": _unseen,
}
"""Numbers that the words of a row name in braces, as text."""
