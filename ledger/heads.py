"""Claims of others on rows of attention (sources 005 to 008), on the heads of trained models.

What a check needs of the recorded heads is in heads.json, beside this file. Chapter: heads.
"""

import json
import math
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from attnlib.checking import FloatArray
from ledger.registry import IN_THE_LIMIT, ROUNDING, TENTH, Finding, Verdict, claim

HEADS = "heads.json"

FIRST = 9
"""Heads of SmolLM2's first layer."""

FAR = 10**30
"""So many keys that what is left of a limit is below rounding."""

ORDER = 4.0
"""A law of scales leaves a constant open. Within this factor it is one of the order of 1."""

BY_CHANCE = 0.25
"""Of intervals of 90 % by bootstrap over eight texts a sixth misses by chance; this is more."""

HALF_AN_OCTAVE = 0.5
"""What a grid of multipliers in steps of a quarter and a half of an octave can tell apart."""


@cache
def recorded() -> dict[str, Any]:
    """Return what is recorded of the heads: of each model, of needles, and of a multiplier."""
    text = resources.files("ledger").joinpath(HEADS).read_text("utf-8")
    found: dict[str, Any] = json.loads(text)["recorded"]
    return found


def _of(model: str, name: str) -> FloatArray:
    """Return a number of each head of a model."""
    return np.array(recorded()["models"][model][name], dtype=float)


@claim("heads.dispersion")
def dispersion(power: float = 1.0, growth: float = 0.0) -> Finding:
    """With logits of a fixed range, the largest weight of a row of n keys falls like n^−power.

    With `growth` the range grows, by growth·log n.
    """
    spread = 3.0 + growth * math.log(FAR)
    limit = math.exp(spread - 3.0) / (FAR - 1.0 + math.exp(spread)) * float(FAR) ** power
    bounds = recorded()["bounds"]
    proved = abs(limit - 1.0) < IN_THE_LIMIT and bounds["weight"] == 0
    n = recorded()["longest"]
    names = ("weight_exponent", "range", "range_growth")
    exponent, widest, spreads = (_of("SmolLM2", name) for name in names)
    like = abs(float(np.median(exponent)) + power) < TENTH
    verdict = (Verdict.HOLDS if like else Verdict.EXTENDED) if proved else Verdict.WRONG
    others = ", ".join(
        f"{np.median(_of(model, 'weight_exponent')):.2f} in {model}"
        for model in recorded()["models"]
        if model != "SmolLM2"
    )
    return Finding(
        verdict,
        "No weight is above 1/(1 + (n − 1)e^(−R)), R the range of the logits, and a row of one "
        f"logit R above all others reaches that: times n it tends to {limit:.3g} e^R. "
        f"{_of_all(bounds['weight'])} of {bounds['rows']} recorded rows is above. "
        f"But at n = {n} R is above log n, and the bound above a half, in "
        f"{np.mean(widest > math.log(n)):.0%} of the {widest.size} heads of SmolLM2 (median R "
        f"{np.median(widest):.1f}: the bound begins at n = e^R). From 128 to 2048 keys, the first "
        "key left out, the median head's largest weight has the exponent "
        f"{np.median(exponent):.2f} ({others}, at their own lengths). R grows by "
        f"{np.median(spreads):.1f} log n in the median, and faster than log n in "
        f"{np.mean(spreads > 1.0):.0%} of SmolLM2's heads: there the bound rises with n. The law "
        "is one of rows longer than any of these.",
    )


def _of_all(number: int) -> str:
    return str(number) if number else "None"


@claim("heads.variance")
def vanishing(
    sign: float = -1.0, models: tuple[str, ...] = (), heads: slice = slice(None), texts: str = ""
) -> Finding:
    """With more keys the variance of attention's outputs changes by this sign, in all or some.

    `texts` is "" for those of several sources, "brown" for those of one.
    """
    asked = {
        name: _changes(name, texts, sign)[:, heads]
        for name in models or recorded()["models"]
        if "output" + texts in recorded()["models"][name]
    }
    first = _changes("SmolLM2", "brown", sign)[:, :FIRST]
    if all(_most(changes) for changes in asked.values()):
        verdict = Verdict.HOLDS_WITHIN
    else:
        verdict = Verdict.NEEDS_A_CONDITION if _most(first) else Verdict.WRONG
    listed = "; ".join(f"{name} {_falls(sign * x)}" for name, x in asked.items())
    brown = sign * _changes("MiniLM", "brown", sign)[:, :12]
    return Finding(
        verdict,
        "The std over texts of outputs for one and the same query, from 128 to 2048 keys in "
        "SmolLM2, 32 to 512 in MiniLM, 24 to 96 in AntiBERTy (median exponent of the heads; 90 % "
        f"intervals over texts): {listed}. The proof asks for tokens of one law and no key that "
        "all texts share; texts have means of their own, and deeper layers see what the others "
        f"made. With twelve texts of one source the first layer of SmolLM2 has "
        f"{_falls(sign * first)}, not −.50; that of MiniLM {_falls(brown)}.",
    )


def _changes(model: str, texts: str, sign: float) -> FloatArray:
    """Return sign × exponent of the std, the nearer end of its interval, and the farther one."""
    columns = [sign * _of(model, f"output{texts}{end}") for end in ("", "_low", "_high")]
    return np.array([columns[0], np.minimum(*columns[1:]), np.maximum(*columns[1:])])


def _most(changes: FloatArray) -> bool:
    """Return whether most heads surely change as is said, and few surely otherwise."""
    return bool(np.median(changes[1]) > 0.0 and np.mean(changes[2] < 0.0) < TENTH)


def _falls(changes: FloatArray) -> str:
    """Say how exponents are: the median, and how many surely fall and surely rise."""
    low, high = np.sort(changes[1:], axis=0)
    return (
        f"{np.median(changes[0]):.2f}, surely falling in {np.sum(high < 0.0)} and surely rising in "
        f"{np.sum(low > 0.0)} of {low.size} heads"
    )


@claim("heads.gaps")
def gaps(factor: float = 1.0, exponent: float | None = None) -> Finding:
    """A row concentrates at factor·Λ, and Λ ∝ (log n)^ξ: ξ is not 1 for all heads, or is this."""
    broken = recorded()["bounds"]["half"]
    near, half = [], []
    for model in recorded()["models"]:
        half.append(float(np.median(_of(model, "half"))))
        near.append(float(np.mean(np.abs(np.log(_of(model, "half") / factor)) < math.log(ORDER))))
    xi, low, high = (_of("SmolLM2", name) for name in ("law", "law_low", "law_high"))
    missed = {
        one: float(np.mean((low > one) | (high < one))) for one in (1.0, float(np.median(xi)))
    }
    asked = 1.0 if exponent is None else exponent
    without = float(np.mean((low > asked) | (high < asked))) > BY_CHANCE
    if broken or min(near) < 1.0 - TENTH:
        verdict = Verdict.WRONG
    elif exponent is None:
        verdict = Verdict.HOLDS_WITHIN if without else Verdict.OPEN
    else:
        verdict = Verdict.WRONG if without else Verdict.HOLDS_WITHIN
    low_quartile, high_quartile = np.percentile(xi, (25, 75))
    tail = _of("SmolLM2", "tail")
    return Finding(
        verdict,
        "By the proof the multiplier at which the largest weight is a half is at most 2Λ. "
        f"{_of_all(broken)} of {recorded()['bounds']['rows']} rows, first keys left out, is above. "
        f"In the median head it is {_range(half)} of Λ, from model to model, and within a factor "
        f"of {ORDER:g} in at least {min(near):.0%} of the heads. At n = 1024 the heads of SmolLM2 "
        f"run at 1, and their Λ is {np.median(tail):.2f} in the median, above 1 in "
        f"{np.mean(tail > 1.0):.0%}. From 128 to 2048 keys ξ has the median {np.median(xi):.2f}, "
        f"quartiles {low_quartile:.2f} and {high_quartile:.2f}. The intervals (90 %) of "
        f"{missed[1.0]:.0%} of the heads leave out ξ = 1, a scale like log n, and of "
        f"{missed[float(np.median(xi))]:.0%} the median; above {BY_CHANCE:.0%} is more than "
        "chance. Nearly no growth would do for all of these heads, and one with log n would not.",
    )


def _range(numbers: list[float]) -> str:
    return f"{min(numbers):.2f} to {max(numbers):.2f}"


@claim("heads.moments")
def moments(power: float = 1.0, by: str = "variance") -> Finding:
    """With attention made linear the best multiplier is gap/variance^power; so it is of heads.

    `by` names what the rule divides the gap of a head by.
    """
    others = np.sin(np.arange(1.0, 512.0)) * 2.5
    scores = np.append(others, 4.0)
    centred = scores - scores.mean()
    error = [np.sum(((1.0 + u * centred) / scores.size - (scores == 4.0)) ** 2) for u in range(3)]
    best = 1.0 + (error[0] - error[2]) / (2.0 * (error[0] - 2.0 * error[1] + error[2]))
    proved = abs(best / (centred[-1] / scores.var() ** power) - 1.0) < ROUNDING * scores.size
    table = recorded()["needles"]
    times = np.array([float(name) for name in table if name[0].isdigit()])
    losses = np.array([table[name] for name in table if name[0].isdigit()])
    wanted = times[losses.argmin(axis=0)]
    rules = {name: np.array(table["gap"]) / np.array(table[name]) for name in ("variance", "slope")}
    off = {name: _octaves(rule, wanted, times) for name, rule in rules.items()}
    if proved:
        verdict = Verdict.HOLDS_WITHIN if off[by] < HALF_AN_OCTAVE else Verdict.EXTENDED
    else:
        verdict = Verdict.WRONG
    of_all = recorded()["price"]
    at = of_all["lengths"].index(table["n"])
    return Finding(
        verdict,
        "By hand and to rounding: for a row of linear attention that should give its needle all "
        f"weight, the squared error is least at multiplier gap/variance, here {best:.3f}. On "
        f"softmax that is another question. Of SmolLM2's heads {wanted.size} find what follows in "
        f"a text of {table['n']} tokens that is said twice: by gap/variance they want "
        f"{np.median(rules['variance']):.2f} of their logits in the median, by their loss "
        f"{np.median(wanted):.2f}; the rule is off by {off['variance']:.1f} octaves. The slope "
        "κ'(1) of their log mean exponential in the place of the variance is off by "
        f"{off['slope']:.1f}: scores far below the mean make the variance, and no weight. The "
        f"loss of the whole model wants {of_all['best'][at]:.2f} of all logits there.",
    )


def _octaves(rule: FloatArray, wanted: FloatArray, times: FloatArray) -> float:
    """Return by how many octaves a rule, kept on the grid, misses: the median over the heads."""
    kept = np.clip(rule, times.min(), times.max())
    return float(np.median(np.abs(np.log2(kept / wanted))))
