"""Claims on the Jacobian of softmax, and on why scaling rescues it (source 004).

Chapters: variance, saturation, jacobian.
"""

import numpy as np
import sympy

from attnlib import exact, rows, scores, symbolic
from attnlib.initialisation import row_moments, sample_rows, standard_errors
from ledger.registry import (
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
        f"{100 * gap:.1f} %; {100 * DENSITY:g} % would show in the histogram.",
    )


@claim("jacobian.product-moments")
def product_moments(
    mean_factor: float = 1.0, last_sign: int = -1, *, swapped: bool = False
) -> Finding:
    """`mean_factor` multiplies E(q)E(k); `last_sign` is the sign of μq²μk², `swapped` of σq²σk²."""
    mean, variance = symbolic.product_mean(), symbolic.product_variance()
    means, deviations = (symbolic.MU_Q * symbolic.MU_K, symbolic.SIGMA_Q * symbolic.SIGMA_K)
    last = last_sign * (deviations if swapped else means) ** 2
    claimed_mean = symbolic.Identity(mean.left, sympy.nsimplify(mean_factor) * mean.right)
    claimed = symbolic.Identity(variance.left, variance.right + means**2 + last)
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
        f"dividing by √d, as the source's own formula does, gives {measured / d:.3f} ± "
        f"{error / d:.3f}.",
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
        f"q·k for each key. The products q_i k_i with the first key, {_vector(terms[0])}, are the "
        f"terms of its first entry: their sum is {terms[0].sum():.2f}. Each term has variance 1 at "
        "every d; what grows with d is their sum.",
    )


@claim("jacobian.scale-variant")
def scale_variant(factor: float = 10.0, shift: float = 0.0, seed: int = 14) -> Finding:
    """The claim is that softmax(factor·s + shift) differs from softmax(s), in each row."""
    s = scores.Normal().sample(np.random.default_rng(seed), 1000, 16)
    distance = np.abs(rows.softmax(factor * s + shift) - rows.softmax(s)).sum(axis=1) / 2.0
    return Finding(
        Verdict.HOLDS if distance.min() > ROUNDING else Verdict.WRONG,
        f"Multiplying {len(s)} rows of 16 normal scores by {factor:g} moves {distance.mean():.2f} "
        f"of the weight on average, and at least {distance.min():.2f} in each row; adding one "
        "number to all scores of a row moves none.",
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
        f"sympy differentiates softmax of four symbols: {agreeing} of its 16 derivatives are these "
        "entries.",
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
    own_inputs_only: bool = False,
    seed: int = 15,
) -> Finding:
    """From the first to the second of `dimensions`, for scores multiplied by d^exponent.

    The Jacobian is that of softmax by its own inputs, as its source has it: half its L1 norm is
    1 − Σp². Unless `own_inputs_only` the gradient by the score q·k/√d is looked at, too.
    """
    rng = np.random.default_rng(seed)
    n = 64
    samples = [sample_rows(rng, d, n, exponent=exponent, count=4000) for d in dimensions]
    scaled = sample_rows(rng, dimensions[1], n, exponent=-0.5, count=4000)
    alpha = np.array(dimensions) ** (exponent + 0.5)
    spread = [float(sample.spread.mean()) for sample in samples]
    largest = [float(np.median(sample.largest)) for sample in samples]
    by_score = np.array([np.median(sample.gradient) for sample in samples])
    mean = np.array(
        [exact.gradient(scores.DotProduct(d), a, n) for d, a in zip(dimensions, alpha, strict=True)]
    )
    typical = by_score / alpha
    rescued = float(np.median(scaled.gradient))
    mean_fades = mean[1] / alpha[1] < FADED * mean[0] / alpha[0]
    vanished = typical[1] < TENTH * min(typical[0], rescued)
    if largest[1] < ONE_HOT or not (vanished and mean_fades):
        verdict = Verdict.WRONG
    elif own_inputs_only or mean[1] < FADED * mean[0]:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.EXTENDED
    return Finding(
        verdict,
        f"From d = {dimensions[0]} to {dimensions[1]}, n = {n}: mean spread {spread[0]:.0f} to "
        f"{spread[1]:.0f}, median largest weight {largest[0]:.2f} to {largest[1]:.2f}. Half the L1 "
        f"norm of softmax's Jacobian by its own inputs, 1 − Σp², falls from {typical[0]:.2f} to "
        f"{typical[1]:.2g} in the median (a tenth would do; scaled: {rescued:.2f}) and from "
        f"{mean[0] / alpha[0]:.2f} to {mean[1] / alpha[1]:.3f} in the exact mean. Ours: by the "
        f"score q·k/√d it is √d times that. The median still falls, {by_score[0]:.2f} to "
        f"{by_score[1]:.2g}; the exact mean does not, {mean[0]:.2f} to {mean[1]:.2f}.",
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
