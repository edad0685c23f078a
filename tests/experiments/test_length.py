"""The predictions about heads that learn to find, held against theory and against the runs."""

import re
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import brentq

from attnlib import retrieval
from attnlib.retrieval import Fixed, Tilted
from attnlib.scores import Cosine
from experiments import length, length_models, records
from experiments.lab.recall import multipliers, tilt

LAW = Cosine(32)
THETA = tilt(0.5, 32)
PREDICTIONS = (records.RECORDED.parent / "predictions.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parts():
    return length.parts(records.runs("length_head"))


def test_a_number_holds_within_its_margin_only():
    for values, verdict in (([1.0, 1.2], "holds"), ([1.0, 1.4], "refuted"), ([0, 1.0], "refuted")):
        part = length.near(1, "x", np.array(values), 1.1, 0.05)
        assert part.verdict == verdict
        assert part.mean == np.mean(values)


def test_a_sign_is_open_where_its_interval_has_both():
    for values, verdict in (
        ([1.0, 1.1], "holds"),
        ([-1.0, -1.1], "refuted"),
        ([-1.0, 2.0], "open"),
    ):
        assert length.above(1, "x", np.array(values)).verdict == verdict


def test_a_prediction_is_as_good_as_its_worst_part():
    part = length.near(1, "x", np.array([1.0, 1.0]), 1.0, 0.1)
    others = [part._replace(verdict=word) for word in (length.OPEN, length.REFUTED)]
    assert length.verdict([part]) == "holds"
    assert length.verdict([part, others[0]]) == "open"
    assert length.verdict([part, *others]) == "refuted"


def test_every_prediction_of_the_file_has_its_parts(parts):
    numbers = set(map(int, re.findall(r"^(\d+)\. ", PREDICTIONS, re.MULTILINE)))
    of_one_head = {number for number in numbers if number <= max(length.WORDS)}
    assert of_one_head == set(length.WORDS) == {part.prediction for part in parts}
    counts = Counter(part.verdict for part in parts)
    assert counts["holds"] > 0.9 * len(parts)


def test_each_cell_has_five_seeds():
    heads = length.Heads(records.runs("length_head"))
    assert {len(entries) for entries in heads.found.values()} == {5}


def loss(alpha, n, theta=THETA):
    return float(retrieval.loss(LAW, Tilted(theta), alpha, n))


def test_what_laws_cost_a_trained_head_is_what_theory_says():
    for law, excess in (
        *(("root_log", 0.120), ("ssmax", 0.476), ("llama_4", 0.062)),
        *(("yarn", 0.437), ("infoscale", 0.085)),
    ):
        factor = multipliers(1024, 64, 32)[law]
        assert loss(factor * THETA, 1024) - loss(THETA, 1024) == pytest.approx(excess, abs=2e-3)
    for law, excess in (("root_log", 0.011), ("infoscale", 0.009), ("ssmax", 0.046)):
        factor = multipliers(16, 64, 32)[law]
        assert loss(factor * THETA, 16) - loss(THETA, 16) == pytest.approx(excess, abs=1e-3)


def test_what_a_growing_needle_wants_is_what_theory_says():
    theta = THETA * np.log(1024) / np.log(64)
    best = loss(theta, 1024, theta)
    assert loss(THETA, 1024, theta) - best == pytest.approx(0.17, abs=5e-3)
    middle = multipliers(1024, 64, 32)["root_log"] * THETA
    assert loss(middle, 1024, theta) - best == pytest.approx(0.035, abs=2e-3)


def test_what_a_fixed_needle_wants_is_what_theory_says():
    best = retrieval.best_alpha(LAW, Fixed(0.5), [64, 256, 1024, 4096])
    assert best[1:] / best[0] == pytest.approx([0.911, 0.714, 0.599], abs=2e-3)


def test_the_least_factor_is_what_theory_says():
    def least(n):
        limit = loss(THETA, n) + 0.1
        return brentq(lambda a: loss(a, n) - limit, 1.0, THETA)

    assert least(4096) / least(64) == pytest.approx(1.196, abs=2e-3)


# --- models ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models():
    return length_models.Models(length_models.outcomes())


def test_every_prediction_about_models_has_its_parts():
    numbers = set(map(int, re.findall(r"^(\d+)\. ", PREDICTIONS, re.MULTILINE)))
    parts = length_models.parts(length_models.outcomes())
    assert set(length_models.WORDS) == {part.prediction for part in parts}
    assert set(length.WORDS) | set(length_models.WORDS) == numbers
    assert {part.verdict for part in parts} <= {length.HOLDS, length.OPEN}


def test_each_cell_of_models_has_five_seeds(models):
    assert {len(entries) for entries in models.found.values()} == {5}


def test_losses_of_models_are_those_of_the_answer(models):
    for key in (("fixed", 2000, 1024), ("noise", 2000, 4096)):
        none, law = models("none", *key), models("ssmax", *key)
        assert none == pytest.approx([one["answer_loss"] for one in models.found[key]])
        assert law == pytest.approx([one["answers"]["ssmax"] for one in models.found[key]])
        assert not np.allclose(models("loss", *key), none)
