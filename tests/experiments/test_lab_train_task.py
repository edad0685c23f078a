"""Heads that learn to find: the tasks by brute force, what is measured by hand, sweeps of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnlib import retrieval
from attnlib.attention import rescale
from attnlib.probing.measure import Call, Queries
from attnlib.probing.measure import measure as probed
from attnlib.scores import Cosine
from experiments.lab import tasks, train_task
from experiments.lab.head_measures import MAX_MULTIPLIER, SLACK, measure_rows, measure_trials
from experiments.lab.model import Config
from experiments.lab.tasks import Task
from experiments.lab.train_task import Head

pytestmark = pytest.mark.usefixtures("one_thread")


def rows_of(gap="noise", strength=0.6, d=16, n=24, sets=400, seed=7, length=24):
    task = Task(gap=gap, strength=strength)
    return tasks.draw_nearest(task, length, d, n, np.random.default_rng(seed), sets)


def cosines(rows, d):
    queries, keys = (part.astype(np.float64) for part in rows.read)
    return queries @ keys.swapaxes(1, 2) / d


@pytest.mark.parametrize("gap", tasks.GAPS)
def test_the_needle_is_where_it_is_said_to_be_and_as_strong(gap):
    rows = rows_of(gap)
    for part in rows.read:
        np.testing.assert_allclose(np.linalg.norm(part, axis=-1), 4.0, rtol=1e-5)
    cosine = cosines(rows, 16)
    at = np.take_along_axis(cosine, rows.needle[..., None], axis=2)[..., 0]
    if gap == "fixed":
        np.testing.assert_allclose(at, 0.6, atol=1e-5)
    else:
        error = at.std() / math.sqrt(at.size)
        assert abs(at.mean() - 0.6) < 4.0 * error
        variance = Cosine(16).log_mgf_derivatives(tasks.tilt(0.6, 16)).second
        assert 0.5 < at.std() / math.sqrt(variance) < 1.5
    others = np.delete(cosine.reshape(-1, 24), 0, axis=1)[rows.needle.ravel() == 0]
    assert abs(others.mean()) < 5.0 / math.sqrt(16 * others.size)
    assert others.var() == pytest.approx(1.0 / 16, rel=0.1)
    assert np.bincount(rows.needle.ravel(), minlength=24).min() > 0


def drawn(name, gap, n=40, sets=300, seed=5, strength=0.8, queries=8):
    task, rng = Task(name=name, gap=gap, strength=strength), np.random.default_rng(seed)
    return tasks.draw_sequences(task, 40, n, rng, sets, queries)


def assert_share(share, expected, count):
    assert abs(share - expected) <= 4.0 * math.sqrt(expected * (1.0 - expected) / count)


@pytest.mark.parametrize(("gap", "queries"), [("noise", 8), ("fixed", 13)])
def test_the_pair_of_a_key_is_where_it_is_said_to_be(gap, queries):
    (tokens,), answer, needle = drawn("recall", gap, queries=queries)
    assert tokens.shape == (300, 40)
    true, every = 0, 0
    for row, values, places in zip(tokens, answer, needle, strict=True):
        pairs, asked = row[:-queries], row[-queries:]
        assert (asked % 4 == 0).all()
        assert (pairs % 4 > 0).all()
        for token, value, place in zip(asked, values, places, strict=True):
            assert pairs[place] % 4 == value
            same = pairs // 4 == token // 4
            true, every = true + same[place], every + 1
            if gap == "fixed":
                assert np.flatnonzero(same).tolist() == [place]
    assert_share(true / every, 1.0 if gap == "fixed" else 0.8, every)


@pytest.mark.parametrize("gap", ["noise", "fixed"])
def test_a_stretch_comes_again_and_the_needle_is_what_came_next(gap):
    (tokens,), answer, needle = drawn("induction", gap)
    before, asked = tokens[:, :-8], tokens[:, -8:]
    np.testing.assert_array_equal(np.diff(needle, axis=1), 1)
    np.testing.assert_array_equal(np.take_along_axis(before, needle, axis=1), answer)
    copied = np.take_along_axis(before, needle - 1, axis=1)
    assert tokens.min() >= 0
    assert tokens.max() < tasks.SYMBOLS
    if gap == "fixed":
        np.testing.assert_array_equal(asked, copied)
        assert ((before[:, None] == asked[..., None]).sum(axis=2) == 1).all()
    else:
        assert_share((asked == copied).mean(), 0.8, asked.size)


TOKENS = Config(width=16, head_size=8, depth=2, sequence=24, positions="rotary", fit_policy=True)


def test_a_transformer_learns_and_is_measured_beyond_its_length():
    config = replace(TOKENS, depth=1, positions="none", width=32, head_size=16)
    task = Task(
        name="recall", gap="fixed", steps=100, batch=16, rows=32, learning_rate=0.02, lengths=[48]
    )
    result, same = (train_task.train_and_test(config, task) for _ in range(2))
    assert result == same
    assert result.losses[-1] < result.losses[0] - 0.2
    for row, n in zip(result.measured, (24, 48), strict=True):
        assert row["n"] == n
        assert 0.0 <= row["accuracy"] <= 1.0
    at_home, beyond = result.measured
    for law, value in at_home["answers"].items():  # at n₀ all are one, but for shorter rows
        assert value == pytest.approx(at_home["answer_loss"], abs=0.05), law
    model, _ = train_task.train_model(config, task)
    with torch.no_grad(), rescale(factor="qwen", train_length=24):
        again = train_task.run_trial(config, task, model, 48).said["answer_loss"]
    assert again == beyond["answers"]["qwen"] != beyond["answer_loss"]


def test_what_is_measured_agrees_with_sums_by_hand_and_with_the_probe():
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 24, 6)), rng.standard_normal((24, 6))
    logits, needle = q[0] @ k.T, rng.integers(0, 24, 24)
    statistics = measure_rows(logits, needle, {"twice": 2.0})
    weights = [np.exp(row) / np.exp(row).sum() for row in logits]
    others = [np.delete(row, i) for row, i in zip(logits, needle, strict=True)]
    gaps = [row[i] - rest.mean() for row, i, rest in zip(logits, needle, others, strict=True)]
    centred = np.concatenate([rest - rest.mean() for rest in others])
    at = [w[i] for w, i in zip(weights, needle, strict=True)]
    assert statistics["gap"] == pytest.approx(np.mean(gaps))
    assert statistics["variance"] == pytest.approx(np.mean([rest.var(ddof=1) for rest in others]))
    assert statistics["weight"] == pytest.approx(np.mean(at))
    assert statistics["loss"] == pytest.approx(-np.log(at).mean())
    assert statistics["slope"] == pytest.approx(
        (np.exp(centred) * centred).sum() / np.exp(centred).sum()
    )
    twice = [np.exp(2.0 * row) / np.exp(2.0 * row).sum() for row in logits]
    assert statistics["laws"]["twice"] == pytest.approx(
        -np.mean([math.log(w[i]) for w, i in zip(twice, needle, strict=True)])
    )

    here = torch.from_numpy(needle)[None]
    queries = Queries(target=here)
    tensors = (torch.from_numpy(x)[None, None] for x in (q[0], k, k))
    by_probe = probed(Call(*tensors, scale=1.0, queries=queries), None).rows
    assert by_probe.target_gap.mean() == pytest.approx(statistics["gap"], rel=1e-5)
    assert by_probe.target_weight.mean() == pytest.approx(statistics["weight"], rel=1e-5)


def test_the_multiplier_is_the_best_of_a_grid_and_the_least_is_near_enough():
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((400, 12))
    needle = np.zeros(400, dtype=np.int64)
    logits[:, 0] += 1.0
    grid = np.linspace(0.2, 3.0, 281)
    statistics = measure_rows(logits, needle, {str(t): t for t in grid})
    losses = np.array(list(statistics["laws"].values()))
    assert abs(statistics["best"] - grid[losses.argmin()]) < 0.011
    near = grid[losses <= losses.min() + SLACK]
    assert near[0] - 0.01 <= statistics["least"] <= near[0] + 1e-6
    never_beaten = np.array([[3.0, 0.0], [1.0, 0.5]])
    assert measure_rows(never_beaten, np.array([0, 0]))["best"] == MAX_MULTIPLIER
    assert measure_rows(never_beaten, np.array([1, 1]))["best"] == 1.0 / MAX_MULTIPLIER


def bayes(strength, d):
    """Return a head whose logits are the log of what is known of the needle."""
    head = Head(Config(width=d, head_size=d, depth=1, sequence=64))
    with torch.no_grad():
        head.query.copy_(torch.eye(d))
        head.key.copy_(torch.eye(d) * tasks.tilt(strength, d) / math.sqrt(d))
    return head


def test_the_best_head_is_calibrated_and_loses_what_theory_says():
    d, strength = 16, 0.7
    theta = tasks.tilt(strength, d)
    head, task = bayes(strength, d), Task(strength=strength, rows=2048, seed=3)
    with torch.no_grad():
        tested = [train_task.run_trial(head.config, task, head, n) for n in (64, 16, 1024)]
    rows = measure_trials(tested, 64, d)
    for row in rows:
        law, needle = Cosine(d), retrieval.Tilted(theta)
        exact = float(retrieval.loss(law, needle, theta, row["n"]))
        error = {16: 0.012, 64: 0.02, 1024: 0.044}[row["n"]]  # of groups of 8 queries
        assert abs(row["loss"] - exact) < 4.0 * error
        assert abs(row["predicted_loss"] - exact) < 5.0 * error + 0.03
        assert row["predicted_weight"] == pytest.approx(
            float(retrieval.weight(law, needle, theta, row["n"])), abs=0.03
        )
        assert row["best"] == pytest.approx(1.0, abs=0.12)
        assert row["annealed_loss"] > exact
        assert row["variance"] == pytest.approx(theta**2 / d, rel=0.03)
        assert row["gap"] == pytest.approx(theta * strength, rel=0.03)
    assert rows[2]["laws"]["qwen"] > rows[2]["loss"]
