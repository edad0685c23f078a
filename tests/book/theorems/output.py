"""Checks of the output and of gradients at initialisation: almost_scaled."""

import math
from functools import cache

import numpy as np

from attnlib import exact, freezing, initialisation
from attnlib.scores import Normal
from tests.book.formulas import Place
from tests.book.theorems.exact import largest_of
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
    v = [math.sqrt(correlation) * common + math.sqrt(1 - correlation) * noise for noise in own]
    z = sum(p * value for p, value in zip(row["p"], v, strict=True))
    return {**row, "v": v, "z": z, "E": mean, "Var": variance(mean)}


@tied("thm-output-variance")
def scale_of_the_output(at: Place) -> None:
    row = outputs()
    at.display().holds(**row)
    at.formula(r"z = \sum_i p_i v_i").holds(**row)
    least = at.same(r"\frac1n").value(n=3)
    for s in ([0.3, -1.0, 2.0], [0.0, 0.0, 0.0]):
        assert least <= of_row(s, ALPHA)["Y"] * (1 + 1e-12)
    assert np.isclose(least, of_row(s, ALPHA)["Y"])


@tied("thm-output-limits")
def three_rules(at: Place) -> None:
    limits = {rf"\quad & {limit}": "" for limit in (r"t \to \infty", r"t \to 0", r"n \to \infty")}
    limits[r"\operatorname{E}\max_i s_i"] = "m"
    points = ((10.0, 3, 2e-4), (0.04, 3, 3e-4), (2.0, 10**12, 1e-6))
    for line, (t, n, near) in enumerate(points):
        stated = at.display().values(limits, t=t, n=n, m=largest_of(3), o=lambda _: 0.0)
        [value] = stated[line]
        assert np.isclose(math.sqrt(collisions(1 / t, n)), value, rtol=near)
    coldest = math.sqrt(3.0) / float(freezing.critical_alpha(50))
    edge = float(at.formula(r"\sqrt{3/2}").value())
    assert np.isclose(at.formula(r"t\sqrt{\log n}").value(t=coldest, n=50), edge)


@tied("prop-output-fixed")
def one_constant(at: Place) -> None:
    def without_rest(n: int, alpha: float = 1.0, rest=lambda _: 0.0):
        x = float(at.formula(r"x = e^{\alpha^2}").value(alpha=alpha))
        known = {"x": x, "n": n, "E": itself, "Y": collisions(alpha, n), "O": rest}
        [[left, right]] = at.display().values(**known)
        return float(left), float(right)

    for alpha in (0.5, 1.0):
        left, right = without_rest(1000, alpha)
        coefficient = (left - right) * 1000**2  # of the rest, which then falls like 1/n²
        both = without_rest(10**4, alpha, lambda power, c=coefficient: c * power)
        assert np.isclose(*both, rtol=1e-6, atol=0.0)
    stated = at.formula(r"1 - \frac{(e - 1)(2e - 1)}{2n}")
    factor = at.formula("(n/e)^{1/2}")

    def relative(n: int) -> float:
        return float(factor.value(n=n)) * math.sqrt(collisions(1.0, n))

    coefficient = (relative(1000) - float(stated.value(n=1000, O=lambda _: 0.0))) * 1000**2
    predicted = float(stated.value(n=10**4, O=lambda power: coefficient * power))
    assert np.isclose(predicted, relative(10**4), rtol=1e-6, atol=0.0)


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
    assert np.isclose(
        at.formula(r"\frac Ne\operatorname{E}Y_n").value(N=600, n=7, **known), factor**2 * Y[7]
    )
    assert np.isclose(at.same("N/e").value(N=600), factor**2 * Y[1])


@tied("prop-output-correlated")
def correlated(at: Place) -> None:
    row = {**outputs(0.3), "varrho": 0.3}
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
    norm = np.sqrt((matrix**2).sum(axis=(0, 1)))
    length = np.sqrt((along**2).sum(axis=0))
    q = r * math.sqrt(d)
    return {**row, "d": d, "r": r, "q": q, "E": mean, "F": norm, "u": length}


@tied("thm-output-backward")
def gradients(at: Place) -> None:
    for d in (3, 16):
        row, std = queries(d), exact.backward_std(d, ALPHA, 2)
        stated = [
            float(value) for [value] in at.display().values({"|Jx|": "u", r"\|J\|_F": "F"}, **row)
        ]
        library = [float(deviation) ** 2 for deviation in (std.value, std.key, std.query)]
        np.testing.assert_allclose(stated, library, rtol=3e-4)
        at.formula(r"r = |q|/").holds(**row)
    p = np.array([0.2, 0.5, 0.3])
    known = {"p": p, "P": np.outer(p, p), "diag": np.diag}
    matrix = at.formula(r"J = \operatorname{diag}(p)").value({r"pp^\top": "P"}, **known)
    assert np.allclose(matrix, np.diag(p) - np.outer(p, p))


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
    predicted = initialisation.self_attention_variance(ALPHA, 10**12, 8)
    assert np.isclose(limit, predicted, rtol=1e-4)
