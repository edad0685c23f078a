"""The power softmax against mpmath, its symmetries, and what it refuses."""

import mpmath as mp
import numpy as np
import pytest

from attnlib import rows

ROWS = {
    "normal": np.random.default_rng(0).standard_normal(7),
    "one key": np.array([-0.3]),
    "huge": np.array([3e307, -1e308, 1e306]),
    "tiny": np.array([1e-300, -3e-300, 2e-301]),
    "far apart": np.array([1e20, 1.0, -1e-20]),
    "a zero": np.array([1.0, 0.0, -2.0]),
    "nearly one-hot": np.array([1.0, 1e-4, -2e-4]),
}


def exact(x, exponent, epsilon):
    """Return y and ∂y/∂x to the working precision, by the definition."""
    x, m, eps = [mp.mpf(float(v)) for v in x], mp.mpf(exponent), mp.mpf(epsilon)
    powers = [abs(v) ** m for v in x]
    total = eps + sum(powers)
    slopes = [m * mp.sign(v) * abs(v) ** (m - 1) / total if v else mp.mpf(0) for v in x]
    y = [power / total for power in powers]
    matrix = [[((i == j) - y[i]) * slopes[j] for j in range(len(x))] for i in range(len(x))]
    return y, matrix


@pytest.mark.parametrize("x", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("exponent", [1.0, 6.0, 7.5])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e250])
def test_both_agree_with_400_digits(x, exponent, epsilon):
    with mp.workdps(400):
        y, matrix = exact(x, exponent, epsilon)
        assert_close(rows.power_softmax(x, exponent, epsilon), y, 1e-12)
        computed = rows.power_softmax_jacobian(x, exponent, epsilon)
        for row, true in zip(computed, matrix, strict=True):
            assert_close(row, true, 1e-11)


def assert_close(values, true, tolerance):
    for value, number in zip(values, true, strict=True):
        if abs(number) > 1e-290:
            assert abs(mp.mpf(float(value)) / number - 1) < tolerance
        else:
            assert abs(value) < 1e-280


def test_the_axis_is_the_one_asked_for():
    x = np.random.default_rng(1).standard_normal((4, 3, 2))
    moved = rows.power_softmax(np.moveaxis(x, 1, -1))
    np.testing.assert_array_equal(rows.power_softmax(x, axis=1), np.moveaxis(moved, -1, 1))
    assert rows.power_softmax_jacobian(x, axis=0).shape == (3, 2, 4, 4)
