"""Claims on the mean and variance of a dot product (source 001), and on what they do to softmax.

Chapters: variance, saturation; of the scores that a head scales (source 002), output_scale.
"""

from collections.abc import Callable

import numpy as np

from attnlib import exact, scores
from attnlib.scores import DotProduct
from experiments.initialisation import (
    DIMENSIONS,
    VECTORS,
    row_moments,
    sample_rows,
    standard_errors,
)
from ledger import symbolic
from ledger.registry import (
    ENTRY,
    FADED,
    LIMIT,
    ONE_HOT,
    ROUNDING,
    Decision,
    Verdict,
    claim,
    holds,
    holds_in_part,
    holds_within,
    listed,
)

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

TRIED = listed("{}", DIMENSIONS)


@claim("variance.mean-zero")
def mean_zero(mean: float = 0.0, seed: int = 1) -> Decision:
    """`mean` is E[q·k]/√d."""
    rng = np.random.default_rng(seed)
    worst = max(
        abs((row_moments(rng, d).mean - mean * np.sqrt(d)) / standard_errors(d).mean)
        for d in DIMENSIONS
    )
    return holds(ENTRY.mean == mean and worst < LIMIT), {"worst": worst}


@claim("variance.linear")
def linear(
    slope: float = 1.0, exponent: float = 1.0, offset: float = 0.0, seed: int = 2
) -> Decision:
    """The claim is Var[q·k] = slope·d^exponent + offset."""
    agrees, worst = _compared(0.0, lambda d: slope * float(d) ** exponent + offset, seed)
    return holds(agrees), {"worst": worst}


@claim("variance.scale")
@claim("output.pre-scaled", seed=41)
def scale(exponent: float = -0.5, seed: int = 3) -> Decision:
    """The claim is that Z = d^exponent gives variance 1."""
    agrees, worst = _compared(exponent, lambda d: 1.0, seed)
    power = 2.0 * exponent + 1.0
    return holds(agrees), {
        "power": power,
        "exactly": f"d^{power:g}" if power else "1",
        "worst": worst,
        "one_row": np.sqrt(2.0 / NARROW),
    }


@claim("variance.product-rule")
def product_rule(factor: float = 1.0, means: tuple[float, ...] = (0.0, 0.5, 1.0)) -> Decision:
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
    return verdict, {
        "mean": mean,
        "variance": factor + error,
    }


@claim("variance.softmax-exaggerates")
def softmax_exaggerates(
    exponent: float = 0.0, typical_row_only: bool = False, seed: int = 4
) -> Decision:
    """Scores are multiplied by d^exponent; the claim may be restricted to the typical row.

    It says "may", so the widest head of its source's experiment decides.
    """
    d = DIMENSIONS[-1]
    rng = np.random.default_rng(seed)
    claimed = sample_rows(rng, d, VECTORS, exponent=exponent)
    scaled = sample_rows(rng, d, VECTORS, exponent=-0.5)
    largest = np.median(claimed.largest)
    typical, usual = float(np.median(claimed.gradient)), float(np.median(scaled.gradient))
    mean, usual_mean = exact.gradient(DotProduct(d), [d ** (exponent + 0.5), 1.0], VECTORS)
    tenth = np.sort(claimed.gradient)[-claimed.gradient.size // 10 :]
    head = sample_rows(rng, NARROW, VECTORS, exponent=exponent, count=10_000)
    if largest <= ONE_HOT or typical > FADED * usual:
        verdict = Verdict.WRONG
    elif typical_row_only or mean < FADED * usual_mean:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.EXTENDED
    return verdict, {
        "d": d,
        "largest": largest,
        "typical": typical,
        "usual": usual,
        "mean": mean,
        "usual_mean": usual_mean,
        "carried": 100 * tenth.sum() / claimed.gradient.sum(),
        "in_narrow": np.median(head.gradient),
    }


@claim("variance.one-hot")
def one_hot(
    exponent: float = 0.0, dimensions: tuple[int, ...] = (64, 128, 512, 1000), seed: int = 5
) -> Decision:
    """Scores are multiplied by d^exponent; very close is what most rows are, at each d."""
    rng = np.random.default_rng(seed)
    largest = [sample_rows(rng, d, VECTORS, exponent=exponent).largest for d in dimensions]
    shares = [float(np.mean(weights > ONE_HOT)) for weights in largest]
    medians = [float(np.median(weights)) for weights in largest]
    return holds_in_part(share > MOST for share in shares), {
        "shares": listed("{:.2f} (d = {})", shares, dimensions),
        "error": 0.5 / np.sqrt(2000),
        "least": min(medians),
        "most": max(medians),
    }


@claim("variance.ranges")
def ranges(exponent: float = -0.5) -> Decision:
    """Scores are multiplied by d^exponent; stable is a distance log n − E H that does not drift."""
    n = np.array([16, 512, 4096])
    laws = [(DotProduct(d), float(d) ** (exponent + 0.5)) for d in (*DIMENSIONS, WIDE)]
    deficits = np.array([np.log(n) - exact.entropy(law, alpha, n) for law, alpha in laws])
    keys = np.array([n * exact.collision_probability(law, alpha, n) for law, alpha in laws[:-1]])
    drift = float(np.abs(deficits[-1] / deficits[-2] - 1.0).max())
    return holds_within(drift < STEADY), {
        "least": deficits[:-1].min(),
        "most": deficits[:-1].max(),
        "fewest": keys.min(),
        "keys": keys.max(),
        "drift": 100.0 * drift,
        "steady": 100.0 * STEADY,
    }


def _compared(power: float, predicted: Callable[[int], float], seed: int) -> tuple[bool, float]:
    """Compare the variance of scores multiplied by d^power with `predicted`.

    Return whether it is exact and source 001's experiment agrees, and how far the latter's mean
    row variance is off at most, in standard errors.
    """
    rng = np.random.default_rng(seed)
    exactly, worst = True, 0.0
    for d in DIMENSIONS:
        factor = float(d) ** power
        error = factor**2 * standard_errors(d).variance
        off = row_moments(rng, d, factor=factor).variance - predicted(d)
        worst = max(worst, abs(off / error))
        exactly &= abs(predicted(d) / (factor**2 * d * float(ENTRY.variance)) - 1.0) < ROUNDING
    return exactly and worst < LIMIT, worst
