"""The recorded probe of a model before and after training: as computed today, made twice alike."""

from dataclasses import replace

import numpy as np
import pytest

from attnlib import exact, freezing
from attnlib.probing import DEFINITIONS
from attnlib.scores import DotProduct
from experiments import probe_training
from experiments.lab import data
from experiments.lab.model import Config
from experiments.lab.train import Training
from experiments.records import load


@pytest.fixture(scope="module")
def recorded():
    return load("probe_training")


def heads(recorded):
    for state in ("before", "after"):
        found = recorded.find(model=state)
        for head, rows in zip(found["heads"], found["rows"], strict=True):
            yield f"{state} {head['layer']} {head['head']}", head, rows


def test_it_says_how_it_was_made(recorded):
    config = probe_training.CONFIG
    assert Config(**recorded.settings["config"]) == config
    assert Training(**recorded.settings["training"]) == probe_training.TRAINING
    assert len(recorded.find(model="before")["heads"]) == config.depth * config.heads


def test_every_head_is_whole_and_within_its_bounds(recorded):
    length, windows = probe_training.CONFIG.sequence, probe_training.WINDOWS
    for name, head, rows in heads(recorded):
        assert list(head) == list(DEFINITIONS), name
        assert all(value is not None for value in head.values()), name
        assert head["rows"] == windows * (length - 1), name
        assert 1.0 < head["effective_keys"] < length, name
        at = np.array(rows["collision_probability"])
        assert (at * probe_training.POSITIONS > 1.0 - 1e-6).all(), name
        assert (at <= 1.0).all(), name


def test_the_theory_in_it_is_that_of_today(recorded):
    n = np.arange(2, probe_training.CONFIG.sequence + 1)
    law = DotProduct(probe_training.CONFIG.head_size)
    assert recorded.find(model="before")["heads"][0]["critical_alpha"] == pytest.approx(
        freezing.critical_alpha(n).mean()
    )
    for name, head, _ in heads(recorded):
        y = exact.collision_probability(law, head["alpha"], n).mean()
        assert head["random_collision_probability"] == pytest.approx(y, rel=1e-6), name


def test_training_has_taught_the_model_something(recorded):
    assert recorded.find(model="before")["loss"] > 5.0
    assert recorded.find(model="after")["loss"] < 2.2
    losses = {at["alpha"]: found["loss"] for at, found in recorded.select(model="rescaled")}
    assert losses[1.0] == pytest.approx(recorded.find(model="after")["loss"], rel=1e-6)
    assert min(losses, key=losses.get) == 1.0


def test_the_same_numbers_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(
        probe_training, "CONFIG", Config(width=16, depth=1, head_size=8, sequence=16)
    )
    monkeypatch.setattr(probe_training, "TRAINING", replace(probe_training.TRAINING, steps=4))
    monkeypatch.setattr(probe_training, "POSITIONS", (2, 16))
    monkeypatch.setattr(probe_training, "ALPHAS", (1.0, 2.0))
    monkeypatch.setattr(probe_training, "WINDOWS", 3)
    monkeypatch.setattr(data, "load", lambda name, path: data.embedded(4096))
    paths = [tmp_path / name for name in ("one.json", "two.json")]
    for path in paths:
        probe_training._spline.cache_clear()
        probe_training.main(None, path)
    probe_training._spline.cache_clear()
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    record = load(paths[0])
    plain, doubled = (one.found["heads"][0]["alpha"] for one in record.select(model="rescaled"))
    assert doubled == pytest.approx(2.0 * plain, rel=1e-5)
    assert record.find(model="after")["heads"] != record.find(model="before")["heads"]
