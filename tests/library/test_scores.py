"""Laws of a score: densities, generating functions, samples, and the moments of a product."""

import itertools
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from attnlib.scores import Cosine, DotProduct, Normal

LAWS = [Normal(), *map(DotProduct, (1, 8, 51, 10**6)), *map(Cosine, (3, 4, 128, 10**6))]
# --- moments and densities -----------------------------------------------------------------------


def expectation(law, function):
    """Return ∫ f(s)·function(s) ds, on both sides of 0, where the density may have its peak."""
    reach = 1.0 if isinstance(law, Cosine) else 300.0
    width = np.sqrt(law.variance)
    inner = (0.0, 1e-6 * width, width, 4.0 * width, 12.0 * width, 40.0)
    edges = [edge for edge in inner if edge < reach]

    def side(sign):
        return sum(
            quad(
                lambda s: np.exp(law.logpdf(sign * s)) * function(sign * s),
                *interval,
                epsabs=1e-13,
                epsrel=1e-11,
                limit=200,
            )[0]
            for interval in itertools.pairwise([*edges, reach])
        )

    return side(1.0) + side(-1.0)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_density_has_the_stated_moments(law):
    assert expectation(law, lambda s: 1.0) == pytest.approx(1.0, rel=1e-10)
    assert expectation(law, lambda s: s) == pytest.approx(law.mean, abs=1e-12)
    assert expectation(law, lambda s: s * s) == pytest.approx(law.variance, rel=1e-10)
    assert law.log_mgf(0.0) == law.log_mgf_ratio(0.0) == 0.0


def exact_dot_product_logpdf(d, s):
    """Return log ∫ N(s; 0, e^u) P(χ²_d/d ∈ d e^u), the mixture that defines the law.

    Trapezoidal rule in u; with the step well below the width of the peak it is exact to 30 digits.
    """
    d, s = mp.mpf(d), mp.mpf(s)
    root = mp.sqrt((d - 1) ** 2 + 4 * d * s**2)
    peak = mp.log((d - 1 + root) / (2 * d))

    def log_integrand(u):
        return (d - 1) / 2 * u - d / 2 * mp.exp(u) - s**2 / 2 * mp.exp(-u)

    height = log_integrand(peak)
    step = min(mp.mpf("0.1"), mp.mpf("0.4") / mp.sqrt(root / 2))
    total = mp.mpf(1)
    for direction in (1, -1):
        for k in itertools.count(1):
            term = mp.exp(log_integrand(peak + direction * k * step) - height)
            total += term
            if term < mp.mpf(10) ** -35:
                break
    constant = d / 2 * mp.log(d / 2) - mp.loggamma(d / 2) - mp.log(2 * mp.pi) / 2
    return constant + height + mp.log(total * step)


@pytest.mark.parametrize(
    ("d", "s"),
    # With d = 50 SciPy's Bessel function overflows near 1e-12.
    [
        *itertools.product([1], (1e-300, 1e-5, 1.0, 1e10)),
        *itertools.product([2, 50, 51, 10**6], (0.0, 1e-300, 1e-12, 1e-11, 0.1, 7.0, 1e3, 1e300)),
    ],
)
def test_dot_product_density_is_within_its_documented_error(d, s):
    value = float(DotProduct(d).logpdf(s))
    with mp.workdps(60 + int(np.log10(max(s, 1.0)))):  # the exponents are as large as s
        exact = exact_dot_product_logpdf(d, s)
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


def test_densities_at_their_ends():
    largest = np.finfo(float).max
    np.testing.assert_array_equal(Normal().logpdf([1e200, largest, np.inf, -np.inf]), -np.inf)
    assert DotProduct(1).logpdf(0.0) == np.inf
    for d in (1, 2, 50, 51, 10**6):
        np.testing.assert_array_equal(DotProduct(d).logpdf([np.inf, -np.inf]), -np.inf)
        # log f is −√d|s| to leading order: with d = 1 it is still a float, from d = 2 on it is not.
        expected = -largest if d == 1 else -np.inf
        assert DotProduct(d).logpdf(largest) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(Cosine(3).logpdf([-1.0, 0.5, 1.0]), np.log(0.5), rtol=1e-15)
    np.testing.assert_array_equal(Cosine(4).logpdf([-1.0, 1.0]), -np.inf)
    outside = [np.nextafter(1.0, 2.0), -1.5, 1e308, np.inf, -np.inf]
    np.testing.assert_array_equal(Cosine(3).logpdf(outside), -np.inf)


@pytest.mark.parametrize("d", [3, 4, 128, 10**6])
@pytest.mark.parametrize("s", [0.0, 1e-300, 0.3, 0.499999, 0.5, 1 - 2.0**-53])
def test_cosine_density_is_within_its_documented_error(d, s):
    value = float(Cosine(d).logpdf(s))
    with mp.workdps(60):
        normaliser = mp.loggamma(mp.mpf(d) / 2) - mp.loggamma(mp.mpf(d - 1) / 2) - mp.log(mp.pi) / 2
        exact = normaliser + mp.mpf(d - 3) / 2 * mp.log(1 - mp.mpf(s) ** 2)
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


# --- generating functions ------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3, 1000])
@pytest.mark.parametrize("fraction", [1e-150, 1e-8, 0.1, 0.49, 0.999999])
def test_dot_product_generating_functions_are_within_their_documented_error(d, fraction):
    law, alpha = DotProduct(d), fraction * np.sqrt(d)
    with mp.workdps(400):  # "a few units of rounding" are 1e-15
        x = mp.mpf(alpha) ** 2 / d
        exact = -mp.mpf(d) / 2 * mp.log(1 - x)
        assert abs(float(law.log_mgf(alpha)) - exact) * (1 - x) <= 1e-15 * exact
        x = x / 4
        exact = -mp.mpf(d) / 2 * (mp.log(1 - 4 * x) - 2 * mp.log(1 - x))
        assert abs(float(law.log_mgf_ratio(alpha / 2.0)) - exact) * (1 - 4 * x) <= 1e-15 * exact


def test_dot_product_generating_functions_are_infinite_from_their_poles_on():
    for d in (*range(1, 300), 10**6):
        law = DotProduct(d)
        for function, pole in ((law.log_mgf, d**0.5), (law.log_mgf_ratio, d**0.5 / 2.0)):
            beyond = pole * (1.0 + 1e-15)
            assert np.isinf(function([beyond, 2.0 * pole, 1e154, 1e308])).all(), (law, pole)
            assert np.isfinite(function(pole * (1.0 - 1e-15))), (law, pole)


@pytest.mark.parametrize("alpha", [0.0, 1e-150, 1 / 3, 7.7, 1.3e154])
def test_normal_generating_functions_are_exact_to_rounding(alpha):
    square = Fraction(alpha) ** 2
    assert Normal().log_mgf(alpha) == float(square / 2)
    assert Normal().log_mgf_ratio(alpha) == float(square)
    assert Normal().log_mgf(1.5e154) == Normal().log_mgf_ratio(1.5e154) == np.inf


def exact_cosine_log_mgf(d, alpha):
    """log of the series Σ (α²/4)^j/(j! (d/2)_j), summed until it no longer changes."""
    quarter, half = mp.mpf(alpha) ** 2 / 4, mp.mpf(d) / 2
    term = total = mp.mpf(1)
    j = 0
    while term > total * mp.eps:
        j += 1
        term *= quarter / (j * (half + j - 1))
        total += term
    return mp.log(total)


COSINE_DIMENSIONS = [3, 5, 52, 128, 10**6]


@pytest.mark.parametrize("d", COSINE_DIMENSIONS)
def test_cosine_generating_functions_are_within_their_documented_error(d):
    law, edge = Cosine(d), 2.0 * np.sqrt(d)  # where the series hands over
    for alpha in (1e-150, 1e-8, 0.1, 7.0, 1500.0, edge, np.nextafter(edge, np.inf), 1.95 * edge):
        with mp.workdps(400 if alpha < 1e-3 else 50):
            single, double = (exact_cosine_log_mgf(d, c * mp.mpf(alpha)) for c in (1, 2))
            assert mp.fabs(law.log_mgf(alpha) / single - 1) < 1e-12, alpha
            exact = double - 2 * single
            assert mp.fabs(law.log_mgf_ratio(alpha) - exact) < 1e-12 * (1 + mp.fabs(exact)), alpha


@pytest.mark.parametrize(
    ("d", "alpha"),
    [
        *itertools.product((3, 52, 1001, 10**6), (1e-8, 3.0, 200.0, 1e4)),
        *itertools.product((4, 400), (1e5, 1e12)),
    ],
)
def test_cosine_derivatives_are_within_their_documented_error(d, alpha):
    derivatives = Cosine(d).log_mgf_derivatives(alpha)
    with mp.workdps(80):
        nu, a = mp.mpf(d) / 2 - 1, mp.mpf(alpha)
        below, at = mp.besseli(nu, a), mp.besseli(nu + 1, a)
        ratio = at / below
        deficit = a - (mp.loggamma(nu + 1) + nu * mp.log(2 / a) + mp.log(below))
        assert mp.fabs(derivatives.deficit - deficit) < 1e-12 * (1 + mp.fabs(deficit))
        exact = ratio, 1 - ratio, 1 - ratio**2 - (2 * nu + 1) / a * ratio
        for value, true in zip(derivatives[1:], exact, strict=True):
            assert mp.fabs(value / true - 1) < 1e-12


@pytest.mark.parametrize("d", COSINE_DIMENSIONS)
def test_cosine_generating_functions_at_their_ends(d):
    law, largest = Cosine(d), np.finfo(float).max
    at = law.log_mgf_derivatives(0.0)
    assert (at.deficit, at.first, at.first_complement) == (0.0, 0.0, 1.0)
    assert at.second == pytest.approx(1.0 / d, rel=1e-15)
    alpha = np.array([1e200, largest / 2.0, largest / 1.9, largest])
    assert np.isfinite(law.log_mgf(alpha)).all()
    # κ(2α) − 2κ(α) grows by ½(d − 1) log 2 with each doubling of a large α
    slope = np.diff(law.log_mgf_ratio(alpha)) / np.diff(np.log(alpha))
    np.testing.assert_allclose(slope, 0.5 * (d - 1), rtol=1e-10)


# --- samples -------------------------------------------------------------------------------------


def explicit(rng, law, rows, n):
    """Return the scores of `rows` queries, each with its own n keys."""
    queries = rng.standard_normal((rows, 1, law.d))
    keys = rng.standard_normal((rows, n, law.d))
    products = (queries * keys).sum(axis=-1)
    if isinstance(law, DotProduct):
        return products / np.sqrt(law.d)
    return products / np.linalg.norm(queries, axis=-1) / np.linalg.norm(keys, axis=-1)


@pytest.mark.parametrize("law", [DotProduct(1), DotProduct(8), Cosine(3), Cosine(16)], ids=repr)
def test_a_sample_is_like_explicit_queries_and_keys(law):
    sample = law.sample(np.random.default_rng(33), 20_000, 3)
    expected = explicit(np.random.default_rng(34), law, 20_000, 3)
    # One score a row, for within a row they may be dependent, and a number that sees dependence.
    assert stats.ks_2samp(sample[:, 0], expected[:, 1]).pvalue > 1e-5
    assert stats.ks_2samp(sample.max(axis=-1), expected.max(axis=-1)).pvalue > 1e-5
