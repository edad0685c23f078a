"""Checks of the output and of gradients at initialisation: output_scale, and the probe's output."""

import math
from functools import cache

import numpy as np

from attnlib import annealed, exact, freezing, initialisation
from attnlib.scores import Normal
from tests.book.formulas import Place
from tests.book.theorems.exact import gradient, largest_of, normal_rows
from tests.book.theorems.freezing import collisions
from tests.book.theorems.numbers import (
    COIN,
    chi_square,
    independent,
    itself,
    normal,
    of_row,
    variance,
)
from tests.book.theorems.registry import tied

ALPHA = 1.2


@cache
def outputs(correlation: float = 0.0):
    """Return the letters of rows of two normal scores, with values of mean 0 and variance 1."""
    (s1, s2, common, *own), mean = independent(normal(), normal(), COIN, COIN, COIN)
    row = of_row([s1, s2], ALPHA)
    v = [math.sqrt(correlation) * common + math.sqrt(1 - correlation) * one for one in own]
    z = sum(p * value for p, value in zip(row["p"], v, strict=True))
    return {**row, "v": v, "z": z, "E": mean, "Var": variance(mean)}


@tied("thm-output-variance")
def scale_of_the_output(at: Place) -> None:
    row = outputs()
    at.display().holds(**row)
    at.formula(r"z = \sum_i p_i v_i").holds(**row)
    at.formula(r"\operatorname{E}z =").holds(absolute=1e-12, **row)
    for bounds, least in (
        (at.formula(r"1/n \le \sum_i p_i^2"), lambda values: values[0]),
        (at.same(r"\frac1n"), lambda values: values[0]),
    ):
        for s in ([0.0, 0.0, 0.0], [0.3, -1.0, 2.0]):
            values = bounds.values(**of_row(s, ALPHA))[0]
            assert least(values) <= of_row(s, ALPHA)["Y"] * (1 + 1e-12)
        even = of_row([0.0] * 3, ALPHA)
        assert np.isclose(least(bounds.values(**even)[0]), even["Y"])
    chain = at.formula(r"1/n \le \sum_i p_i^2")
    chain.holds(**even)
    chain.holds(**of_row([0.3, -1.0, 2.0], ALPHA))
    low, squares, one = chain.values(**of_row([0.0, -900.0, -900.0], ALPHA))[0]
    assert np.isclose(squares, one)
    assert low < one


@tied("thm-output-limits")
def three_rules(at: Place) -> None:
    n, largest = 3, largest_of(3)

    def stated(t, n):
        return [
            float(value)
            for [value] in at.display().values(
                {
                    r"\quad & t \to \infty": "",
                    r"\quad & t \to 0": "",
                    r"\quad & n \to \infty": "",
                    r"\operatorname{E}\max_i s_i": "m",
                },
                t=t,
                n=n,
                m=largest,
                o=lambda _: 0.0,
            )
        ]

    hot, cold, between = (
        math.sqrt(collisions(1 / t, k)) for t, k in ((10.0, n), (0.04, n), (2.0, 10**12))
    )
    assert np.isclose(hot, stated(10.0, n)[0], rtol=2e-4)
    assert np.isclose(cold, stated(0.04, n)[1], rtol=3e-4)
    assert np.isclose(between, stated(2.0, 10**12)[2], rtol=1e-6)
    edge = float(at.formula(r"\sqrt{3/2}").value())
    coldest = 1 / float(freezing.annealed_mean_bound(50))
    assert np.isclose(at.formula(r"t\sqrt{\log n}").value(t=coldest, n=50), edge)
    row = outputs()
    mean = {"E": row["E"], "Y": row["Y"], r"\alpha": ALPHA}
    at.formula(r"1 - \operatorname{E}Y =").holds(relative=1e-7, G=gradient(ALPHA, 2), **mean)
    small = of_row([0.3e-3, -1.0e-3, 0.8e-3], ALPHA)
    at.formula(r"Y = \frac1n(1 +").holds(
        {r"\hat\sigma": "S"}, relative=1e-8, S=float(np.std(small["s"])), **small
    )
    excess = [
        float(at.formula(r"Y = \frac1n(1 +").value({"Y =": "", r"\hat\sigma": "S"}, S=S, **small))
        for S in (0.0, float(np.std(small["s"])))
    ]
    assert np.isclose(excess[1] - excess[0], small["Y"] - 1 / 3, rtol=1e-2)
    bound = at.formula(r"\alpha_c = \sqrt{2\log n}")
    bound.holds(n=50.0, **{r"\alpha_c": float(freezing.critical_alpha(50.0))})
    temperature = float(at.formula(r"\sqrt{3/(2\log n)}").value(n=50.0))
    assert np.isclose(1 / temperature, freezing.annealed_mean_bound(50.0))


@tied("eq-output-lognormal")
def log_normal(at: Place) -> None:
    row = normal_rows(3, 0.1)
    at.display().holds(rough=4e-3, **row)
    constant = at.formula(r"\log n + \frac12\alpha^2")
    (s,), mean = independent(normal())
    logs = float(constant.value(n=50.0, **{r"\alpha": ALPHA}))
    assert np.isclose(mean(np.exp(ALPHA * s - logs)), 1 / 50)  # the mean weight
    spread = at.formula(r"(e^{\alpha^2} - 1)/n")
    powers = np.exp(ALPHA * s)
    assert np.isclose(
        spread.value(n=50.0, **{r"\alpha": ALPHA}), variance(mean)(powers) / mean(powers) ** 2 / 50
    )


@tied("eq-output-unit")
def unit_scaling(at: Place) -> None:
    n, d, m = 300.0, 64, 6.0
    alpha = float(at.formula(r"\alpha = m/\sqrt d").value({r"\alpha =": ""}, m=m, d=d))
    for causal, c in ((False, 1.0), (True, math.log(n))):
        # as that library writes it
        a = 1 / (1 + 4 * d / m**2)
        std = math.exp((1 - a) * math.log(c / n) / 2)
        assert np.isclose(std, annealed.unit_scaling_std(alpha, n, causal=causal))
        at.display().holds(
            rough=1e-9, n=n, b=c, z=0.0, std=lambda _, std=std: std, **{r"\alpha": alpha}
        )
    at.formula("b = 1").holds(b=1.0)
    at.formula(r"b = \log n").holds(b=math.log(n), n=n)


@cache
def collisions_up_to(n: int) -> list[float]:
    return [1.0, *exact.collision_probability(Normal(), 1.0, np.arange(1, n + 1)).tolist()]


@tied("thm-output-causal")
def one_factor(at: Place) -> None:
    Y = collisions_up_to(4000)  # noqa: N806 - as the page has it
    known = {"E": itself, "Y": Y, "o": lambda _: 0.0}
    [[total, _]] = at.display().values(N=2000, C=0.0, **known)
    assert np.isclose(total, sum(Y[1:2001]) / math.e)  # all positions
    at.display().holds(relative=1e-3, N=4000, C=float(total) - math.log(2000), **known)
    factor = float(at.formula("(N/e)^{1/2}").value(N=600))
    for n in (1, 7):
        output = at.formula(r"\frac Ne\operatorname{E}Y_n").value(N=600, n=n, **known)
        assert np.isclose(output, factor**2 * Y[n])
    assert np.isclose(at.same("N/e").value(N=600), factor**2 * Y[1])
    expansion = at.formula(r"\operatorname{E}Y_n = e/n + O(n^{-2})")
    rest = (Y[600] - math.e / 600) * 600**2
    expansion.holds(relative=2e-4, n=4000, O=lambda order: rest * order, **known)
    assert abs(Y[4000] - math.e / 4000) > 1e-4 * Y[4000]
    series = at.formula(r"\sum e/n =")
    series.holds(
        {r"\sum e/n": "T"},
        relative=1e-3,
        T=sum(math.e / n for n in range(1, 601)),
        N=600,
        o=lambda _: 0.0,
        **{r"\gamma": float(np.euler_gamma)},
    )


@tied("prop-output-correlated")
def correlated(at: Place) -> None:
    rho = 0.3
    row = {**outputs(rho), r"\varrho": rho}
    at.display().holds(**row)
    at.formula(r"\operatorname{E}v_iv_j =").holds(**row)


@cache
def queries(d: int):
    """Return the letters of rows of two keys in d dimensions, and of their Jacobian."""
    (squares, *x), mean = independent(chi_square(d, 30), normal(30), normal(30))
    r = np.sqrt(squares / d)
    row = of_row([r * component for component in x], ALPHA)
    p = np.array(row["p"])
    matrix = np.eye(2)[:, :, None] * p[:, None] - p[:, None] * p[None, :]
    along = np.einsum("ijx,jx->ix", matrix, np.array(x))
    return {
        **row,
        "d": d,
        "r": r,
        "q": r * math.sqrt(d),
        "E": mean,
        "J": matrix,
        "u": np.sqrt((along**2).sum(axis=0)),
        r"\|_F": lambda a: np.sqrt((a**2).sum(axis=(0, 1))),
    }


@cache
def backward(d: int):
    std = exact.backward_std(d, ALPHA, 2)
    return [float(one) ** 2 for one in (std.value, std.key, std.query)]


@tied("thm-output-backward")
def gradients(at: Place) -> None:
    for d in (3, 16):
        row = queries(d)
        stated = [float(value) for [value] in at.display().values({"|Jx|": "u"}, **row)]
        np.testing.assert_allclose(stated, backward(d), rtol=3e-4)
        at.formula(r"r = |q|/").holds(**row)
    p = np.array([0.2, 0.5, 0.3])
    matrix = at.formula(r"J = \operatorname{diag}(p)").value(
        {"J =": "", r"pp^\top": "P"}, p=p, P=np.outer(p, p), diag=np.diag
    )
    assert np.allclose(matrix, np.diag(p) - np.outer(p, p))
    assert np.allclose(matrix.sum(axis=0), 0.0)


@tied("thm-output-self")
def self_attention(at: Place) -> None:
    """Two tokens of two entries: the output's mean square over both directions of the values."""
    entries, mean = independent(*[normal(24)] * 4)
    along, across = entries[:2], entries[2:]
    row = of_row(along, ALPHA)
    m, rest = (sum(p * x for p, x in zip(row["p"], of, strict=True)) for of in (along, across))
    total = mean(m**2 + rest**2) / 2
    known = {**row, "E": mean, "m": m, "w": 2.0}
    at.display().holds({r"\operatorname{Var} z": "x"}, x=total, relative=1e-7, **known)
    limit = at.formula(r"\alpha^2/w").value(w=8.0, **{r"\alpha": ALPHA})
    found = initialisation.self_attention_variance(ALPHA, 10**12, 8)
    assert np.isclose(limit, found, rtol=1e-4)


@tied(r"probe: v = a\,s + r")
def direction(at: Place) -> None:
    a = 0.4
    (s1, s2, r1, r2), mean = independent(normal(), normal(), COIN, COIN)
    row = of_row([s1, s2], ALPHA)
    v = [a * s1 + r1, a * s2 + r2]
    at.display().holds(
        {"v &= a\\,s + r": "w &= a\\,x + r"},
        relative=1e-8,
        **{**row, "v": v, "w": v[0], "x": s1, "r": r1, "a": a, "E": mean},
    )
    # Over random projections of width w the mean of a² is 1/w.
    rise = at.formula(r"\operatorname{E}Y + \alpha^2/w")
    known = {"E": itself, "Y": collisions(0.5, 10**6), "w": 8.0, r"\alpha": 0.5}
    squared = collisions(0.5, 10**6) + gradient(0.5, 10**6) ** 2 * float(
        at.same("1/w").value(w=8.0)
    )
    assert np.isclose(rise.value(**known), squared, rtol=1e-5)
