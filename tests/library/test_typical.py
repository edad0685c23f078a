"""What typical rows do: against integrals by mpmath, brute force, plain NumPy and repeated runs."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import brentq

from attnlib import rows, sampling, typical
from attnlib.scores import Cosine, DotProduct, Law, Normal
from tests.library.test_bad_input import assert_refused

LAWS = [Normal(), Cosine(3), DotProduct(64)]


@dataclass(frozen=True)
class Own(Law):
    """Normal scores, of which the library does not know that they are."""

    variance = 1.0
    logpdf = Normal().logpdf

    def _sample(self, rng, rows, n):
        return rng.standard_normal((rows, n))


@dataclass(frozen=True)
class Fixed(Law):
    """The same row again and again."""

    row: tuple[float, ...]
    variance = 1.0
    logpdf = Normal().logpdf

    def _sample(self, rng, rows, n):
        return np.tile(np.array(self.row), (rows, 1))


@pytest.mark.parametrize("law", [*LAWS, Own()], ids=repr)
@pytest.mark.parametrize("n", [2, 40])
def test_gradients_against_plain_numpy(law, n):
    alpha = np.array([[0.5], [2.0], [6.0]]) / np.sqrt(getattr(law, "variance", 1.0))
    s = law.sample(np.random.default_rng(77), 20_000, n)
    logs = np.log([rows.gradient(s, a) for a in alpha])  # another formula, tested elsewhere
    geometric = np.exp(logs.mean(axis=1))
    error = geometric * logs.std(axis=1) / np.sqrt(logs.shape[1])
    value, standard_error = typical.gradient(law, alpha, n, rows=20_000, seed=5)
    assert value.shape == standard_error.shape == (3, 1)
    assert typical.gradient(law, 0.0, n, rows=10) == (0.0, 0.0)
    np.testing.assert_allclose(standard_error[:, 0], error, rtol=0.25)
    assert (np.abs(value[:, 0] - geometric) < 4.5 * np.hypot(standard_error[:, 0], error)).all()


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_best_geometric_mean_is_the_maximum_over_its_rows(law):
    best = typical.best_alpha(law, 40, rows=3000, seed=4)
    s = sampling.sample(law, 40, lambda s: s, rows=3000, seed=4).values
    wide = best.value * np.geomspace(0.02, 50.0, 60)
    near = best.value * np.linspace(0.9, 1.1, 21)
    means = [np.log(rows.gradient(s, alpha)).mean() for alpha in near]
    peak = np.polynomial.Polynomial.fit(near, means, 4).deriv().roots()
    (peak,) = peak.real[(np.abs(peak.imag) < 1e-9) & (np.abs(peak.real / best.value - 1) < 0.1)]
    # The search stops within a hundredth of the standard error.
    assert abs(best.value - peak) < 0.02 * best.standard_error
    assert typical.gradient(law, wide, 40, rows=3000, seed=4).value.max() <= np.exp(max(means))


def test_standard_errors_of_optima_are_honest():
    runs = [typical.best_alpha(Own(), 8, rows=500, seed=seed) for seed in range(1, 61)]
    precise = typical.best_alpha(Own(), 8, rows=100_000, seed=0)
    value, error = np.array(runs).T
    z = (value - precise.value) / np.hypot(error, precise.standard_error)
    # Of 60 normal numbers the standard deviation is 1 ± 0.09; the errors themselves are noisy.
    assert 0.75 < z.std(ddof=1) < 1.3
    assert abs(z.mean()) < 4.5 / np.sqrt(len(z))


def heights(s, alpha):
    """Return g of one row at many α."""
    return rows.gradient(np.broadcast_to(s, (len(alpha), len(s))), alpha)


def brute_force(s):
    """Return the best α of a row by a fine grid from far below to far above."""
    top = np.sort(s)[::-1]
    alpha = np.geomspace(0.05, 60.0, 2500) / (top[0] - top[1])
    return alpha[heights(s, alpha).argmax()]


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("n", [2, 3, 300])
def test_row_optima_against_brute_force(law, n):
    optima = typical.row_optima(law, n, rows=15, seed=8)
    drawn = sampling.sample(law, n, lambda s: s, rows=15, seed=8).values
    for s, alpha in zip(drawn, optima, strict=True):
        near = brute_force(s)
        assert rows.gradient(s, alpha) >= rows.gradient(s, near) * (1.0 - 1e-13)
        assert alpha == pytest.approx(near, rel=2e-3)


def test_of_two_maxima_the_higher_is_taken():
    # The gap at which the two maxima swap places lies between these: each side finds its own.
    def peaks(gap):
        s = np.array([gap, 0.0, *np.linspace(-1.0, -1.5, 300)])
        alpha = np.geomspace(0.3, 300.0, 2000)
        height = heights(s, alpha)
        inner = height[1:-1]
        place = np.flatnonzero((inner > height[:-2]) & (inner > height[2:])) + 1
        return s, alpha[place], height[place]

    def lead(log_gap):
        _, _, height = peaks(np.exp(log_gap))
        return height[1] - height[0]

    swap = np.exp(brentq(lead, *np.log([0.02, 0.136]), rtol=1e-6))
    for gap, which in ((swap * 0.99, 1), (swap * 1.01, 0)):
        s, alpha, _ = peaks(gap)
        optima = typical.row_optima(Fixed(tuple(s)), len(s), rows=2)
        assert optima == pytest.approx(np.full(2, alpha[which]), rel=4e-3)


def test_one_key_has_no_gradient_and_no_optimum():
    assert_refused("n", "1", typical.gradient, Normal(), 1.0, 1)
    assert_refused("n", "1", typical.row_optima, Normal(), 1, rows=4)
    assert_refused("n", "1", typical.best_alpha, Normal(), 1)
    assert_refused("alpha", "empty", typical.gradient, Normal(), [], 4)


def test_rows_that_tie_have_no_optimum():
    assert (typical.row_optima(Fixed((1.0, 1.0, 0.0)), 3, rows=4) > 1e59).all()
    with pytest.raises(ValueError, match="law must have rows whose largest scores differ"):
        typical.best_alpha(Fixed((1.0, 1.0, 0.0)), 3, rows=100)
