"""Parts of a prediction, each one number or one sign, and their verdicts.

A number is refuted where its mean over the seeds is outside the margin. A sign is refuted where the
whole 95 % interval of the mean lies on the other side of 0, and open where the interval holds 0.

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
"""Numbers, one for each seed where no shape is said."""

HOLDS, REFUTED, OPEN = "holds", "refuted", "open"


class Part(NamedTuple):
    """One number or one sign of a prediction, and its verdict."""

    prediction: int | str
    """Its number or name in the file that predicted it."""
    what: str
    """The quantity in a few words."""
    expected: str
    """Its range in words."""
    mean: float
    half_width: float
    """Of the 95 % interval of the mean; 0 for a single number."""
    verdict: str
    """`HOLDS`, `REFUTED` or `OPEN`."""


def limits(values: Values) -> tuple[float, float]:
    """Return the two ends of the 95 % interval of the mean."""
    mean, half = interval(values)
    return float(mean - half), float(mean + half)


def between(
    at: int | str, what: str, values: Values | float, low: float, high: float, expected: str = ""
) -> Part:
    """Return a part that holds where the mean is from `low` to `high`, else is refuted.

    `expected` is the range in words, by default "`low` to `high`".
    """
    expected = expected or f"{low:.4g} to {high:.4g}"
    return decided(at, what, expected, values, holds=bool(low <= np.mean(values) <= high))


def number(at: int | str, what: str, values: Values | float, expected: str) -> Part:
    """Return a part that holds where the mean is as `expected` says, else is refuted.

    `expected` is "at least", "above", "below" or "at most" and a number, which is allowed itself.
    """
    side, _, limit = expected.rpartition(" ")
    least, most = (float(limit), math.inf), (-math.inf, float(limit))
    ends = least if side in ("at least", "above") else most
    return between(at, what, values, *ends, expected)


def near(at: int | str, what: str, values: Values, middle: float, margin: float) -> Part:
    """Return a part that holds where the mean is `middle` ± `margin`, else is refuted."""
    expected = f"{middle:.3g} ± {margin:.2g}"
    return between(at, what, values, middle - margin, middle + margin, expected)


def above(at: int | str, what: str, values: Values) -> Part:
    """Return a part that holds where the 95 % interval is above 0, and is refuted where below."""
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
    """Return a part whose verdict is given; `values` are shown with it.

    It is refuted where it does not hold; where `refuted` is given, too, it is open in between.
    """
    mean, half = interval(values) if np.size(values) > 1 else (values, 0.0)
    failed = not holds if refuted is None else refuted
    verdict = HOLDS if holds else REFUTED if failed else OPEN
    return Part(at, what, expected, float(mean), float(half), verdict)


def require_interval_above_0(part: Part) -> Part:
    """Return the part, refuted also where its interval is not above 0."""
    kept = part.verdict == HOLDS and part.mean > part.half_width
    expected = f"{part.expected}, its interval above 0"
    return part._replace(expected=expected, verdict=HOLDS if kept else REFUTED)


def graded(at: int | str, what: str, values: Values | float, holds: float, refuted: float) -> Part:
    """Return a part that holds from the mean `holds` on, is refuted below `refuted`, else open."""
    expected, mean = f"at least {holds:g}; refuted below {refuted:g}", np.mean(values)
    return decided(at, what, expected, values, bool(mean >= holds), refuted=bool(mean < refuted))


def verdict(parts: Sequence[Part]) -> str:
    """Return the verdict on a prediction: that of its worst part."""
    counts = Counter(part.verdict for part in parts)
    return REFUTED if counts[REFUTED] else OPEN if counts[OPEN] else HOLDS
