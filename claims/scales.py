"""Check claims on scales: that of the largest gradient (000 and 003), and of the output (002).

The first is by the approximation, for normal scores and for cosines, with the entropy there, and
what a decoder should do. Where a check has a `dimension`, the law is that of cosines in it, or the
normal one without.

Chapters: normal, cosine; almost_scaled.
"""

import math
from typing import Any

import numpy as np
import sympy
from scipy.special import betainc, logsumexp, ndtr

from attnlib import annealed, exact, rows
from attnlib._checking import FloatArray
from attnlib.scores import Cosine, DotProduct, Law, Normal
from claims import symbolic
from claims.registry import (
    Decision,
    Tolerance,
    Verdict,
    claim,
    close,
    listed,
    power_of,
    slope,
    verdict_of,
    verdict_within,
)

GRID: FloatArray = np.arange(40.0, 20_001.0, 40.0)
"""The numbers of keys in the source's two figures: 40, 80, …, 20000."""

HEADS = (64, 128, 256)
"""Dimensions of an attention head in use."""

ENTROPY_KEYS: FloatArray = np.array([64.0, 256.0, 1024.0, 4096.0, 16384.0])
"""The numbers of keys over which the growth of an entropy is measured: 64 to 16384."""


@claim("normal.mgf")
def normal_mgf(exponent: float = 0.5) -> Decision:
    """Check E e^(αs) = e^{exponent·α²}."""
    claimed = sympy.exp(sympy.nsimplify(exponent) * symbolic.ALPHA**2)
    proof = symbolic.Identity(symbolic.normal_mgf().left, claimed)
    return verdict_of(proof.proved), {"residual": proof.residual}


@claim("normal.approximation")
def collision_approximation(factor: float = 1.0, keys: tuple[int, int] = (512, 4096)) -> Decision:
    """Check Σp² ≈ factor·e^{α²}/n, up to α*(n)."""
    sizes = np.array([*keys, 1e12])
    at_half, best = (
        exact.collision_probability(Normal(), a, sizes) * sizes / (factor * np.exp(a**2))
        for a in (0.5 * np.sqrt(np.log(sizes)), annealed.best_alpha(Normal(), sizes))
    )
    below = close(at_half[-1], 1.0, Tolerance.IN_THE_LIMIT) and close(at_half, 1.0, Tolerance.TENTH)
    at_best = below and close(best[:2], 1.0, Tolerance.TENTH)
    at = annealed.best_alpha(Normal(), sizes[:2])
    ours, theirs = (module.gradient(Normal(), at, sizes[:2]) for module in (exact, annealed))
    off = 100.0 * (ours - theirs) / ours
    return verdict_of(below, at_best), {"low": at_half, "best": best, "off": off}


@claim("normal.fit")
@claim("cosine.fit", coefficient=3.5, power=1.0, dimension=128, last_digit=0.1)
def power_of_log_fits(
    coefficient: float = 0.84,
    power: float = 0.5,
    dimension: int | None = None,
    last_digit: float = 0.01,
) -> Decision:
    """Check α* ≈ coefficient·(log n)^power."""
    law = _law(dimension)
    best, form = annealed.best_alpha(law, GRID), np.log(GRID) ** power
    error, fitted = coefficient * form / best - 1.0, _fit_coefficient(law, power)
    mean = float(np.abs(error).mean())
    to_the_digit = abs(coefficient - fitted) < Tolerance.HALF * last_digit
    numbers = {"mean": 100 * mean, "ends": 100 * error[[0, -1]], "shape": _name(power)}
    largest = float(np.abs(fitted * form / best - 1.0).max())
    refit = {"coefficient": fitted, "largest": 100 * largest}
    return verdict_within(to_the_digit and mean < Tolerance.CLOSE), {**numbers, **refit}


def _fit_coefficient(law: Law, power: float) -> float:
    """Return c in α*(n) ≈ c (log n)^power, by least squares over the grid."""
    best, form = annealed.best_alpha(law, GRID), np.log(GRID) ** power
    return float(best @ form / (form @ form))


@claim("normal.two-to-three")
@claim("cosine.range", low=25.0, high=35.0, dimension=128)
def in_range(low: float = 2.0, high: float = 3.0, dimension: int | None = None) -> Decision:
    """Check low ≤ α* ≤ high, for nine tenths of the source's n or more."""
    best = annealed.best_alpha(_law(dimension), GRID)  # rises with n
    inside = (best >= low) & (best <= high)
    keys = GRID[inside] if inside.any() else [0.0]
    numbers = {"share": 100 * inside.mean(), "keys": (keys[0], keys[-1]), "ends": best[[0, -1]]}
    return verdict_within(inside.mean() >= Tolerance.NINE_TENTHS), numbers


@claim("normal.recommend")
def scale_is_better(scale: float = 2.5, reference: float = 1.0) -> Decision:
    """Check that scale/√d beats reference/√d by three gradients: approximate, mean, typical."""
    n, alphas = 512, (reference, scale)
    above = annealed.gradient(Normal(), scale, GRID) > annealed.gradient(Normal(), reference, GRID)
    s = Normal().sample(np.random.default_rng(22), 2000, n)
    mean = exact.gradient(Normal(), alphas, n)
    median = [float(np.median(rows.gradient(s, a))) for a in alphas]
    better = [above.mean() > Tolerance.NINE_TENTHS, *(size[1] > size[0] for size in (mean, median))]
    numbers = {"n": n, "mean": mean, "more": median[1] - median[0], "share": 100 * above.mean()}
    verdict = {3: Verdict.HOLDS_WITHIN, 0: Verdict.WRONG}.get(sum(better), Verdict.OPEN)
    return verdict, {**numbers, "limit": float(exact.gradient_limit(Normal(), n))}


@claim("normal.figure")
@claim("cosine.figure", coefficient=3.5, power=1.0, dimension=128)
def curve(coefficient: float = 0.84, power: float = 0.5, dimension: int | None = None) -> Decision:
    """Check that the fitted curve is coefficient·(log n)^power."""
    best = annealed.best_alpha(_law(dimension), GRID)
    near = np.abs(coefficient * np.log(GRID) ** power - best) < Tolerance.CLOSE * best.max()
    numbers = {"ends": best[[0, -1]], "shape": _name(power), "share": 100 * near.mean()}
    return verdict_within(near.mean() > Tolerance.NINE_TENTHS), numbers


@claim("cosine.density")
def cosine_density(
    offset: float = 3.0, dimensions: tuple[int, ...] = (3, 5, 32), bound: float = 3.0
) -> Decision:
    """Check that the density of cosines is ∝ (1 − s²)^{(d−offset)/2}.

    √N times the distance of N draws from their law exceeds `bound` by chance 3 times in 10⁸.
    """
    from scipy.stats import kstest  # takes as long to load as a chapter's other checks

    rng = np.random.default_rng(23)
    count, distances = 20_000, []
    for d in dimensions:
        q, k = rng.standard_normal((2, count, d))
        s = (q * k).sum(axis=1) / np.linalg.norm(q, axis=1) / np.linalg.norm(k, axis=1)
        shape = (d - offset) / 2.0 + 1.0
        test = kstest(s, lambda x, a=shape: betainc(a, a, (1.0 + x) / 2.0))
        distances.append(float(test.statistic * np.sqrt(count)))
    moments = [1.0 / (d - offset + 3.0) for d in dimensions]  # of the claim
    exactly = close(np.multiply(dimensions, moments), 1.0)
    numbers = {"d": dimensions[-1], "moment": moments[-1], "count": count}
    texts = {"distances": listed("{:.2f} (d = {})", distances, dimensions)}
    return verdict_of(exactly and max(distances) < bound), {**numbers, **texts}


@claim("cosine.not-elementary")
def not_elementary(dimensions: tuple[int, ...] = (3, 4, 5, 6, 7, 8)) -> Decision:
    """Check that E e^{αs} of cosines is not elementary, for each d in `dimensions`."""
    elementary = [d for d in dimensions if symbolic.cosine_mgf_is_elementary(d)]
    others = [d for d in dimensions if d not in elementary]
    # sympy's reduction is not taken on trust: for small d the elementary form is integrated
    proved = all(symbolic.cosine_mgf(d).proved for d in elementary if d < 8)
    verdict = verdict_of(*(d in others for d in dimensions)) if proved else Verdict.OPEN
    return verdict, {"elementary": elementary, "others": others}


@claim("cosine.explains")
def systems_explained(
    systems: tuple[tuple[str, int, int, float], ...] = (
        ("AM-Softmax", 512, 10_575, 30.0),
        ("SimCSE", 768, 64, 20.0),
    ),
    dimension: int = 128,
) -> Decision:
    """Check that the rule explains the scales of systems, each a name, d, n and its scale.

    Explained means that α* is within a fifth of the scale. The source's own number is that of d =
    `dimension`.
    """
    lines, shares, explained = [], [], []
    for name, d, n, scale in systems:
        best, assumed = (float(annealed.best_alpha(Cosine(size), n)) for size in (d, dimension))
        shares.append(100 * float(np.divide(*annealed.gradient(Cosine(d), [1.0, best], n))))
        explained.append([_near(best / scale), _near(assumed / scale)])
        lines.append(
            f"{name} (d = {d}, n = {n}) uses {scale:g}, where the rule gives {best:.1f}, or "
            f"{assumed:.1f} at d = {dimension}"
        )
    at_own, at_128 = zip(*explained, strict=True)
    supported = max(shares) < 100 * Tolerance.TENTH and (any(at_own) or all(at_128))
    numbers = {"systems": "; ".join(lines), "kept": max(shares)}
    return verdict_within(supported, supported and all(at_own)), numbers


@claim("cosine.coefficient")
def coefficient_changes(changes: bool = True, dimensions: tuple[int, ...] = HEADS) -> Decision:
    """Check that the coefficient changes with d; if not `changes`, that it is one for all d."""
    coefficients = [_fit_coefficient(Cosine(d), 1.0) for d in dimensions]
    different = max(coefficients) > (1.0 + Tolerance.TENTH) * min(coefficients)
    return verdict_of(different == changes), {
        "found": listed("{:.2f} (d = {})", coefficients, dimensions)
    }


@claim("cosine.inverse-sqrt")
def power_of_dimension(
    exponent: float = -0.5, factors: tuple[str, ...] = ("the cosine", "q·k")
) -> Decision:
    """Check that each of `factors` is ∝ (d − 3)^exponent at fixed n."""
    n, dimensions = 1024, np.array([64.0, 4096.0, 1e6])
    best = np.array([float(annealed.best_alpha(Cosine(int(d)), n)) for d in dimensions])
    # RMS normalisation makes |q| = |k| = √d, so q·k = d cos
    on = {"the cosine": best, "q·k": best / dimensions}
    powers = {name: power_of(dimensions[1:] - 3.0, factor[1:]) for name, factor in on.items()}
    parts = [abs(powers[name] - exponent) < Tolerance.HUNDREDTH for name in factors]
    numbers = {"cosine": powers["the cosine"], "product": powers["q·k"]}
    return verdict_within(*parts), {"n": n, "best": best, **numbers}


@claim("cosine.rmsnorm")
def norm_exponent(exponents: tuple[float, float] = (-0.5, -1.0), dimension: int = 128) -> Decision:
    """Answer which 30·d^exponent is within a fifth of α*/d, for nine tenths of n."""
    best = annealed.best_alpha(Cosine(dimension), GRID)
    # RMS normalisation makes |q| = |k| = √d, so q·k = d cos
    ratios = [30.0 * dimension ** (exponent + 1.0) / best for exponent in exponents]
    shares = [float(np.mean(_near(ratio))) for ratio in ratios]
    fitting = sum(share >= Tolerance.NINE_TENTHS for share in shares)
    wide = (*HEADS, 512)
    roots = [float(annealed.best_alpha(Cosine(d), 4096)) / np.sqrt(d) for d in wide]
    return Verdict.ANSWERED if fitting == 1 else Verdict.OPEN, {
        "shares": listed("30·d^{:g} for {:.0f} %", exponents, [100 * share for share in shares]),
        "roots": listed("{:.2f}/√d at d = {}", roots, wide),
    }


@claim("entropy.renyi-slow", name="Rényi")
@claim("entropy.shannon-slow", name="Shannon")
def entropy_grows_slowly(
    name: str, laws: tuple[Law, ...] = (Cosine(128), Normal()), power: float = 1.0
) -> Decision:
    """Check that at α*(n) the entropy grows by less than a tenth of log n, for both laws.

    And by less than under the factor of the post that it names, (log n/log 512)^power on scores of
    standard deviation 1.
    """
    factor = (np.log(ENTROPY_KEYS) / math.log(512)) ** power
    slopes = [_entropy_slope(name, law, annealed.best_alpha(law, ENTROPY_KEYS)) for law in laws]
    units = [math.sqrt(law.d) if isinstance(law, Cosine) else 1.0 for law in laws]
    beside = [
        _entropy_slope(name, *pair) for pair in zip(laws, np.outer(units, factor), strict=True)
    ]
    words = [f"cosine, d = {x.d}" if isinstance(x, Cosine) else "normal" for x in laws]
    slower = [at_best < other for at_best, other in zip(slopes, beside, strict=True)]
    return verdict_within(max(slopes) < Tolerance.TENTH, all(slower)), {
        "slopes": listed("{:.2f} ({})", [max(slope, 0.0) for slope in slopes], words),
        "beside": listed("{:.2f}", beside),
    }


def _entropy_slope(name: str, law: Law, scale: FloatArray) -> float:
    """Return the slope against log n of the mean entropy, Shannon's or Rényi's, at these scales."""
    if name == "Shannon":
        entropy = exact.entropy(law, scale, ENTROPY_KEYS)
    else:  # −log Σp² = 2 log Z(α) − log Z(2α)
        once, twice = (exact.free_energy(law, a * scale, ENTROPY_KEYS) for a in (1.0, 2.0))
        entropy = 2.0 * once - twice
    return slope(np.log(ENTROPY_KEYS), entropy)


@claim("decoder.half-length")
def constant_suffices(fraction: float = 0.5, most: float = 2 / 3) -> Decision:
    """Check that α*(fraction·L_max) loses less than 5 % at the share `most` of the lengths."""
    lengths, shares = (512, 2048, 32_768), []
    for length in lengths:
        n = np.arange(2, length + 1)
        alpha = annealed.best_alpha(Normal(), fraction * length)
        top = annealed.gradient(Normal(), annealed.best_alpha(Normal(), n), n)
        loss = 1.0 - annealed.gradient(Normal(), alpha, n) / top
        shares.append(float((loss < Tolerance.CLOSE).mean()))
    texts = listed("{:.0f} % (L = {})", [100 * share for share in shares], lengths)
    return verdict_within(min(shares) > most), {"shares": texts}


def _law(dimension: int | None) -> Normal | Cosine:
    """Return the law of cosines in this dimension, the normal law without one."""
    return Normal() if dimension is None else Cosine(dimension)


def _near(ratio: Any) -> Any:
    """Return whether the ratio of two scales is within a fifth of 1; element by element."""
    return (ratio > 1.0 - Tolerance.FIFTH) & (ratio < 1.0 / (1.0 - Tolerance.FIFTH))


def _name(power: float) -> str:
    """Return (log n)^power as it is written."""
    return {0.5: "√log n", 1.0: "log n"}.get(power, f"(log n)^{power:g}")


# --- the output -----------------------------------------------------------------------------------

FIGURE_KEYS = 4096
"""The number of keys in the source's figure."""

TEMPERATURES: FloatArray = 2.0 ** np.arange(-4.0, 4.1, 0.5)
"""Its temperatures."""


@claim("output.under-scaled")
def output_std(std: float = 0.102, n: int = 256) -> Decision:
    """Check that the output has this std, to three decimals."""
    computed, one_less = (float(exact.output_std(DotProduct(64), 1.0, m)) for m in (n, n - 1))
    agree = abs(computed - std) < 0.0005 and computed < Tolerance.HALF
    return verdict_of(agree), {"computed": computed, "fewer": n - 1, "one_less": one_less}


@claim("output.flat")
def flat_output(exponent: float = -0.5) -> Decision:
    """Check that the output's std tends to n^exponent as t → ∞."""
    t = np.array([10.0, 100.0, 1000.0])
    n = np.array([[64], [4096]])
    errors = np.abs(exact.output_std(Normal(), 1.0 / t, n) / n**exponent - 1.0)
    largest = errors.max(axis=0)
    return verdict_of(largest[-1] < 1e-6), {"errors": largest}


@claim("output.spike")
def one_hot_output(scale: float = 1.0) -> Decision:
    """Check that the output's std tends to `scale` as t → 0."""
    t = np.array([0.1, 0.01, 0.001])
    n = np.array([[64], [4096]])
    gaps = scale - exact.output_std(Normal(), 1.0 / t, n)
    predicted = t * exact.gradient_limit(Normal(), n) / 2.0
    first_order = close(gaps[:, -1], predicted[:, -1], Tolerance.HUNDREDTH)
    return verdict_of(first_order), {"few": gaps[0], "many": gaps[1]}


@claim("output.lognormal")
def lognormal_output(exponent: float = 1.0) -> Decision:
    """Check that the output's std is close to (e^{exponent/t²}/n)^½ for t from ½ to 16, all n.

    And that there the weights are log-normal, as the rule supposes.
    """
    sizes = (64, 256, 4096, 65536, 10**9)
    errors, distances = {}, {}
    critical = {n: float(np.sqrt(1.5 / np.log(n))) for n in sizes}
    rng = np.random.default_rng(44)
    for n in sizes:
        alpha = 1.0 / np.geomspace(0.5, 16.0, 24)
        rule = np.exp(exponent * alpha**2 / 2.0) / np.sqrt(n)
        errors[n] = 100 * float(np.abs(rule / exact.output_std(Normal(), alpha, n) - 1.0).max())
        if n <= FIGURE_KEYS:  # beyond, log Z hardly varies
            distances[n] = _distance_of_weights(rng, alpha[0], n)
    apart = list(distances.values())
    becomes_right = max(errors[max(sizes)] / 100, min(apart)) < Tolerance.CLOSE
    near = max(errors.values()) < 100 * Tolerance.FIFTH and max(apart) < Tolerance.CLOSE
    return verdict_within(becomes_right, becomes_right and near), {
        "errors": listed("{:.3g} % (n = {:.5g})", errors.values(), errors),
        "limits": listed("{:.2f}", critical.values()),
        "apart": listed("{:.2f} (n = {})", apart, distances),
    }


def _distance_of_weights(rng: np.random.Generator, alpha: float, n: int) -> float:
    """Return Kolmogorov's distance between the law of a weight p and its claimed law.

    The claim is log p = αs − α²/2 − log n with a normal s. P(p ≤ y) is P(αs ≤ log y − log(1 − y) +
    log Z) averaged over 400 Z of the n − 1 others.
    """
    others = logsumexp(alpha * rng.standard_normal((400, n - 1)), axis=1)
    quantiles = np.linspace(-4.0, 4.0, 81)
    y: FloatArray = np.exp(alpha * quantiles - alpha**2 / 2.0) / n
    inside = np.clip(y, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)
    level = (np.log(inside / (1.0 - inside))[:, None] + others) / alpha
    return float(np.abs(ndtr(level).mean(axis=1) - ndtr(quantiles)).max())


@claim("output.factor")
def unit_output_factor(constant: float = np.e) -> Decision:
    """Check that the factor (n/constant)^½ gives the output std 1, for n keys a query."""
    sizes = (64, 256, 1024, 4096)
    errors = {}
    for n in sizes:
        for d in (64, 128):
            square = exact.collision_probability(DotProduct(d), 1.0, n)
            errors[n, d] = 100 * (float(np.sqrt(n / constant * square)) - 1.0)
    many, *at_other_t = (
        100 * (float(np.sqrt(n / constant) * exact.output_std(Normal(), 1.0 / t, n)) - 1.0)
        for t, n in ((1.0, 10**9), (0.9, 4096), (1.1, 4096))
    )
    near = max(map(abs, errors.values())) < 100 * Tolerance.CLOSE
    texts = listed("{:+.1f} % (n = {})", [errors[n, 64] for n in sizes], sizes)
    numbers = {"errors": texts, "limit": abs(many), "beside": at_other_t}
    return verdict_within(near and abs(many) < 100 * Tolerance.IN_THE_LIMIT), numbers


@claim("output.figure")
def output_figure(exponent: float = 1.0) -> Decision:
    """Check the figure's rules: 1, (e^{exponent/t²}/n)^½ from t = ½ on, and n^−½."""
    n, t = FIGURE_KEYS, TEMPERATURES
    computed = exact.output_std(Normal(), 1.0 / t, n)
    rule = np.exp(exponent / t**2 / 2.0) / np.sqrt(n) / computed
    errors = {
        "spike, t = 1/16": abs(1.0 / float(computed[0]) - 1.0),
        "log-normal, t ≥ 0.5": float(np.abs(rule[t >= 0.5] - 1.0).max()),
        "log-normal, t = 1": abs(float(rule[t == 1.0][0]) - 1.0),
        "flat, t = 16": abs(n**-0.5 / float(computed[-1]) - 1.0),
    }
    in_place = all(errors[x] < Tolerance.HUNDREDTH for x in ("log-normal, t = 1", "flat, t = 16"))
    return verdict_within(max(errors.values()) < Tolerance.FIFTH and in_place), {
        "errors": listed("{:.2g} % ({})", [100 * x for x in errors.values()], errors),
        "between": float(np.exp(0.5 / t[5] ** 2) / np.sqrt(n) / computed[5]),
    }
