"""Checks of the laws of scores: variance, saturation (the row at finite d), cosine.

Means are sums over all values of discrete laws, or quadrature that is exact for the polynomials.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy import stats
from scipy.special import hyp0f1, iv

from attnlib import annealed, initialisation
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Formula, Place
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
    cases = at.display().values(d=0, **{r"\alpha": alpha})
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


def _tilted(d: int, alpha: float) -> tuple[float, float]:
    """Return the mean and the variance of a cosine of weight e^{αs}."""
    (s,), mean = independent(cosine(d))
    weight = np.exp(alpha * s) / mean(np.exp(alpha * s))
    first = mean(weight * s)
    return first, mean(weight * (s - first) ** 2)


def _h(d: int) -> Callable[[float], float]:
    return lambda alpha: alpha * _tilted(d, alpha)[0]


@tied("lemma-cosine-bend")
def how_kappa_bends(at: Place) -> None:
    bounds = at.formula(r"0 < \kappa''")
    for d, alpha in ((3, 0.7), (8, 4.0)):
        first, second = _tilted(d, alpha)
        known = {"d": d, r"\alpha": alpha, r"\kappa'": first, r"\kappa''": second}
        at.display().holds(**known)
        bounds.holds(**known)
        u_of = at.formula("u =")

        def excess(a: float, d: int = d, u_of: Formula = u_of) -> float:
            one, two = _tilted(d, a)
            names = {r"\alpha": a, r"\kappa'": one, r"\kappa''": two}
            return float(u_of.value({"u =": ""}, **names))

        at.formula(r"\alpha u' =").holds(
            relative=1e-7, u=excess(alpha), **known, **{"u'": slope(excess, alpha, 1e-2)}
        )
    # near 0 the two upper bounds are reached
    first, second = _tilted(5, 1e-3)
    names = {"d": 5, r"\alpha": 1e-3, r"\kappa'": first, r"\kappa''": second}
    [values] = bounds.values(**names)
    assert np.allclose(values[1:], values[-1], rtol=1e-5)


@tied("theorem-one-maximum")
def one_maximum(at: Place) -> None:
    for d, n in ((3, 20.0), (8, 512.0), (128, 4096.0)):
        known = {
            "d": d,
            "n": n,
            r"\kappa": lambda a, d=d: float(Cosine(d).log_mgf(a)),
            r"\kappa'": lambda a, d=d: float(Cosine(d).log_mgf_derivatives(a).first),
        }
        at.display().holds(relative=1e-7, **known, **{r"\alpha": _best(d, n)})
        sides = [
            at.display().values(**known, **{r"\alpha": alpha})[0][0]
            for alpha in np.geomspace(0.01, 5.0, 40) * _best(d, n)
        ]
        assert np.all(np.diff(sides) > 0.0)


@tied(r"cosine: \alpha h' = \alpha^2")
def h_bends_upwards(at: Place) -> None:
    for d, alpha in ((3, 0.8), (5, 2.0), (8, 3.0)):

        def rise(a: float, d: int = d) -> float:
            return float(slope(_h(d), a, 1e-2))

        known = {
            "d": d,
            r"\alpha": alpha,
            "h": _h(d)(alpha),
            "h'": rise(alpha),
            "h''": slope(rise, alpha, 2e-2),
        }
        at.display().holds(relative=1e-7, **known)
        w = float(at.formula(r"w = \alpha^2h''").value({"w =": ""}, **known))
        at.formula(r"w = 2\alpha^2 -").holds(relative=1e-5, w=w, **known)
        v_of = at.formula("v = 2h")

        def v_at(a: float, d: int = d, v_of: Formula = v_of) -> float:
            names = {"d": d, "h": _h(d)(a), r"\alpha": a, "h'": slope(_h(d), a, 1e-2)}
            return float(v_of.value({"v =": ""}, **names))

        # w and its slope, from the equation that was just compared with h''
        def w_exact(a: float, d: int = d) -> float:
            h = _h(d)(a)
            return float(2 * a * a - (2 * h + d - 1) * (a * a - h * h - (d - 2) * h))

        known |= {"v": v_at(alpha), "v'": slope(v_at, alpha, 1e-2)}
        known |= {"w": w_exact(alpha), "w'": slope(w_exact, alpha, 1e-2)}
        at.formula(r"\alpha v' = -2w").holds(relative=1e-5, **known)
        at.formula("2w = (2h").holds(relative=1e-6, **known)
        at.formula(r"\alpha v' +").holds(relative=1e-5, absolute=1e-7, **known)
        assert w > 0.0
    # and at d = 2 it does not
    rise = np.diff([a * iv(1, a) / iv(0, a) for a in (2.0, 2.1, 2.2, 2.9, 3.0, 3.1)])
    assert rise[1] > rise[0]
    assert rise[4] < rise[3]


@tied("eq-root-law")
def root_law(at: Place) -> None:
    d, n = 128, 512.0
    best = float(annealed.best_alpha(Normal(), n))
    # The normal law with the cosine's variance.
    scaled = best / math.sqrt(Cosine(d).variance)
    at.display().holds(
        d=d,
        n=n,
        rough=1e-9,
        **{r"\alpha^*_\cos": lambda d, n: scaled, r"\alpha^*_normal": lambda n: best},
    )
    at.formula("(1-s^2)^").holds(d=d, s=0.02, rough=1e-4)
    ratios = [_best(d, n) / (math.sqrt(d) * best) for d in (128, 10**5)]
    assert 1.0 < ratios[1] < 1.001
    assert ratios[1] < ratios[0] < 1.1


@tied("theorem-root-bound")
def root_bound(at: Place) -> None:
    ends = at.formula(r"\kappa(2\alpha) - 2\kappa(\alpha) <")
    of_n = at.formula(r"n < (1")
    for d, n in ((3, 1.5), (3, 20.0), (8, 512.0), (128, 4096.0), (10**6, 50.0)):
        best = {
            r"\alpha^*_\cos": lambda d, n: _best(d, n),
            r"\alpha^*_normal": lambda n: float(annealed.best_alpha(Normal(), n)),
        }
        at.display().holds(d=d, n=n, relative=0.0, **best)
        known = {"d": d, "n": n, r"\alpha": _best(d, n)}
        kappa = {r"\kappa": lambda a, d=d: float(Cosine(d).log_mgf(a))}
        of_n.holds(relative=0.0, **known)
        ends.holds(relative=0.0, **known, **kappa)
        at.formula(r"\kappa'(2\alpha) -").holds(
            relative=0.0,
            **known,
            **{r"\kappa'": lambda a, d=d: float(Cosine(d).log_mgf_derivatives(a).first)},
        )
    # in the widest head all three are reached
    assert np.isclose(*of_n.values(**known)[0], rtol=1e-4)
    assert np.isclose(*ends.values(**known, **kappa)[0], rtol=1e-4)


@cache
def _best(d: int, n: float) -> float:
    return float(annealed.best_alpha(Cosine(d), n))


@tied("theorem-power")
def power_law(at: Place) -> None:
    m_of, b_of, best = (
        at.formula("m ="),
        at.formula("b_d = 2^"),
        at.display(),
    )
    for d, n in ((3, 1e9), (4, 1e12), (5, 1e12), (7, 1e12)):
        m = float(m_of.value({"m =": ""}, d=d))
        b = float(b_of.value({"b_d =": ""}, d=d))
        alpha = _best(d, n)
        known = {"d": d, "n": n, "m": m, "b_d": b, r"\alpha^*": alpha, r"\alpha": alpha}
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
    for d, stated in ((3, r"b_d = \frac12"), (5, r"b_d = \frac32")):
        b = float(b_of.value({"b_d =": ""}, d=d))
        at.formula(stated).holds(b_d=b, d=d)
    d, alpha = 4, 300.0
    (s,), mean = independent(cosine(d, 400))
    known = {
        "s": s,
        "E": mean,
        r"\alpha": alpha,
        "m": 1.5,
        "b_d": float(b_of.value({"b_d =": ""}, d=4)),
    }
    at.formula(r"\operatorname{E}e^{\alpha s} \sim").holds(rough=1e-2, **known)
    at.formula(r"I_\nu(\alpha) \sim").holds(rough=1e-2, **{r"I_\nu": lambda x: iv(1.0, x)}, **known)
