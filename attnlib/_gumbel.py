"""Integrate over the largest of n numbers αs + X, X Gumbel, for `exact` and `retrieval`.

With φ(u) = P(αs + X ≤ u) = E exp(−e^{αs−u}), an expectation over a row of n scores is an integral
over u of E kernel(s, u) times powers of φ(u). The outer integral uses the trapezoidal rule, which
converges exponentially for smooth integrands that decay; the inner average uses the law's
`quadrature_nodes`. All terms of a sum are positive, so the results are relatively accurate also
where they are tiny; φ near 1 is kept as 1 − φ. Where a uniform grid would be too long, panels
follow the integrand.

Chapters: mean_gradient, retrieval.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from attnlib._checking import FloatArray
from attnlib._numerics import quadrature
from attnlib._numerics.quadrature import Nodes, UnderflowError
from attnlib.scores import Law

ABOVE = 5.0
"""e^{kx} exp(−e^x) is negligible for x above it and k up to 16, x = αs − u."""

BLOCK = 2**17
"""Numbers of an integrand that are computed at a time."""

CACHED = 2**13
"""Numbers that are averaged at a time: they fit in the processor's cache."""


class KernelInputs(NamedTuple):
    """Hold the arguments of a kernel: arrays over values of u and the scores near each."""

    alpha: float
    scores: FloatArray  # s
    exponent: FloatArray  # αs − u
    power: FloatArray  # e^{αs−u}
    gumbel: FloatArray  # exp(−e^{αs−u})


Kernel = Callable[[KernelInputs], FloatArray]


def gumbel_density(block: KernelInputs) -> FloatArray:
    """Return the kernel e^{αs−u} exp(−e^{αs−u}); its mean over s is the density of αs + X at u."""
    return block.power * block.gumbel


class IntegrandInputs(NamedTuple):
    """Hold the arguments of an integrand: arrays over u, and a column of the numbers of keys.

    Where a kernel returns several arrays, `inner` has one average of each.
    """

    u: FloatArray
    keys: FloatArray  # without the needle, if there is one
    log_cdf: FloatArray  # log φ
    inner: FloatArray  # E kernel
    needle_log_cdf: FloatArray
    needle_inner: FloatArray
    log_sink: FloatArray  # −e^{b−u}

    def log_power(self, fewer: float = 0.0) -> FloatArray:
        """Return log φ^{keys − fewer}: the factor of the keys that are not in the kernel."""
        return np.maximum(self.keys - fewer, 0.0) * self.log_cdf


class RowFunctional(NamedTuple):
    """Define an expectation over a row: a kernel to average at each u, an integrand, options."""

    kernel: Kernel
    integrand: Callable[[IntegrandInputs], FloatArray]
    offset: float = 0.0  # to add to the integral
    order: float = 2.0  # of a moment, from 2 on: kernels of high order are narrow
    rare: bool = False  # it counts rows as rare as a key that beats the needle
    sink: float = -np.inf  # b
    degree: int = 0  # with scores r times as large, at the same αr, it is r^degree as large
    logarithmic: bool = False  # its logarithm is interpolated


class Needle(NamedTuple):
    """Hold the properties of a needle that the integral uses."""

    nodes: Callable[[float, float, float], Nodes]  # of α, log n, and how much further it goes
    rarity: float  # e^{−rarity} bounds the chance that a key beats it


class Averages:
    """Compute averages over nodes of a score s, at any u: φ(u) = E exp(−e^{αs−u}), and E kernel.

    Where αs < u − `reach`, exp(−e^{αs−u}) is replaced by 1 and the kernel by 0.
    """

    def __init__(self, nodes: Nodes, alpha: float, reach: float) -> None:
        self._alpha, self._reach = alpha, reach
        self._scores, self._weights, _ = nodes
        self.levels = alpha * self._scores
        self._below = np.append(0.0, np.cumsum(self._weights))
        self._above = np.append(np.cumsum(self._weights[::-1])[::-1], 0.0)

    def __call__(self, u: FloatArray, kernel: Kernel) -> tuple[FloatArray, FloatArray]:
        """Return log φ(u) and E kernel at each u, φ(u) = E exp(−e^{αs−u})."""
        start = np.searchsorted(self.levels, u - self._reach)
        stop = np.searchsorted(self.levels, u + ABOVE)
        width = min(max(1, int((stop - start).max())), self.levels.size)
        start = np.minimum(start, self.levels.size - width)
        # Scores far below u count in full in φ, those far above it in 1 − φ.
        cdf, complement = self._below[start], self._above[start + width]
        inner = []
        for part in slices(u.size, CACHED // width):
            index = start[part, None] + np.arange(width)
            # From 7 on exp(−e^{αs−u}) is 0, but e^{k(αs−u)} would overflow.
            exponent = np.minimum(self.levels[index] - u[part, None], 7.0)
            power = np.exp(exponent)
            block = KernelInputs(self._alpha, self._scores[index], exponent, power, np.exp(-power))
            weights = self._weights[index]
            cdf[part] += (weights * block.gumbel).sum(axis=-1)
            complement[part] -= (weights * np.expm1(-power)).sum(axis=-1)
            inner.append((weights * kernel(block)).sum(axis=-1))
        with np.errstate(divide="ignore"):
            low = np.log(cdf)
        log_cdf = np.where(complement > 0.5, low, np.log1p(-np.minimum(complement, 0.5)))
        # At −1e3 φ and its powers are 0 in float64.
        return np.maximum(log_cdf, -1e3), np.concatenate(inner, axis=-1)


class Maximum:
    """Integrate over u, the largest of the numbers αs + X of a row of independent scores.

    `keys` increases; with a needle it counts the keys without it.
    """

    def __init__(
        self,
        law: Law,
        alpha: float,
        keys: FloatArray,
        quantity: RowFunctional,
        needle: Needle | None = None,
    ) -> None:
        log_n = float(np.log(keys[-1] + (1 if needle else 0)))
        rare = needle.rarity if needle and quantity.rare else 0.0
        # Where a key before the needle may be; a moment may be of rows as rare as n^{1−order}.
        further = 2.0 * rare + min(rare, quadrature.DEPTH) + (quantity.order - 2.0) * log_n
        finer = 1.0 + (quantity.order - 2.0) / 14.0
        nodes = [law.quadrature_nodes(alpha * finer, log_n, further=further)]
        # Further below u scores add less than e^{−DEPTH}/n to 1 − φ, and to the needle's weight.
        reach = quadrature.DEPTH + log_n
        self._averages = [Averages(nodes[0], alpha, reach + rare)]
        if needle:
            nodes.append(needle.nodes(alpha * finer, log_n, further))
            self._averages.append(Averages(nodes[1], alpha, reach))
        sinks = [quantity.sink] if quantity.sink > -np.inf else []
        smooth = 1.0 if sinks else max(1.0, min(each.smoothness for each in nodes) / finer)
        self._step, self._is_smooth = quadrature.STEP * smooth / finer, smooth > 1.0
        # What is narrow has its place: at an end, at a needle or a sink, at a landmark.
        ends = [average.levels[[0, -1]] for average in self._averages]
        self._marks = np.concatenate([*ends, alpha * np.asarray(law.landmarks), sinks])
        # Beyond `highest` P(αs + X > u) ≤ E min(1, e^{αs−u}) is below e^{−DEPTH}/n.
        top = ends[0][1]
        with suppress(UnderflowError):
            top = min(float(law.log_mgf(alpha)), top)
        self._lowest = min(end[0] for end in ends) - ABOVE
        tops = [top + log_n, *(end[1] for end in ends[1:]), *sinks]
        self._highest = max(tops) + quadrature.DEPTH + rare
        self._spread = alpha * float(np.sqrt(law.variance))
        self._keys, self._quantity = keys, quantity

    def integral(self) -> FloatArray:
        """Return the expectation `quantity` for each number of keys."""
        some = np.unique(np.append(self._keys[:: self._keys.size // 16 + 1], self._keys[-1]))
        # Where an integrand may be narrow there are further points.
        distances = [-5.0, -2.0, 0.0, 2.0, 5.0, 10.0, 20.0, 40.0]
        near = np.add.outer(self._marks, distances).ravel()
        u = np.append(np.linspace(self._lowest, self._highest, 64), near)  # locates the integrand
        u = np.unique(np.clip(u, self._lowest, self._highest))
        heights = np.abs(self._quantity.integrand(self._inputs(u, some)))
        tops = heights.max(axis=-1, keepdims=True)
        counts = np.flatnonzero((heights > np.exp(-quadrature.DEPTH) * tops).any(axis=0))
        if not counts.size:
            return np.full(self._keys.shape, self._quantity.offset)
        left, right = u[max(counts[0] - 1, 0)], u[min(counts[-1] + 1, u.size - 1)]
        if self._is_smooth or right - left <= self._step * 2**13:  # a longer grid is a waste
            left, right = np.floor(left / self._step), np.ceil(right / self._step)
            u = self._step * np.arange(left, right + 1.0)
            lengths = np.full(u.size, self._step)
        else:
            u, lengths = self._adaptive_rule(some, np.where(tops > 0.0, tops, 1.0))
        row = self._inputs(u, self._keys)
        parts = [
            self._quantity.integrand(row._replace(keys=row.keys[part])) @ lengths
            for part in slices(self._keys.size, BLOCK // u.size)
        ]
        return np.concatenate(parts) + self._quantity.offset

    def _inputs(self, u: FloatArray, keys: FloatArray) -> IntegrandInputs:
        averages = [average(u, self._quantity.kernel) for average in self._averages]
        log_sink = -np.exp(np.minimum(self._quantity.sink - u, 7.0))
        return IntegrandInputs(u, keys[:, None], *averages[0], *averages[-1], log_sink)

    def _adaptive_rule(self, some: FloatArray, tops: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return points and weights in u on panels that follow the integrands of all `some` n."""

        def log_density(u: FloatArray) -> FloatArray:
            each = np.abs(self._quantity.integrand(self._inputs(u.ravel(), some))) / tops
            return np.asarray(np.log(each.sum(axis=0)).reshape(u.shape))

        while True:
            # Near e^{−DEPTH} the averages end, at their reach.
            depth = quadrature.DEPTH - 10.0
            panels = quadrature.panels(log_density, self._marks, self._spread, depth=depth)
            u = panels.scores.ravel()
            reached = np.abs(self._quantity.integrand(self._inputs(u, some))).max(-1, keepdims=True)
            # An integrand that is higher than it looked would hide those of other numbers of keys.
            if some.size == 1 or not (reached > 8.0 * tops).any():
                return u, np.exp(panels.log_weights).ravel()
            tops = np.maximum(tops, reached)


def slices(size: int, length: int) -> list[slice]:
    """Return slices that cut `size` numbers into parts of `length`, or of 1 if that is less."""
    return [slice(i, i + max(length, 1)) for i in range(0, size, max(length, 1))]
