"""The limit of many keys, for normal scores: Derrida's random energy model.

Rows of n independent N(0, 1) scores freeze at α_c = √(2 log n). Below, very many keys share a row's
weight; above, their number no longer grows with n. Everything depends on x = α/α_c:

- α < α_c/2 = √(½ log n): Σp² ≈ e^{α²}/n for typical rows and in the mean;
- α_c/2 < α < α_c/√3 = √(⅔ log n): in the mean only;
- α_c/√3 < α < α_c: for neither; rare rows, frozen already, make the mean;
- α > α_c: frozen.

In the limit of n → ∞ at fixed x the mean gradient is min(α, α_c), E log Z is log n + α²/2 up to α_c
and αα_c beyond, and the mean entropy max(log n − α²/2, 0). "Leading order" is meant literally: the
corrections are powers of 1/log n near and above α_c, and no context length in use makes them small.
`exact` has the values for every n. Chapter: freezing.
"""

from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, zeta

from attnlib import checking, scores
from attnlib.checking import FloatArray


def critical_alpha(n: ArrayLike, law: scores.Law | None = None) -> FloatArray:
    """Return α_c, where a row freezes, elementwise in n ≥ 1: √(2 log n) for normal scores.

    For another law it is the root of ακ'(α) − κ(α) = log n, κ = log E e^{αs}; for `DotProduct`,
    given a query of mean length, √(2 log n) again. Where the left side stays below log n, α_c is
    the α from which κ is infinite, 0 for heavy tails, or ∞.

    For normal scores it also bounds the mean of the largest from above: E max s ≤ α_c for every n.
    Exact to rounding; for `Cosine` the relative error is below 1e-11, for a law of your own below
    1e-8. Raises ValueError or TypeError for n below 1, infinite, NaN or not a number, for what is
    no law, and for an α_c above 5e7 over the standard deviation. Chapter: freezing.

    >>> float(critical_alpha(4096))
    4.0786...
    >>> float(critical_alpha(4096, scores.Cosine(64)) / 8.0)  # in standard deviations
    4.945...
    """
    chosen = scores.Normal() if law is None else law
    scores.check_law(chosen)
    return chosen.critical_alpha(n)


def frozen_entropy(x: ArrayLike) -> FloatArray:
    """Return ψ(1) − ψ(1 − 1/x), the limit of E H at fixed x = α/α_c > 1, in nats.

    ψ is the digamma function. In the limit a weight picked with its own probability has the Beta
    law of parameters 1 − 1/x and 1/x, and E H is its mean of −log p. Approached from below, like
    log log n over log n; infinite as x → 1. Relative error below 1e-13, and that of x − 1 near 1.
    Raises ValueError or TypeError for x not above 1, infinite, NaN or not a number. Chapter:
    freezing.

    >>> float(frozen_entropy(2.0))  # 2 log 2
    1.386294361119890...
    """
    ratio = checking.finite("x", x)
    if not (ratio > 1.0).all():
        raise ValueError(f"x must be above 1, got x={ratio[~(ratio > 1.0)][0]:g}")
    inverse = 1.0 / ratio
    small = np.minimum(inverse, 0.25)
    # ψ(1) − ψ(1 − m) = Σ ζ(k) m^{k−1} from k = 2 on: the difference would cancel for small m.
    series = np.polynomial.polynomial.polyval(small, np.append(0.0, zeta(np.arange(2, 32))))
    direct = digamma(1.0) - digamma((ratio - 1.0) / ratio)
    return cast(FloatArray, np.where(inverse < 0.25, series, direct))
