"""Claims on the scale of attention's output (source 002).

Chapter: almost_scaled.
"""

import numpy as np
from scipy.special import logsumexp, ndtr

from attnlib import exact
from attnlib._checking import FloatArray
from attnlib.scores import DotProduct, Normal
from claims.registry import (
    Decision,
    Tolerance,
    claim,
    close,
    holds,
    holds_within,
    listed,
)

FIGURE_KEYS = 4096
"""The number of keys in the source's figure."""

TEMPERATURES: FloatArray = 2.0 ** np.arange(-4.0, 4.1, 0.5)
"""Its temperatures."""


@claim("output.under-scaled")
def under_scaled(std: float = 0.102, n: int = 256) -> Decision:
    """The claim is that the output has this std, to three decimals."""
    computed, one_less = (float(exact.output_std(DotProduct(64), 1.0, m)) for m in (n, n - 1))
    agree = abs(computed - std) < 0.0005 and computed < Tolerance.HALF
    return holds(agree), {"computed": computed, "fewer": n - 1, "one_less": one_less}


@claim("output.flat")
def flat(exponent: float = -0.5) -> Decision:
    """The claim is n^exponent."""
    t = np.array([10.0, 100.0, 1000.0])
    n = np.array([[64], [4096]])
    errors = np.abs(exact.output_std(Normal(), 1.0 / t, n) / n**exponent - 1.0)
    largest = errors.max(axis=0)
    return holds(largest[-1] < 1e-6), {"errors": largest}


@claim("output.spike")
def spike(scale: float = 1.0) -> Decision:
    """The claim is this scale."""
    t = np.array([0.1, 0.01, 0.001])
    n = np.array([[64], [4096]])
    gaps = scale - exact.output_std(Normal(), 1.0 / t, n)
    predicted = t * exact.gradient_limit(Normal(), n) / 2.0
    first_order = close(gaps[:, -1], predicted[:, -1], Tolerance.HUNDREDTH)
    return holds(first_order), {"few": gaps[0], "many": gaps[1]}


@claim("output.lognormal")
def lognormal(exponent: float = 1.0) -> Decision:
    """The claim is (e^{exponent/t²}/n)^½, close to the truth for t from ½ to 16, all n.

    And that there the weights are log-normal, as the rule supposes.
    """
    sizes = (64, 256, 4096, 65536, 10**9)
    errors, distances = {}, {}
    critical = {n: float(np.sqrt(1.5 / np.log(n))) for n in sizes}
    rng = np.random.default_rng(44)
    for n in sizes:
        alpha = 1.0 / np.geomspace(0.5, 16.0, 24)
        rule = np.exp(exponent * alpha**2 / 2.0) / np.sqrt(n)
        errors[n] = 100 * float(np.abs(rule / exact.output_std(Normal(), alpha, n) - 1.0).max())
        if n <= FIGURE_KEYS:  # beyond, log Z hardly varies
            distances[n] = _distance_of_weights(rng, alpha[0], n)
    apart = list(distances.values())
    becomes_right = max(errors[max(sizes)] / 100, min(apart)) < Tolerance.CLOSE
    near = max(errors.values()) < 100 * Tolerance.FIFTH and max(apart) < Tolerance.CLOSE
    return holds_within(becomes_right, becomes_right and near), {
        "errors": listed("{:.3g} % (n = {:.5g})", errors.values(), errors),
        "limits": listed("{:.2f}", critical.values()),
        "apart": listed("{:.2f} (n = {})", apart, distances),
    }


def _distance_of_weights(rng: np.random.Generator, alpha: float, n: int) -> float:
    """Return Kolmogorov's distance between the law of a weight p and the law claimed for it.

    The claim is log p = αs − α²/2 − log n with a normal s. P(p ≤ y) is
    P(αs ≤ log y − log(1 − y) + log Z) averaged over 400 Z of the n − 1 others.
    """
    others = logsumexp(alpha * rng.standard_normal((400, n - 1)), axis=1)
    quantiles = np.linspace(-4.0, 4.0, 81)
    y: FloatArray = np.exp(alpha * quantiles - alpha**2 / 2.0) / n
    inside = np.clip(y, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)
    level = (np.log(inside / (1.0 - inside))[:, None] + others) / alpha
    return float(np.abs(ndtr(level).mean(axis=1) - ndtr(quantiles)).max())


@claim("output.factor")
def factor(constant: float = np.e) -> Decision:
    """The factor is (n/constant)^½, for n keys a query."""
    sizes = (64, 256, 1024, 4096)
    errors = {}
    for n in sizes:
        for d in (64, 128):
            square = exact.collision_probability(DotProduct(d), 1.0, n)
            errors[n, d] = 100 * (float(np.sqrt(n / constant * square)) - 1.0)
    many, *beside = (
        100 * (float(np.sqrt(n / constant) * exact.output_std(Normal(), 1.0 / t, n)) - 1.0)
        for t, n in ((1.0, 10**9), (0.9, 4096), (1.1, 4096))
    )
    near = max(map(abs, errors.values())) < 100 * Tolerance.CLOSE
    shown = listed("{:+.1f} % (n = {})", [errors[n, 64] for n in sizes], sizes)
    numbers = {"errors": shown, "limit": abs(many), "beside": beside}
    return holds_within(near and abs(many) < 100 * Tolerance.IN_THE_LIMIT), numbers


@claim("output.figure")
def figure(exponent: float = 1.0) -> Decision:
    """The rules are 1, (e^{exponent/t²}/n)^½ from t = ½ on, and n^−½."""
    n, t = FIGURE_KEYS, TEMPERATURES
    computed = exact.output_std(Normal(), 1.0 / t, n)
    rule = np.exp(exponent / t**2 / 2.0) / np.sqrt(n) / computed
    errors = {
        "spike, t = 1/16": abs(1.0 / float(computed[0]) - 1.0),
        "log-normal, t ≥ 0.5": float(np.abs(rule[t >= 0.5] - 1.0).max()),
        "log-normal, t = 1": abs(float(rule[t == 1.0][0]) - 1.0),
        "flat, t = 16": abs(n**-0.5 / float(computed[-1]) - 1.0),
    }
    in_place = all(errors[x] < Tolerance.HUNDREDTH for x in ("log-normal, t = 1", "flat, t = 16"))
    return holds_within(max(errors.values()) < Tolerance.FIFTH and in_place), {
        "errors": listed("{:.2g} % ({})", [100 * x for x in errors.values()], errors),
        "between": float(np.exp(0.5 / t[5] ** 2) / np.sqrt(n) / computed[5]),
    }
