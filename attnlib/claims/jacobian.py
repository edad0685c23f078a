"""Claims on the Jacobian of softmax, and on why scaling rescues it (source 004).

Chapters: variance, saturation, jacobian.
"""

import numpy as np
import sympy

from attnlib import exact, rows, scores, symbolic
from attnlib.claims.registry import (
    ENTRY,
    FADED,
    LIMIT,
    ONE_HOT,
    ROUNDING,
    TENTH,
    Finding,
    Verdict,
    claim,
)
from attnlib.initialisation import row_moments, sample_rows, standard_errors

DENSITY = 0.02
"""Densities closer than this look the same: a histogram with 2500 scores in a bin is as rough."""


@claim("jacobian.scores-grow")
def scores_grow(variance: float = 512.0, d: int = 512, seed: int = 11) -> Finding:
    """`variance` is the claimed variance at d."""
    measured = row_moments(np.random.default_rng(seed), d).variance
    error = standard_errors(d).variance
    # the law is a chi-mixture, not quite a normal: compare the densities of s = q·k/√d
    s = np.linspace(-3.0, 3.0, 301)
    ratio = np.exp(scores.DotProduct(d).logpdf(s) - scores.Normal().logpdf(s))
    gap = float(np.abs(ratio - 1.0).max())
    exactly = abs(variance / (d * float(ENTRY.variance)) - 1.0) < ROUNDING
    agrees = exactly and abs(measured - variance) < LIMIT * error and gap < DENSITY
    return Finding(
        Verdict.HOLDS_WITHIN if agrees else Verdict.WRONG,
        f"The variance is {d} exactly, measured {measured:.0f} ± {error:.0f}; within "
        "three standard deviations the exact density differs from the normal one by at most "
        f"{100 * gap:.1f} %.",
    )


@claim("jacobian.product-moments")
def product_moments(mean_factor: float = 1.0, last_sign: int = -1) -> Finding:
    """`mean_factor` multiplies E(q)E(k); `last_sign` is the sign of μq²μk²."""
    mean, variance = symbolic.product_mean(), symbolic.product_variance()
    squares = (symbolic.MU_Q * symbolic.MU_K) ** 2
    claimed_mean = symbolic.Identity(mean.left, sympy.nsimplify(mean_factor) * mean.right)
    claimed = symbolic.Identity(variance.left, variance.right + (1 + last_sign) * squares)
    proved = claimed_mean.proved and claimed.proved
    return Finding(
        Verdict.HOLDS if proved else Verdict.WRONG,
        "sympy integrates both over normal laws and simplifies the differences to "
        f"{claimed_mean.residual} and {claimed.residual}.",
    )


@claim("jacobian.multiply")
def multiply(exponent: float = 0.5, seed: int = 12) -> Finding:
    """The claim is that multiplication by d^exponent does."""
    d = 512
    measured = row_moments(np.random.default_rng(seed), d).variance
    error = standard_errors(d).variance
    factor = float(d) ** exponent
    exactly = abs(factor**2 * d * float(ENTRY.variance) - 1.0) < ROUNDING
    agrees = exactly and abs(factor**2 * measured - 1.0) < LIMIT * factor**2 * error
    return Finding(
        Verdict.HOLDS if agrees else Verdict.WRONG,
        f"At d = {d}, multiplying by d^{exponent:g} gives a variance of "
        f"{factor**2 * measured:.3g}; "
        f"dividing by √d gives {measured / d:.3f} ± {error / d:.3f}.",
    )


@claim("jacobian.components")
def components(summed: bool = False, seed: int = 13) -> Finding:
    """Entry i is the product q_i k_i; if `summed`, it is the sum of such products with key i."""
    rng = np.random.default_rng(seed)
    query, keys = rng.standard_normal(4), rng.standard_normal((4, 4))
    attention_scores = keys @ query
    terms = query * keys
    claimed = terms.sum(axis=1) if summed else terms[0]
    gap = np.abs(claimed - attention_scores).max()
    return Finding(
        Verdict.HOLDS if gap < ROUNDING else Verdict.WRONG,
        f"For a random query and four keys the softmax receives {_vector(attention_scores)}, one "
        f"q·k a key. The products q_i k_i with the first key, {_vector(terms[0])}, are the "
        f"terms of its first entry: their sum is {terms[0].sum():.2f}.",
    )


@claim("jacobian.scale-variant")
def scale_variant(factor: float = 10.0, shift: float = 0.0, seed: int = 14) -> Finding:
    """The claim is that softmax(factor·s + shift) differs from softmax(s), in each row."""
    s = scores.Normal().sample(np.random.default_rng(seed), 1000, 16)
    distance = np.abs(rows.softmax(factor * s + shift) - rows.softmax(s)).sum(axis=1) / 2.0
    return Finding(
        Verdict.HOLDS if distance.min() > ROUNDING else Verdict.WRONG,
        f"Multiplying 1000 rows of 16 normal scores by {factor:g} moves {distance.mean():.2f} of "
        f"the weight on average, and at least {distance.min():.2f} in each row.",
    )


@claim("jacobian.four")
def four(diagonal: float = 1.0, off_diagonal: float = -1.0) -> Finding:
    """The arguments multiply p_i(1 − p_i) and p_i p_j."""
    derivative = symbolic.jacobian(4).left
    _, p = symbolic.softmax(4)
    claimed = symbolic.ALPHA * sympy.Matrix(
        4,
        4,
        lambda i, j: (
            sympy.nsimplify(diagonal) * p[i] * (1 - p[i])
            if i == j
            else sympy.nsimplify(off_diagonal) * p[i] * p[j]
        ),
    )
    agreeing = sum(entry == 0 for entry in symbolic.Identity(derivative, claimed).residual)
    return Finding(
        Verdict.HOLDS if agreeing == 16 else Verdict.WRONG,
        f"sympy differentiates softmax of four symbols; {agreeing} of the 16 entries agree.",
    )


@claim("jacobian.one-hot")
def one_hot(winners: int = 1) -> Finding:
    """The output has `winners` equal entries 1/winners; the others are 0."""
    p = sympy.Matrix([sympy.Rational(1, winners)] * winners + [0] * (4 - winners))
    matrix = sympy.diag(*p) - p * p.T
    tie = rows.jacobian([0.0, 0.0, -1e6, -1e6])
    return Finding(
        Verdict.HOLDS if matrix.is_zero_matrix else Verdict.WRONG,
        "diag(p) − ppᵀ is the zero matrix for p = (1, 0, 0, 0). Two winners are enough to keep it "
        f"alive: for p = (½, ½, 0, 0) its largest entry is {tie.max():g}.",
    )


@claim("jacobian.vanishing-chain")
def vanishing_chain(
    dimensions: tuple[int, int] = (16, 1024),
    exponent: float = 0.0,
    typical_row_only: bool = False,
    seed: int = 15,
) -> Finding:
    """From the first to the second of `dimensions`, for scores multiplied by d^exponent."""
    rng = np.random.default_rng(seed)
    n = 64
    small, large = (sample_rows(rng, d, n, exponent=exponent, count=4000) for d in dimensions)
    scaled = sample_rows(rng, dimensions[1], n, exponent=-0.5, count=4000)
    spread = [float(sample.spread.mean()) for sample in (small, large)]
    largest = [float(np.median(sample.largest)) for sample in (small, large)]
    typical = [float(np.median(sample.gradient)) for sample in (small, large)]
    rescued = float(np.median(scaled.gradient))
    before, after = (
        float(exact.gradient(scores.DotProduct(d), float(d) ** (exponent + 0.5), n))
        for d in dimensions
    )
    if largest[1] < ONE_HOT or typical[1] > TENTH * min(typical[0], rescued):
        verdict = Verdict.WRONG
    elif typical_row_only or after < FADED * before:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.NEEDS_A_CONDITION
    return Finding(
        verdict,
        f"The typical row and the mean differ. From d = {dimensions[0]} to {dimensions[1]}, "
        f"n = {n}: mean spread {spread[0]:.0f} to {spread[1]:.0f}, median largest weight "
        f"{largest[0]:.2f} to {largest[1]:.2f}, median gradient {typical[0]:.2f} to "
        f"{typical[1]:.2g} (scaled: {rescued:.2f}); its exact mean goes from {before:.2f} to "
        f"{after:.2f}.",
    )


@claim("jacobian.bounded")
def bounded(total: float = 1.0, upper: float = 1.0, lower: float = 0.0) -> Finding:
    """The claim is lower < p_i < upper and Σp = total, for four scores."""
    w = sympy.symbols("w1:5", positive=True)
    p = [weight / sum(w) for weight in w]
    adds_up = sympy.simplify(sum(p) - sympy.nsimplify(total)) == 0
    # a difference has the sign of its numerator, a sum of positive symbols if the claim is true
    above = all(sympy.together(entry - sympy.nsimplify(lower)).is_positive for entry in p)
    below = all(sympy.together(sympy.nsimplify(upper) - entry).is_positive for entry in p)
    rounded = rows.softmax([0.0, -800.0])
    return Finding(
        Verdict.HOLDS if adds_up and above and below else Verdict.WRONG,
        "sympy: with positive weights, p_i and 1 − p_i are positive and Σp = 1, for two scores "
        "or more. In double precision the bounds are reached: softmax(0, −800) is "
        f"{_vector(rounded)}.",
    )


def _vector(values: np.typing.NDArray[np.float64]) -> str:
    return "(" + ", ".join(f"{value:.2f}" for value in values) + ")"
