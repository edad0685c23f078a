"""Exact expectations over a row of n random scores, for every n: nothing is averaged separately.

Give each score its own Gumbel variable X, with distribution function exp(−e^{−x}). The largest of
αs_i + X_i is then log Z plus a Gumbel variable, and i is the key where it falls with probability
p_i. So all expectations are averages over one maximum of n independent numbers. With

    φ(u) = P(αs + X ≤ u) = E exp(−e^{αs−u}),    A_k(u) = E[e^{k(αs−u)} exp(−e^{αs−u})],

φ^n is the distribution function of that maximum, and

    E Σp^k = n/Γ(k) ∫ A_k φ^{n−1} du,           E(1 − Σp²) = n(n−1) ∫ A_1² φ^{n−2} du,
    E log Z = n ∫ u A_1 φ^{n−1} du − γ,         E H = n ∫ B φ^{n−1} du − γ,

with B(u) = E[(u − αs) e^{αs−u} exp(−e^{αs−u})] and Euler's γ. With λ = e^{−u} these are Laplace
transforms: φ = E e^{−λe^{αs}}.

Method: the trapezoidal rule inside and outside, which converges exponentially for smooth
integrands that decay, over variables chosen so that they are. All terms of a sum are positive, so
the results are relatively accurate also where they are tiny; φ near 1 is kept as 1 − φ. For
`DotProduct(d)` the scores are independent only given the query: the normal result is averaged over
its length.

Accuracy: relative error below 1e-10 for α from 0 to 100/σ (σ² the variance of a score) and n up to
10¹², d up to 10⁶; α up to 10⁴/σ and n up to 2⁵³ are allowed. Every function broadcasts over α
and n, at n = 1 included, where the row is p = 1. It raises ValueError or TypeError for an α that
is negative, NaN or too large, an n that is not a whole number from 1 to 2⁵³, an unknown law, and
shapes that do not broadcast.

Chapter: exact.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc, gammaln, ndtr

from attnlib import checking
from attnlib.checking import FloatArray
from attnlib.scores import AnyLaw, Cosine, DotProduct, Normal, check_law
from attnlib.special import log_gamma_half_step

IndependentLaw = Normal | Cosine
Kernel = Callable[["_Block"], FloatArray]

LARGEST_SCALE = 1e4
"""The largest α, in units of one over the standard deviation of a score."""

LARGEST_ORDER = 16.0
"""The largest order of a moment."""

DEPTH = 40.0
"""Terms below e^{−DEPTH} of the sum are left out."""

STEP = 0.25
"""Step of the trapezoidal rules, in units of the width of a Gumbel variable: error e^{−π²/STEP}."""

NORMAL_STEP = 0.7
"""The same for a standard normal density: error e^{−2(π/NORMAL_STEP)²}."""

LENGTH_STEP = 0.12
"""The same for the logarithm of a query's length; freezing sharpens with log n, and it shrinks."""

SMOOTH_DIMENSION = 100
"""From this d on the ends ±1 of the range of a cosine are too unlikely to matter."""

PANEL = 0.25
"""Length in log α of the intervals on which a function of α is interpolated."""

CHEBYSHEV = 16
"""Number of terms of the interpolating series."""

OMEGA = 0.5671432904097838
"""Where w = e^{−w}."""

BLOCK = 2**17
"""How many numbers are worked on at a time."""


def collision_probability(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return E Y = E Σp², broadcasting over α and n; 1 at n = 1 and 1/n at α = 0.

    Accuracy, range and errors as the module says. Chapter: exact.

    >>> float(collision_probability(Normal(), 1.0, 512))  # the approximation has e/512 = 0.00531
    0.005234...
    """
    return _expectation(law, alpha, n, _COLLISION_PROBABILITY, only_key=1.0)


def gradient(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return G = E g = α(1 − E Σp²), broadcasting over α and n; 0 at n = 1.

    Computed without the subtraction: relatively accurate also where E Y is nearly 1. For `Normal`
    it increases in α, to `gradient_limit`. Accuracy, range and errors as the module says. Chapter:
    exact.

    >>> [round(float(g), 4) for g in gradient(Normal(), [1.0, 3.0, 100.0], 512)]
    [0.9948, 2.4843, 3.0436]
    """
    scale, _ = _arguments(law, alpha, n)
    return scale * _expectation(law, alpha, n, _COMPLEMENT, only_key=0.0)


def free_energy(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return Φ = E log Z, Z = Σ e^{αs}, broadcasting over α and n; 0 at n = 1, log n at α = 0.

    Convex in α, with slope `mean_score`. Accuracy, range and errors as the module says. Chapter:
    exact.

    >>> float(free_energy(Normal(), 1.0, 512) - np.log(512))  # below ½, Jensen's bound
    0.4983...
    """
    return _expectation(law, alpha, n, _FREE_ENERGY, only_key=0.0)


def mean_score(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return dΦ/dα = E Σ p_i s_i, broadcasting over α and n: the score that the softmax picks.

    0 at n = 1 and at α = 0. For `Normal` it equals `gradient` (Gaussian integration by parts), for
    the other two laws it does not. Errors below 1e-10 of the largest score; range and errors as the
    module says. Chapter: exact.

    >>> float(mean_score(Normal(), 2.0, 512) / gradient(Normal(), 2.0, 512))
    1.0
    """
    return _expectation(law, alpha, n, _MEAN_SCORE, only_key=0.0)


def entropy(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return E H = −E Σ p log p = Φ − αΦ', in nats, broadcasting over α and n; 0 at n = 1.

    Computed without that difference. Accuracy, range and errors as the module says. Chapter: exact.

    >>> float(entropy(Normal(), 1.0, 512)), float(np.log(512) - 0.5)
    (5.7418..., 5.7383...)
    """
    return _expectation(law, alpha, n, _ENTROPY, only_key=0.0)


def moment(law: AnyLaw, alpha: ArrayLike, n: ArrayLike, order: float) -> FloatArray:
    """Return E Σ p^k for a real order k from 1 to 16, broadcasting over α and n.

    1 at k = 1, `collision_probability` at k = 2, n^{1−k} at α = 0. Accuracy, range and errors as
    the module says, and ValueError for another order. Chapter: exact.

    >>> float(moment(Normal(), 0.0, 10, order=3.0))
    0.01
    """
    k = checking.number("order", order)
    if not 1.0 <= k <= LARGEST_ORDER:
        raise ValueError(f"order must be from 1 to {LARGEST_ORDER:g}, got order={k:g}")

    quantity = _Quantity(
        lambda block: np.exp(k * block.exponent - block.power - gammaln(k)),
        lambda q: q.integrate(q.inner),
        logarithmic=True,
    )
    return _expectation(law, alpha, n, quantity, only_key=1.0)


def output_std(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return √(E Y): the std of an output Σ p_i v_i, for values of mean 0 and variance 1.

    The values must be independent of each other and of the scores. Broadcasts over α and n.
    Accuracy, range and errors as the module says. Source 002; chapter: exact.

    >>> float(output_std(Normal(), 0.0, 256))
    0.0625
    """
    return np.sqrt(collision_probability(law, alpha, n))


def post_scale(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return 1/√(E Y): the factor that gives the output of attention unit variance.

    Under a causal mask position i sees n = i + 1 keys: n = np.arange(1, length + 1). Accuracy,
    range and errors as the module says. Source 002; chapter: exact.

    >>> float(post_scale(Normal(), 0.0, 256))
    16.0
    """
    return 1.0 / output_std(law, alpha, n)


class BackwardStd(NamedTuple):
    """Standard deviations of the gradients of queries, keys and values."""

    query: FloatArray
    key: FloatArray
    value: FloatArray


def backward_std(d: int, alpha: ArrayLike, n: ArrayLike) -> BackwardStd:
    """Return the std of ∂L/∂q, ∂L/∂k and ∂L/∂v where that of ∂L/∂z is 1, per number.

    For z = Σ p_j v_j with p = softmax(α q·k_j/√d), n queries and n keys, and independent standard
    normal q, k, v and ∂L/∂z with d numbers each. With r = |q|/√d, J = diag(p) − ppᵀ and the
    components x_j of the keys along the query, whose scores are rx_j,

        var ∂v = E Y,    var ∂k = α² E[r² ‖J‖_F²],    var ∂q = α² E[(1 − 1/d) ‖J‖_F² + |Jx|²/d].

    Broadcasts over α and n; at n = 1 only the value has a gradient. Under a causal mask position i
    has n = i + 1 keys, and the mean squares over the positions are the means of these squares over
    n = 1 … N. A post-scale multiplies all three. Accuracy, range and errors as the module says, but
    at d = 1 the query's std is accurate to 1e-7 only. Chapter: output_scale.

    >>> [round(float(std), 4) for std in backward_std(64, 1.0, 256)]
    [0.1006, 0.1013, 0.1022]
    """
    law = DotProduct(d)
    scale, _ = _arguments(law, alpha, n)
    across = _expectation(law, alpha, n, _FROBENIUS, only_key=0.0)
    along = _expectation(law, alpha, n, _ALONG_THE_QUERY, only_key=0.0)
    weighted = _expectation(law, alpha, n, _FROBENIUS._replace(degree=2), only_key=0.0)
    return BackwardStd(
        query=scale * np.sqrt(((law.d - 1.0) * across + along) / law.d),
        key=scale * np.sqrt(weighted),
        value=output_std(law, alpha, n),
    )


def gradient_limit(law: AnyLaw, n: ArrayLike) -> FloatArray:
    """Return the limit of `gradient` as α → ∞, elementwise in n; 0 at n = 1.

    It is the density at 0 of the gap between the two largest scores, n(n−1) ∫ f² F^{n−2} ds with
    the density f and distribution function F of a score. For `Normal` that equals E max s, for
    `DotProduct(d)` it is E max s · E √d/|q|, infinite at d = 1. Relative error below 1e-10. Errors
    as the module says. Chapter: exact.

    >>> float(gradient_limit(Normal(), 2) * np.sqrt(np.pi)), float(gradient_limit(Cosine(3), 512))
    (1.0, 256.0)
    """
    check_law(law)
    keys = _keys(n)
    distinct, position = np.unique(keys, return_inverse=True)
    values = np.array([_gap_density(law, count) if count > 1.0 else 0.0 for count in distinct])
    return cast(FloatArray, values[position].reshape(keys.shape))


def saturation(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return `gradient` / `gradient_limit`, broadcasting over α and n ≥ 2.

    How much of the mean gradient that any scale can give is there at α (for laws whose mean
    gradient increases). 0 for `DotProduct(1)`, whose limit is infinite. Raises ValueError at n = 1,
    where both are 0. Chapter: exact.

    >>> float(saturation(Normal(), 2.5, 512))
    0.737...
    """
    _, keys = _arguments(law, alpha, n)
    if (keys < 2.0).any():
        raise ValueError("n must be at least 2 for a share of the limit, got n=1")
    return gradient(law, alpha, n) / gradient_limit(law, n)


class _Block(NamedTuple):
    """Some values of u, each against the scores that matter there: arrays (u, scores)."""

    alpha: float
    scores: FloatArray  # s
    exponent: FloatArray  # αs − u
    power: FloatArray  # e^{αs−u}
    gumbel: FloatArray  # exp(−e^{αs−u})


class _Quadrature:
    """The maximum of n numbers αs + X on a grid of u that serves all n in `keys`.

    Attributes: `u`, `step`, `log_cdf` (log φ) and `inner` (E kernel), each but `step` an array
    over u; of a kernel that returns several arrays, `inner` has as many rows.
    """

    def __init__(self, law: IndependentLaw, alpha: float, keys: FloatArray, kernel: Kernel) -> None:
        log_n = float(np.log(keys.max()))
        self.keys = keys
        self._alpha = alpha
        self._scores, self._weights = _nodes(law, alpha, log_n)
        self._levels = alpha * self._scores
        self._below = np.append(0.0, np.cumsum(self._weights))
        self._above = np.append(np.cumsum(self._weights[::-1])[::-1], 0.0)
        # Beyond `reach` below u a score adds less than e^{−DEPTH}/n to 1 − φ.
        self._reach = DEPTH + log_n
        # Beyond `highest` P(αs + X > u) ≤ E min(1, e^{αs−u}) is below e^{−DEPTH}/n.
        lowest = self._levels[0] - np.log(DEPTH)
        highest = min(float(law.log_mgf(alpha)), float(self._levels[-1])) + log_n + DEPTH
        coarse = np.linspace(lowest, highest, 48)
        log_cdf, _ = self._averages(coarse, kernel)
        first = int(np.count_nonzero(keys.min() * log_cdf < -DEPTH))
        last = int(np.count_nonzero(keys.max() * log_cdf < -np.exp(-DEPTH)))
        self.step = STEP * _smoothness(law, alpha, log_n)
        left = np.floor(coarse[max(first - 1, 0)] / self.step)
        right = np.ceil(coarse[min(last, coarse.size - 1)] / self.step)
        self.u = self.step * np.arange(left, right + 1.0)
        self.log_cdf, self.inner = self._averages(self.u, kernel)

    def integrate(self, integrand: FloatArray, others: float = 1.0) -> FloatArray:
        """Return n ∫ integrand φ^{n − others} du for each n in `keys`."""
        rows = max(1, BLOCK // self.u.size)
        parts = [
            np.exp((self.keys[i : i + rows, None] - others) * self.log_cdf) @ integrand
            for i in range(0, self.keys.size, rows)
        ]
        return self.keys * (self.step * np.concatenate(parts))

    def _averages(self, u: FloatArray, kernel: Kernel) -> tuple[FloatArray, FloatArray]:
        """Return log φ and E kernel at each u."""
        start = np.searchsorted(self._levels, u - self._reach)
        stop = np.searchsorted(self._levels, u + np.log(DEPTH))
        width = min(max(1, int((stop - start).max())), self._levels.size)
        start = np.minimum(start, self._levels.size - width)
        # Scores far below u count in full in φ, those far above it in 1 − φ.
        cdf, complement = self._below[start], self._above[start + width]
        inner = []
        rows = max(1, BLOCK // width)
        for i in range(0, u.size, rows):
            part = slice(i, i + rows)
            index = start[part, None] + np.arange(width)
            # From 6 on exp(−e^{αs−u}) is 0 against anything else, but e^{k(αs−u)} would overflow.
            exponent = np.minimum(self._levels[index] - u[part, None], 6.0)
            power = np.exp(exponent)
            block = _Block(self._alpha, self._scores[index], exponent, power, np.exp(-power))
            weights = self._weights[index]
            cdf[part] += (weights * block.gumbel).sum(axis=-1)
            complement[part] -= (weights * np.expm1(-power)).sum(axis=-1)
            inner.append((weights * kernel(block)).sum(axis=-1))
        with np.errstate(divide="ignore"):
            low = np.maximum(np.log(cdf), -1e300)
        log_cdf = np.where(complement > 0.5, low, np.log1p(-np.minimum(complement, 0.5)))
        return log_cdf, np.concatenate(inner, axis=-1)


class _Quantity(NamedTuple):
    """An expectation: the kernel to average at each u, and the integral over u."""

    kernel: Kernel
    combine: Callable[[_Quadrature], FloatArray]
    degree: int = 0  # with scores r times as large, at the same αr, it is r^degree as large
    logarithmic: bool = False  # it varies by factors: interpolate its logarithm


def _first(block: _Block) -> FloatArray:
    """Return the integrand of A_1, the density of αs + X."""
    return block.power * block.gumbel


_COLLISION_PROBABILITY = _Quantity(
    lambda block: block.power**2 * block.gumbel, lambda q: q.integrate(q.inner), logarithmic=True
)
_COMPLEMENT = _Quantity(_first, lambda q: (q.keys - 1.0) * q.integrate(q.inner**2, others=2.0))
_FREE_ENERGY = _Quantity(_first, lambda q: q.integrate(q.u * q.inner) - np.euler_gamma)
_ENTROPY = _Quantity(
    lambda block: -block.exponent * _first(block), lambda q: q.integrate(q.inner) - np.euler_gamma
)
_MEAN_SCORE = _Quantity(
    lambda block: block.scores * _first(block), lambda q: q.integrate(q.inner), degree=1
)


def _tilted(block: _Block) -> FloatArray:
    """Return the integrands of A_1 and A_2, then with s, then A_2 with s².

    s from about where it matters at this u, for only differences of scores will count.
    """
    first = _first(block)
    second = block.power * first
    s = (block.scores + block.alpha * block.exponent) / (1.0 + block.alpha**2)
    return np.stack([first, second, s * first, s * second, s * s * second])


def _frobenius(q: _Quadrature) -> FloatArray:
    """Return E‖J‖_F² = E[2 Σ p_i²p_j² + Σ p_i²p_j p_k], i, j, k different."""
    first, second, *_ = q.inner
    return _of_two_and_three(q, 2.0 * second**2, second * first**2)


def _along_the_query(q: _Quadrature) -> FloatArray:
    """Return E|Js|²: with (s_i − s_j)² in the first sum, (s_i − s_j)(s_i − s_k) in the second."""
    first, second, s_first, s_second, ss_second = q.inner
    two = 2.0 * (second * ss_second - s_second**2)
    three = first * (first * ss_second - 2.0 * s_first * s_second) + s_first**2 * second
    return _of_two_and_three(q, two, three)


def _of_two_and_three(q: _Quadrature, two: FloatArray, three: FloatArray) -> FloatArray:
    pairs = (q.keys - 1.0) * q.integrate(two, others=2.0)
    triples = (q.keys - 1.0) * (q.keys - 2.0) * q.integrate(three, others=3.0)
    return (pairs + triples) / 6.0  # Γ(4), for four factors p


_FROBENIUS = _Quantity(_tilted, _frobenius, logarithmic=True)
_ALONG_THE_QUERY = _Quantity(_tilted, _along_the_query, logarithmic=True)


def _expectation(
    law: AnyLaw, alpha: ArrayLike, n: ArrayLike, quantity: _Quantity, *, only_key: float
) -> FloatArray:
    """Return the quantity at each α and n; `only_key` at n = 1."""
    scale, keys = _arguments(law, alpha, n)
    several = keys > 1.0
    result = np.full(scale.shape, only_key)
    if isinstance(law, DotProduct):
        result[several] = _over_queries(law, scale[several], keys[several], quantity)
    else:
        result[several] = _over_keys(law, scale[several], keys[several], quantity)
    return result


def _over_keys(
    law: IndependentLaw, scale: FloatArray, keys: FloatArray, quantity: _Quantity
) -> FloatArray:
    """Return the quantity at each pair of α and n, for independent scores."""
    alphas, which, sizes = np.unique(scale, return_inverse=True, return_counts=True)
    result = np.empty_like(scale)
    groups = np.split(np.argsort(which, kind="stable"), np.cumsum(sizes)[:-1])
    for alpha, group in zip(alphas, groups, strict=False):
        counts, position = np.unique(keys[group], return_inverse=True)
        quadrature = _Quadrature(law, float(alpha), counts, quantity.kernel)
        result[group] = quantity.combine(quadrature)[position]
    return result


def _over_queries(
    law: DotProduct, scale: FloatArray, keys: FloatArray, quantity: _Quantity
) -> FloatArray:
    """Return the quantity at each pair of α and n, averaged over the query's length r√d."""
    if not scale.size:
        return np.empty_like(scale)
    lengths, weights = _lengths(law, float(np.log(keys.max())))
    points = scale[:, None] * lengths
    counts = np.broadcast_to(keys[:, None], points.shape)
    values = _normal(points.ravel(), counts.ravel(), quantity).reshape(points.shape)
    return values @ (weights * lengths**quantity.degree)


def _lengths(law: DotProduct, log_n: float) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights of E over r = |q|/√d, r² ~ χ²_d/d.

    The trapezoidal rule in w with log r = w − e^{−w}, which pulls in the tail of short queries.
    """
    d = law.d
    # log r has the std 1/√(2d) in high dimensions, and d log r/dw is below 1.6 near r = 1.
    step = 1.0 / np.hypot((1.0 + log_n / 9.0) / LENGTH_STEP, 1.9 * np.sqrt(2.0 * d) / NORMAL_STEP)
    # Beyond `reach` from r = 1 the density is below e^{−DEPTH}/n.
    reach = np.sqrt(2.0 * (DEPTH + log_n) / d)
    w = np.arange(max(OMEGA - reach, -8.0), min(OMEGA + reach, 4.0), step)
    log_length = w - np.exp(-w)
    half = d / 2.0
    with np.errstate(over="ignore"):
        exponent = half * (2.0 * log_length - np.expm1(2.0 * log_length))
    kept = exponent > -DEPTH - np.where(log_length > 0.0, log_n, 0.0)
    weights = (np.exp(exponent) * (1.0 + np.exp(-w)))[kept]
    return np.exp(log_length[kept]), weights / weights.sum()


def _normal(scale: FloatArray, keys: FloatArray, quantity: _Quantity) -> FloatArray:
    """Return the quantity for normal scores at each pair of α and n.

    Many different α are interpolated: by a Chebyshev series in log α on each interval of the
    length PANEL.
    """
    law = Normal()
    limited = np.maximum(scale, 1e-8)  # below it only the leading power of α is left
    position = np.log(limited) / PANEL
    panel = np.floor(position)
    panels, which_panel = np.unique(panel, return_inverse=True)
    if np.unique(scale).size <= panels.size * CHEBYSHEV:
        return _over_keys(law, scale, keys, quantity)
    nodes = chebyshev.chebpts1(CHEBYSHEV)
    alphas = np.exp(PANEL * (panels[:, None] + (nodes + 1.0) / 2.0)).ravel()
    counts, which_count = np.unique(keys, return_inverse=True)
    values = _over_keys(law, np.repeat(alphas, counts.size), np.tile(counts, alphas.size), quantity)
    if quantity.logarithmic:
        values = np.log(values)
    table = values.reshape(panels.size, CHEBYSHEV, counts.size)
    series = np.linalg.solve(chebyshev.chebvander(nodes, CHEBYSHEV - 1), table)
    result = np.empty_like(scale)
    for i in range(0, scale.size, BLOCK // CHEBYSHEV):
        part = slice(i, i + BLOCK // CHEBYSHEV)
        inside = chebyshev.chebvander(2.0 * (position[part] - panel[part]) - 1.0, CHEBYSHEV - 1)
        result[part] = (inside * series[which_panel[part], :, which_count[part]]).sum(axis=-1)
    result = np.exp(result) if quantity.logarithmic else result
    return result * (scale / limited) ** quantity.degree


def _nodes(law: IndependentLaw, alpha: float, log_n: float) -> tuple[FloatArray, FloatArray]:
    """Return increasing scores and weights, Σ w = 1, that average e^{αs} and the like over s."""
    width = STEP / alpha if alpha > 0.0 else np.inf
    if isinstance(law, Normal):
        step = 1.0 / (1.0 / NORMAL_STEP + 1.0 / width)
        lowest, highest = np.sqrt(2.0 * DEPTH), np.sqrt(2.0 * (DEPTH + 2.0 * log_n))
        s = step * np.arange(-np.ceil(lowest / step), np.ceil(highest / step) + 1.0)
        weights = np.exp(law.logpdf(s))
    else:
        s, log_slope = _cosine_nodes(law, alpha, width, log_n)
        weights = np.exp(law.logpdf(s) + log_slope)
    return s, weights / weights.sum()


def _cosine_nodes(
    law: Cosine, alpha: float, width: float, log_n: float
) -> tuple[FloatArray, FloatArray]:
    """Return cosines and, up to a constant, log ds/dτ on a uniform grid of τ.

    s = log[cosh(τ + L)/cosh(τ − L)]/2L, with L = α, moves evenly in αs and approaches ±1
    exponentially: the ends of the interval, where the density is not smooth, move to infinity.
    """
    bend = max(alpha, 0.5)
    spacing = 1.0 / (np.sqrt(law.d) / NORMAL_STEP + 1.0 / width)  # of s, near 0
    step = min(STEP, spacing * bend / np.tanh(bend))
    lowest, highest = (_cosine_range(law, bend, depth) for depth in (DEPTH, DEPTH + 2.0 * log_n))
    tau = step * np.arange(-np.ceil(lowest / step), np.ceil(highest / step) + 1.0)
    plus = np.log1p(np.exp(-2.0 * np.abs(tau + bend)))
    minus = np.log1p(np.exp(-2.0 * np.abs(tau - bend)))
    s = (2.0 * np.clip(tau, -bend, bend) + plus - minus) / (2.0 * bend)
    log_slope = -2.0 * np.maximum(np.abs(tau) - bend, 0.0) - plus - minus
    return np.clip(s, -1.0, 1.0), log_slope


def _cosine_range(law: Cosine, bend: float, depth: float) -> float:
    """Return the τ beyond which the density of s is below e^{−depth} of its maximum."""
    at_the_end = bend + depth / (law.d - 1) + 1.0
    if law.d == 3:
        return at_the_end
    s = np.sqrt(-np.expm1(-2.0 * depth / (law.d - 3)))
    if s > 0.999:
        return at_the_end
    # The inverse of the map: τ = ½ log[sinh L(1 + s)/sinh L(1 − s)].
    shares = [bend * (1.0 + s), bend * (1.0 - s)]
    logs = [x + np.log(-np.expm1(-2.0 * x)) for x in shares]
    return float(min(at_the_end, (logs[0] - logs[1]) / 2.0))


def _smoothness(law: IndependentLaw, alpha: float, log_n: float) -> float:
    """Return by how much the largest αs + X varies more slowly than X.

    In low dimensions the cosines' density has corners at ±1, which only X smoothes.
    """
    if isinstance(law, Cosine) and law.d < SMOOTH_DIMENSION:
        return 1.0
    spread = alpha * float(np.sqrt(law.variance))
    return max(1.0, spread / (1.0 + float(np.sqrt(2.0 * log_n))))


def _gap_density(law: AnyLaw, n: float) -> float:
    """Return n(n−1) ∫ f² F^{n−2} ds, the density at 0 of the gap between the two largest."""
    log_n = float(np.log(n))
    if isinstance(law, DotProduct):
        if law.d == 1:
            return float(np.inf)
        # E √d/|q| = √(d/2) Γ((d−1)/2)/Γ(d/2)
        log_shortness = -log_gamma_half_step(np.array((law.d - 1) / 2.0))
        return _gap_density(Normal(), n) * float(np.sqrt(law.d / 2.0) * np.exp(log_shortness))
    if isinstance(law, Normal):
        step = STEP / (1.0 + np.sqrt(2.0 * log_n))
        s = np.arange(-10.0, np.sqrt(2.0 * (DEPTH + log_n)), step)
        log_density, complement = law.logpdf(s), ndtr(-s)
        log_slope = np.zeros_like(s)
    else:
        # s = tanh v: ds = (1 − s²) dv, and P(cos > s) is an incomplete beta function of 1 − s².
        step = STEP / (np.sqrt(law.d) * (1.0 + np.sqrt(2.0 * log_n)))
        depth = (DEPTH + 2.0 * log_n) / (2.0 * law.d - 4.0)  # of log cosh v
        reach = depth + np.log1p(np.sqrt(-np.expm1(-2.0 * depth)))
        v = np.arange(-reach, reach, step)
        log_slope = -np.log1p(np.sinh(v) ** 2)
        half_d = (law.d - 1) / 2.0
        tail = np.where(
            np.abs(v) < 1.0,
            betaincc(0.5, half_d, np.tanh(v) ** 2),
            betainc(half_d, 0.5, np.exp(log_slope)),
        )
        complement = np.where(v > 0.0, tail / 2.0, 1.0 - tail / 2.0)
        log_density = float(law.logpdf(0.0)) + (law.d - 3) / 2.0 * log_slope
    with np.errstate(divide="ignore"):
        log_others = (n - 2.0) * np.log1p(-complement) if n > 2.0 else 0.0
    integrand = np.exp(2.0 * log_density + log_slope + log_others + log_n + np.log(n - 1.0))
    return float(step * integrand.sum())


def _arguments(law: AnyLaw, alpha: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return α and n, checked and broadcast."""
    check_law(law)
    scale, keys = checking.scale(alpha), _keys(n)
    largest = LARGEST_SCALE / np.sqrt(law.variance)
    if (scale > largest).any():
        raise ValueError(
            f"alpha must be at most {largest:g} for {law}, got alpha={scale.max():g}; "
            "gradient_limit has the limit of the gradient"
        )
    scale, keys = checking.broadcast(alpha=scale, n=keys)
    return scale, keys


def _keys(n: ArrayLike) -> FloatArray:
    keys = checking.keys(n)
    wrong = (keys != np.floor(keys)) | (keys > checking.LARGEST_INTEGER)
    if wrong.any():
        raise ValueError(f"n must be whole numbers from 1 to 2**53, got n={keys[wrong].flat[0]:g}")
    return keys
