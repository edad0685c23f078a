"""What is recorded of SmolLM2's own scale, and what the chapter reads from it."""

import numpy as np
import pytest
from scipy.interpolate import BarycentricInterpolator
from scipy.optimize import minimize_scalar

from experiments import calibrate, calibrated


@pytest.mark.parametrize("length", [256, 512, 1024, 2048])
def test_slopes_are_those_of_the_losses_and_the_best_factor_is_least(length):
    curves = calibrated.curves(length)
    assert curves.losses.shape == curves.slopes.shape == (calibrate.TEXTS, 5)
    np.testing.assert_allclose(curves.at(curves.log_t), curves.losses, rtol=1e-12)
    np.testing.assert_allclose(curves.at(curves.log_t, 1), curves.slopes, atol=1e-9)
    # The backward passes against forward passes alone: the integral of the slopes, by Boole's rule.
    boole = np.array([7, 32, 12, 32, 7]) * 0.2 / 45
    rise = (curves.losses[:, -1] - curves.losses[:, 0]).mean()
    assert curves.slopes.mean(axis=0) @ boole == pytest.approx(rise, abs=1e-3)
    wrong = curves.slopes.mean(axis=0) * [1, 1, 1.2, 1, 1]
    assert wrong @ boole != pytest.approx(rise, abs=1e-3)
    mean = BarycentricInterpolator(curves.log_t, curves.losses.mean(axis=0))
    least = minimize_scalar(mean, bounds=(-0.2, 0.2), method="bounded").x
    assert np.log(curves.best()) == pytest.approx(least, abs=4e-3)
    assert curves.wants().mean() == pytest.approx(np.log(curves.best()), abs=1e-4)


def test_the_pieces_up_to_2048_tokens_are_there_once():
    at = [one["at"] for one in calibrated.pieces()]
    asked = [one for one, _ in calibrate.pieces() if one["length"] <= 2048]
    assert [at.count(one) for one in asked] == [1] * 386
