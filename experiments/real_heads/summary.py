"""What is recorded of the rows: means over texts, with intervals, and what they foretell.

Intervals are of 90 % by bootstrap over texts; with one text there is none.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attnlib import retrieval
from attnlib.checking import FloatArray
from attnlib.retrieval import Fixed
from attnlib.scores import Normal
from experiments.real_heads.parts import SHORT
from experiments.records import Entry, Fields

RESAMPLED = 400
INTERVAL = (5.0, 95.0)
WITH_INTERVALS = ("first",)
FINDS = 0.3
"""Mean weight of its needle from which a head is said to find it."""
LISTED = 0.1
"""Mean weight from which it is recorded: some heads look for what is not always there."""


def brief(number: Any) -> Any:
    """Return numbers with four digits, None for those that are not finite."""
    if isinstance(number, np.ndarray | list | tuple):
        return [brief(one) for one in number]
    return float(f"{number:.4g}") if np.isfinite(number) else None


def mean(of_texts: FloatArray) -> FloatArray:
    """Return the mean over the texts that have a number."""
    known = np.isfinite(of_texts)
    total = np.where(known, of_texts, 0.0).sum(axis=0)
    return np.asarray(
        np.divide(
            total, known.sum(axis=0), out=np.full_like(total, np.nan), where=known.any(axis=0)
        )
    )


def interval(of_texts: FloatArray, statistic: Any = None) -> list[FloatArray]:
    """Return a statistic of the texts, the first axis, by default the mean, and its interval."""
    statistic = statistic or mean
    whole = statistic(of_texts)
    if len(of_texts) == 1 or not whole.size:
        return [whole, np.full_like(whole, np.nan), np.full_like(whole, np.nan)]
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(of_texts), size=(RESAMPLED, len(of_texts)))
    several = np.array([statistic(of_texts[one]) for one in drawn])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where no text has a number
        return [whole, *np.nanpercentile(several, INTERVAL, axis=0)]


def by_run(entries: Sequence[Entry]) -> Iterator[tuple[Fields, list[Entry]]]:
    """Yield what the texts of a run have in common, and their entries."""
    runs: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in entries:
        at = {name: value for name, value in entry.at.items() if name != "text"}
        runs.setdefault(tuple(at.items()), []).append(entry)
    for key, several in runs.items():
        yield dict(key), several


def atlas(entries: Sequence[Entry]) -> list[Entry]:
    """Return the heads of each model at each length, and how their keys grow."""
    found: list[Entry] = []
    with np.errstate(all="ignore"):
        for at, some in by_run(entries):
            for n, tables in _by_length(some).items():
                found.append(Entry({**at, "length": n}, _columns(tables)))
            growth = {name: _growth(some, name) for name in ("keys", "keys_rest", "random_keys")}
            found.append(Entry({**at, "growth": "keys"}, growth))
    return found


def _columns(tables: list[Fields]) -> Fields:
    """Return the means over the texts; n is the same for all heads."""
    columns: Fields = {"texts": len(tables), "n": brief(np.mean([one["n"] for one in tables]))}
    for name in tables[0]:
        if name not in ("n", "largest_logit"):
            whole, low, high = interval(_array([table[name] for table in tables]))
            columns[name] = brief(whole)
            if name in WITH_INTERVALS and len(tables) > 1:
                columns |= {f"{name}_low": brief(low), f"{name}_high": brief(high)}
    return columns


def _array(parts: list[Any]) -> FloatArray:
    return np.array(parts, dtype=float)


def _by_length(entries: list[Entry]) -> dict[int, list[Fields]]:
    """Return the tables of the texts by length; lengths of all kinds in octaves."""
    several = len({tuple(entry.found["lengths"]) for entry in entries}) > 1
    tables: dict[int, list[Fields]] = {}
    for entry in entries:
        for n, table in zip(entry.found["lengths"], entry.found["heads"], strict=True):
            key = 2 ** round(np.log2(n)) if several else n
            tables.setdefault(int(key), []).append(table)
    return dict(sorted(tables.items()))


def _growth(entries: list[Entry], name: str) -> list[Any]:
    """Return s in keys ∝ n^s for each head, the slope of the logs over all texts, and interval."""
    points = _array(
        [[[table["n"], table[name]] for table in entry.found["heads"]] for entry in entries]
    )  # texts, lengths, 2, heads

    def slope(some: FloatArray) -> FloatArray:
        logs = np.log(some).reshape(-1, *some.shape[2:])
        x, y = (logs - logs.mean(0)).swapaxes(0, 1)
        return np.asarray((x * y).sum(0) / (x * x).sum(0))

    return [brief(one) for one in interval(points, slope)]


def needles(runs: dict[tuple[str, int, str], list[Fields]]) -> list[Entry]:
    """Return what is known of the heads that look for a needle, from tables by (needle, n, run).

    They are those whose mean weight on it is LISTED at some length up to SHORT.
    """
    found: list[Entry] = []
    with np.errstate(all="ignore"):
        for needle in dict.fromkeys(key[0] for key in runs):
            own = {key: tables for key, tables in runs.items() if key[0] == needle}
            weights = [
                mean(_array([t["weight"] for t in tables]))
                for (_, n, _), tables in own.items()
                if n <= SHORT
            ]
            if not weights:
                continue
            best = np.nan_to_num(np.array(weights)).max(axis=0)
            chosen = np.flatnonzero(best >= LISTED)
            at = {"needle": needle}
            found.append(Entry({**at, "weights": "largest"}, brief(best)))
            for (_, n, run), tables in own.items():
                columns: Fields = {
                    "texts": len(tables),
                    "rows": sum(table["rows"] for table in tables),
                    "head": chosen.tolist(),
                }
                for name in tables[0]:
                    if name in ("rows", "gap", "variance", "kappa", "slope"):
                        continue
                    of_texts = _array([table[name] for table in tables])[:, chosen]
                    columns[name] = brief(mean(of_texts))
                if n <= SHORT:
                    columns["reach"] = brief([_reach(columns, i) for i in range(len(chosen))])
                found.append(Entry({**at, "length": n, "run": run}, columns))
    return found


def _reach(columns: Fields, i: int) -> float:
    """Return how far a head would reach whose other keys are normal, and the first one a sink."""
    gap, variance, sink = (columns[name][i] for name in ("gap_rest", "variance_rest", "sink"))
    if None in (gap, variance, sink) or variance <= 0.0:
        return float("nan")
    alpha = variance**0.5
    try:
        needle = Fixed(gap / alpha)
        return float(retrieval.reach(Normal(), needle, alpha, sinks=(min(sink, 600.0),)))
    except ValueError:
        return float("nan")
