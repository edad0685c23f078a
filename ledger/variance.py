"""Claims on the mean and variance of a dot product (source 001), and on what they do to softmax.

Chapters: variance, saturation.
"""

from collections.abc import Callable

import numpy as np

from attnlib import exact, scores, symbolic
from attnlib.initialisation import DIMENSIONS, VECTORS, row_moments, sample_rows, standard_errors
from attnlib.scores import DotProduct
from ledger.registry import ENTRY, FADED, LIMIT, ONE_HOT, ROUNDING, Finding, Verdict, claim

MOST = 0.5
"""Most rows are more than half of them."""

STEADY = 0.02
"""A range is stable where it changes by less from a thousand dimensions to a million.

A power d^0.003 changes by that much.
"""

NARROW = 64
"""A usual head."""

WIDE = 10**6
"""The dimension at which a drift that is slow would be seen."""


@claim("variance.mean-zero")
def mean_zero(mean: float = 0.0, seed: int = 1) -> Finding:
    """`mean` is E[q·k]/√d."""
    rng = np.random.default_rng(seed)
    deviations = [
        (row_moments(rng, d).mean - mean * np.sqrt(d)) / standard_errors(d).mean for d in DIMENSIONS
    ]
    worst = max(deviations, key=abs)
    exactly = ENTRY.mean == mean
    return Finding(
        Verdict.HOLDS if exactly and abs(worst) < LIMIT else Verdict.WRONG,
        f"Exactly 0, the sum of d means E[q_i]E[k_i]. With {VECTORS} queries and keys at "
        f"d = {_listed(DIMENSIONS)}, the mean is at most {abs(worst):.1f} standard errors "
        f"√d/{VECTORS} from the claim; {LIMIT:g} would refute it.",
    )


@claim("variance.linear")
def linear(
    slope: float = 1.0, exponent: float = 1.0, offset: float = 0.0, seed: int = 2
) -> Finding:
    """The claim is Var[q·k] = slope·d^exponent + offset."""
    holds, worst = _compared(
        power=0.0, predicted=lambda d: slope * float(d) ** exponent + offset, seed=seed
    )
    return Finding(
        Verdict.HOLDS if holds else Verdict.WRONG,
        f"Exactly d, the sum of d variances of 1. With {VECTORS} queries and keys at "
        f"d = {_listed(DIMENSIONS)}, the mean row variance is at most {abs(worst):.1f} standard "
        f"errors from the claim, each √(4d/m + 2d²/m²) with m = {VECTORS}; {LIMIT:g} would refute "
        "it.",
    )


@claim("variance.product-rule")
def product_rule(factor: float = 1.0, means: tuple[float, ...] = (0.0, 0.5, 1.0)) -> Finding:
    """The claim is Var(XY) = factor·Var(X)·Var(Y) for variances 1 and means in `means`."""
    errors = {m: float(scores.product_moments(m, 1.0, m, 1.0).variance) - factor for m in means}
    # sympy's identity, so that the numbers above do not rest on our formula alone
    proved = symbolic.product_variance_of_any_law().proved and symbolic.product_variance().proved
    if proved and not any(errors.values()):
        verdict = Verdict.HOLDS
    elif proved and errors.get(0.0) == 0.0:
        verdict = Verdict.NEEDS_A_CONDITION
    else:
        verdict = Verdict.WRONG
    mean, error = max(errors.items(), key=lambda item: abs(item[1]))
    return Finding(
        verdict,
        "In general Var(XY) = σx²σy² + σx²μy² + μx²σy² (sympy), so both means must be 0, as those "
        f"of the source are: its conclusion stands. With means {mean:g} and variances 1 the "
        f"variance is {factor + error:g}, not {factor:g}.",
    )


@claim("variance.scale")
def scale(exponent: float = -0.5, seed: int = 3) -> Finding:
    """The claim is that Z = d^exponent gives variance 1."""
    holds, worst = _compared(power=exponent, predicted=lambda d: 1.0, seed=seed)
    exactly = "1" if exponent == -0.5 else f"d^{2.0 * exponent + 1.0:g}"
    return Finding(
        Verdict.HOLDS if holds else Verdict.WRONG,
        f"With Z = d^{exponent:g} it is exactly {exactly}. The mean row variance at "
        f"d = {_listed(DIMENSIONS)} is at most {abs(worst):.1f} standard errors from 1; "
        f"{LIMIT:g} would refute it.",
    )


@claim("variance.softmax-exaggerates")
def softmax_exaggerates(
    exponent: float = 0.0, typical_row_only: bool = False, seed: int = 4
) -> Finding:
    """Scores are multiplied by d^exponent; the claim may be restricted to the typical row.

    It says "may", so the widest head of its source's experiment decides.
    """
    n = VECTORS
    narrow, d = NARROW, DIMENSIONS[-1]
    rng = np.random.default_rng(seed)
    claimed = sample_rows(rng, d, n, exponent=exponent)
    scaled = sample_rows(rng, d, n, exponent=-0.5)
    extreme = np.median(claimed.largest) > ONE_HOT
    typical, usual = float(np.median(claimed.gradient)), float(np.median(scaled.gradient))
    mean, usual_mean = exact.gradient(DotProduct(d), [d ** (exponent + 0.5), 1.0], n)
    carried = (
        np.sort(claimed.gradient)[-claimed.gradient.size // 10 :].sum() / claimed.gradient.sum()
    )
    head = sample_rows(rng, narrow, n, exponent=exponent, count=10_000)
    if not extreme or typical > FADED * usual:
        verdict = Verdict.WRONG
    elif typical_row_only or mean < FADED * usual_mean:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.EXTENDED
    return Finding(
        verdict,
        f"It may: at d = {d}, n = {n} the median largest weight is "
        f"{np.median(claimed.largest):.3f} (above {ONE_HOT} is extreme), and the median gradient "
        f"α(1 − Σp²) is {typical:.2f}, under half of the scaled {usual:.2f}. Ours: its exact mean "
        f"is {mean:.1f} (scaled: {usual_mean:.2f}; under half of that would be no flow at all), "
        f"and a tenth of the rows carries {100 * carried:.0f} % of the sum. At d = {narrow} the "
        f"median is {np.median(head.gradient):.1f}.",
    )


@claim("variance.one-hot")
def one_hot(
    exponent: float = 0.0, dimensions: tuple[int, ...] = (64, 128, 512, 1000), seed: int = 5
) -> Finding:
    """Scores are multiplied by d^exponent; very close is what most rows are, at each d."""
    rng = np.random.default_rng(seed)
    largest = {d: sample_rows(rng, d, VECTORS, exponent=exponent).largest for d in dimensions}
    shares = {d: float(np.mean(weights > ONE_HOT)) for d, weights in largest.items()}
    medians = [float(np.median(weights)) for weights in largest.values()]
    close = [share > MOST for share in shares.values()]
    if all(close):
        verdict = Verdict.HOLDS
    elif any(close):
        verdict = Verdict.NEEDS_A_CONDITION
    else:
        verdict = Verdict.WRONG
    measured = ", ".join(f"{share:.2f} (d = {d})" for d, share in shares.items())
    return Finding(
        verdict,
        f"Of 2000 rows of {VECTORS} keys, the share with a weight above {ONE_HOT} is {measured}, "
        f"with a standard error of at most {0.5 / np.sqrt(2000):.3f}: more than half in wide heads "
        "only. The paper that introduced 1/√d speaks of large values of d. The median largest "
        f"weight goes from {min(medians):.2f} to {max(medians):.3f}, and with any bar between "
        f"them in place of {ONE_HOT} the verdict is the same.",
    )


@claim("variance.ranges")
def ranges(exponent: float = -0.5) -> Finding:
    """Scores are multiplied by d^exponent; stable is a distance log n − E H that does not drift."""
    n = np.array([16, 512, 4096])
    laws = [(DotProduct(d), float(d) ** (exponent + 0.5)) for d in (*DIMENSIONS, WIDE)]
    deficits = np.array([np.log(n) - exact.entropy(law, alpha, n) for law, alpha in laws])
    keys = np.array([n * exact.collision_probability(law, alpha, n) for law, alpha in laws[:-1]])
    drift = float(np.abs(deficits[-1] / deficits[-2] - 1.0).max())
    return Finding(
        Verdict.HOLDS_WITHIN if drift < STEADY else Verdict.WRONG,
        f"Over d = {_listed(DIMENSIONS)} and n = 16, 512, 4096 the exact mean entropy stays "
        f"{deficits[:-1].min():.2f} to {deficits[:-1].max():.2f} below log n (the normal law's "
        f"limit: ½), and n·E Σp² between {keys.min():.1f} and {keys.max():.1f} (limit: e). From "
        f"d = {DIMENSIONS[-1]} to 10⁶ that distance changes by {100.0 * drift:.2f} %; "
        f"{100.0 * STEADY:g} % would refute the claim, an exponent 0.0015 away.",
    )


def _compared(*, power: float, predicted: Callable[[int], float], seed: int) -> tuple[bool, float]:
    """Compare the variance of scores multiplied by d^power with `predicted`.

    Return whether it is exact and source 001's experiment agrees, and how far the latter's mean
    row variance is off at most, in standard errors.
    """
    rng = np.random.default_rng(seed)
    exactly, deviations = True, []
    for d in DIMENSIONS:
        factor = float(d) ** power
        measured = row_moments(rng, d, factor=factor).variance
        error = factor**2 * standard_errors(d).variance
        deviations.append((measured - predicted(d)) / error)
        exactly &= abs(predicted(d) / (factor**2 * d * float(ENTRY.variance)) - 1.0) < ROUNDING
    worst = float(max(deviations, key=abs))
    return exactly and abs(worst) < LIMIT, worst


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
