"""Explain recorded q, k, v and outputs by the simplest softmax that gives them.

The multiplier is fitted by least squares: alone, with a causal mask, a cap, and a sink.
"""

import math
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from attnlib._checking import FloatArray
from attnlib.auditing.response import Interval

STARTS = 2.0 ** np.arange(-8.0, 9.0, 0.5)
"""Multipliers that are tried first, times 1/√d, of either sign."""
SUMS = 5e-7
"""A residual that sums in float32 may leave; it is enough for every type."""


class Explanation(NamedTuple):
    """Hold a softmax that explains outputs, and what it leaves unexplained."""

    scale: Interval
    cap: Interval | None
    sink: list[Interval] | None
    """The logit of each head's sink."""
    residual: float
    """What is not explained, as a share of the weighted values' size."""
    logit: float
    """The root mean square of logits: caps far above it cannot be seen."""
    cosine: bool
    causal: bool


class Softmax(NamedTuple):
    """Define a form of attention; its multiplier, which is fitted, is given in each call."""

    cosine: bool = False
    causal: bool = False
    window: int | None = None

    def weights(
        self,
        q: FloatArray,
        k: FloatArray,
        scale: FloatArray | float,
        cap: float | None = None,
        sink: FloatArray | None = None,
        place: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return products, logits, and weights of keys and of the sink, (heads, m, n + 1).

        `place` has the positions of the queries, by default the last.
        """
        n = k.shape[-2]
        place = np.arange(n - q.shape[-2], n) if place is None else place
        k = k.repeat(len(q) // len(k), 0)
        if self.cosine:
            q, k = (t / np.linalg.norm(t, axis=-1, keepdims=True).clip(1e-300) for t in (q, k))
        products = q @ k.mT
        logits = scale * products
        if cap is not None:
            logits = cap * np.tanh(logits / cap)
        behind = place[:, None] - np.arange(n)
        hidden = (behind < 0) & self.causal | (behind >= (self.window or n))
        last = np.full((*logits.shape[:-1], 1), -np.inf)
        if sink is not None:
            last[:] = np.reshape(sink, (-1, 1, 1))
        every = np.concatenate([np.where(hidden, -np.inf, logits), last], -1)
        powers = np.exp(every - every.max(-1, keepdims=True))
        return products, logits, powers / powers.sum(-1, keepdims=True)

    def output(self, q: FloatArray, k: FloatArray, v: FloatArray, *rest: Any) -> FloatArray:
        """Return the output, (heads, m, size of v); the other arguments are those of `weights`."""
        weights = self.weights(q, k, *rest)[2]
        return np.asarray(weights[..., :-1] @ v.repeat(len(q) // len(v), 0))


def explain(
    q: FloatArray,
    k: FloatArray,
    v: FloatArray,
    output: FloatArray,
    eps: float,
    window: int | None = None,
) -> Explanation | None:
    """Return the simplest softmax that explains the outputs to rounding, or None.

    q and the output have the axes (heads, queries, size), k and v (key heads, keys, size), in
    float64; `eps` is how numbers are rounded, and a query sees `window` keys at most.
    """
    heads, m, n = *q.shape[:2], k.shape[1]
    most = max(4, 2**16 // (heads * n))  # of queries, evenly spread
    rows = np.linspace(0, m - 1, min(m, most)).round().astype(int)
    given = _Given(q[:, rows], k, v, output[:, rows], rows + n - m)
    kinds = [Softmax(*kind, window) for kind in product((False, True), (False, True))]
    starts = [given.start(kind) for kind in kinds]
    fits: list[Explanation] = []
    for cap, sink in ((False, False), (True, False), (False, True), (True, True)):
        for kind, start in zip(kinds, starts, strict=True):
            fits.append(_fit(given, kind, start, eps, cap=cap, sink=sink))
        # A softmax with more to it must leave a residual that is smaller by this factor.
        enough = max(1.2 * min(fit.residual for fit in fits), eps / 2.0, SUMS)
        if enough == max(eps / 2.0, SUMS):
            break
    chosen = next(fit for fit in fits if fit.residual <= enough)
    return chosen if chosen.residual <= min(4.0 * eps * (1.0 + chosen.logit), 0.1) else None


class _Given(NamedTuple):
    """The recorded tensors of some queries, and their places."""

    q: FloatArray
    k: FloatArray
    v: FloatArray
    output: FloatArray
    place: FloatArray

    def answer(self, kind: Softmax, scale: Any, cap: Any = None, sink: Any = None) -> FloatArray:
        """Return the output of a softmax with a multiplier, a cap and sinks."""
        return kind.output(*self[:3], scale, cap, sink, self.place)

    def start(self, kind: Softmax) -> float:
        """Return the multiplier, out of STARTS and −STARTS, whose outputs are nearest."""
        unit = 1.0 if kind.cosine else self.q.shape[-1] ** -0.5
        some = unit * np.concatenate([STARTS, -STARTS])
        off = [np.abs(self.answer(kind, x) - self.output).mean() for x in some]
        return float(some[int(np.argmin(off))])

    def slopes(self, kind: Softmax, scale: FloatArray, cap: Any, sink: Any) -> FloatArray:
        """Return the outputs' derivatives by multiplier, log of the cap, and sinks, as columns."""
        products, logits, weights = kind.weights(*self[:2], scale, cap, sink, self.place)
        p, v = weights[..., :-1], self.v.repeat(len(self.q) // len(self.v), 0)
        out, straight = p @ v, products
        if cap is not None:
            straight = products * (1.0 - (logits / cap) ** 2)
        columns = []
        for change in (straight, logits - scale * straight)[: 1 + (cap is not None)]:
            columns.append((p * change) @ v - (p * change).sum(-1, keepdims=True) * out)
        if sink is not None:
            columns += list(-weights[..., -1:] * out * np.eye(len(out))[:, :, None, None])
        return np.stack([column.ravel() for column in columns], -1)


def _fit(
    given: _Given, kind: Softmax, start: float, eps: float, *, cap: bool, sink: bool
) -> Explanation:
    """Return the least-squares fit from a multiplier, a cap near the largest logit, and sinks."""
    size = np.sqrt(np.mean(given._replace(v=np.abs(given.v)).answer(kind, start) ** 2))
    logits = kind.weights(*given[:2], start)[1]
    first = [start, *[math.log(np.abs(logits).max() + 1e-3)] * cap]
    first += [math.log(given.k.shape[1]) - 1.0] * len(given.q) * sink  # which takes a quarter

    def at(numbers: FloatArray) -> tuple[Any, ...]:
        bound = math.exp(min(max(numbers[1], -99.0), 99.0)) if cap else None
        return numbers[0], bound, numbers[1 + cap :] if sink else None

    fit = least_squares(
        lambda x: (given.answer(kind, *at(x)) - given.output).ravel() / size,
        first,
        lambda x: given.slopes(kind, *at(x)) / size,
        method="lm",
        x_scale="jac",
        ftol=1e-15,
        xtol=1e-15,
        max_nfev=100,  # a small sink takes some dozens
    )
    residual = float(np.sqrt(np.mean(fit.fun**2)))
    # Rounding need not average out: this is how far any change of the outputs by it can move them.
    spread = np.sqrt(np.diag(np.linalg.pinv(fit.jac.T @ fit.jac)).clip(0.0))
    errors = max(residual, eps / 4.0) * math.sqrt(fit.fun.size) * spread
    ends = [Interval(*map(float, (x, x - e, x + e))) for x, e in zip(fit.x, errors, strict=True)]
    return Explanation(
        ends[0],
        Interval(*np.exp(np.clip(ends[1], -99.0, 99.0)).tolist()) if cap else None,
        ends[1 + cap :] if sink else None,
        residual,
        float(np.sqrt(np.mean(logits**2))) * abs(float(fit.x[0]) / start),
        kind.cosine,
        kind.causal,
    )
