"""Checks of the chapters on a key to be found: the best scale, calibration, reach.

Means over rows of two and three keys are by brute force; what needs many keys is compared with the
integrals of `retrieval`, which are checked against mpmath, or with quadrature over one score.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from attnlib import retrieval
from attnlib.retrieval import Fixed, Tilted
from attnlib.scores import Cosine, Normal
from tests.book.formulas import Place
from tests.book.theorems.learning import INPUT, KEYS, gradients, loss_of_products
from tests.book.theorems.numbers import Mean, highest, independent, normal, of_row, slope
from tests.book.theorems.registry import tied

THETA = 1.4
ROW = [0.3, -1.1, 1.9]


def density(s):
    return np.exp(-(np.asarray(s) ** 2) / 2) / math.sqrt(2 * math.pi)


def rows_with_a_needle(n: int, alpha: float, theta: float = THETA) -> tuple[dict[str, Any], Mean]:
    """Return the letters of rows of n normal keys, the first one the needle, and the mean."""
    (first, *others), mean = independent(*[normal(40)] * n)
    s = [first + theta, *others]
    row = of_row(s, alpha)
    return {**row, "E": mean, r"\theta": theta, "s_*": s[0], "P": row["p"][0]}, mean


def loss_of(theta: float, n: int):
    return lambda alpha: float(retrieval.loss(Normal(), Tilted(theta), alpha, n))


def posterior(s: Sequence[float], theta: float = THETA) -> Any:
    """Return how probable each key is to be the needle, by the densities of the rows."""
    joint = [
        np.prod([density(x - theta * (i == j)) for j, x in enumerate(s)]) for i in range(len(s))
    ]
    return np.array(joint) / sum(joint)


@tied("thm-needle-scale")
def the_scale(at: Place) -> None:
    known = {"s": ROW, "j_in": range(3), "i_in": range(3), "theta": THETA, "pi": posterior(ROW)}
    for i in range(3):
        at.formula(r"\pi_i =").holds(i=i, **known)
    # No weights do better, and of the softmaxes only that of θ does as well.
    for n in (2, 3):
        best, _ = highest(lambda alpha, n=n: -loss_of(THETA, n)(alpha), 0.5, 3.0)
        assert np.isclose(best, THETA, atol=1e-5)


@tied("prop-needle-calibration")
def calibration(at: Place) -> None:
    row, _ = rows_with_a_needle(3, THETA)
    row["H"] = -sum(p * np.log(p) for p in row["p"])
    for h in (np.square, np.log):
        at.display().holds(**row, h=h, relative=1e-7)
    at.formula(r"\operatorname{E}P = \operatorname{E}Y").holds(**row, relative=1e-7)
    at.formula(r"\operatorname{E}[-\log P] =").holds(**row, relative=1e-7)
    for alpha, order in ((2.0, ">"), (1.0, "<")):
        row, _ = rows_with_a_needle(3, alpha)
        at.same(rf"\alpha {order} \theta").holds(**row)
        at.formula(rf"\operatorname{{E}}Y {order} \operatorname{{E}}P").holds(**row)


@tied("prop-needle-fixed")
def fixed_needle(at: Place) -> None:
    gap = 1.3
    (s,), mean = independent(normal(60))
    best, _ = highest(lambda alpha: -mean(np.logaddexp(0, alpha * (s - gap))), 0.5, 5.0)
    assert np.isclose(at.same(r"2\Delta").value(Delta=gap), best, atol=1e-5)
    many = float(retrieval.best_alpha(Normal(), Fixed(gap), 10**12))
    at.same(r"\kappa'(\alpha) = \Delta").holds(
        relative=1e-3, alpha=many, Delta=gap, kappa_prime=lambda a: a
    )


@tied("thm-reach-count")
def how_many(at: Place) -> None:
    bound, of_normal = at.formula(r"\bar F(\Delta) \le"), {r"\bar F(\Delta)": "x"}
    for gap in (0.0, 0.8, 4.0):
        known = {"x": float(ndtr(-gap)), "Delta": gap}
        bound.holds(of_normal, **known)
        assert np.isclose(bound.value(of_normal, **known), math.exp(-(gap**2) / 2) / 2)
    log_n = 1e6
    for y in (1.1, 0.9):
        gap = float(at.formula(r"\Delta = y\sqrt").value({r"\log n": "x"}, x=log_n, y=y))
        assert np.isclose(1 - y**2, (log_n + log_ndtr(-gap)) / log_n, atol=1e-4)
    cap, of_cosine = at.formula(r"\bar F(\varrho) \le"), {r"\bar F(\varrho)": "x"}
    for d, rho in ((3, 0.2), (8, 0.0), (8, 0.7)):
        cap.holds(of_cosine, x=float(Cosine(d).tail(rho)), d=d, varrho=rho)
        rim = math.sin(math.acos(rho)) ** (d - 1) / 2
        assert np.isclose(rim, cap.value(of_cosine, d=d, varrho=rho))
    far = {"x": float(Cosine(3001).tail(0.4)), "d": 3001, "varrho": 0.4}
    at.display().holds(of_cosine, rough=2e-3, **far)
    [[root, _]] = at.display().values(of_cosine, x=Cosine(8).tail(0.4), d=8, varrho=0.4)
    assert np.isclose(root**7, Cosine(8).tail(0.4))


@tied("prop-reach-least")
def least(at: Place) -> None:
    n = 200.0
    low, high = at.formula(r"\log n/\Delta"), at.formula(r"2\log n/\Delta")
    for gap in (3.4, 6.0):
        alpha = float(retrieval.least_alpha(gap, n))
        known = {"n": n, "Delta": gap, r"\alpha_-": alpha, "alpha": alpha}
        at.display().holds(**known)
        assert np.isclose(alpha * gap, math.log(n) + alpha**2 / 2)
        assert low.value(**known) < alpha < high.value(**known)
    assert np.isclose(low.value(n=n, Delta=1e4), retrieval.least_alpha(1e4, n), rtol=1e-4)


@tied("thm-reach-plane")
def plane(at: Place) -> None:
    for x in (0.3, 1.0, 1.5):
        # exponents of the crowd and of the needle, equal at the edge
        crowd = 1 + x * x if x <= 1 else 2 * x
        edge = float(at.display().value(x=x))
        assert np.isclose(crowd, 2 * x * edge)
        at.display().holds(x=x, y=edge + 1e-6)


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
    known = {"E": np.mean, "P_t": p[:, 0], "ell_*": logits[:, 0], "m_t": rest}
    at.display().holds({"L'(t)": "x"}, x=slope(mean_loss, t), relative=1e-6, **known)


@tied("thm-calibrate-weights")
def the_weights_tell(at: Place) -> None:
    """A row of three keys: its queries are W x + b, and its loss is that of the first key."""
    matrix, bias = np.array([[0.5, -0.3], [0.9, 0.4]]), np.array([0.6, -0.2])

    def loss(weights: np.ndarray, offset: np.ndarray, log_t: float = 0.0) -> float:
        return loss_of_products(np.exp(log_t) * KEYS @ (weights @ INPUT + offset))

    by_log_t = (loss(matrix, bias, 1e-5) - loss(matrix, bias, -1e-5)) / 2e-5
    of_matrix, of_bias = gradients(loss, matrix, bias)
    names = {
        r"\frac{\partial\mathcal L}{\partial\log t}": "x",
        r"\langle W, \partial\mathcal L/\partial W\rangle": "y",
        r"\langle b, \partial\mathcal L/\partial b\rangle": "z",
    }
    y, z = (matrix * of_matrix).sum(), bias @ of_bias
    at.display().holds(names, x=by_log_t, y=y, z=z, relative=1e-8)
