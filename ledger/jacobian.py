"""Claims on the Jacobian of softmax, and on why scaling rescues it (source 004).

Chapters: variance, saturation, jacobian.
"""

import numpy as np
import sympy

from attnlib import exact, rows, scores
from attnlib.checking import FloatArray
from experiments.initialisation import row_moments, sample_rows, standard_errors
from ledger import symbolic
from ledger.registry import (
    ENTRY,
    FADED,
    LIMIT,
    ONE_HOT,
    ROUNDING,
    TENTH,
    Decision,
    Verdict,
    claim,
    holds,
    holds_within,
    listed,
)

DENSITY = 0.02
"""Densities closer than this look the same: a histogram with 2500 scores in a bin is as rough."""


@claim("jacobian.scores-grow")
def scores_grow(variance: float = 512.0, d: int = 512, seed: int = 11) -> Decision:
    """`variance` is the claimed variance at d."""
    measured = row_moments(np.random.default_rng(seed), d).variance
    error = standard_errors(d).variance
    # the law is a chi-mixture, not quite a normal: compare the densities of s = q·k/√d
    s = np.linspace(-3.0, 3.0, 301)
    ratio = np.exp(scores.DotProduct(d).logpdf(s) - scores.Normal().logpdf(s))
    gap = float(np.abs(ratio - 1.0).max())
    exactly = abs(variance / (d * float(ENTRY.variance)) - 1.0) < ROUNDING
    agrees = exactly and abs(measured - variance) < LIMIT * error and gap < DENSITY
    numbers = {"gap": 100 * gap, "shows": 100 * DENSITY}
    return holds_within(agrees), {"measured": measured, "error": error, **numbers}


@claim("jacobian.product-moments")
def product_moments(
    mean_factor: float = 1.0, last_sign: int = -1, *, swapped: bool = False
) -> Decision:
    """`mean_factor` multiplies E(q)E(k); `last_sign` is the sign of μq²μk², `swapped` of σq²σk²."""
    mean, variance = symbolic.product_mean(), symbolic.product_variance()
    means, deviations = (symbolic.MU_Q * symbolic.MU_K, symbolic.SIGMA_Q * symbolic.SIGMA_K)
    last = last_sign * (deviations if swapped else means) ** 2
    claimed_mean = symbolic.Identity(mean.left, sympy.nsimplify(mean_factor) * mean.right)
    claimed = symbolic.Identity(variance.left, variance.right + means**2 + last)
    residuals = {"of_mean": claimed_mean.residual, "of_variance": claimed.residual}
    return holds(claimed_mean.proved and claimed.proved), residuals


@claim("jacobian.multiply")
def multiply(exponent: float = 0.5, seed: int = 12) -> Decision:
    """The claim is that multiplication by d^exponent does."""
    d = 512
    measured = row_moments(np.random.default_rng(seed), d).variance
    error = standard_errors(d).variance
    factor = float(d) ** exponent
    exactly = abs(factor**2 * d * float(ENTRY.variance) - 1.0) < ROUNDING
    agrees = exactly and abs(factor**2 * measured - 1.0) < LIMIT * factor**2 * error
    return holds(agrees), {
        "d": d,
        "multiplied": factor**2 * measured,
        "divided": measured / d,
        "error": error / d,
    }


@claim("jacobian.components")
def components(summed: bool = False, seed: int = 13) -> Decision:
    """Entry i is the product q_i k_i; if `summed`, it is the sum of such products with key i."""
    rng = np.random.default_rng(seed)
    query, keys = rng.standard_normal(4), rng.standard_normal((4, 4))
    received, terms = keys @ query, query * keys
    claimed = terms.sum(axis=1) if summed else terms[0]
    return holds(np.abs(claimed - received).max() < ROUNDING), {
        "received": _vector(received),
        "terms": _vector(terms[0]),
        "sum": terms[0].sum(),
    }


@claim("jacobian.scale-variant")
def scale_variant(factor: float = 10.0, shift: float = 0.0, seed: int = 14) -> Decision:
    """The claim is that softmax(factor·s + shift) differs from softmax(s), in each row."""
    s = scores.Normal().sample(np.random.default_rng(seed), 1000, 16)
    distance = np.abs(rows.softmax(factor * s + shift) - rows.softmax(s)).sum(axis=1) / 2.0
    least = distance.min()
    numbers = {"rows": len(s), "mean": distance.mean(), "least": least}
    return holds(least > ROUNDING), numbers


@claim("jacobian.four")
def four(diagonal: float = 1.0, off_diagonal: float = -1.0) -> Decision:
    """The arguments multiply p_i(1 − p_i) and p_i p_j."""
    derivative = symbolic.jacobian(4).left
    _, p = symbolic.softmax(4)
    on, off = sympy.nsimplify(diagonal), sympy.nsimplify(off_diagonal)
    claimed = symbolic.ALPHA * sympy.Matrix(
        4, 4, lambda i, j: on * p[i] * (1 - p[i]) if i == j else off * p[i] * p[j]
    )
    agreeing = sum(entry == 0 for entry in symbolic.Identity(derivative, claimed).residual)
    return holds(agreeing == 16), {"agreeing": agreeing}


@claim("jacobian.one-hot")
def one_hot(winners: int = 1) -> Decision:
    """The output has `winners` equal entries 1/winners; the others are 0."""
    p = sympy.Matrix([sympy.Rational(1, winners)] * winners + [0] * (4 - winners))
    tie = rows.jacobian([0.0, 0.0, -1e6, -1e6])
    return holds((sympy.diag(*p) - p * p.T).is_zero_matrix), {"entry": tie.max()}


@claim("jacobian.vanishing-chain")
def vanishing_chain(
    dimensions: tuple[int, int] = (16, 1024),
    exponent: float = 0.0,
    own_inputs_only: bool = False,
    seed: int = 15,
) -> Decision:
    """From the first to the second of `dimensions`, for scores multiplied by d^exponent.

    The Jacobian is that of softmax by its own inputs, as its source has it: half its L1 norm is
    1 − Σp². Unless `own_inputs_only` the gradient by the score q·k/√d is looked at, too.
    """
    rng = np.random.default_rng(seed)
    n = 64
    samples = [sample_rows(rng, d, n, exponent=exponent, count=4000) for d in dimensions]
    scaled = sample_rows(rng, dimensions[1], n, exponent=-0.5, count=4000)
    alpha = np.array(dimensions) ** (exponent + 0.5)
    largest = [float(np.median(sample.largest)) for sample in samples]
    by_score = np.array([np.median(sample.gradient) for sample in samples])
    laws = zip(dimensions, alpha, strict=True)
    mean = np.array([exact.gradient(scores.DotProduct(d), a, n) for d, a in laws])
    typical, mean_typical = by_score / alpha, mean / alpha
    rescued = float(np.median(scaled.gradient))
    vanished = typical[1] < TENTH * min(typical[0], rescued)
    mean_fades = mean_typical[1] < FADED * mean_typical[0]
    if largest[1] < ONE_HOT or not (vanished and mean_fades):
        verdict = Verdict.WRONG
    elif own_inputs_only or mean[1] < FADED * mean[0]:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.EXTENDED
    return verdict, {
        "d": dimensions,
        "n": n,
        "spread": [sample.spread.mean() for sample in samples],
        "largest": largest,
        "typical": typical,
        "rescued": rescued,
        "mean_typical": mean_typical,
        "by_score": by_score,
        "mean": mean,
    }


@claim("jacobian.bounded")
def bounded(total: float = 1.0, upper: float = 1.0, lower: float = 0.0) -> Decision:
    """The claim is lower < p_i < upper and Σp = total, for four scores."""
    w = sympy.symbols("w1:5", positive=True)
    p = [weight / sum(w) for weight in w]
    adds_up = sympy.simplify(sum(p) - sympy.nsimplify(total)) == 0
    # a difference has the sign of its numerator, a sum of positive symbols if the claim is true
    above = all(sympy.together(entry - sympy.nsimplify(lower)).is_positive for entry in p)
    below = all(sympy.together(sympy.nsimplify(upper) - entry).is_positive for entry in p)
    return holds(adds_up and above and below), {"rounded": _vector(rows.softmax([0.0, -800.0]))}


def _vector(values: FloatArray) -> str:
    return f"({listed('{:.2f}', values)})"
