"""Twelve heads to look into: queries and keys of one text each, for the figure in the page.

They were chosen from the atlas and on these texts, for what they do. Each vector is rounded to
whole numbers, up to WHOLE, of a unit of its own. The record also has rows of random scores, for
every n and α that the page can ask for.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from torch import Tensor

from attnlib import sampling
from attnlib._checking import FloatArray
from attnlib.probing.measure import Call
from attnlib.probing.tokens import Places
from attnlib.rows import collision_probability, softmax
from attnlib.scores import Normal
from experiments.lab.results import to_json
from experiments.real_heads import rows, source_texts
from experiments.real_heads.models import MODELS
from experiments.records import Fields, Work

SENTENCE = "A red fox ran down to the river to drink, and the old river took the fox away."
WHOLE = 999

QUANTILES = (0.05, 0.5, 0.95)
KEYS = (2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, 45, 56)
ALPHAS = tuple(np.expm1(np.linspace(0.0, np.log1p(rows.LARGEST_ALPHA), 33)).round(4).tolist())

Meant = Callable[[list[int], Places], Places]
"""From the tokens of a text and the places of queries to the key that each means; −1 for none."""


class Shown(NamedTuple):
    """A head, its behaviour in words, and the keys that it looks for, if they are known."""

    model: str
    layer: int
    head: int
    does: str
    meant: Meant | None = None

    @property
    def record_key(self) -> Fields:
        """Return the fields by which a record finds this head: model, layer, head."""
        return {"model": self.model, "layer": self.layer, "head": self.head}


def at_distance(distance: int, ids: list[int], places: Places) -> Places:
    """Return the key so many places after each query; −1 where there is none."""
    keys = places + distance
    return np.where((keys >= 0) & (keys < len(ids)), keys, -1)


SHOWN = (
    Shown("SmolLM2", 18, 6, "what followed when this was said before", rows.find_needles_in_repeat),
    Shown("SmolLM2", 20, 4, "a sink: the first token"),
    Shown("SmolLM2", 16, 0, "the token before", partial(at_distance, -1)),
    Shown("SmolLM2", 5, 6, "the same token, earlier", lambda *of: rows.find_needles(*of)["same"]),
    Shown("SmolLM2", 11, 6, "itself", partial(at_distance, 0)),
    Shown("SmolLM2", 0, 6, "broad: a little of everything"),
    Shown("MiniLM", 0, 2, "the token before, and nothing else", partial(at_distance, -1)),
    Shown("MiniLM", 1, 8, "the token after", partial(at_distance, 1)),
    Shown("MiniLM", 0, 0, "broad: half of the sentence"),
    Shown("AntiBERTy", 3, 0, "a sink that is not the first token"),
    Shown("RXNMapper", 10, 5, "the same atom on the other side of the arrow"),
    Shown("rxnfp", 4, 0, "two symbols on", partial(at_distance, 2)),
)


def text_of(name: str) -> str:
    """Return the text that a model reads here."""
    if name == "SmolLM2":
        return f" {SENTENCE} {SENTENCE}"  # begun with a space, both are the same tokens
    if name == "MiniLM":
        return SENTENCE
    return source_texts.antibodies()[0][:48] if name == "AntiBERTy" else source_texts.REACTIONS[0]


def shown_work() -> Work:
    """Yield the work on the heads, and then on the random rows."""
    for head in SHOWN:
        yield head.record_key, partial(head_vectors, head)
    for n in KEYS:
        yield {"random": "keys", "n": n}, partial(random_keys, n)


def head_vectors(shown: Shown) -> Fields:
    """Return a head's q and k, its scale, whether it is causal, and the key each query means."""
    model = MODELS[shown.model]()
    ids = model.reads(text_of(shown.model))

    def see(call: Call, output: Tensor) -> Fields:
        query, key = call.query[0], call.key[0]
        return {
            "scale": float(call.scale or query.shape[-1] ** -0.5),
            "causal": call.is_causal,
            "queries": pack_vectors(query[shown.head].double().numpy()),
            "keys": pack_vectors(key[shown.head * len(key) // len(query)].double().numpy()),
        }

    places = np.arange(len(ids))
    targets = shown.meant(ids, places) if shown.meant else np.full(len(ids), -1)
    of_layers = rows.map_calls(model.module, ids, see)
    tokens = [model.writes(token).strip() for token in ids]
    return {"tokens": tokens, "meant": targets.tolist(), **of_layers[shown.layer]}


def pack_vectors(vectors: FloatArray) -> Fields:
    """Return vectors as whole numbers and their units, the numbers of a vector as text."""
    units = np.abs(vectors).max(axis=-1) / WHOLE
    integers = np.rint(vectors / units[:, None]).astype(int)
    return {
        "units": to_json(units, 4),
        "whole": [",".join(map(str, row)) for row in integers.tolist()],
    }


def unpack_vectors(table: Fields) -> FloatArray:
    """Return the vectors that `pack_vectors` packed, (vectors, d)."""
    integers = np.array([line.split(",") for line in table["whole"]], dtype=float)
    vectors: FloatArray = integers * np.array(table["units"])[:, None]
    return vectors


def random_keys(n: int) -> list[list[float]]:
    """Return quantiles of 1/Σp² over rows of n normal scores, for each of ALPHAS."""

    def statistic(scores: FloatArray) -> FloatArray:
        columns = [1.0 / collision_probability(softmax(scores, alpha)) for alpha in ALPHAS]
        return np.stack(columns, axis=-1)

    sample = sampling.sample(Normal(), n, statistic, rows=20_000, seed=n)
    lines: list[list[float]] = to_json(sample.quantile(list(QUANTILES)).value.T, 4)
    return lines
