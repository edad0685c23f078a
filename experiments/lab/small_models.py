"""Models small enough to train, or to differentiate through many layers, while a page loads.

Chapters: gradient, errata.
"""

from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlib._checking import FloatArray

Normaliser = Literal["softmax", "power"]
Optimiser = Literal["descent", "adam"]
Path = Literal["residual", "no residual", "scores"]

EXPONENT = 6
EPSILON = 1e-6
"""The power softmax y = x⁶/(ε + Σx⁶) of the comments in source 003."""

BITS = 10
"""Bits that a step keeps of each entry of a gradient.

Saturated attention is chaotic: at a large rate the last bit of a sum decides where training ends.
With rounded gradients machines that add in another order take the same steps.
"""


class Retrieval(NamedTuple):
    """Rows of attention to be learned: which of n keys a hidden bilinear form prefers."""

    features: FloatArray  # (rows, n, d²): the score of key i is features[i] · weights
    values: FloatArray  # (rows, n): ±1
    wanted: FloatArray  # (rows,): the value of the key to be found
    weights: FloatArray  # (d²,): where training starts; scores of variance 1


@cache
def retrieval(seed: int, count: int = 64, n: int = 8, d: int = 16) -> Retrieval:
    """Return a task drawn with `seed`: `count` rows of n keys.

    The score is qᵀWk/√d, and W is to be learned. The key to be found is the one that maximises
    qᵀTk with a hidden rotation T. Chapter: gradient.
    """
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((count, n, d))
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    queries = rng.standard_normal((count, d))
    best = np.einsum("rd,de,rne->rn", queries, rotation, keys).argmax(axis=1)
    values = rng.choice([-1.0, 1.0], (count, n))
    weights = rng.standard_normal(d * d) / np.sqrt(d)
    features = queries[:, None, :, None] * keys[:, :, None, :] / np.sqrt(d)
    return Retrieval(
        features.reshape(count, n, d * d), values, values[np.arange(count), best], weights
    )


def train_retrieval(
    seed: int,
    rate: ArrayLike,
    *,
    alpha: ArrayLike = 1.0,
    size: ArrayLike = 1.0,
    normaliser: Normaliser = "softmax",
    optimiser: Optimiser = "descent",
    steps: int = 200,
) -> FloatArray:
    """Train heads on `retrieval(seed)`; return the loss before each step and after the last.

    The output is z = p·v with p = softmax(α s), or the power softmax of αs; the loss is the mean of
    (z − wanted)², over all rows in each step. 1 is what the constant output 0 gets. `size`
    multiplies the weights at the start. `rate`, `alpha` and `size` broadcast, a head for each: the
    losses have the shape (steps + 1, *theirs). Where the numbers overflow, the loss is ∞ from there
    on. Chapters: gradient, errata.
    """
    features, values, wanted, first = retrieval(seed)
    rates, alphas, sizes = np.broadcast_arrays(rate, alpha, size)
    weights = np.outer(first, sizes)
    direction = _Adam() if optimiser == "adam" else lambda gradient: gradient
    mix = {"softmax": _softmax, "power": _power_softmax}[normaliser]
    by_weight = features.reshape(-1, first.size)
    losses = np.empty((steps + 1, rates.size))
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps + 1):
            scores = alphas.ravel() * (by_weight @ weights).reshape(*values.shape, -1)
            p, slope = mix(scores)
            z = (p * values[..., None]).sum(axis=1)
            error = z - wanted[:, None]
            losses[step] = np.square(error).mean(axis=0)
            by_score = 2.0 / len(error) * error[:, None] * slope * (values[..., None] - z[:, None])
            gradient = by_weight.T @ (alphas.ravel() * by_score).reshape(-1, rates.size)
            mantissa, power = np.frexp(gradient)
            gradient = np.ldexp(np.round(mantissa * 2.0**BITS) / 2.0**BITS, power)
            weights = weights - rates.ravel() * direction(gradient)
    losses[np.logical_or.accumulate(~np.isfinite(losses))] = np.inf
    return losses.reshape(-1, *rates.shape)


def _softmax(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return p and the q with ∂z/∂s_i = q_i(v_i − z), for scores of shape (rows, n, heads)."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = weights / weights.sum(axis=1, keepdims=True)
    return p, p


def _power_softmax(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return y and the q with ∂z/∂s_i = q_i(v_i − z) of the power softmax."""
    slopes = scores ** (EXPONENT - 1)
    total = EPSILON + (slopes * scores).sum(axis=1, keepdims=True)
    return slopes * scores / total, EXPONENT * slopes / total


class _Adam:
    """The steps of Adam at rate 1, with the constants of PyTorch."""

    MEMORY = np.array([0.9, 0.999])[:, None, None]
    SMALLEST = 1e-8

    def __init__(self) -> None:
        self.steps, self.moments = 0, np.zeros((2, 1, 1))

    def __call__(self, gradient: FloatArray) -> FloatArray:
        """Return the step for a gradient, of its shape."""
        self.steps += 1
        powers = np.stack([gradient, np.square(gradient)])
        self.moments = self.MEMORY * self.moments + (1.0 - self.MEMORY) * powers
        mean, square = self.moments / (1.0 - self.MEMORY**self.steps)
        step: FloatArray = mean / (np.sqrt(square) + self.SMALLEST)
        return step


TINY = 1e-100
"""The complex step: f(x + i·TINY·v) has imaginary part TINY·f'(x)v, without rounding error."""


def stack_gradients(
    seed: int,
    path: Path,
    *,
    gain: float = 1.0,
    normalised: bool = True,
    depth: int = 32,
    n: int = 16,
    d: int = 32,
) -> FloatArray:
    """Return ‖∂h_L/∂h_0 v‖/‖v‖ for L = 1 … `depth` layers of attention and a random direction v.

    A layer is h + gain·A(u)u W ("residual"), or without h ("no residual"); u is h brought to mean 0
    and variance 1 per token if `normalised`, else h. "scores" is the residual stack again, but of
    its derivative it keeps only the product of the paths through the scores, one softmax Jacobian a
    layer. The mean square over v is that of backpropagation: ‖J‖_F² over the size of h. For gains
    from 0.01 to 4 and up to 64 layers: through more, what the complex step carries could grow
    beyond what is tiny. Chapter: gradient.
    """
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((n, d))
    h: NDArray[np.complex128] = rng.standard_normal((n, d)) + 1j * TINY * v
    ratios = []
    for _ in range(depth):
        query, key, value, out = rng.standard_normal((4, d, d)) / np.sqrt(d)
        u = _standardised(h) if normalised else h
        scores = (u @ query) @ (u @ key).T / np.sqrt(d)
        weights = np.exp(scores - scores.real.max(axis=1, keepdims=True))
        carried = u.real if path == "scores" else u
        mixed = (weights / weights.sum(axis=1, keepdims=True)) @ carried
        skip = {"residual": h, "no residual": 0.0, "scores": h.real}[path]
        h = skip + gain * (mixed @ value @ out)
        ratios.append(np.linalg.norm(h.imag / TINY) / np.linalg.norm(v))
    return np.array(ratios)


def recurrent_gradients(
    seed: int, *, gain: float = 0.9, normalised: bool = False, depth: int = 32, d: int = 32
) -> FloatArray:
    """Return the ratios of `stack_gradients` for h ↦ tanh(g·Wu + x_t) with random inputs x_t.

    u is h brought to mean 0 and variance 1 if `normalised`, else h. W has entries of variance 1/d
    and is the same in each step; the inputs have standard deviation ½. For gains up to 10 and 64
    steps. Chapter: gradient.
    """
    rng = np.random.default_rng(seed)
    matrix = gain * rng.standard_normal((d, d)) / np.sqrt(d)
    v = rng.standard_normal(d)
    h: NDArray[np.complex128] = rng.standard_normal(d) + 1j * TINY * v
    ratios = []
    for _ in range(depth):
        u = _standardised(h) if normalised else h
        h = np.tanh(matrix @ u + 0.5 * rng.standard_normal(d))
        ratios.append(np.linalg.norm(h.imag / TINY) / np.linalg.norm(v))
    return np.array(ratios)


def _standardised(h: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return h brought to mean 0 and variance 1 over its last axis."""
    centred = h - h.mean(axis=-1, keepdims=True)
    u: NDArray[np.complex128] = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True))
    return u
