"""Compute the softmax p = softmax(α s) of a row, its Jacobian ∂p/∂s, and statistics of both.

Arguments that the functions share:

- `s`: scores, an array (…, n): a row along the last axis, every other axis a batch. −∞ is a masked
  key.
- `alpha`: α ≥ 0, finite, by default 1; a number, or an array that broadcasts against the batch;
- `p`: instead of both, probabilities, an array (…, n).

Arrays of float64 are returned. Only `jacobian` builds an n × n matrix.

Everything is computed from e_i = e^{α(s_i − max s)} ∈ [0, 1] and R = Σ e_i over all keys but the
largest. Then 1 − max p = R/(1 + R) keeps its digits when p is nearly one-hot, where 1 − p would
have none left.

Chapters: variance, jacobian, gradient, retrieval.
"""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from attnlib import _checking
from attnlib._checking import FloatArray


class _Weights(NamedTuple):
    """Hold the unnormalised softmax e^{α(s_i − max s)} of a row, its largest entry apart."""

    others: FloatArray  # (…, n): e_i, with 0 in place of the largest
    rest: FloatArray  # (…): R = Σ others
    top: NDArray[np.intp]  # (…, 1): where the largest entry is
    alpha: FloatArray  # (…)

    @property
    def total(self) -> FloatArray:
        return 1.0 + self.rest

    def probabilities(self) -> FloatArray:
        p = self.others / self.total[..., None]
        np.put_along_axis(p, self.top, 1.0 / self.total[..., None], axis=-1)
        return p

    def complements(self) -> FloatArray:
        """Return 1 − p_i, (…, n), with full relative accuracy also where p_i is nearly 1."""
        kept = self.total[..., None] - self.others
        np.put_along_axis(kept, self.top, self.rest[..., None], axis=-1)
        return kept / self.total[..., None]


def softmax(s: ArrayLike, alpha: ArrayLike = 1.0) -> FloatArray:
    """Return the weights p_i = e^{αs_i} / Σ_j e^{αs_j} along the last axis, an array (…, n).

    The relative error is below 4e-16·(1 + α(max s − s_i)) for p_i above 1e-300; finite scores never
    overflow. Raises ValueError for NaN or +∞ scores, an empty axis, a row that is masked
    throughout, or an α that is negative, infinite, NaN or does not broadcast against the batch;
    TypeError for anything but real numbers.

    Source 004; chapter: variance.

    >>> softmax([0.0, 1e308], alpha=2.0)
    array([0., 1.])
    """
    return _weights(s, alpha).probabilities()


def jacobian(s: ArrayLike, alpha: ArrayLike = 1.0) -> FloatArray:
    """Return the Jacobian ∂p_i/∂s_j = α(p_i δ_ij − p_i p_j) of p = softmax(αs), shape (…, n, n).

    Its memory is n² numbers a row: use it for small n. Raises the errors of `softmax`. Sources 000
    and 004; chapter: jacobian.

    >>> jacobian([0.0, 0.0])
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    w = _weights(s, alpha)
    p = w.probabilities()
    matrix = -p[..., :, None] * p[..., None, :]
    diagonal = np.arange(p.shape[-1])
    matrix[..., diagonal, diagonal] = p * w.complements()
    return w.alpha[..., None, None] * matrix


def gradient(s: ArrayLike, alpha: ArrayLike = 1.0) -> FloatArray:
    """Return the gradient g = α(1 − Σp²) = ½ Σ_ij |∂p_i/∂s_j| of p = softmax(αs), an array (…).

    1 − Σp² = (2R + R² − Σ'e²)/(1 + R)², with R and Σ' over all keys but the largest, takes O(n) a
    row. The relative error is below 1e-12 as long as 1 − Σp² exceeds 1e-300. Raises the errors of
    `softmax`. Source 000; chapter: variance.

    >>> float(gradient([0.0, 0.0, 0.0, 0.0], alpha=2.0))
    1.5
    >>> float(gradient([0.0, -600.0]))  # 2e⁻⁶⁰⁰, where 1 − Σp² in floating point is 0
    5.300...e-261
    """
    w = _weights(s, alpha)
    spread = w.rest**2 - (w.others**2).sum(axis=-1)
    return cast(FloatArray, w.alpha * ((2.0 * w.rest + spread) / w.total**2))


def frobenius_norm(s: ArrayLike, alpha: ArrayLike = 1.0) -> FloatArray:
    """Return the Frobenius norm ‖J‖_F = α √(Σp² − 2Σp³ + (Σp²)²) of the Jacobian, an array (…).

    It takes O(n) a row and does not build J. The relative error is below 1e-12 as long as 1 − max p
    exceeds 1e-300, also where p is nearly one-hot: it is computed from R = (1 − max p)/max p, which
    factors out, without cancellation. Raises the errors of `softmax`. Chapter: jacobian.

    >>> float(frobenius_norm([0.0, 0.0]))  # the four entries are ±¼
    0.5
    """
    w = _weights(s, alpha)
    with np.errstate(invalid="ignore"):
        fractions = np.where(w.rest[..., None] > 0.0, w.others / w.rest[..., None], 0.0)
    squares = (fractions**2).sum(axis=-1)
    # Squared entries of J/α, divided by (R/Z²)²: the top diagonal, the other diagonals, the top's
    # row and column, and the block of the others.
    kept = w.total[..., None] - w.others
    others_diagonal = ((fractions * kept) ** 2).sum(axis=-1)
    block = w.rest**2 * (squares**2 - (fractions**4).sum(axis=-1))
    norm = np.sqrt(1.0 + others_diagonal + 2.0 * squares + block)
    return cast(FloatArray, np.where(w.rest > 0.0, w.alpha * (w.rest / w.total**2) * norm, 0.0))


def largest_entry(s: ArrayLike, alpha: ArrayLike = 1.0) -> FloatArray:
    """Return the Jacobian's largest entry max_ij |∂p_i/∂s_j| = α max_i p_i(1 − p_i), an array (…).

    It lies on the diagonal, since p_j ≤ 1 − p_i, and there at the largest p: every other p is at
    most ½ and at most 1 − max p, and p(1 − p) increases up to ½. So it is αR/(1 + R)² with R = (1 −
    max p)/max p, with a relative error below 1e-12, in O(n) a row. Raises the errors of `softmax`.
    Chapter: jacobian.

    >>> float(largest_entry([0.0, 0.0], alpha=2.0))
    0.5
    """
    w = _weights(s, alpha)
    return w.alpha * (w.rest / w.total**2)


def collision_probability(p: ArrayLike) -> FloatArray:
    """Return Y = Σp² of each row, the probability that two draws from p are equal (collide).

    The collision probability is 1/n for uniform p and 1 for one-hot p; 1/Y is the effective number
    of keys, and −log Y the Rényi entropy of order 2. Returns an array (…). Raises ValueError or
    TypeError for p that is not real, not finite, or negative, and for rows that are empty or do not
    sum to 1 within 1e-5. Source 000; chapter: variance.

    >>> float(collision_probability([0.5, 0.5, 0.0]))
    0.5
    """
    probabilities = _probabilities(p)
    return cast(FloatArray, (probabilities**2).sum(axis=-1))


def shannon_entropy(p: ArrayLike) -> FloatArray:
    """Return the Shannon entropy H = −Σ p log p of each row, in nats, an array (…); 0 log 0 = 0.

    The error is below 1e-15 + 1e-13·H. Raises the errors of `collision_probability`.
    Chapter: variance.

    >>> float(shannon_entropy([0.5, 0.5]))  # log 2
    0.693147180559945...
    """
    return cast(FloatArray, entr(_probabilities(p)).sum(axis=-1))


def _scores(s: ArrayLike) -> FloatArray:
    """Return the scores as float64; ValueError for NaN, +∞, or a row that is −∞ throughout."""
    scores = _checking.rows("s", _checking.real("s", s))
    largest = scores.max(axis=-1)
    if np.isposinf(largest).any():
        raise ValueError("s must be finite, or -inf for a masked key, got s=inf")
    if np.isneginf(largest).any():
        raise ValueError("s must have a finite score in every row, got a row of -inf only")
    return scores


def _weights(s: ArrayLike, alpha: ArrayLike) -> _Weights:
    scores = _scores(s)
    of_rows = {"alpha": _checking.alpha(alpha), "the batch of s": scores[..., 0]}
    scale, _ = _checking.broadcast(**of_rows)
    place = scores.argmax(axis=-1)[..., None]
    # Halves, because s − max s may overflow where α(s − max s) does not.
    half = scores / 2.0
    half -= np.take_along_axis(half, place, axis=-1)
    with np.errstate(invalid="ignore", over="ignore"):
        others = scale[..., None] * half  # the exponents, then their exponentials, in one array
        others *= 2.0
        np.copyto(others, -np.inf, where=np.isneginf(half))  # and not 0 · ∞
        np.exp(others, out=others)
    top = np.broadcast_to(place, (*others.shape[:-1], 1))
    np.put_along_axis(others, top, 0.0, axis=-1)
    return _Weights(others, others.sum(axis=-1), top, scale)


def _probabilities(p: ArrayLike) -> FloatArray:
    probabilities = _checking.rows("p", _checking.finite("p", p, minimum=0.0))
    with np.errstate(over="ignore"):
        total = probabilities.sum(axis=-1)
    near = np.abs(total - 1.0) <= 1e-5  # what float32 softmax rows of a million entries need
    _checking.require("the sum of p", total, near, "1 within 1e-05 along the last axis")
    return probabilities
