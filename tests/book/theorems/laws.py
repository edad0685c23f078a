"""Checks of the laws of scores: of a dot product and its row at finite d, and of cosines.

Means are sums over all values of discrete laws, or quadrature that is exact for the polynomials.
"""

import math
from functools import cache

import numpy as np
from scipy.special import iv

from attnlib import annealed
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import (
    COIN,
    chi_square,
    cosine,
    discrete,
    highest,
    independent,
    normal,
    slope,
    variance,
)
from tests.book.theorems.registry import tied


@tied("theorem-moments")
def moments(at: Place) -> None:
    skew = discrete([-0.5, 2.0], [0.8, 0.2])
    for d in (1, 3):
        entries, mean = independent(*[COIN] * d, *[skew] * d)
        dot = sum(a * b for a, b in zip(entries[:d], entries[d:], strict=True))
        known = {"x": dot, "d": d, "E": mean, "Var": variance(mean)}
        at.display().holds({r"q\cdot k": "x"}, w=0.3, **known)
        scale = float(at.formula(r"w = 1/\sqrt d").value(d=d))
        assert np.isclose(variance(mean)(scale * dot), 1.0)


@tied("proposition-mixture")
def mixture(at: Place) -> None:
    d = 3
    (squares, x1, x2), mean = independent(chi_square(d, 4), normal(5), normal(5))
    length = {"|q|": "r"}
    r = np.sqrt(squares)
    factor = at.same(r"|q|/\sqrt d").value(length, r=r, d=d)
    known = {"d": d, "X": squares, "s": [factor * x1, factor * x2], "i": 0, "j": 1}
    known["Cov"] = lambda x, y: mean(x * y) - mean(x) * mean(y)
    at.formula(r"|q|^2 \sim").holds({r"\chi^2_d": "X", **length}, rough=1e-12, r=r, **known)
    at.formula(r"\operatorname{Cov}(s_i^2, s_j^2) = 2/d").holds(**known)


@tied("theorem-bessel")
def bessel(at: Place) -> None:
    for d, alpha in ((3, 0.7), (8, 4.0)):
        (s,), mean = independent(cosine(d))
        nu = float(at.formula(r"\nu = \frac d2").value(d=d))
        known = {"d": d, "alpha": alpha, "s": s, "E": mean, "nu": nu}
        at.display().holds(**known, **{r"I_\nu": lambda x, nu=nu: iv(nu, x)})


@tied("theorem-one-maximum")
def one_maximum(at: Place) -> None:
    for d, n in ((3, 20.0), (128, 4096.0)):
        best, law = _best(d, n), Cosine(d)
        ratio = at.formula(r"r(\alpha) =")
        kappa = {"kappa": lambda a, law=law: float(law.log_mgf(a))}
        r = lambda a, ratio=ratio, kappa=kappa: float(ratio.value(**kappa, alpha=a))  # noqa: E731
        known = {"n": n, "r": r, "r'": lambda a, r=r: float(slope(r, a, 1e-3 * a))}
        at.display().holds(relative=1e-6, **known, alpha=best)
        grid = np.geomspace(0.01, 5.0, 40) * best
        sides = [at.display().values(**known, alpha=alpha)[0][0] for alpha in grid]
        assert np.all(np.diff(sides) > 0.0)


@tied("theorem-root-bound")
def root_bound(at: Place) -> None:
    normal_ = lambda n: float(annealed.best_alpha(Normal(), n))  # noqa: E731
    for d, n in ((3, 1.5), (8, 512.0), (10**6, 50.0)):
        best = {r"\alpha^*_\cos": _best, r"\alpha^*_normal": normal_}
        at.display().holds(d=d, n=n, relative=0.0, **best)
    # in the widest head it is nearly reached
    assert np.isclose(*at.display().values(d=d, n=n, **best)[0], rtol=1e-4)


@cache
def _best(d: int, n: float) -> float:
    return float(annealed.best_alpha(Cosine(d), n))


@tied("theorem-power")
def power_law(at: Place) -> None:
    m_of, b_of = at.formula("m ="), at.formula("b_d = 2^")
    for d, n in ((3, 1e9), (4, 1e12), (7, 1e12)):
        known = {"d": d, "n": n, "m": float(m_of.value(d=d)), "b_d": float(b_of.value(d=d))}
        at.display().holds(rough=3e-3, alpha_star=_best(d, n), **known)
        growth = math.log2(_best(d, n / 2) / _best(d, n))
        power = at.formula("n^{2/(d-1)}").value(d=d, n=0.5)
        assert abs(float(np.log2(power)) - growth) < 2e-3
    for d, n, beginning in ((3, 1e9, "n/2"), (5, 1e12, r"\sqrt{2n}")):
        assert np.isclose(at.formula(beginning).value(n=n), _best(d, n), rtol=1e-5)
        assert float(at.formula(f"d = {d}").value()) == d


@tied("theorem-cosine-coefficient")
def ratio_to_log_n(at: Place) -> None:
    law, ratio = Cosine(10**6), at.formula("C(d, n) =")
    for x in (0.3, 3.0):
        # t and ψ by a search, R by the law itself in very many dimensions
        best = {a: highest(lambda s, a=a: a * s + math.log1p(-s * s) / 2, 0, 1) for a in (x, 2 * x)}
        known = {"x": x, "t": lambda a, b=best: b[a][0], "psi": lambda a, b=best: b[a][1]}
        known["R"] = lambda a: float(law.log_mgf_ratio(a * law.d)) / law.d
        at.display().holds(relative=1e-4, **known)
    scale = {r"\alpha^*_\cos": _best}
    for d, n in ((3, 50.0), (10**6, 4096.0)):
        ratio.holds(C=lambda d, n: _best(d, n) / math.log(n), d=d, n=n, **scale)
