"""The special functions, against mpmath and against the exact recurrence of their polynomials."""

import itertools
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.special import kve

from attnlib import special
from attnlib.special import ORDER_OF_UNIFORM_EXPANSION, log_bessel_k_normalised, log_gamma_half_step


@pytest.mark.parametrize(
    "a", [1e-300, 1e-6, 0.25, 2.0, 19.0, np.nextafter(20.0, 0.0), 20.0, 63.5, 1e6, 1e100]
)
def test_log_gamma_half_step_is_within_its_documented_error(a):
    value = mp.mpf(float(log_gamma_half_step(np.array(a))))
    # log Γ(1e100) has 102 digits before the point, and the difference is wanted to 20 after it.
    with mp.workdps(150):
        exact = mp.loggamma(mp.mpf(a) + mp.mpf(1) / 2) - mp.loggamma(mp.mpf(a))
        assert abs(value - exact) < 1e-14 * (1 + abs(exact))


def test_log_gamma_half_step_works_elementwise_and_leaves_its_argument_alone():
    a = np.array([[0.5, 100.0], [20.0, 3.25]])
    before = a.copy()
    values = log_gamma_half_step(a)
    np.testing.assert_array_equal(a, before)
    for value, x in zip(values.flat, a.flat, strict=True):
        assert value == log_gamma_half_step(np.array(x))


def exact_debye_polynomials(count):
    """Return U_0 … as lists of fractions, by the recurrence (NIST 10.41.9) in exact arithmetic."""
    polynomials = [[Fraction(1)]]
    while len(polynomials) < count:
        u = polynomials[-1]
        following = [Fraction(0)] * (len(u) + 3)
        for power, c in enumerate(u):
            # ½t²(1 − t²)·(c t^power)' + ⅛∫(1 − 5x²)·c x^power dx
            following[power + 1] += c * (Fraction(power, 2) + Fraction(1, 8 * (power + 1)))
            following[power + 3] -= c * (Fraction(power, 2) + Fraction(5, 8 * (power + 3)))
        polynomials.append(following)
    return polynomials


def test_debye_polynomials_are_those_of_the_exact_recurrence_and_the_published_ones():
    exact = exact_debye_polynomials(15)
    for found, expected in zip(special.debye_polynomials(), exact, strict=True):
        np.testing.assert_allclose(found.coef, [float(c) for c in expected], rtol=1e-13, atol=0.0)
    # NIST Digital Library of Mathematical Functions, 10.41.10
    published = {3: 30375, 5: -369603, 7: 765765, 9: -425425}
    assert {k: c for k, c in enumerate(exact[3]) if c} == {
        k: Fraction(c, 414720) for k, c in published.items()
    }


def exact_log_bessel_k_normalised(order, z):
    """Return the logarithm from K_ν(z) = ½∫ e^{νt − z cosh t} dt over the whole line.

    The trapezoidal rule, with a step well below the width of the peak, is exact to 40 digits: the
    test after this one compares it with mpmath's own besselk, which takes minutes at large orders.
    """
    order, z = mp.mpf(order), mp.mpf(z)
    peak = mp.asinh(order / z)
    height = order * peak - z * mp.cosh(peak)
    # The curvature at the peak, and the distance π/2 at which the integrand stops decaying.
    step = min(mp.mpf("0.05"), mp.mpf("0.35") / mp.sqrt(mp.hypot(order, z)))
    total = mp.mpf(1)
    for direction in (1, -1):
        for k in itertools.count(1):
            t = peak + direction * k * step
            term = mp.exp(order * t - z * mp.cosh(t) - height)
            total += term
            if term < mp.mpf(10) ** -45:
                break
    log_k = height + mp.log(total * step / 2)
    return order * mp.log(z / 2) + log_k - mp.log(mp.pi) / 2 - mp.loggamma(order + mp.mpf(1) / 2)


@pytest.mark.parametrize(("order", "z"), [(0.0, 0.01), (3.0, 1.0), (25.5, 30.0)])
def test_reference_integral_is_mpmath_s_bessel_function(order, z):
    with mp.workdps(50):
        direct = mp.log((mp.mpf(z) / 2) ** order * mp.besselk(order, z))
        direct -= mp.log(mp.sqrt(mp.pi) * mp.gamma(mp.mpf(order) + 0.5))
        assert abs(exact_log_bessel_k_normalised(order, z) - direct) < mp.mpf(10) ** -35


def smallest_argument_before_overflow(order):
    """Return z where SciPy's kve turns finite, by bisection on log z."""
    low, high = -320.0 * np.log(10.0), 0.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if np.isfinite(kve(order, np.exp(middle))) else (middle, high)
    return np.exp(high)


HAND_OVER = ORDER_OF_UNIFORM_EXPANSION
BESSEL_POINTS = [
    *itertools.product((0.0, 1.5, 24.5, HAND_OVER, 500.0), (0.003, 1.0, 40.0, 2e4, 1e9, 1e100)),
    *itertools.product((0.5, float(np.nextafter(HAND_OVER, 0.0)), 1e6), (1e-6, 3.0, 1e6)),
    *((order, ratio * order) for order in (HAND_OVER, 4999.5, 1e6) for ratio in (0.03, 1.0, 20.0)),
    *(
        (order, factor * smallest_argument_before_overflow(order))
        for order in (2.0, 24.5)
        for factor in (0.5, 1 - 1e-12, 1 + 1e-12)
    ),
]


@pytest.mark.parametrize(("order", "z"), BESSEL_POINTS)
def test_bessel_function_is_within_its_documented_error(order, z):
    value = float(log_bessel_k_normalised(order, np.array(z)))
    with mp.workdps(60 + int(max(0.0, np.log10(z)))):  # the exponents are as large as z
        exact = exact_log_bessel_k_normalised(order, z)
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


@pytest.mark.parametrize("order", [0.5, 24.5, 25.0])
@pytest.mark.parametrize("z", [0.0, 5e-324, 1e-300])
def test_bessel_function_at_zero_is_the_limit_of_its_series(order, z):
    with mp.workdps(60):
        half = mp.mpf(1) / 2
        exact = mp.loggamma(order) - mp.loggamma(order + half) - mp.log(4 * mp.pi) / 2
        value = float(log_bessel_k_normalised(order, np.array(z)))
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


@pytest.mark.parametrize("z", [5e-324, 1e-300, 1e-20])
def test_order_zero_grows_like_a_logarithm_near_zero(z):
    with mp.workdps(60):
        exact = mp.log((-mp.log(mp.mpf(z) / 2) - mp.euler) / mp.pi)
        value = float(log_bessel_k_normalised(0.0, np.array(z)))
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))
    assert log_bessel_k_normalised(0.0, np.array(0.0)) == np.inf


SERIES_POINTS = [
    *itertools.product((3, 52, 1001, 10**6), (1e-8, 0.1, 3.0, 200.0, 1e4)),
    *itertools.product((4, 8, 400), (1e5, 1e12)),
]


@pytest.mark.parametrize(("d", "alpha"), SERIES_POINTS)
def test_bessel_series_is_within_its_documented_error(d, alpha):
    order = d / 2.0 - 1.0
    found = special.log_bessel_i_normalised(order, np.array(alpha))
    with mp.workdps(80):
        nu, a = mp.mpf(order), mp.mpf(alpha)
        below, at = mp.besseli(nu, a), mp.besseli(nu + 1, a)
        ratio = at / below
        deficit = a - (mp.loggamma(nu + 1) + nu * mp.log(2 / a) + mp.log(below))
        assert mp.fabs(found.deficit - deficit) < 1e-12 * (1 + mp.fabs(deficit))
        exact = ratio, 1 - ratio, 1 - ratio**2 - (2 * nu + 1) / a * ratio
        for value, true in zip(found[1:], exact, strict=True):
            assert mp.fabs(value / true - 1) < 1e-12


@pytest.mark.parametrize("alpha", [1e6, 1e12])
def test_bessel_series_of_a_million_dimensions_joins_its_neighbours(alpha):
    # mpmath does not converge here: check the exact recurrence over one order instead.
    d = 10**6
    low = special.log_bessel_i_normalised(d / 2.0 - 1.0, np.array(alpha))
    high = special.log_bessel_i_normalised(d / 2.0, np.array(alpha))
    assert low.first == pytest.approx(1.0 / (high.first + d / alpha), rel=1e-14)
    step = np.log(d / alpha * low.first)
    assert low.deficit == pytest.approx(high.deficit + step, rel=1e-12, abs=1e-12)
