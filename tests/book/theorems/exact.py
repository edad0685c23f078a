"""Checks of the exact expectations. Means over rows of two and three keys are by brute force:
quadrature over all scores at once, where the book has integrals over one.
"""  # noqa: D205

import math
from functools import cache

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

from attnlib import exact
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import cosine, independent, normal, of_row, slope
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


@cache
def largest_of(n: int) -> float:
    """Return E max of n normal numbers, as an integral over its distribution function."""

    def integrand(x):
        return x * n * normal_density(x) * ndtr(x) ** (n - 1)

    return quad(integrand, -12, 12, epsabs=1e-13)[0]


@tied(r"exact: Y = \frac{\sum")
def ratio(at: Place) -> None:
    row = normal_rows(2)
    at.display().holds(**row)
    mean = float(at.formula(r"G(\alpha) =").value({r"G(\alpha) =": ""}, **row))
    assert np.isclose(mean, gradient(ALPHA, 2), rtol=1e-7)


@tied("eq-exact-phi")
def phi(at: Place) -> None:
    (s,), mean = independent(normal(60))

    @cache
    def gumbel(u):  # P(αs + X ≤ u)
        def integrand(x):
            return math.exp(-x - math.exp(-x)) * ndtr((u - x) / ALPHA)

        return quad(integrand, -5, 40)[0]

    for u in (-0.5, 1.0):
        at.display().holds(
            s=s,
            E=mean,
            relative=1e-7,
            **{
                r"\varphi": lambda x: gumbel(-math.log(x)),
                r"\lambda": math.exp(-u),
                r"\alpha": ALPHA,
            },
        )
    at.formula(r"1/Z^2 = \int").holds(Z=1.7)


@tied("thm-exact-integrals")
def integrals(at: Place) -> None:
    (s,), over_one = independent(normal(60))
    row = normal_rows(3)

    def a(k):
        return lambda x: over_one(np.exp(k * ALPHA * s - x * np.exp(ALPHA * s)))

    for k in (2.0, 1.5):
        at.display().holds(relative=1e-6, k=k, A_k=a(k), **row, **{r"\varphi": a(0)})
        known = {"k": k, "A_k": a(k), "s": s, "E": over_one, r"\alpha": ALPHA, r"\lambda": 0.4}
        at.formula(r"A_k(\lambda) =").holds(**known)
        at.formula(r"Z^{-k} =").holds(k=k, Z=1.7)
    at.formula(r"A_1 =").holds(relative=1e-8, A_1=a(1)(0.4), **{r"\varphi'": slope(a(0), 0.4)})
    at.formula(r"A_2 =").holds(
        relative=1e-5,
        A_2=a(2)(0.4),
        **{r"\varphi''": slope(lambda x: slope(a(0), x, 1e-2), 0.4, 1e-2)},
    )
    at.formula(r"\log Z = \int").holds({r"\,d\lambda/\lambda": r"\frac{d\lambda}{\lambda}"}, Z=1.7)
    first = at.formula(r"\operatorname{E}\sum_i p_i^k = n")
    first.holds(**{**row, "s": [None, row["s"][0]]}, k=1.5)


@cache
def along_the_scale(n: int):
    grid = np.geomspace(1e-3, 1e4, 40)
    return grid, exact.gradient(Normal(), grid, n)


def mean_gradient(at: Place, beginning: str) -> None:
    """Check E Σ p_i s_i = Φ'(α) = G(α), in any order, where it begins so."""
    for n in (2, 3):
        at.formula(beginning).holds(
            relative=1e-7,
            **normal_rows(n),
            **{
                "G": lambda alpha, n=n: gradient(alpha, n),
                r"\Phi'": slope_of_free_energy(n),
            },
        )


@tied("thm-exact-no-maximum")
def no_maximum(at: Place) -> None:
    mean_gradient(at, r"G(\alpha) = \operatorname{E}\sum")
    for n in (2, 3, 50):
        grid, values = along_the_scale(n)
        assert (np.diff(values) > 0).all()
        assert (values < grid).all()
        assert np.isclose(values[-1], largest_of(n), rtol=1e-6)
    row = normal_rows(2)
    phi = free_energy(2)
    at.formula(r"\Phi(\alpha) =").holds(relative=1e-9, **row, **{r"\Phi": phi})
    (s,), mean = independent(normal(60))
    at.formula(r"\operatorname{E} s b(s)").holds(
        s=s, E=mean, b=np.tanh, **{"b'": lambda x: 1 / np.cosh(x) ** 2}, relative=1e-7
    )
    by_own_score = at.formula(r"\alpha p_i(1 - p_i)").value(**row)
    shifted = [of_row([row["s"][0] + shift, row["s"][1]], ALPHA)["p"][0] for shift in (1e-5, -1e-5)]
    assert np.allclose(by_own_score, (shifted[0] - shifted[1]) / 2e-5, atol=1e-9)
    identity = at.formula(r"\alpha\operatorname{E}(1 - Y) =")
    identity.holds(**row, G=gradient(ALPHA, 2), relative=1e-7)
    bound = at.formula(r"G = \alpha\operatorname{E}(1 - Y) <")
    bound.holds(**row, G=gradient(ALPHA, 2), relative=1e-7)


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


@tied("lem-exact-gumbel")
def density_of_the_gap(at: Place) -> None:
    density, below, _ = noisy(1 / ALPHA)
    for n in (2, 3, 5):
        at.display().holds(
            relative=1e-6,
            n=n,
            G=lambda alpha, n=n: gradient(alpha, n),
            f_t=density,
            F_t=below,
            **{r"\alpha": ALPHA},
        )
    row = of_row([0.3, -0.8, 1.1], ALPHA)
    known = {"s": row["s"], "p": row["p"], "Z": row["Z"], "i": 0, "j": 2, r"\alpha": ALPHA}
    pair = at.formula(r"\int e^{\alpha s_i - u}")
    value = pair.value({r"\int": r"\int_{-6}^{40}"}, **known)
    assert np.isclose(value, row["p"][0] * row["p"][2], rtol=1e-7)
    at.formula(r"e^{\alpha s_i}e^{\alpha s_j}\int").holds(**known, relative=1e-7)
    at.formula(r"g = \alpha(1 - Y)").holds(g=ALPHA * (1 - row["Y"]), **{**known, "Y": row["Y"]})


@tied("thm-exact-gap")
def gap(at: Place) -> None:
    formula = at.formula(r"\rho = n(n-1)")
    for n in (2, 5):
        known = {"n": n, "f": normal_density, "F": ndtr}
        rho = float(formula.value({r"\rho =": ""}, **known))
        assert np.isclose(rho, largest_of(n))
        assert np.isclose(rho, gradient(1e4, n), rtol=1e-6)
        # A cosine in 3 dimensions is uniform.
        uniform = {"n": n, "f": lambda x: 0.5, "F": lambda x: (x + 1) / 2}
        flat = formula.value({r"\rho =": "", r"\int": r"\int_{-1}^1"}, **uniform)
        assert np.isclose(flat, gradient(1e3, n, Cosine(3)), rtol=1e-2)
    of_normal = at.formula(r"\rho = \operatorname{E}\max")
    limit = at.formula(r"G(\alpha) \to \rho")
    known = {r"\rho": largest_of(5), r"\alpha": 1e4}
    limit.holds(rough=1e-6, G=lambda alpha: gradient(alpha, 5), **known)
    of_normal.holds({r"\operatorname{E}\max_i s_i": "m"}, m=largest_of(5), **known)
    fall = at.formula("f' = -sf")
    fall.holds(s=0.3, f=normal_density(0.3), **{"f'": slope(normal_density, 0.3)})


@tied("thm-exact-log-concave")
def log_concave(at: Place) -> None:
    t = 1 / ALPHA
    density, _, quantile = noisy(t)
    integral = at.formula(r"G(\alpha) = n(n-1)")
    for n in (2, 4):
        integral.holds(
            {"Q_t'(u)": "D(u)"},
            relative=1e-5,
            n=n,
            G=lambda alpha, n=n: gradient(alpha, n),
            D=lambda u: 1 / density(quantile(u)),
            **{r"\alpha": ALPHA},
        )
    moved = (noisy(t + 1e-3)[2](0.7) - noisy(t - 1e-3)[2](0.7)) / 2e-3
    known = {"t": t, "v": quantile(0.7), "h": lambda x: math.exp(-x - math.exp(-x))}
    at.formula(r"\frac{\partial Q_t(u)}{\partial t} =").holds(
        {r"\frac{\partial Q_t(u)}{\partial t}": "D", r"\int": r"\int_{-5}^{40}"},
        relative=1e-5,
        D=moved,
        f=normal_density,
        **known,
    )
    at.formula("h(x) = ").holds(x=0.3, h=stats.gumbel_r.pdf)
    product = at.formula("f(v - tx)")
    at_two = {"t": t, "v": 0.3, "v'": 0.9, "x": -0.4, "x'": 0.8}
    # Equality for densities that are exponential where the four numbers are, of either slope.
    for f in (normal_density, math.exp, lambda s: math.exp(-s)):
        product.holds(f=f, **at_two)


@tied("prop-exact-only-normal")
def only_normal(at: Place) -> None:
    identity = at.formula(r"\Phi'(\alpha) = G(\alpha)")
    for n in (2, 3):
        known = {"G": lambda alpha, n=n: gradient(alpha, n), r"\alpha": ALPHA}
        identity.holds(relative=1e-7, **known, **{r"\Phi'": slope_of_free_energy(n)})
    other = [gradient(ALPHA, 2, Cosine(5)), slope_of_free_energy(2, Cosine(5))(ALPHA)]
    assert abs(other[0] / other[1] - 5) < 0.5  # the variance is 1/5, and they differ besides
    n = 2**53
    for law in (Normal(), Cosine(5)):
        kappa = lambda alpha, law=law: float(law.log_mgf(alpha))  # noqa: E731
        known = {
            "n": n,
            r"\alpha": 0.7,
            r"\kappa": kappa,
            r"\kappa'": lambda alpha, k=kappa: slope(k, alpha, 1e-3),
            "G": lambda alpha, law=law: gradient(alpha, n, law),
            r"\Phi'": slope_of_free_energy(n, law),
        }
        at.formula(r"\Phi'(\alpha) \to").holds(rough=1e-6, **known)
        at.formula(r"G(\alpha) \to").holds(rough=1e-6, **known)
        shifted = at.formula(r"\Phi - \log n \to")
        shifted.holds(rough=1e-6, **{**known, r"\Phi": free_energy(n, law)(0.7)})
    known |= {r"\kappa": lambda alpha: alpha**2 / 2, r"\kappa'": lambda alpha: alpha}
    at.formula(r"\kappa'(\alpha) = \alpha").holds(**known)
    at.formula(r"\kappa(\alpha) = \frac12").holds(**known)


@tied(r"exact: \Phi'(\alpha) = \frac{\alpha}{d-1}")
def cosines(at: Place) -> None:
    d = 5
    s, mean = independent(cosine(d), cosine(d))
    row = of_row(s, ALPHA)
    spread = sum((1 - x**2) * p * (1 - p) for x, p in zip(s, row["p"], strict=True))
    at.display().holds(
        relative=1e-8,
        **row,
        d=d,
        E=mean,
        W=spread,
        **{r"\Phi'": slope_of_free_energy(2, Cosine(d))},
    )


@tied(r"exact: Y = \frac{K")
def two_levels(at: Place) -> None:
    for n, k in ((5, 2), (7, 1)):
        s = np.zeros(n)
        s[:k] = 1.0
        at.display().holds(Y=of_row(list(s), ALPHA)["Y"], n=n, K=k, **{r"\alpha": ALPHA})


@tied(r"exact: G(\alpha) = \int")
def of_two(at: Place) -> None:
    at.display().holds(
        relative=1e-8,
        G=lambda alpha: gradient(alpha, 2),
        **{r"\alpha": ALPHA},
    )
    row = of_row([0.7, 0.0], ALPHA)
    at.formula("1 - Y = 2p_1p_2").holds(
        Y=row["Y"], p=[None, *row["p"]], **{r"\alpha": ALPHA, r"\Delta": 0.7}
    )
    at.formula(r"w = \alpha\Delta/2").holds(w=0.42, **{r"\alpha": 1.2, r"\Delta": 0.7})
    density = at.formula(r"e^{-\Delta^2/4}")
    assert np.isclose(density.value(**{r"\Delta": 0.7}), stats.norm(0, math.sqrt(2)).pdf(0.7))
    at.formula(r"2/\sqrt{4\pi} =").holds()
    limit = float(at.formula(r"2/\sqrt{4\pi} =").value())
    assert np.isclose(limit, gradient(1e4, 2))
