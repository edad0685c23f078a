"""The recorded optima of typical rows: complete, and the library agrees."""

import numpy as np

from attnlib import freezing, typical
from attnlib.scores import Normal
from experiments import typical_optima
from experiments.records import load


def test_the_record_is_complete_and_agrees_with_a_short_run_of_other_rows():
    recorded = load("typical_optima")
    work = typical_optima.entries_to_compute(recorded.settings["budget"])
    assert [entry.key for entry in recorded.entries] == [at for at, _ in work]
    entry = recorded.find(n=256)
    here = typical.best_alpha(Normal(), 256, rows=10_000, seed=1)
    unit = freezing.critical_alpha(256)
    error = np.hypot(here.standard_error / unit, entry["standard_error"])
    assert 0.0 < entry["standard_error"] < 0.001
    assert abs(here.value / unit - entry["value"]) < 4.5 * error
