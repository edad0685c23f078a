"""Compute where a row freezes: the limit of many keys, Derrida's random energy model.

Rows of n independent N(0, 1) scores freeze at α_c = √(2 log n). Below α_c very many keys share a
row's weight; above it their number no longer grows with n. Everything depends on x = α/α_c:

- α < α_c/2 = √(½ log n): Σp² ≈ e^{α²}/n for typical rows and in the mean;
- α_c/2 < α < α_c/√3 = √(⅔ log n): in the mean only;
- α_c/√3 < α < α_c: for neither; rare rows that are frozen already dominate the mean;
- α > α_c: every row is frozen.

In the limit of n → ∞ at fixed x the mean gradient is min(α, α_c), E log Z is log n + α²/2 up to α_c
and αα_c beyond, and the mean entropy max(log n − α²/2, 0). "Leading order" is meant literally: the
corrections are powers of 1/log n near and above α_c, and no context length in use makes them small.
`exact` has the values for every n. Chapter: freezing.
"""

from math import inf
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from attnlib import _checking, scores
from attnlib._checking import FloatArray
from attnlib._numerics.quadrature import elementwise
from attnlib._roots import first_roots, root, too_many_keys
from attnlib.scores import Cosine, DotProduct, Law, Normal

LARGEST_LOG = 700.0
"""The largest log α that is looked for."""


def critical_alpha(n: ArrayLike, law: Law | None = None) -> FloatArray:
    """Return the α at which a row freezes: √(2 log n) for normal scores.

    - `n`: the number of keys, from 1 on, a number or an array; elementwise.
    - `law`: the distribution of the scores, a `Law`; by default `Normal`.

    For another law it is the root of ακ'(α) − κ(α) = log n, κ = log E e^{αs}; for `DotProduct`,
    given a query of mean length, √(2 log n) again. Where the left side stays below log n, α_c is
    the α from which κ is infinite, 0 for heavy tails, or ∞.

    For normal scores it also bounds the mean of the largest from above: E max s ≤ α_c for every n.
    It is exact to rounding; for `Cosine` the relative error is below 1e-11, for a law of your own
    below 1e-8. Raises ValueError or TypeError for n below 1, infinite, NaN or not a number, for a
    `law` that is not a `Law`, and for an α_c above about 5e7/σ (e⁷⁰⁰ for cosines).
    Chapter: freezing.

    >>> float(critical_alpha(4096))
    4.0786...
    >>> float(critical_alpha(4096, scores.Cosine(64)) / 8.0)  # in standard deviations
    4.945...
    """
    chosen = Normal() if law is None else law
    scores.check_law(chosen)
    return _critical(chosen, np.log(_checking.keys(n)))


def _critical(law: Law, log_n: FloatArray) -> FloatArray:
    """Return α_c for each log n: the first root of ακ'(α) − κ(α) = log n."""
    if isinstance(law, Normal | DotProduct):
        return cast(FloatArray, np.sqrt(2.0 * log_n))
    if isinstance(law, Cosine):
        return elementwise(lambda x: _critical_of_cosine(law, x), log_n)
    _, tilt = law.tilts()

    def left(alpha: float) -> float:
        value, slope = tilt(alpha)
        return alpha * slope - value if value < inf else inf

    return first_roots(law, left, log_n)


def _critical_of_cosine(law: Cosine, log_n: float) -> float:
    if log_n == 0.0:
        return 0.0

    def excess(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        at = law.log_mgf_derivatives(alpha)
        return float(at.deficit - alpha * at.first_complement) - log_n

    low = 0.5 * float(np.log(2.0 * log_n))  # ακ' − κ lies between 0 and α²/2
    log_alpha = root(excess, low, low, LARGEST_LOG, xtol=1e-12)
    if log_alpha == LARGEST_LOG:
        raise too_many_keys(log_n, np.exp(LARGEST_LOG))
    return float(np.exp(log_alpha))
