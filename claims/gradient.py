"""Check claims on softmax, its Jacobian and its gradient (sources 000, 004), and on others (003).

Chapters: gradient, jacobian, variance, normal.
"""

from functools import cache
from typing import Literal

import numpy as np
import sympy
from scipy.optimize import brentq
from scipy.special import lambertw

from attnlib import exact, rows
from attnlib._checking import FloatArray
from attnlib.scores import Normal
from claims import symbolic
from claims.registry import (
    Decision,
    Tolerance,
    Verdict,
    claim,
    close,
    listed,
    power_of,
    verdict_as_meant,
    verdict_of,
)
from experiments.power_softmax import power_softmax, power_softmax_jacobian


@claim("gradient.variance-any-law")
def variance_any_law(slope: float = 1.0, mean: float = 0.0) -> Decision:
    """Check Var[q·k] = slope·d, for entries with this mean and variance 1."""
    exactly = close(slope, symbolic.product_moments(mean).variance)
    return verdict_of(exactly and symbolic.product_variance_of_any_law().proved), {}


@claim("gradient.jacobian")
@claim("jacobian.four")
def jacobian_formula(
    diagonal: float = 1.0, off_diagonal: float = -1.0, power: float = 1.0, n: int = 4
) -> Decision:
    """Check ∂p_i/∂s_j = α^power (diagonal·p_i δ_ij + off_diagonal·p_i p_j)."""
    alpha, keys = 2.5, 50
    s = np.random.default_rng(22).standard_normal(keys)
    p = rows.softmax(s, alpha)
    claimed = alpha**power * (diagonal * np.diag(p) + off_diagonal * np.outer(p, p))
    # the complex step: e^{α(s + ih)} has the derivative in its imaginary part, exactly
    weights = np.exp(alpha * (s + 1e-100j * np.eye(keys)))
    derivative = (weights / weights.sum(axis=1, keepdims=True)).imag.T / 1e-100
    agrees = np.abs(claimed - derivative).max() < Tolerance.ROUNDING * np.abs(derivative).max()
    return verdict_of(symbolic.jacobian(n).proved and agrees), {"alpha": alpha}


@claim("jacobian.scale-variant")
def scale_variant(factor: float = 10.0, shift: float = 0.0) -> Decision:
    """Check that softmax(factor·s + shift) differs from softmax(s), in each row."""
    s = Normal().sample(np.random.default_rng(14), 1000, 16)
    gaps = np.abs(rows.softmax(factor * s + shift) - rows.softmax(s)).sum(axis=1) / 2.0
    return verdict_of(gaps.min() > Tolerance.ROUNDING), {"mean": gaps.mean(), "least": gaps.min()}


@claim("jacobian.one-hot")
def one_hot_jacobian(winners: int = 1) -> Decision:
    """Check that the Jacobian is 0 at an output with `winners` equal entries, the others 0."""
    p = sympy.Matrix([sympy.Rational(1, winners)] * winners + [0] * (4 - winners))
    tie = rows.jacobian([0.0, 0.0, -1e6, -1e6])
    return verdict_of((sympy.diag(*p) - p * p.T).is_zero_matrix), {"entry": tie.max()}


@claim("jacobian.bounded")
def weights_normalised(total: float = 1.0, upper: float = 1.0, lower: float = 0.0) -> Decision:
    """Check lower < p_i < upper and Σp = total, for four scores."""
    w = sympy.symbols("w1:5", positive=True)
    p = [weight / sum(w) for weight in w]
    adds_up = sympy.simplify(sum(p) - sympy.nsimplify(total)) == 0
    # a difference has the sign of its numerator, a sum of positive symbols if the claim is true
    above = all(sympy.together(entry - sympy.nsimplify(lower)).is_positive for entry in p)
    below = all(sympy.together(sympy.nsimplify(upper) - entry).is_positive for entry in p)
    rounded = rows.softmax([0.0, -800.0])
    return verdict_of(adds_up and above and below), {"rounded": listed("{:.2f}", rounded)}


@claim("gradient.zero-at-0")
def gradient_at_0(at: float = 0.0, value: float = 0.0) -> Decision:
    """Check g → value as α → at from above, with |g − value| < α − at on the way."""
    s = Normal().sample(np.random.default_rng(23), 1000, 16)
    steps = np.array([1e-3, 1e-6, 1e-9])
    distances = np.array([np.abs(rows.gradient(s, at + h) - value).max() for h in steps])
    return verdict_of((distances < steps).all()), {"distances": distances}


@claim("gradient.zero-at-infinity")
def gradient_at_infinity(winners: int = 1) -> Decision:
    """Check that the gradient vanishes as α → ∞, where `winners` scores share the maximum.

    A row with the gap Δ below its unique maximum has Δg ≤ 2(n − 1)x e^{−x} with x = αΔ.
    """
    n, x = 16, np.array([10.0, 20.0, 40.0])
    s = np.sort(Normal().sample(np.random.default_rng(24), 1000, n), axis=1)
    gaps = s[:, -1:] - s[:, -1 - winners : -winners]
    s[:, -winners:] = s[:, -1:]
    largest = [float((gaps[:, 0] * rows.gradient(s, y / gaps[:, 0])).max()) for y in x]
    bounds = 2.0 * (n - 1) * x * np.exp(-x)
    limit = float(exact.gradient_limit(Normal(), n))
    return verdict_of((largest <= bounds).all()), {
        "n": n,
        "largest": largest,
        "bounds": bounds,
        "limit": limit,
    }


@claim("gradient.both-ends")
def both_ends_vanish(typical_row_only: bool = False) -> Decision:
    """Check that the gradient vanishes at both ends: below a tenth of its value at α = 2."""
    n, scales = 64, (0.01, 2.0, 100.0)
    s = Normal().sample(np.random.default_rng(25), 20_000, n)
    typical = [float(np.median(rows.gradient(s, a))) for a in scales]
    mean = exact.gradient(Normal(), scales, n)
    vanishes = [max(x[0], x[2]) < Tolerance.TENTH * x[1] for x in (typical, mean)]
    verdict = verdict_as_meant(typical_row_only or vanishes[1], vanishes[0])
    return verdict, {"n": n, "scales": scales, "typical": typical, "mean": mean}


@claim("gradient.l1")
def l1_norm(factor: float = 0.5, ratio: float = 1.0) -> Decision:
    """Check factor·‖∂p/∂s‖₁ = α(1 − Σp²), and the ratio of the sums off and on the diagonal."""
    proved = all(symbolic.l1_identity(n).proved for n in (2, 3, 4))
    s = Normal().sample(np.random.default_rng(26), 1, 50)[0]
    matrix = np.abs(rows.jacobian(s, 2.0))
    diagonal = float(np.trace(matrix))
    rest = float(matrix.sum()) - diagonal
    half = float(rows.gradient(s, 2.0)) / (diagonal + rest)
    agrees = close([half, rest / diagonal], [factor, ratio])
    return verdict_of(proved and agrees), {"diagonal": diagonal, "rest": rest}


@claim("gradient.renyi")
def renyi_entropy(order: float = 2.0) -> Decision:
    """Check H_order = −log Σp²."""
    s = Normal().sample(np.random.default_rng(27), 200, 32)
    p = np.concatenate([rows.softmax(s, alpha) for alpha in (0.5, 1.0, 2.0, 4.0, 8.0)])
    y = rows.collision_probability(p)
    entropy = np.log((p**order).sum(axis=-1)) / (1.0 - order)
    gap = float(np.abs(entropy + np.log(y)).max())
    return verdict_of(gap < Tolerance.ROUNDING), {}


@claim("gradient.no-closed-form")
def no_closed_form(
    says: Literal["not easy", "no formula", "a formula"] = "not easy",
) -> Decision:
    """Check α = √(W(n√e/2) − ½) as the maximum, and what is said of a formula for it.

    The search for the root stops at 2e-12 of it; with 1e-9 both are one.
    """
    n = 40.0 * np.arange(1, 501)  # the source's grid
    candidate = np.sqrt(lambertw(n * np.sqrt(np.e) / 2.0).real - 0.5)
    roots = np.array(
        [brentq(lambda a, m=m: (1 + 2 * a * a) * np.exp(a * a) - m, 0.0, 5.0) for m in n]
    )
    decided = {"not easy": Verdict.EXTENDED, "no formula": Verdict.WRONG}.get(says, Verdict.HOLDS)
    return decided if close(candidate, roots, 1e-9) else Verdict.OPEN, {}


@claim("comments.max-quarter")
def largest_entry_quarter(bound: float = 0.25, factor: float = 4.0) -> Decision:
    """Check max ∂p_i/∂s_j = bound, and that `factor` brings this maximum to 1."""
    p = sympy.Symbol("p", real=True)
    maximum = float(sympy.maximum(p * (1 - p), p, sympy.Interval(0, 1)))
    return verdict_of(close([bound, factor * maximum], [maximum, 1.0])), {"maximum": maximum}


@cache
def _best_alphas(n: int, count: int, seed: int) -> FloatArray:
    """Return the α at which the largest entry of J is greatest, for each of `count` normal rows.

    On a grid of 10 %. Shape: (count,).
    """
    s = Normal().sample(np.random.default_rng([seed, n]), count, n)
    best, at = np.zeros(count), np.zeros(count)
    for alpha in np.geomspace(0.1, 300.0, 85):
        entry = rows.largest_entry(s, alpha)
        at = np.where(entry > best, alpha, at)
        best = np.maximum(entry, best)
    return at


@claim("comments.max-entry")
def largest_entry_alpha(
    interval: tuple[float, float] = (1.0, 5.0), sizes: tuple[int, ...] = (4, 16, 64, 256, 1024)
) -> Decision:
    """Check that the best α for the largest entry has no law in log n, and is mostly in `interval`.

    A curve has one row at each of `sizes`. A law that makes a quarter of the variance of log α
    would be seen: a correlation of ½.
    """
    from scipy.stats import pearsonr  # takes as long to load as a chapter's other checks

    count, (low, high) = 800, interval
    best = np.array([_best_alphas(n, count, 29) for n in sizes])
    share_inside = ((best >= low) & (best <= high)).mean(axis=0)
    correlation = pearsonr(np.log(sizes)[:, None], np.log(best), axis=0).statistic
    alike = float(np.mean((share_inside > Tolerance.HALF) & (correlation < Tolerance.HALF)))
    verdict = Verdict.WRONG if alike < Tolerance.CLOSE else Verdict.OPEN
    numbers = {"count": count, "keys": listed("{}", sizes), "alike": 100 * alike}
    numbers |= {"medians": listed("{:.1f}", np.median(best, axis=1))}
    return Verdict.HOLDS_WITHIN if alike > Tolerance.HALF else verdict, numbers


@claim("comments.power")
def power_invariant(
    exponent: float = 6.0,
    backward: float = 0.0,
    keys: tuple[int, int] = (16, 1024),
) -> Decision:
    """Check that a factor c on x changes the derivative of y by x as c^backward; so no length does.

    The lengths are `keys`.
    """
    rng = np.random.default_rng(30)
    x = rng.standard_normal((100, 16))
    factors = np.array([1e-3, 0.25, 10.0, 1e3])
    plain = power_softmax(x, exponent)
    forward = max(float(np.abs(power_softmax(c * x, exponent) - plain).max()) for c in factors)
    sizes = [float(np.linalg.norm(power_softmax_jacobian(c * x, exponent))) for c in factors]
    measured = power_of(factors, sizes) + 1.0  # by the chain rule
    ys = [power_softmax(rng.standard_normal((1000, n)), exponent) for n in keys]
    sums = [exponent * float(1.0 - rows.collision_probability(y).mean()) for y in ys]
    of_factor = max(forward, abs(measured - backward)) < Tolerance.ROUNDING
    return verdict_of(of_factor, close(sums[1], sums[0], Tolerance.TENTH)), {"sums": sums}


@claim("comments.epsilon")
def epsilon_shows_scale(constant: float = 1e-6) -> Decision:
    """Check that with an epsilon, `constant`, the power's output depends on its input's scale."""
    x = np.random.default_rng(31).standard_normal((1000, 16))
    factors = (1.0, 0.01, 0.1, 10.0)
    plain, *others = (power_softmax(c * x, epsilon=constant) for c in factors)
    changes = [float(np.abs(output - plain).sum(axis=1).mean()) for output in others]
    numbers = {"changes": listed("{:.1e} at c = {:g}", changes, factors[1:])}
    return verdict_of(max(changes) > Tolerance.ROUNDING), numbers


@claim("comments.sparsity")
def sparse_weights(
    exponent: float = 6.0, others: float = 0.0, keys: tuple[int, ...] = (16, 1024, 32_768)
) -> Decision:
    """Check that one input of 1 gets nearly all weight, if all others are `others`."""
    shares = []
    for n in keys:
        x = np.full(n, others)
        x[0] = 1.0
        shares.append(float(power_softmax(x, exponent)[0]))
    softmax = [1.0 / (1.0 + (n - 1.0) * np.exp(-2.0)) for n in keys]
    numbers = {"keys": keys, "shares": listed("{:.2f}", shares)}
    numbers |= {"softmax": listed("{:.1g}", softmax)}
    return verdict_of(*(share > Tolerance.NINE_TENTHS for share in shares)), numbers


@claim("comments.lipschitz")
def lipschitz_constants(shrunk: float = 0.01) -> Decision:
    """Check that inputs times `shrunk` raise the power's largest derivative, never softmax's."""
    x = np.random.default_rng(33).standard_normal((1000, 4))
    x[0] = 40.0 * np.array([0.5, 0.5, -1.0, -1.0])  # two weights of 1/2, to rounding

    def largest_norm(jacobian: FloatArray) -> float:
        return float(np.linalg.norm(jacobian, 2, axis=(-2, -1)).max())

    softmax = max(largest_norm(rows.jacobian(c * x)) for c in (1.0, shrunk))
    power = [largest_norm(power_softmax_jacobian(c * x, 6.0)) for c in (1.0, shrunk)]
    bounded = close(softmax, 0.5) and power[1] > 10.0 * power[0]
    numbers = {"softmax": softmax, "growth": power[1] / power[0]}
    return Verdict.ANSWERED if bounded else Verdict.OPEN, numbers


@claim("comments.bounded")
def gradient_bounded(
    every_row: bool = False,
    gaps: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001),
    followed: float = 100.0,
) -> Decision:
    """Check g ≤ α at one scale, and E g ≤ E max at any.

    With `every_row`, check that one bound serves all rows, each at its own best scale. A maximum
    that grows by more than `followed` has no bound but that of the gap.
    """
    others, grid = np.linspace(-1.5, 0.6, 6), np.geomspace(0.1, 1e5, 400)
    tops = [[*others, 1.0, 1.0 + gap] for gap in gaps]
    largest = [float(rows.gradient(np.array([row]), grid).max()) for row in tops]
    n, alpha = 64, 2.0
    s = Normal().sample(np.random.default_rng(32), 20_000, n)
    at_alpha = float(rows.gradient(s, alpha).max())
    means = exact.gradient(Normal(), [2.0, 4.0, 16.0], n)
    top = float(exact.gradient_limit(Normal(), n))
    grows = largest[-1] > followed * largest[0]
    above = at_alpha > alpha or (means > top).any() or (every_row and grows)
    numbers = {"at_alpha": at_alpha, "alpha": alpha, "n": n, "means": means, "top": top}
    seen = {"largest": listed("{:.3g}", largest), "steps": listed("{:g}", gaps)}
    return verdict_as_meant(not grows, not above), {**numbers, **seen}
