"""The heads that the page shows: what is recorded of them."""

import numpy as np

from attnlib.rows import collision_probability, softmax
from experiments.real_heads import rows, shown
from experiments.real_heads.inputs import Model
from experiments.records import load
from tests.experiments.test_real_heads import HEADS, LAYERS, WORDS, llama


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
        one = shown.Shown("SmolLM2", layer, head, "", rows.repeated_needle)
        found = shown.recorded(one)
        assert found["causal"]
        assert found["tokens"] == [str(token) for token in ids]
        np.testing.assert_allclose(
            collision_probability(weights(found)),
            expected["collision"][HEADS * layer + head],
            rtol=0.01,
        )


def test_the_record_has_all_heads():
    record = load("real_heads_shown")
    assert [entry.key for entry in record.entries] == [at for at, _ in shown.shown()]
    assert len({one.model for one in shown.SHOWN}) == 5
