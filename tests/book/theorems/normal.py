"""Checks of the approximation and its maximum: normal, entropy.

Optima are found by a search, means by quadrature.
"""

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import lambertw

from attnlib import annealed, exact
from attnlib.scores import Cosine, DotProduct, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import chi_square, independent, normal, of_row, slope, some_rows
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
