"""What typical rows do: against integrals by mpmath, brute force, plain NumPy and repeated runs."""

from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gamma, kv, ndtri

from attnlib import exact, rows, sampling, typical
from attnlib.scores import Cosine, DotProduct, Normal
from tests.library.test_bad_input import assert_all_refused, assert_refused

LAWS = [Normal(), Cosine(3), Cosine(128), DotProduct(1), DotProduct(64)]
OPTIMA = ["geometric_mean", "median", "row"]


@dataclass(frozen=True)
class Own:
    """Normal scores of any scale and mean, which the library cannot know by quadrature."""

    scale: float = 1.0
    mean: float = 0.0

    def sample(self, rng, rows, n):
        return self.mean + self.scale * rng.standard_normal((rows, n))


@dataclass(frozen=True)
class Fixed:
    """The same row again and again."""

    row: tuple[float, ...]

    def sample(self, rng, rows, n):
        return np.tile(np.array(self.row), (rows, 1))


def gap_density(law, gap):
    """Return the density of |s₁ − s₂|, from the textbook formulas."""
    if isinstance(law, Normal):
        return np.exp(-(gap**2) / 4) / np.sqrt(np.pi)
    if law.d == 2:  # Laplace's law
        return np.exp(-gap)
    # The difference is √(2/d) times a sum of d products of normal variables: a Bessel law.
    order, x = (law.d - 1) / 2, gap * np.sqrt(law.d / 2)
    at_zero = order > 1 and x < 1e-4  # where K overflows
    bessel = gamma(order) / 2 if at_zero else (x / 2) ** order * kv(order, x)
    return np.sqrt(2 * law.d) * bessel / (np.sqrt(np.pi) * gamma(law.d / 2))


def over_gaps(law, function):
    ends = [1e-18, 1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2, 0.1, 0.5, 1, 2, 4, 8, 16, 40]
    pieces = [
        quad(lambda x: function(x) * gap_density(law, x), *ends[i : i + 2], epsrel=1e-12)[0]
        for i in range(len(ends) - 1)
    ]
    return sum(pieces)


def log_gradient_of_two(alpha, gap):
    return np.log(alpha / 2) - 2 * np.log(np.cosh(alpha * gap / 2))


# --- two keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [Normal(), DotProduct(1), DotProduct(2), DotProduct(64)])
@pytest.mark.parametrize("alpha", [0.01, 1.0, 7.0, 30.0])
def test_two_keys_against_quadrature(law, alpha):
    assert over_gaps(law, lambda x: 1.0) == pytest.approx(1.0, abs=2e-11)
    logs = over_gaps(law, lambda x: log_gradient_of_two(alpha, x))
    mean = over_gaps(law, lambda x: np.exp(log_gradient_of_two(alpha, x)))
    found = typical.gradient(law, alpha, 2)
    assert np.log(found.value) == pytest.approx(logs, rel=1e-10, abs=1e-10)
    assert found.standard_error == 0.0
    assert typical.gradient(law, alpha, 2, "mean").value == pytest.approx(mean, rel=1e-10)


def test_the_mean_of_two_keys_tends_to_the_density_of_ties():
    # E g → ½ · 2 · density of |δ| at 0 / 2 · ∫ sech² = 1/√π, which is E max of two normal scores
    found = typical.gradient(Normal(), [1e3, 1e6, 1e12, 1e100], 2, "mean").value
    np.testing.assert_allclose(found, 1 / np.sqrt(np.pi), rtol=1e-5)
    np.testing.assert_allclose(found[1:], 1 / np.sqrt(np.pi), rtol=1e-10)


@pytest.mark.parametrize("law", [Normal(), DotProduct(1), DotProduct(64)])
def test_the_best_geometric_mean_of_two_keys_against_quadrature(law):
    def slope(alpha):
        return 1 / alpha - over_gaps(law, lambda x: x * np.tanh(alpha * x / 2))

    found = typical.best_alpha(law, 2)
    root = brentq(slope, 0.9 * found.value, 1.1 * found.value, xtol=1e-12)
    assert found == (pytest.approx(root, rel=1e-9), 0.0)


def test_the_median_of_two_keys_by_hand():
    # The median gap is √2 · 0.6745, and (α/2)/cosh²(αδ/2) is largest where x tanh x = ½, x = αδ/2.
    gap = np.sqrt(2) * ndtri(0.75)
    x = float(mp.findroot(lambda x: x * mp.tanh(x) - 0.5, 0.8))
    for statistic in ("median", "row"):
        found = typical.best_alpha(Normal(), 2, statistic)
        assert found == (pytest.approx(2 * x / gap, rel=1e-14), 0.0)
    alpha = np.array([0.5, 2.0, 9.0])
    found = typical.gradient(Normal(), alpha, 2, "median")
    np.testing.assert_allclose(found.value, alpha / 2 / np.cosh(alpha * gap / 2) ** 2, rtol=1e-13)
    assert (x / np.cosh(x) ** 2) > typical.PEAK


@pytest.mark.parametrize("statistic", ["geometric_mean", "median", "mean"])
def test_simulation_of_two_keys_agrees_with_the_integral(statistic):
    alpha = np.array([[0.3, 1.0], [4.0, 20.0]])
    known = typical.gradient(Normal(), alpha, 2, statistic)
    found = typical.gradient(Own(), alpha, 2, statistic, rows=100_000, seed=1)
    assert known.value.shape == found.value.shape == (2, 2)
    assert (found.standard_error > 0.0).all()
    assert (np.abs(found.value - known.value) < 4.5 * found.standard_error).all()


@pytest.mark.parametrize("statistic", OPTIMA)
def test_simulated_optima_of_two_keys_agree_with_the_exact_ones(statistic):
    known = typical.best_alpha(Normal(), 2, statistic).value
    found = typical.best_alpha(Own(), 2, statistic, rows=40_000, seed=1)
    assert 0.0 < found.standard_error < 0.03
    assert abs(found.value - known) < 4.5 * found.standard_error


# --- many keys -----------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("n", [3, 40])
def test_gradients_against_plain_numpy(law, n):
    alpha = np.array([0.5, 2.0, 6.0]) / np.sqrt(law.variance)
    s = law.sample(np.random.default_rng(77), 20_000, n)
    g = np.stack([rows.gradient(s, a) for a in alpha])  # another formula, which is tested elsewhere
    noise = 1.0 / np.sqrt(g.shape[1])
    median, rounding = np.median(g, axis=1), 2.0**-14 / np.sqrt(12)
    density = 0.1 / (np.quantile(g, 0.55, axis=1) - np.quantile(g, 0.45, axis=1))
    geometric = np.exp(np.log(g).mean(axis=1))
    for statistic, plain, error in (
        ("mean", g.mean(axis=1), g.std(axis=1) * noise),
        ("geometric_mean", geometric, geometric * np.log(g).std(axis=1) * noise),
        ("median", median, np.hypot(0.5 * noise / density, rounding * median)),
    ):
        found = typical.gradient(law, alpha, n, statistic, rows=20_000, seed=5)
        np.testing.assert_allclose(found.standard_error, error, rtol=0.25)
        difference = np.abs(found.value - plain)
        assert (difference < 4.5 * np.hypot(found.standard_error, error)).all()


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_mean_agrees_with_the_exact_one(law):
    alpha = np.array([0.5, 2.0, 6.0]) / np.sqrt(law.variance)
    found = typical.gradient(law, alpha, 30, "mean", rows=20_000, seed=1)
    difference = np.abs(found.value - exact.gradient(law, alpha, 30))
    assert (difference < 4.5 * found.standard_error).all()


def test_every_alpha_sees_the_same_rows():
    together = typical.gradient(Normal(), [1.0, 3.0], 20, rows=500, seed=2)
    apart = [typical.gradient(Normal(), alpha, 20, rows=500, seed=2) for alpha in (1.0, 3.0)]
    np.testing.assert_allclose(together.value, [e.value for e in apart], rtol=1e-14)


@pytest.mark.parametrize("statistic", ["geometric_mean", "median", "mean"])
@pytest.mark.parametrize("law", [Normal(), DotProduct(8), Cosine(8)], ids=repr)
def test_no_gradient_at_alpha_zero_or_of_one_key(law, statistic):
    for n in (1, 2, 5):
        assert typical.gradient(law, 0.0, n, statistic, rows=100) == (0.0, 0.0)
    for alpha in (1e-300, 1.0, 1e300):
        assert typical.gradient(law, alpha, 1, statistic, rows=100) == (0.0, 0.0)
    frozen = typical.gradient(law, 1e300, 5, statistic, rows=100)
    assert frozen == (0.0, 0.0)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("n", [3, 100])
def test_the_best_geometric_mean_is_the_maximum_over_its_rows(law, n):
    found = typical.best_alpha(law, n, rows=3000, seed=4)
    s = sampling.draws(law, n, lambda s: s, rows=3000, seed=4)
    grid = found.value * np.linspace(0.9, 1.1, 41)
    means = [rows.log_gradient(s, alpha).mean() for alpha in grid]
    peak = np.polynomial.Polynomial.fit(grid, means, 4).deriv().roots()
    (peak,) = peak.real[(np.abs(peak.imag) < 1e-9) & (np.abs(peak.real / found.value - 1) < 0.1)]
    # Newton's method stops within a hundredth of the standard error.
    assert abs(found.value - peak) < 0.02 * found.standard_error
    assert np.argmax(means) in (19, 20, 21)
    wide = found.value * np.geomspace(0.02, 50.0, 120)
    assert max(rows.log_gradient(s, alpha).mean() for alpha in wide) <= max(means)


def test_the_best_median_is_the_maximum_of_the_medians():
    found = typical.best_alpha(Normal(), 16, "median", rows=40_000, seed=4)
    alpha = found.value * np.array([0.7, 1.0, 1.0 / 0.7])
    medians = typical.gradient(Normal(), alpha, 16, "median", rows=40_000, seed=4).value
    assert medians[1] > medians[0]
    assert medians[1] > medians[2]
    # Nor is it higher anywhere on a fine grid, by more than the noise of a difference.
    fine = found.value * np.geomspace(0.2, 5.0, 60)
    found_there = typical.gradient(Normal(), fine, 16, "median", rows=40_000, seed=4)
    assert found_there.value.max() < medians[1] + found_there.standard_error.max()


@pytest.mark.parametrize("statistic", OPTIMA)
def test_scaled_and_shifted_scores_have_scaled_optima(statistic):
    plain = typical.best_alpha(Own(), 20, statistic, rows=1000, seed=3)
    other = typical.best_alpha(Own(scale=0.125, mean=5.0), 20, statistic, rows=1000, seed=3)
    assert other.value / plain.value == pytest.approx(8.0, rel=2e-4)
    assert other.standard_error / plain.standard_error == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize("statistic", OPTIMA)
def test_standard_errors_of_optima_are_honest(statistic):
    runs = [
        typical.best_alpha(Normal(), 8, statistic, rows=1000, seed=seed) for seed in range(1, 61)
    ]
    precise = typical.best_alpha(Normal(), 8, statistic, rows=200_000, seed=0)
    value, error = np.array(runs).T
    z = (value - precise.value) / np.hypot(error, precise.standard_error)
    # Of 60 normal numbers the standard deviation is 1 ± 0.09; the errors themselves are noisy.
    assert 0.75 < z.std(ddof=1) < 1.3
    assert abs(z.mean()) < 4.5 / np.sqrt(len(z))


def test_the_same_seed_gives_the_same_bytes():
    for statistic in OPTIMA:
        first, again, other = (
            typical.best_alpha(Normal(), 30, statistic, rows=300, seed=seed) for seed in (1, 1, 2)
        )
        assert first == again
        assert first != other


# --- single rows ---------------------------------------------------------------------------------


def brute_force(s):
    """Return the best α of a row by a fine grid from far below to far above."""
    top = np.sort(s)[::-1]
    alpha = np.geomspace(0.05, 60.0, 2500) / (top[0] - top[1])
    heights = rows.log_gradient(np.broadcast_to(s, (2500, len(s))), alpha)
    return alpha[heights.argmax()], heights.max()


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("n", [2, 3, 10, 300])
def test_row_optima_against_brute_force(law, n):
    found = typical.row_optima(law, n, rows=25, seed=8)
    for s, alpha in zip(sampling.draws(law, n, lambda s: s, rows=25, seed=8), found, strict=True):
        near, height = brute_force(s)
        assert rows.log_gradient(s, alpha) >= height - 1e-14
        assert alpha == pytest.approx(near, rel=2e-3)


def test_of_several_maxima_the_highest_is_taken():
    # A near-tie at the top peaks at 1.54/0.02 = 77 with height 22; a crowd 2 lower, near 2 or 3.
    for crowd, lower in ((10, 1.0), (10**3, 2.0), (100, 0.02), (3, 0.1)):
        for gap in (0.02, 0.2, 0.5):
            s = np.array([gap, 0.0, *np.linspace(-lower, -lower - 1.0, crowd)])
            found = typical.row_optima(Fixed(tuple(s)), len(s), rows=2)
            assert found[0] == found[1]
            assert found[0] == pytest.approx(brute_force(s)[0], rel=2e-3)


def test_a_row_with_two_maxima_of_nearly_one_height():
    # The gap at which the two maxima swap places lies between these: each side finds its own.
    def peaks(gap):
        s = np.array([gap, 0.0, *np.linspace(-1.0, -1.5, 300)])
        alpha = np.geomspace(0.3, 300.0, 2000)
        height = rows.log_gradient(np.broadcast_to(s, (2000, len(s))), alpha)
        inner = height[1:-1]
        place = np.flatnonzero((inner > height[:-2]) & (inner > height[2:])) + 1
        return s, alpha[place], height[place]

    low, high = 0.01, 1.0
    for _ in range(25):
        middle = np.sqrt(low * high)
        s, alpha, height = peaks(middle)
        if len(alpha) == 2 and height[1] > height[0]:
            low = middle
        else:
            high = middle
    for gap, which in ((low * 0.999, 1), (low * 1.001, 0)):
        s, alpha, height = peaks(gap)
        assert len(alpha) == 2
        assert abs(height[0] - height[1]) < 5e-3
        found = typical.row_optima(Fixed(tuple(s)), len(s), rows=2)[0]
        assert found == pytest.approx(alpha[which], rel=2e-3)


@given(
    s=st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=12).filter(
        lambda s: np.diff(np.sort(s))[-1] > 1e-3
    )
)
@settings(max_examples=60)
def test_no_row_has_its_optimum_outside_the_search(s):
    s = np.array(s)
    gap = np.diff(np.sort(s))[-1]
    units = typical._search_units(len(s))
    assert (units[1:] / units[:-1] <= typical.STEP * (1 + 1e-12)).all()
    outside = np.concatenate([np.geomspace(1e-3, 1, 50) * units[0], np.geomspace(1, 9) * units[-1]])
    best = rows.log_gradient(s, typical.TWO_KEYS / gap)
    table = rows.log_gradient(np.broadcast_to(s, (100, len(s))), outside / gap)
    assert (table < best).all()
    (found, _) = typical.row_optima(Fixed(tuple(s)), len(s), rows=2)
    assert rows.log_gradient(s, found) >= brute_force(s)[1] - 1e-13


def test_a_tied_row_has_its_optimum_beyond_everything():
    assert (typical.row_optima(Fixed((1.0, 1.0, 0.0)), 3, rows=4) > 1e59).all()


def test_the_median_row_is_the_median_of_the_rows():
    found = typical.best_alpha(Normal(), 50, "row", rows=3001, seed=6)
    optima = typical.row_optima(Normal(), 50, rows=3001, seed=6)
    assert found.value == pytest.approx(np.median(optima), rel=2**-14)
    below, above = np.quantile(optima, 0.5 + np.array([-0.5, 0.5]) / np.sqrt(3001))
    assert found.standard_error == pytest.approx((above - below) / 2, rel=0.1)


# --- the peak of medians -------------------------------------------------------------------------


def test_a_peak_without_noise_is_found_exactly():
    x = np.linspace(-1.0, 1.0, 13)
    curves = np.tile(2.0 - (x - 0.3) ** 2 * (1.0 + 0.2 * x), (25, 1))
    assert typical.peak_of_medians(x, curves) == pytest.approx((0.3, 0.0), abs=1e-12)
    for slope, end in ((1.0, 1.0), (-1.0, -1.0)):
        assert typical.peak_of_medians(x, np.tile(slope * x, (20, 1))).value == end


@pytest.mark.parametrize(
    ("name", "x", "values"),
    [
        ("x", np.zeros(9), np.zeros((20, 9))),
        ("x", np.arange(6), np.zeros((20, 6))),
        ("x", np.zeros((3, 3)), np.zeros((20, 3))),
        ("x", [np.nan] * 9, np.zeros((20, 9))),
        ("values", np.arange(9), np.zeros((19, 9))),
        ("values", np.arange(9), np.zeros((20, 8))),
        ("values", np.arange(9), np.zeros(9)),
        ("values", np.arange(9), np.full((20, 9), np.inf)),
    ],
)
def test_bad_curves_are_named(name, x, values):
    with pytest.raises(ValueError, match=rf"^{name} must"):
        typical.peak_of_medians(x, values)


# --- bad input -----------------------------------------------------------------------------------


def test_the_best_of_single_rows_is_no_gradient():
    assert_refused("statistic", "'row'", typical.gradient, Normal(), 1.0, 4, "row")


def test_two_keys_need_a_right_alpha_too():
    cases = [(-1.0, "-1"), (np.nan, "nan"), (np.inf, "inf"), ("1", "'1'"), ([], "empty")]
    for n in (2, 4):
        assert_all_refused("alpha", cases, lambda v, n=n: typical.gradient(Normal(), v, n))


@pytest.mark.parametrize("statistic", OPTIMA)
def test_the_search_for_each_optimum_checks_what_it_is_given(statistic):
    def best(law=LAWS[0], n=5, **options):
        return typical.best_alpha(law, n, statistic, **options)

    few = [(1, "1"), (0, "0"), (-3, "-3"), (4.0, "4.0"), (None, "None")]
    assert_all_refused("n", few, lambda v: best(n=v))
    assert_all_refused("n", few, lambda v: typical.row_optima(Normal(), v, rows=4))
    assert_all_refused("rows", [(99, "99"), (-1, "-1"), ("4", "'4'")], lambda v: best(rows=v))
    assert_all_refused("seed", [(-1, "-1"), (3.0, "3.0"), (None, "None")], lambda v: best(seed=v))
    assert_all_refused("law", [(None, "None"), (Normal, "Normal")], lambda v: best(law=v))


@pytest.mark.parametrize("statistic", ["geometric_mean", "median"])
def test_rows_that_tie_have_no_maximum(statistic):
    with pytest.raises(ValueError, match="law must have rows whose largest scores differ"):
        typical.best_alpha(Fixed((1.0, 1.0, 0.0)), 3, statistic, rows=100)


@given(
    alpha=st.one_of(
        st.floats(allow_nan=True, allow_infinity=True),
        st.sampled_from([0.0, 5e-324, 1e-300, 1e-8, 745.0, 1e8, 1.7e308]),
    ),
    n=st.integers(1, 5),
    statistic=st.sampled_from(["geometric_mean", "median", "mean"]),
    law=st.sampled_from([*LAWS, Own()]),
)
@settings(max_examples=200)
def test_gradients_are_refused_or_numbers_from_zero_to_alpha(alpha, n, statistic, law):
    if not 0.0 <= alpha < np.inf:
        with pytest.raises(ValueError, match=r"^alpha must"):
            typical.gradient(law, alpha, n, statistic, rows=10)
        return
    value, error = typical.gradient(law, alpha, n, statistic, rows=10)
    assert 0.0 <= value <= alpha * (1.0 - 1.0 / n) * (1.0 + 1e-4) + 5e-324
    assert 0.0 <= error < np.inf


@pytest.mark.parametrize("step", [0.0, -0.5])
def test_one_step_back_is_no_curve(step):
    x = np.arange(9.0)
    x[4] = x[3] + step
    with pytest.raises(ValueError, match="x must be at least 7 increasing numbers"):
        typical.peak_of_medians(x, np.zeros((20, 9)))


def test_by_default_there_are_as_many_rows_as_some_seconds_allow():
    for n in (2, 1000, 10**4, 10**5, 10**6):
        rows, own = typical._default_rows(n, "median"), typical._default_rows(n, "row")
        assert typical._default_rows(n, "geometric_mean") == rows
        assert rows == min(10**5, max(4000, 2**27 // n))
        assert own == min(10**5, max(1000, 2**25 // n))


@pytest.mark.parametrize("peak", [-0.95, -0.4, 0.95])
def test_a_peak_may_lie_near_an_end(peak):
    x = np.linspace(-1.0, 1.0, 9)
    value, error = typical.peak_of_medians(x, np.tile(1.0 - (x - peak) ** 2, (20, 1)))
    assert value == pytest.approx(peak, abs=1e-9)
    assert error < 1e-9


def test_where_no_maximum_shows_it_says_so(monkeypatch):
    class Rising:
        def mean(self):
            return sampling.Estimate(np.ones(2), np.ones(2))

    monkeypatch.setattr(typical.sampling, "sample", lambda *_, **__: Rising())
    with pytest.raises(RuntimeError, match="no maximum of the geometric mean near alpha=2; more"):
        typical._best_geometric_mean(Normal(), 16, 2.0)
