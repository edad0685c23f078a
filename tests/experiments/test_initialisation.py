"""Simulated attention at initialisation, against exact expectations and sums written out."""

import numpy as np

from attnlib import exact
from attnlib.sampling import mean_and_error
from attnlib.scores import DotProduct
from experiments import initialisation

HONEST = 4.5
"""Standard errors; the seeds are fixed."""


def test_sampled_rows_are_those_of_the_exact_expectations():
    d, n, exponent = 16, 64, -0.25
    alpha = d ** (exponent + 0.5)
    rng = np.random.default_rng(2)
    sample = initialisation.sample_rows(rng, d, n, exponent=exponent, count=20_000)
    mean, error = mean_and_error(sample.gradient)
    assert abs(mean - exact.gradient(DotProduct(d), alpha, n)) < HONEST * error
    # Σp² is at least the square of the largest weight, and at most the weight itself.
    collision = 1.0 - sample.gradient / alpha
    assert (sample.largest**2 <= collision + 1e-12).all()
    assert (collision <= sample.largest + 1e-12).all()
    one = initialisation.sample_rows(rng, 1, 1, exponent=0.0)
    assert one.largest.tolist() == [1.0] * 2000
