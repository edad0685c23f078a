"""Recorded summaries of rows, needles and laws of others: means over texts, with intervals.

Also their growth with n, and the reach that they foretell. Intervals are of 90 % by bootstrap over
texts; with one text there is none.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlib import retrieval
from attnlib._checking import FloatArray
from attnlib.retrieval import Fixed
from attnlib.scores import Normal
from experiments.lab.results import to_json
from experiments.real_heads.parts import SHORT
from experiments.records import Entry, Fields

RESAMPLED = 400
INTERVAL = (5.0, 95.0)
FINDS = 0.3
"""Mean weight of its needle from which a head is said to find it."""
LISTED = 0.1
"""Mean weight from which it is recorded: some heads look for what is not always there."""
FEWEST = 4
"""Texts that a spread of outputs needs."""

brief = partial(to_json, digits=4)
mean = partial(np.nanmean, axis=0)
"""Over the texts, the first axis, that have a number."""


def summarise(part: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the recorded entries of a part, whose own entries are texts."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where no text has a number
        return list(SUMMARIES[part](entries))


def by_run(entries: Sequence[Entry]) -> Iterator[tuple[Fields, list[Fields]]]:
    """Yield the common fields of each run's texts, and their results."""
    runs: dict[tuple[Any, ...], list[Fields]] = {}
    for entry in entries:
        at = {name: field for name, field in entry.key.items() if name != "text"}
        runs.setdefault(tuple(at.items()), []).append(entry.result)
    for key, texts in runs.items():
        yield dict(key), texts


# --- statistics of texts --------------------------------------------------------------------------


def interval(of_texts: NDArray[Any], statistic: Any = mean) -> list[FloatArray]:
    """Return a statistic of the texts, the first axis, and the ends of its interval."""
    estimate = statistic(of_texts)
    if len(of_texts) == 1 or not estimate.size:
        return [estimate, *np.full((2, *estimate.shape), np.nan)]
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(of_texts), size=(RESAMPLED, len(of_texts)))
    resampled = np.array([statistic(of_texts[texts]) for texts in drawn])
    return [estimate, *np.nanpercentile(resampled, INTERVAL, axis=0)]


def slopes(x: FloatArray, y: FloatArray, points: Callable[..., Any]) -> list[Any]:
    """Return for each head the slope of y on x, with its interval.

    `points` makes of x, (texts, lengths), and y, (texts, lengths, heads, …), the points of a fit,
    (points,) and (points, heads).
    """

    def slope(texts: Any) -> FloatArray:
        """Return the slopes by these texts, (heads,)."""
        x_points, values = points(x[texts], y[texts])
        x_points = x_points - x_points.mean()
        return np.asarray((x_points[:, None] * values).sum(0) / (x_points * x_points).sum())

    return [brief(number) for number in interval(np.arange(len(x)), slope)]


def all_points(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the points of all texts, from y (texts, lengths, heads)."""
    return x.ravel(), y.reshape(-1, y.shape[-1])


def median_points(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the medians over texts and rows as points, of y (texts, lengths, heads, rows)."""
    if y.shape[1] == 1:  # a length of its own for each text
        return x[:, 0], np.median(y[:, 0], axis=-1)
    return x.mean(0), np.median(y, axis=(0, 3))


def spread_points(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log of the std over texts as points, of y (texts, lengths, heads, components)."""
    return x.mean(0), 0.5 * np.log(np.nanvar(y, axis=0, ddof=1).mean(-1))


def column(tables: Sequence[Any], name: str) -> FloatArray:
    """Return a column of tables, or of the tables of several texts, as an array; NaN for None."""
    return np.array(
        [column(table, name) if isinstance(table, list) else table[name] for table in tables],
        dtype=float,
    )


# --- rows and needles -----------------------------------------------------------------------------


def atlas(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the heads of each model at each length, the growth of their keys, and their needles."""
    for at, texts in by_run(entries):
        for n, tables in sorted(_by_length(texts).items()):
            yield Entry({**at, "length": n}, _text_means(tables))
        heads = [text["heads"] for text in texts]
        logs = np.log(column(heads, "n")[..., 0])
        growth = {
            name: slopes(logs, np.log(column(heads, name)), all_points)
            for name in ("keys", "keys_rest", "random_keys")
        }
        yield Entry({**at, "growth": "keys"}, growth)
    yield from needles(
        (needle, n, f"{entry.key['tokens']} tokens", table)
        for entry in entries
        for needle, tables in entry.result.get("needles", {}).items()
        for n, table in zip(entry.result["lengths"], tables, strict=True)
    )


def _by_length(texts: list[Fields]) -> dict[int, list[Fields]]:
    """Return the tables of the texts by length; if texts differ in lengths, by octave."""
    differ = len({tuple(text["lengths"]) for text in texts}) > 1
    tables: dict[int, list[Fields]] = {}
    for text in texts:
        for n, table in zip(text["lengths"], text["heads"], strict=True):
            tables.setdefault(2 ** round(np.log2(n)) if differ else n, []).append(table)
    return tables


def _text_means(tables: list[Fields]) -> Fields:
    """Return the means over the texts; n is the same for all heads."""
    columns: Fields = {"n": brief(column(tables, "n").mean())}
    for name in tables[0]:
        if name != "n":
            values = column(tables, name)
            columns[name] = brief(mean(values))
            if name == "first" and len(tables) > 1:
                _, low, high = interval(values)
                columns |= {"first_low": brief(low), "first_high": brief(high)}
    return columns


def repeats(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the heads that look for the next token of the first time, in a text said twice."""
    lines = ((entry.key["tokens"], entry.result["needle"]) for entry in entries)
    return needles(("repeat", n, "repeats", table) for n, table in lines)


def needles(lines: Iterable[tuple[str, int, str, Fields]]) -> Iterator[Entry]:
    """Yield the heads that look for a needle, from (needle, n, run, table).

    Their mean weight on it is LISTED or more at some length up to SHORT.
    """
    runs: dict[str, dict[tuple[int, str], list[Fields]]] = {}
    for needle, n, run, table in lines:
        runs.setdefault(needle, {}).setdefault((n, run), []).append(table)
    for needle, tables_of in runs.items():
        weights = [mean(column(tables_of[key], "weight")) for key in tables_of if key[0] <= SHORT]
        best = np.nan_to_num(weights).max(axis=0)
        chosen = np.flatnonzero(best >= LISTED)
        yield Entry({"needle": needle, "weights": "largest"}, brief(best))
        for (n, run), tables in tables_of.items():
            columns: Fields = {"head": chosen.tolist()}
            for name in tables[0]:
                columns[name] = brief(mean(column(tables, name)[:, chosen]))
            if n <= SHORT:
                of_heads = (columns[name] for name in ("gap_rest", "variance_rest", "sink"))
                columns["reach"] = brief(list(map(_reach, *of_heads)))
            yield Entry({"needle": needle, "length": n, "run": run}, columns)


def _reach(gap: float | None, variance: float | None, sink: float | None) -> float:
    """Return the reach of a head whose other keys are normal, and the first one a sink.

    That is, the number of keys at which its weight on the needle falls below a half; or NaN.
    """
    if gap is None or variance is None or sink is None or variance <= 0.0:
        return float("nan")
    alpha = variance**0.5
    try:
        return float(
            retrieval.reach(Normal(), Fixed(gap / alpha), alpha, sinks=(min(sink, 600.0),))
        )
    except ValueError:
        return float("nan")


# --- laws of others -------------------------------------------------------------------------------


def laws(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the heads of each model at each length, and their growth with n."""
    for at, texts in by_run(entries):
        changes = growth(texts)
        if "source" in at:
            yield Entry({**at, "growth": "output"}, {"output": changes["output"]})
            continue
        of_texts = list(zip(*(text["heads"] for text in texts), strict=True))
        lengths = texts[0]["lengths"] if len(of_texts) > 1 else ["own"]
        for n, of_length in zip(lengths, of_texts, strict=True):
            yield Entry({**at, "length": n}, _law_means(of_length))
        yield Entry({**at, "growth": "laws"}, changes)


def _law_means(tables: Sequence[Fields]) -> Fields:
    """Return the mean rows of some texts; of Λ and t½/Λ the median over all rows."""
    tail, half = (np.concatenate(column(tables, name), axis=1) for name in ("tail", "half"))
    plain = ("n", "range", "largest", "largest_rest")
    return {
        **{name: brief(column(tables, name).mean(axis=0)) for name in plain},
        "tail": brief(np.median(tail, axis=1)),
        "half": brief(np.median(half / tail, axis=1)),
    }


def growth(texts: Sequence[Fields]) -> Fields:
    """Return the growth of each head's rows with n, with intervals over texts.

    largest, largest_rest: exponents; range: what is added per e-fold of n; tail: the exponent of
    the median Λ in log n; output: that of the std over texts.
    """
    tables = [text["heads"] for text in texts]
    n = np.log(column(tables, "n"))
    changes: Fields = {
        "largest": slopes(n, np.log(column(tables, "largest")), all_points),
        "largest_rest": slopes(n, np.log(column(tables, "largest_rest")), all_points),
        "range": slopes(n, column(tables, "range"), all_points),
        "tail": slopes(np.log(n), np.log(column(tables, "tail")), median_points),
    }
    if len(texts) >= FEWEST and texts[0].get("outputs"):
        changes["output"] = slopes(n, column(texts, "outputs"), spread_points)
    return changes


SUMMARIES: dict[str, Callable[[Sequence[Entry]], Iterator[Entry]]] = {
    "atlas": atlas,
    "repeats": repeats,
    "laws": laws,
}
"""Of the parts of which only means over texts are recorded."""
