"""The recorded optima of typical rows: how they are made, and that the library agrees."""

import numpy as np

from attnlib import typical
from attnlib.scores import Normal
from experiments import typical_optima
from experiments.records import load


def poisson(seed, rows):
    rng = np.random.default_rng(seed)
    return np.log(np.cumsum(rng.exponential(size=(rows, typical_optima.POINTS)), axis=1))


def test_gradients_of_the_frozen_phase():
    # E Y = 1 − 1/α there, so E α(1 − Y) = 1 at every α: also a test of the tail's mean.
    g = typical_optima.frozen_gradients(poisson(1, 20_000), np.array([1.1, 1.5, 2.5, 6.0]))
    error = g.std(axis=0) / np.sqrt(len(g))
    assert (np.abs(g.mean(axis=0) - 1.0) < 4.5 * error).all()

    # The log of the geometric mean has the slope 1 − 2 log 2 at the transition.
    logs = np.log(typical_optima.frozen_gradients(poisson(2, 40_000), np.array([1.02, 1.04])))
    # log g = c·x + O(x²): the second order drops out of 2·log g(x) − ½·log g(2x)
    slope = (2.0 * logs[:, 0] - 0.5 * logs[:, 1]) / 0.02
    error = slope.std() / np.sqrt(len(slope))
    assert abs(slope.mean() - (1.0 - 2.0 * np.log(2.0))) < 4.5 * error


def test_an_entry_is_the_same_twice(monkeypatch):
    monkeypatch.setattr(typical_optima, "LENGTHS", (16,))
    first, second = ([compute() for _, compute in typical_optima.work(2**14)] for _ in range(2))
    assert first == second


def test_the_record_is_complete_and_agrees_with_a_short_run_of_other_rows():
    recorded = load("typical_optima")
    work = typical_optima.work(recorded.settings["budget"])
    assert [entry.at for entry in recorded.entries] == [at for at, _ in work]
    for _, entry in recorded.entries:
        estimates = [entry["geometric_mean"], entry["median"], *entry["row"].values()]
        assert all(0.0 <= part["standard_error"] < 0.2 * part["value"] for part in estimates)
    for statistic in ("geometric_mean", "median", "row"):
        entry = recorded.find(n=256)
        there = entry["row"]["0.5"] if statistic == "row" else entry[statistic]
        here = typical.best_alpha(Normal(), 256, statistic, rows=10_000, seed=1)
        difference = abs(here.value / entry["unit"] - there["value"])
        error = np.hypot(here.standard_error / entry["unit"], there["standard_error"])
        assert difference < 4.5 * error, statistic
