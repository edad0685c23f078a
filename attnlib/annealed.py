"""The sources' approximation: numerator and denominator of Σp² averaged separately ("annealed").

Σp² = Σ e^{2αs} / (Σ e^{αs})² ≈ e^{κ(2α) − 2κ(α)}/n, with κ the log moment generating function of a
score. It turns the gradient α(1 − Σp²) of a row into an objective with a single maximum in α. The
maximum belongs to the approximation: the exact mean has none for normal scores.

Sources 000, 002 and 003. Chapters: normal, cosine, almost_scaled.
"""

import numpy as np
from numpy.typing import ArrayLike

from attnlib import checking, scores
from attnlib.checking import FloatArray
from attnlib.scores import Law


def collision_probability(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return e^{κ(2α) − 2κ(α)}/n, broadcasting over α ≥ 0 and n ≥ 1.

    It exceeds 1 where the approximation has broken down. For `DotProduct(d)`, whose scores are
    independent only given the query, e^{α²|q|²/d}/n is averaged over the query:
    (1 − 2α²/d)^{−d/2}/n, infinite from α = √(d/2) on. Relative error below
    1e-12·(1 + κ(2α) − 2κ(α)), for a law of your own below 1e-8. Raises ValueError or TypeError for
    a bad α, for n below 1 or not finite, and for shapes that do not broadcast. Chapter: normal.

    >>> float(collision_probability(scores.Normal(), 1.0, 512))  # e/512
    0.005309...
    """
    exponent, _ = _log_collision(law, alpha, n)
    with np.errstate(over="ignore"):
        return np.exp(exponent)


def gradient(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return α(1 − e^{κ(2α) − 2κ(α)}/n), broadcasting over α ≥ 0 and n ≥ 1.

    The sources' objective. Negative where the approximation has broken down, −∞ where it is not
    finite. Accuracy and errors as in `collision_probability`. Chapter: normal.

    >>> float(gradient(scores.Normal(), 1.0, 512))
    0.99469...
    """
    exponent, scale = _log_collision(law, alpha, n)
    with np.errstate(over="ignore"):
        return 0.0 - scale * np.expm1(exponent)


def post_scale(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return √(n e^{2κ(α) − κ(2α)}), one over the root of `collision_probability`.

    For `Normal` it is (n/e^{α²})^{1/2}: at α = 1 source 002's factor (n/e)^{1/2}, which gives the
    output of attention about unit variance. `exact.post_scale` has the exact factor. 0 where the
    approximation is infinite. Accuracy and errors as in `collision_probability`. Source 002;
    chapter: almost_scaled.

    >>> float(post_scale(scores.Normal(), 1.0, 256))  # √(256/e)
    9.7044...
    """
    exponent, _ = _log_collision(law, alpha, n)
    return np.exp(-0.5 * exponent)


def best_alpha(law: Law, n: ArrayLike) -> FloatArray:
    """Return the α that maximises `gradient`, elementwise in n ≥ 1.

    With R(α) = κ(2α) − 2κ(α) the maximum solves R + log(1 + αR') = log n.

    - `Normal`: (1 + 2α²)e^{α²} = n, so α = √(W(n√e/2) − ½) with Lambert's W. Relative error below
      1e-14 for 2 ≤ n ≤ 10¹⁵.
    - `Cosine`: Newton's method in log α with exact derivatives; the left side increases. Below
      1e-10 for 3 ≤ d ≤ 10⁶ and 3 ≤ n ≤ 10¹².
    - `DotProduct`: with α² = d(1 − e^{−y})/2 it reads dy/2 + log(1 + d(e^y − 1)) = log n, which is
      increasing and concave in y, so Newton's method from y = 0 cannot overshoot. Below 1e-12.
    - Another law: the smallest root, below 1e-8; infinite where the gradient only increases, which
      needs a largest score of a probability above 1/n; 0 for heavy tails, where E e^{αs} is
      infinite for every α > 0; ValueError above 5e7 over the scores' std.

    At n = 1 the objective falls from the start: there is no maximum, and 0 is returned. Raises
    ValueError or TypeError for n below 1, infinite, NaN or not a number. Chapters: normal, cosine.

    >>> float(best_alpha(scores.Normal(), 512))
    2.00839...
    >>> [round(float(a), 1) for a in best_alpha(scores.Cosine(128), [40, 20000])]
    [16.8, 33.7]
    """
    scores.check_law(law)
    keys = checking.keys(n)
    return np.where(keys == 1.0, 0.0, law.annealed_alpha(keys))


def _log_collision(law: Law, alpha: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return κ(2α) − 2κ(α) − log n and α, broadcast."""
    scores.check_law(law)
    scale, keys = checking.alpha(alpha), checking.keys(n)
    scale, keys = checking.broadcast(alpha=scale, n=keys)
    return law.annealed_exponent(scale) - np.log(keys), scale
