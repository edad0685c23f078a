"""Softmax with |x|^m in the place of e^s, which a comment in source 003 proposes with m = 6."""

import numpy as np
from numpy.typing import ArrayLike

from attnlib._checking import FloatArray


def power_softmax(x: ArrayLike, exponent: float = 6.0, epsilon: float = 0.0) -> FloatArray:
    """Return y_i = |x_i|^m / (ε + Σ_j |x_j|^m) along the last axis, m = `exponent`.

    With ε = 0 it is homogeneous of degree 0, y(cx) = y(x). With ε > 0 it is not, Σy is below 1, and
    ε acts like one more key. Chapters: normal, jacobian.

    >>> power_softmax([1.0, -1.0, 0.0])
    array([0.5, 0.5, 0. ])
    >>> power_softmax([1e200, 1e200], epsilon=1.0)
    array([0.5, 0.5])
    """
    sizes = np.abs(np.asarray(x, dtype=np.float64))
    largest = sizes.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", over="ignore"):
        constant = epsilon * largest**-exponent if epsilon else 0.0
    powers = (sizes / largest) ** exponent
    y: FloatArray = powers / (constant + powers.sum(axis=-1, keepdims=True))
    return y


def power_softmax_jacobian(x: ArrayLike, exponent: float = 6.0, epsilon: float = 0.0) -> FloatArray:
    """Return ∂y_i/∂x_j = (δ_ij − y_i) m y_j/x_j, shape (…, n, n); 0 where x_j = 0.

    With ε = 0 it is homogeneous of degree −1: J(cx) = J(x)/c, and J x = 0.
    Chapters: normal, jacobian.

    >>> power_softmax_jacobian([1.0, 1.0])  # m/4 = 1.5, where softmax has ¼
    array([[ 1.5, -1.5],
           [-1.5,  1.5]])
    """
    values = np.asarray(x, dtype=np.float64)
    y = power_softmax(values, exponent, epsilon)
    slopes = np.divide(exponent * y, values, out=np.zeros_like(y), where=values != 0.0)
    matrix: FloatArray = (np.eye(y.shape[-1]) - y[..., :, None]) * slopes[..., None, :]
    return matrix
