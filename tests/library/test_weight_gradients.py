"""∂L/∂log t from arrays, against a difference of losses in NumPy."""

import numpy as np
import pytest

from attnlib.weight_gradients import by_head

HEADS, KEY_HEADS, D, WIDTH = 4, 2, 3, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, WIDTH))
W_Q, B_Q = RNG.normal(size=(WIDTH, HEADS, D)), RNG.normal(size=(HEADS, D))
W_K, B_K = RNG.normal(size=(WIDTH, KEY_HEADS, D)), RNG.normal(size=(KEY_HEADS, D))
V, AIM = RNG.normal(size=(HEADS, 6, 2)), RNG.normal(size=(HEADS, 6, 2))


def loss(w_q, b_q, w_k, b_k, t=1.0):
    q = (np.einsum("nw,whd->hnd", X, w_q) + b_q[:, None]) * np.reshape(t, (-1, 1, 1))
    k = np.repeat(np.einsum("nw,whd->hnd", X, w_k) + b_k[:, None], HEADS // KEY_HEADS, 0)
    logits = q @ k.swapaxes(1, 2)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.square(weights / weights.sum(-1, keepdims=True) @ V - AIM).sum()


def slope(function, x, h=1e-5):
    slopes = np.empty(x.shape)
    for index in np.ndindex(*x.shape):
        step = np.zeros(x.shape)
        step[index] = h
        slopes[index] = (function(x + step) - function(x - step)) / (2.0 * h)
    return slopes


ARRAYS = [W_Q, B_Q, W_K, B_K]
SLOPES = [
    slope(lambda x, i=i: loss(*ARRAYS[:i], x, *ARRAYS[i + 1 :]), array)
    for i, array in enumerate(ARRAYS)
]
BY_HEAD = slope(lambda t: loss(*ARRAYS, t), np.ones(HEADS))
PAIRS = list(zip(ARRAYS, SLOPES, strict=True))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        (lambda w: w, 1),
        (lambda w: w.reshape(WIDTH, -1), -1),
        (lambda w: w.reshape(WIDTH, -1).T, 0),
    ],
)
def test_sums_are_the_derivatives_of_the_loss(shape, axis):
    kernels = [tuple(map(shape, PAIRS[i])) for i in (0, 2)]
    gradients = by_head(
        [kernels[0], PAIRS[1]], [kernels[1], PAIRS[3]], heads=HEADS, key_heads=KEY_HEADS, axis=axis
    )
    np.testing.assert_allclose(gradients, BY_HEAD, rtol=1e-6, atol=1e-7)


def test_arrays_that_are_not_those_of_queries_are_refused():
    wrong = [(W_Q, SLOPES[0][:, ::-1])]
    with pytest.raises(ValueError, match="the same sums"):
        by_head(wrong, PAIRS[2:3], heads=HEADS, key_heads=KEY_HEADS, axis=1)
    with pytest.raises(ValueError, match=r"queries\[0\] must be two arrays of one shape"):
        by_head([(W_Q, SLOPES[0][1:])], PAIRS[2:3], heads=HEADS, key_heads=KEY_HEADS, axis=1)
    with pytest.raises(ValueError, match=r"keys\[0\] must have a multiple of 4"):
        by_head(PAIRS[:1], PAIRS[2:3], heads=HEADS, axis=1)
    with pytest.raises(ValueError, match="key_heads must divide heads = 4, got 3"):
        by_head(PAIRS[:1], PAIRS[2:3], heads=HEADS, key_heads=3, axis=1)
