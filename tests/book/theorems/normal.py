"""Checks of the approximation and its maximum: normal, entropy.

Optima are found by a search, means by quadrature, limits approached with many keys.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import betainc, exp1, lambertw

from attnlib import annealed, exact
from attnlib.scores import Cosine, DotProduct, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import (
    chi_square,
    independent,
    itself,
    normal,
    of_row,
    slope,
    some_rows,
)
from tests.book.theorems.registry import tied


@tied("eq-collision-ratio")
def collision_ratio(at: Place) -> None:
    for s in some_rows():
        at.display().holds(**of_row(s, 1.4))


@tied("eq-annealed")
def the_approximation(at: Place) -> None:
    n, alpha = 50.0, 1.3
    for law in (Normal(), Cosine(8)):
        known = {"n": n, r"\alpha": alpha, r"\kappa": lambda a, law=law: float(law.log_mgf(a))}
        at.display().holds(
            rough=1e-10, Y=float(annealed.collision_probability(law, alpha, n)), **known
        )
    # and it is one: the mean of the ratio is near it while many keys share the sum
    at.display().holds(
        rough=1e-3,
        n=10**6,
        Y=float(exact.collision_probability(Normal(), 1.0, 10**6)),
        **{r"\alpha": 1.0, r"\kappa": lambda a: a * a / 2},
    )


@tied("lemma-normal-mgf")
def normal_scores(at: Place) -> None:
    (s,), mean = independent(normal())
    n, alpha = 50.0, 1.3
    known = {"s": s, "E": mean, "n": n, r"\alpha": alpha}
    at.formula(r"\operatorname{E} e^{\alpha s} =").holds(**known)
    approximate = float(annealed.collision_probability(Normal(), alpha, n))
    at.formula(r"Y \approx").holds(rough=1e-10, Y=approximate, **known)
    at.formula(r"\alpha s - s^2/2 =").holds(**known)
    kappa = {r"\kappa": lambda a: float(np.log(mean(np.exp(a * s))))}
    at.formula(r"\kappa(\alpha) =").holds(**known, **kappa)
    at.formula(r"\kappa(2\alpha) - 2\kappa(\alpha) =").holds(**known, **kappa)


@tied("theorem-best-normal")
def best_scale(at: Place) -> None:
    objective, derivative = (
        at.formula(r"\alpha(1 - e^{\alpha^2}/n)"),
        at.formula(r"1 - (1 + 2\alpha^2)"),
    )
    for n in (3.0, 512.0):
        assert np.isclose(
            objective.value(n=n, **{r"\alpha": 0.9}), annealed.gradient(Normal(), 0.9, n)
        )
        found = minimize_scalar(
            lambda alpha, n=n: -float(annealed.gradient(Normal(), alpha, n)),
            bounds=(0.01, 5.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        alpha = found.x
        w = alpha**2 + 0.5
        known = {
            "n": n,
            "w": w,
            r"\alpha": alpha,
            r"\alpha^*": alpha,
            "W": lambda x: lambertw(x).real,
        }
        at.formula(r"(1 + 2\alpha^2)\,e^").holds(relative=1e-6, **known)
        at.formula(r"\alpha^* =").holds(relative=1e-6, **known)
        at.formula(r"w = \alpha^2 +").holds(**known)
        at.formula(r"1 + 2\alpha^2 = 2w").holds(**known)
        at.formula(r"e^{\alpha^2} = e^w").holds(**known)
        at.formula(r"we^w = \frac12 n").holds(relative=1e-6, **known)
        at.formula("we^w = x").holds(w=lambertw(0.7).real, x=0.7)
        rate = slope(lambda a, n=n: objective.value(n=n, **{r"\alpha": a}), 1.1)
        assert np.isclose(derivative.value(n=n, **{r"\alpha": 1.1}), rate)
        start = at.formula(r"1 - \frac1n > 0")
        start.holds(n=n)
        value, zero = start.values(n=n)[0]
        assert np.isclose(value, derivative.value(n=n, **{r"\alpha": 0.0}))
        assert zero == 0.0


@tied("eq-asymptotic")
def asymptotic(at: Place) -> None:
    for n in (1e3, 1e300):
        alpha = float(annealed.best_alpha(Normal(), n))
        at.display().holds(n=n, rough=1.0 if n < 1e300 else 2e-4, **{r"\alpha^*": alpha})
        maximum = at.formula(r"e^{\alpha^2}/n = 1/(1 + 2\alpha^2)")
        maximum.holds(n=n, relative=1e-9, **{r"\alpha": alpha})
        value = at.formula(r"2\alpha^3/(1 + 2\alpha^2)").value(**{r"\alpha": alpha})
        assert np.isclose(value, annealed.gradient(Normal(), alpha, n))
    at.formula(r"W(\sqrt e/2) =").holds(W=lambda x: lambertw(x).real)


@tied("eq-finite-d")
def finite_d(at: Place) -> None:
    d, n, alpha = 8, 100.0, 0.9
    (squares,), mean = independent(chi_square(d, 60))
    at.display().holds(
        n=n,
        d=d,
        q=np.sqrt(squares),
        E=mean,
        Y=float(annealed.collision_probability(DotProduct(d), alpha, n)),
        rough=1e-9,
        **{r"\alpha": alpha},
    )
    bound = float(at.formula(r"\alpha = \sqrt{d/2}").value({r"\alpha =": ""}, d=d))
    ends = annealed.collision_probability(DotProduct(d), [bound * 0.999, bound * 1.001], n)
    assert list(np.isfinite(ends)) == [True, False]


@tied("proposition-entropies")
def entropies(at: Place) -> None:
    for n in (20.0, 4096.0):
        alpha = float(annealed.best_alpha(Normal(), n))
        known = {"n": n, r"\alpha^*": alpha}
        at.formula(r"\alpha^{*2} =").holds(**known)
        at.display().holds(
            rough=1e-9,
            H=math.log(n) - alpha**2 / 2,
            **{"H_2": -math.log(float(annealed.collision_probability(Normal(), alpha, n)))},
            **known,
        )


@tied("eq-entropies-exact")
def exact_entropies(at: Place) -> None:
    alpha = 1.7
    scores, mean = independent(normal(60), normal(60))

    def free_energy(a: float) -> float:
        return mean(np.log(of_row(scores, a)["Z"]))

    p = np.array(of_row(scores, alpha)["p"])
    at.display().holds(
        relative=1e-7,
        E=itself,
        H=mean(-(p * np.log(p)).sum(axis=0)),
        **{
            "H_2": mean(-np.log((p**2).sum(axis=0))),
            r"\alpha": alpha,
            r"\Phi": free_energy,
            r"\Phi'": lambda a: float(slope(free_energy, a, 1e-2)),
        },
    )


@tied("theorem-entropies-normal")
def entropies_of_normal_rows(at: Place) -> None:
    def values(n: float) -> list[list[float]]:
        alpha = float(annealed.best_alpha(Normal(), n))
        energy, twice = (float(exact.free_energy(Normal(), k * alpha, n)) for k in (1, 2))
        known = {"H": float(exact.entropy(Normal(), alpha, n)), "H_2": 2 * energy - twice}
        return at.display().values(n=n, E=itself, **known)

    for near, far in zip(values(1e4), values(2.0**53), strict=True):
        limit = far[1]
        assert abs(far[0] - limit) < abs(near[0] - limit)
        assert abs(far[0] - limit) < 0.12


def _points(d: int, n: float) -> tuple[float, float, Callable[[float], float]]:
    """Return m, α* and the mean number of keys with α(1 − s) below u."""
    m, alpha = (d - 1) / 2, float(annealed.best_alpha(Cosine(d), n))
    return m, alpha, lambda u: n * float(betainc(m, m, u / (2 * alpha)))


def _ein(v: float) -> float:
    """Return Ψ(v) at d = 3."""
    e = math.exp(min(v, 700.0))
    return e if v < -20.0 else float(exp1(e)) + v + np.euler_gamma


@tied("theorem-poisson")
def poisson(at: Place) -> None:
    for d, n in ((3, 1e9), (5, 1e12), (6, 1e14)):
        m = float(at.formula("m = (d-1)/2").value({"m =": ""}, d=d))
        _, alpha, count = _points(d, n)
        for u in (0.5, 3.0):
            known = {"m": m, "u": u, r"\Lambda": lambda u, count=count: count(u)}
            at.display().holds(relative=1e-3, **known)
        psi = at.formula(r"\Psi(v) = \int")

        def rises(u: float, count: Callable[[float], float] = count) -> float:
            return float(slope(count, u, 1e-3 * u))

        if d == 3:
            value = float(psi.value({r"\Psi(v) =": ""}, v=1.5, **{r"\Lambda'": rises}))
            assert np.isclose(value, _ein(1.5), rtol=1e-3)
    row, point = of_row([0.3, 0.9], 2.0), at.formula(r"u_i = \alpha(1")
    points = [float(point.value({"u_i =": ""}, **{**row, "s_i": x})) for x in (*row["s"], 1.0)]
    weights = at.formula(r"e^{-u_i}/\sum_j")
    assert np.isclose(weights.value(**{**row, "u": points[:2]}), row["p"][0])
    assert points[2] == 0.0
    m, alpha, _ = _points(3, 1e4)
    energy, twice = (float(exact.free_energy(Cosine(3), k * alpha, 1e4)) for k in (1, 2))
    at.formula(r"\operatorname{E} H \to").holds(
        rough=1e-4,
        E=itself,
        m=m,
        H=float(exact.entropy(Cosine(3), alpha, 1e4)),
        **{"H_2": 2 * energy - twice, r"\Psi": _ein},
    )


@tied(r"entropy: H &= \log S")
def entropies_of_points(at: Place) -> None:
    u = [0.2, 1.1, 3.0]
    known = {"u": u, "i in": range(3)}
    S = float(at.formula(r"S = \sum").value({"S =": ""}, **known))  # noqa: N806 - as the page
    second = float(at.formula(r"S_2 = \sum").value({"S_2 =": ""}, **known))
    p = np.exp(-np.array(u)) / np.exp(-np.array(u)).sum()
    entropies = {"H": -(p * np.log(p)).sum(), "H_2": -np.log((p**2).sum())}
    at.display().holds(S=S, **known, **entropies, **{"S_2": second})


@tied(r"entropy: \operatorname{E}\log S \to")
def mean_logarithm(at: Place) -> None:
    _, alpha, _ = _points(3, 1e4)
    S = math.exp(float(exact.free_energy(Cosine(3), alpha, 1e4)) - alpha)  # noqa: N806 - as there
    at.display().holds(rough=1e-2, absolute=2e-4, S=S, E=itself, **{r"\Psi": _ein})
    at.formula(r"\log S = \int").holds(relative=1e-8, S=S)


@tied("eq-invariant")
def invariant(at: Place) -> None:
    shannon = at.formula(r"H \approx \log n -")

    def entropy(alpha: float, n: float) -> float:
        return float(shannon.value({r"H \approx": ""}, n=n, **{r"\alpha": alpha}))

    # At α = 1, and many keys, this is the mean entropy.
    many = exact.entropy(Normal(), 1.0, 10**6)
    assert np.isclose(entropy(1.0, 1e6), many, rtol=1e-5)
    n0, n = 512.0, 5000.0
    held = brentq(lambda alpha: entropy(alpha, n) - entropy(1.0, n0), 0.1, 5.0, xtol=1e-13)
    at.display().holds(rough=1e-9, n=n, **{"n_0": n0, r"\alpha": lambda n: held})


@tied("proposition-harmonic")
def harmonic(at: Place) -> None:
    keys = np.arange(1.0, 6.0)
    found = minimize_scalar(
        lambda alpha: -float(annealed.gradient(Normal(), alpha, keys).mean()),
        bounds=(0.01, 3.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    mean = float(at.display().value({"n_h =": "", r"\dots": r"\frac13 + \frac14"}, L=5.0))
    assert np.isclose(annealed.best_alpha(Normal(), mean), found.x, rtol=1e-6)
    objective = at.formula(r"\alpha(1 - e^{\alpha^2}/n)")
    value = objective.value(n=3.0, **{r"\alpha": 0.8})
    assert np.isclose(value, annealed.gradient(Normal(), 0.8, 3.0))
