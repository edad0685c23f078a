"""Checks of the chapters on a key to be found: the best scale, calibration, information, reach.

Means over rows of two and three keys are by brute force; what needs many keys is compared with the
integrals of `retrieval`, which are checked against mpmath, or with quadrature over one score.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import betainc, log_ndtr, ndtr

from attnlib import retrieval
from attnlib.retrieval import Fixed, Tilted
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Place
from tests.book.theorems.numbers import Mean, independent, itself, normal, of_row, slope
from tests.book.theorems.registry import EQUIVALENT, tied

THETA = 1.4


def density(s):
    return np.exp(-(np.asarray(s) ** 2) / 2) / math.sqrt(2 * math.pi)


def kappa(alpha):
    return alpha**2 / 2


def rows_with_a_needle(n: int, alpha: float, theta: float = THETA) -> tuple[dict[str, Any], Mean]:
    """Return the letters of rows of n normal keys, the first one the needle, and the mean."""
    (first, *others), mean = independent(*[normal(40)] * n)
    s = [first + theta, *others]
    row = of_row(s, alpha)
    return {**row, "E": mean, r"\theta": theta, "s_*": s[0], "P": row["p"][0]}, mean


def posterior(s: Sequence[float], theta: float = THETA) -> Any:
    """Return how probable each key is to be the needle, by the densities of the rows."""
    joint = [
        np.prod([density(x - theta * (i == j)) for j, x in enumerate(s)]) for i in range(len(s))
    ]
    return np.array(joint) / sum(joint)


@tied("eq-needle-tilt")
def tilted(at: Place) -> None:
    (s,), mean = independent(normal(60))
    for x in (-0.3, 2.0):
        # E e^{θs} is a mean over s, which is also the place at which the densities are taken.
        formula = at.display()
        [[_, value]] = formula.values(
            {r"\operatorname{E}e^{\theta s}": "Z"},
            s=x,
            f=density,
            Z=mean(np.exp(THETA * s)),
            **{r"\theta": THETA, r"f_\theta": density},
        )
        assert np.isclose(value, density(x - THETA))


@tied("thm-needle-scale")
def the_scale(at: Place) -> None:
    s = [0.3, -1.1, 1.9]
    known = {"s": s, "j in": range(3), "i in": range(3), r"\theta": THETA}
    for i in range(3):
        at.formula(r"\pi_i =").holds(i=i, **known, **{r"\pi": posterior(s)})
    w = [0.5, 0.3, 0.2]
    proof = at.formula(r"-\sum_i \pi_i\log w_i =")
    proof.holds(**known, w=w, **{r"\pi": posterior(s)})
    # No weights do better, and of the softmaxes only that of θ does as well.
    row = at.formula(r"-\log P = \log\sum_i")
    row.holds(**known, P=of_row(s, 0.8)["p"][1], **{r"\alpha": 0.8, "s_*": s[1]})
    for n in (2, 3):

        def loss(alpha: float, n: int = n) -> float:
            row, mean = rows_with_a_needle(n, alpha)
            return mean(-np.log(row["P"]))

        found = minimize_scalar(loss, bounds=(0.5, 3.0), options={"xatol": 1e-8})
        assert np.isclose(found.x, THETA, atol=1e-5)
        assert loss(1.0) + loss(2.0) > 2 * loss(1.5)


EQUIVALENT["prop-needle-calibration", r"\sum_i(p_i - \pi_i)(p_i + w)"] = (
    "the first factors add up to 0, whatever is added to the second"
)


@tied("prop-needle-calibration")
def calibration(at: Place) -> None:
    row, _ = rows_with_a_needle(3, THETA)
    for h in (np.square, np.log):
        at.display().holds(**row, h=h, relative=1e-7)
    at.formula(r"\operatorname{E}P = \operatorname{E}Y").holds(**row, relative=1e-7)
    entropy = -sum(p * np.log(p) for p in row["p"])
    at.formula(r"\operatorname{E}[-\log P] =").holds(**row, H=entropy, relative=1e-7)
    for alpha, condition, order in (
        (2.0, r"\alpha > \theta", r"\operatorname{E}Y > \operatorname{E}P"),
        (1.0, r"\alpha < \theta", r"\operatorname{E}Y < \operatorname{E}P"),
    ):
        row, _ = rows_with_a_needle(3, alpha)
        for formula in at.all_same(condition, 2):
            formula.holds(**row)
        at.formula(order).holds(**row)
        # Given the row, the mean of Y − P, in two ways.
        s = [0.3, -1.1, 1.9]
        known = {**of_row(s, alpha), r"\pi": posterior(s)}
        difference = at.formula(r"\sum_i (p_i - \pi_i)\,p_i").value(**known)
        assert np.isclose(difference, known["Y"] - np.dot(posterior(s), known["p"]))
        shifted = at.formula(r"\sum_i(p_i - \pi_i)(p_i - w)").value(**known, w=0.3)
        assert np.isclose(shifted, difference)
        assert (difference > 0) == (alpha > THETA)


def loss_of(theta: float, n: int):
    return lambda alpha: float(retrieval.loss(Normal(), Tilted(theta), alpha, n))


@tied("eq-needle-information")
def information(at: Place) -> None:
    n, loss = 50, loss_of(THETA, 50)
    near = np.linspace(THETA - 0.01, THETA + 0.01, 5)
    at.display().holds(
        {r"\operatorname{E}[-\log P]": r"h(\alpha)"},
        I=float(retrieval.information(Normal(), Tilted(THETA), n)),
        n=n,
        h=np.vectorize(loss),
        **{r"\alpha in": near},
    )


@tied("thm-needle-information")
def how_much_a_row_tells(at: Place) -> None:
    told = float(retrieval.information(Normal(), Tilted(THETA), 4))
    limit = at.formula(r"I_\infty =")
    known = {r"\theta": THETA, r"\kappa": kappa, r"\kappa'": lambda a: a, r"I_\infty": THETA**2 / 2}
    limit.holds(**known)
    for half in at.all_same(r"\frac12\theta^2", 1):
        assert np.isclose(half.value(**known), THETA**2 / 2)
    at.formula(r"I \le \min").holds(I=told, n=4, **known)
    assert at.formula(r"I \le \min").values(I=told, n=2, **known)[0][1] == math.log(2)
    bound = at.display()
    for n, theta, near in ((3, 0.9, 0.15), (10**6, 2.0, 1e-3)):
        (s,), mean = independent(normal(60))
        [[left, right]] = bound.values(
            {r"\operatorname{E}[-\log P]": "x"},
            x=loss_of(theta, n)(theta),
            E=mean,
            n=n,
            **{r"\alpha": theta, "s_*": s + theta, r"\kappa": kappa},
        )
        bound.holds(
            {r"\operatorname{E}[-\log P]": "x"},
            x=left,
            E=mean,
            n=n,
            **{r"\alpha": theta, "s_*": s + theta, r"\kappa": kappa},
        )
        assert right - left < near
    far = float(retrieval.information(Normal(), Tilted(THETA), 10**12))
    at.formula(r"I \to I_\infty").holds(I=far, rough=1e-8, **known)
    same = at.formula(r"\frac12\theta^2 = y^2\log n")
    same.holds(y=0.5, n=50.0, **{r"\theta": 0.5 * math.sqrt(2 * math.log(50.0))})
    # The last part, bounded as in its proof: one draw of s_* = θ + w at a time, and the means.
    (w,), mean = independent(normal(150))
    log_n = 400.0
    for y in (0.5, 1.0, 1.5):
        strength = at.formula(r"\theta = y\sqrt")
        theta = float(strength.value({r"\theta =": ""}, y=y, n=math.exp(log_n)))
        best = min(1.0, y * y)
        at.formula(r"I/\log n \to").holds({"I": f"{best}", r"\log n": "1"}, y=y, rough=1e-12)
        alpha = min(theta, math.sqrt(2 * log_n))
        loss = mean(np.logaddexp(0, log_n + alpha**2 / 2 - alpha * (theta + w)))
        assert best - 0.1 < (log_n - loss) / log_n <= best
        crowd = log_n + alpha**2 / 2 - alpha * (theta + w)
        low = y <= 1.0
        line = at.formula(
            r"\operatorname{E}\max(" + (r"\log n - \tfrac12" if low else r"\alpha(\alpha")
        )
        known = {"n": math.exp(log_n), "w": w, r"\theta": theta, r"\alpha": alpha}
        line.holds(E=mean, **known)
        [[each, right]] = line.values(E=itself, **known)
        assert np.allclose(each, np.maximum(crowd, 0) + math.log(2))
        start = log_n - theta**2 / 2 + theta if low else alpha
        assert np.isclose(right, start + math.log(2))
    for u in (-2.0, 3.0):
        at.formula(r"\log(1 + e^u) \le").holds(u=u)
    assert np.isclose(at.formula(r"\log(1 + e^u) \le").values(u=0.0)[0], math.log(2)).all()


@tied("eq-needle-pull")
def pull(at: Place) -> None:
    s, alpha = [0.3, -1.1, 1.9], 1.2

    def loss(x: float) -> float:
        return -math.log(of_row([x, *s[1:]], alpha)["p"][0])

    at.display().holds(
        {r"\frac{\partial(-\log P)}{\partial s_*}": "x"},
        x=slope(loss, s[0]),
        P=of_row(s, alpha)["p"][0],
        **{r"\alpha": alpha},
    )


@tied("eq-needle-slope")
def slope_of_the_loss(at: Place) -> None:
    def loss(alpha: float) -> float:
        row, mean = rows_with_a_needle(3, alpha)
        return mean(-np.log(row["P"]))

    row, _ = rows_with_a_needle(3, 0.8)
    at.display().holds(
        {r"\frac{d}{d\alpha}\operatorname{E}[-\log P]": "x"},
        x=slope(loss, 0.8),
        relative=1e-6,
        **row,
    )


@tied("eq-needle-multiplier")
def multiplier(at: Place) -> None:
    alpha, theta = 2.0, 3.0
    at.display().holds(
        {
            r"\frac{\text{gap of the logits}}{\text{variance of the other logits}}": r"\frac{x}{y}",
        },
        x=alpha * theta,
        y=alpha**2,
        **{r"\alpha": alpha, r"\theta": theta},
    )


@tied("prop-needle-fixed")
def fixed_needle(at: Place) -> None:
    gap = 1.3

    def loss(alpha: float) -> float:
        s, mean = independent(normal(60))
        return mean(np.logaddexp(0, alpha * (s[0] - gap)))

    found = minimize_scalar(loss, bounds=(0.5, 5.0), options={"xatol": 1e-9})
    for formula in at.all_same(r"2\Delta", 2):
        assert np.isclose(formula.value(**{r"\Delta": gap}), found.x, atol=1e-5)
    known = {r"\Delta": gap, r"\kappa": kappa, r"\kappa'": lambda a: a}
    many = float(retrieval.best_alpha(Normal(), Fixed(gap), 10**12))
    for formula in at.all_same(r"\kappa'(\alpha) = \Delta", 2):
        formula.holds(**known, relative=1e-3, **{r"\alpha": many})
    limit = at.formula(r"\kappa(\alpha) - \alpha\Delta").value(**known, **{r"\alpha": 0.9})
    at_many = float(retrieval.loss(Normal(), Fixed(gap), 0.9, 10**12)) - math.log(10**12)
    assert np.isclose(limit, at_many, atol=1e-6)


# --- reach ----------------------------------------------------------------------------------------


def rarer(d: int):
    """Return the probability that a cosine exceeds a given one."""
    return lambda rho: betainc((d - 1) / 2, 0.5, 1 - rho**2) / 2


@tied("eq-reach-first")
def first(at: Place) -> None:
    value = at.display().value({r"\bar F(\Delta)": "x"}, x=1 - ndtr(1.3), n=7)
    assert np.isclose(value, retrieval.accuracy(Normal(), Fixed(1.3), 7))


@tied("thm-reach-count")
def how_many(at: Place) -> None:
    bound = at.formula(r"\bar F(\Delta) \le")
    for gap in (0.0, 0.8, 4.0):
        known = {"x": float(ndtr(-gap)), r"\Delta": gap}
        bound.holds({r"\bar F(\Delta)": "x"}, **known)
        [[_, limit]] = bound.values({r"\bar F(\Delta)": "x"}, **known)
        assert np.isclose(limit, math.exp(-(gap**2) / 2) / 2)
    [[left, right]] = bound.values({r"\bar F(\Delta)": "x"}, x=0.5, **{r"\Delta": 0.0})
    assert left == right
    log_n = 1e6
    for y in (1.1, 0.9):
        lead = at.formula(r"\Delta = y\sqrt")
        gap = float(lead.value({r"\Delta =": "", r"\log n": "x"}, x=log_n, y=y))
        rivals = log_n + log_ndtr(-gap)
        power = at.formula(r"n\bar F(\Delta) =").value({r"n\bar F(\Delta) = n": "e"}, y=y)
        assert np.isclose(math.log(power), rivals / log_n, atol=1e-4)
        keys = at.formula(r"n = e^{\Delta^2/(2y^2)}")
        assert np.isclose(keys.value({"n = e^": ""}, y=y, **{r"\Delta": gap}), log_n)
    cap = at.formula(r"\bar F(\varrho) \le")
    for d, rho in ((3, 0.2), (8, 0.0), (8, 0.7)):
        exceed = float(rarer(d)(rho))
        cap.holds({r"\bar F(\varrho)": "x"}, x=exceed, d=d, **{r"\varrho": rho})
        angle = math.acos(rho)
        rim = at.formula(r"\frac12\sin^{d-1}\phi").value(d=d, **{r"\phi": angle})
        assert np.isclose(rim, cap.value({r"\bar F(\varrho) \le": ""}, d=d, **{r"\varrho": rho}))
        at.formula(r"\sin\phi =").holds(**{r"\phi": angle, r"\varrho": rho})
        integral = quad(lambda x, d=d: (1 - x * x) ** ((d - 3) / 2), rho, 1)[0]
        whole = quad(lambda x, d=d: (1 - x * x) ** ((d - 3) / 2), -1, 1)[0]
        assert np.isclose(integral / whole, exceed)
    near_one = at.formula(r"0 \le \varrho \le 1")
    assert near_one.values(**{r"\varrho": 0.5}) == [[0.0, 0.5, 1.0]]
    near_one.holds(**{r"\varrho": 0.5})
    far = {"x": float(rarer(3001)(0.4)), "d": 3001, r"\varrho": 0.4}
    at.display().holds({r"\bar F(\varrho)": "x"}, rough=2e-3, **far)
    near = {"x": float(rarer(8)(0.4)), "d": 8, r"\varrho": 0.4}
    [[root, _]] = at.display().values({r"\bar F(\varrho)": "x"}, **near)
    assert np.isclose(root**7, near["x"])


@tied("eq-reach-half")
def half(at: Place) -> None:
    n, gap = 3.0, 2.0
    alpha = gap - math.sqrt(gap**2 - 2 * math.log(n))
    at.display().holds(n=n, **{r"\alpha": alpha, r"\Delta": gap, r"\kappa": kappa})
    (x, y, z), mean = independent(*[normal(30)] * 3)
    others = np.exp(alpha * x) + np.exp(alpha * y) + np.exp(alpha * z)
    assert 0.5 < mean(1 / (1 + math.exp(-alpha * gap) * others)) < 0.6


@tied("prop-reach-least")
def least(at: Place) -> None:
    n = 200.0
    formula = at.display()
    for gap in (3.4, 6.0):
        alpha = float(retrieval.least_alpha(gap, n))
        known = {"n": n, r"\Delta": gap, r"\alpha_-": alpha, r"\alpha": alpha}
        formula.holds(**known)
        assert np.isclose(alpha * gap, math.log(n) + alpha**2 / 2)
        low, high = at.formula(r"\log n/\Delta"), at.formula(r"2\log n/\Delta")
        assert low.value(**known) < alpha < high.value(**known)
    exists = at.formula(r"\Delta \ge \sqrt{2\log n}")
    exists.holds(n=n, **{r"\Delta": 3.4})
    edge = float(exists.value({r"\Delta \ge": ""}, n=n))
    assert np.isclose(edge, math.sqrt(2 * math.log(n)))
    at_edge = {"n": n, r"\Delta": edge * (1 + 1e-12)}
    assert np.isclose(high.value(**at_edge), edge, rtol=1e-4)
    far = {"n": n, r"\Delta": 1e4}
    assert np.isclose(low.value(**far), retrieval.least_alpha(1e4, n), rtol=1e-4)
    # The weight of the key in the mean, by brute force over three other keys.
    gap, n = 2.0, 3.0
    alpha = float(retrieval.least_alpha(gap, n))
    s, mean = independent(*[normal(30)] * 3)
    total = sum(np.exp(alpha * x) for x in s)
    known = {r"\alpha": alpha, r"\Delta": gap, "Z'": total}
    weight = at.formula(r"1/(1 + e^{-\alpha\Delta}Z')").value(**known)
    assert np.allclose(weight, math.exp(alpha * gap) / (math.exp(alpha * gap) + total))
    assert 0.5 < mean(weight) < 0.6
    at.formula(r"\operatorname{E}Z' =").holds(
        relative=1e-7, E=mean, n=3, **known, **{r"\kappa": kappa}
    )
    at.formula(r"\kappa = \frac12\alpha^2").holds(**{r"\alpha": alpha, r"\kappa": alpha**2 / 2})


@tied("eq-reach-fixed")
def fixed_scale(at: Place) -> None:
    for alpha in (1.0, 2.0):
        reached = float(retrieval.reach(Normal(), Fixed(9.0), alpha))
        at.display().holds(n=reached, relative=1e-3, **{r"\alpha": alpha, r"\Delta": 9.0})


@tied("thm-reach-plane")
def plane(at: Place) -> None:
    formula = at.display()
    for x in (0.3, 1.0, 1.5):
        least = float(formula.value({"y >": ""}, x=x))
        # exponents of the crowd and of the needle, equal at the edge
        crowd = float(at.same("1 + x^2" if x <= 1 else "2x").value(x=x))
        needle = float(at.formula("2xy").value(x=x, y=least))
        assert np.isclose(crowd, needle)
        assert np.isclose(crowd, 1 + x * x if x <= 1 else 2 * x)
    gap, log_n = 30.0, 200.0
    y = gap / math.sqrt(2 * log_n)
    alpha = (y - math.sqrt(y * y - 1)) * math.sqrt(2 * log_n)
    assert np.isclose(alpha, gap - math.sqrt(gap**2 - 2 * log_n))
    for name, value in ((r"\alpha = x\sqrt", alpha), (r"\Delta = y\sqrt", gap)):
        letter = {"x": value / math.sqrt(2 * log_n), "y": value / math.sqrt(2 * log_n)}
        at.formula(name).holds(
            {r"\log n": "z"}, z=log_n, **letter, **{r"\alpha": alpha, r"\Delta": gap}
        )


@tied("eq-reach-logits")
def logits(at: Place) -> None:
    alpha, gap = 1.5, 7.0
    n = math.exp(alpha * gap - alpha**2 / 2)
    at.display().holds(n=n, g=alpha * gap, v=alpha**2)


@tied("eq-reach-rate")
def rate(at: Place) -> None:
    gap = 0.4
    cosine = Cosine(8)

    def cumulants(a):
        return cosine.log_mgf(a)

    found = brentq(lambda a: slope(cumulants, a) - gap, 0.1, 30)
    near = np.linspace(found - 1, found + 1, 2001)
    formula = at.display()
    values = formula.values(
        {r", \qquad ": r"\\ "},
        **{
            r"\alpha in": near,
            r"\alpha": found,
            r"\Delta": gap,
            r"\kappa": cumulants,
            r"\kappa'": lambda a: slope(cumulants, a),
        },
    )
    [highest], sides = values
    assert np.isclose(highest, found * gap - float(cumulants(found)), rtol=1e-6)
    assert np.isclose(*sides)


@tied("eq-reach-tokens")
def tokens(at: Place) -> None:
    d, a, rho = 64, 9.0, 0.4

    def kappa(alpha: float) -> float:
        return float(Cosine(d).log_mgf(alpha))

    # A gap of 1 − ρ against scores (1 − ρ)u: αΔ = log n + κ_u(α(1 − ρ)).
    alpha = a / (1 - rho)
    n = math.exp(alpha * (1 - rho) - kappa(alpha * (1 - rho)))
    at.display().holds(a=a, n=n, **{r"\kappa": kappa})
    at.formula(r"a = \alpha(1-\varrho)").holds(a=a, **{r"\alpha": alpha, r"\varrho": rho})
    far = at.formula(r"\kappa(a) \approx")
    known = {"d": d, r"\kappa": kappa}
    one, two = (far.values(a=at_, **known)[0] for at_ in (1e7, 2e7))
    assert np.isclose(two[0] - one[0] - 1e7, two[1] - one[1] - 1e7, rtol=1e-4)
    growth = at.formula("n^{2/(d-1)}").value(n=2.0, d=d)
    # a grows like the power of n that a fall of (d − 1)/2 log a leaves.
    assert np.isclose(math.log2(growth), -math.log(2) / (two[0] - one[0] - 1e7), rtol=1e-4)


@tied("thm-needle-weighted")
def calibration_without_a_law(at: Place) -> None:
    """Compare the derivative with a difference, in noise and needles that are not normal."""
    rng = np.random.default_rng(0)
    logits = rng.gumbel(size=(50, 6)) + rng.exponential(2.0, size=(50, 1)) * np.eye(1, 6)

    def mean_loss(t: float) -> float:
        return float(np.mean(np.log(np.exp(t * logits).sum(axis=1)) - t * logits[:, 0]))

    t = 0.7
    p = np.exp(t * logits) / np.exp(t * logits).sum(axis=1, keepdims=True)
    rest = (p[:, 1:] * logits[:, 1:]).sum(axis=1) / (1 - p[:, 0])
    known = {"E": np.mean, "P_t": p[:, 0], r"\ell_*": logits[:, 0], "m_t": rest}
    at.display().holds({"L'(t)": "x"}, x=slope(mean_loss, t), relative=1e-6, **known)
