"""Laws of a score: densities, generating functions, samples, and the moments of a product."""

import itertools
from dataclasses import FrozenInstanceError
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from attnlib import scores
from attnlib.scores import Cosine, DotProduct, Law, Normal

LAWS = [
    Normal(),
    *map(DotProduct, (1, 2, 3, 8, 50, 51, 52, 1000, 10**6)),
    *map(Cosine, (3, 4, 5, 8, 128, 10**6)),
]
NORMAL_AND_PRODUCTS = [law for law in LAWS if not isinstance(law, Cosine)]
SEVERAL = [Normal(), DotProduct(1), DotProduct(8), Cosine(3), Cosine(128)]
FEW_SIGMA = 4.5
"""Chance of a false alarm: 7e-6 a comparison. Seeds are fixed, so a pass stays a pass."""


def generator(seed):
    return np.random.default_rng(seed)


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
def test_density_integrates_to_one(law):
    assert expectation(law, lambda s: 1.0) == pytest.approx(1.0, rel=1e-10)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_density_has_the_stated_mean_and_variance(law):
    assert expectation(law, lambda s: s) == pytest.approx(law.mean, abs=1e-12)
    assert expectation(law, lambda s: s * s) == pytest.approx(law.variance, rel=1e-10)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_density_is_even(law):
    s = np.array([0.0, 1e-300, 0.01, 0.6, 1.0, 3.0, 1e3, np.inf])
    np.testing.assert_array_equal(law.logpdf(s), law.logpdf(-s))


@pytest.mark.parametrize("law", SEVERAL, ids=repr)
def test_density_works_elementwise_and_returns_float64(law):
    s = np.array([[0.25, -0.5, 2.0], [0.0, np.inf, 0.125]])
    values = law.logpdf(s)
    assert values.shape == s.shape
    assert values.dtype == np.float64
    for value, x in zip(values.flat, s.flat, strict=True):
        assert value == law.logpdf(x)


POINTS = [0.0, 1e-300, 1e-20, 1e-5, 0.1, 0.5, 1.0, 2.0, 7.0, 40.0, 1e3, 1e7, 1e10, 1e100, 1e300]


@pytest.mark.parametrize("s", POINTS[:-2])
def test_normal_density_is_exact_to_rounding(s):
    with mp.workdps(60):
        exact = -(mp.mpf(s) ** 2) / 2 - mp.log(2 * mp.pi) / 2
        assert abs(float(Normal().logpdf(s)) - exact) <= 4e-16 * abs(exact)


def test_normal_density_vanishes_where_the_square_overflows():
    np.testing.assert_array_equal(Normal().logpdf([1e200, 1.7e308, np.inf, -np.inf]), -np.inf)


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


def exact_dot_product_logpdf_by_bessel(d, s):
    """Return the closed form, with mpmath's besselk."""
    order, x = mp.mpf(d - 1) / 2, mp.sqrt(d) * mp.mpf(s)
    density = (x / 2) ** order * mp.besselk(order, x) / mp.sqrt(mp.pi)
    return mp.log(mp.sqrt(d) * density) - mp.loggamma(order + mp.mpf(1) / 2)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 50, 51])
@pytest.mark.parametrize("s", [0.01, 1.0, 40.0])
def test_mixture_of_normals_is_the_bessel_density(d, s):
    with mp.workdps(80):
        difference = exact_dot_product_logpdf(d, s) - exact_dot_product_logpdf_by_bessel(d, s)
        assert abs(difference) < mp.mpf(10) ** -25


@pytest.mark.parametrize(
    ("d", "s"),
    # The density of d = 1 diverges at 0; near it, it has tests of its own.
    [
        *itertools.product([1], POINTS[3:]),
        *itertools.product([2, 3, 4, 10, 50, 51, 52, 1000, 10**5, 10**6], POINTS),
    ],
)
def test_dot_product_density_is_within_its_documented_error(d, s):
    value = float(DotProduct(d).logpdf(s))
    with mp.workdps(60 + int(np.log10(max(s, 1.0)))):  # the exponents are as large as s
        exact = exact_dot_product_logpdf(d, s)
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


@pytest.mark.parametrize("s", [5e-324, 1e-310, 1e-300, 1e-20])
def test_dot_product_density_in_one_dimension_grows_like_a_logarithm(s):
    with mp.workdps(60):
        exact = mp.log(mp.besselk(0, mp.mpf(s)) / mp.pi)
        assert abs(float(DotProduct(1).logpdf(s)) - exact) < 1e-12 * (1 + abs(exact))


def test_dot_product_density_in_one_dimension_is_infinite_at_zero():
    assert DotProduct(1).logpdf(0.0) == np.inf


def test_dot_product_density_in_two_dimensions_is_laplace():
    s = np.array([0.0, 1e-300, 0.3, 2.0, 500.0])
    expected = -np.sqrt(2.0) * s - 0.5 * np.log(2.0)
    np.testing.assert_allclose(DotProduct(2).logpdf(s), expected, rtol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 50, 51, 10**6])
def test_dot_product_density_vanishes_at_infinity(d):
    np.testing.assert_array_equal(DotProduct(d).logpdf([np.inf, -np.inf]), -np.inf)


@pytest.mark.parametrize("d", [1, 2, 50, 51, 10**6])
def test_dot_product_density_of_the_largest_float_is_a_number_or_minus_infinity(d):
    largest = np.finfo(float).max
    # log f is −√d|s| to leading order: with d = 1 it is still a float, from d = 2 on it is not.
    expected = -largest if d == 1 else -np.inf
    assert DotProduct(d).logpdf(largest) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("d", [3, 4, 5, 8, 128, 4096, 10**6])
@pytest.mark.parametrize(
    "s", [0.0, 1e-300, 1e-9, 0.1, 0.3, 0.499999, 0.5, 0.500001, 0.9, 1 - 1e-9, 1 - 2.0**-53]
)
def test_cosine_density_is_within_its_documented_error(d, s):
    value = float(Cosine(d).logpdf(s))
    with mp.workdps(60):
        normaliser = mp.loggamma(mp.mpf(d) / 2) - mp.loggamma(mp.mpf(d - 1) / 2) - mp.log(mp.pi) / 2
        exact = normaliser + mp.mpf(d - 3) / 2 * mp.log(1 - mp.mpf(s) ** 2)
        assert abs(value - exact) < 1e-12 * (1 + abs(exact))


def test_cosine_in_three_dimensions_is_uniform_up_to_and_including_its_ends():
    s = [-1.0, -0.999, 0.0, 0.5, 1.0]
    np.testing.assert_allclose(Cosine(3).logpdf(s), np.log(0.5), rtol=1e-15)


@pytest.mark.parametrize("d", [4, 5, 128])
def test_cosine_density_is_zero_at_its_ends_beyond_three_dimensions(d):
    np.testing.assert_array_equal(Cosine(d).logpdf([-1.0, 1.0]), -np.inf)


@pytest.mark.parametrize("d", [3, 4, 128])
def test_cosine_density_is_zero_outside(d):
    outside = [np.nextafter(1.0, 2.0), -1.5, 1e308, np.inf, -np.inf]
    np.testing.assert_array_equal(Cosine(d).logpdf(outside), -np.inf)


# --- generating functions ------------------------------------------------------------------------

TINY_ALPHAS = [1e-150, 1e-20, 1e-8]


@pytest.mark.parametrize("d", [1, 2, 3, 64, 1000, 10**6])
@pytest.mark.parametrize("fraction", [*TINY_ALPHAS, 1e-3, 0.1, 0.3, 0.49, 0.7, 0.95, 0.999999])
def test_dot_product_log_mgf_is_within_its_documented_error(d, fraction):
    alpha = fraction * np.sqrt(d)
    value = float(DotProduct(d).log_mgf(alpha))
    with mp.workdps(400):
        x = mp.mpf(alpha) ** 2 / d
        exact = -mp.mpf(d) / 2 * mp.log(1 - x)
        # "A few units of rounding" are 1e-15.
        assert abs(value - exact) * (1 - x) <= 1e-15 * exact


@pytest.mark.parametrize("d", [1, 2, 3, 64, 1000, 10**6])
@pytest.mark.parametrize("fraction", [*TINY_ALPHAS, 1e-3, 0.1, 0.3, 0.45, 0.49, 0.499999])
def test_dot_product_log_mgf_ratio_is_within_its_documented_error(d, fraction):
    alpha = fraction * np.sqrt(d)
    value = float(DotProduct(d).log_mgf_ratio(alpha))
    with mp.workdps(400):
        x = mp.mpf(alpha) ** 2 / d
        exact = -mp.mpf(d) / 2 * (mp.log(1 - 4 * x) - 2 * mp.log(1 - x))
        assert abs(value - exact) * (1 - 4 * x) <= 1e-15 * exact


@pytest.mark.parametrize("law", NORMAL_AND_PRODUCTS, ids=repr)
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.6])
def test_log_mgf_is_the_integral_of_the_exponential(law, fraction):
    alpha = fraction * min(np.sqrt(getattr(law, "d", np.inf)), 3.0)
    integral = expectation(law, lambda s: np.exp(alpha * s))
    assert law.log_mgf(alpha) == pytest.approx(np.log(integral), rel=1e-9)


@pytest.mark.parametrize("law", NORMAL_AND_PRODUCTS, ids=repr)
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.3, 0.45])
def test_log_mgf_ratio_is_the_difference_of_two_log_mgfs(law, fraction):
    alpha = fraction * min(np.sqrt(getattr(law, "d", np.inf)), 3.0)
    difference = law.log_mgf(2.0 * alpha) - 2.0 * law.log_mgf(alpha)
    assert law.log_mgf_ratio(alpha) == pytest.approx(difference, rel=1e-9)


@pytest.mark.parametrize("method", ["log_mgf", "log_mgf_ratio"])
@pytest.mark.parametrize("law", NORMAL_AND_PRODUCTS, ids=repr)
def test_generating_functions_at_alpha_zero_are_zero(law, method):
    assert getattr(law, method)(0.0) == 0.0


@pytest.mark.parametrize("method", ["log_mgf", "log_mgf_ratio"])
@pytest.mark.parametrize("law", NORMAL_AND_PRODUCTS, ids=repr)
def test_generating_functions_work_elementwise(law, method):
    alpha = np.array([[0.0, 0.25, 1.0], [3.0, 1e3, 1e300]])
    values = getattr(law, method)(alpha)
    assert values.shape == alpha.shape
    assert values.dtype == np.float64
    for value, a in zip(values.flat, alpha.flat, strict=True):
        assert value == getattr(law, method)(a)


@pytest.mark.parametrize("root", [1, 2, 3, 8, 16, 1000])
def test_dot_product_generating_functions_are_infinite_exactly_from_their_poles_on(root):
    law = DotProduct(root**2)
    for function, pole in ((law.log_mgf, float(root)), (law.log_mgf_ratio, root / 2.0)):
        assert np.isfinite(function(np.nextafter(pole, 0.0)))
        at_and_beyond = [pole, np.nextafter(pole, np.inf), 2.0 * pole, 1e154, 1e308]
        np.testing.assert_array_equal(function(at_and_beyond), np.inf)


def smallest_float_at_or_beyond_the_root(square):
    root = float(np.sqrt(float(square)))
    return root if Fraction(root) ** 2 >= square else float(np.nextafter(root, np.inf))


def test_poles_are_where_the_root_of_d_is_no_float_either():
    for d in range(1, 2000):
        law = DotProduct(d)
        poles = [
            (law.log_mgf, smallest_float_at_or_beyond_the_root(Fraction(d))),
            (law.log_mgf_ratio, smallest_float_at_or_beyond_the_root(Fraction(d, 4))),
        ]
        for function, pole in poles:
            assert np.isinf(function(pole)), (law, pole)
            assert np.isfinite(function(pole * (1.0 - 4.5e-16))), (law, pole)


@pytest.mark.parametrize("alpha", [0.0, 1e-150, 1e-8, 1 / 3, 1.0, 7.7, 1e10, 1.3e154])
def test_normal_generating_functions_are_exact_to_rounding(alpha):
    square = Fraction(alpha) ** 2
    assert Normal().log_mgf(alpha) == float(square / 2)
    assert Normal().log_mgf_ratio(alpha) == float(square)


def test_normal_generating_functions_are_infinite_where_the_square_overflows():
    assert Normal().log_mgf(1.4e154) == np.inf
    assert Normal().log_mgf_ratio(1.4e154) == np.inf


def test_dot_product_tends_to_normal_as_d_grows():
    alpha = np.array([0.1, 1.0, 3.0])
    law = DotProduct(10**12)
    np.testing.assert_allclose(law.log_mgf(alpha), Normal().log_mgf(alpha), rtol=1e-10)
    np.testing.assert_allclose(law.log_mgf_ratio(alpha), Normal().log_mgf_ratio(alpha), rtol=1e-9)


# --- samples -------------------------------------------------------------------------------------


def explicit_dot_products(rng, d, rows, n):
    """Return q·k/√d for `rows` queries, each with its own n keys."""
    queries = rng.standard_normal((rows, 1, d))
    keys = rng.standard_normal((rows, n, d))
    return (queries * keys).sum(axis=-1) / np.sqrt(d)


def explicit_cosines(rng, d, rows, n):
    """Return q·k/(|q||k|) for `rows` queries, each with its own n keys."""
    queries = rng.standard_normal((rows, 1, d))
    keys = rng.standard_normal((rows, n, d))
    lengths = np.linalg.norm(queries, axis=-1) * np.linalg.norm(keys, axis=-1)
    return (queries * keys).sum(axis=-1) / lengths


def mean_and_standard_error(values):
    """Return mean and standard error of one number a row, the rows being independent."""
    return values.mean(), values.std(ddof=1) / np.sqrt(values.size)


def assert_mean_is(values, expected):
    mean, standard_error = mean_and_standard_error(values)
    z = (mean - expected) / standard_error
    assert abs(z) < FEW_SIGMA, f"{mean:.6g} ± {standard_error:.2g}, expected {expected:.6g}"


def pair_covariance(s, variance):
    """Return an unbiased Cov(s_i², s_j²), i ≠ j, for each row, from all its pairs of scores."""
    excess = s**2 - variance
    n = s.shape[-1]
    return (excess.sum(axis=-1) ** 2 - (excess**2).sum(axis=-1)) / (n * (n - 1))


@pytest.mark.parametrize("law", SEVERAL, ids=repr)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (3, 4)])
def test_sample_has_the_shape_and_type_that_was_asked_for(law, shape):
    sample = law.sample(generator(0), *shape)
    assert sample.shape == shape
    assert sample.dtype == np.float64


@pytest.mark.parametrize("law", SEVERAL, ids=repr)
def test_the_same_seed_gives_the_same_bytes(law):
    first, second = law.sample(generator(4), 5, 6), law.sample(generator(4), 5, 6)
    assert first.tobytes() == second.tobytes()
    assert first.tobytes() != law.sample(generator(5), 5, 6).tobytes()


@pytest.mark.parametrize("law", SEVERAL, ids=repr)
def test_a_generator_moves_on_with_every_sample(law):
    rng = generator(4)
    assert law.sample(rng, 2, 3).tobytes() != law.sample(rng, 2, 3).tobytes()


def fourth_moment(law):
    """Return E s⁴ by hand: 3, 3(1 + 2/d), 3/(d(d + 2))."""
    if isinstance(law, Normal):
        return 3.0
    if isinstance(law, DotProduct):
        return 3.0 * (1.0 + 2.0 / law.d)
    return 3.0 / (law.d * (law.d + 2.0))


@pytest.mark.parametrize("law", SEVERAL, ids=repr)
def test_sample_moments_are_those_of_the_law(law):
    sample = law.sample(generator(31), 100_000, 4)
    assert_mean_is(sample.mean(axis=-1), law.mean)
    assert_mean_is((sample**2).mean(axis=-1), law.variance)
    assert_mean_is((sample**4).mean(axis=-1), fourth_moment(law))


@pytest.mark.parametrize("law", [Normal(), DotProduct(2), DotProduct(8), Cosine(3), Cosine(9)])
def test_sample_follows_the_density(law):
    # Kolmogorov–Smirnov, on one score a row, against the density summed on a fine grid.
    grid = np.linspace(-20.0, 20.0, 200_001) if law.variance == 1.0 else np.linspace(-1, 1, 20_001)
    density = np.exp(law.logpdf(grid))
    steps = np.diff(grid) * (density[1:] + density[:-1]) / 2.0
    distribution = np.append(0.0, np.cumsum(steps))
    sample = law.sample(generator(32), 20_000, 1)[:, 0]
    assert stats.kstest(sample, lambda s: np.interp(s, grid, distribution)).pvalue > 1e-5


@pytest.mark.parametrize("d", [1, 2, 3, 16])
def test_dot_product_sample_is_like_explicit_queries_and_keys(d):
    # One score a row: within a row they are dependent, and the test wants independent ones.
    sample = DotProduct(d).sample(generator(33), 20_000, 3)
    explicit = explicit_dot_products(generator(34), d, 20_000, 3)
    assert stats.ks_2samp(sample[:, 0], explicit[:, 1]).pvalue > 1e-5
    # And one number a row that sees the dependence: the largest of its scores.
    assert stats.ks_2samp(sample.max(axis=-1), explicit.max(axis=-1)).pvalue > 1e-5


@pytest.mark.parametrize("d", [3, 4, 16])
def test_cosine_sample_is_like_explicit_directions(d):
    sample = Cosine(d).sample(generator(35), 20_000, 3)
    explicit = explicit_cosines(generator(36), d, 20_000, 3)
    assert np.abs(sample).max() <= 1.0
    assert stats.ks_2samp(sample[:, 0], explicit[:, 1]).pvalue > 1e-5
    assert stats.ks_2samp(sample.max(axis=-1), explicit.max(axis=-1)).pvalue > 1e-5


@pytest.mark.parametrize("d", [2, 8])
def test_scores_that_share_a_query_have_dependent_squares(d):
    sample = pair_covariance(DotProduct(d).sample(generator(37), 100_000, 4), 1.0)
    explicit = pair_covariance(explicit_dot_products(generator(38), d, 100_000, 4), 1.0)
    for values in (sample, explicit):
        mean, standard_error = mean_and_standard_error(values)
        assert mean > FEW_SIGMA * standard_error
        assert_mean_is(values, 2.0 / d)


@pytest.mark.parametrize("law", [Normal(), Cosine(3), Cosine(8)], ids=repr)
def test_scores_of_normal_and_cosine_rows_have_independent_squares(law):
    # The standard errors are 0.008 and less, in units of Var s: 2/d would be seen.
    sample = law.sample(generator(39), 100_000, 4)
    assert_mean_is(pair_covariance(sample, law.variance) / law.variance**2, 0.0)


def test_explicit_cosines_of_one_query_have_independent_squares():
    sample = explicit_cosines(generator(40), 8, 100_000, 4)
    assert_mean_is(pair_covariance(sample, 1.0 / 8.0) * 64.0, 0.0)


@pytest.mark.parametrize("law", SEVERAL, ids=repr)
def test_scores_of_a_row_and_of_different_rows_are_uncorrelated(law):
    sample = law.sample(generator(41), 100_000, 2)
    assert_mean_is(sample[:, 0] * sample[:, 1] / law.variance, 0.0)
    squares = sample[:, 0] ** 2 - law.variance
    assert_mean_is(squares[::2] * squares[1::2] / law.variance**2, 0.0)


# --- laws as values ------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [Normal(), DotProduct(8), Cosine(8)], ids=repr)
def test_laws_are_frozen(law):
    with pytest.raises(FrozenInstanceError):
        law.d = 4


def test_equal_laws_are_equal_and_hash_alike():
    assert {Normal(): 1, DotProduct(8): 2, Cosine(8): 3} == {
        Cosine(np.int64(8)): 3,
        DotProduct(np.uint8(8)): 2,
        Normal(): 1,
    }
    assert DotProduct(8) != DotProduct(9)
    assert DotProduct(8) != Cosine(8)


def test_the_dimension_is_a_plain_integer():
    for law in (DotProduct(np.int32(8)), Cosine(np.uint16(8))):
        assert type(law.d) is int
        assert law == eval(repr(law), vars(scores))


def test_the_base_of_all_laws_is_no_law():
    with pytest.raises(TypeError, match="abstract"):
        Law()


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_mean_and_variance_are_plain_floats(law):
    assert type(law.mean) is float
    assert type(law.variance) is float


# --- moments of a product ------------------------------------------------------------------------

# Laws that are not normal, skewed and not centred: {value: probability}, added up exactly.
COIN = {Fraction(0): Fraction(1, 3), Fraction(1): Fraction(2, 3)}
SKEWED = {Fraction(-2): Fraction(1, 2), Fraction(1): Fraction(1, 4), Fraction(7): Fraction(1, 4)}
CENTRED = {Fraction(-1): Fraction(3, 4), Fraction(3): Fraction(1, 4)}
CONSTANT = {Fraction(-5): Fraction(1)}


def discrete_moments(law):
    mean = sum(value * chance for value, chance in law.items())
    return mean, sum((value - mean) ** 2 * chance for value, chance in law.items())


def product_law(law_q, law_k):
    law = {}
    for (q, chance_q), (k, chance_k) in itertools.product(law_q.items(), law_k.items()):
        law[q * k] = law.get(q * k, 0) + chance_q * chance_k
    return law


@pytest.mark.parametrize(
    ("law_q", "law_k"), [*itertools.product([COIN, SKEWED, CENTRED, CONSTANT], repeat=2)]
)
def test_moments_of_a_product_are_those_found_by_adding_up_all_cases(law_q, law_k):
    mean, variance = discrete_moments(product_law(law_q, law_k))
    arguments = map(float, (*discrete_moments(law_q), *discrete_moments(law_k)))
    moments = scores.product_moments(*arguments)
    assert moments.mean == pytest.approx(float(mean), rel=1e-15, abs=1e-300)
    assert moments.variance == pytest.approx(float(variance), rel=1e-15, abs=1e-300)


def test_moments_of_a_product_agree_with_simulated_exponential_and_uniform_variables():
    rng = generator(50)
    q, k = rng.exponential(2.0, size=1_000_000), rng.uniform(-1.0, 3.0, size=1_000_000)
    moments = scores.product_moments(2.0, 4.0, 1.0, 16.0 / 12.0)
    assert_mean_is(q * k, float(moments.mean))
    assert_mean_is((q * k - float(moments.mean)) ** 2, float(moments.variance))


def test_variance_of_a_product_is_the_product_of_variances_only_without_means():
    assert scores.product_moments(0.0, 3.0, 0.0, 5.0).variance == 15.0
    assert scores.product_moments(1.0, 3.0, 0.0, 5.0).variance == 20.0
    assert scores.product_moments(0.0, 3.0, 2.0, 5.0).variance == 27.0


def test_moments_of_a_product_broadcast():
    mean_q, variance_q = np.array([0.0, 1.0, -2.0]), np.array([[1.0], [4.0]])
    moments = scores.product_moments(mean_q, variance_q, 3.0, 0.5)
    assert moments.variance.shape == (2, 3)
    for (i, j), variance in np.ndenumerate(moments.variance):
        single = scores.product_moments(mean_q[j], variance_q[i, 0], 3.0, 0.5)
        assert variance == single.variance
        assert np.broadcast_to(moments.mean, (2, 3))[i, j] == single.mean


def test_mean_and_variance_of_a_product_have_the_same_shape():
    moments = scores.product_moments(1.0, np.ones((2, 3)), 3.0, 0.5)
    assert moments.mean.shape == moments.variance.shape == (2, 3)


def test_a_variance_small_against_the_mean_is_not_lost():
    # (σ² + μ²)² − μ⁴ in floating point would be 0 here.
    moments = scores.product_moments(1e8, 1e-8, 1e8, 1e-8)
    assert moments.variance == pytest.approx(2e8, rel=1e-15)


def test_a_constant_of_any_size_times_a_constant_has_variance_zero():
    constant_q, constant_k = [2.0**1000, -1e308, 1e200], [2.0**-1000, 1e308, 1e200]
    moments = scores.product_moments(constant_q, 0.0, constant_k, 0.0)
    np.testing.assert_array_equal(moments.variance, 0.0)
    np.testing.assert_array_equal(moments.mean, [1.0, -np.inf, np.inf])


def test_a_huge_mean_times_a_tiny_variance_stays_a_number():
    moments = scores.product_moments(1e200, 0.0, 0.0, 1e-300)
    assert moments.mean == 0.0
    assert moments.variance == pytest.approx(1e100, rel=1e-15)


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


COSINE_DIMENSIONS = [3, 4, 5, 7, 16, 51, 52, 53, 128, 1000, 10**6]


@pytest.mark.parametrize("d", COSINE_DIMENSIONS)
def test_cosine_log_mgf_is_within_its_documented_error(d):
    edge = 2.0 * np.sqrt(d)  # where the series hands over
    scattered = [1e-150, 1e-8, 1e-3, 0.1, 1.0, 7.0, 30.0, 300.0, 3000.0]
    for alpha in [*scattered, edge, np.nextafter(edge, np.inf), edge / 2.0]:
        found = Cosine(d).log_mgf(alpha)
        with mp.workdps(400 if alpha < 1e-3 else 50):
            assert mp.fabs(found / exact_cosine_log_mgf(d, alpha) - 1) < 1e-12, alpha


@pytest.mark.parametrize("d", COSINE_DIMENSIONS)
def test_cosine_log_mgf_ratio_is_within_its_documented_error(d):
    edge = np.sqrt(d)
    scattered = [0.0, 1e-8, 0.1, 1.0, 7.0, 30.0, 300.0, 1500.0]
    for alpha in [*scattered, edge, np.nextafter(edge, np.inf)]:
        found = Cosine(d).log_mgf_ratio(alpha)
        with mp.workdps(50):
            double, single = (exact_cosine_log_mgf(d, c * mp.mpf(alpha)) for c in (2, 1))
            exact = double - 2 * single
            assert mp.fabs(found - exact) < 1e-12 * (1 + mp.fabs(exact)), alpha


@pytest.mark.parametrize("alpha", [1e5, 1e9, 1e12])
@pytest.mark.parametrize("d", [3, 5, 7])
def test_cosine_in_odd_dimensions_is_elementary(d, alpha):
    with mp.workdps(60):
        a = mp.mpf(alpha)
        tanh = mp.tanh(a)
        # E e^{αs}/cosh α for d = 3, 5, 7
        mean = {
            3: tanh / a,
            5: 3 * (a - tanh) / a**3,
            7: 15 * ((a**2 + 3) * tanh - 3 * a) / a**5,
        }[d]
        exact = a + mp.log1p(mp.exp(-2 * a)) - mp.log(2) + mp.log(mean)
        assert mp.fabs(Cosine(d).log_mgf(alpha) / exact - 1) < 1e-15
        deficit = Cosine(d).log_mgf_derivatives(alpha).deficit
        assert mp.fabs(deficit - (a - exact)) < 1e-12 * (1 + a - exact)


@pytest.mark.parametrize("d", COSINE_DIMENSIONS)
def test_cosine_derivatives_at_zero_are_its_moments(d):
    at = Cosine(d).log_mgf_derivatives(0.0)
    assert (at.deficit, at.first, at.first_complement) == (0.0, 0.0, 1.0)
    assert at.second == pytest.approx(1.0 / d, rel=1e-15)
    assert Cosine(d).log_mgf(0.0) == 0.0


@pytest.mark.parametrize("d", [3, 8, 52, 300])
@pytest.mark.parametrize("alpha", [0.3, 5.0, 40.0])
def test_cosine_log_mgf_is_the_integral(d, alpha):
    law = Cosine(d)
    mean, _ = quad(
        lambda s: np.exp(alpha * (s - 1.0) + law.logpdf(s)),
        -1.0,
        1.0,
        epsabs=0.0,
        epsrel=1e-12,
        limit=200,
    )
    assert law.log_mgf(alpha) == pytest.approx(alpha + np.log(mean), rel=1e-9)


def test_cosine_log_mgf_is_finite_and_convex_over_its_range():
    alpha = np.concatenate([[0.0], np.geomspace(1e-12, 1e12, 2000)])
    for d in COSINE_DIMENSIONS:
        law = Cosine(d)
        value, at = law.log_mgf(alpha), law.log_mgf_derivatives(alpha)
        assert np.isfinite(value).all()
        assert (np.diff(value) >= 0.0).all()
        assert (np.diff(at.first) >= -1e-15).all()
        assert (at.second >= 0.0).all()
        assert np.isfinite(law.log_mgf_ratio(alpha)).all()


@pytest.mark.parametrize("d", [3, 52, 1000])
def test_cosine_is_finite_up_to_the_largest_float(d):
    law, largest = Cosine(d), np.finfo(float).max
    alpha = np.array([1e200, largest / 2.0, largest / 1.9, largest])
    assert np.isfinite(law.log_mgf(alpha)).all()
    # κ(2α) − 2κ(α) grows by ½(d − 1) log 2 with each doubling of a large α
    slope = np.diff(law.log_mgf_ratio(alpha)) / np.diff(np.log(alpha))
    np.testing.assert_allclose(slope, 0.5 * (d - 1), rtol=1e-10)


@pytest.mark.parametrize("d", [52, 10**6])
@pytest.mark.parametrize("share", [2.5, 3.9])
def test_cosine_log_mgf_is_right_where_its_series_no_longer_is(d, share):
    # 30 terms of the series are off by 1e-7 of it at α = 3.9√d.
    alpha = share * np.sqrt(d)
    with mp.workdps(50):
        assert mp.fabs(Cosine(d).log_mgf(alpha) / exact_cosine_log_mgf(d, alpha) - 1) < 1e-12
