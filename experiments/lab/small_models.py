"""Models small enough to train, or to differentiate through many layers, while a page loads.

Chapters: gradient, errata.
"""

from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlib.checking import FloatArray

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
    rate: float,
    *,
    alpha: float = 1.0,
    size: float = 1.0,
    normaliser: Normaliser = "softmax",
    optimiser: Optimiser = "descent",
    steps: int = 200,
) -> FloatArray:
    """Train one head on `retrieval(seed)`; return the loss before each step and after the last.

    The output is z = p·v with p = softmax(α s), or the power softmax of s; the loss is the mean of
    (z − wanted)², over all rows in each step. 1 is what the constant output 0 gets. `size`
    multiplies the weights at the start. Where the numbers overflow, the loss is ∞ from there on.
    Chapters: gradient, errata.
    """
    import torch  # stacks of layers need none

    task = retrieval(seed)
    features, values, wanted = map(torch.from_numpy, task[:3])
    weights = torch.from_numpy(size * task.weights).requires_grad_()
    kind = {"descent": torch.optim.SGD, "adam": torch.optim.Adam}[optimiser]
    step = kind([weights], lr=rate)
    losses = []
    for _ in range(steps + 1):
        scores = alpha * (features @ weights)
        if normaliser == "softmax":
            p = scores.softmax(-1)
        else:
            powers = scores**EXPONENT
            p = powers / (EPSILON + powers.sum(-1, keepdim=True))
        loss = ((p * values).sum(-1) - wanted).square().mean()
        losses.append(loss.item())
        [gradient] = torch.autograd.grad(loss, weights)
        mantissa, power = torch.frexp(gradient)
        weights.grad = torch.ldexp((mantissa * 2.0**BITS).round() / 2.0**BITS, power)
        step.step()
    found = np.array(losses)
    found[np.logical_or.accumulate(~np.isfinite(found))] = np.inf
    return found


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
        branch = gain * (mixed @ value @ out)
        if path == "residual":
            h = h + branch
        elif path == "no residual":
            h = branch
        else:
            h = h.real + branch
        ratios.append(np.linalg.norm(h.imag / TINY) / np.linalg.norm(v))
    return np.array(ratios)


def recurrent_gradients(
    seed: int, *, gain: float = 0.9, normalised: bool = False, depth: int = 32, d: int = 32
) -> FloatArray:
    """Return the same for h ↦ tanh(g·Wu + x_t), a recurrent network with random inputs x_t.

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
    centred = h - h.mean(axis=-1, keepdims=True)
    u: NDArray[np.complex128] = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True))
    return u
