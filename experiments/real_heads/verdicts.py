"""What became of the predictions, by what is recorded: `python -m experiments.real_heads.verdicts`.

Each has a line with the numbers that decide it; one whose record is not there has none.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from attnlib.checking import FloatArray
from attnlib.policies import POLICIES
from experiments.real_heads import inputs, parts, rows
from experiments.real_heads.summary import FINDS, INTERVAL, RESAMPLED, interval
from experiments.records import Record, load, path_of

DECODER, SEEN, LAST = 30, 1024, 2048
LENGTHS_OF_LOSS = parts.PRICE_LENGTHS


class Verdict(NamedTuple):
    """Whether a prediction is kept, and by which numbers."""

    name: str
    kept: bool
    numbers: dict[str, Any]

    @property
    def found(self) -> str:
        """The numbers in a line, with three digits."""
        parts = []
        for name, value in self.numbers.items():
            values = value if isinstance(value, list) else [value]
            parts.append(f"{name} " + " ".join(f"{one:.3g}" for one in values))
        return ", ".join(parts)


def all_of_them() -> Iterator[Verdict]:
    """Yield the verdicts for which there are records."""
    for name, judge in JUDGES.items():
        try:
            kept, numbers = judge()
        except (FileNotFoundError, KeyError):
            continue
        yield Verdict(name, bool(kept), {k: _plain(v) for k, v in numbers.items()})


def _plain(number: Any) -> Any:
    return float(f"{float(number):.4g}") if np.ndim(number) == 0 else [_plain(x) for x in number]


@cache
def record(part: str) -> Record:
    """Return the record of a part; FileNotFoundError where there is none."""
    return load(path_of(f"real_heads_{part}"))


def heads(n: int, name: str) -> FloatArray:
    """Return a column of SmolLM2's heads at a length."""
    return _column(record("atlas").find(model="SmolLM2", tokens=LAST, length=n)[name])


def _column(values: Any) -> FloatArray:
    return np.array(values, dtype=float)


def share(true: Any) -> float:
    """Return the share of what is true."""
    return float(np.mean(true))


def seconds() -> float:
    """Return the processor time of all parts that are recorded."""
    total = 0.0
    for part in parts.PARTS:
        entries = record(part).entries
        of_texts = [e.found for e in entries if "seconds" in e.at]  # of parts that hold means only
        total += sum(of_texts or [e.found["seconds"] for e in entries if "seconds" in e.found])
    return total


# --- the atlas ------------------------------------------------------------------------------------


def a1() -> tuple[Any, dict[str, Any]]:
    """Over half of SmolLM2's heads give the first key .3 at 2048; of the others under a tenth."""
    numbers = {"SmolLM2": share(heads(LAST, "first") > 0.3)}
    for model, table in _others():
        numbers[model] = share(_column(table["first"]) > 0.3)
    several = [value for name, value in numbers.items() if name != "SmolLM2"]
    return numbers["SmolLM2"] > 0.5 and max(several) < 0.1, numbers


def _others() -> Iterator[tuple[str, Any]]:
    """Yield the models that see both sides, with their heads at their longest length."""
    for model in ("MiniLM", "AntiBERTy", "RXNMapper", "rxnfp"):
        tables = [e for e in record("atlas").select(model=model) if "length" in e.at]
        yield model, max(tables, key=lambda entry: entry.at["length"]).found


def a2() -> tuple[Any, dict[str, Any]]:
    """At 1024 keys 75 % of its heads have α below freezing, and the median α is 1 to 3."""
    alpha = heads(SEEN, "alpha_rest")
    below, median = share(alpha < math.sqrt(2.0 * math.log(SEEN))), np.median(alpha)
    return below >= 0.75 and 1.0 <= median <= 3.0, {"below": below, "median": median}


def a3() -> tuple[Any, dict[str, Any]]:
    """At 1024 keys 70 % of its heads have fewer keys than random rows of their α."""
    fewer = share(heads(SEEN, "keys_rest") < heads(SEEN, "random_keys_rest"))
    return fewer >= 0.7, {"share": fewer}


def a4() -> tuple[Any, dict[str, Any]]:
    """In the other models 70 % of the heads have an output larger than independent values give."""
    ratios = [_column(table["output"]) * np.sqrt(_column(table["keys"])) for _, table in _others()]
    above = share(np.concatenate(ratios) > 1.0)
    return above >= 0.7, {"share": above}


def a5() -> tuple[Any, dict[str, Any]]:
    """Keys ∝ nˢ: median s below .3, without the sink .4 to .85 and below that of random rows."""
    found = record("atlas").find(model="SmolLM2", tokens=LAST, growth="keys")
    s, rest, random = (_column(found[k][0]) for k in ("keys", "keys_rest", "random_keys"))
    numbers = {
        "median": np.median(s),
        "without the sink": np.median(rest),
        "below random": share(rest < random),
        "above .9": share(rest > 0.9),
    }
    kept = numbers["median"] < 0.3 and 0.4 <= numbers["without the sink"] <= 0.85
    return kept and numbers["below random"] >= 0.7 and numbers["above .9"] <= 0.15, numbers


def a6() -> tuple[Any, dict[str, Any]]:
    """In 70 % of its heads α at 2048 is within a factor 1.25 of that at 128."""
    ratio = heads(LAST, "alpha_rest") / heads(128, "alpha_rest")
    near = share(abs(np.log(ratio)) <= math.log(1.25))
    return near >= 0.7, {"share": near, "median ratio": np.median(ratio)}


# --- needles --------------------------------------------------------------------------------------


def needle(kind: str, n: int) -> dict[str, Any]:
    """Return the heads that find a needle, at a length, in the shortest of the runs."""
    part = "repeats" if kind == "repeat" else "atlas"
    found = [e.found for e in record(part).select(needle=kind) if e.at.get("length") == n]
    if not found:
        raise KeyError(kind)
    best = _column(record(part).find(needle=kind, weights="largest"))
    finds = best[found[0]["head"]] >= FINDS
    return {name: _column(v)[finds] for name, v in found[0].items() if isinstance(v, list)}


def n1() -> tuple[Any, dict[str, Any]]:
    """At least 5 heads find the previous token, 3 the same one, 8 what came after it (repeat)."""
    least = {"previous": 5, "same": 3, "repeat": 8}
    numbers = {kind: len(needle(kind, 512)["head"]) for kind in (*least, "induction")}
    return all(numbers[kind] >= count for kind, count in least.items()), numbers


def n2() -> tuple[Any, dict[str, Any]]:
    """Of those that find repeat 70 % have a gap above the variance of the others."""
    table = needle("repeat", 512)
    ratio = table["gap_rest"] / table["variance_rest"]
    numbers = {"above": share(ratio > 1.0), "median": np.median(ratio)}
    return numbers["above"] >= 0.7 and 1.0 <= numbers["median"] <= 3.0, numbers


def n3() -> tuple[Any, dict[str, Any]]:
    """The gap is nearer to κ'(1) of the others than to their variance."""
    table = needle("repeat", 512)
    off = [
        np.median(abs(np.log(np.maximum(table["gap_rest"] / table[name], 1e-9))))
        for name in ("slope_rest", "variance_rest")
    ]
    return off[0] < off[1], {"slope": off[0], "variance": off[1]}


def best_times(table: dict[str, Any]) -> FloatArray:
    """Return the multiplier of the least loss on the grid, for each head."""
    losses = np.array([table[f"loss {time:.3g}"] for time in rows.TIMES])
    return np.asarray(np.array(rows.TIMES)[losses.argmin(axis=0)])


def n4() -> tuple[Any, dict[str, Any]]:
    """The best multiplier of repeat is above 1 for 60 %, and larger than that of induction."""
    repeat, plain = needle("repeat", 512), needle("induction", 512)
    both, ours, theirs = np.intersect1d(repeat["head"], plain["head"], return_indices=True)
    above = share(best_times(repeat) > 1.0)
    smaller = share(best_times(plain)[theirs] < best_times(repeat)[ours]) if both.size else 0.0
    numbers = {"above 1": above, "smaller": smaller, "both": both.size}
    return above >= 0.6 and smaller >= 0.7, numbers


def n5() -> tuple[Any, dict[str, Any]]:
    """The loss at 2048 foretold from 512 is within .3 nats or 25 % for half of the heads."""
    told, found = needle("repeat", 512)[f"ahead {LAST}"], needle("repeat", LAST)["loss 1"]
    near = share(abs(told - found) <= np.maximum(0.3, 0.25 * found))
    return near >= 0.5, {"share": near, "median error": np.median(found - told)}


def n6() -> tuple[Any, dict[str, Any]]:
    """At 8192 60 % of them lose more than foretold."""
    more = needle("repeat", 8192)["loss 1"] - needle("repeat", 512)["ahead 8192"]
    return share(more > 0.0) >= 0.6, {"share": share(more > 0.0), "median": np.median(more)}


def n7() -> tuple[Any, dict[str, Any]]:
    """The reach of normal others is too long, and within a factor 4."""
    lengths = [n for n in parts.REPEATS if n >= 512]
    weights = np.array([needle("repeat", n)["weight"] for n in lengths])
    told, measured = needle("repeat", 512)["reach"], np.full(weights.shape[1], np.nan)
    for i, one in enumerate(weights.T):
        if one[0] >= 0.5 and one[-1] < 0.5:
            j = int(np.argmax(one < 0.5))
            between = (one[j - 1] - 0.5) / (one[j - 1] - one[j])
            measured[i] = lengths[j - 1] * (lengths[j] / lengths[j - 1]) ** between
    known = np.isfinite(measured) & np.isfinite(told) & (told > 0.0)
    if not known.any():
        raise KeyError("no head loses its needle")
    ratio = told[known] / measured[known]
    numbers = {
        "heads": known.sum(),
        "further": share(ratio > 1.0),
        "within 4": share(abs(np.log(ratio)) <= math.log(4.0)),
    }
    return numbers["further"] >= 0.6 and numbers["within 4"] >= 0.5, numbers


# --- the price ------------------------------------------------------------------------------------


def curve() -> tuple[FloatArray, FloatArray]:
    """Return the multipliers and the losses (multipliers, texts, lengths)."""
    entries = record("price").entries
    times = sorted({entry.at["times"] for entry in entries})
    losses = [[e.found["losses"] for e in entries if e.at["times"] == one] for one in times]
    if len({len(of_one) for of_one in losses}) > 1:
        raise KeyError("not all texts")
    return np.array(times), np.array(losses)


def least(times: FloatArray, losses: FloatArray) -> float:
    """Return where the parabola in log t through the lowest point and its neighbours is least."""
    i = int(np.clip(losses.argmin(), 1, len(times) - 2))
    x, y = np.log(times[i - 1 : i + 2]), losses[i - 1 : i + 2]
    a, b, _ = np.polyfit(x, y, 2)
    return math.exp(-b / (2.0 * a))


def best_at_lengths() -> FloatArray:
    """Return the best multiplier at each length."""
    times, losses = curve()
    of_lengths = losses.mean(axis=1).T
    return np.array([least(times, one) for one in of_lengths])


def best_interval() -> tuple[FloatArray, FloatArray]:
    """Return the 90 % interval of the best multiplier at each length, by bootstrap over texts."""
    times, losses = curve()
    rng = np.random.default_rng(0)
    several = losses[:, rng.integers(losses.shape[1], size=(RESAMPLED, losses.shape[1]))].mean(2)
    best = [[least(times, one) for one in draw.T] for draw in several.swapaxes(0, 1)]
    low, high = np.percentile(best, INTERVAL, axis=0)
    return low, high


def p1() -> tuple[Any, dict[str, Any]]:
    """The best multiplier of all logits is .92 to 1.09 at each length from 256 to 2048."""
    best = best_at_lengths()
    chosen = best[[LENGTHS_OF_LOSS.index(n) for n in (256, 512, 1024, 2048)]]
    return ((chosen >= 0.92) & (chosen <= 1.09)).all(), {"best": chosen}


def p2() -> tuple[Any, dict[str, Any]]:
    """It moves by at most .05 from 128 to 2048."""
    best = best_at_lengths()
    drift = best[-1] - best[LENGTHS_OF_LOSS.index(128)]
    return abs(drift) <= 0.05, {"drift": drift}


def p3() -> tuple[Any, dict[str, Any]]:
    """Half of all logits costs more than twice of them, and more than .3 nats."""
    _, losses = curve()
    of_lengths = losses.mean(axis=1)[:, LENGTHS_OF_LOSS.index(128) :]
    right = of_lengths[len(of_lengths) // 2]
    half, twice = of_lengths[0] - right, of_lengths[-1] - right
    return (half > np.maximum(twice, 0.3)).all(), {"half": half, "twice": twice}


def of_beyond() -> dict[float, FloatArray]:
    """Return the losses at each length up to beyond that of training, by multiplier."""
    entries = record("beyond").entries
    if len(entries) < 6:
        raise KeyError("not all")
    return {
        t: np.mean([e.found["losses"] for e in entries if e.at["times"] == t], axis=0)
        for t in sorted({e.at["times"] for e in entries})
    }


def p4() -> tuple[Any, dict[str, Any]]:
    """Beyond 8192 the loss rises, and larger logits cost less there than before."""
    by_times = of_beyond()
    right, more = by_times[1.0], by_times[max(by_times)] - by_times[1.0]
    numbers = {"rise": right[-1] - right[-2], "cost beyond": more[-1], "cost before": more[-3]}
    return right[-1] > right[-2] and more[-1] < more[-3], numbers


def p5() -> tuple[Any, dict[str, Any]]:
    """The slopes by heads' multipliers add up to under .05; 60 % have 0 in their interval."""
    slopes = np.array([e.found["late"] for e in record("slopes").entries])
    _, low, high = interval(slopes)
    numbers = {"sum": slopes.mean(axis=0).sum(), "with 0": share((low <= 0.0) & (high >= 0.0))}
    return abs(numbers["sum"]) < 0.05 and numbers["with 0"] >= 0.6, numbers


def costs_of_layers() -> dict[float, FloatArray]:
    """Return what a multiplier in one layer costs, for each layer, by multiplier."""
    entries = record("layers").entries
    right = {e.at["text"]: e.found["losses"][0] for e in entries if e.at["layer"] is None}
    costs: dict[float, dict[int, list[float]]] = {}
    for e in entries:
        if e.at["layer"] is not None:
            of_layer = costs.setdefault(e.at["times"], {}).setdefault(e.at["layer"], [])
            of_layer.append(e.found["losses"][0] - right[e.at["text"]])
    return {t: np.array([np.mean(one) for one in of.values()]) for t, of in costs.items()}


def p6() -> tuple[Any, dict[str, Any]]:
    """√½ in one layer costs something in 25, in the median under .02; most in the first five."""
    mean = costs_of_layers()[min(costs_of_layers())]
    if len(mean) < DECODER:
        raise KeyError("not all")
    numbers = {
        "positive": (mean > 0.0).sum(),
        "median": np.median(mean),
        "dearest": int(mean.argmax()),
    }
    kept = numbers["positive"] >= 25 and numbers["median"] < 0.02
    return kept and numbers["dearest"] < 5, numbers


def costs_of(part: str, field: str, **at: Any) -> dict[str, FloatArray]:
    """Return what each change costs at each length, over the same texts as they are."""
    right = {
        e.at["text"]: _column(e.found["losses"])
        for e in record("policies").select(policy="transformer", **{"as": "scale"})
    }
    found: dict[str, list[FloatArray]] = {}
    for e in record(part).select(**at):
        if "losses" in e.found:
            short = right[e.at["text"]]
            mine = _column(e.found["losses"])[: len(short)]
            found.setdefault(e.at[field], []).append(mine - short)
    return {name: np.mean(several, axis=0) for name, several in found.items()}


def p7() -> tuple[Any, dict[str, Any]]:
    """Each policy whose α is not 1 costs .01 nats; laws ∝ log n cost .05 at 64 to 128 tokens."""
    scales, laws = (costs_of("policies", "policy", **{"as": way}) for way in ("scale", "factor"))
    other = []
    for name, cost in scales.items():
        policy = POLICIES[name]
        if policy.applied_to != "cosine":
            alpha = float(np.max(policy.alpha(np.array([512.0]), 64)))
            if abs(math.log(max(alpha, 1e-9))) > math.log(1.05):
                other.append(cost.mean())
    of_log = [laws[name][1] for name in ("ssmax", "chiang_cholak") if name in laws]
    numbers = {"least": min(other), "policies": len(other), "laws to 128": of_log}
    return min(other) > 0.01 and bool(of_log) and min(of_log) >= 0.05, numbers


def p8() -> tuple[Any, dict[str, Any]]:
    """A multiplier of an eighth or less costs 3 nats, of four or more .5."""
    costs = costs_of("faults", "exhibit")
    times = {e.at["exhibit"]: e.found["times"] for e in record("faults").entries}
    blind = [costs[name].mean() for name in costs if times[name] <= 0.125]
    sharp = [costs[name].mean() for name in costs if times[name] >= 4.0]
    numbers = {"blind": min(blind), "sharp": min(sharp)}
    return min(blind) > 3.0 and min(sharp) > 0.5, numbers


# --- laws of others -------------------------------------------------------------------------------


def law(n: int, name: str, tokens: int = LAST) -> FloatArray:
    """Return a column of SmolLM2's heads at a length."""
    return _column(record("laws").find(model="SmolLM2", tokens=tokens, length=n)[name])


def changes(name: str, model: str = "SmolLM2") -> FloatArray:
    """Return how a number of each head changes with n, up to LAST tokens."""
    at = {"tokens": LAST} if model == "SmolLM2" else {}
    return _column(record("laws").find(model=model, growth="laws", **at)[name][0])


def l1() -> tuple[Any, dict[str, Any]]:
    """The bound of dispersion, e^R/n, says nothing at 8192 keys for 80 % of the heads."""
    n = max(parts.LONG_LENGTHS)
    silent = share(law(n, "range", n) > math.log(n))
    return silent >= 0.8, {"share": silent, "median range": np.median(law(n, "range", n))}


def l2() -> tuple[Any, dict[str, Any]]:
    """The largest weight (rest) falls with an exponent of −.45 to −.1 in the median head."""
    rest, whole = changes("largest_rest"), changes("largest")
    numbers = {
        "rest": np.median(rest),
        "below": share(rest < -0.75),
        "median": np.median(whole),
    }
    kept = -0.45 <= numbers["rest"] <= -0.1 and numbers["below"] <= 0.1
    return kept and numbers["median"] > -0.15, numbers


def l3() -> tuple[Any, dict[str, Any]]:
    """The range of the logits grows from 128 to 2048 keys, in 80 % of the heads, by 1 to 4."""
    more = law(LAST, "range") - law(128, "range")
    numbers = {"share": share(more > 0.0), "median": np.median(more)}
    return numbers["share"] >= 0.8 and 1.0 <= numbers["median"] <= 4.0, numbers


def l4() -> tuple[Any, dict[str, Any]]:
    """In the first layer the std of the output falls with n in 7 of 9 heads."""
    first = changes("output")[:9]
    numbers = {"falls": (first < 0.0).sum(), "median": np.median(first)}
    return numbers["falls"] >= 7 and -0.5 <= numbers["median"] <= -0.1, numbers


def l5() -> tuple[Any, dict[str, Any]]:
    """In all layers it falls in 65 % of the heads, in MiniLM in 80 %."""
    found, minilm = changes("output"), changes("output", "MiniLM")
    numbers = {
        "falls": share(found < 0.0),
        "median": np.median(found),
        "MiniLM": share(minilm < 0.0),
        "MiniLM median": np.median(minilm),
    }
    kept = numbers["falls"] >= 0.65 and -0.25 <= numbers["median"] <= -0.03
    return kept and numbers["MiniLM"] >= 0.8, numbers


def l10() -> tuple[Any, dict[str, Any]]:
    """With texts of one source the std of the first layer's output falls: SmolLM2 and MiniLM."""
    at = {"source": inputs.SOURCES[0], "growth": "output"}
    found, minilm = (
        _column(record("laws").find(model=model, **at)["output"][0])
        for model in ("SmolLM2", "MiniLM")
    )
    numbers = {
        "first": (found[:9] < 0.0).sum(),
        "median of first": np.median(found[:9]),
        "median": np.median(found),
        "MiniLM first": (minilm[:12] < 0.0).sum(),
    }
    kept = numbers["first"] >= 7 and -0.4 <= numbers["median of first"] <= -0.05
    kept = kept and -0.15 <= numbers["median"] <= 0.05
    return kept and numbers["MiniLM first"] >= 8, numbers


def l6() -> tuple[Any, dict[str, Any]]:
    """Λ of the counted gaps goes with the largest weight, and 60 % of the heads have Λ above 1."""
    tail, largest, half = (law(SEEN, name) for name in ("tail", "largest_rest", "half"))
    numbers = {
        "correlation": spearmanr(tail, largest).statistic,
        "half": np.median(half),
        "above 1": share(tail > 1.0),
    }
    kept = numbers["correlation"] <= -0.8 and 0.4 <= numbers["half"] <= 1.2
    return kept and numbers["above 1"] >= 0.6, numbers


def l7() -> tuple[Any, dict[str, Any]]:
    """Λ ∝ (log n)^ξ: the median ξ is 0 to .75, and the quartiles lie .5 apart."""
    xi = changes("tail")
    low, median, high = np.percentile(xi, (25, 50, 75))
    numbers = {"median": median, "near 1": share(abs(xi - 1.0) <= 0.25), "apart": high - low}
    return 0.0 <= median <= 0.75 and numbers["near 1"] <= 0.25 and high - low > 0.5, numbers


def l8() -> tuple[Any, dict[str, Any]]:
    """Gap over variance misses the best multiplier of repeat by √2, and is too large."""
    table = needle("repeat", 512)
    rule, best = np.clip(table["gap_rest"] / table["variance_rest"], 0.5, 2.0), best_times(table)
    numbers = {
        "octaves": np.median(abs(np.log2(rule / best))),
        "above": share(rule > best),
        "heads": rule.size,
    }
    return numbers["octaves"] > 0.5 and numbers["above"] >= 0.6, numbers


def l9() -> tuple[Any, dict[str, Any]]:
    """That rule asks for 1.15 or more of all logits, which the model's loss does not want."""
    table = needle("repeat", 512)
    rule = float(np.median(table["gap_rest"] / table["variance_rest"]))
    best = best_at_lengths()[LENGTHS_OF_LOSS.index(512)]
    nearer = abs(math.log(best)) < abs(math.log(best / rule))
    return rule > 1.15 and nearer, {"rule": rule, "best": best}


JUDGES: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    judge.__name__.upper(): judge
    for judge in (
        *(a1, a2, a3, a4, a5, a6),
        *(n1, n2, n3, n4, n5, n6, n7),
        *(p1, p2, p3, p4, p5, p6, p7, p8),
        *(l1, l2, l3, l4, l5, l6, l7, l8, l9, l10),
    )
}


if __name__ == "__main__":
    for verdict in all_of_them():
        print(verdict.name, "kept" if verdict.kept else "not kept", verdict.found)
