"""The special functions, against mpmath and against published coefficients."""

import itertools
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.special import kve

from attnlib import special
from attnlib.special import ORDER_OF_UNIFORM_EXPANSION, log_bessel_k_normalised, log_gamma_half_step


def exact_log_gamma_half_step(a):
    # log Γ(1e100) has 102 digits before the point, and the difference is wanted to 20 after it.
    with mp.workdps(150):
        return mp.loggamma(mp.mpf(a) + mp.mpf(1) / 2) - mp.loggamma(mp.mpf(a))


@pytest.mark.parametrize(
    "a",
    [
        *(0.001, 0.25, 0.5, 1.0, 1.5, 2.0, 9.75, 18.999, 19.0, 19.5),
        *(np.nextafter(20.0, 0.0), 20.0, np.nextafter(20.0, 30.0), 20.5, 21.0, 25.0),
        *(63.5, 1e3, 499_999.5, 1e6, 1e10),
    ],
)
def test_log_gamma_half_step_is_within_its_documented_error(a):
    value = mp.mpf(float(log_gamma_half_step(np.array(a))))
    assert abs(value - exact_log_gamma_half_step(a)) < 1e-14


@pytest.mark.parametrize("a", [1e-300, 1e-20, 1e-6, 1e15, 1e100])
def test_log_gamma_half_step_holds_far_from_one(a):
    value = mp.mpf(float(log_gamma_half_step(np.array(a))))
    exact = exact_log_gamma_half_step(a)
    # A float near −690 is itself only good to 1e-13.
    assert abs(value - exact) < 1e-14 * (1 + abs(exact))


def test_log_gamma_half_step_works_elementwise_and_leaves_its_argument_alone():
    a = np.array([[0.5, 100.0], [20.0, 3.25]])
    before = a.copy()
    values = log_gamma_half_step(a)
    np.testing.assert_array_equal(a, before)
    for value, x in zip(values.flat, a.flat, strict=True):
        assert value == log_gamma_half_step(np.array(x))


# NIST Digital Library of Mathematical Functions, 10.41.10, and U₄ from Abramowitz and Stegun 9.3.9:
# U_k(t) as {power: coefficient}.
PUBLISHED = [
    {0: Fraction(1)},
    {1: Fraction(3, 24), 3: Fraction(-5, 24)},
    {2: Fraction(81, 1152), 4: Fraction(-462, 1152), 6: Fraction(385, 1152)},
    {
        3: Fraction(30375, 414720),
        5: Fraction(-369603, 414720),
        7: Fraction(765765, 414720),
        9: Fraction(-425425, 414720),
    },
    {
        4: Fraction(4465125, 39813120),
        6: Fraction(-94121676, 39813120),
        8: Fraction(349922430, 39813120),
        10: Fraction(-446185740, 39813120),
        12: Fraction(185910725, 39813120),
    },
]


@pytest.mark.parametrize("k", range(5))
def test_debye_polynomial_has_its_published_coefficients(k):
    coefficients = special.debye_polynomials()[k].coef
    assert len(coefficients) == 3 * k + 1
    for power, coefficient in enumerate(coefficients):
        assert coefficient == pytest.approx(float(PUBLISHED[k].get(power, 0)), rel=1e-15, abs=1e-17)


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


def test_exact_recurrence_gives_the_published_polynomials():
    for published, found in zip(PUBLISHED, exact_debye_polynomials(5), strict=True):
        assert {power: c for power, c in enumerate(found) if c} == published


def test_all_debye_polynomials_are_those_of_the_exact_recurrence():
    polynomials = special.debye_polynomials()
    exact = exact_debye_polynomials(15)
    for found, expected in zip(polynomials, exact, strict=True):
        np.testing.assert_allclose(found.coef, [float(c) for c in expected], rtol=1e-13, atol=0.0)


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


@pytest.mark.parametrize("order", [0.0, 0.5, 3.0, 24.5, 25.5])
@pytest.mark.parametrize("z", [0.01, 1.0, 30.0])
def test_reference_integral_is_mpmath_s_bessel_function(order, z):
    with mp.workdps(50):
        direct = mp.log((mp.mpf(z) / 2) ** order * mp.besselk(order, z))
        direct -= mp.log(mp.sqrt(mp.pi) * mp.gamma(mp.mpf(order) + 0.5))
        assert abs(exact_log_bessel_k_normalised(order, z) - direct) < mp.mpf(10) ** -35


def assert_within_documented_error(order, z):
    value = float(log_bessel_k_normalised(order, np.array(z)))
    with mp.workdps(60 + int(max(0.0, np.log10(z)))):  # the exponents are as large as z
        exact = exact_log_bessel_k_normalised(order, z)
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


HAND_OVER = ORDER_OF_UNIFORM_EXPANSION
SMALL_ORDERS = [0.0, 0.5, 1.0, 1.5, 2.0, 7.5, 11.0, 17.5, 24.5, float(np.nextafter(HAND_OVER, 0.0))]
LARGE_ORDERS = [HAND_OVER, float(np.nextafter(HAND_OVER, 30.0)), 25.5, 64.0, 500.0, 4999.5, 1e6]


@pytest.mark.parametrize("z", [1e-6, 0.003, 0.7, 1.0, 3.0, 40.0, 700.0, 1e4, 1e9, 1e12, 1e100])
@pytest.mark.parametrize("order", SMALL_ORDERS + LARGE_ORDERS)
def test_bessel_function_is_within_its_documented_error(order, z):
    assert_within_documented_error(order, z)


@pytest.mark.parametrize("ratio", [0.03, 0.5, 1.0, 2.0, 20.0])
@pytest.mark.parametrize("order", LARGE_ORDERS)
def test_bessel_function_is_right_where_argument_and_order_are_alike(order, ratio):
    assert_within_documented_error(order, ratio * order)


def smallest_argument_before_overflow(order):
    """Return z where SciPy's kve turns finite, by bisection on log z."""
    low, high = -320.0 * np.log(10.0), 0.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if np.isfinite(kve(order, np.exp(middle))) else (middle, high)
    return np.exp(high)


@pytest.mark.parametrize("factor", [1e-6, 0.5, 1 - 1e-12, 1 + 1e-12, 2.0, 1e6])
@pytest.mark.parametrize("order", [1.5, 2.0, 7.5, 12.0, 24.5])
def test_bessel_function_is_right_on_both_sides_of_the_overflow_of_kve(order, factor):
    z = factor * smallest_argument_before_overflow(order)
    assert_within_documented_error(order, z)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 24.5, 25.0, 1e6])
@pytest.mark.parametrize("z", [0.0, 5e-324, 1e-310, 1e-300])
def test_bessel_function_at_zero_is_the_limit_of_its_series(order, z):
    with mp.workdps(60):
        half = mp.mpf(1) / 2
        exact = mp.loggamma(order) - mp.loggamma(order + half) - mp.log(4 * mp.pi) / 2
        value = float(log_bessel_k_normalised(order, np.array(z)))
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


@pytest.mark.parametrize("z", [5e-324, 1e-310, 1e-300, 1e-20])
def test_order_zero_grows_like_a_logarithm_near_zero(z):
    with mp.workdps(60):
        exact = mp.log((-mp.log(mp.mpf(z) / 2) - mp.euler) / mp.pi)
        value = float(log_bessel_k_normalised(0.0, np.array(z)))
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


def test_order_zero_is_infinite_at_zero():
    assert log_bessel_k_normalised(0.0, np.array(0.0)) == np.inf


def exact_bessel_series(order, alpha):
    """α − κ, κ', 1 − κ', κ'' from mpmath's Bessel functions of the first kind, modified."""
    nu, a = mp.mpf(order), mp.mpf(alpha)
    below, at = mp.besseli(nu, a), mp.besseli(nu + 1, a)
    ratio = at / below
    log_mgf = mp.loggamma(nu + 1) + nu * mp.log(2 / a) + mp.log(below)
    return a - log_mgf, ratio, 1 - ratio, 1 - ratio**2 - (2 * nu + 1) / a * ratio


SERIES_POINTS = [
    *itertools.product(
        (3, 4, 5, 8, 51, 52, 53, 54, 128, 1001, 10**4, 10**6),
        (1e-8, 1e-3, 0.1, 1.0, 3.0, 10.0, 50.0, 200.0, 1e3, 1e4),
    ),
    *itertools.product((3, 4, 5, 8, 51, 52, 53, 128, 400), (1e5, 1e8, 1e12)),
]


@pytest.mark.parametrize(("d", "alpha"), SERIES_POINTS)
def test_bessel_series_is_within_its_documented_error(d, alpha):
    order = d / 2.0 - 1.0
    found = special.log_bessel_i_normalised(order, np.array(alpha))
    with mp.workdps(80):
        exact = exact_bessel_series(order, alpha)
        assert mp.fabs(found.deficit - exact[0]) < 1e-12 * (1 + mp.fabs(exact[0]))
        for value, true in zip(found[1:], exact[1:], strict=True):
            assert mp.fabs(value / true - 1) < 1e-12


@pytest.mark.parametrize("alpha", [1.0, 1e3, 1e6, 1e9, 1e12])
def test_bessel_series_of_a_million_dimensions_joins_its_neighbours(alpha):
    # mpmath does not converge here: check the exact recurrence over one order instead.
    d = 10**6
    low = special.log_bessel_i_normalised(d / 2.0 - 1.0, np.array(alpha))
    high = special.log_bessel_i_normalised(d / 2.0, np.array(alpha))
    expected = 1.0 / (high.first + d / alpha)
    assert low.first == pytest.approx(expected, rel=1e-14)
    step = np.log(d / alpha * low.first)
    assert low.deficit == pytest.approx(high.deficit + step, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("z", [2e4, 1e6])
@pytest.mark.parametrize("order", [3.0, 24.5])
def test_bessel_function_is_right_where_its_last_form_is_not_yet(order, z):
    # √(π/2z)e^{−z} alone is wrong by (4ν² − 1)/8z here.
    assert_within_documented_error(order, z)
