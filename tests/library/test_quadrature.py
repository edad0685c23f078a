"""The rules of quadrature by themselves: moments that are known, and how far and fine they are."""

import numpy as np
import pytest

from attnlib import quadrature
from attnlib.quadrature import DEPTH
from attnlib.scores import Cosine, Normal

NORMAL = Normal().logpdf
ROOT3 = np.sqrt(3.0)


def mean(rule, values):
    return (rule.weights * values).sum()


@pytest.mark.parametrize(("alpha", "log_n"), [(0.0, 7.0), (1.0, 0.0), (50.0, 30.0)])
def test_a_rule_for_normal_scores(alpha, log_n):
    rule = quadrature.normal_rule(NORMAL, alpha, log_n)
    s, step = rule.scores, rule.scores[1] - rule.scores[0]
    np.testing.assert_allclose(np.diff(s), step, rtol=1e-9)
    assert 1.0 / step == pytest.approx(1.0 / 0.7 + alpha / 0.25, rel=1e-9)
    lowest, highest = np.sqrt(2.0 * DEPTH), np.sqrt(2.0 * (DEPTH + 2.0 * log_n))
    assert -lowest - step < s[0] <= -lowest
    assert highest <= s[-1] < highest + step
    assert mean(rule, s**4) == pytest.approx(3.0, rel=1e-12)
    tilt = min(alpha, 1.0)
    assert mean(rule, np.exp(tilt * s)) == pytest.approx(np.exp(tilt**2 / 2.0), rel=1e-12)
    expected = max(1.0, alpha / (1.0 + np.sqrt(2.0 * log_n)))
    assert rule.smoothness == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(("alpha", "log_n"), [(0.3, 0.0), (30.0, 30.0), (1000.0, 7.0)])
@pytest.mark.parametrize("d", [3, 5, 99, 100, 10**4])
def test_a_rule_for_cosines(d, alpha, log_n):
    law = Cosine(d)
    rule = law.rule(alpha, log_n)
    s = rule.scores
    assert (np.abs(s) <= 1.0).all()
    assert (np.diff(s) >= 0.0).all()
    assert mean(rule, s**4) == pytest.approx(3.0 / (d * (d + 2.0)), rel=1e-9)
    tilt = min(alpha, 3.0 * np.sqrt(d))
    exact = np.exp(law.log_mgf(tilt) - tilt)
    assert mean(rule, np.exp(tilt * (s - 1.0))) == pytest.approx(exact, rel=1e-9)
    expected = max(1.0, alpha / np.sqrt(d) / (1.0 + np.sqrt(2.0 * log_n))) if d >= 100 else 1.0
    assert rule.smoothness == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("log_n", [0.0, 30.0])
@pytest.mark.parametrize("d", [1, 8, 1000, 10**5])
def test_a_rule_for_the_lengths_of_queries(d, log_n):
    rule = quadrature.length_rule(d, log_n)
    square = rule.scores**2
    assert mean(rule, square) == pytest.approx(1.0, rel=1e-13)
    assert mean(rule, square**2) == pytest.approx(1.0 + 2.0 / d, rel=1e-13)
    # log of the density of log r against its maximum: e^{−DEPTH} below, e^{−DEPTH}/n above
    depth = d / 2.0 * (1.0 + np.log(square) - square)
    assert -DEPTH < depth[0] < -DEPTH + 5.0
    assert -DEPTH < depth[-1] + log_n < -DEPTH + 8.0


def uniform(s):
    return np.where(np.abs(s) <= ROOT3, -np.log(2.0 * ROOT3), -np.inf)


@pytest.mark.parametrize("width", [np.inf, 0.05])
@pytest.mark.parametrize("tilt", [0.0, -2.0])
@pytest.mark.parametrize(("logpdf", "marks"), [(NORMAL, ()), (uniform, (-ROOT3, ROOT3))])
def test_panels_follow_a_density(logpdf, marks, tilt, width):
    found = quadrature.panels(logpdf, marks, 1.0, tilt, width=width)
    s, weights = found.scores, np.exp(found.log_weights)
    assert s.shape[1] == quadrature.POINTS
    assert (np.diff(s.ravel()) > 0.0).all()
    lengths = weights.sum(axis=-1)
    assert (lengths <= width * (1.0 + 1e-12)).all()
    np.testing.assert_array_equal(found.log_density, logpdf(s))
    density = np.exp(found.log_density)
    expected = np.exp(tilt**2 / 2.0)
    if marks:
        expected = np.sinh(ROOT3 * tilt) / (ROOT3 * tilt) if tilt else 1.0
    assert (weights * density * np.exp(tilt * s)).sum() == pytest.approx(expected, rel=1e-10)
    # They neither overlap nor leave out what counts.
    ends = np.cumsum(np.append(s[0].mean() - lengths[0] / 2.0, lengths))
    np.testing.assert_allclose((ends[:-1] + ends[1:]) / 2.0, s.mean(axis=-1), atol=1e-9)
    if not marks:
        reach = np.sqrt(2.0 * (DEPTH - 4.0))  # the length of a panel counts too
        assert ends[0] < tilt - reach < tilt + reach < ends[-1]


def test_panels_are_cut_at_fractions_of_them():
    whole = quadrature.panels(uniform, (-ROOT3, ROOT3), 1.0)
    parts = quadrature.panels(uniform, (-ROOT3, ROOT3), 1.0, fractions=(0.0, 0.25, 1.0))
    lengths, pieces = (np.exp(found.log_weights).sum(axis=-1) for found in (whole, parts))
    expected = np.multiply.outer(lengths, [0.25, 0.75]).ravel()
    np.testing.assert_allclose(pieces, expected, rtol=1e-12)


@pytest.mark.parametrize("place", [-3.1, 0.3, 0.8])
def test_panels_find_a_corner_wherever_it_is(place):
    found = quadrature.panels(lambda s: -np.abs(s - place) - np.log(2.0), (), 1.0)
    mass = np.exp(found.log_weights + found.log_density)
    assert mass.sum() == pytest.approx(1.0, rel=1e-11)
    assert (mass * (found.scores - place) ** 2).sum() == pytest.approx(2.0, rel=1e-9)


def test_what_is_no_log_density_is_named():
    with pytest.raises(TypeError, match=r"logpdf must return a float for each score, shape"):
        quadrature.panels(lambda s: np.zeros(3), (), 1.0)
    with pytest.raises(TypeError, match="of type int64"):
        quadrature.panels(lambda s: np.zeros(s.shape, dtype=np.int64), (), 1.0)
    with pytest.raises(ValueError, match=r"got nan at s="):
        quadrature.panels(lambda s: np.where(s > 1.0, np.nan, -s * s), (), 1.0)
    with pytest.raises(ValueError, match=r"panels are more than 524288"):
        quadrature.panels(NORMAL, (), 1.0, width=1e-5)
