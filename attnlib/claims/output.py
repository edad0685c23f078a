"""Claims on the scale of attention's output (source 002).

Chapter: output_scale.
"""

import numpy as np

from attnlib import annealed, exact, rows
from attnlib.claims.registry import LIMIT, Finding, Verdict, claim
from attnlib.initialisation import (
    DIMENSIONS,
    TEMPERATURES,
    VECTORS,
    output_squares,
    row_moments,
    standard_errors,
)
from attnlib.sampling import mean_and_error
from attnlib.scores import DotProduct, Normal

FIGURE_KEYS = 4096
"""The number of keys in the source's figure."""

CLOSE = 0.2
"""A rule that errs by less is close: in a figure over six powers of two it looks right."""


@claim(
    "output.pre-scaled",
    source="002",
    chapter="output_scale",
    statement="The factor 1/√d keeps the variance that enters the softmax stable.",
)
def pre_scaled(exponent: float = -0.5) -> Finding:
    """The factor is d^exponent."""
    rng = np.random.default_rng(41)
    deviations = [
        (row_moments(rng, d, factor=d**exponent).variance - 1.0)
        / (d ** (2.0 * exponent) * standard_errors(d).variance)
        for d in DIMENSIONS
    ]
    worst = max(map(abs, deviations))
    listed = ", ".join(map(str, DIMENSIONS))
    return Finding(
        Verdict.HOLDS if worst < LIMIT else Verdict.WRONG,
        f"With {VECTORS} queries and keys at d = {listed}, the mean row variance of the scaled "
        f"scores is at most {worst:.1f} standard errors from 1. That of one row is |q|²/d: 1 with "
        f"a standard deviation of √(2/d), which is {np.sqrt(2 / 64):.2f} at d = 64.",
    )


@claim(
    "output.under-scaled",
    source="002",
    chapter="output_scale",
    statement="The output of attention is under-scaled: with n = 256 keys and d = 64 its standard "
    "deviation is 0.102.",
)
def under_scaled(std: float = 0.102, n: int = 256, d: int = 64) -> Finding:
    """The claim is that the output has this std, to three decimals."""
    computed = float(exact.output_std(DotProduct(d), 1.0, n))
    squares = output_squares(np.random.default_rng(42), d, n, 256).mean(axis=1)
    mean, error = mean_and_error(squares)
    measured, spread = np.sqrt(mean), error / (2.0 * np.sqrt(mean))
    agree = abs(measured - computed) < LIMIT * spread and abs(computed - std) < 0.0005
    return Finding(
        Verdict.HOLDS if agree and computed < 0.5 else Verdict.WRONG,
        f"Exactly {computed:.5f} at n = {n}, d = {d}; simulated {measured:.4f} ± {spread:.4f}. For "
        f"d → ∞ it would be {float(exact.output_std(Normal(), 1.0, n)):.5f}, and the log-normal "
        f"rule gives {1.0 / float(annealed.post_scale(Normal(), 1.0, n)):.5f}.",
    )


@claim(
    "output.flat",
    source="002",
    chapter="output_scale",
    statement="As the temperature t → ∞, the output's scale is n^(−1/2).",
)
def flat(exponent: float = -0.5) -> Finding:
    """The claim is n^exponent."""
    t = np.array([10.0, 100.0, 1000.0])
    n = np.array([[64], [4096]])
    errors = np.abs(exact.output_std(Normal(), 1.0 / t, n) / n**exponent - 1.0).max(axis=0)
    return Finding(
        Verdict.HOLDS if errors[-1] < 1e-6 else Verdict.WRONG,
        "For n = 64 and 4096 the exact scale is within "
        f"{errors[0]:.0e}, {errors[1]:.0e}, {errors[2]:.0e} of the claim, relatively, at t = 10, "
        "100, 1000. The first correction is 1/(2t²).",
    )


@claim(
    "output.spike",
    source="002",
    chapter="output_scale",
    statement="As the temperature t → 0, the output's scale is 1.",
)
def spike(scale: float = 1.0) -> Finding:
    """The claim is this scale."""
    t = np.array([0.1, 0.01, 0.001])
    n = np.array([[64], [4096]])
    gaps = scale - exact.output_std(Normal(), 1.0 / t, n)
    predicted = t * exact.gradient_limit(Normal(), n) / 2.0
    holds = bool((np.abs(gaps / predicted - 1.0)[:, -1] < 0.01).all())
    return Finding(
        Verdict.HOLDS if holds else Verdict.WRONG,
        f"The exact scale falls short of the claim by {gaps[0, 0]:.2g}, {gaps[0, 1]:.2g}, "
        f"{gaps[0, 2]:.2g} at t = 0.1, 0.01, 0.001 for n = 64, and by {gaps[1, 0]:.2g}, "
        f"{gaps[1, 1]:.2g}, {gaps[1, 2]:.2g} for n = 4096: by t/2 times the mean of the largest "
        "score.",
    )


@claim(
    "output.lognormal",
    source="002",
    chapter="output_scale",
    statement="For t > 1/2 the output's scale is (exp(t⁻²)/n)^(1/2), and the softmax's output is "
    "log-normal.",
)
def lognormal(
    exponent: float = 1.0,
    sizes: tuple[int, ...] = (64, 256, 4096, 65536, 10**9),
    from_critical: float | None = None,
) -> Finding:
    """The claim is (e^{exponent/t²}/n)^½, close to the exact scale for t from ½ to 16, at all n.

    With `from_critical` it is from that multiple of √(3/(2 log n)) to 16 instead.
    """
    errors, starts = {}, {}
    for n in sizes:
        critical = float(np.sqrt(1.5 / np.log(n)))
        starts[n] = 0.5 if from_critical is None else from_critical * critical
        alpha = 1.0 / np.geomspace(starts[n], 16.0, 24)
        rule = np.exp(exponent * alpha**2 / 2.0) / np.sqrt(n)
        errors[n] = float(np.abs(rule / exact.output_std(Normal(), alpha, n) - 1.0).max())
    if errors[max(sizes)] > 0.05:
        verdict = Verdict.WRONG  # it does not even become right as n grows
    elif max(errors.values()) < CLOSE:
        verdict = Verdict.HOLDS_WITHIN
    else:
        verdict = Verdict.NEEDS_A_CONDITION
    listed = ", ".join(f"{100 * error:.3g} % (n = {n:.5g})" for n, error in errors.items())
    beyond = {n: float(np.sqrt(1.5 / np.log(n))) for n in sizes}
    limits = ", ".join(f"{critical:.2f}" for critical in beyond.values())
    start = "½" if from_critical is None else f"{from_critical:g}√(3/(2 log n))"
    return Finding(
        verdict,
        f"From t = {start} on, the rule is off by at most {listed}. As n → ∞ it is right above "
        f"√(3/(2 log n)), here {limits}, and wrong below: the bound depends on n. The weights are "
        "log-normal as far as log Z is constant.",
    )


@claim(
    "output.factor",
    source="002",
    chapter="output_scale",
    statement="Multiplied by (n/e)^(1/2), the output has about unit variance at t = 1.",
)
def factor(constant: float = np.e, causal: bool = False) -> Finding:
    """The factor is (n/constant)^½, for n keys a query; or for n positions with a causal mask."""
    errors = {}
    for n in (64, 256, 1024, 4096):
        for d in (64, 128):
            seen = np.arange(1, n + 1) if causal else n
            square = exact.collision_probability(DotProduct(d), 1.0, seen).mean()
            errors[n, d] = float(np.sqrt(n / constant * square)) - 1.0
    largest = max(map(abs, errors.values()))
    listed = ", ".join(
        f"{100 * error:+.1f} % (n = {n})" for (n, d), error in errors.items() if d == 64
    )
    few = float(np.sqrt(4 / constant) * exact.output_std(DotProduct(64), 1.0, 4)) - 1.0
    masked = exact.collision_probability(DotProduct(64), 1.0, np.arange(1, 257)).mean()
    return Finding(
        Verdict.HOLDS_WITHIN if largest < 0.05 else Verdict.WRONG,
        f"At d = 64 the std is off from 1 by {listed}; but {100 * few:+.0f} % at n = 4. Under a "
        f"causal mask the rms over 256 positions is {np.sqrt(256 / constant * masked):.2f}, and "
        f"{np.sqrt(256 / constant):.1f} at the first.",
    )


@claim(
    "output.figure",
    source="002",
    chapter="output_scale",
    statement="The figure: the output's scale against temperature at n = 4096, simulated, next to "
    "the three rules.",
)
def figure(exponent: float = 1.0, flat_exponent: float = -0.5) -> Finding:
    """The rules are 1, (e^{exponent/t²}/n)^½ from t = ½ on, and n^flat_exponent."""
    n, t = FIGURE_KEYS, TEMPERATURES
    s = Normal().sample(np.random.default_rng(43), 250, n)
    computed = exact.output_std(Normal(), 1.0 / t, n)
    deviations = []
    for temperature, std in zip(t, computed, strict=True):
        mean, error = mean_and_error(rows.collision_probability(rows.softmax(s, 1 / temperature)))
        deviations.append(abs(mean - std**2) / error)
    middle = t >= 0.5
    rule = np.exp(exponent / t[middle] ** 2 / 2.0) / np.sqrt(n)
    errors = {
        "spike, t = 1/16": 1.0 / float(computed[0]) - 1.0,
        "log-normal, t ≥ ½": float(np.abs(rule / computed[middle] - 1.0).max()),
        "flat, t = 16": n**flat_exponent / float(computed[-1]) - 1.0,
    }
    close = all(abs(error) < CLOSE for error in errors.values())
    listed = ", ".join(f"{100 * abs(error):.2g} % ({name})" for name, error in errors.items())
    between = float(np.exp(0.5 / t[5] ** 2) / np.sqrt(n) / computed[5])
    return Finding(
        Verdict.HOLDS_WITHIN if close and max(deviations) < LIMIT else Verdict.WRONG,
        f"Reproduced: 250 rows at the 17 temperatures are at most {max(deviations):.1f} standard "
        f"errors from the exact curve. The rules are off by {listed}. Between the first two the "
        f"curve leaves both: at t = 2^(−3/2) the log-normal rule is {between:.1f} times too large.",
    )
