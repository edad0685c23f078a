"""Checks of the exact expectations. Means over rows of two and three keys are by brute force:
quadrature over all scores at once, where the book has integrals over one.
"""  # noqa: D205

import math
from functools import cache

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

from attnlib import exact
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import independent, normal, of_row, slope
from tests.book.theorems.registry import tied

ALPHA = 1.2


def normal_density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@cache
def normal_rows(n: int, alpha: float = ALPHA, points: int = 40):
    """Return the letters of rows of n normal scores, as arrays over many rows, and the mean."""
    s, mean = independent(*[normal(points)] * n)
    return {**of_row(s, alpha), "E": mean}


@cache
def free_energy(n: int, law=None):
    """Return Φ, computed from its integral, as a function of α."""
    return cache(lambda alpha: float(exact.free_energy(law or Normal(), alpha, n)))


def slope_of_free_energy(n: int, law=None):
    return lambda alpha: slope(free_energy(n, law), alpha, 1e-2)


@cache
def gradient(alpha: float, n: int, law=None) -> float:
    """Return G, computed from its integral."""
    return float(exact.gradient(law or Normal(), alpha, n))


def gradient_of(n: int):
    return lambda alpha: gradient(alpha, n)


@cache
def largest_of(n: int) -> float:
    """Return E max of n normal numbers, as an integral over its distribution function."""

    def integrand(x):
        return x * n * normal_density(x) * ndtr(x) ** (n - 1)

    return quad(integrand, -12, 12, epsabs=1e-13)[0]


@tied("thm-exact-integrals")
def integrals(at: Place) -> None:
    (s,), over_one = independent(normal(60))
    row = normal_rows(3)

    def a(k):
        return lambda x: over_one(np.exp(k * ALPHA * s - x * np.exp(ALPHA * s)))

    for k in (2.0, 1.5):
        at.display().holds(relative=1e-6, k=k, A_k=a(k), **row, varphi=a(0))
        known = {"k": k, "A_k": a(k), "s": s, "E": over_one, "alpha": ALPHA, "lambda_": 0.4}
        at.formula(r"A_k(\lambda) =").holds(**known)
    at.formula(r"A_1 =").holds(relative=1e-8, A_1=a(1)(0.4), varphi_prime=slope(a(0), 0.4))
    second = slope(lambda x: slope(a(0), x, 1e-2), 0.4, 1e-2)
    at.formula(r"A_2 =").holds(relative=1e-5, A_2=a(2)(0.4), **{r"\varphi''": second})


def mean_gradient(at: Place) -> None:
    """Check E Σ p_i s_i = Φ'(α) = G(α), in any order, where it is displayed."""
    for n in (2, 3):
        phi_prime = slope_of_free_energy(n)
        row = normal_rows(n)
        at.display().holds(relative=1e-7, **row, G=gradient_of(n), Phi_prime=phi_prime)


@tied("thm-exact-no-maximum")
def no_maximum(at: Place) -> None:
    mean_gradient(at)
    grid = np.geomspace(1e-3, 1e4, 40)
    for n in (2, 50):
        values = exact.gradient(Normal(), grid, n)
        assert (np.diff(values) > 0).all()
        assert (values < grid).all()
        assert np.isclose(values[-1], largest_of(n), rtol=1e-6)
    at.formula(r"\Phi(\alpha) =").holds(**normal_rows(2), Phi=free_energy(2))


def gumbel_density(x):
    return np.exp(-x - np.exp(-x))


@cache
def noisy(t: float):
    """Return the density, distribution function and quantiles of V = s + tX for normal s."""
    x = np.linspace(-4.0, 36.0, 801)
    weights = gumbel_density(x) * (x[1] - x[0])
    scaled = weights / math.sqrt(2 * math.pi)
    density = cache(lambda v: float(np.exp(-((v - t * x) ** 2) / 2) @ scaled))
    below = cache(lambda v: float(ndtr(v - t * x) @ weights))
    ends = -12.0 - 4.0 * t, 12.0 + 36.0 * t
    return density, below, cache(lambda u: brentq(lambda v: below(v) - u, *ends, xtol=1e-11))


@tied("thm-exact-gap")
def gap(at: Place) -> None:
    formula = at.formula(r"\rho = n(n-1)")
    for n in (2, 5):
        rho = float(formula.value(n=n, f=normal_density, F=ndtr))
        assert np.isclose(rho, largest_of(n))
        # A cosine in 3 dimensions is uniform.
        uniform = {"n": n, "f": lambda x: 0.5, "F": lambda x: (x + 1) / 2}
        flat = formula.value({r"\int": r"\int_{-1}^1"}, **uniform)
        assert np.isclose(flat, gradient(1e3, n, Cosine(3)), rtol=1e-2)
    at.formula(r"\rho = \operatorname{E}\max").holds(
        {r"\operatorname{E}\max_i s_i": "m"}, m=largest_of(5), rho=rho
    )
    at.formula(r"G(\alpha) \to \rho").holds(rough=1e-6, rho=rho, alpha=1e4, G=gradient_of(5))


@tied("thm-exact-log-concave")
def log_concave(at: Place) -> None:
    t = 1 / ALPHA
    density, _, quantile = noisy(t)
    for n in (2, 4):
        known = {"n": n, "G": gradient_of(n), "alpha": ALPHA}
        rise = {"D": lambda u: 1 / density(quantile(u))}
        at.display().holds({"Q_t'(u)": "D(u)"}, relative=1e-5, **known, **rise)
