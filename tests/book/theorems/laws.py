"""Checks of the laws of scores: variance, saturation (the row at finite d), cosine.

Means are sums over all values of discrete laws, or quadrature that is exact for the polynomials.
"""

import math
from functools import cache

import numpy as np
from scipy import stats
from scipy.special import hyp0f1, iv

from attnlib import annealed, initialisation
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import (
    COIN,
    chi_square,
    cosine,
    discrete,
    independent,
    itself,
    normal,
    slope,
    variance,
)
from tests.book.theorems.registry import tied


@tied("lemma-product")
def product(at: Place) -> None:
    q_law = discrete([-1.0, 0.5, 3.0], [0.2, 0.5, 0.3])
    k_law = discrete([0.0, 2.0], [0.3, 0.7])
    (q, k), mean = independent(q_law, k_law)
    known = {"q": q, "k": k, "E": mean, "Var": variance(mean)}
    for name, x in (("q", q), ("k", k)):
        known[rf"\mu_{name}"] = mean(x)
        known[rf"\sigma_{name}"] = math.sqrt(variance(mean)(x))
    at.display().holds(**known)
    at.formula(r"\operatorname{E}(qk) = \operatorname{E}(q)").holds(**known)
    at.formula(r"\operatorname{E}(q^2k^2) =").holds(**known)
    at.formula(r"\operatorname{E}(q^2) =").holds(**known)


@tied("theorem-moments")
def moments(at: Place) -> None:
    skew = discrete([-0.5, 2.0], [0.8, 0.2])
    for d in (1, 3):
        entries, mean = independent(*[COIN] * d, *[skew] * d)
        dot = sum(a * b for a, b in zip(entries[:d], entries[d:], strict=True))
        known = {"x": dot, "d": d, "E": mean, "Var": variance(mean)}
        at.display().holds({r"q\cdot k": "x"}, w=0.3, **known)
        scale = float(at.formula(r"w = 1/\sqrt d").value({"w =": ""}, d=d))
        assert np.isclose(variance(mean)(scale * dot), 1.0)


@cache
def _moments_of_row_variances(m: int, d: int) -> tuple[float, float]:
    """Return E V and Var(V) of the lemma: V is a polynomial, of degree 2 in each number."""
    numbers, mean = independent(*[normal(3)] * (2 * m * d))
    q = np.array(numbers[: m * d]).reshape(m, d, -1)
    k = np.array(numbers[m * d :]).reshape(m, d, -1)
    rows = np.einsum("idx,jdx->ijx", q, k).var(axis=1, ddof=1)
    return mean(rows.mean(axis=0)), variance(mean)(rows.mean(axis=0))


@tied("lemma-error")
def error_of_the_mean_row_variance(at: Place) -> None:
    formula = at.display()
    for m, d in ((2, 1), (2, 2), (4, 1)):
        expected, true = _moments_of_row_variances(m, d)
        at.formula(r"\operatorname{E} V = d").holds(V=expected, E=itself, d=d)
        [[left, right, _]] = formula.values(V=0.0, m=m, d=d, Var=lambda _, true=true: true)
        assert np.isclose(left, right)
    m, d = 4000, 300
    library = initialisation.standard_errors(d, vectors=m).variance ** 2
    formula.holds(rough=2e-3, V=0.0, m=m, d=d, Var=lambda _: library)


@tied("proposition-mixture")
def mixture(at: Place) -> None:
    d = 3
    (squares, x1, x2), mean = independent(chi_square(d, 4), normal(5), normal(5))
    length = {"|q|": "r"}
    r = np.sqrt(squares)
    factor = at.same(r"|q|/\sqrt d").value(length, r=r, d=d)
    known = {"d": d, "r": r, "X": squares, "s": [factor * x1, factor * x2], "x": [x1, x2]}
    known |= {
        "i": 0,
        "j": 1,
        "E": mean,
        "Var": variance(mean),
        "Cov": lambda x, y: mean(x * y) - mean(x) * mean(y),
    }
    at.formula(r"|q|^2 \sim").holds({r"\chi^2_d": "X", **length}, rough=1e-12, **known)
    at.formula(r"\operatorname{Cov}(s_i^2, s_j^2) = 2/d").holds(**known)
    at.formula(r"s_i = x_i").holds(length, **known)
    uncorrelated = at.formula(r"\operatorname{E}(s_is_j) =")
    uncorrelated.holds(length, absolute=1e-12, **known)
    x = [x1 + 0.5, x2 + 0.5]  # with means, so that no factor is zero
    shifted = {**known, "s": [factor * one for one in x], "x": x}
    uncorrelated.holds({"= 0": "", **length}, **shifted)
    at.display().holds({r"\chi^2_d": "X", **length}, **known)


@tied("proposition-received")
def received(at: Place) -> None:
    q, alpha, d = np.array([1.1, -0.4]), 1.7, 2
    scores_, mean = independent(*[normal(24)] * 4)
    keys = np.array(scores_).reshape(2, d, -1)
    s = np.einsum("c,icx->ix", q, keys) / math.sqrt(d)
    p = 1 / (1 + np.exp(alpha * (s[1] - s[0])))
    p = np.array([p, 1 - p])
    jacobian = alpha * (np.eye(2)[:, :, None] * p - p[:, None] * p)
    values = 3  # V and the error, each of second degree: means over them taken by hand
    known = {
        "d": d,
        "d_v": values,
        "C": q @ q,
        "F": (jacobian**2).sum(axis=(0, 1)),
        "B": ((jacobian * s).sum(axis=1) ** 2).sum(axis=0),
        "E": mean,
        "Q": values * (np.einsum("ijx,icx->jcx", jacobian, keys) ** 2).sum(axis=(0, 1)) / d,
        "K": values * (q @ q) / d * mean((jacobian**2).sum(axis=(0, 1))),
    }
    letters = {
        r"|\nabla_q|^2": "Q",
        r"\sum_j\operatorname{E}|\nabla_{k_j}|^2": "K",
        r"\lVert J\rVert_F^2": "F",
        "|q|^2": "C",
        "|Js|^2": "B",
    }
    at.display().holds(letters, relative=1e-6, **known)
    at.formula(r"\operatorname{E}|a|^2 =").holds(
        {"|a|^2": "A", r"\lVert J\rVert_F^2": "S"}, A=values * 0.37, S=0.37, E=itself, d_v=values
    )


@tied("lemma-cosine-density")
def density_of_a_cosine(at: Place) -> None:
    for d in (3, 4, 9):
        constant = 1.0 / (math.gamma(0.5) * math.gamma((d - 1) / 2) / math.gamma(d / 2))
        # s² has the Beta law with ½ and (d − 1)/2, by another road than the density
        beta = stats.beta(0.5, (d - 1) / 2)
        s = np.array([-0.8, 0.1, 0.6])
        at.display().holds(
            d=d, s=s, f=lambda s, beta=beta: np.abs(s) * beta.pdf(s**2), **{"c_d": constant}
        )
        (x,), mean = independent(cosine(d))
        for j in (1, 3):
            at.formula(r"\operatorname{E} s^{2j} =").holds(d=d, s=x, E=mean, j=j)
    at.formula("(x)_j =").holds({r"\cdots": ""}, x=0.7, j=3)


@tied("theorem-bessel")
def bessel(at: Place) -> None:
    for d, alpha in ((3, 0.7), (8, 4.0)):
        (s,), mean = independent(cosine(d))
        nu = float(at.formula(r"\nu = \frac d2").value({r"\nu =": ""}, d=d))
        known = {"d": d, r"\alpha": alpha, "s": s, "E": mean, r"\nu": nu}
        at.display().holds(**known, **{r"I_\nu": lambda x, nu=nu: iv(nu, x)})
        at.formula("(2j)! =").holds(j=5)
        at.formula(r"\sum_j \frac{\alpha").holds(**known, **{"j in": range(30)})
        series = at.formula(r"\sum_j \frac{\alpha").value(**known, **{"j in": range(30)})
        assert np.isclose(series, mean(np.exp(alpha * s)))


@tied(r"cosine: d = 3")
def elementary(at: Place) -> None:
    alpha = 1.3
    S = float(at.formula(r"S = \sinh").value({"S =": ""}, **{r"\alpha": alpha}))  # noqa: N806
    C = float(at.formula(r"C = \cosh").value({"C =": ""}, **{r"\alpha": alpha}))  # noqa: N806
    cases = at.display().values(d=0, S=S, C=C, **{r"\alpha": alpha})
    assert [d for _, d, _ in cases] == [3, 5, 7]
    for _, d, value in cases:
        assert np.isclose(value, hyp0f1(d / 2, alpha**2 / 4), rtol=1e-9)


@tied("eq-debye")
def debye(at: Place) -> None:
    d = 2002
    nu = d / 2 - 1
    for alpha in (300.0, 3000.0):
        known = {r"\nu": nu, r"\alpha": alpha}
        for letter in ("x", "r", r"\delta"):
            known[letter] = float(at.formula(f"{letter} =").value({f"{letter} =": ""}, **known))
        left, right = at.display().values(
            O=lambda _: 0.0, **{r"\kappa": lambda a: float(Cosine(d).log_mgf(a))}, **known
        )[0]
        assert abs(left - right) < 0.3 / nu


@tied("eq-root-law")
def root_law(at: Place) -> None:
    d, n = 128, 512.0
    # Near s = 0 the density is that of a normal law, whose variance its curvature says.
    curvature = -slope(lambda x: slope(lambda y: Cosine(d).logpdf(y), x, 1e-3), 0.0, 1e-3)
    best = float(annealed.best_alpha(Normal(), n))
    at.display().holds(
        d=d,
        n=n,
        rough=1e-5,
        **{
            r"\alpha^*_\cos": lambda d, n: best * math.sqrt(curvature),
            r"\alpha^*_normal": lambda n: best,
        },
    )
    at.formula("(1-s^2)^").holds(d=d, s=0.02, rough=1e-4)
    ratios = [_best(d, n) / (math.sqrt(d - 3) * best) for d in (128, 10**5)]
    assert 1.0 < ratios[1] < 1.001
    assert ratios[1] < ratios[0] < 1.12


@cache
def _best(d: int, n: float) -> float:
    return float(annealed.best_alpha(Cosine(d), n))


@tied("theorem-power")
def power_law(at: Place) -> None:
    m_of, c_of, best = (
        at.formula("m ="),
        at.formula("C = 2^"),
        at.display(),
    )
    for d, n in ((3, 1e9), (4, 1e12), (5, 1e12), (7, 1e12)):
        m = float(m_of.value({"m =": ""}, d=d))
        C = float(c_of.value({"C =": ""}, d=d))  # noqa: N806 - as the page has it
        alpha = _best(d, n)
        known = {"d": d, "n": n, "m": m, "C": C, r"\alpha^*": alpha, r"\alpha": alpha}
        best.holds(rough=3e-3, **known)
        at.formula(r"(m+1)(\alpha/2)^m").holds(relative=1e-2, **known)
        growth = math.log2(_best(d, n / 2) / alpha)
        exponent = at.formula("n^{2/(d-1)}")
        assert abs(float(np.log2(exponent.value(d=d, n=0.5))) - growth) < 2e-3
    assert np.isclose(at.formula("n/2").value(n=1e9), _best(3, 1e9))
    root = at.formula(r"\sqrt{2n}").value(n=1e12)
    assert np.isclose(root, _best(5, 1e12), rtol=1e-5)
    cases = [*at.beginning("d = 3", 2), *at.beginning("d = 5", 2)]
    assert [float(case.value(d=0)) for case in cases] == [3, 3, 5, 5]
    for d, stated in ((3, r"C = \frac12"), (5, r"C = \frac32")):
        C = float(c_of.value({"C =": ""}, d=d))  # noqa: N806
        at.formula(stated).holds(C=C)
    d, alpha = 4, 300.0
    (s,), mean = independent(cosine(d, 400))
    known = {
        "s": s,
        "E": mean,
        r"\alpha": alpha,
        "m": 1.5,
        "C": float(c_of.value({"C =": ""}, d=4)),
    }
    at.formula(r"\operatorname{E}e^{\alpha s} \sim").holds(rough=1e-2, **known)
    at.formula(r"I_\nu(\alpha) \sim").holds(rough=1e-2, **{r"I_\nu": lambda x: iv(1.0, x)}, **known)
