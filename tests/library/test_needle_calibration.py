"""What the logits of measured rows say of a head's scale."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from attnlib.needle_rows import needle_calibration


def needles(alpha, theta, rows=4000, n=430, seed=0):
    scores = np.random.default_rng(seed).normal(size=(rows, n))
    scores[:, 0] += theta
    return alpha * scores


@pytest.mark.parametrize("theta", [3.0, 4.0, 5.0])
def test_a_calibrated_needle_has_the_ratio_and_the_factor_one(theta):
    logits = needles(theta, theta)
    estimates = needle_calibration(logits)
    for estimate in estimates:
        assert estimate.value == pytest.approx(1.0, abs=3.5 * float(estimate.standard_error))
    # The mean of the ratios of single rows is no such number.
    p = np.exp(logits[:, 1:] - logsumexp(logits[:, 1:], axis=1)[:, None])
    plain = (p * logits[:, 1:]).sum(axis=1)
    assert (logits[:, 0] / plain).mean() > 1.15


@pytest.mark.parametrize(("alpha", "theta"), [(2.0, 3.0), (4.0, 3.0), (1.0, 2.0)])
def test_the_best_factor_has_the_least_loss(alpha, theta):
    logits = needles(alpha, theta, rows=500, n=40)

    def loss(log_t):
        scaled = np.exp(log_t) * logits
        return (logsumexp(scaled, axis=1) - scaled[:, 0]).mean()

    best_factor = needle_calibration(logits).best_factor
    assert np.log(best_factor.value) == pytest.approx(minimize_scalar(loss).x, abs=1e-5)


def test_the_place_of_the_needle_and_the_ends():
    logits = needles(2.0, 3.0, 200, 10)
    moved = np.roll(logits, 4, axis=1)
    first, other = needle_calibration(logits), needle_calibration(moved, 4)
    np.testing.assert_allclose(other, first, rtol=1e-9)
    assert needle_calibration(np.eye(1, 5).repeat(3, axis=0)).best_factor.value == np.inf
    assert needle_calibration(-np.eye(1, 5).repeat(3, axis=0)).best_factor.value == 0.0
