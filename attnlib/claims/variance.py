"""Claims on the mean and variance of a dot product (source 001), and on what they do to softmax.

Chapters: variance, saturation.
"""

from collections.abc import Callable

import numpy as np

from attnlib import scores, symbolic
from attnlib.claims.registry import LIMIT, Finding, Verdict, claim
from attnlib.initialisation import DIMENSIONS, VECTORS, row_moments, sample_rows, standard_errors
from attnlib.sampling import mean_and_error


@claim(
    "variance.mean-zero",
    source="001",
    chapter="variance",
    statement="E[q·k] = 0 at every d.",
)
def mean_zero(mean: float = 0.0) -> Finding:
    """`mean` is E[q·k]/√d."""
    rng = np.random.default_rng(1)
    deviations = [
        (row_moments(rng, d).mean - mean * np.sqrt(d)) / standard_errors(d).mean for d in DIMENSIONS
    ]
    worst = max(deviations, key=abs)
    return Finding(
        Verdict.HOLDS if abs(worst) < LIMIT else Verdict.WRONG,
        f"With {VECTORS} queries and keys at d = {_listed(DIMENSIONS)}, the mean is at most "
        f"{abs(worst):.1f} standard errors √d/{VECTORS} from the claim.",
    )


@claim(
    "variance.linear",
    source="001",
    chapter="variance",
    statement="Var[q·k] = d: linear in d, with slope 1.",
)
def linear(slope: float = 1.0, exponent: float = 1.0) -> Finding:
    """The claim is Var[q·k] = slope·d^exponent."""
    worst = _worst_variance_deviation(
        power=0.0, predicted=lambda d: slope * float(d) ** exponent, seed=2
    )
    return Finding(
        Verdict.HOLDS if abs(worst) < LIMIT else Verdict.WRONG,
        f"With {VECTORS} queries and keys at d = {_listed(DIMENSIONS)}, the mean row variance is "
        f"at most {abs(worst):.1f} standard errors from the claim, each √(4d/m + 2d²/m²) with "
        f"m = {VECTORS}.",
    )


@claim(
    "variance.product-rule",
    source="001",
    chapter="variance",
    statement="Var(XY) = Var(X)·Var(Y) for independent X and Y.",
)
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
        "In general Var(XY) = σx²σy² + σx²μy² + μx²σy² (sympy), so both means must be 0: with "
        f"means {mean:g} and variances 1 it is {factor + error:g}, not {factor:g}.",
    )


@claim(
    "variance.scale",
    source="001",
    chapter="variance",
    statement="Var(Z q·k) = Z²d, so Z = 1/√d gives variance 1 at every d.",
)
def scale(exponent: float = -0.5) -> Finding:
    """The claim is that Z = d^exponent gives variance 1."""
    worst = _worst_variance_deviation(power=exponent, predicted=lambda d: 1.0, seed=3)
    return Finding(
        Verdict.HOLDS if abs(worst) < LIMIT else Verdict.WRONG,
        f"With Z = d^{exponent:g} the mean row variance at d = {_listed(DIMENSIONS)} is at most "
        f"{abs(worst):.1f} standard errors from 1.",
    )


@claim(
    "variance.softmax-exaggerates",
    source="001",
    chapter="saturation",
    statement="Unscaled scores give softmax outputs that are extremely small or large, and the "
    "gradient does not flow.",
)
def softmax_exaggerates(exponent: float = 0.0, typical_row_only: bool = False) -> Finding:
    """Scores are multiplied by d^exponent; the claim may be restricted to the typical row."""
    d, n = DIMENSIONS[-1], VECTORS
    rng = np.random.default_rng(4)
    claimed = sample_rows(rng, d, n, exponent=exponent)
    scaled = sample_rows(rng, d, n, exponent=-0.5)
    extreme = np.median(claimed.largest) > 0.9
    typical, usual = float(np.median(claimed.gradient)), float(np.median(scaled.gradient))
    mean, error = mean_and_error(claimed.gradient)
    usual_mean = float(scaled.gradient.mean())
    carried = (
        np.sort(claimed.gradient)[-claimed.gradient.size // 10 :].sum() / claimed.gradient.sum()
    )
    if not extreme or typical > usual / 2:
        verdict = Verdict.WRONG
    elif typical_row_only or mean + LIMIT * error < usual_mean / 2:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.NEEDS_A_CONDITION
    return Finding(
        verdict,
        f"The typical row and the mean differ. At d = {d}, n = {n} the median largest weight is "
        f"{np.median(claimed.largest):.3f} and the median gradient α(1 − Σp²) is {typical:.2f} "
        f"(scaled: {usual:.2f}); its mean is {mean:.1f} ± {error:.1f} (scaled: {usual_mean:.2f}). "
        f"The tenth of the rows with the largest gradients carries {100 * carried:.0f} % of "
        "the sum.",
    )


@claim(
    "variance.one-hot",
    source="000",
    chapter="saturation",
    statement="Without 1/√d, attention at initialisation is very close to one-hot.",
)
def one_hot(exponent: float = 0.0, dimensions: tuple[int, ...] = (64, 128, 512, 1000)) -> Finding:
    """Scores are multiplied by d^exponent; very close means a largest weight above 0.9, mostly."""
    rng = np.random.default_rng(5)
    shares = {
        d: float(np.mean(sample_rows(rng, d, VECTORS, exponent=exponent).largest > 0.9))
        for d in dimensions
    }
    close = [share > 0.5 for share in shares.values()]
    if all(close):
        verdict = Verdict.HOLDS
    elif any(close):
        verdict = Verdict.NEEDS_A_CONDITION
    else:
        verdict = Verdict.WRONG
    measured = ", ".join(f"{share:.2f} (d = {d})" for d, share in shares.items())
    return Finding(
        verdict,
        f"Of 2000 rows of {VECTORS} keys, the share with a weight above 0.9 is {measured}, with a "
        f"standard error of at most {0.5 / np.sqrt(2000):.3f}. Most rows are close to one-hot at "
        f"d in {[d for d, share in shares.items() if share > 0.5]} only.",
    )


@claim(
    "variance.ranges",
    source="001",
    chapter="saturation",
    statement="The scale 1/√d keeps attention distributions in a stable range.",
)
def ranges(exponent: float = -0.5) -> Finding:
    """Scores are multiplied by d^exponent; stable means an entropy 0.3 to 0.6 below log n."""
    rng = np.random.default_rng(6)
    deficits, keys = [], []
    for n in (16, 512, 4096):
        for d in DIMENSIONS:
            sample = sample_rows(rng, d, n, exponent=exponent, count=300)
            deficits.append(np.log(n) - sample.entropy.mean())
            keys.append(n * sample.collision.mean())
    stable = min(deficits) > 0.3 and max(deficits) < 0.6
    return Finding(
        Verdict.HOLDS_WITHIN if stable else Verdict.WRONG,
        f"Over d = {_listed(DIMENSIONS)} and n = 16, 512, 4096 the mean entropy stays "
        f"{min(deficits):.2f} to {max(deficits):.2f} below log n (the normal law's limit: ½), and "
        f"n·E Σp² between {min(keys):.1f} and {max(keys):.1f} (limit: e).",
    )


def _worst_variance_deviation(
    *, power: float, predicted: Callable[[int], float], seed: int
) -> float:
    """Repeat source 001's experiment with scores multiplied by d^power.

    Return the largest deviation of the mean row variance from `predicted`, in standard errors.
    """
    rng = np.random.default_rng(seed)
    deviations = []
    for d in DIMENSIONS:
        factor = float(d) ** power
        measured = row_moments(rng, d, factor=factor).variance
        error = factor**2 * standard_errors(d).variance
        deviations.append((measured - predicted(d)) / error)
    return float(max(deviations, key=abs))


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
