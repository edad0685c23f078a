"""Checks of the audit: rows with a sink, a factor, a mask and a cap, by brute force."""

import math
from functools import cache

import numpy as np
import sympy

from tests.book.formulas import Place
from tests.book.theorems.numbers import slope
from tests.book.theorems.registry import tied

SIGMA, MU, FACTOR, SINK = 0.7, 1.3, 0.6, 0.4
KNOWN = {r"\sigma": SIGMA, r"\mu": MU, "c": FACTOR, r"\ell_0": SINK}
QUERY, *KEYS = np.random.default_rng(5).standard_normal((5, 3))
MASK = np.array([0.2, -0.9, 1.4, 0.5])


def weights(logits, factor=1.0, sink=-math.inf):
    powers = np.exp(logits)
    return factor * powers / (math.exp(sink) + powers.sum())


@cache
def symbols_cancel() -> bool:
    """Whether log-odds of a row of three keys change as the theorem says, for all numbers."""
    sigma, mu, c, sink, product, a = sympy.symbols("sigma mu c b y a", positive=True)
    logits = sympy.symbols("l1:4", positive=True)

    def log_odds(*row):
        total = sympy.exp(sink) + sum(map(sympy.exp, row))
        first, second = (sympy.log(c * sympy.exp(one) / total) for one in row[:2])
        return sympy.expand_log(first - second, force=True)

    moved = logits[0] + sigma * product + mu * a
    change = log_odds(moved, *logits[1:]) - log_odds(*logits)
    return sympy.simplify(change - sigma * product - mu * a) == 0


@tied("theorem-audit-two-keys")
def two_keys(at: Place) -> None:
    assert symbols_cancel()
    x, a = np.array([0.3, -1.1, 0.5]), 0.8
    moved = [KEYS[0] + x, *KEYS[1:]]
    logits, after = (
        SIGMA * np.array([QUERY @ key for key in keys]) + MU * mask
        for keys, mask in ((KEYS, MASK), (moved, MASK + np.array([a, 0, 0, 0])))
    )
    row = {r"\ell": logits, "m": MASK, "i": 2, "y": QUERY @ KEYS[2], **KNOWN}
    at.formula(r"\ell_i =").holds({r"q\cdot k_i": "y"}, **row)
    p, p_after = weights(logits, FACTOR, SINK), weights(after, FACTOR, SINK)
    at.formula("p_i =").holds({"p_i": "w"}, w=p[2], **{"j in": range(4)}, **row)
    odds = {"p_1": p[0], "p_2": p[1], "p'_1": p_after[0], "p'_2": p_after[1]}
    change = at.formula(r"\log\frac{p'_1}")
    change.holds({r"q\cdot x": "y"}, y=QUERY @ x, a=a, **odds, **KNOWN)
    at.formula(r"\log(p_1/p_2) =").holds(**odds, **{r"\ell": [SINK, *logits]})


@tied("prop-audit-cap")
def cap(at: Place) -> None:
    bound, level, product = 5.0, 3.0, 1.7
    known = {"C": bound, "T": level, r"\sigma": SIGMA, "arcosh": math.acosh}

    def log_odds(x, logit):
        logits = np.full(4, logit)
        logits[0] += SIGMA * x
        p = weights(bound * np.tanh(logits / bound))
        return math.log(p[0] / p[1])

    rate, start = (slope(lambda x, to=to: log_odds(x, to), 0.0, 1e-2) for to in (level, 0.0))
    stated = at.formula(r"\sigma\operatorname{sech}^2").value(**known)
    assert np.isclose(stated, rate, rtol=1e-6)
    known[r"\rho"] = rate / start
    at.display().holds(relative=1e-5, **known)
    at.formula(r"\cosh(T/C) =").holds(relative=1e-5, **known)
    [statement, proof] = at.beginning(r"C\tanh(\ell/C)", 2)
    for one in (statement, proof):
        assert np.isclose(one.value(**known, **{r"\ell": product}), 5.0 * math.tanh(1.7 / 5.0))
    derivative = at.formula(r"\operatorname{sech}^2(\ell/C)").value(**known, **{r"\ell": product})
    assert np.isclose(derivative, slope(lambda t: 5.0 * math.tanh(t / 5.0), product))


@tied("prop-audit-total")
def total(at: Place) -> None:
    n, t = 6, 1.7

    def added(logit):
        return float(weights(np.full(n, logit), FACTOR, SINK).sum())

    known = {"n": n, "t": t, "S": added, "r": added(0.0) / added(t), **KNOWN}
    at.display().holds(**known)
    at.formula("r = S(0)/S(t)").holds(**known)
    at.formula(r"e^{\ell_0} =").holds(**known)
    at.formula("c = S(0)").holds(**known)
    assert np.isclose(at.formula(r"c\,n e^t").value(**known), added(t))
    at.formula(r"r\,(n").holds(**known)
    assert np.isclose(at.formula(r"S(0)\,(n").value(**known), FACTOR)
