"""The recorded optima of typical rows: how they are made, and that the library agrees."""

import numpy as np

from attnlib import typical
from attnlib.scores import Normal
from experiments import typical_optima
from experiments.records import load


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
