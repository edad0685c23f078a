"""The heads that the page shows: what is recorded of them."""

import numpy as np

from attnlib.rows import collision_probability, softmax
from experiments.real_heads import rows, shown
from experiments.real_heads.models import Model
from tests.experiments.test_real_heads import HEADS, LAYERS, WORDS, llama


def weights(entry):
    """Return the rows of a recorded head."""
    q, k = shown.unpack_vectors(entry["queries"]), shown.unpack_vectors(entry["keys"])
    logits = q @ k.T * entry["scale"]
    if entry["causal"]:
        logits[np.triu_indices(len(q), 1)] = -np.inf
    return softmax(logits)


def test_queries_and_keys_of_a_head_are_those_of_the_model(monkeypatch):
    model = Model("SmolLM2", llama(), lambda text: [ord(character) % WORDS for character in text])
    monkeypatch.setattr(shown, "MODELS", {"SmolLM2": lambda: model})
    ids = model.reads(shown.text_of("SmolLM2"))
    entry = rows.measure(
        model.module, ids, np.arange(len(ids)), lambda *call: {"rows": rows.row_table(*call)}
    )
    expected = entry["rows"]
    for layer, head in ((0, 0), (LAYERS - 1, HEADS - 1)):
        shown_head = shown.Shown("SmolLM2", layer, head, "", rows.find_needles_in_repeat)
        entry = shown.head_vectors(shown_head)
        assert entry["causal"]
        assert entry["tokens"] == [str(token) for token in ids]
        np.testing.assert_allclose(
            collision_probability(weights(entry)),
            expected["collision"][HEADS * layer + head],
            rtol=0.01,
        )
