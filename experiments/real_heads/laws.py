"""What laws of others speak of, row by row and head by head, and the means of it.

Dispersion (arXiv 2410.01104): range of the logits and largest weight. Gap counting (2605.12697):
with N(t) the keys whose logit is within t of the largest, Λ is the least number with N(t) ≤ e^{Λt}
for every t. Vanishing variance (2504.02827): outputs for one query, of text after text.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.checking import FloatArray
from experiments.real_heads import rows
from experiments.real_heads.rows import Places, Table
from experiments.real_heads.summary import brief, interval
from experiments.records import Entry, Fields

COMPONENTS = 8
"""Components of an output that are looked at: every eighth of 64."""
HALVINGS = 24
"""Steps of the search for the multiplier at which the largest weight is a half."""
SLACK = 1e-9
"""Bounds are broken by no more than roundings."""
FEWEST = 4
"""Texts that a spread of outputs needs."""


def tails(logits: Tensor) -> Table:
    """Return for each row, −∞ for hidden keys: n, range, largest weight, Λ, log N(gap of Λ), half.

    The gap of Λ is the largest at which N(t) = e^{Λt}; half is the multiplier of the logits at
    which the largest weight is ½. By the bounds of the law it is at most 2Λ and at least
    Λ(1 − log 2/log N).
    """
    n = (logits > -math.inf).sum(-1)
    gaps = logits.amax(-1, keepdim=True) - logits.sort(dim=-1, descending=True).values
    counts = torch.arange(1, gaps.shape[-1] + 1, dtype=gaps.dtype).log()
    slopes = counts[1:] / gaps[..., 1:]
    tail = slopes.amax(-1)
    at = slopes.shape[-1] - 1 - (slopes.flip(-1) == tail[..., None]).to(torch.int8).argmax(-1)
    low, high = tail.log() - HALVINGS * math.log(2.0), (2.0 * tail).log()
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        above = (-middle.exp()[..., None] * gaps).exp().sum(-1) > 2.0
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    found = {
        "n": n,
        "range": torch.where(gaps < math.inf, gaps, 0.0).amax(-1),
        "largest": 1.0 / (-gaps).exp().sum(-1),
        "tail": tail,
        "contact": counts[1:][at],
        "half": ((low + high) / 2.0).exp(),
    }
    return {name: one.double().numpy() for name, one in found.items()}


@torch.no_grad()
def watch(
    model: nn.Module, ids: Sequence[int], places: Places, ends: Places
) -> tuple[Table, Table, FloatArray]:
    """Run the model on a text, and return its rows at some places, and its outputs at the ends.

    The rows whole and without their first key; of outputs some components, (heads, ends, those).
    """
    found: list[tuple[Table, Table, FloatArray]] = []

    def see(number: int, *args: Any, **named: Any) -> Tensor:
        out = functional.scaled_dot_product_attention(*args, **named)
        logits, _, outs = rows._rows(np.concatenate([places, ends]), out, *args, **named)
        some, count = logits[:, : len(places)], len(places)
        step = outs.shape[-1] // COMPONENTS
        found.append((tails(some), tails(some[..., 1:]), outs[:, count:, ::step].numpy()))
        return out

    inside = getattr(model, "base_model", model)
    with rows.Attention(see):
        inside(torch.tensor([list(ids)]), **rows._without_cache(model))
    whole, rest, outputs = zip(*found, strict=True)
    return rows._joined([*whole]), rows._joined([*rest]), np.concatenate(outputs)


def heads(whole: Table, rest: Table) -> Fields:
    """Return of each head the mean rows of a text, and Λ and t½ (rest) of every row."""
    n = whole["n"]
    broken = whole["largest"] > (1.0 + SLACK) / (1.0 + (n - 1.0) * np.exp(-whole["range"]))
    bounded = rest["half"] <= 2.0 * rest["tail"] * (1.0 + 1e-5)
    bounded &= rest["half"] >= rest["tail"] * (1.0 - math.log(2.0) / rest["contact"]) - 1e-5
    return {
        "n": float(n.mean()),
        "rows": int(n.size),
        "broken": [int(broken.sum()), int((~bounded).sum())],
        "range": _digits(whole["range"].mean(1)),
        "largest": _digits(whole["largest"].mean(1)),
        "largest_rest": _digits(rest["largest"].mean(1)),
        "contact": _digits((rest["contact"] / np.log(rest["n"])).mean(1)),
        "tail": _digits(rest["tail"]),
        "half": _digits(rest["half"]),
    }


def _digits(numbers: FloatArray) -> list[Any]:
    """Return numbers with five digits."""
    return [_digits(one) if one.ndim else float(f"{one:.5g}") for one in np.asarray(numbers)]


# --- over the texts -------------------------------------------------------------------------------


def summarised(entries: Sequence[Entry]) -> list[Entry]:
    """Return the heads of each model at each length, how they change with n, and broken bounds."""
    found: list[Entry] = []
    runs: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in entries:
        runs.setdefault((entry.at["model"], entry.at.get("tokens")), []).append(entry)
    for (model, tokens), some in runs.items():
        at = {"model": model, **({"tokens": tokens} if tokens else {})}
        texts = [entry.found for entry in some]
        if len(texts[0]["heads"]) == 1:
            found.append(Entry({**at, "length": "own"}, _means([t["heads"][0] for t in texts])))
        else:
            for i, n in enumerate(texts[0]["lengths"]):
                found.append(Entry({**at, "length": n}, _means([t["heads"][i] for t in texts])))
        with np.errstate(all="ignore"):
            found.append(Entry({**at, "growth": "laws"}, growth(texts)))
    tables = [table for entry in entries for table in entry.found["heads"]]
    bounds = {
        "rows": sum(table["rows"] for table in tables),
        "weight": sum(table["broken"][0] for table in tables),
        "half": sum(table["broken"][1] for table in tables),
    }
    return [*found, Entry({"broken": "bounds"}, bounds)]


def _means(tables: list[Fields]) -> Fields:
    """Return the mean rows of some texts; of Λ and t½/Λ the median over all rows."""
    tail, half = (
        np.concatenate([np.array(table[name]) for table in tables], axis=1)
        for name in ("tail", "half")
    )
    plain = ("range", "largest", "largest_rest", "contact")
    return {
        "texts": len(tables),
        "n": brief(np.mean([table["n"] for table in tables])),
        **{name: brief(np.mean([t[name] for t in tables], axis=0)) for name in plain},
        "tail": brief(np.median(tail, axis=1)),
        "half": brief(np.median(half / tail, axis=1)),
    }


def growth(texts: Sequence[Fields]) -> Fields:
    """Return of each head, with intervals over texts, how its rows change with n.

    largest, largest_rest: exponents; range: what is added per e-fold of n; tail: the exponent of
    the median Λ in log n; output: that of the std over texts.
    """
    n = np.array([[table["n"] for table in text["heads"]] for text in texts])
    found: Fields = {}
    for name in ("largest", "largest_rest", "range"):
        values = np.array([[table[name] for table in text["heads"]] for text in texts])
        values = values if name == "range" else np.log(values)
        found[name] = _interval([np.log(n), values], _of_means)
    tails = np.array([[table["tail"] for table in text["heads"]] for text in texts])
    found["tail"] = _interval([np.log(np.log(n)), np.log(tails)], _of_medians)
    if len(texts) >= FEWEST and texts[0].get("outputs"):
        outputs = np.array([text["outputs"] for text in texts], dtype=float)
        found["output"] = _interval([np.log(n), outputs], _of_spreads)
    return found


def _interval(points: list[FloatArray], statistic: Any) -> list[Any]:
    """Return a statistic of the texts and its interval."""
    numbers = np.arange(len(points[0]), dtype=float)
    of = lambda which: statistic(*(one[which.astype(int)] for one in points))  # noqa: E731
    return [brief(one) for one in interval(numbers, of)]


def _slope(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the slope of y, (points, heads), on x, (points,)."""
    x = x - x.mean()
    return np.asarray((x[:, None] * y).sum(0) / (x * x).sum())


def _of_means(x: FloatArray, y: FloatArray) -> FloatArray:
    return _slope(x.ravel(), y.reshape(-1, y.shape[-1]))


def _of_medians(x: FloatArray, y: FloatArray) -> FloatArray:
    """Of y, (texts, lengths, heads, rows), by the median over texts and rows."""
    if y.shape[1] == 1:  # a length of its own for each text
        return _slope(x[:, 0], np.median(y[:, 0], axis=-1))
    return _slope(x.mean(0), np.median(y, axis=(0, 3)))


def _of_spreads(x: FloatArray, y: FloatArray) -> FloatArray:
    """Of y, (texts, lengths, heads, components), by the log of the std over texts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where no two texts have an output
        return _slope(x.mean(0), 0.5 * np.log(np.nanvar(y, axis=0, ddof=1).mean(-1)))
