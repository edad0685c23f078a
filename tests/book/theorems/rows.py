"""Checks of single rows: the Jacobian and gradient, and what other chapters say of one row.

Derivatives are taken by differences, optima by a search; the rows are a few random ones.
"""

from itertools import product

import numpy as np

from attnlib import rows
from experiments.power_softmax import power_softmax, power_softmax_jacobian
from tests.book.formulas import Place
from tests.book.theorems.numbers import highest, jacobian, of_row, some_rows
from tests.book.theorems.registry import tied

DERIVATIVE = {r"\frac{\partial p_i}{\partial s_j}": "D_{ij}"}


def letters(s, alpha):
    """Return the letters of a row and its Jacobian, J by differences."""
    matrix = jacobian(lambda x: rows.softmax(x, alpha), np.asarray(s))
    p = rows.softmax(s, alpha)
    return {
        **of_row(s, alpha),
        "p": p,
        "P": np.outer(p, p),
        "D": matrix,
        "J": matrix,
        "diag": np.diag,
        r"\delta": np.eye(len(s)),
        "g": np.abs(matrix).sum() / 2,
        "M": np.abs(matrix).max(),
        "S": np.linalg.norm(matrix, 2),
        "F": np.linalg.norm(matrix),
    }


ROWS = [letters(s, alpha) for s, alpha in product(some_rows(), (0.7, 2.0))]
EVEN = letters(np.zeros(2), 1.3)
"""Two keys of weight ½, which attain the bounds."""


@tied("theorem-l1")
def of_weights(at: Place) -> None:
    for row in ROWS:
        at.display().holds(DERIVATIVE if "theorem" in at.label else {}, **row)


@tied("theorem-jacobian")
def the_jacobian(at: Place) -> None:
    for row in ROWS:
        for i, j in product(row["i in"], row["i in"]):
            at.display().holds({**DERIVATIVE, "pp^\\top": "P"}, **{**row, "i": i, "j": j})


@tied("proposition-structure")
def structure(at: Place) -> None:
    for row in ROWS:
        J, n = row["J"], row["n"]  # noqa: N806 - as the page has it
        assert at.formula("n - 1").value(n=n) == np.linalg.matrix_rank(J, tol=1e-9)
        np.testing.assert_allclose(J.sum(axis=0), 0.0, atol=1e-12)


@tied("proposition-bounds")
def bounds(at: Place) -> None:
    entry, norm = at.same(r"\alpha/4"), at.same(r"\alpha/2")
    for row in ROWS:
        assert row["M"] <= entry.value(**row)
        assert np.linalg.norm(row["J"], 2) <= norm.value(**row)
    assert np.isclose(EVEN["M"], entry.value(**EVEN))
    assert np.isclose(np.linalg.norm(EVEN["J"], 2), norm.value(**EVEN))


@tied("proposition-norms")
def norms(at: Place) -> None:
    names = {r"\lVert J\rVert_2": "S", r"\lVert J\rVert_F": "F"}
    for row in ROWS:
        at.display().holds(names, **row)
        assert np.isclose(row["g"], np.trace(row["J"]))
    _, (norm, twice) = at.display().values(names, **EVEN)
    assert np.isclose(norm, twice)


@tied("proposition-power-bound")
def power_bound(at: Place) -> None:
    def values(x, m):
        entry = np.abs(power_softmax_jacobian(x, m)).max()
        return {"m": m, "M": entry, "X": np.abs(x).max()}

    for m in (3.0, 6.0):
        for x in some_rows():
            at.display().holds(**values(x, m))
        two = [1.3, 1.3 * ((m - 1) / (m + 1)) ** (1 / m)]
        [[entry, bound]] = at.display().values(**values(two, m))
        assert np.isclose(entry, bound)


@tied("prop-typical-two")
def two_keys(at: Place) -> None:
    gap = 0.8
    row = np.array([gap, 0.0])
    for alpha in (0.5, 3.0):
        at.display().holds(g=float(rows.gradient(row, alpha)), alpha=alpha, Delta=gap)
    best, largest = highest(lambda alpha: float(rows.gradient(row, alpha)), 0.1, 20.0)
    known = {"w": best * gap / 2, "alpha": best, "Delta": gap}
    at.formula(r"w\tanh w =").holds(relative=1e-6, **known)
    at.formula(r"\alpha = 2w/").holds(**known)
    assert abs(at.formula(r"\alpha \approx 1.54").value(**known) - best) < 0.005 / gap
    assert abs(at.formula(r"0.448/\Delta").value(**known) - largest) < 0.0005 / gap


@tied("theorem-scale")
def scale_forward_and_backward(at: Place) -> None:
    x, c, m = np.array([0.7, -1.2, 0.4]), 1.7, 6.0

    def derivative(point):
        return jacobian(lambda at_: power_softmax(at_, m), point, 1e-4)

    at.formula("y(cx) = y(x)").holds(x=x, c=c, y=lambda at_: power_softmax(at_, m))
    slopes = {r"\frac{\partial y}{\partial x}": "D"}
    at.display().holds(slopes, relative=1e-6, D=derivative, x=x, c=c)
    np.testing.assert_allclose(power_softmax_jacobian(x, m), derivative(x), rtol=1e-6)
    powers = np.abs(x) ** m
    np.testing.assert_allclose(power_softmax(x, m, 0.3), powers / (0.3 + powers.sum()))
    gradient = at.formula(r"m(1 - \sum_i y_i^2)").value(m=m, y=power_softmax(x, m), i_in=range(3))
    assert np.isclose(np.abs(derivative(x) * x).sum() / 2, gradient)


@tied("prop-policies-ceiling")
def ceiling(at: Place) -> None:
    n, sigma, target = 5, 3.0, 0.9
    others = np.zeros(n)
    others[0] = 1.0
    at.formula("p = ").holds(n=n, p=rows.softmax(others, sigma)[0], sigma=sigma)
    simplex = np.full(n, float(at.formula(r"-\frac1{n-1}").value(n=n)))
    simplex[0] = 1.0
    least = at.formula(r"\sigma \ge")
    bound = float(least.value(n=n, P=target))
    assert np.isclose(rows.softmax(simplex, bound)[0], target)
    least.holds(n=n, P=target, sigma=bound + 1e-6)


@tied("prop-probe-spread")
def spread(at: Place) -> None:
    largest = at.display()
    for n, alpha in ((2, 0.8), (7, 1.6)):
        peaked = np.zeros(n)
        peaked[0] = 1.0
        for s in (peaked, -peaked, np.arange(n, dtype=float)):
            logits = alpha * s / s.std(ddof=1)
            p = rows.softmax(logits)
            assert p.max() <= largest.value(n=n, alpha=alpha) * (1 + 1e-12)
            if s is peaked:
                assert np.isclose(p.max(), largest.value(n=n, alpha=alpha))
        nearly_all = at.formula("1/Y > n - 1")
        for strength in (alpha, 30.0):
            flat = rows.softmax(-strength * peaked / peaked.std(ddof=1))
            nearly_all.holds(Y=flat @ flat, n=n)
        assert np.isclose(*nearly_all.values(Y=flat @ flat, n=n)[0])
