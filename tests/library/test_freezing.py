"""The limit of many keys against a quadrature of its own, simulation, mpmath and closed forms.

`by_quadrature` shares nothing with the library: it follows the Laplace transform of e^{αs} up to
n = 1e200, which slow convergence in log n needs.
"""

from functools import cache

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from attnlib import annealed, freezing, rows, scores

KEYS = [1, 2, 3, 16, 512, 4096, 10**6, 10**12]


@cache
def by_quadrature(alpha, log_n):
    """Return E Σp² and E log Σe^{αs} for n normal scores.

    With λ = e^{−u}, φ(u) = E exp(−e^{αs−u}) and A(u) = E e^{2(αs−u)} exp(−e^{αs−u}):
    E Σp² = n ∫ A φ^{n−1} du, and φ^n is the distribution function of log Z plus a Gumbel variable.
    """
    critical = np.sqrt(2 * log_n)
    step = min(0.1, 0.3 / alpha)
    s = np.arange(-12, critical + 14, step)
    log_weight = -s * s / 2 - np.log(2 * np.pi) / 2 + np.log(step)
    # where log Z is: up to α² / 2 above log n, at the largest score beyond
    middle = log_n + alpha**2 / 2 if alpha < critical else alpha * critical
    u = np.arange(middle - 12 * alpha - 40, max(middle, alpha * (critical + 12)) + 60, 0.2)
    collision, missing = np.empty_like(u), np.empty_like(u)
    for block in np.array_split(np.arange(u.size), 1 + u.size * s.size // 10**6):
        exponent = np.minimum(alpha * s - u[block, None], 700)
        power = np.exp(exponent)
        collision[block] = np.exp(log_n + log_weight + 2 * exponent - power).sum(axis=1)
        missing[block] = (np.exp(log_weight) * -np.expm1(-power)).sum(axis=1)
    with np.errstate(divide="ignore"):
        log_cdf = np.log1p(-np.minimum(missing, 1))
    mean = 0.2 * (collision * np.exp((np.exp(log_n) - 1) * log_cdf)).sum()
    gumbel = np.exp(-np.exp(np.minimum(middle - u, 700)))
    return mean, middle + 0.2 * (gumbel - np.exp(np.exp(log_n) * log_cdf)).sum()


def exact(alpha, log_n):
    """Return E Σp², the mean gradient, the free energy and the mean entropy, Φ − αΦ'."""
    collision, free_energy = by_quadrature(alpha, log_n)
    gradient = alpha * (1 - collision)
    return collision, gradient, free_energy, free_energy - alpha * gradient


# --- the quadrature itself -----------------------------------------------------------------------


def test_the_quadrature_knows_two_keys():
    # p = σ(α δ) with δ ~ N(0, 2): a single integral
    def collision(gap):
        p = 1 / (1 + np.exp(-1.5 * gap))
        return (p**2 + (1 - p) ** 2) * stats.norm.pdf(gap, scale=np.sqrt(2))

    found = by_quadrature(1.5, np.log(2))[0]
    assert found == pytest.approx(integrate.quad(collision, -30, 30, epsabs=1e-13)[0], rel=1e-9)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 2.4, 3.5, 6.0])
def test_the_quadrature_agrees_with_simulation(alpha):
    s = scores.Normal().sample(np.random.default_rng(7), 4000, 512)
    p = rows.softmax(s, alpha)
    y = rows.collision_probability(p)
    collision, _, _, entropy = exact(alpha, np.log(512))
    double, single = by_quadrature(2 * alpha, np.log(512))[1], by_quadrature(alpha, np.log(512))[1]
    for values, mean in (
        (y, collision),
        (rows.shannon_entropy(p), entropy),
        (np.log(y), double - 2 * single),  # E log Y = Φ(2α) − 2Φ(α)
    ):
        assert abs(values.mean() - mean) < 4.5 * values.std() / np.sqrt(values.size)


# --- scales --------------------------------------------------------------------------------------


def test_the_three_scales_are_the_critical_one_over_1_2_and_root_3():
    n = np.array([1, 2, 4096, 1e300])
    np.testing.assert_allclose(freezing.critical_alpha(n) ** 2, 2 * np.log(n), rtol=1e-15)
    np.testing.assert_allclose(freezing.annealed_typical_bound(n) ** 2, np.log(n) / 2, rtol=1e-14)
    np.testing.assert_allclose(freezing.annealed_mean_bound(n) ** 2, 2 * np.log(n) / 3, rtol=1e-14)


@pytest.mark.parametrize("n", [2, 3, 10, 1000, 10**6, 10**9])
def test_the_largest_score_lies_below_the_critical_scale_and_approaches_it(n):
    def density(s):
        return s * n * stats.norm.pdf(s) * np.exp((n - 1) * stats.norm.logcdf(s))

    largest = integrate.quad(density, -12, 12, points=[0, 2, 4, 6], limit=200)[0]
    critical = freezing.critical_alpha(n)
    assert largest < critical
    # the classical expansion: α_c − (log log n + log 4π)/(2α_c) + γ/α_c + …
    if n >= 1000:
        first = (np.log(np.log(n)) + np.log(4 * np.pi) - 2 * np.euler_gamma) / (2 * critical)
        assert largest == pytest.approx(critical - first, rel=0.02)


def test_dot_products_freeze_as_normal_scores_do():
    n = np.array([1, 2, 200, 10**9])
    for law in (scores.Normal(), scores.DotProduct(8)):
        np.testing.assert_array_equal(freezing.critical_alpha(n, law), freezing.critical_alpha(n))


@pytest.mark.parametrize("n", [2, 100, 2000])
def test_the_critical_scale_of_cosines_in_three_dimensions(n):
    # There κ(α) = log(sinh α/α), and ακ' − κ = α coth α − 1 − log(sinh α/α).
    alpha = mp.mpf(float(freezing.critical_alpha(n, scores.Cosine(3))))
    found = alpha * mp.coth(alpha) - 1 - mp.log(mp.sinh(alpha) / alpha)
    assert float(found) == pytest.approx(np.log(n), rel=1e-11)


def test_the_critical_scale_of_cosines_is_the_normal_one_in_many_dimensions():
    found = freezing.critical_alpha([1, 2, 512], scores.Cosine(10**6)) / 1000
    np.testing.assert_allclose(found, freezing.critical_alpha([1, 2, 512]), rtol=1e-5)


def test_the_critical_scale_names_what_is_wrong():
    with pytest.raises(TypeError, match="law must be"):
        freezing.critical_alpha(512, "normal")
    for law in (scores.Normal(), scores.Cosine(8), scores.DotProduct(8)):
        assert freezing.critical_alpha(1, law) == 0.0
        for n in (0, -3, np.nan, "4"):
            with pytest.raises((ValueError, TypeError), match="n must"):
                freezing.critical_alpha(n, law)


# --- bounds for every n --------------------------------------------------------------------------

SCALES = [0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 9.0]


@pytest.mark.parametrize("n", KEYS[1:])
@pytest.mark.parametrize("alpha", SCALES)
def test_every_limit_is_a_bound_for_every_n(alpha, n):
    collision, gradient, free_energy, entropy = exact(alpha, np.log(n))
    slack = 1e-9
    assert freezing.collision_probability(alpha, n) <= collision * (1 + slack)
    assert freezing.gradient(alpha, n) >= gradient * (1 - slack)
    assert freezing.free_energy(alpha, n) >= free_energy * (1 - slack)
    assert freezing.entropy(alpha, n) <= entropy + slack * free_energy


@pytest.mark.parametrize("n", KEYS[1:])
@pytest.mark.parametrize("alpha", SCALES)
def test_the_entropy_exceeds_its_parabola_by_between_a_half_and_one_times_alpha_squared_collision(
    alpha, n
):
    collision, _, _, entropy = exact(alpha, np.log(n))
    excess = (entropy - np.log(n) + alpha**2 / 2) / (alpha**2 * collision)
    slack = 1e-9 * np.log(n) / (alpha**2 * collision)
    assert 0.5 - slack <= excess <= 1 + slack


@pytest.mark.parametrize("alpha", [0.0, 0.3, 5.0, 1e6])
def test_one_key_and_no_scale_are_exact(alpha):
    assert freezing.collision_probability(alpha, 1) == pytest.approx(1.0, rel=1e-12)
    assert freezing.gradient(alpha, 1) == 0.0
    assert freezing.entropy(alpha, 1) == 0.0
    for n in KEYS:
        assert freezing.collision_probability(0.0, n) == pytest.approx(1 / n, rel=1e-12)
        assert freezing.gradient(0.0, n) == 0.0
        assert freezing.free_energy(0.0, n) == freezing.entropy(0.0, n) == np.log(n)


# --- convergence with n --------------------------------------------------------------------------

LOG_SIZES = [np.log(512), np.log(1e6), np.log(1e20), np.log(1e100)]


def errors_by_n(function, quantity, x, log_sizes=LOG_SIZES):
    """Return exact/limit − 1 for each n, at α = x α_c."""
    found = []
    for log_n in log_sizes:
        n = np.exp(log_n)
        alpha = x * float(freezing.critical_alpha(n))
        found.append(exact(alpha, log_n)[quantity] / float(function(alpha, n)) - 1)
    return np.abs(found)


@pytest.mark.parametrize("x", [0.3, 0.5, 0.7, 0.85, 1.3, 1.6, 2.5])
@pytest.mark.parametrize(
    ("function", "quantity"),
    [(freezing.collision_probability, 0), (freezing.gradient, 1), (freezing.free_energy, 2)],
)
def test_the_exact_value_approaches_the_limit(function, quantity, x):
    error = errors_by_n(function, quantity, x)
    assert (np.diff(error) < 1e-9).all()
    # Below α_c by a power of n; above like log log n / log n, which is 0.024 at 1e100.
    assert error[-1] < (max(1e-9, 1e100 ** -((1 - x) ** 2)) if x < 1 else 0.04)


@pytest.mark.parametrize("x", [0.3, 0.5, 0.7])
def test_the_entropy_approaches_its_parabola(x):
    for log_n, allowed in ((np.log(1e20), 0.02), (np.log(1e100), 1e-8)):
        alpha = x * np.sqrt(2 * log_n)
        limit = float(freezing.entropy(alpha, np.exp(log_n)))
        assert exact(alpha, log_n)[3] - limit == pytest.approx(0.0, abs=allowed)


@pytest.mark.parametrize("x", [1.5, 2.0, 3.0])
def test_the_frozen_entropy_is_approached_from_below(x):
    limit = float(freezing.frozen_entropy(x))
    gaps = [limit - exact(x * np.sqrt(2 * log_n), log_n)[3] for log_n in LOG_SIZES]
    assert (np.diff(gaps) < 0).all()
    assert 0 < gaps[-1] < 0.05 * limit


@pytest.mark.parametrize("log_n", LOG_SIZES[1:])
def test_annealed_and_exact_part_at_the_mean_bound(log_n):
    """The ratio at α_c/√3 is ½ − 1/(α√(2π)) + …, hence well below ½ for any n in use."""
    alpha = float(freezing.annealed_mean_bound(np.exp(log_n)))
    ratio = by_quadrature(alpha, log_n)[0] / float(
        annealed.collision_probability(scores.Normal(), alpha, np.exp(log_n))
    )
    correction = 1 / (alpha * np.sqrt(2 * np.pi))
    assert ratio == pytest.approx(0.5 - correction, abs=1.5 * correction**2)


@pytest.mark.parametrize(("x", "limit"), [(0.4, 1.0), (0.55, 1.0), (0.62, 0.0), (0.8, 0.0)])
def test_the_ratio_of_exact_to_annealed_goes_to_one_or_to_zero(x, limit):
    distance = []
    for log_n in (np.log(512), np.log(1e20), np.log(1e100), np.log(1e200)):
        alpha = x * np.sqrt(2 * log_n)
        ratio = by_quadrature(alpha, log_n)[0] * np.exp(log_n - alpha**2)
        distance.append(abs(ratio - limit))
    assert (np.diff(distance) < 1e-12).all()
    assert distance[-1] < 0.05


def test_at_the_critical_scale_the_mean_is_one_over_the_root_of_pi_log_n():
    found = [
        by_quadrature(np.sqrt(2 * log_n), log_n)[0] * np.sqrt(np.pi * log_n) for log_n in LOG_SIZES
    ]
    assert (np.diff(found) < 0).all()
    assert found[-1] == pytest.approx(1.0, abs=0.025)
    bound = float(freezing.collision_probability(np.sqrt(2 * LOG_SIZES[-1]), 1e100))
    assert bound * np.sqrt(np.pi * LOG_SIZES[-1]) == pytest.approx(0.5, abs=0.01)


# --- one key against the crowd -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "n"),
    [(0.01, 2), (1, 2), (1, 512), (2.2, 512), (3, 4096), (6, 1e9), (30, 1e300), (37, 1e308)],
)
def test_the_crowd_is_integrated_to_1e_11(alpha, n):
    with mp.workdps(30):
        alpha, n = mp.mpf(alpha), mp.mpf(n)
        crowd = mp.log(n - 1) + alpha**2 / 2

        def integrand(s):
            return n * mp.npdf(s) / (1 + mp.exp(crowd - alpha * s)) ** 2

        centre = min(2 * alpha, crowd / alpha)
        reference = mp.quad(integrand, [centre + d for d in (-16, -8, -3, -1, 0, 1, 3, 8, 16)])
        found = freezing.collision_probability(float(alpha), float(n))
        assert mp.fabs(found / reference - 1) < 1e-11


@pytest.mark.parametrize("x", [0.65, 0.75, 0.9, 0.97])
def test_between_the_bounds_the_crowd_follows_its_closed_form(x):
    """n^{−τ} πδ/(α√(2π) sin πδ): relative corrections are of order 1/α²."""
    n = 1e300
    alpha = x * float(freezing.critical_alpha(n))
    delta = np.log(n) / alpha**2 - 0.5
    power = np.exp(-float(freezing.collision_exponent(x)) * np.log(n))
    closed = power * np.pi * delta / np.sin(np.pi * delta) / (alpha * np.sqrt(2 * np.pi))
    assert freezing.collision_probability(alpha, n) == pytest.approx(closed, rel=0.02)


# --- exponents -----------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [0.2, 0.5, 0.7, 0.8, 0.9, 1.4])
def test_the_exponent_is_the_slope_of_the_exact_mean(x):
    """Between the bounds E Σp² has the factor 1/α besides the power, hence ½ log log n."""
    sizes = np.log([1e100, 1e200]) if x > 0.5 else np.log([1e20, 1e40])
    first, second = (np.log(by_quadrature(x * np.sqrt(2 * size), size)[0]) for size in sizes)
    prefactor = 0.5 * np.log(sizes[1] / sizes[0]) if 3**-0.5 < x < 1 else 0.0
    slope = -(second - first + prefactor) / (sizes[1] - sizes[0])
    assert slope == pytest.approx(float(freezing.collision_exponent(x)), abs=5e-4)


@pytest.mark.parametrize("x", [0.2, 0.4, 0.6, 0.75, 0.9, 1.2])
def test_the_typical_exponent_is_the_slope_of_the_exact_mean_logarithm(x):
    """Each frozen free energy Φ(α) = αα_c − (α/α_c)·½ log log n + … leaves a logarithm."""

    def corrected(log_n):
        alpha = x * np.sqrt(2 * log_n)
        mean_log = by_quadrature(2 * alpha, log_n)[1] - 2 * by_quadrature(alpha, log_n)[1]
        frozen = (2 * x if 2 * x > 1 else 0.0) - (2 * x if x > 1 else 0.0)
        return mean_log + frozen * np.log(log_n) / 2

    first, second = corrected(np.log(1e50)), corrected(np.log(1e100))
    slope = -(second - first) / np.log(1e50)
    assert slope == pytest.approx(float(freezing.typical_collision_exponent(x)), abs=2e-3)


def test_the_exponents_are_continuous_and_ordered():
    x = np.linspace(0, 1.5, 30_001)
    mean, typical = freezing.collision_exponent(x), freezing.typical_collision_exponent(x)
    assert (typical >= mean - 1e-15).all()
    assert (mean >= 1 - 2 * x**2 - 1e-15).all()
    assert np.abs(np.diff(mean, 2)).max() < 1e-7  # the slope is continuous too
    assert np.abs(np.diff(typical, 2)).max() < 1e-7
    assert (np.diff(mean) <= 1e-15).all()
    assert mean[0] == typical[0] == 1.0


# --- the frozen phase ----------------------------------------------------------------------------


@pytest.mark.parametrize("x", [1.0001, 1.3, 3.9, 4.1, 1e3, 1e9])
def test_the_frozen_entropy_is_exact_to_1e_13(x):
    with mp.workdps(40):
        reference = mp.digamma(1) - mp.digamma(1 - 1 / mp.mpf(x))
        assert mp.fabs(freezing.frozen_entropy(x) / reference - 1) < 1e-13


@pytest.mark.parametrize("x", [1.5, 2.0, 4.0])
def test_frozen_weights_are_those_of_a_poisson_process(x):
    """Scores near the top are a Poisson process: e^{αs} are Γ_j^{−x} with Γ_j its arrival times."""
    arrivals = np.cumsum(np.random.default_rng(3).exponential(size=(4000, 500)), axis=1)
    points, last = arrivals**-x, arrivals[:, -1]
    # The later points are many and small: put their means given the last arrival in their place.
    rest = last ** (1 - x) / (x - 1)
    rest_of_entropy = x * rest * (np.log(last) + 1 / (x - 1))  # −Σ w log w
    total = points.sum(axis=1) + rest
    collision = (points**2).sum(axis=1) / total**2
    entropy = (rest_of_entropy - (points * np.log(points)).sum(axis=1)) / total + np.log(total)
    for values, limit in ((collision, 1 - 1 / x), (entropy, freezing.frozen_entropy(x))):
        assert abs(values.mean() - limit) < 4.5 * values.std() / np.sqrt(values.size)


# --- arguments -----------------------------------------------------------------------------------

OF_BOTH = [
    freezing.gradient,
    freezing.free_energy,
    freezing.entropy,
    freezing.collision_probability,
]
OF_X = [freezing.collision_exponent, freezing.typical_collision_exponent]


def test_everything_broadcasts():
    alpha, n = np.array([[0.0], [1.0], [20.0]]), np.array([1, 2, 512, 10**9])
    for function in OF_BOTH:
        values = function(alpha, n)
        assert values.shape == (3, 4)
        single = [[float(function(a, m)) for m in n] for a in alpha[:, 0]]
        np.testing.assert_allclose(values, single, rtol=1e-12)
        assert function([], 2).shape == (0,)
    assert freezing.critical_alpha(n[None]).shape == (1, 4)


@pytest.mark.parametrize("x", [1.0, 0.5, [2.0, 1.0]])
def test_the_frozen_entropy_wants_an_x_above_one(x):
    with pytest.raises(ValueError, match="x must be above 1, got x="):
        freezing.frozen_entropy(x)


@given(
    alpha=st.floats(0.0, allow_infinity=False, allow_nan=False),
    n=st.one_of(st.integers(1, 10**15).map(float), st.floats(1.0, 1.7e308)),
)
def test_whatever_is_accepted_gives_numbers_in_range(alpha, n):
    collision = freezing.collision_probability(alpha, n)
    assert 0 < collision <= 1 + 1e-9
    assert 0 <= freezing.gradient(alpha, n) <= alpha
    assert 0 <= freezing.entropy(alpha, n) <= np.log(n)
    assert freezing.free_energy(alpha, n) >= np.log(n)


@given(x=st.floats(0.0, allow_infinity=False, allow_nan=False))
def test_whatever_x_is_accepted_gives_exponents_between_zero_and_one(x):
    for function in OF_X:
        assert 0.0 <= function(x) <= 1.0
    if x > 1.0:
        assert 0.0 <= freezing.frozen_entropy(x) < np.inf
