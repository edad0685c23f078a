"""The measurement of trained models, on models that are made here, and what was recorded."""

import math

import numpy as np
import pytest
import torch

from attnlib.attention import rescale
from attnlib.probing.measure import measure as measured
from attnlib.probing.observer import Observer
from attnlib.probing.tokens import TokenTracker
from experiments.compatibility import tiny
from experiments.real_heads import models, parts, rows, source_texts
from experiments.real_heads.models import Model

LAYERS, HEADS, WORDS = 2, 4, 60


def llama():
    options = {"max_position_embeddings": 256, "initializer_range": 0.02, "pad_token_id": None}
    model = tiny("Llama", "sdpa", head=True, **options)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)  # so that heads differ
    return models.freeze(model)


@pytest.fixture
def small(monkeypatch):
    """A tiny decoder in the place of SmolLM2, tiny texts, and few of them."""
    model = Model("SmolLM2", llama(), lambda text: [ord(character) % WORDS for character in text])
    monkeypatch.setattr(parts, "MODELS", {"SmolLM2": lambda: model})
    whole = "".join(map(chr, np.random.default_rng(0).integers(32, 120, 3000)))
    monkeypatch.setattr(
        source_texts, "source_text", lambda source, i, shift=0: whole[17 * i + shift % 7 :]
    )
    for name, size in {"SHORT": 32, "LAYER": 16, "COMMA": "a"}.items():
        monkeypatch.setattr(parts, name, size)
    return model


def test_rows_are_those_of_the_probe():
    model, ids = llama(), list(range(40))
    places = np.arange(4, 40)

    def see(logits, *rest):
        needle = rows.needle_table(logits, places - 1)
        return {"rows": rows.row_table(logits, *rest), "needle": needle}

    table = rows.measure(model, ids, places, see)
    theirs = []

    def note(layer, number, call, output):
        theirs.append(measured(call, output))

    observer = Observer(model, note, TokenTracker(targets="previous"))
    with torch.no_grad(), observer.at_work():
        model(torch.tensor([ids]))

    def column(name):
        of_layers = (getattr(measures.rows, name) for measures in theirs)
        return np.concatenate([x[0, :, 4:] for x in of_layers]).ravel()

    names = {
        "n": "keys",
        "collision": "collision_probability",
        "entropy": "entropy",
        "first": "first_weight",
    }
    for mine, name in names.items():
        np.testing.assert_allclose(table["rows"][mine].ravel(), column(name), rtol=1e-4, atol=1e-6)
    alpha, weight = np.sqrt(table["rows"]["variance"]), table["needle"]["weight"]
    np.testing.assert_allclose(alpha.ravel(), np.sqrt(column("variance")), rtol=1e-4)
    np.testing.assert_allclose(weight.ravel(), column("target_weight"), rtol=1e-3, atol=1e-5)


def test_a_needle_by_hand():
    logits = torch.tensor([[[2.0, 1.0, 3.0, 0.0, -math.inf]]], dtype=torch.float64)
    table = rows.needle_table(logits, np.array([2]), ahead=[4, 5])
    others = np.array([1.0, 0.0])  # without the needle and without the first
    assert table["gap_rest"].item() == pytest.approx(3.0 - 0.5)
    assert table["variance_rest"].item() == pytest.approx(others.var(ddof=1))
    kappa = math.log(np.exp(others - 0.5).mean())
    weights = np.exp(others) / np.exp(others).sum()
    assert table["slope_rest"].item() == pytest.approx(weights @ others - 0.5)
    loss = math.log(np.exp([2.0, 1.0, 3.0, 0.0]).sum()) - 3.0
    assert table["loss 1"].item() == pytest.approx(loss)
    assert table["ahead 4"].item() == pytest.approx(loss)
    assert table["ahead 5"].item() == pytest.approx(
        math.log(1.0 + math.exp(-1.0) + 3.0 * math.exp(kappa - 2.5))
    )
    assert table["weight"].item() == pytest.approx(math.exp(-loss))
    assert np.isnan(rows.needle_table(logits, np.array([-1]))["weight"]).all()


def test_needles_of_a_text():
    needles = rows.find_needles([5, 6, 5, 7, 5], np.arange(5))
    assert needles["previous"].tolist() == [-1, 0, 1, 2, 3]
    assert needles["same"].tolist() == [-1, -1, 0, -1, 2]
    assert needles["induction"].tolist() == [-1, -1, 1, -1, 3]
    again = rows.find_needles_in_repeat([1, 2, 3, 1, 2, 3], np.arange(6))
    assert again.tolist() == [-1, -1, -1, 1, 2, 3]


def test_slopes_are_derivatives(small):
    slopes = parts._slopes(0)
    ids = parts.window(small, 0, 2 * parts.SHORT + 1, parts.SHIFT)
    for head in (0, LAYERS * HEADS - 1):
        late = []
        for times in (math.exp(-0.02), math.exp(0.02)):
            factor = torch.ones(HEADS, 1)
            factor[head % HEADS] = times
            with torch.no_grad(), rescale(factor=factor, layers=[head // HEADS]):
                late.append(float(parts.token_losses(small, ids)[parts.SHORT // 2 :].mean()))
        assert slopes["late"][head] == pytest.approx((late[1] - late[0]) / 0.04, rel=0.02, abs=1e-4)


def test_the_tail_of_a_row_by_hand():
    logits = torch.tensor([[[0.0, 3.0, -1.0, 2.5, 2.0, -math.inf]]], dtype=torch.float64)
    tail = {name: number.item() for name, number in rows.tail_table(logits).items()}
    gaps = np.array([0.0, 0.5, 1.0, 3.0, 4.0])
    assert (tail["n"], tail["range"]) == (5, 4.0)
    assert tail["largest"] == pytest.approx(1.0 / np.exp(-gaps).sum())
    assert tail["tail"] == pytest.approx(math.log(2.0) / 0.5)  # above log 3, log 4/3, log 5/4
    assert np.exp(-tail["half"] * gaps).sum() == pytest.approx(2.0, rel=1e-5)
