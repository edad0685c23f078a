"""Laws of the reader's own: a variance, a density and a sampler, and everything works to 1e-8.

The references share nothing with the library: closed forms, one integral over the gap of two keys,
Laplace transforms by mpmath, sums over binomial numbers or over all rows, and simulation.
"""

from functools import partial

import mpmath as mp
import numpy as np
import pytest
from scipy import special, stats

from attnlib import annealed, exact, freezing, typical
from attnlib.scores import Cosine, Law, Normal

ROOT2, ROOT3 = np.sqrt(2.0), np.sqrt(3.0)


class Unsampled(Law):
    """A density, from which no test here draws."""

    variance = 1.0

    def _sample(self, rng, rows, n):
        raise NotImplementedError


class Laplace(Unsampled):
    def logpdf(self, s):
        return -ROOT2 * np.abs(s) - 0.5 * np.log(2.0)

    def log_mgf_by_hand(self, alpha):
        return -mp.log(1 - alpha**2 / 2)

    def gap_by_hand(self, gap):
        return (1 + mp.sqrt(2) * gap) * mp.exp(-mp.sqrt(2) * gap) / mp.sqrt(2)


class Uniform(Unsampled):
    landmarks = (-ROOT3, ROOT3)

    def logpdf(self, s):
        return np.where(np.abs(s) <= ROOT3, -np.log(2.0 * ROOT3), -np.inf)

    def log_mgf_by_hand(self, alpha):
        x = mp.sqrt(3) * alpha
        return mp.log(mp.sinh(x) / x)

    def gap_by_hand(self, gap):
        width = 2 * mp.sqrt(3)
        return 2 / width * (1 - gap / width) if gap < width else mp.mpf(0)


class UniformWithoutLandmarks(Uniform):
    landmarks = ()


class Exponential(Unsampled):
    def logpdf(self, s):
        return np.where(s >= 0.0, -s, -np.inf)

    def log_mgf_by_hand(self, alpha):
        return -mp.log(1 - alpha)

    def gap_by_hand(self, gap):
        return mp.exp(-gap)


class TwoLevels(Unsampled):
    """The chapter's law: 1 with probability 1/1000, else 0, both spread by 10⁻⁴."""

    chance, width = 1e-3, 1e-4
    variance = chance * (1.0 - chance) + width**2
    landmarks = (1.0,)

    def logpdf(self, s):
        away = [np.log1p(-self.chance) - (s / self.width) ** 2 / 2.0]
        away += [np.log(self.chance) - ((s - 1.0) / self.width) ** 2 / 2.0]
        return np.logaddexp(*away) - np.log(self.width * np.sqrt(2.0 * np.pi))

    def log_mgf_by_hand(self, alpha):
        p, w = mp.mpf(self.chance), mp.mpf(self.width)
        return mp.log(1 - p + p * mp.exp(alpha)) + (alpha * w) ** 2 / 2

    def gap_by_hand(self, gap):
        p, w = mp.mpf(self.chance), mp.sqrt(2) * self.width
        apart = 2 * p * (1 - p)
        near = 2 * (1 - apart) * mp.npdf(gap, 0, w)
        return near + apart * (mp.npdf(gap, 1, w) + mp.npdf(gap, -1, w))


LAWS = [Laplace(), Uniform(), UniformWithoutLandmarks(), Exponential(), TwoLevels()]
MEANS = [0.0, 0.0, 0.0, 1.0, 1e-3]
QUANTITIES = {
    "collision_probability": exact.collision_probability,
    "gradient": exact.gradient,
    "free_energy": exact.free_energy,
    "mean_score": exact.mean_score,
    "entropy": exact.entropy,
    "cube": partial(exact.moment, order=3.0),
}


def ids(law):
    return type(law).__name__ if isinstance(law, Law) else None


# --- exact ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "mean", "alpha"),
    [*zip(LAWS, MEANS, 5 * [8.0], strict=True), (LAWS[0], MEANS[0], 0.05)],
    ids=ids,
)
def test_two_keys_against_one_integral_over_their_gap(law, mean, alpha):
    """With p = 1/(1 + e^{−αδ}) everything but the mean of s₁ + s₂ is a function of the gap δ."""
    a, gap_of = mp.mpf(alpha), law.gap_by_hand
    edges = [0, *(10.0**k for k in range(-5, 0)), 0.3, 1, 2, 2 * ROOT3, 8, 20, 60]
    if isinstance(law, TwoLevels):
        near = [1 + k * law.width for k in (-14, -7, -3, 0, 3, 7, 14)]
        edges = [k * law.width for k in (0, 0.1, 1, 4, 8, 14)] + near

    def over_gaps(function):
        return mp.quad(lambda gap: function(gap) * gap_of(gap), edges)

    def entropy(gap):
        x = a * gap
        return mp.log1p(mp.exp(-x)) + x / (1 + mp.exp(x))

    with mp.workdps(20):
        assert over_gaps(lambda gap: 1) == pytest.approx(1.0, abs=1e-13)
        square = over_gaps(lambda gap: 1 - mp.sech(a * gap / 2) ** 2 / 2)
        expected = {
            "collision_probability": square,
            "gradient": a * over_gaps(lambda gap: mp.sech(a * gap / 2) ** 2 / 2),
            "free_energy": a * mean
            + over_gaps(lambda gap: a * gap / 2 + mp.log1p(mp.exp(-a * gap))),
            "mean_score": mean + over_gaps(lambda gap: gap / 2 * mp.tanh(a * gap / 2)),
            "entropy": over_gaps(entropy),
            "cube": (3 * square - 1) / 2,
        }
    for name, value in expected.items():
        assert QUANTITIES[name](law, alpha, 2) == pytest.approx(float(value), rel=1e-9), name


class Copy(Unsampled):
    """The density of another law, and nothing else that it knows."""

    def __init__(self, law):
        self.law, self.variance = law, law.variance

    def logpdf(self, s):
        return self.law.logpdf(s)


@pytest.mark.parametrize("copy", [Copy(Normal()), Copy(Cosine(64))])
def test_the_density_alone_gives_what_the_closed_forms_give(copy):
    unit = 1.0 / np.sqrt(copy.variance)
    alpha, n = np.array([1e-3, 2.0, 60.0]) * unit, np.array([2, 50, 10**12])
    for name, function in QUANTITIES.items():
        value, expected = function(copy, alpha[:, None], n), function(copy.law, alpha[:, None], n)
        slack = 1e-11 / unit if name == "mean_score" else 0.0  # it crosses 0 with α
        np.testing.assert_allclose(value, expected, rtol=1e-11, atol=slack, err_msg=name)
    value, expected = exact.gradient_limit(copy, n), exact.gradient_limit(copy.law, n)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    alpha = np.array([1e-6, 1e-3, 0.1, 1.0, 30.0, 1e4]) * unit
    np.testing.assert_allclose(copy.log_mgf(alpha), copy.law.log_mgf(alpha), rtol=1e-9)
    np.testing.assert_allclose(copy.log_mgf_ratio(alpha), copy.law.log_mgf_ratio(alpha), rtol=1e-9)
    n = np.array([1.0, 1.0 + 1e-6, 2.0, 77.0, 1e5])
    for function in (annealed.best_alpha, lambda law, n: freezing.critical_alpha(n, law)):
        np.testing.assert_allclose(function(copy, n), function(copy.law, n), rtol=1e-9)
    np.testing.assert_allclose(copy.mean, 0.0, atol=1e-13 / unit)


# --- generating functions ------------------------------------------------------------------------


def ratio_by_hand(law, alpha):
    return law.log_mgf_by_hand(2 * alpha) - 2 * law.log_mgf_by_hand(alpha)


def root_by_hand(left, n, near):
    """Return the root of left(α) = log n next to a guess."""
    with mp.workdps(30):
        ends = [mp.mpf(float(near)) * (1 + sign * mp.mpf(10) ** -7) for sign in (-1, 1)]
        return float(mp.findroot(lambda a: left(a) - mp.log(n), ends, solver="anderson"))


@pytest.mark.parametrize("law", LAWS, ids=ids)
@pytest.mark.parametrize("n", [2, 10**5])
def test_the_best_and_the_critical_scale_solve_their_equations(law, n):
    best, critical = float(annealed.best_alpha(law, n)), float(freezing.critical_alpha(n, law))

    def annealed_left(a):
        slope = mp.diff(lambda x: ratio_by_hand(law, x), a)
        return ratio_by_hand(law, a) + mp.log(1 + a * slope)

    def freezing_left(a):
        return a * mp.diff(law.log_mgf_by_hand, a) - law.log_mgf_by_hand(a)

    assert best == pytest.approx(root_by_hand(annealed_left, n, best), rel=1e-9)
    assert critical == pytest.approx(root_by_hand(freezing_left, n, critical), rel=1e-9)
    neighbours = annealed.gradient(law, best * np.array([0.99, 1.0, 1.01]), n)
    assert neighbours.argmax() == 1
    assert annealed.best_alpha(law, 1) == freezing.critical_alpha(1, law) == 0.0


# --- what is wrong is named ----------------------------------------------------------------------


def altered(**changes):
    """Return Laplace's law with other members."""
    return type("Altered", (Laplace,), changes)()


NARROW = {"chance": 1e-3, "width": 1e-4, "variance": 1e-3}  # the second level is not a landmark
CALLS = [
    lambda law: exact.collision_probability(law, 1.0, 5),
    lambda law: exact.gradient_limit(law, 5),
    lambda law: annealed.best_alpha(law, 5),
    lambda law: law.mean,
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logpdf": lambda self, s: np.where(s > 2.0, np.nan, -np.abs(s))}, "logpdf .*nan at s="),
        ({"logpdf": lambda self, s: -np.abs(s)}, r"logpdf .*integral of 1, got 2"),
        ({"logpdf": TwoLevels.logpdf, **NARROW}, r"got 0.999\b.*landmarks"),
        ({"logpdf": lambda self, s: 0.0}, r"logpdf .*shape \(\)"),
        ({"variance": np.nan}, "variance"),
        ({"variance": 0.0}, "variance"),
        ({"variance": 0.5}, "variance must be that of logpdf, 1, got 0.5"),
        ({"landmarks": (0.0, np.nan)}, "landmarks"),
    ],
)
def test_a_wrong_law_is_named(call, changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(altered(**changes))


class OfScipy(Unsampled):
    """A law by SciPy's log density; it counts how many of its values are asked for."""

    def __init__(self, law):
        self.law, self.variance, self.asked = law, float(law.var()), 0

    def logpdf(self, s):
        self.asked += np.size(s)
        return self.law.logpdf(s)


KNOWN = [
    (stats.gamma(2.5), lambda a: -2.5 * np.log1p(-a)),
    (stats.logistic(), lambda a: np.log(np.pi * a / np.sin(np.pi * a))),
    (stats.gumbel_l(), lambda a: special.gammaln(1.0 + a)),
    (stats.beta(0.5, 2.0), lambda a: np.log(special.hyp1f1(0.5, 2.5, a))),
    (stats.wald(), lambda a: 1.0 - np.sqrt(1.0 - 2.0 * a) if a < 0.5 else np.inf),
    (stats.t(3.0), lambda a: np.inf),
    (stats.cauchy(), None),
]
"""Densities with their log E e^{αs}; what has none is refused."""


@pytest.mark.filterwarnings("ignore:Error in function boost")  # SciPy's own quantiles
@pytest.mark.parametrize(("known", "log_mgf"), KNOWN, ids=[known.dist.name for known, _ in KNOWN])
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 0.4, 0.6])
def test_any_density_is_right_or_refused_and_soon(known, log_mgf, alpha):
    """Soon: with so many values of the density as take two seconds at most."""
    with np.errstate(all="ignore"):
        law = OfScipy(known)
    if log_mgf is None:
        with pytest.raises(ValueError, match="variance must"):
            law.log_mgf(alpha)
    else:
        assert law.log_mgf(alpha) == pytest.approx(log_mgf(alpha), rel=1e-6, abs=1e-6)
    assert law.asked < 2**21


def test_a_sample_of_another_shape_is_named():
    law = altered(_sample=lambda self, rng, rows, n: np.zeros((n, rows)))
    with pytest.raises(ValueError, match=r"_sample must return shape \(2, 3\), got shape \(3, 2\)"):
        law.sample(np.random.default_rng(0), 2, 3)
    with pytest.raises(ValueError, match="_sample must return shape"):
        typical.best_alpha(law, 5)
