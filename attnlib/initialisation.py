"""Compute α and output variance at initialisation, where q, k and v come from the same tokens.

Chapter: almost_scaled.
"""

from numpy.typing import ArrayLike

from attnlib import _checking, exact, scores
from attnlib._checking import FloatArray

INITIALISERS = ("linear", "packed", "xavier", "normal")


def alpha_at_start(
    width: int, initialiser: str = "linear", *, inner: int | None = None, std: float = 0.02
) -> float:
    """Return the α of the scale 1/√d at the start of training: the standard deviation of q·k/√d.

    - `width`: w, the model's width, 1 or more.
    - `initialiser`: how the weights are drawn, one of the words below, by default "linear".
    - `inner`: heads · d, for "xavier", by default w.
    - `std`: the standard deviation of the weights, for "normal", by default 0.02.

    For q = W_q x and k = W_k x with independent weights of mean 0 and variance σ², and tokens x
    with independent entries of mean 0 and variance 1, as a norm makes them, q·k/√d has the standard
    deviation α = wσ²; a head's size does not matter. If a norm follows both projections, α is the
    product of the two norms' gains, whatever the weights. A scale c in place of 1/√d multiplies α
    by c√d.

    The weights are drawn as

    - "linear": nn.Linear's default, σ² = 1/(3w): α = 1/3;
    - "packed": nn.MultiheadAttention's, Xavier for all 3w × w at once, σ² = 1/(2w): α = 1/2;
    - "xavier": σ² = 2/(w + inner): α = 1 where `inner` is w;
    - "normal": of the standard deviation `std`: α = w std², 0.31 at w = 768 and 1.64 at 4096.

    Returns a number. Raises ValueError or TypeError for sizes below 1, another initialiser, and a
    `std` that is not above 0. Chapter: almost_scaled.

    >>> round(alpha_at_start(4096, "normal"), 2)
    1.64
    """
    w = _checking.integer("width", width, minimum=1)
    out = w if inner is None else _checking.integer("inner", inner, minimum=1)
    variances = {
        "linear": 1.0 / (3.0 * w),
        "packed": 1.0 / (2.0 * w),
        "xavier": 2.0 / (w + out),
        "normal": _checking.positive("std", std) ** 2,
    }
    return w * variances[_checking.choice("initialiser", initialiser, INITIALISERS)]


def self_attention_variance(
    alpha: ArrayLike, n: ArrayLike, width: int, d: int | None = None
) -> FloatArray:
    """Return the variance of attention's output over that of its values, all from the same tokens.

    - `alpha`, `n`: α and the number of keys, as in `attnlib.exact`.
    - `width`: w, the model's width, an integer, 1 or more.
    - `d`: the dimension of a head, 1 or more. With it |u| below varies as that of a random query,
      and the scores' law is DotProduct(d); by default it is Normal.

    For n independent standard normal tokens x of width w, scores s = u·x of one query, |u| = α,
    weights p = softmax(s), and values a·x with a of random direction, it is

        (1 − 1/w) E Σp² + (1/w) E m²,    m = Σ p_i ξ_i,

    ξ_i the component of token i along u. In long rows below freezing m tends to α, so the variance
    never falls below about α²/w; independent values, E Σp², are the case w → ∞.

    Returns an array of float64. Accuracy: the square of `exact.mean_score`, which is α(1 − E Σp²)
    for normal scores, stands for E m². So Var m/w is left out, of the order of E Σp²/w: 5 % of the
    whole at α = 1, n = 64 and w = 32, and below 1 % where n is several times w. Rotary positions
    turn u from key to key, which reduces the last term. Errors are those of `attnlib.exact`.
    Chapter: almost_scaled.

    >>> round(float(self_attention_variance(1.0, 4096, 128)) ** 0.5, 3)
    0.092
    """
    w = _checking.integer("width", width, minimum=1)
    law = scores.Normal() if d is None else scores.DotProduct(d)
    collision = exact.collision_probability(law, alpha, n)
    along = exact.mean_score(law, alpha, n)
    result: FloatArray = (1.0 - 1.0 / w) * collision + along**2 / w
    return result
