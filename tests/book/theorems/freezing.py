"""Checks of freezing: bounds, the annealed range, and the frozen phase.

Limits are approached with many keys. Where floats have none so many, the mean over one key against
its crowd is taken at a given log n, by quadrature on the line.
"""

import math
from functools import cache
from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import digamma, expit, gammaln, log_expit

from attnlib import exact, freezing
from attnlib.scores import Normal
from tests.book.formulas import Place
from tests.book.theorems.exact import (
    free_energy,
    gradient,
)
from tests.book.theorems.numbers import independent, itself, normal
from tests.book.theorems.registry import tied

MANY = 2**53


def frozen_limit(x: float) -> float:
    """Return the limit of E H at α = x α_c."""
    return float(digamma(1.0) - digamma(1.0 - 1.0 / x))


@cache
def collisions(alpha: float, n: int) -> float:
    """Return E Y, computed from its integral."""
    return float(exact.collision_probability(Normal(), alpha, n))


@cache
def entropy(alpha: float, n: int) -> float:
    return float(exact.entropy(Normal(), alpha, n))


def critical(n: float) -> float:
    return float(freezing.critical_alpha(n))


def crowd(n: float, alpha: float) -> float:
    return math.log(n - 1) + alpha**2 / 2


def one_key(alpha: float, n: float) -> float:
    """Return B, the mean over one key against its crowd, by the trapezoidal rule."""
    c, step = crowd(n, alpha), 0.02
    s = min(2 * alpha, c / alpha) + np.arange(-12.0, 12.0, step)
    logs = math.log(n) + 2 * log_expit(alpha * s - c) - s * s / 2
    return float(step * np.exp(logs).sum() / math.sqrt(2 * math.pi))


@tied("thm-freezing-bounds")
def bounds(at: Place) -> None:
    always = at.formula(r"G \le \min"), at.formula(r"\operatorname{E} Y \ge")
    spread, frozen = at.beginning(r"\Phi \le", 2)
    entropy_bound = at.formula(r"\log n - \frac12\alpha^2")
    low = at.formula(r"\frac12\alpha^2\operatorname{E} Y")
    high = at.formula(r"\alpha^2\operatorname{E} Y")
    for n in (2, 512, 10**12):
        for x in (0.3, 0.7, 1.0, 3.0):
            alpha = x * critical(n)
            known = {"n": n, "alpha": alpha, "alpha_c": critical(n), "E": itself}
            known |= {"G": gradient(alpha, n), "Y": collisions(alpha, n)}
            known["Phi"] = free_energy(n)(alpha)
            for bound in (*always, spread, *([frozen] if x >= 1.0 else [])):
                bound.holds(**known)
            excess = entropy(alpha, n) - float(entropy_bound.value(**known))
            assert float(low.value(**known)) * (1 - 1e-9) <= excess
            assert excess <= float(high.value(**known)) * (1 + 1e-9)
    # Where the bounds are reached: with few keys at a small α, and with many below freezing.
    few = {"n": 16, "alpha": 0.01, "Y": collisions(0.01, 16), "E": itself}
    excess = entropy(0.01, 16) - float(entropy_bound.value(**few))
    assert np.isclose(excess, low.value(**few), rtol=1e-2)
    many = {"n": 10**6, "alpha": 1.0, "Phi": free_energy(10**6)(1.0)}
    assert np.isclose(*spread.values(**many)[0], rtol=1e-5)


@tied("thm-freezing-crowd")
def one_against_the_crowd(at: Place) -> None:
    (s,), mean = independent(normal(80))
    for n, alpha in ((10, 1.0), (10**6, 2.0)):
        mu = float(at.formula(r"\mu = \log(n-1)").value(n=n, alpha=alpha))
        assert np.isclose(math.exp(mu), (n - 1) * mean(np.exp(alpha * s)))
        bound = one_key(alpha, n)
        known = {"n": n, "alpha": alpha, "s": s, "mu": mu, "E": mean, "Lambda": expit}
        at.display().holds(relative=1e-6, B=bound, **known)
        at.formula(r"\operatorname{E}Y \ge B").holds(B=bound, E=itself, Y=collisions(alpha, n))


@cache
def mean_of_one_key(x: float, log_n: float) -> float:
    """Return B/(e^{α²}/n) at α = xα_c for very many keys, without the numbers of keys."""
    alpha = x * math.sqrt(2 * log_n)
    shift = 1.5 * alpha**2 - log_n

    def integrand(s):
        return math.exp(-s * s / 2 - 2 * np.logaddexp(0.0, alpha * s + shift))

    edge = -shift / alpha
    points = sorted({-30.0, min(max(edge, -30.0), 30.0), 30.0})
    total = sum(quad(integrand, a, b, limit=400)[0] for a, b in pairwise(points))
    return total / math.sqrt(2 * math.pi)


@tied("thm-freezing-annealed")
def annealed_in_the_mean(at: Place) -> None:
    for x in (0.3, 0.55, 1 / math.sqrt(3), 0.62):
        limit = mean_of_one_key(x, 1e6)
        assert abs(float(at.display().value(x=x)) - limit) < 1e-3
    alpha = 0.3 * critical(MANY)
    formula = at.same(r"e^{\alpha^2}/n").value(n=MANY, alpha=alpha)
    assert np.isclose(collisions(alpha, MANY) / formula, at.display().value(x=0.3), rtol=1e-3)
    n = 1e300
    for x in (0.65, 0.75):
        alpha = x * critical(n)
        known = {"n": n, "x": x, "E": itself, "alpha": alpha}
        known["Y"] = one_key(alpha, n)
        known["tau"] = (1.0 / x - x) ** 2 / 4.0
        known["delta"] = math.log(n) / alpha**2 - 0.5
        at.formula(r"\operatorname{E}Y &\sim").holds(rough=3e-2, **known)


@tied("prop-freezing-typical")
def typical(at: Place) -> None:
    for x, low, high in ((0.3, 0.99, 1.0), (0.7, 0.0, 0.2)):
        alpha = x * critical(MANY)
        log_y = free_energy(MANY)(2 * alpha) - 2 * free_energy(MANY)(alpha)
        known = {"n": MANY, "alpha": alpha, "E": itself, "Y": math.exp(log_y)}
        mean = float(at.same(r"e^{\operatorname{E}\log Y}").value(**known))
        assert low < mean / float(at.same(r"e^{\alpha^2}/n").value(**known)) < high


@tied("thm-freezing-limit")
def limits(at: Place) -> None:
    for x in (0.5, 2.0):
        alpha = x * critical(10**12)
        known = {"x": x, "n": 10**12, "alpha_c": critical(10**12), "E": itself}
        known["G"] = min(alpha, critical(10**12))
        known["Y"] = max(0.0, float(1 - critical(10**12) / alpha))
        known["H"] = max(0.0, math.log(10**12) - alpha**2 / 2)
        at.display().holds(rough=1e-9, **known)


@cache
def beta_moment(x: float, k: float) -> float:
    """Return E p^{k−1} under the Beta law with 1 − 1/x and 1/x: the mean sum of k-th powers."""
    a, b = 1 - 1 / x, 1 / x
    return float(np.exp(gammaln(a + k - 1) - gammaln(a) + gammaln(a + b) - gammaln(a + b + k - 1)))


@tied("prop-freezing-moments")
def frozen_rows(at: Place) -> None:
    powers = {r"\operatorname{E}\sum_i p_i^q": "P"}
    for x, q in ((1.5, 2.0), (3.0, 0.6)):
        known = {"x": x, "q": q, "E": itself, "P": beta_moment(x, q)}
        at.display().holds(powers, rough=1e-8, H=frozen_limit(x), **known)


@tied("prop-freezing-hold")
def held_entropy(at: Place) -> None:
    h, n = 1.1, 1e20
    x = brentq(lambda x: frozen_limit(x) - h, 1.01, 10, xtol=1e-13)
    at.formula(r"\psi(1) - \psi(1 - \frac1x) =").holds(x=x, h=h)
    alpha = at.formula(r"\alpha(n) \sim")
    alpha.holds(rough=1e-9, x=x, n=n, alpha=lambda n: x * critical(n))
