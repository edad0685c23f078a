"""The limit of many keys, for normal scores: Derrida's random energy model.

Rows of n independent N(0, 1) scores freeze at α_c = √(2 log n). Below, very many keys share a row's
weight; above, their number no longer grows with n. Everything depends on x = α/α_c:

- α < α_c/2 = √(½ log n): Σp² ≈ e^{α²}/n for typical rows and in the mean;
- α_c/2 < α < α_c/√3 = √(⅔ log n): in the mean only;
- α_c/√3 < α < α_c: for neither; rare rows, frozen already, make the mean;
- α > α_c: frozen.

Each function of (α, n) is a bound on the exact expectation for every whole n, and equal to it to
leading order as n → ∞ at fixed x. "Leading order" is meant literally: the corrections are powers of
1/log n near and above α_c, and no context length in use makes them small. Exact values for every n
are the business of another module. Chapter: freezing.
"""

from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, log_expit, zeta

from attnlib import checking, scores
from attnlib.checking import FloatArray

HALF_WIDTH = 10.0
"""How far from its peak a log-concave integrand of curvature ≥ 1 is followed: to e^{−40} of it."""

LARGEST_CROWDED_ALPHA = 40.0
"""α_c stays below it for every float n, and further on 1 − α_c/α is the larger bound."""


def critical_alpha(n: ArrayLike, law: scores.Law | None = None) -> FloatArray:
    """Return α_c, where a row freezes, elementwise in n ≥ 1: √(2 log n) for normal scores.

    For another law it is the root of ακ'(α) − κ(α) = log n, κ = log E e^{αs}; for `DotProduct`,
    given a query of mean length, √(2 log n) again. Where the left side stays below log n, α_c is
    the α from which κ is infinite, or ∞: rows of `Discrete` scores whose largest value is rarely
    missing do not freeze.

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


def annealed_typical_bound(n: ArrayLike) -> FloatArray:
    """Return α_c/2 = √(½ log n): up to here Σp² ≈ e^{α²}/n holds for typical rows.

    For the geometric mean of Σp² the ratio to e^{α²}/n tends to 1 at every fixed α/α_c below ½, and
    to 0 above. Raises as `critical_alpha`. Chapter: freezing.

    >>> float(1.0 / annealed_typical_bound(4096))  # as a temperature
    0.49036...
    """
    return critical_alpha(n) / 2.0


def annealed_mean_bound(n: ArrayLike) -> FloatArray:
    """Return α_c/√3 = √(⅔ log n): up to here E Σp² ≈ e^{α²}/n.

    The ratio of E Σp² to e^{α²}/n tends to 1 at every fixed α/α_c below 1/√3, to ½ at it, as
    ½ − 1/(α√(2π)) + …, and to 0 above. Raises as `critical_alpha`. Chapter: freezing.

    >>> float(1.0 / annealed_mean_bound(4096))  # as a temperature
    0.42466...
    """
    return cast(FloatArray, critical_alpha(n) / np.sqrt(3.0))


def gradient(alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return min(α, α_c), the limit of G = E α(1 − Σp²); broadcasts over α ≥ 0 and n ≥ 1.

    G ≤ min(α, α_c) for every n, and G/α_c → min(α/α_c, 1) at every fixed α/α_c. The gap is α E Σp²
    below α_c; above it falls only like log log n/√log n. Raises ValueError or TypeError for a bad α
    or n, and for shapes that do not broadcast. Chapter: freezing.

    >>> gradient([1.0, 10.0], 4096)
    array([1.        , 4.0786...])
    """
    scale, keys = _scale_and_keys(alpha, n)
    return np.minimum(scale, critical_alpha(keys))


def free_energy(alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return log n + α²/2 up to α_c and αα_c beyond, the limit of Φ = E log Σe^{αs}.

    Φ is at most this for every n, and the ratio tends to 1 at every fixed α/α_c. Below α_c the
    difference is ∫₀^α a E Σp²(a) da ≤ ½α² E Σp², and tends to 0. Above, it grows like
    (α/α_c)·½ log log n. Broadcasts over α ≥ 0 and n ≥ 1; raises as `gradient`. Chapter: freezing.

    >>> free_energy([1.0, 10.0], 4096)
    array([ 8.8177..., 40.786...])
    """
    scale, keys = _scale_and_keys(alpha, n)
    critical = critical_alpha(keys)
    reached = np.minimum(scale, critical)
    with np.errstate(over="ignore"):  # beyond the largest float it is infinite
        return np.log(keys) + reached * reached / 2.0 + (scale - reached) * critical


def entropy(alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return max(log n − α²/2, 0), the limit of the mean Shannon entropy E H, in nats.

    E H is at least this for every n. Below α_c the excess is between ½α² E Σp² and α² E Σp², and
    tends to 0 at every fixed α/α_c; at α_c it grows like √log n, which is little against log n;
    above, E H tends to `frozen_entropy(α/α_c)`. Broadcasts over α ≥ 0 and n ≥ 1; raises as
    `gradient`. Chapter: freezing.

    >>> entropy([1.0, 10.0], 4096)
    array([7.8177..., 0.        ])
    """
    scale, keys = _scale_and_keys(alpha, n)
    reached = np.minimum(scale, critical_alpha(keys))
    return np.maximum(np.log(keys) - reached * reached / 2.0, 0.0)


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


def collision_probability(alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the larger of n E[e^{2αs}/(e^{αs} + (n − 1)e^{α²/2})²] and 1 − α_c/α: the limit of
    E Σp².

    The first is one key against the mean of its crowd; its leading order is e^{α²}/n for
    α < α_c/√3, half of that at α_c/√3, and n^{−τ} πδ/(α√(2π) sin πδ) from there to α_c, with
    δ = log n/α² − ½ and τ = `collision_exponent(α/α_c)`. The second holds above α_c.

    E Σp² is at least this for every n (equal at n = 1 and at α = 0), and the ratio tends to 1 at
    every fixed α/α_c except 1, where the exact value is measured to tend to twice this, as
    1/√(π log n).

    The trapezoidal rule converges exponentially fast here: relative error below 1e-11. Broadcasts
    over α ≥ 0 and n ≥ 1; raises as `gradient`. Chapter: freezing.

    >>> collision_probability([0.0, 1.0, 10.0], 512)
    array([0.001953..., 0.00518..., 0.6467...])
    """  # noqa: D205
    scale, keys = _scale_and_keys(alpha, n)
    critical = critical_alpha(keys)
    frozen = 1.0 - np.divide(critical, scale, out=np.ones_like(scale), where=scale > critical)
    return np.maximum(
        _one_against_the_crowd(np.minimum(scale, LARGEST_CROWDED_ALPHA), keys), frozen
    )


def collision_exponent(x: ArrayLike) -> FloatArray:
    """Return τ with E Σp² = n^{−τ + o(1)} at α = xα_c, for fixed x ≥ 0.

    τ = 1 − 2x² up to x = 1/√3, where e^{α²}/n holds; (1/x − x)²/4 from there to 1; 0 beyond. The
    second is the chance n^{−τ} that one key outweighs all the others together: s ≥ α_c(x + 1/x)/2.
    τ and its slope are continuous. Exact to rounding. Raises ValueError or TypeError for x
    negative, infinite, NaN or not a number. Chapter: freezing.

    >>> collision_exponent([0.0, 0.5, 0.8, 2.0])
    array([1.      , 0.5     , 0.050625, 0.      ])
    """
    ratio = np.minimum(checking.finite("x", x, minimum=0.0), 1.0)
    outlier = np.maximum(ratio, 0.5)  # keeps 1/x finite where the other branch is used
    return np.where(
        3.0 * ratio**2 < 1.0, 1.0 - 2.0 * ratio**2, (1.0 / outlier - outlier) ** 2 / 4.0
    )


def typical_collision_exponent(x: ArrayLike) -> FloatArray:
    """Return the exponent of the typical row: log Σp² = −(τ + o(1)) log n at α = xα_c, fixed x ≥ 0.

    τ = 1 − 2x² up to x = ½, where e^{α²}/n holds for typical rows; 2(1 − x)² from there to 1; 0
    beyond. It follows from E log Σp² = Φ(2α) − 2Φ(α), exact for every n, and `free_energy`. At
    least `collision_exponent`: the typical row is less concentrated than the mean. Raises as
    `collision_exponent`. Chapter: freezing.

    >>> typical_collision_exponent([0.0, 0.5, 0.8, 2.0])
    array([1.  , 0.5 , 0.08, 0.  ])
    """
    ratio = np.minimum(checking.finite("x", x, minimum=0.0), 1.0)
    return np.where(ratio < 0.5, 1.0 - 2.0 * ratio**2, 2.0 * (1.0 - ratio) ** 2)


def _one_against_the_crowd(scale: FloatArray, keys: FloatArray) -> FloatArray:
    """Return n ∫ σ(αs − c)² φ(s) ds with c = log(n − 1) + α²/2, σ(t) = 1/(1 + e^{−t})."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # At n = 1 there is no crowd: c = −∞.
        crowd = np.log(keys - 1.0) + scale * scale / 2.0
        even = np.where(scale > 0.0, crowd / scale, 0.0)  # the s that balances the crowd
    # The log-integrand is concave with curvature at least 1, and peaks within 0.9 of `centre`.
    centre = np.clip(even, 0.0, 2.0 * scale)
    # The poles of σ lie π/α off the real line; the error is e^{−2π·distance/step}.
    step = min(0.2, 0.5 / max(float(scale.max(initial=0.0)), 1e-3))
    points = np.arange(-np.ceil(HALF_WIDTH / step), np.ceil(HALF_WIDTH / step) + 1) * step
    total = np.zeros_like(scale)
    for point in points:  # one at a time: no more memory than the result takes
        s = centre + point
        total += np.exp(2.0 * log_expit(scale * s - crowd) - s * s / 2.0 + np.log(keys))
    return cast(FloatArray, total * (step / np.sqrt(2.0 * np.pi)))


def _scale_and_keys(alpha: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    scale, keys = checking.alpha(alpha), checking.keys(n)
    scale, keys = checking.broadcast(alpha=scale, n=keys)
    return scale, keys
