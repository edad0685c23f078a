"""What is read off the records of trained models' heads.

Chapters: trained_heads, models.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from attnlib._checking import FloatArray
from experiments.real_heads import parts, rows
from experiments.real_heads.summary import FINDS
from experiments.records import Entry, Record, load, path_of

LAST = 2048
LENGTHS_OF_LOSS = parts.PRICE_LENGTHS

Numbers = dict[str, Any]


@cache
def record(part: str) -> Record:
    """Return the record of a part; FileNotFoundError where there is none."""
    return load(path_of(f"real_heads_{part}"))


def column(part: str, name: str, **at: Any) -> FloatArray:
    """Return a number of all heads, from the entry of a record; NaN for None."""
    return np.array(record(part).find(**at)[name], dtype=float)


def heads(n: int, name: str, part: str = "atlas", tokens: int = LAST) -> FloatArray:
    """Return a column of SmolLM2's heads at a length."""
    return column(part, name, model="SmolLM2", tokens=tokens, length=n)


def share(true: Any) -> float:
    """Return the share of what is true."""
    return float(np.mean(true))


# --- needles --------------------------------------------------------------------------------------


def needle(kind: str, n: int) -> Numbers:
    """Return the heads that find a needle, at a length, in the shortest of the runs."""
    entries = record("repeats" if kind == "repeat" else "atlas")
    best = np.array(entries.find(needle=kind, weights="largest"), dtype=float)
    table = entries.select(needle=kind, length=n)[0].found
    finds = best[table["head"]] >= FINDS
    columns = {name: value for name, value in table.items() if isinstance(value, list)}
    return {name: np.array(value, dtype=float)[finds] for name, value in columns.items()}


def best_times(table: Numbers) -> FloatArray:
    """Return the multiplier of the least loss on the grid, for each head."""
    losses = np.array([table[f"loss {time:.3g}"] for time in rows.TIMES])
    return np.asarray(np.array(rows.TIMES)[losses.argmin(axis=0)])


# --- the price ------------------------------------------------------------------------------------


def curve() -> tuple[FloatArray, FloatArray]:
    """Return the multipliers and the losses (multipliers, texts, lengths)."""
    losses = _by_times(record("price").entries)
    return np.array(list(losses)), np.array(list(losses.values()))


def _by_times(entries: Sequence[Entry]) -> dict[float, list[list[float]]]:
    """Return the losses of the texts under each multiplier, the smallest first."""
    losses: dict[float, list[list[float]]] = {}
    for e in sorted(entries, key=lambda e: float(e.at["times"])):
        losses.setdefault(e.at["times"], []).append(e.found["losses"])
    return losses


def least(times: FloatArray, losses: FloatArray) -> float:
    """Return where the parabola in log t through the lowest point and its neighbours is least."""
    i = int(np.clip(losses.argmin(), 1, len(times) - 2))
    x, y = np.log(times[i - 1 : i + 2]), losses[i - 1 : i + 2]
    a, b, _ = np.polyfit(x, y, 2)
    return math.exp(-b / (2.0 * a))


def costs_of_layers() -> dict[float, FloatArray]:
    """Return what a multiplier in one layer costs, for each layer, by multiplier."""
    entries = record("layers").entries
    right = [e.found["losses"][0] for e in entries if e.at["layer"] is None]
    losses = _by_times([e for e in entries if e.at["layer"] is not None])
    by_layer = {times: np.reshape(of_all, (len(right), -1)).T for times, of_all in losses.items()}
    return {times: (of_layer - right).mean(axis=1) for times, of_layer in by_layer.items()}


def costs_of(part: str, field: str, **at: Any) -> dict[str, FloatArray]:
    """Return what each change costs at each length, over the same texts as they are."""
    as_it_is = record("policies").select(policy="transformer", **{"as": "scale"})
    right = {e.at["text"]: np.array(e.found["losses"]) for e in as_it_is}
    costs: dict[str, list[FloatArray]] = {}
    for e in record(part).select(**at):
        own = right[e.at["text"]]
        more = np.array(e.found["losses"])[: len(own)] - own
        costs.setdefault(e.at[field], []).append(more)
    return {name: np.mean(several, axis=0) for name, several in costs.items()}


def factors_of_faults() -> dict[str, float]:
    """Return the multiplier that each fault is, by exhibit."""
    return {e.at["exhibit"]: e.found["times"] for e in record("faults").entries}


# --- laws of others -------------------------------------------------------------------------------


def changes(name: str, model: str = "SmolLM2", **at: Any) -> FloatArray:
    """Return how a number of each head changes with n, by default up to LAST tokens."""
    run = {"tokens": LAST} if model == "SmolLM2" else {}
    value, _, _ = column("laws", name, model=model, **(at or {"growth": "laws", **run}))
    return np.asarray(value)
