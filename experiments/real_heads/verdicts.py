"""Verdicts on the predictions, by the records.

For each prediction there are the numbers that decide it; predictions/real_heads.toml has the
predicted ranges. `experiments.judges.judging` defines a part. Chapters: trained_heads, predictions.
"""

import math
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from attnlib._checking import FloatArray
from attnlib.policies import POLICIES, Policy
from experiments.judges.judging import Part, between
from experiments.real_heads import package_files, parts, rows
from experiments.real_heads.source_texts import SOURCES
from experiments.real_heads.summary import FINDS, interval
from experiments.records import Entry, Record, load, path_of

SEEN, LAST = 1024, 2048
LENGTHS_OF_LOSS = parts.PRICE_LENGTHS
PREDICTIONS = tomllib.loads(
    (package_files.HERE.parent / "predictions" / "real_heads.toml").read_text("utf-8")
)

Numbers = dict[str, Any]
Judged = Iterator[tuple[str, Numbers]]
"""Names of predictions, with their numbers."""


class Verdict(NamedTuple):
    """A prediction in words, the verdicts on its parts, and other measured numbers."""

    name: str
    words: str
    parts: tuple[Part, ...]
    others: Numbers
    """Numbers that nothing was predicted of."""


def all_of_them() -> list[Verdict]:
    """Return the verdicts on all predictions; FileNotFoundError where a record is missing."""
    judges = (
        *(judge_atlas, judge_needles, judge_price, judge_changes),
        *(judge_dispersion, judge_vanishing, judge_scales),
    )
    numbers = dict(chain.from_iterable(judge() for judge in judges))
    verdicts = []
    for name, predicted in PREDICTIONS.items():
        ends: dict[str, tuple[float, float]] = predicted["ends"]
        judged = [
            between(name, what, value, *pair, _expected(*pair))
            for key, pair in ends.items()
            for what, value in _one_by_one(key, numbers[name][key])
        ]
        others = {key: value for key, value in numbers[name].items() if key not in ends}
        verdicts.append(Verdict(name, predicted["words"], tuple(judged), others))
    return verdicts


def judge_real_heads() -> Iterator[Part]:
    """Yield all parts of the predictions."""
    return chain.from_iterable(verdict.parts for verdict in all_of_them())


def _one_by_one(name: str, values: Any) -> list[tuple[str, float]]:
    """Return a number by its name, or several, of lengths or rules, by name and place."""
    numbers = np.ravel(values).tolist()
    names = [f"{name}, {at} of {len(numbers)}" for at in range(1, len(numbers) + 1)]
    return list(zip(names if len(numbers) > 1 else [name], numbers, strict=True))


def _expected(low: float, high: float) -> str:
    """Return the predicted range in words."""
    if math.isinf(low):
        return f"at most {high:g}"
    return f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"


@cache
def record(part: str) -> Record:
    """Return the record of a part; FileNotFoundError where there is none."""
    return load(path_of(f"real_heads_{part}"))


def column(part: str, name: str, **at: Any) -> FloatArray:
    """Return a number of all heads, from an entry of a record; NaN for None."""
    return np.array(record(part).find(**at)[name], dtype=float)


def heads(n: int, name: str, part: str = "atlas", tokens: int = LAST) -> FloatArray:
    """Return a column of SmolLM2's heads at a length."""
    return column(part, name, model="SmolLM2", tokens=tokens, length=n)


def share(true: Any) -> float:
    """Return the share of the entries that are true."""
    return float(np.mean(true))


# --- the atlas ------------------------------------------------------------------------------------


def judge_atlas() -> Judged:
    """Judge sinks, spreads, tails and growth."""
    others = {  # the models that see both sides, at their longest length
        name: [e.result for e in record("atlas").select(model=name) if "length" in e.key][-1]
        for name in ("MiniLM", "AntiBERTy", "RXNMapper", "rxnfp")
    }
    sinks = {name: share(np.array(table["first"]) > 0.3) for name, table in others.items()}
    yield "A1", {"SmolLM2": share(heads(LAST, "first") > 0.3), **sinks}
    alpha = heads(SEEN, "alpha_rest")
    frozen = math.sqrt(2.0 * math.log(SEEN))
    yield "A2", {"below": share(alpha < frozen), "median": np.median(alpha)}
    yield "A3", {"share": share(heads(SEEN, "keys_rest") < heads(SEEN, "random_keys_rest"))}
    ratios = [np.array(table["output"]) * np.sqrt(table["keys"]) for table in others.values()]
    yield "A4", {"share": share(np.concatenate(ratios) > 1.0)}
    at = {"model": "SmolLM2", "tokens": LAST, "growth": "keys"}
    s, rest, random = (column("atlas", k, **at)[0] for k in ("keys", "keys_rest", "random_keys"))
    numbers = {"median": np.median(s), "without the sink": np.median(rest)}
    yield "A5", {**numbers, "below random": share(rest < random), "above .9": share(rest > 0.9)}
    ratio = heads(LAST, "alpha_rest") / heads(128, "alpha_rest")
    near = share(abs(np.log(ratio)) <= math.log(1.25))
    yield "A6", {"share": near, "median ratio": np.median(ratio)}


# --- needles --------------------------------------------------------------------------------------


def needle(kind: str, n: int) -> Numbers:
    """Return the heads that find a needle at a length, column by column, in the shortest run."""
    entries = record("repeats" if kind == "repeat" else "atlas")
    best = np.array(entries.find(needle=kind, weights="largest"), dtype=float)
    table = entries.select(needle=kind, length=n)[0].result
    finds = best[table["head"]] >= FINDS
    columns = {name: value for name, value in table.items() if isinstance(value, list)}
    return {name: np.array(value, dtype=float)[finds] for name, value in columns.items()}


def best_times(table: Numbers) -> FloatArray:
    """Return the multiplier of the least loss on the grid, for each head."""
    losses = np.array([table[f"loss {time:.3g}"] for time in rows.TIMES])
    return np.asarray(np.array(rows.TIMES)[losses.argmin(axis=0)])


def judge_needles() -> Judged:
    """Judge the heads that find their needle."""
    kinds = ("previous", "same", "repeat", "induction")
    yield "N1", {kind: len(needle(kind, 512)["head"]) for kind in kinds}
    repeat, plain = needle("repeat", 512), needle("induction", 512)
    ratios = {name: repeat["gap_rest"] / repeat[f"{name}_rest"] for name in ("slope", "variance")}
    above = share(ratios["variance"] > 1.0)
    yield "N2", {"above": above, "median": np.median(ratios["variance"])}
    off = {name: np.median(abs(np.log(np.maximum(x, 1e-9)))) for name, x in ratios.items()}
    yield "N3", {**off, "slope less variance": off["slope"] - off["variance"]}
    best = best_times(repeat)
    common, ours, theirs = np.intersect1d(repeat["head"], plain["head"], return_indices=True)
    smaller = share(best_times(plain)[theirs] < best[ours]) if common.size else 0.0
    yield "N4", {"above 1": share(best > 1.0), "smaller": smaller, "both": common.size}
    predicted, loss = repeat[f"ahead {LAST}"], needle("repeat", LAST)["loss 1"]
    near = share(abs(predicted - loss) <= np.maximum(0.3, 0.25 * loss))
    yield "N5", {"share": near, "median error": np.median(loss - predicted)}
    excess = needle("repeat", 8192)["loss 1"] - repeat["ahead 8192"]
    yield "N6", {"share": share(excess > 0.0), "median": np.median(excess)}
    measured = _reaches()
    known = np.isfinite(measured) & np.isfinite(repeat["reach"]) & (repeat["reach"] > 0.0)
    ratio = repeat["reach"][known] / measured[known]
    near = share(abs(np.log(ratio)) <= math.log(4.0))
    yield "N7", {"heads": known.sum(), "further": share(ratio > 1.0), "within 4": near}


def _reaches() -> FloatArray:
    """Return the number of keys at which each head's weight on its needle falls below ½, or NaN."""
    lengths = [n for n in parts.REPEATS if n >= 512]
    weights = np.array([needle("repeat", n)["weight"] for n in lengths])
    measured = np.full(weights.shape[1], np.nan)
    for i, weight in enumerate(weights.T):
        if weight[0] >= 0.5 and weight[-1] < 0.5:
            j = int(np.argmax(weight < 0.5))
            measured[i] = np.exp(
                np.interp(-0.5, -weight[j - 1 : j + 1], np.log(lengths[j - 1 : j + 1]))
            )
    return measured


# --- the price ------------------------------------------------------------------------------------


def curve() -> tuple[FloatArray, FloatArray]:
    """Return the multipliers, and the losses of shape (multipliers, texts, lengths)."""
    losses = _losses_by_times(record("price").entries)
    return np.array(list(losses)), np.array(list(losses.values()))


def _losses_by_times(entries: Sequence[Entry]) -> dict[float, list[list[float]]]:
    """Return the losses of the texts under each multiplier, the smallest multiplier first."""
    losses: dict[float, list[list[float]]] = {}
    for e in sorted(entries, key=lambda e: float(e.key["times"])):
        losses.setdefault(e.key["times"], []).append(e.result["losses"])
    return losses


def parabola_minimum(times: FloatArray, losses: FloatArray) -> float:
    """Return the minimum of the parabola in log t through the lowest point and its neighbours."""
    i = int(np.clip(losses.argmin(), 1, len(times) - 2))
    x, y = np.log(times[i - 1 : i + 2]), losses[i - 1 : i + 2]
    a, b, _ = np.polyfit(x, y, 2)
    return math.exp(-b / (2.0 * a))


def best_at_lengths() -> FloatArray:
    """Return the multiplier at each length that is best for the mean loss of the texts."""
    times, losses = curve()
    return np.array([parabola_minimum(times, of_length) for of_length in losses.mean(axis=1).T])


def judge_price() -> Judged:
    """Judge the loss under multipliers of all logits."""
    best, (_, losses) = best_at_lengths(), curve()
    of_lengths = losses.mean(axis=1)[:, LENGTHS_OF_LOSS.index(128) :]
    yield "P1", {"best": best[LENGTHS_OF_LOSS.index(256) :]}
    yield "P2", {"drift": best[-1] - best[LENGTHS_OF_LOSS.index(128)]}
    half, twice = (of_lengths[i] - of_lengths[len(of_lengths) // 2] for i in (0, -1))
    yield "P3", {"half less twice": half - twice, "half": half, "twice": twice}
    beyond = _losses_by_times(record("beyond").entries)
    by_times = {times: np.mean(of_texts, axis=0) for times, of_texts in beyond.items()}
    base, excess = by_times[1.0], by_times[max(by_times)] - by_times[1.0]
    numbers = {"rise": base[-1] - base[-2], "cost beyond less before": excess[-1] - excess[-3]}
    yield "P4", {**numbers, "cost beyond": excess[-1], "cost before": excess[-3]}


def costs_of_layers() -> dict[float, FloatArray]:
    """Return the cost of each multiplier in one layer, in nats, (layers,), by multiplier."""
    entries = record("layers").entries
    base = [e.result["losses"][0] for e in entries if e.key["layer"] is None]
    losses = _losses_by_times([e for e in entries if e.key["layer"] is not None])
    by_layer = {times: np.reshape(of_all, (len(base), -1)).T for times, of_all in losses.items()}
    return {times: (of_layer - base).mean(axis=1) for times, of_layer in by_layer.items()}


def costs_of(part: str, field: str, **at: Any) -> dict[str, FloatArray]:
    """Return the cost of each change at each length, in nats, over the same texts unchanged."""
    unchanged = record("policies").select(policy="transformer", **{"as": "scale"})
    unchanged_losses = {e.key["text"]: np.array(e.result["losses"]) for e in unchanged}
    costs: dict[str, list[FloatArray]] = {}
    for e in record(part).select(**at):
        before = unchanged_losses[e.key["text"]]
        excess = np.array(e.result["losses"])[: len(before)] - before
        costs.setdefault(e.key[field], []).append(excess)
    return {name: np.mean(of_texts, axis=0) for name, of_texts in costs.items()}


def multipliers_by_bug() -> dict[str, float]:
    """Return the mean factor by which each known bug multiplies q·k, by the name of the bug."""
    return {e.key["bug"]: e.result["times"] for e in record("faults").entries}


def judge_changes() -> Judged:
    """Judge multipliers of heads and of layers, policies and faults."""
    slopes = np.array([e.result["late"] for e in record("slopes").entries])
    _, low, high = interval(slopes)
    with_0 = share((low <= 0.0) & (high >= 0.0))
    yield "P5", {"sum": slopes.mean(axis=0).sum(), "with 0": with_0}
    costs = costs_of_layers()
    mean = costs[min(costs)]
    numbers = {"positive": (mean > 0.0).sum(), "median": np.median(mean)}
    yield "P6", {**numbers, "dearest": int(mean.argmax())}
    scales, factors = (costs_of("policies", "policy", **{"as": x}) for x in ("scale", "factor"))
    other = [cost.mean() for name, cost in scales.items() if _differs_at_512(POLICIES[name])]
    of_log = [factors[name][1] for name in ("ssmax", "chiang_cholak")]
    yield "P7", {"least": min(other), "policies": len(other), "laws to 128": of_log}
    wrong = costs_of("faults", "bug")
    times = multipliers_by_bug()
    blind = [wrong[name].mean() for name in wrong if times[name] <= 0.125]
    sharp = [wrong[name].mean() for name in wrong if times[name] >= 4.0]
    yield "P8", {"blind": min(blind), "sharp": min(sharp)}


def _differs_at_512(policy: Policy) -> bool:
    """Return whether a policy for dot products has an α off 1 by more than 5 %, at 512 keys."""
    alpha = float(np.max(policy.alpha(np.array([512.0]), 64)))
    return policy.applied_to != "cosine" and abs(math.log(max(alpha, 1e-9))) > math.log(1.05)


# --- laws of others -------------------------------------------------------------------------------


def growth_of(name: str, model: str = "SmolLM2", **at: Any) -> FloatArray:
    """Return the growth of a number with n for each head, by default up to LAST tokens."""
    run = {"tokens": LAST} if model == "SmolLM2" else {}
    growth, _, _ = column("laws", name, model=model, **(at or {"growth": "laws", **run}))
    return np.asarray(growth)


def judge_dispersion() -> Judged:
    """Judge the law of dispersion: its bound, its rate, its premise."""
    n = max(parts.LONG_LENGTHS)
    spread = heads(n, "range", "laws", n)
    yield "L1", {"share": share(spread > math.log(n)), "median range": np.median(spread)}
    rest, all_keys = growth_of("largest_rest"), growth_of("largest")
    numbers = {"rest": np.median(rest), "below": share(rest < -0.75)}
    yield "L2", {**numbers, "median": np.median(all_keys)}
    widening = heads(LAST, "range", "laws") - heads(128, "range", "laws")
    yield "L3", {"share": share(widening > 0.0), "median": np.median(widening)}


def judge_vanishing() -> Judged:
    """Judge the law of vanishing variance."""
    smollm2, minilm = growth_of("output"), growth_of("output", "MiniLM")
    yield "L4", {"falls": (smollm2[:9] < 0.0).sum(), "median": np.median(smollm2[:9])}
    numbers = {"falls": share(smollm2 < 0.0), "median": np.median(smollm2)}
    yield "L5", {**numbers, "MiniLM": share(minilm < 0.0), "MiniLM median": np.median(minilm)}
    at = {"source": SOURCES[0], "growth": "output"}
    smollm2, minilm = (growth_of("output", model, **at) for model in ("SmolLM2", "MiniLM"))
    numbers = {"first": (smollm2[:9] < 0.0).sum(), "median of first": np.median(smollm2[:9])}
    numbers |= {"median": np.median(smollm2), "MiniLM first": (minilm[:12] < 0.0).sum()}
    yield "L10", numbers


def judge_scales() -> Judged:
    """Judge the laws of counted gaps and of moments."""
    from scipy.stats import spearmanr  # takes longer to load than all verdicts take

    tail, largest, half = (heads(SEEN, x, "laws") for x in ("tail", "largest_rest", "half"))
    numbers = {"correlation": spearmanr(tail, largest).statistic, "half": np.median(half)}
    yield "L6", {**numbers, "above 1": share(tail > 1.0)}
    xi = growth_of("tail")
    low, median, high = np.percentile(xi, (25, 50, 75))
    yield "L7", {"median": median, "near 1": share(abs(xi - 1.0) <= 0.25), "apart": high - low}
    table = needle("repeat", 512)
    rule, best = table["gap_rest"] / table["variance_rest"], best_times(table)
    on_grid = np.clip(rule, 0.5, 2.0)
    octaves = np.median(abs(np.log2(on_grid / best)))
    yield "L8", {"octaves": octaves, "above": share(on_grid > best), "heads": rule.size}
    middle, of_all = float(np.median(rule)), best_at_lengths()[LENGTHS_OF_LOSS.index(512)]
    further = abs(math.log(of_all)) - abs(math.log(of_all / middle))
    yield "L9", {"rule": middle, "best's |log| to 1 less to the rule": further, "best": of_all}
