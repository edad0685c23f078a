"""Compute the special functions of the laws of scores that SciPy lacks or loses digits in.

Chapter: variance (the density of a score at finite d).
"""

from functools import cache
from typing import NamedTuple, cast

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import gamma, gammaln, kve

from attnlib._checking import FloatArray

ORDER_OF_UNIFORM_EXPANSION = 25.0
"""From this order ν on the uniform expansions of K_ν and I_ν are used."""


def log_gamma_half_step(a: FloatArray) -> FloatArray:
    """Return log Γ(a + ½) − log Γ(a), with an error below 1e-14·(1 + |value|).

    It holds for 1e-300 ≤ a ≤ 1e100. SciPy's `gammaln` taken twice would lose as many digits as log
    Γ has before the point. From a = 20 on this is the asymptotic series ½ log a − 1/(8a) +
    1/(192a³) − 1/(640a⁵) + … , whose first dropped term is below 1e-15 there; for smaller a it is
    the log of a quotient of two Γ.

    >>> float(log_gamma_half_step(np.array(0.5)))  # Γ(1)/Γ(½) = 1/√π
    -0.57236494292470
    """
    small, large = np.minimum(a, 20.0), np.maximum(a, 20.0)
    x = 1.0 / large**2
    series = (-1 / 8 + x * (1 / 192 + x * (-1 / 640 + x * (17 / 14336 - x * 31 / 18432)))) / large
    direct = np.log(gamma(small + 0.5) / gamma(small))
    return np.where(a < 20.0, direct, 0.5 * np.log(large) + series)


@cache
def debye_polynomials() -> tuple[tuple[Polynomial, ...], ...]:
    """Return U_0 … U_14 of Debye's expansions of the modified Bessel functions, each as U, U', U''.

    U_{k+1}(t) = ½t²(1 − t²)U_k'(t) + ⅛∫₀ᵗ(1 − 5x²)U_k(x) dx, U_0 = 1
    (NIST Digital Library of Mathematical Functions, 10.41.9).
    """
    polynomials = [Polynomial([1.0])]
    for _ in range(14):
        u = polynomials[-1]
        raised = Polynomial([0.0, 0.0, 0.5, 0.0, -0.5]) * u.deriv()
        polynomials.append(raised + (Polynomial([1.0, 0.0, -5.0]) * u).integ() / 8.0)
    return tuple((u, u.deriv(), u.deriv(2)) for u in polynomials)


def log_bessel_k_normalised(order: float, z: FloatArray) -> FloatArray:
    """Return log[ (z/2)^ν K_ν(z) / (√π Γ(ν + ½)) ], K_ν the Bessel function, ν = `order` and z ≥ 0.

    As a function of x, with z = |x|, this is the log density of a sum of 2ν + 1 products of
    independent standard normal variables. Accurate to 1e-12 relative to 1 + |value| for
    0 ≤ ν ≤ 10⁶; +∞ at z = 0 for ν = 0.

    From ν = 25 on it is the uniform expansion (NIST 10.41.4) with the large parts of log K_ν and
    log Γ cancelled by hand: with x = z/ν, r = √(1 + x²), δ = r − 1,
    ν[log(1 + δ/2) − δ] − ½ log(4πν r) + log Σ_k (−1)^k U_k(1/r)/ν^k − [log Γ(ν + ½) − Stirling].
    Below, it is SciPy's `kve` up to z = 10⁸ and √(π/2z) beyond; where `kve` overflows (z → 0), the
    limit at 0.
    """
    if order >= ORDER_OF_UNIFORM_EXPANSION:
        return _uniform_k(order, z)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_z = np.log(z)
        scaled = np.where(z > 1e8, 0.5 * (np.log(np.pi / 2.0) - log_z), np.log(kve(order, z)))
        power = order * (log_z - np.log(2.0))
        direct = power + scaled - z - 0.5 * np.log(np.pi) - gammaln(order + 0.5)
        if order == 0.0:
            limit = np.log(np.log(2.0) - log_z - np.euler_gamma) - np.log(np.pi)
        else:
            limit = -log_gamma_half_step(np.array(order)) - 0.5 * np.log(4.0 * np.pi)
    return cast(FloatArray, np.where(np.isfinite(direct) | (z > 1.0), direct, limit))


def _uniform_k(order: float, z: FloatArray) -> FloatArray:
    x = z / order
    r = np.hypot(1.0, x)
    delta = x * (x / (1.0 + r))
    series = np.zeros_like(x)
    for k, (u, *_) in reversed(list(enumerate(debye_polynomials()))):
        series = series + (-1.0) ** k * u(1.0 / r) / order**k
    # log Γ(ν + ½) = ν log ν − ν + ½ log 2π + stirling(ν)
    inverse = 1.0 / order**2
    stirling = (
        -1 / 24 + inverse * (7 / 2880 - inverse * (31 / 40320 - inverse * 127 / 215040))
    ) / order
    with np.errstate(over="ignore"):
        leading = order * (np.log1p(delta / 2.0) - delta)
    prefactor = 0.5 * (np.log(4.0 * np.pi * order) + np.log(r))
    return cast(FloatArray, leading - prefactor + np.log(series) - stirling)


class BesselSeries(NamedTuple):
    """Hold α − κ(α) and derivatives of κ(α) = log ₀F₁(; ν + 1; α²/4), elementwise in α."""

    deficit: FloatArray  # α − κ(α)
    first: FloatArray  # κ'(α) = I_{ν+1}(α)/I_ν(α)
    first_complement: FloatArray  # 1 − κ'(α)
    second: FloatArray  # κ''(α)


def log_bessel_i_normalised(order: float, alpha: FloatArray) -> BesselSeries:
    """Return κ(α) = log[ Γ(ν + 1)(2/α)^ν I_ν(α) ] and derivatives, for ν = `order` > 0, α > 0.

    κ grows like α, so it is given as the deficit α − κ, and κ', which tends to 1, with its
    complement: both keep their digits at large α. Relative errors are below 1e-12 of 1 + α − κ, of
    κ', 1 − κ' and κ'', for 0 < α ≤ 10¹² and ½ ≤ ν ≤ 10⁶.

    At orders from 25 on, κ follows from the uniform (Debye) expansion of I_ν (NIST 10.41.3), whose
    large parts cancel against log Γ by hand: with x = α/ν, r = √(1 + x²), δ = r − 1, p = 1/r,
    κ = ν[δ − log(1 + δ/2)] − ½ log r + log Σ_k U_k(p)/ν^k − log Σ_k U_k(1)/ν^k,
    and it is differentiated term by term. Lower orders come down from there by the recurrences
    A_{μ−1} = 1/(A_μ + 2μ/α), A = κ', and κ_{μ−1} = κ_μ − log(2μ A_{μ−1}/α), which are exact and
    stable in this direction. SciPy's `ive` underflows at large orders and is not needed.
    """
    steps = max(0, int(np.ceil(ORDER_OF_UNIFORM_EXPANSION - order)))
    mu = order + steps
    deficit, first, complement, second = _uniform_i(mu, alpha)
    for _ in range(steps):
        turn = 2.0 * mu / alpha
        lower = 1.0 / (first + turn)
        complement = (turn - complement) * lower
        second = (lower * turn) * (lower / alpha) - lower**2 * second
        first = lower
        deficit = deficit + np.log(turn * lower)
        mu -= 1.0
    return BesselSeries(deficit, first, complement, second)


def _uniform_i(order: float, alpha: FloatArray) -> BesselSeries:
    x = alpha / order
    r = np.hypot(1.0, x)
    p = 1.0 / r
    delta = x * (x / (1.0 + r))
    value, slope, bend, at_one = (np.zeros_like(x) for _ in range(4))
    for k, (u, u_first, u_second) in reversed(list(enumerate(debye_polynomials()))):
        weight = order**-k
        value = value + weight * u(p)
        slope = slope + weight * u_first(p)
        bend = bend + weight * u_second(p)
        at_one = at_one + weight * u(1.0)
    # p' = −xp³ and p'' = −p³ + 3x²p⁵ by x
    p_first, p_second = -x * p**3, p**3 * (3.0 * (x * p) ** 2 - 1.0)
    log_first = slope * p_first / value
    log_second = (bend * p_first**2 + slope * p_second) / value - log_first**2
    # α − νδ = ν(1 + x − r) = ν(δ + x)/(r + x), which subtracts nothing large
    deficit = (
        order * ((delta + x) / (r + x) + np.log1p(delta / 2.0))
        + 0.5 * np.log(r)
        - np.log(value / at_one)
    )
    correction = (log_first - 0.5 * (x * p) * p) / order
    first = x / (1.0 + r) + correction
    complement = (1.0 + 1.0 / (r + x)) / (1.0 + r) - correction
    curvature = (log_second - 0.5 * p**2 * (p**2 - (x * p) ** 2)) / order
    second = (p / (1.0 + r) + curvature) / order
    return BesselSeries(deficit, first, complement, second)
