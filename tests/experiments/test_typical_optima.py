"""The recorded optima of typical rows: how they are made, and that the library agrees."""

import numpy as np
import pytest

from attnlib import typical
from attnlib.scores import Normal
from experiments import typical_optima
from experiments.records import load


def test_an_entry_is_the_same_twice(monkeypatch):
    monkeypatch.setattr(typical_optima, "LENGTHS", (16,))

    def made():
        return [compute() for _, compute in typical_optima.work(2**14)]

    assert made() == made()


def test_the_mean_gradient_of_the_frozen_phase_does_not_depend_on_alpha():
    # E Y = 1 − 1/α there, so E α(1 − Y) = 1: also a test of the tail's mean.
    rng = np.random.default_rng(1)
    points = np.log(np.cumsum(rng.exponential(size=(20_000, 300)), axis=1))
    g = typical_optima.frozen_gradients(points, np.array([1.1, 1.5, 2.5, 6.0]))
    error = g.std(axis=0) / np.sqrt(len(g))
    assert (np.abs(g.mean(axis=0) - 1.0) < 4.5 * error).all()


def test_the_frozen_geometric_mean_falls_from_the_transition_on():
    # Its logarithm has the slope 1 − 2 log 2 there.
    rng = np.random.default_rng(2)
    points = np.log(np.cumsum(rng.exponential(size=(40_000, 300)), axis=1))
    logs = np.log(typical_optima.frozen_gradients(points, np.array([1.02, 1.04])))
    # log g = c·x + O(x²): the second order drops out of 2·log g(x) − ½·log g(2x)
    slope = (2.0 * logs[:, 0] - 0.5 * logs[:, 1]) / 0.02
    error = slope.std() / np.sqrt(len(slope))
    assert abs(slope.mean() - (1.0 - 2.0 * np.log(2.0))) < 4.5 * error


def test_a_row_of_the_limit_has_its_optimum_where_a_fine_table_has_it():
    rng = np.random.default_rng(3)
    points = np.log(np.cumsum(rng.exponential(size=(50, 300)), axis=1))
    found = typical_optima.frozen_row_optima(points, np.geomspace(5e-4, 80.0, 200))
    fine = 1.0 + np.geomspace(1e-3, 70.0, 4000)
    best = fine[typical_optima.frozen_gradients(points, fine).argmax(axis=1)]
    inside = best < 50.0
    np.testing.assert_allclose(found[inside], best[inside], rtol=0.01)


@pytest.fixture(scope="module")
def recorded():
    return load("typical_optima")


def test_the_record_is_complete_and_was_made_by_its_command(recorded):
    work = typical_optima.work(recorded.settings["budget"])
    assert [entry.at for entry in recorded.entries] == [at for at, _ in work]
    for _, entry in recorded.entries:
        estimates = [entry["geometric_mean"], entry["median"], *entry["row"].values()]
        assert all(0.0 <= part["standard_error"] < 0.2 * part["value"] for part in estimates)


@pytest.mark.parametrize("n", [16, 256])
@pytest.mark.parametrize("statistic", ["geometric_mean", "median", "row"])
def test_the_record_agrees_with_a_short_run_of_other_rows(recorded, n, statistic):
    entry = recorded.find(n=n)
    there = entry["row"]["0.5"] if statistic == "row" else entry[statistic]
    here = typical.best_alpha(Normal(), n, statistic, rows=10_000, seed=1)
    difference = abs(here.value / entry["unit"] - there["value"])
    assert difference < 4.5 * np.hypot(here.standard_error / entry["unit"], there["standard_error"])
