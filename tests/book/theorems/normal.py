"""Checks of the approximation and its maximum: normal, cosine_proofs.

Optima are found by a search, means by quadrature, limits approached with many keys.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, exp1, lambertw

from attnlib import annealed, exact
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import (
    highest,
    independent,
    itself,
    normal,
    of_row,
    slope,
)
from tests.book.theorems.registry import tied


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


@tied("eq-asymptotic")
def asymptotic(at: Place) -> None:
    for n in (1e3, 1e300):
        alpha = float(annealed.best_alpha(Normal(), n))
        at.display().holds(n=n, rough=1.0 if n < 1e300 else 2e-4, alpha_star=alpha)


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
    found = {"H": float(exact.entropy(Cosine(3), alpha, 1e4)), "H_2": 2 * energy - twice}
    at.formula(r"\operatorname{E} H \to").holds(rough=1e-4, E=itself, m=m, Psi=_ein, **found)


@tied(r"cosine_proofs: H &= \log S")
def entropies_of_points(at: Place) -> None:
    u = np.array([0.2, 1.1, 3.0])
    powers = np.exp(-u)
    p = powers / powers.sum()
    found = {"H": -(p * np.log(p)).sum(), "H_2": -np.log((p**2).sum())}
    at.display().holds(S=powers.sum(), S_2=(powers**2).sum(), u=u, i_in=range(3), **found)


@tied(r"cosine_proofs: \operatorname{E}\log S \to")
def mean_logarithm(at: Place) -> None:
    _, alpha, _ = _points(3, 1e4)
    S = math.exp(float(exact.free_energy(Cosine(3), alpha, 1e4)) - alpha)  # noqa: N806 - as there
    at.display().holds(rough=1e-2, absolute=2e-4, S=S, E=itself, Psi=_ein)


@tied("eq-invariant")
def invariant(at: Place) -> None:
    shannon = at.formula(r"H \approx \log n -")
    # At α = 1, and many keys, this is the mean entropy.
    many = exact.entropy(Normal(), 1.0, 10**6)
    assert np.isclose(shannon.value(alpha=1.0, n=1e6), many, rtol=1e-5)
    held = brentq(
        lambda a: float(shannon.value(alpha=a, n=5000.0) - shannon.value(alpha=1.0, n=512.0)),
        *(0.1, 5.0),
        xtol=1e-13,
    )
    at.display().holds(rough=1e-9, n=5000.0, n_0=512.0, alpha=lambda n: held)


@tied("proposition-harmonic")
def harmonic(at: Place) -> None:
    keys = np.arange(1.0, 6.0)
    best, _ = highest(lambda a: float(annealed.gradient(Normal(), a, keys).mean()), 0.01, 3.0)
    mean = float(at.display().value({r"\dots": r"\frac13 + \frac14"}, L=5.0))
    assert np.isclose(annealed.best_alpha(Normal(), mean), best, rtol=1e-6)
