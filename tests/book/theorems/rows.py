"""Checks of single rows: jacobian and gradient, and what other chapters say of one row.

Derivatives are taken by differences, optima by a search; the rows are a few random ones.
"""

import math
from functools import cache

import numpy as np
from scipy import stats
from scipy.optimize import minimize_scalar

from attnlib import rows
from attnlib.freezing import critical_alpha
from tests.book.formulas import Place
from tests.book.theorems.numbers import grid, jacobian, of_row, slope, some_rows
from tests.book.theorems.registry import tied

SCALES = (0.7, 2.0)
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
        r"\|_2": lambda a: np.linalg.norm(a, 2),
        r"\|_F": np.linalg.norm,
    }


ROWS = [letters(s, alpha) for s, alpha in grid(some_rows(), SCALES)]
EVEN = letters(np.zeros(2), 1.3)
"""Two keys of weight ½, which attain the bounds."""


@tied("eq-softmax")
def softmax(at: Place) -> None:
    for s, alpha in grid(some_rows(), SCALES):
        for i, weight in enumerate(rows.softmax(s, alpha)):
            at.display().holds(**{**of_row(s, alpha), "i": i, "p_i": weight})


@tied("eq-ratio")
def ratio(at: Place) -> None:
    for row in ROWS:
        at.display().holds(**row)


@tied("theorem-jacobian")
def the_jacobian(at: Place) -> None:
    for row in ROWS:
        for i, j in grid(row["i in"], row["i in"]):
            at.formula("p_i =").holds(**{**row, "i": i})
            at.formula(r"J_{ij} =").holds(
                {**DERIVATIVE, "pp^\\top": "P"}, **{**row, "i": i, "j": j}
            )


@tied("proposition-structure")
def structure(at: Place) -> None:
    for row in ROWS:
        J, n = row["J"], row["n"]  # noqa: N806 - as the page has it
        v = np.arange(n) ** 2.0
        mean = row["p"] @ v
        assert at.formula("n - 1").value(n=n) == np.linalg.matrix_rank(J, tol=1e-9)
        np.testing.assert_allclose(J, J.T, atol=1e-12)
        np.testing.assert_allclose(J.sum(axis=0), 0.0, atol=1e-12)
        at.formula(r"\alpha p_i(1 - \sum_j").holds(**row)
        at.display().holds(
            {r"v^\top J v": "Q", r"\operatorname{Var}_p(v)": "V"},
            **row,
            v=v,
            Q=v @ J @ v,
            V=row["p"] @ (v - mean) ** 2,
        )


@tied("proposition-bounds")
def bounds(at: Place) -> None:
    entry = at.same(r"\alpha/4")
    norm, eigenvalue = at.all_same(r"\alpha/2", 2)
    largest = at.formula(r"\alpha p_i(1-p_i)")
    both = at.formula(r"2\alpha p_i(1 - p_i)")
    for row in ROWS:
        assert row["M"] <= entry.value(**row)
        assert np.linalg.norm(row["J"], 2) <= norm.value(**row)
        largest.holds(**row)
        both.holds(**row)
        assert np.isclose(both.values(**row)[0][0], np.abs(row["J"][0]).sum())
    assert np.isclose(EVEN["M"], entry.value(**EVEN))
    for largest_norm in (norm, eigenvalue):
        assert np.isclose(np.linalg.norm(EVEN["J"], 2), largest_norm.value(**EVEN))
    for attained in (largest, both):
        left, right = attained.values(**EVEN)[0]
        assert np.isclose(left, right)


@tied("theorem-l1")
def l1_identity(at: Place) -> None:
    for row in ROWS:
        at.display().holds(DERIVATIVE, **row)
        at.formula(r"\alpha\sum_i(p_i - p_i^2)").holds(**row)


@tied("proposition-norms")
def norms(at: Place) -> None:
    for row in ROWS:
        at.display().holds(**row)
        assert np.isclose(row["g"], np.trace(row["J"]))
        at.formula(r"\alpha\sum_i(p_i - p_i^2) =").holds(**row)
    _, (norm, twice) = at.display().values(**EVEN)
    assert np.isclose(norm, twice)
    wide = at.formula(r"2\alpha p_i(1-p_i)")
    left, right = wide.values(**EVEN)[0]
    assert np.isclose(left, right)
    for row in ROWS:
        wide.holds(**row)
        assert np.isclose(wide.values(**row)[0][0], np.abs(row["J"][0]).sum())


@tied("eq-near-tie")
def near_tie(at: Place) -> None:
    gap = 0.3
    best = minimize_scalar(
        lambda alpha: -float(rows.gradient(np.array([0.0, -gap, -200.0]), alpha)),
        bounds=(1.0, 20.0),
        method="bounded",
    )
    at.display().holds(
        {r"\max_\alpha g": "G"},
        rough=1e-6,
        G=-best.fun,
        **{r"\Delta": gap, "x in": np.linspace(0.6, 1.0, 401)},
    )


@tied(r"gradient: 1 + \underbrace{A\,V'}")
def layer(at: Place) -> None:
    h = 0.6
    at_h = {"A": math.tanh(h), "V": math.cos(2 * h), "A'": slope(math.tanh, h)}
    at_h["V'"] = slope(lambda x: math.cos(2 * x), h)
    derivative = at.display().value(
        {
            r"\underbrace{A\,V'}_{\text{values}}": r"A\,V'",
            r"\underbrace{A'\,V}_{\text{scores}}": r"A'\,V",
        },
        **at_h,
    )
    layer = at.formula("h + A(h)V(h)")
    assert np.isclose(
        derivative, slope(lambda x: layer.value(h=x, A=math.tanh, V=lambda y: math.cos(2 * y)), h)
    )


@tied("prop-typical-two")
def two_keys(at: Place) -> None:
    gap = 0.8
    for alpha in (0.5, 3.0):
        row = np.array([gap, 0.0])
        at.display().holds(g=float(rows.gradient(row, alpha)), **{r"\alpha": alpha, r"\Delta": gap})
    best = minimize_scalar(
        lambda alpha: -float(rows.gradient(np.array([gap, 0.0]), alpha)),
        bounds=(0.1, 20.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    w = best.x * gap / 2
    known = {"w": w, r"\alpha": best.x, r"\Delta": gap, "g": -best.fun}
    at.formula(r"w\tanh w =").holds(relative=1e-6, **known)
    at.formula(r"\alpha = 2w/").holds(**known)
    assert abs(at.formula(r"\alpha \approx 1.54").value(**known) - best.x) < 0.005 / gap
    assert abs(at.formula(r"0.448/\Delta").value(**known) + best.fun) < 0.0005 / gap
    p = rows.softmax(np.array([gap, 0.0]), best.x)
    at.formula("1 - Y = 2p_1p_2").holds(Y=p @ p, p=[0.0, *p])
    at.formula(r"p_1p_2 =").holds(p=[0.0, *p], **known)
    at.formula(r"w = \alpha\Delta/2").holds(**known)
    at.formula(r"2w\tanh w").holds(relative=1e-6, **known)


@tied("eq-entry")
def largest_entry(at: Place) -> None:
    n, gap = 512, 0.6
    at.display().holds(n=n, rough=0.0025, **{r"\alpha^*": _best_by_entry() * critical_alpha(n)})
    at.formula(r"\alpha^* = 1.543").holds(
        relative=3.3e-4, **{r"\alpha^*": _best_of_two(gap), r"\Delta": gap}
    )


def _best_of_two(gap: float) -> float:
    """Return the α at which the largest entry of J is largest, for two keys."""
    return minimize_scalar(
        lambda alpha: -float(rows.largest_entry(np.array([gap, 0.0]), alpha)),
        bounds=(0.1, 20.0),
        method="bounded",
        options={"xatol": 1e-9},
    ).x


@cache
def _best_by_entry() -> float:
    """Return the median over rows of that α over √(2 log n), for n → ∞, to 0.002.

    There the largest scores are −log T_i in units of 1/√(2 log n), with the arrival times T of a
    Poisson process. With R(b) = Σ(T_1/T_i)^b over i > 1, the mean of all beyond 30 included, the
    largest entry is bR/(1 + R)², whose slope says which rows have their best scale below b. Those
    are nearly the rows with a gap above 0.7, and the gap is exponential: a control variate.
    """
    times = np.random.default_rng(0).exponential(size=(400_000, 30)).cumsum(axis=1)
    logs = np.log(times[:, 1:].T / times[:, 0])
    known = np.linspace(0.5, 1.0, 6)
    controls = np.array([np.ones(logs.shape[1]), *((logs[0] > x) - np.exp(-x) for x in known)])
    shares, ends = [], (2.3, 2.42)
    for b in ends:
        beyond = times[:, 0] * np.exp((1 - b) * logs[-1]) / (b - 1)
        weights = np.exp(-b * logs)
        total = weights.sum(axis=0) + beyond
        change = -(weights * logs).sum(axis=0) - beyond * (logs[-1] + 1 / (b - 1))
        past = total * (1 + total) < b * change * (total - 1)
        shares.append(np.linalg.lstsq(controls.T, past.astype(float))[0][0])
    return float(np.interp(0.5, shares, ends))


@tied("eq-power")
def power_softmax(at: Place) -> None:
    x = np.array([0.7, -1.2, 0.4])
    for m, epsilon in ((6.0, 0.0), (3.0, 0.2)):
        for i, weight in enumerate(rows.power_softmax(x, m, epsilon)):
            at.display().holds(
                **{r"\varepsilon": epsilon, "y_i": weight, "j in": range(3)}, x=x, m=m, i=i
            )
        at.formula(r"s_i = m\log|x_i|").holds(x=x, m=m, i=1, s=m * np.log(np.abs(x)))


@tied("theorem-scale")
def scale_forward_and_backward(at: Place) -> None:
    x, c, m = np.array([0.7, -1.2, 0.4]), 1.7, 6.0
    known = {"x": x, "c": c, "m": m, "y": lambda at_: rows.power_softmax(at_, m)}

    def derivative(point):
        return jacobian(lambda at_: rows.power_softmax(at_, m), point, 1e-4)

    slopes = {r"\frac{\partial y}{\partial x}": "D"}
    for unchanged in at.beginning("y(cx) = y(x)", 2):
        unchanged.holds(**known)
    at.display().holds(slopes, relative=1e-6, D=derivative, **known)
    at.formula(r"c\,y'(cx) = y'(x)").holds(relative=1e-6, **known, **{"y'": derivative})
    half = np.abs(derivative(x) * x).sum() / 2
    of_y = at.formula(r"m(1 - \sum_i y_i^2)").value(
        m=m, y=rows.power_softmax(x, m), **{"i in": range(3)}
    )
    assert np.isclose(half, of_y)


@tied(r"alternatives: n\sum_i y_i^2 \to")
def length_of_the_power_softmax(at: Place) -> None:
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    mean = lambda value: float(value @ weights / weights.sum())  # noqa: E731
    at.display().holds(
        {r"n\sum_i y_i^2": "S"}, rough=0.05, S=_sum_of_squares(10**5), x=points, E=mean
    )


@cache
def _sum_of_squares(n: int) -> float:
    """Return n Σ y² of a row of n normal quantiles, m = 6."""
    x = stats.norm.ppf((np.arange(n) + 0.5) / n)
    return float(n * (rows.power_softmax(x, 6.0) ** 2).sum())


@tied("prop-policies-ceiling")
def ceiling(at: Place) -> None:
    n, sigma = 5, 3.0
    first, second = (
        at.formula("p = "),
        at.formula(r"\sigma \ge"),
    )
    others = np.zeros(n)
    others[0] = 1.0
    first.holds(n=n, p=rows.softmax(others, sigma)[0], **{r"\sigma": sigma})
    simplex = np.full(n, float(at.formula(r"-\frac1{n-1}").value(n=n)))
    simplex[0] = 1.0
    assert np.isclose(simplex.sum(), 0.0)  # the sum of the corners of a simplex
    target = 0.9
    bound = float(second.value({r"\sigma \ge": ""}, n=n, P=target))
    second.holds(n=n, P=target, **{r"\sigma": bound + 1e-6})
    assert np.isclose(rows.softmax(simplex, bound)[0], target)
    above = at.formula(r"\sigma\big(1 + \frac1{n-1}\big)")
    left, right = above.values(n=n, P=target, **{r"\sigma": bound})[0]
    assert np.isclose(left, right)
    above.holds(n=n, P=target, **{r"\sigma": bound + 1e-6})


@tied("prop-probe-spread")
def spread(at: Place) -> None:
    for n, alpha in ((2, 0.8), (7, 1.6)):
        known = {"n": n, r"\alpha": alpha, r"\varepsilon": math.exp(-alpha * math.sqrt(n))}
        largest = at.display().value(**known)
        peaked = np.zeros(n)
        peaked[0] = 1.0
        for s in (peaked, -peaked, np.arange(n, dtype=float), np.sqrt(np.arange(n))):
            logits = alpha * s / s.std(ddof=1)
            gap = logits.max() - np.delete(logits, logits.argmax()).mean()
            p = rows.softmax(logits)
            assert p.max() <= largest * (1 + 1e-12)
            at.formula(r"(n-1)\,\alpha^2 \ge").holds(D=gap, **known)
            at.formula(r"D \le").holds(D=gap, **known)
            if s is peaked:
                assert np.isclose(p.max(), largest)
                left, *right = at.formula(r"(n-1)\,\alpha^2 \ge").values(D=gap, **known)[0]
                assert np.allclose(right, left)
                assert np.isclose(gap, at.formula(r"D \le").value(D=gap, **known))
                assert np.isclose(
                    at.formula(r"(n-1)D/n").value(D=gap, **known), logits.max() - logits.mean()
                )
        flat = rows.softmax(-alpha * peaked / peaked.std(ddof=1))
        keys = 1 / (flat @ flat)
        nearly_all = at.formula("1/Y > n - 1")
        nearly_all.holds(Y=flat @ flat, **known)
        flattest = rows.softmax(-30.0 * peaked)
        assert np.isclose(*nearly_all.values(Y=flattest @ flattest, **known)[0])
        at.formula(r"1/Y = (n-1").holds(Y=1 / keys, **known)
        e = known[r"\varepsilon"]
        left, right = at.formula(r"2\varepsilon(n-1) +").values(**known)[0]
        assert np.isclose(left - right, (n - 1 + e) ** 2 - (n - 1) * (n - 1 + e**2))
        at.formula(r"2\varepsilon(n-1) +").holds(**known)
        below_one = at.formula(r"\varepsilon = e^")
        below_one.holds(**known)
        assert np.ptp(below_one.values(n=n, **{r"\varepsilon": 1.0, r"\alpha": 0.0})) == 0.0
