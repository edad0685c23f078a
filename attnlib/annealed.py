"""Approximate Σp² by averaging its numerator and its denominator separately ("annealed").

Σp² = Σ e^{2αs} / (Σ e^{αs})² ≈ e^{κ(2α) − 2κ(α)}/n, with κ the log moment generating function of a
score. It turns the gradient α(1 − Σp²) of a row into an objective with a single maximum in α. The
maximum belongs to the approximation: the exact mean has none for normal scores.

Arguments that the functions share:

- `law`: the distribution of the scores, a `Law`;
- `alpha`: α ≥ 0, a number or an array;
- `n`: the number of keys, from 1 on, a number or an array.

They broadcast against each other, and arrays of float64 are returned. ValueError or TypeError is
raised for a bad α, for n below 1 or not finite, for a `law` that is not a `Law`, and for shapes
that do not broadcast. Relative errors are below 1e-12·(1 + κ(2α) − 2κ(α)), for a law of your own
below 1e-8; `best_alpha` has its own.

Sources 000, 002 and 003. Chapters: normal, cosine, almost_scaled.
"""

from functools import singledispatch
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from attnlib import _checking, scores
from attnlib._checking import FloatArray
from attnlib._numerics.quadrature import log_mgf_ratio_and_slope
from attnlib._roots import first_roots
from attnlib.scores import Cosine, DotProduct, Law, Normal

NEWTON_STEPS = 50


def collision_probability(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the approximation e^{κ(2α) − 2κ(α)}/n of the collision probability Σp².

    Where it exceeds 1, the approximation has broken down. For `DotProduct(d)`, whose scores are
    independent only given the query, e^{α²|q|²/d}/n is averaged over the query:
    (1 − 2α²/d)^{−d/2}/n, infinite from α = √(d/2) on. Arguments, accuracy and errors are as the
    module says. Chapter: normal.

    >>> float(collision_probability(scores.Normal(), 1.0, 512))  # e/512
    0.005309...
    """
    exponent, _ = _log_collision(law, alpha, n)
    with np.errstate(over="ignore"):
        return np.exp(exponent)


def gradient(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the approximate gradient α(1 − e^{κ(2α) − 2κ(α)}/n), κ(α) = log E e^{αs} of a score s.

    The sources maximise it. It is negative where the approximation has broken down, and −∞ where
    `collision_probability` is infinite. Arguments, accuracy and errors are as the module says.
    Chapter: normal.

    >>> float(gradient(scores.Normal(), 1.0, 512))
    0.99469...
    """
    exponent, scale = _log_collision(law, alpha, n)
    with np.errstate(over="ignore"):
        return 0.0 - scale * np.expm1(exponent)


def post_scale(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return √(n e^{2κ(α) − κ(2α)}), the factor that brings the output's variance to about 1.

    It is one over the root of `collision_probability`; for `Normal` (n/e^{α²})^{1/2}, at α = 1
    source 002's factor (n/e)^{1/2}. `exact.post_scale` has the exact factor. It is 0 where the
    approximation is infinite. Arguments, accuracy and errors are as the module says. Source 002;
    chapter: almost_scaled.

    >>> float(post_scale(scores.Normal(), 1.0, 256))  # √(256/e)
    9.7044...
    """
    exponent, _ = _log_collision(law, alpha, n)
    return np.exp(-0.5 * exponent)


def best_alpha(law: Law, n: ArrayLike) -> FloatArray:
    """Return the α that maximises the approximate gradient, `gradient`, elementwise in n ≥ 1.

    With R(α) = κ(2α) − 2κ(α) the maximum solves R + log(1 + αR') = log n. By law, with the bound
    on the relative error:

    - `Normal`: (1 + 2α²)e^{α²} = n, so α = √(W(n√e/2) − ½) with Lambert's W. Error 1e-14 for
      2 ≤ n ≤ 10¹⁵.
    - `Cosine`: Newton's method in log α with exact derivatives; the left side increases. Error
      1e-10 for 3 ≤ d ≤ 10⁶ and 3 ≤ n ≤ 10¹².
    - `DotProduct`: with α² = d(1 − e^{−y})/2 it reads dy/2 + log(1 + d(e^y − 1)) = log n, which is
      increasing and concave in y, so Newton's method from y = 0 cannot overshoot. Error 1e-12.
    - Another law: the smallest root, error 1e-8; infinite where the gradient only increases, which
      needs a largest score of a probability above 1/n; 0 for heavy tails, where E e^{αs} is
      infinite for every α > 0; ValueError above about 5e7/σ.

    At n = 1 the objective decreases from α = 0 on: there is no maximum, and 0 is returned. Raises
    ValueError or TypeError for n below 1, infinite, NaN or not a number, and for a `law` that is
    not a `Law`. Chapters: normal, cosine.

    >>> float(best_alpha(scores.Normal(), 512))
    2.00839...
    >>> [round(float(a), 1) for a in best_alpha(scores.Cosine(128), [40, 20000])]
    [16.8, 33.7]
    """
    scores.check_law(law)
    keys = _checking.keys(n)
    return np.where(keys == 1.0, 0.0, _best(law, keys))


def _log_collision(law: Law, alpha: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return log Σp² ≈ κ(2α) − 2κ(α) − log n, and α, both of the common shape of α and n."""
    scores.check_law(law)
    scale, keys = _checking.alpha(alpha), _checking.keys(n)
    scale, keys = _checking.broadcast(alpha=scale, n=keys)
    if isinstance(law, DotProduct):  # E e^{α²|q|²/d}, the mean over the query, is e^{κ(√2 α)}
        with np.errstate(over="ignore"):
            doubled = np.minimum(np.sqrt(2.0) * scale, np.finfo(np.float64).max)
        return law.log_mgf(doubled) - np.log(keys), scale
    return law.log_mgf_ratio(scale) - np.log(keys), scale


@singledispatch
def _best(law: Law, n: FloatArray) -> FloatArray:
    """Return the α at which R + log(1 + αR') first equals log n, R(α) = κ(2α) − 2κ(α)."""
    _, tilt = law.tilts()

    def left(alpha: float) -> float:
        ratio, slope = log_mgf_ratio_and_slope(tilt, alpha)
        return ratio + float(np.log1p(slope))

    return first_roots(law, left, np.log(n))


@_best.register
def _best_of_normal(law: Normal, n: FloatArray) -> FloatArray:
    excess = np.real(lambertw(np.sqrt(np.e) * (n / 2.0))) - 0.5
    return cast(FloatArray, np.sqrt(np.maximum(excess, 0.0)))


@_best.register
def _best_of_dot_products(law: DotProduct, n: FloatArray) -> FloatArray:
    y = np.zeros_like(n)
    for _ in range(NEWTON_STEPS):
        growth = law.d * np.expm1(y)
        distance = law.d * y / 2.0 + np.log1p(growth) - np.log(n)
        step = distance / (law.d / 2.0 + (law.d + growth) / (1.0 + growth))
        y = y - step
        if np.abs(step).max(initial=0.0) < 1e-16:
            break
    return cast(FloatArray, np.sqrt(-law.d * np.expm1(-y) / 2.0))


@_best.register
def _best_of_cosines(law: Cosine, n: FloatArray) -> FloatArray:
    keys = np.where(n == 1.0, 2.0, n)
    # It lies above √d times the normal one: the tails are lighter.
    alpha = np.sqrt(law.d) * np.maximum(_best_of_normal(Normal(), keys), 1e-3)
    for _ in range(NEWTON_STEPS):
        single, double = law.log_mgf_derivatives(alpha), law.log_mgf_derivatives(2.0 * alpha)
        # R' = 2κ'(2α) − 2κ'(α), from whichever of κ' and 1 − κ' is small
        rise = np.where(
            single.first < 0.5,
            double.first - single.first,
            single.first_complement - double.first_complement,
        )
        slope = 2.0 * alpha * rise
        bend = alpha * (alpha * (4.0 * double.second - 2.0 * single.second))
        distance = law.log_mgf_ratio(alpha) + np.log1p(slope) - np.log(keys)
        step = distance / (slope + (slope + bend) / (1.0 + slope))
        alpha = alpha * np.exp(-step)
        if np.abs(step).max(initial=0.0) < 1e-11:
            break
    # Just above n = 1 rounding alone keeps the steps from falling further.
    if np.abs(step).max(initial=0.0) > 1e-6:
        raise RuntimeError(f"Newton's method did not converge in {NEWTON_STEPS} steps: {law}")
    return cast(FloatArray, alpha)
