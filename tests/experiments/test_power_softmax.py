"""The power softmax against its definition with many digits."""

import mpmath as mp
import numpy as np
import pytest

from experiments.power_softmax import power_softmax, power_softmax_jacobian

ROWS = {
    "normal": np.random.default_rng(0).standard_normal(7),
    "one key": np.array([-0.3]),
    "huge": np.array([3e200, -1e201, 1e199]),
    "a zero": np.array([1.0, 0.0, -2.0]),
    "nearly one-hot": np.array([1.0, 1e-4, -2e-4]),
}


@pytest.mark.parametrize("x", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize(("exponent", "epsilon"), [(1.0, 0.0), (6.0, 1e-6), (7.5, 0.0)])
def test_both_agree_with_60_digits(x, exponent, epsilon):
    with mp.workdps(60):
        values, m = [mp.mpf(float(v)) for v in x], mp.mpf(exponent)
        powers = [abs(v) ** m for v in values]
        total = epsilon + sum(powers)
        y = [power / total for power in powers]
        slopes = [m * mp.sign(v) * abs(v) ** (m - 1) / total if v else 0 for v in values]
        matrix = [[((i == j) - y[i]) * s for j, s in enumerate(slopes)] for i in range(x.size)]
    found = power_softmax(x, exponent, epsilon)
    np.testing.assert_allclose(found, np.array(y, float), 1e-12)
    found = power_softmax_jacobian(x, exponent, epsilon)
    largest = max(abs(s) for s in slopes)
    np.testing.assert_allclose(found, np.array(matrix, float), 1e-11, 1e-15 * float(largest))
