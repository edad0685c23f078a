"""What the live figures show is what is recorded, and pages have their numbers."""

import json

import numpy as np

from attnlib import exact
from attnlib.scores import Normal
from book import drawings
from book.live import heads
from experiments.records import load
from tests.nbval_compare import text_difference


def test_the_atlas_is_the_record():
    atlas, record, start = json.loads(json.dumps(heads.atlas())), load("real_heads_atlas"), 0
    for model, measured in zip(atlas["models"], heads.MODELS, strict=True):
        entry = record.find(model=measured.name, **measured.run)
        count = model["layers"] * model["heads"]
        assert count == len(entry["alpha"])
        for name in ("alpha", "keys_rest", "first", "output", "entropy", "random_keys"):
            mine = atlas["columns"][name][start : start + count]
            np.testing.assert_allclose(mine, np.array(entry[name], float), rtol=6e-3)
        expected = 1 / (entry["n"] * exact.collision_probability(Normal(), 2.0, model["n"]))
        at_two = np.exp(np.interp(np.log(2), np.log(atlas["alphas"]), np.log(model["random"])))
        np.testing.assert_allclose(at_two, float(expected), rtol=0.01)
        start += count
    assert {len(column) for column in atlas["columns"].values()} == {start}


def test_the_committed_drawings_are_drawn_so():
    for name, drawn in drawings.drawings().items():
        committed = (drawings.STATIC / name).read_text(encoding="utf-8")
        assert text_difference(committed, drawn) is None, name
