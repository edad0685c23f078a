"""Claims on the gradient of softmax (source 000) and in the comments below it (source 003).

Chapters: gradient, alternatives.
"""

from functools import cache
from typing import Any, Literal

import numpy as np
import sympy
from scipy.optimize import brentq
from scipy.special import lambertw
from scipy.stats import linregress, spearmanr

from attnlib import exact, rows, scores
from attnlib.checking import FloatArray
from attnlib.sampling import Estimate, mean_and_error
from experiments.lab.small_models import (
    EXPONENT,
    Normaliser,
    Optimiser,
    Path,
    recurrent_gradients,
    stack_gradients,
    train_retrieval,
)
from experiments.power_softmax import power_softmax, power_softmax_jacobian
from ledger import symbolic
from ledger.registry import (
    LIMIT,
    ROUNDING,
    TENTH,
    Decision,
    Verdict,
    claim,
    holds,
    holds_within,
    listed,
)

SEEDS = 5
"""Of every model trained to settle whether a learning rate helps."""

PAIRS = 24
"""Seeds of every comparison of two normalisers: with twelve one verdict in 300 was another."""

RATES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Learning rates tried in it."""

ONE_RATE = 1
"""Where in them the rate 0.1 is, too small for either."""

RETRIEVAL_RATES: dict[Optimiser, list[float]] = {
    "descent": [1e-3, 1e-2, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5],
    "adam": [1e-3, 1e-2, 0.1, 1.0, 10.0],
}
"""Learning rates tried where the gradient vanishes."""

ROOT = 1e-9
"""Two ways to one root differ by less: the search stops at 2e-12 of it."""

SHARE = 0.5
"""What is roughly so of all rows is so of most of them."""

OBVIOUS = 0.5
"""A law shows in single rows if it makes a quarter of what they vary by: a correlation of ½."""

SIGMAS = 3.0
"""A mean of 24 differences is away from 0 by more standard errors: chance one in 150."""

LEVEL = 0.05
"""A gradient that changes by fewer powers of ten a layer keeps its size: 1 to 16 in 24 layers."""

STEEP = 0.1
"""One that changes by more vanishes or explodes along a chain: 1 to 250 in 24 steps."""

FOLLOWED = 100.0
"""A maximum that grows by more, while a gap closes by a thousand, has no bound but the gap's."""

LEARNED = 0.1
"""A loss below a tenth of what a constant output gets: the task is learned."""

STUCK = 0.5
"""A loss above half of that: the task is not learned."""


@claim("gradient.variance-any-law")
def variance_any_law(slope: float = 1.0, mean: float = 0.0, seed: int = 21) -> Decision:
    """The claim is Var[q·k] = slope·d for entries of this mean."""
    rng = np.random.default_rng(seed)
    d, pairs = 64, 20_000
    laws: dict[str, FloatArray] = {
        "sign": rng.choice([-1.0, 1.0], (2, pairs, d)),
        "normal": rng.standard_normal((2, pairs, d)),
        "exponential": rng.exponential(size=(2, pairs, d)) - 1.0,
        "Student t, 9 degrees": rng.standard_t(9, size=(2, pairs, d)) * np.sqrt(7.0 / 9.0),
    }
    deviations = []
    for draws in laws.values():
        q, k = draws + mean
        s = (q * k).sum(axis=1)
        variance, error = mean_and_error((s - s.mean()) ** 2)
        deviations.append(abs(variance - slope * d) / error)
    worst = max(deviations)
    exactly = abs(slope / float(scores.product_moments(mean, 1.0, mean, 1.0).variance) - 1.0)
    proved = symbolic.product_variance_of_any_law().proved and exactly < ROUNDING
    numbers = {"d": d, "count": len(laws), "laws": ", ".join(laws), "worst": worst}
    return holds(proved and worst < LIMIT), numbers


@claim("gradient.jacobian")
def jacobian(
    diagonal: float = 1.0, off_diagonal: float = -1.0, power: float = 1.0, seed: int = 22
) -> Decision:
    """The claim is ∂p_i/∂s_j = α^power (diagonal·p_i δ_ij + off_diagonal·p_i p_j)."""
    proved = all(symbolic.jacobian(n).proved for n in (2, 3, 4))
    alpha, n = 2.5, 50
    s = np.random.default_rng(seed).standard_normal(n)
    p = rows.softmax(s, alpha)
    claimed = alpha**power * (diagonal * np.diag(p) + off_diagonal * np.outer(p, p))
    # the complex step: e^{α(s + ih)} has the derivative in its imaginary part, exactly
    weights = np.exp(alpha * (s + 1e-100j * np.eye(n)))
    derivative = (weights / weights.sum(axis=1, keepdims=True)).imag.T / 1e-100
    gap = float(np.abs(claimed - derivative).max() / np.abs(derivative).max())
    return holds(proved and gap < ROUNDING), {"alpha": alpha, "gap": _distance(gap)}


@claim("gradient.zero-at-0")
def zero_at_0(at: float = 0.0, value: float = 0.0, seed: int = 23) -> Decision:
    """The claim is g → value as α → at from above, and |g − value| < α − at on the way."""
    s = scores.Normal().sample(np.random.default_rng(seed), 1000, 16)
    steps = (1e-3, 1e-6, 1e-9)
    distances = [float(np.abs(rows.gradient(s, at + h) - value).max()) for h in steps]
    slope = rows.gradient(s, 1e-9) / 1e-9
    return holds((np.array(distances) < steps).all()), {
        "distances": listed("{:.1e}", distances),
        "least": slope.min(),
        "most": slope.max(),
    }


@claim("gradient.zero-at-infinity")
def zero_at_infinity(winners: int = 1, averaged: bool = False, seed: int = 24) -> Decision:
    """`winners` scores share the maximum; if `averaged`, the claim is about the mean over rows.

    A row with the gap Δ below its unique maximum has Δg ≤ 2(n − 1)x e^{−x} with x = αΔ.
    """
    n, x = 16, np.array([10.0, 20.0, 40.0])
    s = np.sort(scores.Normal().sample(np.random.default_rng(seed), 1000, n), axis=1)
    gaps = s[:, -1:] - s[:, -1 - winners : -winners]
    s[:, -winners:] = s[:, -1:]
    largest = [float((gaps[:, 0] * rows.gradient(s, y / gaps[:, 0])).max()) for y in x]
    bounds = 2.0 * (n - 1) * x * np.exp(-x)
    limit = float(exact.gradient_limit(scores.Normal(), n))
    return holds(limit == 0.0 if averaged else (largest <= bounds).all()), {
        "n": n,
        "winners": winners,
        "largest": listed("{:.2g}", largest),
        "bounds": listed("{:.2g}", bounds),
        "mean": float(exact.gradient(scores.Normal(), 100.0, n)),
        "limit": limit,
    }


@claim("gradient.both-ends")
def both_ends(
    small: float = 0.01, large: float = 100.0, typical_row_only: bool = False, seed: int = 25
) -> Decision:
    """The two scales; vanishing means less than a tenth of the value at α = 2."""
    n, scales = 64, (small, 2.0, large)
    s = scores.Normal().sample(np.random.default_rng(seed), 20_000, n)
    typical = [float(np.median(rows.gradient(s, a))) for a in scales]
    mean = exact.gradient(scores.Normal(), scales, n)
    vanishes = [max(x[0], x[2]) < TENTH * x[1] for x in (typical, mean)]
    if all(vanishes[:1] if typical_row_only else vanishes):
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.EXTENDED if vanishes[0] else Verdict.WRONG
    numbers = {"n": n, "scales": scales, "typical": typical, "mean": mean}
    return verdict, {**numbers, "vanished": TENTH * typical[1]}


@claim("gradient.l1")
def l1(factor: float = 0.5, ratio: float = 1.0, seed: int = 26) -> Decision:
    """The claim is factor·‖∂p/∂s‖₁ = α(1 − Σp²), and a ratio of rest to diagonal."""
    proved = all(symbolic.l1_identity(n).proved for n in (2, 3, 4))
    s = scores.Normal().sample(np.random.default_rng(seed), 1, 50)[0]
    matrix = np.abs(rows.jacobian(s, 2.0))
    diagonal = float(np.trace(matrix))
    rest = float(matrix.sum()) - diagonal
    half = float(rows.gradient(s, 2.0)) / (diagonal + rest)
    agrees = max(abs(half / factor - 1.0), abs(rest / diagonal / ratio - 1.0)) < ROUNDING
    return holds(proved and agrees), {"half": half, "diagonal": diagonal, "rest": rest}


@claim("gradient.renyi")
def renyi(order: float = 2.0, logarithm: bool = True, seed: int = 27) -> Decision:
    """The claim is H_order = −log Σp², or Σp² itself without the logarithm."""
    s = scores.Normal().sample(np.random.default_rng(seed), 200, 32)
    p = np.concatenate([rows.softmax(s, alpha) for alpha in (0.5, 1.0, 2.0, 4.0, 8.0)])
    y = rows.collision_probability(p)
    gap = float(np.abs(rows.renyi_entropy(p, order) - (-np.log(y) if logarithm else y)).max())
    correlation = float(spearmanr(y, rows.shannon_entropy(p)).statistic)
    numbers = {"gap": _distance(gap), "correlation": correlation}
    return holds(gap < ROUNDING), numbers


@claim("gradient.no-closed-form")
def no_closed_form(
    shift: float = 0.5, says: Literal["not easy", "no formula", "a formula"] = "not easy"
) -> Decision:
    """The candidate is α = √(W(n√e/2) − shift); what is said of a formula for the maximum."""
    n = 40.0 * np.arange(1, 501)  # the source's grid
    candidate = np.sqrt(np.maximum(lambertw(n * np.sqrt(np.e) / 2.0).real - shift, 0.0))
    found = np.array(
        [brentq(lambda a, m=m: (1 + 2 * a * a) * np.exp(a * a) - m, 0.0, 5.0) for m in n]
    )
    gap = float(np.abs(candidate / found - 1.0).max())
    decided = {"not easy": Verdict.EXTENDED, "no formula": Verdict.WRONG}.get(says, Verdict.HOLDS)
    return decided if gap < ROOT else Verdict.OPEN, {"gap": _distance(gap)}


@claim("comments.max-quarter")
def max_quarter(bound: float = 0.25, factor: float = 4.0, seed: int = 28) -> Decision:
    """The claim is max ∂p_i/∂s_j = bound, and factor brings that maximum to 1."""
    p = sympy.Symbol("p", real=True)
    maximum = float(sympy.maximum(p * (1 - p), p, sympy.Interval(0, 1)))
    rng = np.random.default_rng(seed)
    seen = max(
        float(rows.largest_entry(size * scores.Normal().sample(rng, 20_000, n)).max())
        for n in (2, 3, 16)
        for size in (0.1, 1.0, 10.0)
    )
    usual = scores.Normal().sample(rng, 2000, 512)
    typical = float(np.median(rows.largest_entry(usual)))
    agrees = max(abs(bound - maximum), abs(factor * maximum - 1.0)) < ROUNDING
    return holds(agrees), {"maximum": maximum, "seen": seen, "typical": typical}


@cache
def _best_scales_by_largest_entry(n: int, count: int, seed: int) -> FloatArray:
    """Return the α that maximises the largest entry of J, one for each of `count` normal rows.

    On a grid of 10 %.
    """
    s = scores.Normal().sample(np.random.default_rng([seed, n]), count, n)
    best, at = np.zeros(count), np.zeros(count)
    for alpha in np.geomspace(0.1, 300.0, 85):
        entry = rows.largest_entry(s, alpha)
        at = np.where(entry > best, alpha, at)
        best = np.maximum(entry, best)
    return at


@claim("comments.max-entry")
def max_entry(
    interval: tuple[float, float] = (1.0, 5.0),
    obvious: bool = False,
    sizes: tuple[int, ...] = (4, 16, 64, 256, 1024),
    seed: int = 29,
) -> Decision:
    """The claim is that a law in log n shows in single rows or not, and most are in `interval`."""
    count, (low, high) = 800, interval
    best = np.array([_best_scales_by_largest_entry(n, count, seed) for n in sizes])
    fit = linregress(np.repeat(np.log(sizes), count), np.log(best).ravel())
    shares = np.mean((best >= low) & (best <= high), axis=1)
    inside = shares > SHARE
    if (fit.rvalue > OBVIOUS) != obvious or not inside.any():
        verdict = Verdict.WRONG
    else:
        verdict = Verdict.HOLDS_WITHIN if inside.all() else Verdict.NEEDS_A_CONDITION
    return verdict, {
        "sizes": listed("{}", sizes),
        "shares": listed("{:.2f}", shares),
        "correlation": fit.rvalue,
        "slope": fit.slope,
        "medians": listed("{:.1f}", np.median(best, axis=1)),
    }


@claim("comments.power")
def power(
    exponent: float = 6.0, backward: float = 0.0, rescaled: bool = False, seed: int = 30
) -> Decision:
    """The claim is that a factor c in y(cx) changes the derivative by x as c^backward does.

    If x itself is `rescaled`, the derivative is by cx.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((100, 16))
    factors = np.array([1e-3, 0.25, 10.0, 1e3])
    plain = power_softmax(x, exponent)
    forward = max(float(np.abs(power_softmax(c * x, exponent) - plain).max()) for c in factors)
    sizes = [float(np.linalg.norm(power_softmax_jacobian(c * x, exponent))) for c in factors]
    by_input = float(linregress(np.log(factors), np.log(sizes)).slope)
    measured = by_input if rescaled else by_input + 1.0  # by the chain rule
    keys = (16, 1024)
    ys = (power_softmax(rng.standard_normal((1000, n)), exponent) for n in keys)
    return holds(max(forward, abs(measured - backward)) < ROUNDING), {
        "forward": _distance(forward),
        "by_x": abs(by_input + 1.0),
        "by_input": by_input,
        "sums": [exponent * float(1.0 - rows.collision_probability(y).mean()) for y in ys],
        "keys": keys,
    }


@claim("comments.power-faster")
def power_faster(
    comparison: Literal["all", "attention at one rate", "each at its best rate"] = "all",
    slower: bool = False,
    pairs: int = PAIRS,
    n: int = 16,
    seed: int = 0,
) -> Decision:
    """Compare the loss of attention after 50 steps; or claim that it falls more slowly.

    And the gradients of normal rows of n.
    """
    power, softmax = _losses("power", seed)[:, :pairs], _losses("softmax", seed)[:, :pairs]
    differences = {
        "attention at one rate": power[ONE_RATE] - softmax[ONE_RATE],
        "each at its best rate": _best(power) - _best(softmax),
    }
    measured = {name: mean_and_error(values) for name, values in differences.items()}
    signs = [
        (mean if slower else -mean) > SIGMAS * error
        for name, (mean, error) in measured.items()
        if comparison in ("all", name)
    ]
    x = np.random.default_rng(seed).standard_normal((1000, n))
    y, p = power_softmax(x), rows.softmax(x)
    larger = float(np.mean((y * (1 - y) * EXPONENT / abs(x) - p * (1 - p)).sum(axis=1) > 0.0))
    verdict = Verdict.WRONG
    if larger > SHARE and any(signs):
        verdict = Verdict.HOLDS_WITHIN if all(signs) else Verdict.NEEDS_A_CONDITION
    lines = "; ".join(f"{name}: {mean:.2f} ± {e:.2f}" for name, (mean, e) in measured.items())
    return verdict, {
        "larger": larger,
        "differences": lines[0].upper() + lines[1:],
        "rate": RATES[ONE_RATE],
    }


@claim("comments.not-rnn")
def not_rnn(
    path: Path = "residual",
    gain: float = 0.5,
    normalised: bool = True,
    start: int = 8,
    depth: int = 32,
    seed: int = 0,
) -> Decision:
    """`path`: what carries the derivative from layer to layer; the rest is the same in both."""
    layers = np.arange(start, depth + 1, dtype=np.float64)

    def decades(runs: list[FloatArray]) -> Estimate:
        fits = [linregress(layers, np.log10(run[start - 1 :])) for run in runs]
        return mean_and_error(np.array([fit.slope for fit in fits]))

    size: Any = {"gain": gain, "normalised": normalised, "depth": depth}
    attention = decades([stack_gradients(seed + i, path, **size) for i in range(8)])
    recurrent = decades([recurrent_gradients(seed + i, **size) for i in range(20)])
    differs = abs(attention.value) < LEVEL and abs(recurrent.value) > STEEP
    return holds_within(differs), {
        "with_or_out": "with" if normalised else "without",
        "attention": attention,
        "recurrent": recurrent,
    }


@claim("comments.epsilon")
def epsilon(constant: float = 1e-6, seed: int = 31) -> Decision:
    """`constant` is the epsilon."""
    x = np.random.default_rng(seed).standard_normal((1000, 16))
    reference = power_softmax(x, epsilon=constant)
    factors = (0.01, 0.1, 10.0)
    changes = [
        float(np.abs(power_softmax(c * x, epsilon=constant) - reference).sum(axis=1).mean())
        for c in factors
    ]
    numbers = {"changes": listed("{:.1e} at c = {:g}", changes, factors)}
    return holds(max(changes) > ROUNDING), numbers


@claim("comments.bounded")
def bounded(
    every_row: bool = False,
    factor: float = 1.0,
    gaps: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001),
    seed: int = 32,
) -> Decision:
    """The claim is g ≤ factor·α at one scale and E g ≤ factor·E max at any.

    If `every_row`, it is that one bound serves all rows, each at its own best scale.
    """
    others, grid = np.linspace(-1.5, 0.6, 6), np.geomspace(0.1, 1e5, 400)
    largest = [
        float(rows.gradient(np.array([[*others, 1.0, 1.0 + gap]]), grid).max()) for gap in gaps
    ]
    n, alpha = 64, 2.0
    s = scores.Normal().sample(np.random.default_rng(seed), 20_000, n)
    at_alpha = float(rows.gradient(s, alpha).max())
    means = exact.gradient(scores.Normal(), [2.0, 4.0, 16.0], n)
    top = float(exact.gradient_limit(scores.Normal(), n))
    grows = largest[-1] > FOLLOWED * largest[0]
    if at_alpha > factor * alpha or (means > factor * top).any() or (every_row and grows):
        verdict = Verdict.WRONG
    else:
        verdict = Verdict.EXTENDED if grows else Verdict.HOLDS
    return verdict, {
        "at_alpha": at_alpha,
        "alpha": alpha,
        "n": n,
        "means": listed("{:.3f}", means),
        "top": top,
        "largest": listed("{:.3g}", largest),
        "gaps": listed("{:g}", gaps),
    }


@claim("comments.not-learning-rate")
def not_learning_rate(
    alpha: float = 100.0,
    cure: Literal["learning rate", "scale"] = "learning rate",
    steps: int = 200,
    seed: int = 0,
) -> Decision:
    """Train attention at scale `alpha` with all rates; or cure it with the scale 1 instead."""
    descent, adam = (
        min(_retrieval_losses(alpha, rate, optimiser, steps, seed) for rate in rates)
        for optimiser, rates in RETRIEVAL_RATES.items()
    )
    scaled = _retrieval_losses(1.0, 10.0, "descent", steps, seed)
    cured = scaled.value if cure == "scale" else min(descent.value, adam.value)
    if cured < LEARNED:
        verdict = Verdict.WRONG
    else:
        stuck = cured > STUCK and scaled.value < LEARNED
        verdict = Verdict.HOLDS_WITHIN if stuck else Verdict.OPEN
    return verdict, {
        "rates": [len(rates) for rates in RETRIEVAL_RATES.values()],
        "descent": descent,
        "adam": adam,
        "scaled": scaled,
    }


@cache
def _losses(normaliser: Normaliser, seed: int) -> FloatArray:
    """Return log₁₀ of the loss after 50 steps, for each of RATES and PAIRS seeds."""
    told: Any = {"normaliser": normaliser, "steps": 50}
    losses = [[train_retrieval(seed + i, rate, **told)[-1] for i in range(PAIRS)] for rate in RATES]
    return np.log10(losses)


@cache
def _retrieval_losses(
    alpha: float, rate: float, optimiser: Optimiser, steps: int, seed: int
) -> Estimate:
    runs = [
        train_retrieval(seed + i, rate, alpha=alpha, optimiser=optimiser, steps=steps)[-1]
        for i in range(SEEDS)
    ]
    return mean_and_error(np.array(runs))


def _best(losses: FloatArray) -> FloatArray:
    """Return what the rate with the lowest mean gives each seed; `losses` has a row a rate."""
    best: FloatArray = losses[losses.mean(axis=1).argmin()]
    return best


def _distance(gap: float) -> str:
    """Return the largest difference in words, without the digits of rounding errors."""
    return "less than 1e-11" if round(gap, 11) == 0.0 else f"at most {gap:.1e}"
