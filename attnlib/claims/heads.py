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
from attnlib.claims.registry import IN_THE_LIMIT, ROUNDING, TENTH, Finding, Verdict, claim

HEADS = "heads.json"

FAR = 1e30
"""So many keys that what is left of a limit is below rounding."""

ORDER = 4.0
"""A law of scales leaves a constant open. Within this factor it is one of the order of 1."""

HALF_AN_OCTAVE = 0.5
"""What a grid of multipliers in steps of a quarter and a half of an octave can tell apart."""


@cache
def recorded() -> dict[str, Any]:
    """Return what is recorded of the heads: of each model, of needles, and of a multiplier."""
    text = resources.files("attnlib.claims").joinpath(HEADS).read_text("utf-8")
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
    limit = math.exp(spread - 3.0) / (FAR - 1.0 + math.exp(spread)) * FAR**power
    proved = abs(limit - 1.0) < IN_THE_LIMIT
    n = recorded()["longest"]
    exponent, widest = _of("SmolLM2", "weight_exponent"), _of("SmolLM2", "range")
    like = abs(float(np.median(exponent)) + power) < TENTH
    if proved:
        verdict = Verdict.HOLDS if like else Verdict.EXTENDED
    else:
        verdict = Verdict.WRONG
    bounds = recorded()["bounds"]
    others = ", ".join(
        f"{np.median(_of(model, 'weight_exponent')):.2f} in {model}"
        for model in recorded()["models"]
        if model != "SmolLM2"
    )
    return Finding(
        verdict,
        "No weight is above 1/(1 + (n − 1)e^(−R)), R the range of the logits, and a row of one "
        f"logit R above all others reaches that: times n it tends to {limit:.3g} e^R. None of "
        f"{bounds['rows']} recorded rows is above ({bounds['weight']} are). "
        f"But at n = {n} R is above log n, and the bound above a half, in "
        f"{np.mean(widest > math.log(n)):.0%} of the {widest.size} heads of SmolLM2 (median R "
        f"{np.median(widest):.1f}: the bound begins at n = e^R). From 128 to 2048 keys, the first "
        f"key left out, the median head's largest weight has the exponent {np.median(exponent):.2f} "
        f"({others}), and R grows. The law is one of rows longer than any of these.",
    )


@claim("heads.variance")
def vanishing(sign: float = -1.0, layers: slice = slice(None)) -> Finding:
    """In trained models the variance of attention's outputs changes with n by this sign."""
    found, surely, against = [], [], []
    for model, table in recorded()["models"].items():
        if "output" in table:
            middle, low, high = (
                sign * _of(model, name)[layers] for name in ("output", "output_low", "output_high")
            )
            low, high = np.minimum(low, high), np.maximum(low, high)
            found.append(float(np.median(middle)))
            surely.append(float(np.mean(low > 0.0)))
            against.append(float(np.mean(high < 0.0)))
    if min(found) <= 0.0:
        verdict = Verdict.WRONG
    elif max(against) < TENTH:
        verdict = Verdict.HOLDS_WITHIN
    else:
        verdict = Verdict.NEEDS_A_CONDITION
    models = [name for name, table in recorded()["models"].items() if "output" in table]
    parts = "; ".join(
        f"{model}, n = {recorded()['models'][model]['lengths']}: median exponent {sign * m:.2f}, "
        f"surely falling {s:.0%}, surely rising {a:.0%} of the heads"
        for model, m, s, a in zip(models, found, surely, against, strict=True)
    )
    return Finding(verdict, parts)


@claim("heads.gaps")
def gaps() -> Finding:
    """Λ, by the number of keys close to the largest, is the scale at which a row concentrates."""
    return Finding(Verdict.OPEN, "")


@claim("heads.moments")
def moments() -> Finding:
    """The best multiplier follows from the moments of the scores."""
    return Finding(Verdict.OPEN, str(ROUNDING))
