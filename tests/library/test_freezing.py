"""The limit of many keys against a quadrature of its own, simulation, mpmath and closed forms.

`by_quadrature` shares nothing with the library: it follows the Laplace transform of e^{αs} up to
n = 1e200, which slow convergence in log n needs.
"""

from functools import cache

import numpy as np
import pytest

from attnlib import exact, freezing, scores


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


@pytest.mark.parametrize(("alpha", "n"), [(1.0, 512), (6.0, 512), (0.5, 10**12), (9.0, 10**12)])
def test_the_quadrature_agrees_with_the_exact_values(alpha, n):
    collision, free_energy = by_quadrature(alpha, np.log(n))
    law = scores.Normal()
    assert collision == pytest.approx(exact.collision_probability(law, alpha, n), rel=1e-9)
    assert free_energy == pytest.approx(exact.free_energy(law, alpha, n), rel=1e-9)


# --- scales --------------------------------------------------------------------------------------


def test_the_critical_scale_of_normal_scores_and_dot_products():
    n = np.array([1, 2, 4096, 1e300])
    np.testing.assert_allclose(freezing.critical_alpha(n) ** 2, 2 * np.log(n), rtol=1e-15)
    for law in (scores.Normal(), scores.DotProduct(8)):
        np.testing.assert_array_equal(freezing.critical_alpha(n, law), freezing.critical_alpha(n))


# --- arguments -----------------------------------------------------------------------------------


def test_more_keys_than_a_scale_can_be_found_for_are_named():
    with pytest.raises(ValueError, match=r"n must be one whose α is at most .* got n=1e\+308"):
        freezing.critical_alpha(1e308, scores.Cosine(3))
