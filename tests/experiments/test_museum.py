"""The recorded costs of the museum: of the exhibits as they are, and as the probe finds them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments import museum
from experiments.lab import data
from experiments.lab.model import Config
from experiments.lab.train import Training
from experiments.records import load
from tests.library.museum import EXHIBITS


@pytest.fixture(scope="module")
def recorded():
    return load("museum")


def exhibits(recorded):
    return {entry.at["exhibit"]: entry.found for entry in recorded.entries if "exhibit" in entry.at}


def test_it_says_how_it_was_made(recorded):
    assert Config(**recorded.settings["config"]) == museum.CONFIG
    assert Training(**recorded.settings["training"]) == museum.TRAINING
    assert tuple(recorded.settings["ratios"]) == museum.RATIOS


def test_it_has_the_museum_of_today(recorded):
    found = exhibits(recorded)
    assert list(found) == [exhibit.name for exhibit in EXHIBITS]
    for exhibit in EXHIBITS:
        one = found[exhibit.name]
        assert (one["link"], one["kind"], one["what"]) == (exhibit.link, exhibit.kind, exhibit.what)
        assert one["intended"] == f"{exhibit.intended():.4g}"


def test_the_model_is_the_one_that_the_probe_recorded(recorded):
    right, other = recorded.find(model="trained"), load("probe_training").find(model="after")
    assert right["loss"] == pytest.approx(other["loss"], abs=1e-4)
    alphas = [head["alpha"] for head in other["heads"]]
    assert right["alpha"] == pytest.approx(np.mean(alphas), rel=1e-3)
    assert right["cost"] == 0.0


def test_a_bug_costs_what_its_multiplier_costs(recorded):
    curve = [(entry.at["ratio"], entry.found) for entry in recorded.entries if "ratio" in entry.at]
    for name, one in exhibits(recorded).items():
        same = [found for ratio, found in curve if one["times"] == ratio]
        if same and one["kind"] != "law in n":
            assert one["cost"] == same[0]["cost"], name
        if "cost" in one:
            assert one["cost"] == pytest.approx(
                one["loss"] - recorded.find(model="trained")["loss"], abs=1e-9
            )


def test_nothing_was_found_where_nothing_is_wrong(recorded):
    found = [entry.found for entry in recorded.entries if "alarms" in entry.at]
    assert sum(one["audits"] for one in found) > 1300
    assert sum(one["alarms"] for one in found) == 0


@pytest.fixture(scope="module")
def small():
    """A model of a few steps, and what measures it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(museum, "CONFIG", Config(width=16, depth=2, head_size=8, sequence=16))
        patch.setattr(museum, "TRAINING", replace(museum.TRAINING, steps=4))
        patch.setattr(museum, "WINDOWS", 3)
        patch.setattr(data, "load", lambda name, path: data.embedded(4096))
        yield museum.Trained(None)


def test_rows_seen_from_outside_are_those_of_the_probe(small):
    for ratio in (0.5, 3.0):
        with museum.Replaced(lambda q, k, v, by=ratio: museum.own(q * by, k, v)) as seen:
            cost = small.cost()
        assert {**cost, **seen.rows()} == pytest.approx(small.rescaled(ratio), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("maxtext-3138", "as a multiplier"),
        ("vllm-48621", "as a multiplier"),
        ("megatron-bridge-4155", "as a multiplier"),
        ("keras-23038", "as it is"),
        ("vllm-metal-665", "no: the model does not have what is meant"),
        ("executorch-21749", "no: at the model's calls nothing differs"),
    ],
)
def test_a_fault_is_met_or_not(small, name, how):
    (exhibit,) = (one for one in EXHIBITS if one.name == name)
    found = small.met(exhibit)
    assert found["met"] == how
    assert ("cost" in found) == (not how.startswith("no"))


def test_a_law_is_wrong_at_each_position(monkeypatch):
    monkeypatch.setattr(museum, "CONFIG", Config(sequence=128))
    (exhibit,) = (one for one in EXHIBITS if one.name == "vllm-44136")
    ratio = museum.ratio_of(exhibit)
    assert torch.equal(ratio[:16], torch.ones(16, dtype=torch.float64))
    assert float(ratio[63]) == pytest.approx(np.log(16) / np.log(64))
