"""The special functions, against mpmath."""

import itertools

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


def exact_log_bessel_k_normalised(order, z):
    """Return the logarithm from K_ν(z) = ½∫ e^{νt − z cosh t} dt over the whole line.

    The trapezoidal rule, with a step well below the width of the peak, is exact to 40 digits;
    mpmath's own besselk takes minutes at large orders.
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
    *itertools.product((3, 52, 1001, 10**6), (1e-8, 3.0, 200.0, 1e4)),
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
