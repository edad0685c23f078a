"""The chapter on policies shows a formula for each, which says what the policy computes."""

import numpy as np
import pytest
from scipy.special import lambertw

from attnlib.policies import POLICIES
from book import catalogue
from tests.book.tex import evaluate

BLOCK = 8192
CASES = [(100, 64), (6 * BLOCK, 128), (6 * BLOCK - 1, 128), (150_000, 128)]
"""Short rows and long ones, for what begins at a length, at both sides of a block's end."""

BEST = r"\operatorname{argmax}_\alpha"


def letters(policy):
    """Return the constants by the letters that the page has for them, or by their names."""
    shown = catalogue.letters(policy)
    names = {name: shown.get(name, name).replace("n₀", "n_0") for name in policy.constants}
    return {letter: policy.constants[name] for name, letter in names.items()}


def value(policy, formula, n, d):
    """Return what a formula says in the place of the policy's."""
    known = {**letters(policy), "n": n, "d": d, "i": n - 1, "W": lambda x: lambertw(x).real}
    return float(evaluate(formula, known).values[-1])


WRITTEN = [
    policy
    for policy in POLICIES.values()
    if not policy.formula.startswith(BEST) and r"\quad" not in policy.formula
]
"""Their formulas are expressions: no search, and no start of what is learned."""


@pytest.mark.parametrize("policy", WRITTEN, ids=lambda policy: policy.name)
@pytest.mark.parametrize(("n", "d"), CASES)
def test_formula_says_what_is_computed(policy, n, d):
    stated = value(policy, policy.formula, n, d)
    np.testing.assert_allclose(stated, policy.scale(n, d), rtol=1e-9)
