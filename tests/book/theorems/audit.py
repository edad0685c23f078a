"""Checks of the audit: rows with a sink, a factor, a mask and a cap, by brute force."""

import math

import numpy as np

from tests.book.formulas import Place
from tests.book.theorems.numbers import slope
from tests.book.theorems.registry import tied

SIGMA, MU, FACTOR, SINK = 0.7, 1.3, 0.6, 0.4
KNOWN = {"sigma": SIGMA, "mu": MU, "c": FACTOR, "ell_0": SINK}
QUERY, *KEYS = np.random.default_rng(5).standard_normal((5, 3))
MASK = np.array([0.2, -0.9, 1.4, 0.5])


def weights(logits, factor=1.0, sink=-math.inf):
    powers = np.exp(logits)
    return factor * powers / (math.exp(sink) + powers.sum())


@tied("theorem-audit-two-keys")
def two_keys(at: Place) -> None:
    x, a = np.array([0.3, -1.1, 0.5]), 0.8
    moved = [KEYS[0] + x, *KEYS[1:]]
    logits, after = (
        SIGMA * np.array([QUERY @ key for key in keys]) + MU * mask
        for keys, mask in ((KEYS, MASK), (moved, MASK + np.array([a, 0, 0, 0])))
    )
    row = {"ell": logits, "m": MASK, "i": 2, "y": QUERY @ KEYS[2], "j_in": range(4), **KNOWN}
    at.formula(r"\ell_i =").holds({r"q\cdot k_i": "y"}, **row)
    p, p_after = weights(logits, FACTOR, SINK), weights(after, FACTOR, SINK)
    at.formula("p_i =").holds({"p_i": "w"}, w=p[2], **row)
    odds = {"p_1": p[0], "p_2": p[1], "p'_1": p_after[0], "p'_2": p_after[1]}
    change = at.formula(r"\log\frac{p'_1}")
    change.holds({r"q\cdot x": "y"}, y=QUERY @ x, a=a, **odds, **KNOWN)


@tied("prop-audit-cap")
def cap(at: Place) -> None:
    bound, level = 5.0, 3.0
    known = {"C": bound, "T": level, "sigma": SIGMA, "arcosh": math.acosh}
    capped = at.formula(r"C\tanh(\ell/C)")

    def log_odds(x, logit):
        logits = np.full(4, logit)
        logits[0] += SIGMA * x
        p = weights([capped.value(ell=ell, **known) for ell in logits])
        return math.log(p[0] / p[1])

    rate, start = (slope(lambda x, to=to: log_odds(x, to), 0.0, 1e-2) for to in (level, 0.0))
    assert np.isclose(at.formula(r"\sigma\operatorname{sech}^2").value(**known), rate, rtol=1e-6)
    at.display().holds(relative=1e-5, rho=rate / start, **known)


@tied("prop-audit-total")
def total(at: Place) -> None:
    n, t = 6, 1.7

    def added(logit):
        return float(weights(np.full(n, logit), FACTOR, SINK).sum())

    known = {"n": n, "t": t, "S": added, "r": added(0.0) / added(t), **KNOWN}
    for beginning in ("S(t) =", "r = S(0)/S(t)", r"e^{\ell_0} =", "c = S(0)"):
        at.formula(beginning).holds(**known)
