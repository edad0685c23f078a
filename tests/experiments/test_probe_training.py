"""The recorded probe of a model before and after training: as computed today, made twice alike."""

from dataclasses import replace

import numpy as np
import pytest

from attnlib import exact, freezing
from attnlib.scores import DotProduct
from experiments import probe_training
from experiments.lab import data, fields
from experiments.lab.model import Config
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


def test_the_same_numbers_twice(tmp_path, monkeypatch):
    smaller = {
        "CONFIG": Config(width=16, depth=1, head_size=8, sequence=16),
        "TRAINING": replace(probe_training.TRAINING, steps=4),
        "POSITIONS": (2, 16),
        "WINDOWS": 3,
    }
    for name, value in smaller.items():
        monkeypatch.setattr(probe_training, name, value)
    monkeypatch.setattr(data, "load", lambda name: data.embedded(4096))
    paths = [tmp_path / name for name in ("one.json", "two.json")]
    for path in paths:
        monkeypatch.setattr(probe_training, "path_of", lambda _, path=path: path)
        probe_training.main()
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    record = load(paths[0])
    assert record.find(model="after")["heads"] != record.find(model="before")["heads"]
    last = record.find(model="after")["last_query"]
    assert sum(last[0]["weight_by_distance"]) <= 1.0
    assert {head["excess_kurtosis"] > -3.0 for head in last} == {True}
