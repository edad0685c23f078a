"""Data for the figures of trained heads: the atlas, and twelve heads to look into.

All of it is read from the records of experiments/real_heads, but the curves of random rows, which
`attnlib.exact` computes.
"""

from typing import Any, NamedTuple

import numpy as np

from attnlib import exact
from attnlib._checking import FloatArray
from attnlib.scores import Normal
from experiments.lab.results import to_json
from experiments.real_heads.shown import ALPHAS, KEYS, SHOWN
from experiments.real_heads.summary import FINDS, LISTED
from experiments.records import Record, load

Columns = dict[str, FloatArray]


class Measured(NamedTuple):
    """A model, the number of heads of a layer, and the length of the measured rows."""

    name: str
    heads: int
    run: dict[str, int]


MODELS = (
    Measured("SmolLM2", 9, {"tokens": 2048, "length": 2048}),
    Measured("MiniLM", 12, {"length": 512}),
    Measured("AntiBERTy", 8, {"length": 96}),
    Measured("RXNMapper", 8, {"length": 64}),
    Measured("rxnfp", 4, {"length": 64}),
)

NEEDLES = {
    "previous": "the token before",
    "same": "the same token, earlier",
    "induction": "what followed the token where it stood last",
    "repeat": "what followed in a text that is said twice",
}
"""What SmolLM2's heads were asked for."""

NEEDLE_LENGTH = 512
"""Tokens at which gap and variance are shown."""

MEASURED = (
    *("alpha", "alpha_rest", "keys", "keys_rest", "random_keys", "random_keys_rest"),
    *("entropy", "first", "output"),
)
CURVE = np.geomspace(0.5, 30.0, 42)
"""The αs of the curves of random rows."""


def atlas() -> dict[str, Any]:
    """Return the heads of all models, column by column, with three digits."""
    columns, models = head_columns(), []
    for i, model in enumerate(MODELS):
        n = columns["n"][columns["model"] == i]
        sizes = {"heads": model.heads, "layers": n.size // model.heads, "n": round(n[0])}
        # Effective keys of normal rows over n, 1/(n E Y).
        share = 1.0 / (n[0] * exact.collision_probability(Normal(), CURVE, sizes["n"]))
        models.append({"name": model.name, **sizes, "random": to_json(share, 3)})
    return {
        "models": models,
        "needles": list(NEEDLES.values()),
        "finds": FINDS,
        "listed": LISTED,
        "alphas": to_json(CURVE, 3),
        "columns": {
            name: to_json(column, 3)
            for name, column in columns.items()
            if name not in ("model", "layer", "head", "n")
        },
    }


def head_columns() -> Columns:
    """Return the columns of all heads, model by model, layer by layer; NaN where unknown."""
    record = load("real_heads_atlas")
    of_models: list[Columns] = []
    for i, model in enumerate(MODELS):
        table = record.find(model=model.name, **model.run)
        run = {"tokens": 2048} if model.name == "SmolLM2" else {}
        growth = record.find(model=model.name, growth="keys", **run)
        count = len(table["alpha"])
        of_model = {
            "model": np.full(count, i),
            "layer": np.arange(count) // model.heads,
            "head": np.arange(count) % model.heads,
            "n": np.full(count, table["n"]),
            **{name: np.array(table[name], dtype=float) for name in MEASURED},
            "s": np.array(growth["keys"][0], dtype=float),
            "random_s": np.array(growth["random_keys"][0], dtype=float),
            **dict.fromkeys(("needle", "weight", "gap", "variance"), np.full(count, np.nan)),
        }
        if model.name == "SmolLM2":
            of_model |= needle_columns(record, count)
        of_models.append(of_model)
    return {name: np.concatenate([part[name] for part in of_models]) for name in of_models[0]}


def needle_columns(record: Record, head_count: int) -> Columns:
    """Return four columns of SmolLM2's heads, each (`head_count`,).

    They are the index in NEEDLES of the needle with the largest mean weight, this weight, and the
    logits' gap and variance without the first key. They are NaN where no needle has the weight
    LISTED.
    """
    columns = np.full((4, head_count), np.nan)
    repeats = load("real_heads_repeats")
    for i, needle in enumerate(NEEDLES):
        source, run = (repeats, "repeats") if needle == "repeat" else (record, "2048 tokens")
        weight = np.array(source.find(needle=needle, weights="largest"), dtype=float)
        table = source.find(needle=needle, length=NEEDLE_LENGTH, run=run)
        for j, head in enumerate(table["head"]):
            if weight[head] >= LISTED and not weight[head] <= columns[1, head]:
                gap, variance = table["gap_rest"][j], table["variance_rest"][j]
                columns[:, head] = i, weight[head], gap, variance
    return dict(zip(("needle", "weight", "gap", "variance"), columns, strict=True))


def shown_heads() -> dict[str, Any]:
    """Return the twelve heads as they are recorded, and the keys of random rows."""
    record = load("real_heads_shown")
    texts: list[list[str]] = []
    entries = []
    for head in SHOWN:
        key = head.record_key
        recorded = dict(record.find(**key))
        tokens = recorded.pop("tokens")
        if tokens not in texts:
            texts.append(tokens)
        entries.append({**key, "does": head.does, "text": texts.index(tokens), **recorded})
    random = [record.find(random="keys", n=n) for n in KEYS]
    return {
        "texts": texts,
        "heads": entries,
        "random": {"n": KEYS, "alpha": ALPHAS, "keys": random},
    }
