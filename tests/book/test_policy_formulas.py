"""The chapter on policies shows a formula for each, which says what the policy computes."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from attnlib.policies import POLICIES
from attnlib.scores import Cosine
from book import catalogue
from tests.book.tex import evaluate

BLOCK = 8192
CASES = [(100, 64), (6 * BLOCK, 128), (6 * BLOCK - 1, 128), (150_000, 128)]
"""Short rows and long ones, for what begins at a length, at both sides of a block's end."""

LEARNED = {"swin_v2": r"e^\ell", "clip": "e^t"}
"""What is learned has a start and is clipped."""

BEST = r"\operatorname{argmax}_\alpha"


def letters(policy):
    """Return the constants by the letters that the page has for them, or by their names."""
    shown = catalogue.letters(policy)
    found = {name: shown.get(name, name).replace("n₀", "n_0") for name in policy.constants}
    return {letter: policy.constants[name] for name, letter in found.items()}


def value(policy, formula, n, d):
    """Return what a formula says in the place of the policy's."""
    known = {**letters(policy), "n": n, "d": d, "i": n - 1, "W": lambda x: lambertw(x).real}
    if policy.name in LEARNED:
        return clipped(policy, formula)
    if formula.startswith(BEST):
        return best(formula.removeprefix(BEST), known)
    return float(evaluate(formula, known).values[-1])


def clipped(policy, formula):
    rule, start = formula.split(r", \quad ")
    [learned, initial] = evaluate(start, {r"\ell": 0.0, "t": 0.0}).values
    assert start.startswith(f"{LEARNED[policy.name]} =")
    logarithm = math.log(policy.constants["initial"]) if learned == 1.0 else math.nan
    assert np.isclose(initial, policy.constants["initial"])
    found = evaluate(rule, {r"\ell": logarithm, "t": logarithm}).values[-1]
    beyond = evaluate(rule, {r"\ell": 9.0, "t": 9.0}).values[-1]
    assert beyond == policy.with_constants(initial=math.exp(9.0)).scale(100, 64)
    return float(found)


def best(objective, known):
    law = Cosine(known["d"])
    known[r"\kappa"] = lambda alpha: float(law.log_mgf(alpha))

    def negative(alpha):
        return -float(evaluate(objective, {**known, r"\alpha": alpha}).values[-1])

    return float(minimize_scalar(negative, bounds=(1.0, 100.0), method="bounded").x)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize(("n", "d"), CASES)
def test_formula_says_what_is_computed(policy, n, d):
    rtol = 1e-6 if policy.formula.startswith(BEST) else 1e-9
    stated = value(policy, policy.formula, n, d)
    np.testing.assert_allclose(stated, policy.scale(n, d), rtol=rtol)
