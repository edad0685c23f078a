"""Find roots: of an increasing function, and the α at which one of a law equals log n."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import inf, ldexp

import numpy as np

from attnlib._checking import FloatArray
from attnlib._numerics.quadrature import UnderflowError, elementwise
from attnlib.scores import LARGEST_TILT, Law


def root(
    function: Callable[[float], float],
    start: float,
    low: float,
    high: float,
    *,
    step: float = 1.0,
    **options: float,
) -> float:
    """Return the root of an increasing function between two ends; an end where there is none.

    - `start`: where the search begins. Its steps double from `step` until they enclose the root.
    - `options`: the tolerances of SciPy's `brentq`.
    """
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    values = cache(function)
    near, sign = start, -1.0 if values(start) > 0.0 else 1.0
    end = low if sign < 0.0 else high
    while near != end:
        far = min(max(near + sign * step, low), high)
        if sign * values(far) >= 0.0:
            return float(brentq(values, near, far, **options))
        near, step = far, 2.0 * step
    return end


def first_roots(law: Law, left: Callable[[float], float], log_n: FloatArray) -> FloatArray:
    """Return the smallest α at which left(α) reaches log n, for each log n; ∞ if there is none.

    `left` is 0 at α = 0; if it is infinite for every α > 0 the result is 0. Raises ValueError for
    a result above about LARGEST_TILT/2 over the standard deviation of a score.
    """
    spread = law.spread
    return elementwise(lambda right: _first_root(left, right, spread), log_n)


def too_many_keys(log_n: float, alpha: float) -> ValueError:
    """Return a ValueError for an n whose α is above `alpha`, the largest that can be computed."""
    return ValueError(f"n must be one whose α is at most {alpha:.3g}, got n={np.exp(log_n):.3g}")


def _first_root(left: Callable[[float], float], right: float, spread: float) -> float:
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    def alpha(index: int) -> float:  # a common table, with 2α in it, of what `left` computes once
        return ldexp(2.0 ** (index % 4 / 4), index // 4) / spread

    def bounded(alpha: float) -> float:
        # It may be infinite, or not bounded, from some α on; log n is below 1e3.
        with suppress(UnderflowError):
            return min(left(alpha), 1e3)
        return 1e3

    if right == 0.0:
        return 0.0
    index = -16
    while bounded(alpha(index)) > right:
        index -= 4
        # What is infinite there is so for every α > 0: heavy tails.
        if alpha(index) * spread < 2.0**-28 and left(alpha(index)) == inf:
            return 0.0
    while bounded(alpha(index + 1)) <= right:
        index += 1
        if alpha(index + 5) * spread > LARGEST_TILT:
            if left(alpha(index)) > left(alpha(index - 4)) + 1e-3:
                raise too_many_keys(right, alpha(index))
            return inf

    low, high = alpha(index), alpha(index + 1)
    root = float(brentq(lambda x: bounded(x) - right, low, high, xtol=1e-300, rtol=1e-14))
    left(root * (1.0 + 1e-9))  # raises where it is not bounded beyond a root that is none
    return root
