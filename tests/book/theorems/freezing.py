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
from scipy.special import digamma, erfcx, expit, gammaln, log_expit, ndtr, xlogy

from attnlib import exact, freezing
from attnlib.scores import Normal
from tests.book.formulas import Formula, Place
from tests.book.theorems.exact import (
    free_energy,
    gradient,
    mean_gradient,
    normal_density,
    normal_rows,
)
from tests.book.theorems.numbers import independent, itself, normal, of_row
from tests.book.theorems.registry import EQUIVALENT, tied

MANY = 2**53


@cache
def collisions(alpha: float, n: int) -> float:
    """Return E Y, computed from its integral."""
    return float(exact.collision_probability(Normal(), alpha, n))


@cache
def entropy(alpha: float, n: int) -> float:
    return float(exact.entropy(Normal(), alpha, n))


def critical(n: float) -> float:
    return float(freezing.critical_alpha(n))


def right(formula: Formula, left: str, **names) -> float:
    """Return what a formula says that a letter is."""
    return float(formula.value({f"{left} =": ""}, **names))


@tied("eq-freezing-count")
def count(at: Place) -> None:
    n, y = 1000.0, 0.7
    a = y * critical(n)
    expected = float(at.formula(r"n\,e^{-a^2/2}").value(n=n, a=a))
    assert np.isclose(expected, n * math.exp(-a * a / 2))
    assert np.isclose(at.display().value(n=n, y=y), expected)
    at.formula(r"\log n = \frac12").holds(n=n, **{r"\alpha_c": critical(n)})
    at.formula(r"a = y\,\alpha_c").holds(a=a, y=y, **{r"\alpha_c": critical(n)})


@tied("eq-freezing-weight")
def weight(at: Place) -> None:
    n, x, y = 1000.0, 0.4, 0.7
    alpha, s = x * critical(n), y * critical(n)
    number = n * math.exp(-s * s / 2)
    assert np.isclose(at.display().value(n=n, x=x, y=y), number * math.exp(alpha * s))
    at.formula(r"e^{\alpha s} =").holds(n=n, x=x, y=y, s=s, **{r"\alpha": alpha})
    at.formula(r"\alpha = x\,\alpha_c").holds(x=x, **{r"\alpha": alpha, r"\alpha_c": critical(n)})
    peak = at.display()
    around = [float(peak.value(n=n, x=x, y=at_)) for at_ in (x - 0.01, x, x + 0.01)]
    assert max(around) == around[1]
    assert np.isclose(at.formula("n^{1-x^2}").value(n=n, x=x), n * math.exp(-(alpha**2) / 2))


@tied("eq-freezing-free-energy")
def exponent(at: Place) -> None:
    n = 1e6
    for x in (0.3, 1.0, 1.8):
        limit = 1 + x**2 if x <= 1 else 2 * x
        at.display().holds({r"\frac{\log Z}{\log n}": "L"}, rough=1e-9, x=x, n=n, L=limit)
        near, far = (free_energy(k)(x * critical(k)) / math.log(k) for k in (10**3, MANY))
        assert abs(far - limit) < 0.15
        assert abs(far - limit) < abs(near - limit) + 1e-9


@tied("lem-freezing-slopes")
def slopes(at: Place) -> None:
    mean_gradient(at, r"\Phi'(\alpha) =")
    row = normal_rows(3)
    at.formula(r"G = \operatorname{E}\alpha").holds(
        relative=1e-7, **row, G=gradient(row[r"\alpha"], 3)
    )
    larger = normal_rows(3, row[r"\alpha"] + 0.1)
    for grows in (*at.all_same(r"\sum_i p_i s_i", 2), *at.all_same("Y", 2)):
        growth = grows.value(**larger) - grows.value(**row)
        assert growth.min() > -1e-12  # two equal scores keep equal weights
        assert growth.max() > 0.01


@tied("thm-freezing-bounds")
def bounds(at: Place) -> None:
    first, second = at.formula(r"G \le \min"), at.formula(r"\operatorname{E} Y \ge")
    spread, frozen, jensen = at.beginning(r"\Phi \le", 3)
    [entropy_bound, with_rest] = at.beginning(r"\log n - \frac12\alpha^2", 2)
    low = at.formula(r"\frac12\alpha^2\operatorname{E} Y")
    high = at.formula(r"\alpha^2\operatorname{E} Y")
    for n in (2, 512, 10**12):
        for alpha in (0.3, 2.0, critical(n) * 0.7, critical(n), critical(n) * 3):
            known = {
                "n": n,
                r"\alpha": alpha,
                r"\alpha_c": critical(n),
                "G": gradient(alpha, n),
                "Y": collisions(alpha, n),
                "E": itself,
                r"\Phi": free_energy(n)(alpha),
            }
            first.holds(**known)
            second.holds(**known)
            spread.holds(**known)
            jensen.holds(Z=n * math.exp(alpha**2 / 2), **known)
            if alpha >= critical(n):
                frozen.holds(**known)
            excess = entropy(alpha, n) - float(entropy_bound.value(**known))
            assert float(low.value(**known)) * (1 - 1e-9) <= excess
            assert excess <= float(high.value(**known)) * (1 + 1e-9)
            R = math.log(n) + alpha**2 / 2 - known[r"\Phi"]  # noqa: N806 - as the page has it
            if n < 1000:  # beyond, it is lost in the difference
                at.formula(r"0 \le D \le").holds(D=R, **known)
            of_entropy = at.formula(r"\operatorname{E}H =")
            of_entropy.holds(H=entropy(alpha, n), relative=1e-7, **known)
            assert np.isclose(with_rest.value(D=R, **known), entropy(alpha, n), atol=1e-7)
            if n == 512:
                at.display().holds(
                    D=R,
                    relative=1e-7,
                    **{**known, "Y": lambda a: collisions(float(a), 512)},
                )
    # Where the bounds are reached: with few keys at a small α, and with many below freezing.
    few = {"n": 16, r"\alpha": 0.01, "Y": collisions(0.01, 16), "E": itself}
    excess = entropy(0.01, 16) - float(entropy_bound.value(**few))
    assert np.isclose(excess, low.value(**few), rtol=1e-2)
    assert np.isclose(rest(16, 0.01), at.formula(r"0 \le D \le").value(D=0, **few), rtol=1e-2)
    many = {"n": 10**6, r"\alpha": 1.0, r"\Phi": free_energy(10**6)(1.0)}
    assert np.isclose(*spread.values(**many)[0], rtol=1e-5)
    at.formula(r"\Phi' = a(1 -").holds(
        a=1.3, E=itself, **{"Y_a": collisions(1.3, 50), r"\Phi'": gradient(1.3, 50)}
    )


def crowd(n: float, alpha: float) -> float:
    return math.log(n - 1) + alpha**2 / 2


def one_key(alpha: float, n: float) -> float:
    """Return B, the mean over one key against its crowd, by the trapezoidal rule."""
    c, step = crowd(n, alpha), 0.02
    s = min(2 * alpha, c / alpha) + np.arange(-12.0, 12.0, step)
    logs = math.log(n) + 2 * log_expit(alpha * s - c) - s * s / 2
    return float(step * np.exp(logs).sum() / math.sqrt(2 * math.pi))


@tied("thm-freezing-crowd")
def one_against_the_crowd(at: Place) -> None:
    (s,), mean = independent(normal(80))
    centre = at.formula(r"\mu = \log(n-1)")
    for n, alpha in ((10, 1.0), (10**6, 2.0)):
        c = right(centre, r"\mu", n=n, **{r"\alpha": alpha})
        assert np.isclose(math.exp(c), (n - 1) * mean(np.exp(alpha * s)))
        bound = one_key(alpha, n)
        known = {"n": n, r"\alpha": alpha, "s": s, r"\mu": c, "E": mean, r"\Lambda": expit}
        at.display().holds(relative=1e-6, B=bound, **known)
        known |= {"E": itself, "Y": collisions(alpha, n)}
        for at_least in at.beginning(r"\operatorname{E}Y \ge B", 2):
            at_least.holds(B=bound, **known)
    alpha = 0.4 * critical(10**12)
    assert collisions(alpha, 10**12) < 1.01 * one_key(alpha, 10**12)
    row = of_row([0.3, -0.8, 1.1], 1.3)
    others = row["Z"] - math.exp(1.3 * 0.3)
    at.formula("p_1 = e^").holds(s=0.3, p=[None, row["p"][0]], **{r"\alpha": 1.3, "Z'": others})
    n, x, y = 1e15, 0.5, 0.7
    terms, largest = n * math.exp((x * critical(n)) ** 2 / 2), math.exp(x * y * critical(n) ** 2)
    at.formula(r"m/M \approx").holds(rough=1e-9, n=n, x=x, y=y, m=terms, M=largest)


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


EQUIVALENT["thm-freezing-annealed", r"\int e^{-(1-\delta)w}"] = "the integral is even in δ"


@tied("thm-freezing-annealed")
def annealed_in_the_mean(at: Place) -> None:
    for x in (0.3, 0.55, 1 / math.sqrt(3), 0.62):
        limit = mean_of_one_key(x, 1e6)
        assert abs(float(at.display().value(x=x)) - limit) < 1e-3
    alpha = 0.3 * critical(MANY)
    formula = at.same(r"e^{\alpha^2}/n").value(n=MANY, **{r"\alpha": alpha})
    assert np.isclose(collisions(alpha, MANY) / formula, at.display().value(x=0.3), rtol=1e-3)
    bound = at.formula(r"1/\sqrt3 < x < 1")
    bound.holds(x=0.8)
    low, _, high = bound.values(x=0.8)[0]
    assert np.isclose(low, freezing.annealed_mean_bound(50.0) / critical(50.0))
    assert high == 1.0
    between = at.formula(r"\operatorname{E}Y &\sim")
    n = 1e300
    for x in (0.65, 0.75):
        alpha = x * critical(n)
        between.holds(
            rough=3e-2,
            n=n,
            x=x,
            Y=one_key(alpha, n),
            E=itself,
            **{
                r"\alpha": alpha,
                r"\tau": float(freezing.collision_exponent(x)),
                r"\delta": math.log(n) / alpha**2 - 0.5,
            },
        )
    (s,), mean = independent(normal(80))
    n, alpha = 50.0, 1.1
    known = {"n": n, r"\alpha": alpha, r"\mu": crowd(n, alpha), "s": s, "E": mean}
    library = one_key(alpha, n)
    at.formula(r"B = \frac{n\,e").holds(relative=1e-7, B=library, **known)
    at.formula(r"\Lambda(u)^2 =").holds(u=0.4, **{r"\Lambda": expit})
    integral = at.formula(r"\int e^{-(1+\delta)w}")
    integral.holds(
        {r"\int": r"\int_{-60}^{60}"}, relative=1e-7, **{r"\delta": 0.3, r"\Lambda": expit}
    )
    n, x = 1e300, 0.7
    alpha = x * critical(n)
    known = {r"\alpha": alpha, r"\mu": crowd(n, alpha), "x": x, "n": n, r"\alpha_c": critical(n)}
    known[r"\delta"] = float(1 / x**2 - 1) / 2
    for limit in (r"2\alpha^2 - \mu \approx", r"\mu/\alpha^2 \to", r"\mu/\alpha \approx"):
        at.formula(limit).holds(rough=1e-9, **known)
    moved = at.formula("f(s) =")
    density = lambda z: math.exp(-z * z / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    w, c, alpha = 0.3, 1.4, 1.2
    moved.holds(w=w, f=density, s=(c + w) / alpha, **{r"\alpha": alpha, r"\mu": c})
    at.formula(r"s = (\mu + w)/").holds(w=w, s=(c + w) / alpha, **{r"\alpha": alpha, r"\mu": c})


@tied("eq-freezing-typical")
def logarithm(at: Place) -> None:
    row = normal_rows(3)
    at.display().holds(relative=1e-7, **row, **{r"\Phi": free_energy(3)})


def rest(n: int, alpha: float) -> float:
    """Return D of the theorem with the bounds."""
    return math.log(n) + alpha**2 / 2 - free_energy(n)(alpha)


@tied("prop-freezing-typical")
def typical(at: Place) -> None:
    below, above = at.beginning(r"x < \frac12", 2), at.beginning(r"x > \frac12", 2)
    bound = float(freezing.annealed_typical_bound(50.0)) / critical(50.0)
    for side in (*below, *above):
        x = 0.3 if side in below else 0.7
        side.holds(x=x)
        assert np.isclose(side.values(x=x)[0][-1], bound)
    for x, low, high in ((0.3, 0.99, 1.0), (0.7, 0.0, 0.2)):
        alpha = x * critical(MANY)
        log_y = free_energy(MANY)(2 * alpha) - 2 * free_energy(MANY)(alpha)
        known = {"n": MANY, r"\alpha": alpha, "E": itself, "Y": math.exp(log_y)}
        mean = float(at.same(r"e^{\operatorname{E}\log Y}").value(**known))
        assert low < mean / float(at.same(r"e^{\alpha^2}/n").value(**known)) < high
    ratio = at.formula(r"2D(\alpha) - D(2\alpha)")
    for n, alpha in ((50, 0.8), (10**6, 3.0)):
        known = {"n": n, r"\alpha": alpha, "D": lambda a, n=n: rest(n, a)}
        logarithm = free_energy(n)(2 * alpha) - 2 * free_energy(n)(alpha)
        assert np.isclose(ratio.value(**known), logarithm - alpha**2 + math.log(n), atol=1e-9)
    n = 10**6
    alpha = 0.8 * critical(n)
    known = {"n": n, r"\alpha": alpha, r"\alpha_c": critical(n), "D": lambda a: rest(n, a)}
    at.display().holds(**known)
    left, right_, _ = at.display().values(**known)[0]
    assert left < 2 * right_
    small = at.formula(r"D \le \frac12\alpha^2\operatorname{E}Y")
    for n in (100, 10**6):
        known = {r"\alpha": 0.3, "E": itself, "Y": collisions(0.3, n)}
        small.holds(rough=1.0, D=rest(n, 0.3), **known)
        left, bound, limit = small.values(D=rest(n, 0.3), **known)[0]
        assert left > 0.9 * bound
        assert abs(bound - limit) < 1 / n


@tied("eq-freezing-scales")
def scales(at: Place) -> None:
    n = 4096.0
    library = (freezing.annealed_typical_bound, freezing.annealed_mean_bound, critical)
    values = [float(value) for [value] in at.display().values(n=n)]
    assert np.allclose(values, [float(function(n)) for function in library])
    ratios = at.formula(r"\frac12 :").values()[0]
    assert np.allclose(np.array(ratios) * critical(n), values)


@tied("thm-freezing-limit")
def limits(at: Place) -> None:
    for x in (0.5, 2.0):
        for n in (10**6, 10**12):
            alpha = x * critical(n)
            known = {"x": x, "n": n, r"\alpha_c": critical(n), "E": itself}
            at.display().holds(
                rough=1e-9,
                G=min(alpha, critical(n)),
                Y=max(0.0, float(1 - critical(n) / alpha)),
                H=max(0.0, math.log(n) - alpha**2 / 2),
                **known,
            )
        found = [
            (
                gradient(x * critical(n), n) / critical(n),
                collisions(x * critical(n), n),
                entropy(x * critical(n), n) / math.log(n),
            )
            for n in (10**3, MANY)
        ]
        stated = [
            float(values[1])
            for values in at.display().values(
                G=0.0, Y=0.0, H=0.0, E=itself, n=10.0, x=x, **{r"\alpha_c": 1.0}
            )
        ]
        near, far = (np.abs(np.array(values) - stated) for values in found)
        assert (far < near).all()
        assert (far < 0.1).all()
    alpha = 3 * critical(MANY)
    known = {r"\alpha": alpha, "E": itself, "x": 3.0}
    at.formula(r"\operatorname{E}Y = 1 - G/").holds(
        rough=0.06, Y=collisions(alpha, MANY), G=gradient(alpha, MANY), **known
    )
    at.formula(r"\operatorname{E}H = \Phi").holds(
        relative=1e-8,
        E=itself,
        H=entropy(2.0, 50),
        G=gradient(2.0, 50),
        **{r"\alpha": 2.0, r"\Phi": free_energy(50)(2.0)},
    )


@cache
def beta_entropy(x: float) -> float:
    """Return the mean of −log p under the Beta law with 1 − 1/x and 1/x, by quadrature in log p."""
    a, b = 1 - 1 / x, 1 / x
    norm = gammaln(a) + gammaln(b) - gammaln(a + b)

    def integrand(u):  # p = 1/(1 + e^{-u}), du = dp/(p(1 − p))
        p, rest_ = expit(u), expit(-u)
        return -math.log(p) * math.exp(xlogy(a, p) + xlogy(b, rest_) - norm)

    return quad(integrand, -200, 200, points=[0.0], limit=400)[0]


@cache
def beta_moment(x: float, k: float) -> float:
    """Return E p^{k−1} under the same Beta law: the mean sum of k-th powers."""
    a, b = 1 - 1 / x, 1 / x
    return float(np.exp(gammaln(a + k - 1) - gammaln(a) + gammaln(a + b) - gammaln(a + b + k - 1)))


@tied("prop-freezing-moments")
def frozen_rows(at: Place) -> None:
    powers = r"\operatorname{E}\sum_i p_i^q"
    for x, q in ((1.5, 2.0), (3.0, 0.6), (3.0, 3.5)):
        for value in (beta_entropy(x), float(freezing.frozen_entropy(x))):
            moment = {"P": beta_moment(x, q)}
            at.display().holds({powers: "P"}, rough=1e-8, x=x, q=q, H=value, E=itself, **moment)
        m, sums = (
            1 / x,
            {r"\operatorname{E}\sum_j p_j^q": "P", r"\operatorname{E}e^{-\lambda Z}": "L"},
        )
        rate = math.gamma(1 - m) * 0.7**m
        process = at.formula(r"\operatorname{E}e^{-\lambda Z}")
        known = {"m": m, "q": q, r"\lambda": 0.7}
        process.holds(sums, relative=1e-6, L=math.exp(-rate), **moment, **known)
        at.formula(r"m\,\Gamma(q - m)").holds(relative=1e-6, **known)
    at.formula(r"q > \frac1x").holds(q=0.6, x=3.0)
    assert np.isclose(float(at.formula(r"q > \frac1x").values(q=0.6, x=3.0)[0][1]), 1 / 3.0)


@tied("lem-freezing-tail")
def small_weights(at: Place) -> None:
    mills = lambda w: math.sqrt(math.pi / 2) * erfcx(max(w, -37.0) / math.sqrt(2))  # noqa: E731
    for n, alpha, q in ((2, 0.9, 1.5), (3, 1.7, 0.6), (3, 3.0, 0.7)):
        a = q * alpha

        def others(m, a=a, n=n):  # with the largest at m: its density, and the mean of the others
            mean = math.exp(a * a / 2 - a * m) * ndtr(m - a)
            return n * (n - 1) * normal_density(m) * ndtr(m) ** (n - 2) * mean

        s, mean = independent(*[normal(40)] * n)
        p = of_row(s, alpha)["p"]
        known = {"n": n, "q": q, "r": mills, "f": normal_density, "F": ndtr, r"\alpha": alpha}
        known["P"] = mean(sum(one**q for one in p))
        bound = at.display()
        bound.holds({r"\operatorname{E}\sum_i p_i^q": "P"}, **known)
        [(_, right_)] = bound.values({r"\operatorname{E}\sum_i p_i^q": "P"}, **known)
        assert np.isclose(right_, 1 + quad(others, -12, 12)[0], rtol=1e-6)
    at.formula("r(w) =").holds(relative=1e-7, w=0.8, r=mills)


@tied("prop-freezing-orders")
def orders(at: Place) -> None:
    n, q = MANY, 3.0
    formula = at.same(r"n^{1-q}e^{(q^2-q)\alpha^2/2}")
    limits = at.formula("x^2 < 1/(2q"), at.formula("x^2 > 1/(2q")
    edge = 1 / math.sqrt(5)
    for x, low, high in ((0.3, 0.98, 1.0), (0.75, 0.0, 0.1)):
        alpha = x * critical(n)
        ratio = float(exact.moment(Normal(), alpha, n, order=q))
        assert low < ratio / float(formula.value(n=n, q=q, **{r"\alpha": alpha})) < high
    for side, x in zip(limits, (edge - 1e-3, edge + 1e-3), strict=True):
        side.holds(q=q, x=x)
        assert np.allclose(side.values(q=q, x=x)[0], [x**2, edge**2])
    (s,), mean = independent(normal(80))
    n, alpha = 50.0, 1.1
    known = {"n": n, "q": 2.5, r"\alpha": alpha, r"\mu": crowd(n, alpha), "s": s, "E": mean}
    by_one_key = n * mean(expit(alpha * s - crowd(n, alpha)) ** 2.5)
    at.formula(r"B_q = n\,e").holds(relative=1e-7, B_q=by_one_key, **known)
    at.formula(r"B_q = n\operatorname{E}").holds(
        relative=1e-7, B_q=by_one_key, **known, **{r"\Lambda": expit}
    )
    n, x = 1e300, 0.7
    alpha = x * critical(n)
    shift = at.formula(r"q\alpha^2 - \mu \approx")
    shift.holds(rough=1e-9, n=n, x=x, q=q, **{r"\alpha": alpha, r"\mu": crowd(n, alpha)})


@tied("eq-freezing-entropy")
def frozen_entropy(at: Place) -> None:
    for x in (1.5, 3.0):
        at.formula(r"\operatorname{E}Y = 1 - \frac1x").holds(x=x, Y=1 - 1 / x, E=itself)
    near, far = (
        collisions(critical(n), n) / float(at.formula(r"1/\sqrt{\pi\log n}").value(n=n))
        for n in (10**4, MANY)
    )
    assert abs(far - 1) < abs(near - 1) < 0.3


@tied("prop-freezing-hold")
def held_entropy(at: Place) -> None:
    h = 1.1
    x = brentq(lambda x: float(freezing.frozen_entropy(x)) - h, 1.01, 10, xtol=1e-13)
    at.formula(r"\psi(1) - \psi(1 - \frac1x) =").holds(x=x, h=h)
    n = 1e20
    alpha = at.formula(r"\alpha(n) \sim")
    alpha.holds(rough=1e-9, x=x, n=n, **{r"\alpha": lambda n: x * critical(n)})
    assert np.isclose(digamma(1) - digamma(1 - 1 / x), h)
    slope_ = at.formula(r"\operatorname{E}H = \Phi - \alpha\Phi'")
    slope_.holds(
        relative=1e-8,
        H=entropy(1.4, 20),
        E=itself,
        **{r"\alpha": 1.4, r"\Phi": free_energy(20)(1.4), r"\Phi'": gradient(1.4, 20)},
    )
