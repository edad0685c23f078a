"""The heads that the page shows: what is recorded of them, and that they do what is said."""

import numpy as np
import pytest

from attnlib.rows import collision_probability, softmax
from attnlib.sampling import sample
from attnlib.scores import Normal
from experiments.real_heads import rows, shown
from experiments.real_heads.inputs import Model
from experiments.records import load
from tests.experiments.test_real_heads import HEADS, LAYERS, WORDS, llama


@pytest.fixture(scope="module")
def record():
    return load("real_heads_shown")


def weights(found):
    """Return the rows of a recorded head."""
    q, k = shown.unpacked(found["queries"]), shown.unpacked(found["keys"])
    logits = q @ k.T * found["scale"]
    if found["causal"]:
        logits[np.triu_indices(len(q), 1)] = -np.inf
    return softmax(logits)


def mean_weight(p, at):
    """Return the mean weight of the keys that are meant."""
    at = np.array(at)
    return p[at >= 0, at[at >= 0]].mean()


def test_queries_and_keys_of_a_head_are_those_of_the_model(monkeypatch):
    model = Model("SmolLM2", llama(), lambda text: [ord(one) % WORDS for one in text])
    monkeypatch.setattr(shown, "MODELS", {"SmolLM2": lambda: model})
    ids = model.reads(shown.text_of("SmolLM2"))
    expected, _ = rows.measure(model.module, ids, np.arange(len(ids)))
    for layer, head in ((0, 0), (LAYERS - 1, HEADS - 1)):
        one = shown.Shown("SmolLM2", layer, head, "", shown.repeat)
        found = shown._recorded(one)
        assert found["causal"]
        assert found["tokens"] == [str(token) for token in ids]
        np.testing.assert_allclose(
            collision_probability(weights(found)),
            expected["collision"][HEADS * layer + head],
            rtol=0.01,
        )


def test_vectors_are_rounded_to_a_part_in_two_thousand():
    vectors = np.random.default_rng(0).standard_normal((5, 8)) * np.logspace(-3, 3, 5)[:, None]
    off = np.abs(shown.unpacked(shown.packed(vectors)) - vectors)
    assert (off <= np.abs(vectors).max(axis=1, keepdims=True) / (1.9 * shown.WHOLE)).all()


def test_what_is_meant():
    ids = [5, 6, 5, 5, 6, 5]
    assert shown.apart(-1)(ids) == [-1, 0, 1, 2, 3, 4]
    assert shown.apart(2)(ids) == [2, 3, 4, 5, -1, -1]
    assert shown.same(ids) == [-1, -1, 0, 2, 1, 3]
    assert shown.repeat(ids) == [-1, -1, -1, 1, 2, 3]


def test_the_record_has_all_heads(record):
    assert [entry.at for entry in record.entries] == [at for at, _ in shown.shown()]
    assert len({one.model for one in shown.SHOWN}) == 5


@pytest.mark.parametrize("one", shown.SHOWN, ids=lambda one: f"{one.model}-{one.layer}-{one.head}")
def test_the_heads_do_what_is_said(record, one):
    found = record.find(model=one.model, layer=one.layer, head=one.head)
    p, n = weights(found), len(found["tokens"])
    keys = 1 / collision_probability(p).mean()
    if one.meant:
        assert mean_weight(p, found["meant"]) > 0.35
        assert "nothing else" not in one.does or keys < 1.01
    elif "first token" in one.does and "not" not in one.does:
        assert p[2:, 0].mean() > 0.9
    elif "not the first" in one.does:
        assert p.mean(0).argmax() > 0
        assert p.mean(0).max() > 0.4
    elif "broad" in one.does:
        assert keys > (n / 2 if "half" in one.does else n / 8)
    else:
        arrow = found["tokens"].index(">>")
        atoms = [i for i in range(arrow + 1, n) if found["tokens"][i].isalpha()]
        best = p[atoms].argmax(axis=1)
        assert len(atoms) == 13
        assert (best < arrow).all()
        assert [found["tokens"][i] for i in best] == [found["tokens"][i] for i in atoms]


def test_random_rows_are_the_library_s(record):
    n, alpha = 22, shown.ALPHAS[10]
    found = record.find(random="keys", n=n)[10]
    other = sample(
        Normal(), n, lambda s: 1 / collision_probability(softmax(s, alpha)), rows=20_000, seed=99
    )
    np.testing.assert_allclose(found, other.quantile(list(shown.QUANTILES)).value, rtol=0.04)
