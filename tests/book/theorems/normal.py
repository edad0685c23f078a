"""Checks of the approximation and its maximum: normal, cosine_proofs.

Optima are found by a search, means by quadrature, limits approached with many keys.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betainc, exp1, lambertw

from attnlib import annealed, exact
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import (
    highest,
    itself,
    of_row,
    slope,
)
from tests.book.theorems.registry import tied


@tied("theorem-best-normal")
def best_scale(at: Place) -> None:
    for n in (3.0, 512.0):
        value = at.formula(r"\alpha(1 - e^{\alpha^2}/n)").value(n=n, alpha=0.9)
        assert np.isclose(value, annealed.gradient(Normal(), 0.9, n))
        best, _ = highest(lambda a, n=n: float(annealed.gradient(Normal(), a, n)), 0.01, 5.0)
        known = {"n": n, "alpha": best, "alpha_star": best, "W": lambda x: lambertw(x).real}
        at.formula(r"(1 + 2\alpha^2)\,e^").holds(relative=1e-6, **known)
        at.formula(r"\alpha^* =").holds(relative=1e-6, **known)
    at.formula("we^w = x").holds(w=lambertw(0.7).real, x=0.7)


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
        m = float(at.formula("m = (d-1)/2").value(d=d))
        _, alpha, count = _points(d, n)
        for u in (0.5, 3.0):
            at.display().holds(relative=1e-3, m=m, u=u, Lambda=count)
    _, alpha, count = _points(3, 1e9)
    rises = lambda u: float(slope(count, u, 1e-3 * u))  # noqa: E731
    value = float(at.formula(r"\Psi(v) = \int").value(v=1.5, Lambda_prime=rises))
    assert np.isclose(value, _ein(1.5), rtol=1e-3)
    row, point = of_row([0.3, 0.9], 2.0), at.formula(r"u_i = \alpha(1")
    points = [float(point.value(**{**row, "s_i": x})) for x in (*row["s"], 1.0)]
    weights = at.formula(r"e^{-u_i}/\sum_j")
    assert np.isclose(weights.value(**{**row, "u": points[:2]}), row["p"][0])
    assert points[2] == 0.0
    m, alpha, _ = _points(3, 1e4)
    energy, twice = (float(exact.free_energy(Cosine(3), k * alpha, 1e4)) for k in (1, 2))
    entropies = {"H": float(exact.entropy(Cosine(3), alpha, 1e4)), "H_2": 2 * energy - twice}
    at.formula(r"\operatorname{E} H \to").holds(rough=1e-4, E=itself, m=m, Psi=_ein, **entropies)


@tied("proposition-harmonic")
def harmonic(at: Place) -> None:
    keys = np.arange(1.0, 6.0)
    best, _ = highest(lambda a: float(annealed.gradient(Normal(), a, keys).mean()), 0.01, 3.0)
    mean = float(at.display().value({r"\dots": r"\frac13 + \frac14"}, L=5.0))
    assert np.isclose(annealed.best_alpha(Normal(), mean), best, rtol=1e-6)
