"""Check claims on the number of keys, of posts and papers that the book does not follow.

Su Jianlin's posts on entropy (sources 010 to 015), YaRN (017), Scalable-Softmax (018), the phases
of Chen and others (019), of Giorlandino and Goldt (020), scale-invariant attention (021), and a
repository (024).
"""

import math
from collections.abc import Callable

import numpy as np
import sympy
from scipy.optimize import brentq, minimize_scalar

from attnlib import annealed, exact, freezing
from attnlib._checking import FloatArray
from attnlib.scores import Cosine, Law, Normal
from claims.registry import (
    Decision,
    Tolerance,
    Verdict,
    claim,
    close,
    listed,
    power_of,
    skip_checks,
    verdict_of,
    verdict_within,
)
from claims.symbolic import Identity
from experiments.lab.comparison import SUPERSCRIPTS

REFERENCE = 512
"""The number of keys at which the log n factor of the posts is 1."""
LARGEST = 2**53
"""The largest number of keys of which the exact means are to be had."""


# --- entropy and log n ----------------------------------------------------------------------------


def entropy_deficit(d: int, multiplier: float) -> float:
    """Return log n − H of many keys, uniform on the sphere, |q| = |k| = √d: exact as n → ∞."""
    law, argument = Cosine(d), multiplier * d
    slope = float(law.log_mgf_derivatives(argument).first)
    return argument * slope - float(law.log_mgf(argument))


@claim("su.entropy-linear")
def entropy_linear(d: int = 64, multipliers: tuple[float, ...] = (1.0, 2.0, 0.125)) -> Decision:
    """Check log n − H ≈ 0.24·λd at each of these λ."""
    true = [entropy_deficit(d, multiplier) for multiplier in multipliers]
    claimed = [0.24 * multiplier * d for multiplier in multipliers]
    parts = [close(*pair, Tolerance.CLOSE) for pair in zip(true, claimed, strict=True)]
    return verdict_within(*parts), {
        "pairs": listed("{:.2f} at λ = {:g}, against {:.2f}", true, multipliers, claimed)
    }


@claim("su.kappa")
def offsets(scales: tuple[float, ...] = (1.0, 2.0), power: float = 1.0, n: int = 32768) -> Decision:
    """Check that (log n/log 512)^power offsets a part of H's growth, on rows of this α at 512."""
    law, factor = Cosine(64), (math.log(n) / math.log(REFERENCE)) ** power

    def mean_entropy(alpha: float, keys: int) -> float:
        return float(exact.entropy(law, math.sqrt(law.d) * alpha, keys))

    shares = []
    for alpha in scales:
        plain, at_reference = mean_entropy(alpha, n), mean_entropy(alpha, REFERENCE)
        shares.append((plain - mean_entropy(factor * alpha, n)) / (plain - at_reference))
    parts = [Tolerance.TENTH < share < 1.0 for share in shares]
    return verdict_within(*parts), {"shares": listed("{:.2f} at α = {:g}", shares, scales)}


@claim("su.natural-log")
def gradient_vanishes(power: float = 1.0, keys: tuple[int, ...] = (512, 4096, 10**6)) -> Decision:
    """Check that with α = (log n)^power the gradient by the logits, 1 − Σp², vanishes for large n.

    In the limit it does if the bound α(1 − Σp²) ≤ √(2 log n) of the largest score makes it; at the
    lengths `keys` it does if it is below a tenth.
    """
    scales = np.log(keys) ** power
    passed = exact.gradient(Normal(), scales, keys) / scales
    bounds = freezing.critical_alpha(np.array(keys, dtype=float)) / scales
    in_the_limit = bool((passed <= bounds).all()) and power_of(np.log(keys), bounds) < 0.0
    enough = 2.0 / Tolerance.TENTH**2 / math.log(10.0)
    numbers = {"passed": passed, "enough": f"{enough:.0f}".translate(SUPERSCRIPTS)}
    return verdict_of(in_the_limit, (passed < Tolerance.TENTH).all()), numbers


def largest_score(law: Law, n: float) -> float:
    """Return the score that one of n scores exceeds on average."""
    return float(brentq(lambda s: float(law.tail(s)) - 1.0 / n, 0.0, 12.0 if law.mean else 9.0))


@claim("su.fast-entropy")
def entropy_by_largest(
    readings: tuple[str, ...] = ("approximation", "lower bound"), n: int = 4096, share: float = 1.0
) -> Decision:
    """Check H ≈ log n − share·α(s_max − s̄), or in the other reading that H is no less.

    The first for normal scores at a quarter of α_c; the second for rows in which 1 to n keys are
    ahead of the others, by up to 30 in their logits: Jensen's inequality and Σps ≤ s_max prove it
    for every row.
    """
    alpha = float(freezing.critical_alpha(n)) / 4.0
    fall = math.log(n) - float(exact.entropy(Normal(), alpha, n))
    claimed = share * alpha * largest_score(Normal(), n)
    ahead, lead = np.meshgrid([1.0, 10.0, 100.0, n / 2.0, float(n)], np.linspace(0.0, 30.0, 301))
    total = (n - ahead) + ahead * np.exp(lead)
    entropy = np.log(total) - ahead * np.exp(lead) / total * lead
    bound = math.log(n) - share * lead * (1.0 - ahead / n)
    true = {
        "approximation": close(claimed, fall, Tolerance.FIFTH),
        "lower bound": bool((entropy >= bound - Tolerance.ROUNDING).all()),
    }
    return verdict_of(*(true[reading] for reading in readings)), {"fall": fall, "claimed": claimed}


@claim("su.fast-law")
def largest_growth(laws: tuple[Law, ...] = (Cosine(3), Normal()), growth: float = 0.0) -> Decision:
    """Check that s_max − s̄ grows as (log n)^growth, so that λ goes like (log n)^(1 − growth)."""
    keys = (float(2**10), float(2**40))
    powers = [power_of(np.log(keys), [largest_score(law, n) for n in keys]) for law in laws]
    parts = [abs(power - growth) < Tolerance.TENTH for power in powers]
    return verdict_within(*parts), {"found": listed("{:.2f}", powers)}


@claim("su.base-512")
def base_absorbed(absorbed: bool = True) -> Decision:
    """Check that another base of the logarithm changes nothing, if training absorbs a constant."""
    keys = 2.0 ** np.arange(4, 21)
    reference, *others = (np.log(keys) / np.log(base) for base in (REFERENCE, *(4096, 32768)))
    ratios = reference / others
    small = (ratios[:, 0] - 1.0 < Tolerance.FIFTH).all()
    same = np.ptp(ratios, axis=1).max() < Tolerance.ROUNDING
    return verdict_of(same and (absorbed or small)), {"ratios": ratios[:, 0]}


@claim("su.eight-log")
def dimensions_for_words(coefficient: float = 8.33, multiplier: float = 1.0) -> Decision:
    """Check that 2·log n word vectors need d = coefficient·log n dimensions, at this λ."""
    ratios = [2.0 * d / entropy_deficit(d, multiplier) for d in (32, 128, 512)]
    return verdict_within(close(ratios, coefficient, Tolerance.CLOSE)), {"found": ratios}


@claim("su.lower-bound")
def entropy_lower_bound(constant: float = 0.4745, temperature: float = 1.0) -> Decision:
    """Check that cosines over this temperature take at most `constant` nats off log n."""

    def taken(share: float) -> float:
        """Return log n − H where this share of the keys has cosine 1, the others −1."""
        logits, shares = np.array([1.0, -1.0]) / temperature, np.array([share, 1.0 - share])
        weights = shares * np.exp(logits)
        total = weights.sum()
        return float((weights / total) @ (logits - np.log(total)))

    optimum = minimize_scalar(lambda share: -taken(share), bounds=(1e-6, 0.5), method="bounded")
    most, share = -float(optimum.fun), float(optimum.x)
    return verdict_of(abs(most - constant) < 5e-5), {"most": most, "share": share}


@claim("su.four-log")
def alpha_four_log(coefficient: float = 4.0, other: float = 3.5, n: int = 256) -> Decision:
    """Check that at this n and d = 128 α* is nearer to coefficient·log n than to other·log n."""
    ratio = float(annealed.best_alpha(Cosine(128), n)) / math.log(n)
    nearer = abs(ratio - coefficient) < abs(ratio - other)
    return verdict_within(nearer and close(ratio, coefficient, Tolerance.CLOSE)), {"ratio": ratio}


@claim("su.square")
def yarn_square(coefficient: float = 0.2, ratios: tuple[float, ...] = (2.0, 8.0, 32.0)) -> Decision:
    """Check (1 + 0.1 log r)² ≈ 1 + coefficient·log r for these r."""
    logs = np.log(ratios)
    errors = (1.0 + 0.1 * logs) ** 2 / (1.0 + coefficient * logs) - 1.0
    texts = listed("{:.1f} % for r = {:g}", 100.0 * errors, ratios)
    return verdict_within(np.abs(errors).max() < Tolerance.TENTH), {"errors": texts}


@claim("su.half")
def half_of_yarn(share: float = 0.5) -> Decision:
    """Check that 1/log L is roughly this share of YaRN's 0.2: nearer to it than to all of it."""
    shares = [5.0 / math.log(length) for length in (2048, 4096)]
    nearer = [abs(math.log(ratio / share)) < abs(math.log(ratio)) for ratio in shares]
    return verdict_within(all(nearer)), {"found": shares}


# --- extensions: YaRN and Scalable-Softmax --------------------------------------------------------


@claim("yarn.closer")
def interpolation(alignments: tuple[float, ...] = (1.0, -1.0), extension: float = 16.0) -> Decision:
    """Check that q·k is larger, rotated by 1/extension of the angle; k is ±q, both flat."""
    angles = 10000.0 ** (-np.arange(64) / 64.0)
    distances = np.arange(1.0, 4097.0)

    def mean_cosine(at: FloatArray) -> FloatArray:
        """Return q·k/|q||k| at these distances."""
        return np.asarray(np.cos(np.outer(at, angles)).mean(axis=1))

    gains = mean_cosine(distances / extension) - mean_cosine(distances)
    shares = [float(np.mean(sign * gains > 0.0)) for sign in alignments]
    parts = [share > Tolerance.NINE_TENTHS for share in shares]
    return verdict_within(*parts), {"shares": listed("{:.0f} %", [100 * share for share in shares])}


@claim("yarn.trick")
def temperature_on_qk(power: str = "1/2") -> Decision:
    """Check that q and k times (1/t)^power give the logits over t."""
    t, q, k = sympy.symbols("t q k", positive=True)
    factor = (1 / t) ** sympy.Rational(power)
    identity = Identity((factor * q) * (factor * k), q * k / t)
    return verdict_of(identity.proved), {"residual": identity.residual}


@claim("chen.yarn")
def yarn_power(power: float = 2.0, train: int = 4096) -> Decision:
    """Check that YaRN's factor on the logits goes like (log n)^power, from 2 to 32 times L."""
    keys = np.array([2.0 * train, 32.0 * train])
    exponent = power_of(np.log(keys), (1.0 + 0.1 * np.log(keys / train)) ** 2)
    return verdict_within(close(exponent, power, Tolerance.FIFTH)), {"found": exponent}


def half_weight_margin(multiplier: Callable[[int], float], n: int) -> float:
    """Return how far above (0, …, 1), evenly spaced, a score must be for half of the weight."""
    c = multiplier(n)
    total = math.expm1(c * (n - 1) / (n - 2)) / math.expm1(c / (n - 2))
    return float(math.log(total) / c - 1.0)


@claim("ssmax.close-to-one")
def weight_close_to_one(s: float = 0.43, keys: tuple[int, ...] = (2, 10, 100, 1000)) -> Decision:
    """Check that in a row of −2 and one +3 n^(s z) gives the last a weight close to 1."""
    weights = [1.0 / (1.0 + (n - 1) * math.exp(-5.0 * s * math.log(n))) for n in keys]
    plain = [1.0 / (1.0 + (n - 1) * math.exp(-5.0)) for n in keys]
    texts = listed("{:.3f} for n = {} (softmax: {:.3f})", weights, keys, plain)
    parts = [close(weight, 1.0, Tolerance.FIFTH) for weight in weights]
    return verdict_within(*parts), {"weights": texts}


@claim("ssmax.margin")
def margin_suffices(scales: tuple[float, ...] = (0.43, 1.0), multiple: float = 1.0) -> Decision:
    """Check that for these s a margin of multiple/s gives more than half of the weight, at each n.

    The n are 100, 10⁴ and 10⁶. The evidence has the margin that gives half, times s.
    """
    keys = (100, 10**4, 10**6)
    half_margins = [
        [s * half_weight_margin(lambda n, s=s: s * math.log(n), n) for n in keys]  # type: ignore[misc]
        for s in scales
    ]
    # another 1/s on the margin multiplies the odds by n
    weights = [
        [1.0 / (1.0 + n ** (half - multiple)) for n, half in zip(keys, row, strict=True)]
        for row in half_margins
    ]
    least, most = np.min(weights), np.max(weights)
    texts = listed("{} for s = {:g}", [listed("{:.2f}", row) for row in half_margins], scales)
    return verdict_within(least > Tolerance.HALF), {"least": least, "most": most, "enough": texts}


@claim("ssmax.indefinitely")
def margin_grows(grows: bool = False) -> Decision:
    """Check that the margin grows by log n, with a constant scale, or one like log n."""
    margins = [half_weight_margin(math.log if grows else lambda n: 1.0, n) for n in (100, 10**6)]
    rise = (margins[1] - margins[0]) / math.log(10**4)
    return verdict_within(close(rise, 1.0, Tolerance.CLOSE)), {"margins": margins, "slope": rise}


# --- phases ---------------------------------------------------------------------------------------


@claim("chen.critical")
def critical_cosine(own: str = "1/2") -> Decision:
    """Check that two outputs have the cosine 4ρ/(1 + 3ρ) with this weight on itself."""
    rho, w = sympy.Symbol("rho", positive=True), sympy.Rational(own)
    norm = w**2 + 2 * w * (1 - w) * rho + (1 - w) ** 2 * rho
    identity = Identity(rho / norm, 4 * rho / (1 + 3 * rho))
    return verdict_of(identity.proved), {"residual": identity.residual}


@claim("chen.phases")
def cosine_phases(factors: tuple[float, float] = (0.5, 1.5), rho: float = 0.3) -> Decision:
    """Check that the cosine of two outputs tends to 1 below the critical β, and to ρ above it.

    Tokens have equal cosines ρ = `rho`; `factors` are β in units of the critical log n/(1 − ρ), and
    n is 10¹².
    """

    def cosine(factor: float, n: float) -> float:
        own_weight = 1.0 / (1.0 + (n - 1.0) * n**-factor)
        rest = 1.0 - own_weight
        squared_length = own_weight**2 + 2.0 * own_weight * rest * rho + rest**2 * rho
        return float(rho / squared_length)

    cosines = [cosine(factor, 1e12) for factor in factors]
    agree = close(cosines, [1.0, rho], Tolerance.IN_THE_LIMIT)
    return verdict_of(agree), {"both": cosines}


@claim("giorlandino.participation")
def collision_limit(power: float = 1.0) -> Decision:
    """Check that E Σp² tends to 1 − (β_c/β)^power at β/β_c of 1.5, 2 and 3."""
    x, n = np.array((1.5, 2.0, 3.0))[:, None], np.array([4096.0, LARGEST])
    collisions = exact.collision_probability(Normal(), x * np.sqrt(2.0 * np.log(n)), n)
    near, far = (collisions - (1.0 - x**-power)).T
    near_limit = ((far > 0.0) & (far < near) & (far < Tolerance.CLOSE)).all()
    return verdict_within(near_limit), {"gaps": far, "found": collisions[0]}


@claim("giorlandino.critical")
def freezing_alpha(value: float = math.sqrt(2.0)) -> Decision:
    """Check that rows of n independent scores freeze at α = value·√(log n)."""
    keys = np.array([64.0, 4096.0, 10.0**9])
    coefficients = freezing.critical_alpha(keys) / np.sqrt(np.log(keys))
    return verdict_of(np.abs(coefficients - value).max() < Tolerance.ROUNDING), {
        "value_found": float(coefficients[0])
    }


@claim("giorlandino.gradient")
def squared_norm(rho: float = 0.0, ratio: float = 2.0) -> Decision:
    """Check that (1 − ρ)(Y₂ − 2Y₃) + ρY₂² is a squared norm, at this ρ and β/β_c."""
    n = LARGEST
    alpha = ratio * math.sqrt(2.0 * math.log(n))
    two, three = (float(exact.moment(Normal(), alpha, n, order)) for order in (2, 3))
    printed = (1.0 - rho) * (two - 2.0 * three) + rho * two**2
    limit = (2.0 * rho - 1.0) * (1.0 - 1.0 / ratio) ** 2
    possible = printed >= 0.0 and limit >= 0.0  # what cannot be may be a slip of the digest
    verdict = Verdict.HOLDS if possible else Verdict.OPEN
    return verdict, {"printed": printed, "limit": limit}


@claim("anson.moments")
def moments_fall(factor: str = "2") -> Decision:
    """Check that both means fall like 1/(t/τ + 1) with a² = factor·(log(t/τ + 1) − log α + β/α)."""
    u, alpha, beta = sympy.symbols("u alpha beta", positive=True)  # u = t/τ + 1
    squared = sympy.Rational(factor) * (sympy.log(u) - sympy.log(alpha) + beta / alpha)
    mean = -squared + beta / alpha
    weight = sympy.exp(sympy.expand(mean + squared / 2))
    sides = ((weight, alpha / u), ((mean + squared) * weight, beta / u))
    return verdict_of(*(Identity(*pair).proved for pair in sides)), {}


@claim("anson.root-log")
def entropy_root_log(power: float = 0.5) -> Decision:
    """Check that the entropy of ten times the distance is a straight line in (log t)^power."""
    t = 10.0 ** np.arange(1, 7)
    scales = np.sqrt(2.0 * np.log(t * math.sqrt(10.0) / 10.0 + 1.0) + 1.0)  # α = β = √e
    entropies = exact.entropy(Normal(), scales, np.round(9.0 * t))
    logs = np.log(t)
    line = np.polynomial.Polynomial.fit(logs**power, entropies, 1)
    off = float(np.abs(line(logs**power) - entropies).max())
    sublinear = bool(np.all(np.diff(entropies / logs) < 0.0))
    numbers = {"off": off, "ends": entropies[[0, -1]]}
    return verdict_within(sublinear and off < Tolerance.CLOSE), numbers


@claim("anson.ranges")
def ranges_equal(tau: float = 10.0, most: float = 2.0) -> Decision:
    """Check that no range of ten times the distance has `most` times the mean total of another."""
    t = np.arange(10.0, 10.0**5)
    means = math.sqrt(math.e) / (t / tau + 1.0)
    totals = [float(means[(t >= x) & (t < 10 * x)].sum()) for x in (10.0, 100.0, 1e3, 1e4)]
    return verdict_within(max(totals) < most * min(totals)), {"totals": totals}


@claim("anson.recent")
def recent_share(invariance: bool = True) -> Decision:
    """Check that from 10³ to 10⁵ keys the share of the last 100 falls by less than √100 times."""
    t = np.arange(1.0, 1e5 + 1.0)
    means = 1.0 / (t / 10.0 + 1.0) if invariance else np.ones_like(t)
    shares = [float(means[:100].sum() / means[:n].sum()) for n in (1000, 100_000)]
    blind = 1000 / 100_000  # by how much it falls if the distance does not count
    return verdict_within(shares[1] / shares[0] > blind**Tolerance.HALF), {"shares": shares}


skip_checks("su.masked", "yarn.uniform", "yarn.fit", "ssmax.loss", "ssmax.needle", "anson.losses")


@claim("chiang.log-length")
def log_length_factor(biases: tuple[float, ...] = (0.0, 1.0), n: int = 100) -> Decision:
    """Check that log n times the layer's input of the queries scales the logits by log n."""
    rng = np.random.default_rng(0)
    x, query, key = rng.standard_normal((n, 8)), *rng.standard_normal((2, 8, 8))

    def error(bias: float) -> float:
        """Return the relative error of the claimed logits, with this bias on the queries."""
        plain, scaled = ((c * x @ query + bias) @ (x @ key).T for c in (1.0, math.log(n)))
        return float(np.abs(scaled - math.log(n) * plain).max() / np.abs(scaled).max())

    errors = [error(bias) for bias in biases]
    numbers = {"worst": max(errors), "factor": math.log(n)}
    return verdict_of(*(error < Tolerance.ROUNDING for error in errors)), numbers
