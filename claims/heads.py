"""Claims of others on rows of attention (sources 005 to 008), on the recorded heads of models.

Chapter: trained_heads.
"""

import math
from functools import cache
from typing import Any

import numpy as np

from attnlib._checking import FloatArray
from claims.registry import (
    Decision,
    Tolerance,
    Verdict,
    claim,
    close,
    extended_unless,
)

MODELS = ("SmolLM2", "MiniLM", "AntiBERTy", "RXNMapper", "rxnfp")

TOKENS, MIDDLE, LONGEST = 2048, 1024, 8192
"""Keys of SmolLM2's rows: in its longest usual texts, in the middle of those, and at most."""

FIRST = {"SmolLM2": 9, "MiniLM": 12}
"""Heads of the first layer."""

FAR = 10**30
"""So many keys that what is left of a limit is below rounding."""


@cache
def recorded() -> dict[str, dict[str, FloatArray]]:
    """Return of each model what the checks need of its heads: arrays, heads along the last axis.

    Of three rows: a number, and the ends of its interval over texts.
    """
    from experiments.records import load  # it loads torch, and the other claims need none

    laws, models = load("real_heads_laws"), {}
    for name in MODELS:
        at: dict[str, Any] = {"model": name}
        if name == "SmolLM2":
            at["tokens"] = TOKENS
        growth = laws.find(**at, growth="laws")
        tables = [entry for entry in laws.select(**at) if "length" in entry.key]
        middle = next((e for e in tables if e.key["length"] == MIDDLE), tables[-1]).result
        columns = {"half": middle["half"], "law": growth["tail"]}
        columns |= {"weight": growth["largest_rest"][0], "growth": growth["range"][0]}
        if "output" in growth:
            columns["output"] = growth["output"]
        for entry in laws.select(model=name, growth="output"):
            columns["output, brown"] = entry.result["output"]
        models[name] = {key: np.array(value, dtype=float) for key, value in columns.items()}
    longest = laws.find(model="SmolLM2", tokens=LONGEST, length=LONGEST)
    models["SmolLM2"]["range"] = np.array(longest["range"], dtype=float)
    return models


def needles() -> dict[str, FloatArray]:
    """Return the heads that find the needle of a text said twice: gap, variance, slope, best.

    `best` is the multiplier that their loss wants.
    """
    from experiments.real_heads import verdicts

    table = verdicts.needle("repeat", 512)
    columns = {name: table[f"{name}_rest"] for name in ("gap", "variance", "slope")}
    return {**columns, "best": verdicts.best_times(table)}


@claim("heads.dispersion")
def dispersion(power: float = 1.0, growth: float = 0.0) -> Decision:
    """With logits of a fixed range, the largest weight of a row of n keys falls like n^−power.

    With `growth` the range grows, by growth·log n.
    """
    spread = 3.0 + growth * math.log(FAR)
    limit = math.exp(spread - 3.0) / (FAR - 1.0 + math.exp(spread)) * float(FAR) ** power
    heads = recorded()["SmolLM2"]
    own = float(np.median(heads["weight"]))
    like = abs(own + power) < Tolerance.TENTH
    return extended_unless(like, close(limit, 1.0, Tolerance.IN_THE_LIMIT)), {
        "beyond": 100 * np.mean(heads["range"] > math.log(LONGEST)),
        "heads": heads["range"].size,
        "range": np.median(heads["range"]),
        "exponent": own,
        "growth": np.median(heads["growth"]),
        "faster": 100 * np.mean(heads["growth"] > 1.0),
    }


@claim("heads.variance")
def vanishing(sign: float = -1.0) -> Decision:
    """With more keys the variance of attention's outputs changes by this sign, in all or some."""
    tables = recorded()
    asked = {model: table["output"] for model, table in tables.items() if "output" in table}
    first = {model: tables[model]["output, brown"][:, :count] for model, count in FIRST.items()}
    if all(_most(exponents, sign) for exponents in asked.values()):
        verdict = Verdict.HOLDS_WITHIN
    else:
        first_layer = _most(first["SmolLM2"], sign)
        verdict = Verdict.NEEDS_A_CONDITION if first_layer else Verdict.WRONG
    return verdict, {
        "falls": "; ".join(f"{model} {_falls(exponents)}" for model, exponents in asked.items()),
        **{model: _falls(exponents) for model, exponents in first.items()},
    }


def _most(exponents: FloatArray, sign: float) -> bool:
    """Return whether most heads surely change by this sign, and few surely otherwise."""
    low, high = np.sort(sign * exponents[1:], axis=0)
    return bool(np.median(low) > 0.0 and np.mean(high < 0.0) < Tolerance.TENTH)


def _falls(exponents: FloatArray) -> str:
    """Say how exponents are: the median, and how many surely fall and surely rise."""
    middle, low, high = exponents
    return (
        f"{np.median(middle):.2f}, surely falling in {np.sum(high < 0.0)} and surely rising in "
        f"{np.sum(low > 0.0)} of {low.size} heads"
    )


@claim("heads.gaps")
def gaps(factor: float = 1.0) -> Decision:
    """A row concentrates at factor·Λ, and Λ ∝ (log n)^ξ: ξ is not 1 for all heads.

    The law leaves a constant open: within a factor 4 it is of the order of 1. Of intervals of
    90 % by bootstrap over eight texts a sixth misses by chance; a quarter is more.
    """
    order, by_chance = 4.0, 0.25
    halves = [table["half"] for table in recorded().values()]
    half = [float(np.median(ratios)) for ratios in halves]
    near = [float(np.mean(np.abs(np.log(ratios / factor)) < math.log(order))) for ratios in halves]
    xi, low, high = recorded()["SmolLM2"]["law"]

    def missed(exponent: float) -> float:
        return float(np.mean((low > exponent) | (high < exponent)))

    if min(near) < 1.0 - Tolerance.TENTH:
        verdict = Verdict.WRONG
    else:
        verdict = Verdict.HOLDS_WITHIN if missed(1.0) > by_chance else Verdict.OPEN
    return verdict, {
        "half": (min(half), max(half)),
        "near": 100 * min(near),
        "xi": np.percentile(xi, (25, 50, 75)),
        "missed": (100 * missed(1.0), 100 * missed(float(np.median(xi)))),
        "chance": 100 * by_chance,
        "order": order,
    }


@claim("heads.moments")
def moments(power: float = 1.0) -> Decision:
    """With attention made linear the best multiplier is gap/variance^power; so it is of heads.

    The grid of multipliers, in steps of a quarter and a half of an octave, tells half an octave
    apart.
    """
    scores = np.append(np.sin(np.arange(1.0, 512.0)) * 2.5, 4.0)
    centred = scores - scores.mean()
    error = [np.sum(((1.0 + u * centred) / scores.size - (scores == 4.0)) ** 2) for u in range(3)]
    best = 1.0 + (error[0] - error[2]) / (2.0 * (error[0] - 2.0 * error[1] + error[2]))
    proved = close(best, centred[-1] / scores.var() ** power, Tolerance.ROUNDING * scores.size)
    heads = needles()
    rules = {name: heads["gap"] / heads[name] for name in ("variance", "slope")}
    off = {  # by how many octaves a rule, kept on the grid of multipliers, misses
        name: float(np.median(np.abs(np.log2(np.clip(rule, 0.5, 2.0) / heads["best"]))))
        for name, rule in rules.items()
    }
    numbers = {"heads": heads["best"].size, "rule": np.median(rules["variance"]), "off": off}
    verdict = extended_unless(off["variance"] < Tolerance.HALF, proved, Verdict.HOLDS_WITHIN)
    return verdict, {"best": best, **numbers, "wanted": np.median(heads["best"])}
