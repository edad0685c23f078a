"""Rows with a needle against mpmath, sums over all rows, Gauss's rules, and simulation."""

from functools import partial

import mpmath as mp
import numpy as np
import pytest

from attnlib import exact, policies, retrieval, rows
from attnlib.retrieval import Fixed, Tilted
from attnlib.scores import Cosine, DotProduct, Normal
from tests.book.theorems.numbers import discrete, independent, normal
from tests.library.test_bad_input import assert_refused
from tests.library.test_own_laws import Exponential, Laplace, TwoLevels, Uniform

QUANTITIES = {
    "weight": retrieval.weight,
    "collision_probability": retrieval.collision_probability,
    "loss": retrieval.loss,
}
LAWS = [Normal(), Cosine(3), Cosine(128), DotProduct(64), Laplace()]
OWN = [Laplace(), Uniform(), Exponential(), TwoLevels()]


def name_of(value):
    return repr(value) if type(value).__module__.startswith("attnlib") else type(value).__name__


def spread(law):
    return float(np.sqrt(law.variance))


def assert_all_close(law, needle, alpha, n, expected, rel=1e-10):
    for name, value in expected.items():
        quantity = QUANTITIES[name](law, needle, alpha, n)
        assert quantity == pytest.approx(float(value), rel=rel, abs=0.0), name


# --- against what shares nothing with the library -------------------------------------------------


@pytest.mark.parametrize("needle", [Tilted(1.5), Fixed(0.8)], ids=repr)
@pytest.mark.parametrize("sinks", [(), 1.7, (0.5, 1.0)])
def test_a_needle_beside_sinks_against_a_tensor_of_gauss_rules(needle, sinks):
    alpha, rival = 1.2, normal(60)
    tilted = isinstance(needle, Tilted)
    own = (rival[0] + needle.theta, rival[1]) if tilted else discrete([needle.gap])
    scores, mean = independent(own, rival, rival)
    powers = np.exp(alpha * np.array(scores))
    total = powers.sum(axis=0) + np.exp(sinks).sum()
    p = powers[0] / total
    weight = retrieval.weight(Normal(), needle, alpha, 3, sinks=sinks)
    assert weight == pytest.approx(mean(p), rel=1e-10)
    if sinks == ():
        squares = (powers**2).sum(axis=0) / total**2
        expected = {"loss": mean(-np.log(p)), "collision_probability": mean(squares)}
        assert_all_close(Normal(), needle, alpha, 3, expected)


@pytest.mark.parametrize(("theta", "alpha", "n"), [(7.0, 5.0, 10**12), (5.0, 2.0, 10**6)])
def test_many_keys_against_integrals_on_grids(theta, alpha, n):
    """E P = ∫ E[e^x exp(−e^x)] φ^{n−1} du with x = αs − u for the needle's score s, and so on."""
    s, ds = np.linspace(-12.0, 20.0, 3201, retstep=True)
    u, du = np.linspace(-8.0 * alpha, 20.0 * alpha + 30.0, 1501, retstep=True)
    e = np.exp(np.minimum(alpha * s - u[:, None], 7.0))
    others, needle = (
        ds * np.exp(-((s - at) ** 2) / 2.0) / np.sqrt(2.0 * np.pi) for at in (0, theta)
    )
    rest = np.exp((n - 1.0) * np.log1p(-np.minimum(-np.expm1(-e) @ others, 1.0 - 1e-16)))
    expected = {
        "weight": du * ((e * np.exp(-e)) @ needle) @ rest,
        "loss": du * (np.exp(-e) @ needle) @ (1.0 - rest),
    }
    assert_all_close(Normal(), Tilted(theta), alpha, n, expected)


# --- simulation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("needle", [Tilted(2.0), Fixed(2.0)], ids=repr)
def test_simulated_dot_products_agree_within_their_standard_error(needle):
    rng, count, n, d = np.random.default_rng(5), 4000, 100, 8
    radius = np.sqrt(rng.chisquare(d, (count, 1)) / d)  # of the query, which a row shares
    s = radius * rng.standard_normal((count, n))
    s[:, :1] = needle.gap if isinstance(needle, Fixed) else s[:, :1] + radius**2 * needle.theta
    p = rows.softmax(2.0 * s)
    measured = {
        "weight": p[:, 0],
        "collision_probability": (p**2).sum(axis=1),
        "loss": -np.log(p[:, 0]),
        "accuracy": (s[:, :1] >= s).all(axis=1),
    }
    functions = {**QUANTITIES, "accuracy": lambda law, own, _, n: retrieval.accuracy(law, own, n)}
    for name, values in measured.items():
        error = values.std(ddof=1) / np.sqrt(count)
        expected = functions[name](DotProduct(d), needle, 2.0, n)
        assert abs(values.mean() - expected) < 4.5 * error, name


# --- the theorem ----------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [*LAWS, *OWN], ids=name_of)
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_at_the_needles_strength_the_weights_are_calibrated(law, share):
    """α = θ: E P = E Σp² for every law and n, and the loss has its minimum there."""
    theta = share * {"Laplace": 1.3, "Exponential": 0.9}.get(type(law).__name__, 6.0 / spread(law))
    n = np.array([1, 2, 30, 10**7])
    weight = retrieval.weight(law, Tilted(theta), theta, n)
    np.testing.assert_allclose(
        weight, retrieval.collision_probability(law, Tilted(theta), theta, n), rtol=1e-12
    )
    around = theta + 0.01 / spread(law) * np.array([[-1.0], [0.0], [1.0]])
    if theta > 0.0:
        losses = retrieval.loss(law, Tilted(theta), around, n[1:])
        assert (losses[1] < losses[[0, 2]]).all()
        slope, bend = losses[2] - losses[0], losses[2] - 2.0 * losses[1] + losses[0]
        assert (np.abs(slope) < 0.05 * bend).all()
        assert (retrieval.best_alpha(law, Tilted(theta), n) == theta).all()
    bits = np.log(n) - retrieval.loss(law, Tilted(theta), theta, n)
    slack = 1e-9 * np.log(n)
    assert (bits >= -slack).all()
    assert (bits <= np.log(n) + slack).all()


def test_a_needle_as_any_other_key_makes_a_random_row():
    for law in LAWS:
        alpha, n = 2.0 / spread(law), np.array([2, 50, 10**6])
        quantity = retrieval.collision_probability(law, Tilted(0.0), alpha, n)
        np.testing.assert_allclose(quantity, exact.collision_probability(law, alpha, n), rtol=1e-10)
        quantity = retrieval.loss(law, Tilted(0.0), alpha, n)
        expected = exact.free_energy(law, alpha, n) - alpha * law.mean
        np.testing.assert_allclose(quantity, expected, rtol=1e-9)


class TestLimits:
    @pytest.mark.parametrize("law", LAWS, ids=name_of)
    def test_one_key_is_found_and_at_zero_scale_all_are_alike(self, law):
        for needle in (Tilted(0.5), Fixed(0.5)):
            for name, certain in (("weight", 1.0), ("collision_probability", 1.0), ("loss", 0.0)):
                assert (QUANTITIES[name](law, needle, [0.0, 1.0, 30.0], 1) == certain).all()
            assert retrieval.accuracy(law, needle, 1) == pytest.approx(1.0, rel=1e-12)
            n = np.array([2, 7, 10**6, 10**12])
            for name in ("weight", "collision_probability"):
                np.testing.assert_allclose(
                    QUANTITIES[name](law, needle, 0.0, n), 1.0 / n, rtol=1e-11
                )
            np.testing.assert_allclose(retrieval.loss(law, needle, 0.0, n), np.log(n), rtol=1e-12)

    @pytest.mark.parametrize("n", [2, 1000, 10**12])
    def test_the_largest_of_normal_scores_against_mpmath(self, n):
        for theta in (0.0, 5.0, 9.0):
            with mp.workdps(20):
                expected = mp.quad(
                    lambda s: mp.npdf(s, theta) * mp.exp((n - 1) * mp.log1p(-mp.ncdf(-s))),  # noqa: B023
                    [theta - 9, theta - 4, *(theta + x for x in (-1, 1, 3, 5, 7, 9)), theta + 14],
                )
            accuracy = retrieval.accuracy(Normal(), Tilted(theta), n)
            assert accuracy == pytest.approx(float(expected), rel=1e-10)


class TestBestAlpha:
    @pytest.mark.parametrize(("gap", "n"), [(1.0, 2), (6.0, 10**5), (3.0, 10**12)])
    def test_no_scale_has_less_loss(self, gap, n):
        best = float(retrieval.best_alpha(Normal(), Fixed(gap), n))
        around = best + 0.02 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
        losses = retrieval.loss(Normal(), Fixed(gap), around, n)
        assert losses.argmin() == 2
        slope = losses[0] - 8.0 * losses[1] + 8.0 * losses[3] - losses[4]
        assert abs(slope / 0.24) < 1e-5 * losses[2]

    @pytest.mark.parametrize(
        ("law", "gap"),  # the mean of a law of one's own is a sum, and 0 to its rounding only
        [
            (Normal(), 1e-300),
            (Normal(), 1e-6),
            (Normal(), 2e-5),
            (Laplace(), 1e-6),
            (Laplace(), 2e-5),
        ],
    )
    def test_a_needle_hardly_above_the_mean(self, law, gap):
        """The slope of E log(1 + e^{α(s−Δ)}) is 0 at α = 2Δ − …, and odd in Δ for an even law."""
        best = retrieval.best_alpha(law, Fixed([gap, gap / 2.0]), 2)
        np.testing.assert_allclose(best, [2.0 * gap, gap], rtol=1e-9)
        best = retrieval.best_alpha(Normal(), Fixed(gap), 11)
        assert best == pytest.approx(1.1 * gap, rel=1e-8)

    def test_limits(self):
        assert retrieval.best_alpha(Normal(), Fixed(0.0), 50) == 0.0
        assert retrieval.best_alpha(Normal(), Fixed(-1.0), 50) == 0.0
        assert retrieval.best_alpha(Normal(), Fixed(2.0), 1) == 0.0
        assert retrieval.best_alpha(Cosine(8), Fixed(1.0), 50) == np.inf
        assert retrieval.best_alpha(DotProduct(64), Fixed(3.0), 5) > 3.0

    def test_a_fixed_needle_is_first_where_all_others_are_below(self):
        accuracy = retrieval.accuracy(Cosine(3), Fixed(0.9), 40)
        assert accuracy == pytest.approx(0.95**39, rel=1e-12)
        accuracy = retrieval.accuracy(Exponential(), Fixed(3.0), 40)
        assert accuracy == pytest.approx((1.0 - np.exp(-3.0)) ** 39, rel=1e-10)

    def test_the_least_scale_is_a_root(self):
        gap, n = np.array([[3.0], [8.0]]), np.array([1, 20, 90])
        least = retrieval.least_alpha(gap, n)
        np.testing.assert_allclose(least * gap, np.log(n) + least**2 / 2.0, rtol=1e-13)
        assert (least <= gap).all()
        assert retrieval.least_alpha(4.0, 10**4) == np.inf
        assert retrieval.least_alpha(1e9, 100) == pytest.approx(np.log(100.0) / 1e9, rel=1e-14)
        assert retrieval.least_alpha(2.0, np.exp(2.0)) == pytest.approx(2.0, rel=1e-6)
        np.testing.assert_array_equal(retrieval.least_alpha([1e-300, 5e-324], 2), np.inf)
        np.testing.assert_array_equal(retrieval.least_alpha([1e-300, 5e-324], 1), 0.0)


class TestReach:
    @pytest.mark.parametrize(
        ("law", "needle", "alpha"),
        [
            (Normal(), Tilted(4.0), 4.0),
            (Normal(), Fixed(3.0), 1.0),
            (Cosine(32), Fixed(0.7), 20.0),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("options", [{}, {"sinks": 0.5}], ids=repr)
    def test_it_is_the_last_with_half_of_the_weight(self, law, needle, alpha, options):
        n = float(retrieval.reach(law, needle, alpha, **options))
        kept, lost = retrieval.weight(law, needle, alpha, [n, n + 1], **options)
        assert lost < 0.5 <= kept

    def test_limits(self):
        assert retrieval.reach(Normal(), Tilted(5.0), 0.0) == 2.0
        assert retrieval.reach(Normal(), Fixed(1.0), 1.0, sinks=3.0) == 0.0
        assert retrieval.reach(Normal(), Fixed(40.0), 100.0) == np.inf
        # log n = αΔ − α²/2 to leading order, below freezing
        log_reach = np.log(retrieval.reach(Normal(), Fixed(12.0), [1.0, 4.0, 8.0]))
        np.testing.assert_allclose(log_reach, [11.5, 40.0, 64.0], atol=0.05)

    def test_by_a_rule_it_is_where_that_loses_the_needle(self):
        law, needle = Normal(), Tilted(5.0)
        n = float(retrieval.reach(law, needle, policy="ssmax", d=64))
        alpha = policies.POLICIES["ssmax"].alpha([n, n + 1.0], 64)
        kept, lost = (float(retrieval.weight(law, needle, a, n + i)) for i, a in enumerate(alpha))
        assert lost < 0.5 <= kept
        swin = policies.POLICIES["swin_v2"]  # of cosines, in their own dimension
        expected = retrieval.reach(Cosine(100), Fixed(0.8), swin.scale(2, 100))
        assert retrieval.reach(Cosine(100), Fixed(0.8), policy=swin) == expected
        fixed = retrieval.reach(law, needle, 1.0)
        assert retrieval.reach(law, needle, policy="transformer", d=64) == fixed
        mine = policies.own(lambda n, d, position: 5.0 / np.sqrt(d))
        expected = retrieval.reach(law, Tilted([4.0, 5.0]), 5.0)
        reach = retrieval.reach(law, Tilted([4.0, 5.0]), policy=mine, d=64)
        np.testing.assert_array_equal(reach, expected)

    @pytest.mark.parametrize(
        ("name", "coefficient", "floor", "needle", "options"),
        [  # between n that are ¼ apart in log n the weight rises above ½ and falls again
            ("llama_4", 0.768, 44, Tilted(3.1853), {}),
            ("llama_4", 1.704, 61, Tilted(2.989), {}),
            ("ministral_3", 0.765, 30, Fixed(3.36), {}),
            ("llama_4", 1.303, 33, Fixed(3.002), {}),
            ("llama_4", 1.303, 33, Fixed(3.4), {"sinks": [1.0, 2.0]}),
            ("ssmax", None, None, Tilted(3.0), {"sinks": -3.0}),
            ("yarn", None, None, Fixed(3.0), {}),
        ],
    )
    def test_by_a_rule_it_is_the_last_of_all_n(self, name, coefficient, floor, needle, options):
        rule = policies.POLICIES[name]
        if floor:
            rule = rule.with_constants(coefficient=coefficient, floor=floor)
        n = np.arange(1.0, 2001.0)
        weights = retrieval.weight(Normal(), needle, rule.alpha(n, 64), n, **options)
        expected = n[weights >= 0.5].max(initial=0.0)
        assert retrieval.reach(Normal(), needle, policy=rule, d=64, **options) == expected


# --- bad input ----------------------------------------------------------------------------


class TestBadInput:
    def test_needles_stronger_than_the_law_allows(self):
        for function in (retrieval.weight, retrieval.loss, retrieval.collision_probability):
            assert_refused("theta", "1", function, Exponential(), Tilted([0.1, 1.0]), 1.0, 5)
            assert_refused("theta", "20000", function, Normal(), Tilted(2e4), 1.0, 5)
            assert_refused("gap", "-1.5", function, Cosine(8), Fixed(-1.5), 1.0, 5)
            assert_refused("gap", "1e+06", function, Normal(), Fixed(1e6), 1.0, 5)
        assert_refused("gap", "3", retrieval.accuracy, Cosine(8), Fixed(3.0), 5)
        assert_refused("gap", "3", retrieval.reach, Cosine(8), Fixed(3.0), 1.0)
        assert_refused("gap", "0.999", retrieval.best_alpha, Cosine(200), Fixed(0.999), 5)
        assert_refused("theta", "-1", Tilted, -1.0)
        assert_refused("gap", "nan", Fixed, np.nan)
        assert_refused("gap", "inf", retrieval.least_alpha, np.inf, 5)

    def test_rules(self):
        reach = partial(retrieval.reach, Normal(), Tilted(1.0))
        assert_refused("policy", "alpha", reach)
        assert_refused("policy", "alpha", reach, 1.0, policy="yarn")
        assert_refused("policy", "'yar'; similar names: yarn", reach, policy="yar", d=64)
        assert_refused("d", "None", reach, policy="yarn")
        assert_refused("d", "64", reach, 1.0, d=64)
        assert_refused("alpha", "-1", reach, -1.0)
        assert_refused("needle", "3", retrieval.reach, Normal(), 3, 1.0)


# --- large scales ---------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [100.0, 1e3, 8e3])
def test_a_needle_that_hardly_any_key_reaches_is_lost_as_rarely(alpha):
    """E log(1 + e^{αx}) = α E x⁺ + π²f(0)/6α + …, for x = s − 12 of density f."""
    with mp.workdps(30):
        density, above = mp.npdf(12), mp.ncdf(-12)
        expected = float(alpha * (density - 12 * above) + mp.pi**2 / 6 * density / alpha)
    for n in (2, 1001):
        loss = retrieval.loss(Normal(), Fixed(12.0), alpha, n)
        assert loss == pytest.approx((n - 1) * expected, rel=1e-4 / (alpha / 100.0) ** 4 + 1e-9)
