"""What the figures of trained heads and their page are made of: the records, and nothing else."""

import json

import numpy as np
import pytest

from attnlib import exact
from attnlib.scores import Normal
from book import models
from book.live import heads, script
from experiments.real_heads.summary import FINDS, LISTED
from experiments.records import load
from tests.books import ROOT


@pytest.fixture(scope="module")
def atlas():
    """Return the atlas as the module has it."""
    lines = script.made_module("atlas").splitlines()[1:-1]
    return json.loads("{" + "".join(lines).rstrip(",") + "}")


def test_the_atlas_is_the_record(atlas):
    record, start = load("real_heads_atlas"), 0
    for model, measured in zip(atlas["models"], heads.MODELS, strict=True):
        found = record.find(model=measured.name, **measured.at)
        count = model["layers"] * model["heads"]
        assert count == len(found["alpha"])
        assert model["n"] == round(found["n"])
        for name in ("alpha", "keys_rest", "first", "output", "entropy", "random_keys"):
            mine = atlas["columns"][name][start : start + count]
            np.testing.assert_allclose(mine, np.array(found[name], float), rtol=6e-3)
        expected = 1 / (found["n"] * exact.collision_probability(Normal(), 2.0, model["n"]))
        at_two = np.exp(np.interp(np.log(2), np.log(atlas["alphas"]), np.log(model["random"])))
        assert at_two == pytest.approx(float(expected), rel=0.01)
        start += count
    assert {len(column) for column in atlas["columns"].values()} == {start}
    assert (atlas["finds"], atlas["listed"]) == (FINDS, LISTED)


def test_the_page_is_what_its_command_writes():
    text = models.PAGE.read_text("utf-8")
    assert text == models.page()
    assert len(text.encode()) < 150_000
    assert text.count("<tr><td>") == 550  # a plain table, which needs no script
    assert (ROOT / "_toc.yml").read_text("utf-8").count("- file: models\n") == 1
