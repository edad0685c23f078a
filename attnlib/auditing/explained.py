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

START_MULTIPLIERS = 2.0 ** np.arange(-8.0, 9.0, 0.5)
"""Multipliers that are tried first, in units of 1/√d or of 1 for a cosine, of either sign."""
SUM_RESIDUAL = 5e-7
"""The residual that sums in float32 may leave; a smaller one is not asked of any type."""


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
        position: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return products, logits, and weights of keys and then of the sink, (heads, m, n + 1).

        `position`, (m,), has the positions of the queries, by default the last.
        """
        n = k.shape[-2]
        position = np.arange(n - q.shape[-2], n) if position is None else position
        k = k.repeat(len(q) // len(k), 0)
        if self.cosine:
            q, k = (t / np.linalg.norm(t, axis=-1, keepdims=True).clip(1e-300) for t in (q, k))
        products = q @ k.mT
        logits = scale * products
        if cap is not None:
            logits = cap * np.tanh(logits / cap)
        distance = position[:, None] - np.arange(n)
        hidden = (distance < 0) & self.causal | (distance >= (self.window or n))
        sink_column = np.full((*logits.shape[:-1], 1), -np.inf)
        if sink is not None:
            sink_column[:] = np.reshape(sink, (-1, 1, 1))
        columns = np.concatenate([np.where(hidden, -np.inf, logits), sink_column], -1)
        powers = np.exp(columns - columns.max(-1, keepdims=True))
        return products, logits, powers / powers.sum(-1, keepdims=True)

    def output(self, q: FloatArray, k: FloatArray, v: FloatArray, *numbers: Any) -> FloatArray:
        """Return the output, (heads, m, size of v); the other arguments are those of `weights`."""
        weights = self.weights(q, k, *numbers)[2]
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
    float64. `eps` is their relative rounding error; a query sees `window` keys at most.
    """
    heads, m, n = *q.shape[:2], k.shape[1]
    most_rows = max(4, 2**16 // (heads * n))  # evenly spaced
    rows = np.linspace(0, m - 1, min(m, most_rows)).round().astype(int)
    recorded = _Recorded(q[:, rows], k, v, output[:, rows], rows + n - m)
    forms = [Softmax(*form, window) for form in product((False, True), (False, True))]
    starts = [recorded.nearest_multiplier(form) for form in forms]
    fits: list[Explanation] = []
    for cap, sink in ((False, False), (True, False), (False, True), (True, True)):
        for form, start in zip(forms, starts, strict=True):
            fits.append(_fit(recorded, form, start, eps, cap=cap, sink=sink))
        # A softmax with more to it must leave a residual that is smaller by this factor.
        enough = max(1.2 * min(fit.residual for fit in fits), eps / 2.0, SUM_RESIDUAL)
        if enough == max(eps / 2.0, SUM_RESIDUAL):
            break
    chosen = next(fit for fit in fits if fit.residual <= enough)
    return chosen if chosen.residual <= min(4.0 * eps * (1.0 + chosen.logit), 0.1) else None


class _Recorded(NamedTuple):
    """Hold recorded tensors, (heads, tokens, size), and the positions of the queries."""

    q: FloatArray
    k: FloatArray
    v: FloatArray
    output: FloatArray
    position: FloatArray

    def model_output(
        self, form: Softmax, scale: Any, cap: Any = None, sink: Any = None
    ) -> FloatArray:
        """Return the output of a softmax with a multiplier, a cap and sinks."""
        return form.output(*self[:3], scale, cap, sink, self.position)

    def nearest_multiplier(self, form: Softmax) -> float:
        """Return the multiplier among those tried first whose outputs are nearest."""
        unit = 1.0 if form.cosine else self.q.shape[-1] ** -0.5
        multipliers = unit * np.concatenate([START_MULTIPLIERS, -START_MULTIPLIERS])
        errors = [np.abs(self.model_output(form, x) - self.output).mean() for x in multipliers]
        return float(multipliers[int(np.argmin(errors))])

    def jacobian(self, form: Softmax, scale: FloatArray, cap: Any, sink: Any) -> FloatArray:
        """Return the outputs' derivatives by multiplier, log of the cap, and sinks, as columns."""
        products, logits, weights = form.weights(*self[:2], scale, cap, sink, self.position)
        p, v = weights[..., :-1], self.v.repeat(len(self.q) // len(self.v), 0)
        output, by_scale = p @ v, products
        if cap is not None:
            by_scale = products * (1.0 - (logits / cap) ** 2)
        columns = []
        for change in (by_scale, logits - scale * by_scale)[: 1 + (cap is not None)]:
            columns.append((p * change) @ v - (p * change).sum(-1, keepdims=True) * output)
        if sink is not None:
            columns += list(-weights[..., -1:] * output * np.eye(len(output))[:, :, None, None])
        return np.stack([column.ravel() for column in columns], -1)


def _fit(
    recorded: _Recorded, form: Softmax, start: float, eps: float, *, cap: bool, sink: bool
) -> Explanation:
    """Return the least-squares fit that begins at a multiplier, with a cap and sinks if asked."""
    size = np.sqrt(np.mean(recorded._replace(v=np.abs(recorded.v)).model_output(form, start) ** 2))
    logits = form.weights(*recorded[:2], start)[1]
    first_guess = [start, *[math.log(np.abs(logits).max() + 1e-3)] * cap]
    sink_logit = math.log(recorded.k.shape[1]) - 1.0  # which takes a quarter
    first_guess += [sink_logit] * len(recorded.q) * sink

    def arguments(numbers: FloatArray) -> tuple[Any, ...]:
        bound = math.exp(min(max(numbers[1], -99.0), 99.0)) if cap else None
        return numbers[0], bound, numbers[1 + cap :] if sink else None

    fit = least_squares(
        lambda x: (recorded.model_output(form, *arguments(x)) - recorded.output).ravel() / size,
        first_guess,
        lambda x: recorded.jacobian(form, *arguments(x)) / size,
        method="lm",
        x_scale="jac",
        ftol=1e-15,
        xtol=1e-15,
        max_nfev=100,  # a small sink takes some dozens
    )
    residual = float(np.sqrt(np.mean(fit.fun**2)))
    # Rounding need not average out: this is how far any change of the outputs by it can move them.
    sensitivity = np.sqrt(np.diag(np.linalg.pinv(fit.jac.T @ fit.jac)).clip(0.0))
    errors = max(residual, eps / 4.0) * math.sqrt(fit.fun.size) * sensitivity
    intervals = [
        Interval(*map(float, (x, x - e, x + e))) for x, e in zip(fit.x, errors, strict=True)
    ]
    return Explanation(
        intervals[0],
        Interval(*np.exp(np.clip(intervals[1], -99.0, 99.0)).tolist()) if cap else None,
        intervals[1 + cap :] if sink else None,
        residual,
        float(np.sqrt(np.mean(logits**2))) * abs(float(fit.x[0]) / start),
        form.cosine,
        form.causal,
    )
