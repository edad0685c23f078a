"""The predictions about heads that learn to find, held against theory and against the runs."""

import re

import numpy as np
import pytest
from scipy.optimize import brentq

from attnlib import retrieval
from attnlib.retrieval import Fixed, Tilted
from attnlib.scores import Cosine
from experiments import judging, length, length_models, records
from experiments.lab.recall import multipliers, tilt

LAW = Cosine(32)
THETA = tilt(0.5, 32)


@pytest.fixture(scope="module")
def models():
    return length.Heads(length_models.outcomes())


def test_a_part_holds_within_its_margin_or_on_its_side():
    for values, verdict in (([1.0, 1.2], "holds"), ([1.0, 1.4], "refuted"), ([0, 1.0], "refuted")):
        part = judging.near(1, "x", np.array(values), 1.1, 0.05)
        assert (part.verdict, part.mean) == (verdict, np.mean(values))
    ends = ("above 1", "below 1.2", "at least 1.2", "at most 1")
    found = [judging.number(1, "x", np.array([1.0, 1.2]), end).verdict for end in ends]
    assert found == ["holds", "holds", "refuted", "refuted"]
    graded = [judging.graded(1, "x", value, 2.0, 1.0).verdict for value in (2.0, 1.0, 0.9)]
    assert graded == ["holds", "open", "refuted"]
    signs = (([1.0, 1.1], "holds"), ([-1.0, -1.1], "refuted"), ([-1.0, 2.0], "open"))
    for values, verdict in signs:
        assert judging.above(1, "x", np.array(values)).verdict == verdict
    part = judging.near(1, "x", np.array([1.0, 1.0]), 1.0, 0.1)
    others = [part._replace(verdict=word) for word in (judging.OPEN, judging.REFUTED)]
    worst = [judging.verdict([part, *others[:count]]) for count in (0, 1, 2)]
    assert worst == ["holds", "open", "refuted"]  # that of its worst part


def test_every_prediction_of_the_file_has_its_parts(models):
    text = (records.HERE / "predictions" / "length.md").read_text(encoding="utf-8")
    heads = length.parts(records.runs("length_head"))
    of_models = length_models.parts(length_models.outcomes())
    assert {part.prediction for part in heads} == set(length.WORDS)
    assert {part.prediction for part in of_models} == set(length_models.WORDS)
    numbers = set(map(int, re.findall(r"^(\d+)\. ", text, re.MULTILINE)))
    assert set(length.WORDS) | set(length_models.WORDS) == numbers
    said = [part._replace(what="") for part in heads + of_models]
    assert len(set(said)) == len(said)  # no part is another's number under a second name
    by_construction = [part for part in said if part.mean == part.half_width == 0.0]
    assert [part.prediction for part in by_construction] == [12]  # a count, and it could be above 0
    held = [part.verdict == judging.HOLDS for part in heads]
    assert np.mean(held) > 0.9
    assert {part.verdict for part in of_models} <= {judging.HOLDS, judging.OPEN}
    for found in (length.Heads(records.runs("length_head")).runs, models.runs):
        assert {len(runs) for runs in found.values()} == {5}  # seeds


def test_losses_of_models_are_those_of_the_answer(models):
    for key in (("fixed", 2000, 1024), ("noise", 2000, 4096)):
        none, law = models("none", *key), models("ssmax", *key)
        assert none == pytest.approx([one["answer_loss"] for one in models.found(*key)])
        assert law == pytest.approx([one["answers"]["ssmax"] for one in models.found(*key)])
        assert not np.allclose(models("loss", *key), none)


def loss(alpha, n, theta=THETA):
    return float(retrieval.loss(LAW, Tilted(theta), alpha, n))


@pytest.mark.slow
def test_the_numbers_predicted_are_those_of_theory():
    costs = {
        1024: {"root_log": 0.120, "ssmax": 0.476, "llama_4": 0.062, "yarn": 0.437},
        16: {"root_log": 0.011, "infoscale": 0.009, "ssmax": 0.046},
    }
    for n, laws in costs.items():
        for law, excess in laws.items():
            factor = multipliers(n, 64, 32)[law]
            assert loss(factor * THETA, n) - loss(THETA, n) == pytest.approx(excess, abs=2e-3)

    growing = THETA * np.log(1024) / np.log(64)
    best = loss(growing, 1024, growing)
    assert loss(THETA, 1024, growing) - best == pytest.approx(0.17, abs=5e-3)
    middle = multipliers(1024, 64, 32)["root_log"] * THETA
    assert loss(middle, 1024, growing) - best == pytest.approx(0.035, abs=2e-3)

    fixed = retrieval.best_alpha(LAW, Fixed(0.5), [64, 256, 1024, 4096])
    assert fixed[1:] / fixed[0] == pytest.approx([0.911, 0.714, 0.599], abs=2e-3)

    def least(n):
        limit = loss(THETA, n) + 0.1
        return brentq(lambda a: loss(a, n) - limit, 1.0, THETA)

    assert least(4096) / least(64) == pytest.approx(1.196, abs=2e-3)
