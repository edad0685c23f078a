"""Simulated attention at initialisation, against exact expectations and sums written out."""

import numpy as np
import pytest

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


@pytest.mark.parametrize("causal", [None, False, True])
def test_outputs_are_weighted_means_of_the_values(causal):
    d, n, heads = 3, 5, 18  # more heads than are computed at a time
    options = {} if causal is None else {"causal": causal}
    found = initialisation.output_squares(np.random.default_rng(3), d, n, heads, **options)
    assert found.shape == (heads, n)
    rng = np.random.default_rng(3)
    for start, size in ((0, 16), (16, 2)):
        q, k, v = rng.standard_normal((3, size, n, d), dtype=np.float32).astype(np.float64)
        for head in range(size):
            for i in range(n):
                seen = i + 1 if causal else n
                weights = np.exp(k[head, :seen] @ q[head, i] / np.sqrt(d))
                output = weights @ v[head, :seen] / weights.sum()
                assert found[start + head, i] == pytest.approx((output**2).mean(), rel=1e-5)
