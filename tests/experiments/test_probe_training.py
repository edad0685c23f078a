"""The recorded probe of a model before and after training: its theory is that of today."""

import numpy as np
import pytest

from attnlib import exact, freezing
from attnlib.scores import DotProduct
from experiments import probe_training
from experiments.lab import fields
from experiments.records import load


def test_every_head_is_whole_and_its_theory_is_that_of_today():
    recorded, config = load("probe_training"), probe_training.CONFIG
    for name, today in (("config", config), ("training", probe_training.TRAINING)):
        known = recorded.settings[name].items()  # and what no run could choose any more
        kept = {key: value for key, value in known if key in fields.names(type(today))}
        assert type(today)(**kept) == today
    n, law = np.arange(2, config.sequence + 1), DotProduct(config.head_size)
    for state in ("before", "after"):
        found = recorded.find(model=state)
        assert len(found["heads"]) == len(found["rows"]) == config.depth * config.heads
        for head, rows in zip(found["heads"], found["rows"], strict=True):
            name = f"{state} {head['layer']} {head['head']}"
            assert all(value is not None for value in head.values()), name
            assert head["rows"] == probe_training.WINDOWS * (config.sequence - 1), name
            at = np.array(rows["collision_probability"])
            assert ((at * probe_training.POSITIONS > 1.0 - 1e-6) & (at <= 1.0)).all(), name
            y = exact.collision_probability(law, head["alpha"], n).mean()
            assert head["random_collision_probability"] == pytest.approx(y, rel=1e-6), name
            critical = freezing.critical_alpha(n).mean()
            assert head["critical_alpha"] == pytest.approx(critical), name
