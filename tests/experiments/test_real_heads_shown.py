"""The heads that the page shows: what is recorded of them, and that they do what is said."""

import numpy as np
import pytest

from attnlib.rows import collision_probability, softmax
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


def test_queries_and_keys_of_a_head_are_those_of_the_model(monkeypatch):
    model = Model("SmolLM2", llama(), lambda text: [ord(one) % WORDS for one in text])
    monkeypatch.setattr(shown, "MODELS", {"SmolLM2": lambda: model})
    ids = model.reads(shown.text_of("SmolLM2"))
    found = rows.measure(
        model.module, ids, np.arange(len(ids)), lambda *call: {"rows": rows.row_table(*call)}
    )
    expected = found["rows"]
    for layer, head in ((0, 0), (LAYERS - 1, HEADS - 1)):
        one = shown.Shown("SmolLM2", layer, head, "", rows.repeated)
        found = shown.recorded(one)
        assert found["causal"]
        assert found["tokens"] == [str(token) for token in ids]
        np.testing.assert_allclose(
            collision_probability(weights(found)),
            expected["collision"][HEADS * layer + head],
            rtol=0.01,
        )


def test_the_record_has_all_heads(record):
    assert [entry.at for entry in record.entries] == [at for at, _ in shown.shown()]
    assert len({one.model for one in shown.SHOWN}) == 5


@pytest.mark.parametrize("one", shown.SHOWN, ids=lambda one: f"{one.model}-{one.layer}-{one.head}")
def test_the_heads_do_what_is_said(record, one):
    found = record.find(**one.at)
    p, n = weights(found), len(found["tokens"])
    keys = 1 / collision_probability(p).mean()
    if one.meant:
        at = np.array(found["meant"])
        assert p[at >= 0, at[at >= 0]].mean() > 0.35
        assert "nothing else" not in one.does or keys < 1.01
    elif "sink" in one.does:
        first = "not the first" not in one.does
        assert (p[2:].mean(0).argmax() == 0) == first
        assert p[2:].mean(0).max() > (0.9 if first else 0.4)
    elif "broad" in one.does:
        assert keys > (n / 2 if "half" in one.does else n / 8)
    else:
        arrow = found["tokens"].index(">>")
        atoms = [i for i in range(arrow + 1, n) if found["tokens"][i].isalpha()]
        best = p[atoms].argmax(axis=1)
        assert len(atoms) == 13
        assert (best < arrow).all()
        assert [found["tokens"][i] for i in best] == [found["tokens"][i] for i in atoms]
