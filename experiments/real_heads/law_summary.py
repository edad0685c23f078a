"""What is recorded of the laws of others: means over texts, and how they change with n.

Intervals as in `summary`.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlib.checking import FloatArray
from experiments.real_heads.summary import brief, by_run, interval
from experiments.records import Entry, Fields

FEWEST = 4
"""Texts that a spread of outputs needs."""


def summarised(entries: Sequence[Entry]) -> list[Entry]:
    """Return the heads of each model at each length, how they change with n, and broken bounds."""
    found: list[Entry] = []
    for at, some in by_run(entries):
        texts = [entry.found for entry in some]
        with np.errstate(all="ignore"):
            grown = growth(texts)
        if "source" in at:
            output = {"texts": len(texts), "output": grown["output"]}
            found.append(Entry({**at, "growth": "output"}, output))
            continue
        if len(texts[0]["heads"]) == 1:
            found.append(Entry({**at, "length": "own"}, _means([t["heads"][0] for t in texts])))
        else:
            for i, n in enumerate(texts[0]["lengths"]):
                found.append(Entry({**at, "length": n}, _means([t["heads"][i] for t in texts])))
        found.append(Entry({**at, "growth": "laws"}, grown))
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
    plain = ("range", "largest", "largest_rest")
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
