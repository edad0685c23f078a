"""Compute exact expectations over a row of n random scores, for every n.

Arguments that the functions share:

- `law`: the distribution of the scores, a `Law`;
- `alpha`: α from 0 to 10⁴/σ, σ² the variance of a score; a number or an array;
- `n`: the number of keys, whole numbers from 1 to 2⁵³; at n = 1 the row is p = 1.

They broadcast against each other, and arrays of float64 are returned. ValueError or TypeError is
raised for an α that is negative, NaN or too large, for another n, for a `law` that is not a `Law`,
and for shapes that do not broadcast.

Accuracy: relative error below 1e-10 for α up to 100/σ, n up to 10¹² and d up to 10⁶, and below 1e-8
for a law of your own.

Mathematics: give each score its own Gumbel variable X, with distribution function exp(−e^{−x}). The
largest of αs_i + X_i is then log Z plus a Gumbel variable, and i is the key where it falls with
probability p_i. So all expectations are averages over one maximum of n independent numbers, and
no numerator is averaged apart from its denominator. With

    φ(u) = P(αs + X ≤ u) = E exp(−e^{αs−u}),    A_k(u) = E[e^{k(αs−u)} exp(−e^{αs−u})],

φ^n is the distribution function of that maximum, and

    E Σp^k = n/Γ(k) ∫ A_k φ^{n−1} du,           E(1 − Σp²) = n(n−1) ∫ A_1² φ^{n−2} du,
    E log Z = n ∫ u A_1 φ^{n−1} du − γ,         E H = n ∫ B φ^{n−1} du − γ,

with B(u) = E[(u − αs) e^{αs−u} exp(−e^{αs−u})] and Euler's γ. With λ = e^{−u} these are Laplace
transforms: φ = E e^{−λe^{αs}}.

Method: that of `_gumbel`. For `DotProduct(d)` the scores are independent only given the query: the
normal result is averaged over its length.

Chapter: mean_gradient.
"""

from typing import NamedTuple, cast

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike
from scipy.special import gammaln

from attnlib import _checking, _gumbel, scores
from attnlib._checking import FloatArray
from attnlib._gumbel import IntegrandInputs, KernelInputs, RowFunctional, gumbel_density
from attnlib._numerics import quadrature
from attnlib._numerics.quadrature import Nodes
from attnlib._numerics.special import log_gamma_half_step
from attnlib.scores import DotProduct, Law, Normal

LARGEST_SCALE = 1e4
"""The largest α, in units of one over the standard deviation of a score."""

LARGEST_ORDER = 16.0
"""The largest order of a moment."""

PANEL = 0.25
"""Length in log α of the intervals on which a function of α is interpolated."""

CHEBYSHEV = 16
"""Number of terms of the interpolating series."""


def collision_probability(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the mean collision probability E Y = E Σp², p = softmax(αs); 1/n at α = 0, 1 at n = 1.

    Arguments, accuracy and errors are as the module says. Chapter: mean_gradient.

    >>> float(collision_probability(scores.Normal(), 1.0, 512))  # e/512 = 0.00531 is near
    0.005234...
    """
    return _compute_expectation(law, alpha, n, _COLLISION_PROBABILITY, only_key=1.0)


def gradient(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the mean gradient G = α(1 − E Σp²) of rows p = softmax(αs); 0 at n = 1.

    It is computed without the subtraction, so its relative accuracy holds where E Σp² is nearly 1.
    For every law with a log-concave density it increases with α, towards `gradient_limit`.
    Arguments, accuracy and errors are as the module says. Chapter: mean_gradient.

    >>> [round(float(g), 4) for g in gradient(scores.Normal(), [1.0, 3.0, 100.0], 512)]
    [0.9948, 2.4843, 3.0436]
    """
    complement = _compute_expectation(law, alpha, n, _COMPLEMENT, only_key=0.0)
    return np.asarray(alpha, dtype=np.float64) * complement


def free_energy(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the mean free energy Φ = E log Z, Z = Σ e^{αs}; α E s at n = 1, log n at α = 0.

    It is convex in α, with the slope `mean_score`. Arguments, accuracy and errors are as the module
    says. Chapter: mean_gradient.

    >>> float(free_energy(scores.Normal(), 1.0, 512) - np.log(512))  # below ½, Jensen's bound
    0.4983...
    """
    scale, _ = _check_arguments(law, alpha, n)
    return _compute_expectation(law, alpha, n, _FREE_ENERGY, only_key=scale * law.mean)


def mean_score(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the mean score under the softmax weights p, dΦ/dα = E Σ p_i s_i, Φ = `free_energy`.

    It is E s at n = 1 and at α = 0. For `Normal` it equals `gradient` (Gaussian integration by
    parts), for no other law at every n. It is accurate to 1e-10 of the largest score; arguments and
    errors are as the module says. Chapter: mean_gradient.

    >>> float(mean_score(scores.Normal(), 2.0, 512) / gradient(scores.Normal(), 2.0, 512))
    1.0
    """
    scores.check_law(law)
    return _compute_expectation(law, alpha, n, _MEAN_SCORE, only_key=law.mean)


def entropy(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the mean entropy E H = −E Σ p log p of the weights p, in nats; 0 at n = 1.

    It equals Φ − αΦ' with Φ = `free_energy`, but is computed without that subtraction. Arguments,
    accuracy and errors are as the module says. Chapter: mean_gradient.

    >>> float(entropy(scores.Normal(), 1.0, 512)), float(np.log(512) - 0.5)
    (5.7418..., 5.7383...)
    """
    return _compute_expectation(law, alpha, n, _ENTROPY, only_key=0.0)


def moment(law: Law, alpha: ArrayLike, n: ArrayLike, order: float) -> FloatArray:
    """Return the mean moment E Σ p^k of the weights p = softmax(αs).

    - `law`, `alpha`, `n`: as the module says, with their errors.
    - `order`: k, a real number from 1 to 16; else raises ValueError or TypeError.

    It is 1 at k = 1, `collision_probability` at k = 2, n^{1−k} at α = 0. Accuracy is as the module
    says. Chapter: mean_gradient.

    >>> float(moment(scores.Normal(), 0.0, 10, order=3.0))
    0.01
    """
    k = _checking.number("order", order)
    if not 1.0 <= k <= LARGEST_ORDER:
        raise ValueError(f"order must be from 1 to {LARGEST_ORDER:g}, got order={k:g}")

    quantity = RowFunctional(
        lambda block: np.exp(k * block.exponent - block.power - gammaln(k)),
        _key_integrand,
        order=max(k, 2.0),
        logarithmic=True,
    )
    return _compute_expectation(law, alpha, n, quantity, only_key=1.0)


def output_std(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return √(E Σp²), the standard deviation of an output Σ p_i v_i for values v_i of variance 1.

    The values must have mean 0 and be independent of each other and of the scores. Arguments,
    accuracy and errors are as the module says. Source 002; chapter: mean_gradient.

    >>> float(output_std(scores.Normal(), 0.0, 256))
    0.0625
    """
    return np.sqrt(collision_probability(law, alpha, n))


def post_scale(law: Law, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return 1/√(E Σp²), the factor that gives the output variance 1, for values as `output_std`'s.

    Under a causal mask position i sees n = i + 1 keys: n = np.arange(1, length + 1). Arguments,
    accuracy and errors are as the module says. Source 002; chapter: mean_gradient.

    >>> float(post_scale(scores.Normal(), 0.0, 256))
    16.0
    """
    return 1.0 / output_std(law, alpha, n)


class BackwardStd(NamedTuple):
    """Hold the standard deviations of ∂L/∂q, ∂L/∂k and ∂L/∂v, arrays of the shape of α and n."""

    query: FloatArray
    key: FloatArray
    value: FloatArray


def backward_std(d: int, alpha: ArrayLike, n: ArrayLike) -> BackwardStd:
    """Return the standard deviations of ∂L/∂q, ∂L/∂k and ∂L/∂v where that of ∂L/∂z is 1.

    - `d`: the dimension of queries, keys and values, an integer, 1 or more.
    - `alpha`, `n`: as the module says; n queries and n keys.

    Here z = Σ p_j v_j with p = softmax(α q·k_j/√d), and q, k, v and ∂L/∂z are independent standard
    normal vectors of dimension d. With r = |q|/√d, J = diag(p) − ppᵀ and the components x_j of the
    keys along the query, whose scores are rx_j,

        var ∂v = E Σp²,    var ∂k = α² E[r² ‖J‖_F²],    var ∂q = α² E[(1 − 1/d) ‖J‖_F² + |Jx|²/d].

    Returns a `BackwardStd` of arrays. At n = 1 only the value has a gradient. Under a causal mask
    position i has n = i + 1 keys, and the mean squares over N positions are the means of these
    squares over n = 1 … N. A post-scale multiplies all three. Accuracy and errors are as the module
    says, but at d = 1 the query's is accurate to 1e-7 only. Chapter: almost_scaled.

    >>> [round(float(std), 4) for std in backward_std(64, 1.0, 256)]
    [0.1006, 0.1013, 0.1022]
    """
    law = scores.DotProduct(d)
    scale, _ = _check_arguments(law, alpha, n)
    across = _compute_expectation(law, alpha, n, _FROBENIUS, only_key=0.0)
    along = _compute_expectation(law, alpha, n, _JACOBIAN_SCORES, only_key=0.0)
    weighted = _compute_expectation(law, alpha, n, _FROBENIUS._replace(degree=2), only_key=0.0)
    return BackwardStd(
        query=scale * np.sqrt(((law.d - 1.0) * across + along) / law.d),
        key=scale * np.sqrt(weighted),
        value=output_std(law, alpha, n),
    )


def gradient_limit(law: Law, n: ArrayLike) -> FloatArray:
    """Return the limit of the mean gradient, `gradient`, as α → ∞, elementwise in n; 0 at n = 1.

    It is the density at 0 of the gap between the two largest scores, n(n−1) ∫ f² F^{n−2} ds with
    the density f and distribution function F of a score. For `Normal` that equals E max s, for
    `DotProduct(d)` the same number times E √d/|q|, infinite at d = 1. The relative error is below
    1e-10, for a law of your own below 1e-8. Arguments and errors are as the module says.
    Chapter: mean_gradient.

    >>> float(gradient_limit(scores.Normal(), 2) * np.sqrt(np.pi))
    1.0
    >>> float(gradient_limit(scores.Cosine(3), 512))
    256.0
    """
    scores.check_law(law)
    keys = _checking.whole_keys(n)
    several, limit = keys > 1.0, np.zeros(keys.shape)
    distinct, position = np.unique(keys[several], return_inverse=True)
    limit[several] = _gap_density(law, distinct)[position]
    return limit


def _gap_density(law: Law, n: FloatArray) -> FloatArray:
    """Return the density at 0 of s₁ − s₂, the two largest of n ≥ 2 scores.

    For dot products it is that of normal scores times E √d/|q|.
    """
    if isinstance(law, DotProduct):
        if law.d == 1:
            return np.full(n.shape, np.inf)
        log_shortness = -log_gamma_half_step(np.array((law.d - 1) / 2.0))
        shortness = float(np.sqrt(law.d / 2.0) * np.exp(log_shortness))
        return _gap_density(Normal(), n) * shortness
    depth = quadrature.DEPTH + 2.0 * float(np.log(n.max(initial=2.0)))
    panels = law.panels(depth=depth, fractions=quadrature.TOWARDS_AN_END)
    log_below = np.log1p(-quadrature.tail_at_points(panels))
    logs = (2.0 * panels.log_density + panels.log_weights).ravel()
    below = np.exp((n[:, None] - 2.0) * log_below.ravel())
    return cast(FloatArray, n * (n - 1.0) * (below @ np.exp(logs)))


def _key_integrand(row: IntegrandInputs) -> FloatArray:
    return row.keys * row.inner * np.exp(row.log_power(1.0))


_COLLISION_PROBABILITY = RowFunctional(
    lambda block: block.power * gumbel_density(block), _key_integrand, logarithmic=True
)
_COMPLEMENT = RowFunctional(
    gumbel_density,
    lambda row: row.keys * (row.keys - 1.0) * row.inner**2 * np.exp(row.log_power(2.0)),
)
_FREE_ENERGY = RowFunctional(
    gumbel_density, lambda row: row.u * _key_integrand(row), offset=-np.euler_gamma
)
_ENTROPY = RowFunctional(
    lambda block: -block.exponent * gumbel_density(block), _key_integrand, offset=-np.euler_gamma
)
_MEAN_SCORE = RowFunctional(
    lambda block: block.scores * gumbel_density(block), _key_integrand, degree=1
)


def _jacobian_kernels(block: KernelInputs) -> FloatArray:
    """Return the kernels K_1, K_2, sK_1, sK_2 and s²K_2, K_k = e^{k(αs−u)} exp(−e^{αs−u}), stacked.

    s is counted from about where the kernels peak at this u: only differences of scores are used.
    """
    first = gumbel_density(block)
    second = block.power * first
    s = (block.scores + block.alpha * block.exponent) / (1.0 + block.alpha**2)
    return np.stack([first, second, s * first, s * second, s * s * second])


def _frobenius(row: IntegrandInputs) -> FloatArray:
    """Return the integrand of E‖J‖_F² = E[2 Σ p_i²p_j² + Σ p_i²p_j p_k], i, j, k different."""
    first, second, *_ = row.inner
    return _pairs_and_triples(row, 2.0 * second**2, second * first**2)


def _jacobian_scores(row: IntegrandInputs) -> FloatArray:
    """Return the integrand of E|Js|² = E Σ p_i²p_jp_k(s_i − s_j)(s_i − s_k), j and k not i."""
    first, second, s_first, s_second, ss_second = row.inner
    pairs = 2.0 * (second * ss_second - s_second**2)
    triples = first * (first * ss_second - 2.0 * s_first * s_second) + s_first**2 * second
    return _pairs_and_triples(row, pairs, triples)


def _pairs_and_triples(row: IntegrandInputs, pairs: FloatArray, triples: FloatArray) -> FloatArray:
    n = row.keys
    total = pairs * np.exp(row.log_power(2.0)) + (n - 2.0) * triples * np.exp(row.log_power(3.0))
    return n * (n - 1.0) / 6.0 * total  # Γ(4), for four factors p


_FROBENIUS = RowFunctional(_jacobian_kernels, _frobenius, logarithmic=True)
_JACOBIAN_SCORES = RowFunctional(_jacobian_kernels, _jacobian_scores, logarithmic=True)


def _compute_expectation(
    law: Law, alpha: ArrayLike, n: ArrayLike, quantity: RowFunctional, *, only_key: ArrayLike
) -> FloatArray:
    """Return the expectation `quantity` at each pair of α and n; `only_key` at n = 1."""
    scale, keys = _check_arguments(law, alpha, n)
    several = keys > 1.0
    result = np.full(scale.shape, only_key)
    scale, keys = scale[several], keys[several]
    mixture = law.mixture(float(np.log(keys.max(initial=1.0))))
    if mixture is None:
        result[several] = _integrate(law, scale, keys, quantity)
    else:
        result[several] = _average_over_factor(*mixture, scale, keys, quantity)
    return result


def _integrate(
    law: Law, scale: FloatArray, keys: FloatArray, quantity: RowFunctional
) -> FloatArray:
    """Return the expectation at each pair of α and n, for independent scores, α by α."""

    def at_scale(alpha: float, counts: FloatArray) -> FloatArray:
        return _gumbel.Maximum(law, alpha, counts, quantity).integral()

    return quadrature.groupwise(at_scale, keys, scale)


def _average_over_factor(
    law: Law, nodes: Nodes, scale: FloatArray, keys: FloatArray, quantity: RowFunctional
) -> FloatArray:
    """Return the expectation at each pair of α and n, averaged over the scores' common factor."""
    factors, weights, _ = nodes
    points = scale[:, None] * factors
    counts = np.broadcast_to(keys[:, None], points.shape)
    values = _interpolate(law, points.ravel(), counts.ravel(), quantity).reshape(points.shape)
    return values @ (weights * factors**quantity.degree)


def _interpolate(
    law: Law, scale: FloatArray, keys: FloatArray, quantity: RowFunctional
) -> FloatArray:
    """Return the expectation at each pair of α and n, interpolated in α where there are many α.

    The scores are independent. The interpolant is a Chebyshev series in log α on each interval of
    length PANEL.
    """
    limited = np.maximum(scale, 1e-8)  # below it only the leading power of α is left
    position = np.log(limited) / PANEL
    panel = np.floor(position)
    panels, which_panel = np.unique(panel, return_inverse=True)
    if np.unique(scale).size <= panels.size * CHEBYSHEV:
        return _integrate(law, scale, keys, quantity)
    nodes = chebyshev.chebpts1(CHEBYSHEV)
    alphas = np.exp(PANEL * (panels[:, None] + (nodes + 1.0) / 2.0)).ravel()
    counts, which_count = np.unique(keys, return_inverse=True)
    values = _integrate(law, np.repeat(alphas, counts.size), np.tile(counts, alphas.size), quantity)
    if quantity.logarithmic:
        values = np.log(values)
    table = values.reshape(panels.size, CHEBYSHEV, counts.size)
    series = np.linalg.solve(chebyshev.chebvander(nodes, CHEBYSHEV - 1), table)
    result = np.empty_like(scale)
    for part in _gumbel.slices(scale.size, _gumbel.BLOCK // CHEBYSHEV):
        inside = chebyshev.chebvander(2.0 * (position[part] - panel[part]) - 1.0, CHEBYSHEV - 1)
        result[part] = (inside * series[which_panel[part], :, which_count[part]]).sum(axis=-1)
    result = np.exp(result) if quantity.logarithmic else result
    return result * (scale / limited) ** quantity.degree


def _check_arguments(law: Law, alpha: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return α and n as float64 of one shape; ValueError or TypeError if they are not allowed."""
    scale, keys = checked_scale(law, alpha), _checking.whole_keys(n)
    scale, keys = _checking.broadcast(alpha=scale, n=keys)
    return scale, keys


def checked_scale(law: Law, alpha: ArrayLike) -> FloatArray:
    """Return α as float64; ValueError or TypeError unless from 0 to 10⁴/σ, σ the law's `spread`."""
    scores.check_law(law)
    scale, largest = _checking.alpha(alpha), LARGEST_SCALE / law.spread
    limits = "exact.gradient_limit and retrieval.accuracy are limits"
    kind = f"at most {largest:g} for {law!r:.80} ({limits})"
    _checking.require("alpha", scale, scale <= largest, kind)
    return scale
