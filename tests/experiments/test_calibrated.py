"""What is recorded of models' own scales, and what the chapter reads from it."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.interpolate import BarycentricInterpolator
from scipy.optimize import minimize_scalar

from experiments import calibrate
from experiments.judges import calibrated
from experiments.real_heads.models import Model


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
    mean = BarycentricInterpolator(curves.log_t, curves.losses.mean(axis=0))
    least = minimize_scalar(mean, bounds=(-0.2, 0.2), method="bounded").x
    assert np.log(curves.best()) == pytest.approx(least, abs=4e-3)
    assert curves.best_log_t().mean() == pytest.approx(np.log(curves.best()), abs=1e-4)


def test_all_pieces_are_there_once():
    at = [piece["at"] for piece in calibrated.recorded_pieces()]
    assert [at.count(piece) for piece, _ in calibrate.entries_to_compute()] == [1] * len(at)


def test_of_a_text_15_per_cent_are_to_be_guessed_and_the_rest_stands():
    words = ["[CLS]", "[SEP]", "[MASK]", "A", "C"]
    module = SimpleNamespace(config=SimpleNamespace(vocab_size=5))
    model = Model("RXNMapper", module, lambda text: [0, *(3 for _ in text), 1], words.__getitem__)
    batch = calibrate.masked(model, 0)
    ids, labels = batch["input_ids"], batch["labels"]
    hidden = labels >= 0
    assert len(ids) == calibrate.MASKINGS
    assert set(hidden.sum(dim=1).tolist()) == {round(0.15 * (ids.shape[1] - 2))}
    assert not hidden[:, [0, -1]].any()
    assert (ids[hidden] == words.index("[MASK]")).all()
    assert (labels[hidden] == 3).all()
    assert (ids[:, 1:-1][~hidden[:, 1:-1]] == 3).all()
    assert len({tuple(row) for row in hidden.tolist()}) == calibrate.MASKINGS
