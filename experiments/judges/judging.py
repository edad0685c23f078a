"""A prediction in parts, single numbers and signs, each with what came of it.

A number is refuted where its mean over the seeds is outside the margin; a sign where the whole 95 %
interval of the mean lies on the other side of 0, and it is open where the interval has both.

Chapter: predictions.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.lab.comparison import interval

Values = NDArray[np.float64]

HOLDS, REFUTED, OPEN = "holds", "refuted", "open"


class Part(NamedTuple):
    """One number or one sign of a prediction, and what came of it."""

    prediction: int | str
    """Its number or name in the file that predicted it."""
    what: str
    expected: str
    mean: float
    half_width: float
    verdict: str


def limits(values: Values) -> tuple[float, float]:
    """Return the two ends of the 95 % interval of the mean."""
    mean, half = interval(values)
    return float(mean - half), float(mean + half)


def between(
    at: int | str, what: str, values: Values | float, low: float, high: float, expected: str = ""
) -> Part:
    """Return a part whose mean has to lie between two numbers; one number has no interval."""
    expected = expected or f"{low:.4g} to {high:.4g}"
    return decided(at, what, expected, values, holds=bool(low <= np.mean(values) <= high))


def number(at: int | str, what: str, values: Values | float, expected: str) -> Part:
    """Return a part whose mean has to be, say, "at least 0.3", "above 2", "below 1", "at most 0".

    The number itself is allowed in each case.
    """
    words, _, end = expected.rpartition(" ")
    ends = (float(end), math.inf) if words in ("at least", "above") else (-math.inf, float(end))
    return between(at, what, values, *ends, expected)


def near(at: int | str, what: str, values: Values, middle: float, margin: float) -> Part:
    """Return a part whose mean has to be near a number."""
    shown = f"{middle:.3g} ± {margin:.2g}"
    return between(at, what, values, middle - margin, middle + margin, shown)


def above(at: int | str, what: str, values: Values) -> Part:
    """Return a part whose mean has to be positive."""
    low, high = limits(values)
    return decided(at, what, "> 0", values, holds=low > 0.0, refuted=high < 0.0)


def decided(
    at: int | str,
    what: str,
    expected: str,
    values: Values | float,
    holds: bool,
    refuted: bool | None = None,
) -> Part:
    """Return a part whose verdict is given; its numbers are what is shown of it.

    Where it does not hold it is refuted; where `refuted` is given and it is neither, it is open.
    """
    mean, half = interval(values) if np.size(values) > 1 else (values, 0.0)
    failed = not holds if refuted is None else refuted
    verdict = HOLDS if holds else REFUTED if failed else OPEN
    return Part(at, what, expected, float(mean), float(half), verdict)


def surely(part: Part) -> Part:
    """Return a part that is refuted, too, where its interval does not lie above 0."""
    kept = part.verdict == HOLDS and part.mean > part.half_width
    expected = f"{part.expected}, its interval above 0"
    return part._replace(expected=expected, verdict=HOLDS if kept else REFUTED)


def graded(at: int | str, what: str, values: Values | float, holds: float, refuted: float) -> Part:
    """Return a part that is open where its mean lies between two numbers."""
    expected, mean = f"at least {holds:g}; refuted below {refuted:g}", np.mean(values)
    return decided(at, what, expected, values, bool(mean >= holds), refuted=bool(mean < refuted))


def verdict(of: Sequence[Part]) -> str:
    """Return the verdict of a prediction: that of its worst part."""
    counts = Counter(part.verdict for part in of)
    return REFUTED if counts[REFUTED] else OPEN if counts[OPEN] else HOLDS
