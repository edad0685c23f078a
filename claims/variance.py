"""Check claims on logits: mean and variance of a dot product, its softmax, and bounds of its size.

The first are of sources 001, 004 and 009, and of the scores that a head scales (002); the others of
posts and papers not followed here: Su Jianlin's on noise, key normalisation and QK-Clip (013, 014,
016), small proxies of large runs (022), Kimi K2 (023), and a repository on QK-norm (025).

Chapters: variance, jacobian, gradient, almost_scaled.
"""

import math

import numpy as np
import sympy

from attnlib import exact, rows
from attnlib._checking import FloatArray
from attnlib.scores import DotProduct, Normal
from claims import symbolic
from claims.registry import (
    Decision,
    Tolerance,
    Verdict,
    claim,
    close,
    listed,
    skip_checks,
    verdict_as_meant,
    verdict_of,
    verdict_within,
)
from experiments.lab.comparison import SUPERSCRIPTS

DIMENSIONS = (10, 50, 100, 500, 1000)
"""The dimensions of source 001's experiment."""

VECTORS = 512
"""Its number of queries, and of keys."""

WIDE = 10**6
"""A head at which a drift that is slow would be seen."""

WIDTHS = np.array([*DIMENSIONS, WIDE], dtype=float)
ENTRY = symbolic.product_moments(0.0)
"""The exact mean and variance of one of the d products that q·k adds up."""

TRIED = listed("{}", DIMENSIONS)


def variance_at(exponent: float) -> FloatArray:
    """Return the exact variance of q·k·d^exponent at each of WIDTHS."""
    return WIDTHS ** (2.0 * exponent + 1.0) * ENTRY.variance


def weights(
    rng: np.random.Generator, d: int, n: int, exponent: float, count: int = 2000
) -> FloatArray:
    """Return rows of attention weights, (count, n), where q·k is multiplied by d^exponent."""
    return rows.softmax(DotProduct(d).sample(rng, count, n), d ** (exponent + 0.5))


def typical_complement(p: FloatArray) -> float:
    """Return the median over rows of 1 − Σp²."""
    return float(np.median(1.0 - rows.collision_probability(p)))


@claim("variance.mean-zero")
def mean_zero(mean: float = 0.0) -> Decision:
    """Check the mean of one of the d products."""
    return verdict_of(ENTRY.mean == mean), {}


@claim("variance.linear")
def variance_linear(slope: float = 1.0) -> Decision:
    """Check Var[q·k] = slope·d."""
    return verdict_of(close(slope * WIDTHS, variance_at(0.0))), {}


@claim("variance.scale")
@claim("output.pre-scaled")
def scale_gives_unit_variance(exponent: float = -0.5) -> Decision:
    """Check that Z = d^exponent gives variance 1."""
    power = f"{2.0 * exponent + 1.0:g}".translate(SUPERSCRIPTS)
    return verdict_of(close(variance_at(exponent), 1.0)), {"power": power}


@claim("variance.product-rule")
def product_rule(factor: float = 1.0, means: tuple[float, ...] = (0.0, 0.5, 1.0)) -> Decision:
    """Check Var(XY) = factor·Var(X)·Var(Y) for variances 1 and means in `means`."""
    variances = [symbolic.product_moments(m).variance for m in means]
    # sympy's identity, so that the numbers above do not rest on our formula alone
    proved = symbolic.product_variance_of_any_law().proved and symbolic.product_variance().proved
    numbers = {"mean": means[-1], "variance": variances[-1]}
    return verdict_of(*(proved and close(variance, factor) for variance in variances)), numbers


@claim("jacobian.scores-grow")
def scores_grow(variance: float = 512.0, d: int = 512, shows: float = 0.02) -> Decision:
    """Check the variance at d, and that the density is normal, up to a gap that a plot `shows`."""
    # the law is a chi-mixture, not quite a normal: compare the densities of s = q·k/√d
    s = np.linspace(-3.0, 3.0, 301)
    ratio = np.exp(DotProduct(d).logpdf(s) - Normal().logpdf(s))
    gap = float(np.abs(ratio - 1.0).max())
    agrees = close(variance, d * ENTRY.variance) and gap < shows
    return verdict_within(agrees), {"gap": 100 * gap}


@claim("jacobian.product-moments")
def product_moments(mean_factor: float = 1.0, last_sign: int = -1) -> Decision:
    """Check mean and variance of qk, with `mean_factor` on E(q)E(k) and this sign of μq²μk²."""
    mean, variance = symbolic.product_mean(), symbolic.product_variance()
    last = (symbolic.MU_Q * symbolic.MU_K) ** 2
    claimed_mean = symbolic.Identity(mean.left, sympy.nsimplify(mean_factor) * mean.right)
    claimed = symbolic.Identity(variance.left, variance.right + (1 + last_sign) * last)
    residuals = {"of_mean": claimed_mean.residual, "of_variance": claimed.residual}
    return verdict_of(claimed_mean.proved and claimed.proved), residuals


@claim("jacobian.multiply")
def multiplier_readings(words: float = 0.5, formula: float = -0.5) -> Decision:
    """Check that d^words, as the source says, or d^formula, as it computes, gives variance 1."""
    agree = (close(variance_at(exponent), 1.0) for exponent in (words, formula))
    return verdict_of(*agree), {"power": f"{2.0 * words + 1.0:g}".translate(SUPERSCRIPTS)}


@claim("jacobian.components")
def differences_grow(
    readings: tuple[str, ...] = ("terms", "scores"), dimensions: tuple[int, int] = (16, 1024)
) -> Decision:
    """Check what grows with d: differences of the terms q_i k_i of a score, or those of scores."""
    rng = np.random.default_rng(13)
    spread: dict[str, list[float]] = {"terms": [], "scores": []}
    for d in dimensions:
        products = rng.standard_normal((1000, 1, d)) * rng.standard_normal((1000, 4, d))
        spread["terms"].append(products[:, 0, :4].std(axis=1).mean())
        spread["scores"].append(products.sum(axis=2).std(axis=1).mean())
    return verdict_of(
        *(spread[reading][0] < Tolerance.HALF * spread[reading][1] for reading in readings)
    ), spread


@claim("variance.softmax-exaggerates")
def softmax_exaggerates(exponent: float = 0.0) -> Decision:
    """Check that softmax exaggerates scores times d^exponent.

    It says "may", so the widest head of its source's experiment decides.
    """
    d, rng = DIMENSIONS[-1], np.random.default_rng(4)
    alphas = [d ** (exponent + 0.5), 1.0]
    claimed, scaled = (weights(rng, d, VECTORS, power) for power in (exponent, -0.5))
    largest = np.median(claimed.max(axis=1))
    typical = [a * typical_complement(p) for a, p in zip(alphas, (claimed, scaled), strict=True)]
    mean = exact.gradient(DotProduct(d), alphas, VECTORS)
    true = largest > Tolerance.NINE_TENTHS and typical[0] <= Tolerance.HALF * typical[1]
    as_said = mean[0] < Tolerance.HALF * mean[1]
    numbers = {"d": d, "largest": largest, "typical": typical, "mean": mean}
    return verdict_as_meant(as_said, true), numbers


@claim("variance.one-hot")
def one_hot(exponent: float = 0.0, dimensions: tuple[int, ...] = (64, 128, 512, 1000)) -> Decision:
    """Check that most rows are nearly one-hot at each d, with scores times d^exponent."""
    rng = np.random.default_rng(5)
    largest = [weights(rng, d, VECTORS, exponent).max(axis=1) for d in dimensions]
    shares = [float(np.mean(weight > Tolerance.NINE_TENTHS)) for weight in largest]
    numbers = {"shares": listed("{:.0f} % (d = {})", [100 * share for share in shares], dimensions)}
    return verdict_of(*(share > Tolerance.HALF for share in shares)), numbers


@claim("variance.ranges")
def range_stable(exponent: float = -0.5, steady: float = 0.02) -> Decision:
    """Check that log n − E H does not drift with d, with scores times d^exponent.

    That is, it changes by less than `steady` from a thousand dimensions to a million.
    """
    n = np.array([16, 512, 4096])
    laws = [(DotProduct(d), float(d) ** (exponent + 0.5)) for d in (*DIMENSIONS, WIDE)]
    deficits = np.array([np.log(n) - exact.entropy(law, alpha, n) for law, alpha in laws])
    drift = float(np.abs(deficits[-1] / deficits[-2] - 1.0).max())
    ends = deficits[:-1].min(), deficits[:-1].max()
    return verdict_within(drift < steady), {"deficits": ends, "drift": 100.0 * drift}


@claim("jacobian.vanishing-chain")
def gradient_vanishes(dimensions: tuple[int, int] = (16, 1024)) -> Decision:
    """Check that rows become one-hot, and gradients vanish, between two dimensions.

    The Jacobian is that of softmax by its own inputs, as its source has it: half its L1 norm is 1 −
    Σp². The gradient by the score q·k/√d is looked at, too.
    """
    n, rng = 64, np.random.default_rng(15)
    samples = [weights(rng, d, n, 0.0, count=4000) for d in dimensions]
    laws = [(DotProduct(d), d**0.5) for d in dimensions]
    largest = [float(np.median(p.max(axis=1))) for p in samples]
    typical = list(map(typical_complement, samples))
    mean = [float(exact.gradient(law, alpha, n)) for law, alpha in laws]
    raw = [gradient / alpha for gradient, (_, alpha) in zip(mean, laws, strict=True)]
    rescued = typical_complement(weights(rng, dimensions[1], n, -0.5, count=4000))
    vanished = (
        typical[1] < Tolerance.TENTH * min(typical[0], rescued) and raw[1] < Tolerance.HALF * raw[0]
    )
    as_said = mean[1] < Tolerance.HALF * mean[0]
    numbers = {"n": n, "largest": largest, "typical": typical, "rescued": rescued}
    verdict = verdict_as_meant(as_said, largest[1] >= Tolerance.NINE_TENTHS and vanished)
    return verdict, {**numbers, "own": raw, "mean": mean}


@claim("variance.unit-variance")
def unit_variance_keeps_signal(kept: float = 1.0) -> Decision:
    """Check that layers keep signal and gradient if they keep the variance; not with ½ or 2 of it.

    The layers multiply the variance by `kept`, and are linear, so that the gradient by the input is
    the product of their weights; its mean square, times the width, is that of the signal. As said,
    only an input of variance 1 will do.
    """
    width, networks, layers, others = 32, 400, 16, (0.5, 2.0)
    rng = np.random.default_rng(4)

    def gain(factor: float) -> float:
        """Return the factor by which all layers multiply the variance, if each does by `factor`."""
        product = np.broadcast_to(np.eye(width), (networks, width, width))
        for _ in range(layers):
            product = rng.normal(0.0, np.sqrt(factor / width), product.shape) @ product
        return float(width * np.square(product).mean())

    held, lost = gain(kept), [gain(factor) for factor in others]
    gone = [abs(np.log(each)) > np.log(10.0) for each in lost]
    same = [close(variance * held, variance, Tolerance.TENTH) for variance in (1.0, 4.0)]
    numbers = {"held": held, "lost": listed("{:.2g} at {:g}", lost, others), "layers": layers}
    return verdict_as_meant(sum(same) == 1, all(same) and all(gone)), numbers


@claim("vaswani.small-gradients")
def small_gradients(d: int = 512) -> Decision:
    """Check that without 1/√d the gradient by softmax's inputs, 1 − Σp², is extremely small."""
    n, alpha, law = 64, math.sqrt(d), DotProduct(d)
    mean, usual = (float(exact.gradient(law, a, n)) / a for a in (alpha, 1.0))
    drawn = law.sample(np.random.default_rng(0), 1000, n)
    typical = float(np.median(rows.gradient(drawn, alpha))) / alpha
    as_said, as_meant = (gradient < Tolerance.TENTH * usual for gradient in (mean, typical))
    numbers = {"n": n, "mean": mean, "typical": typical, "usual": usual}
    return verdict_as_meant(as_said, as_meant), numbers


@claim("vaswani.counteract")
def scale_keeps_gradient(exponent: float = -0.5, n: int = 64) -> Decision:
    """Check that with d^exponent the gradient is not small at any d, and about the same."""
    sizes = (16, 64, 512, 1024)
    gradients = [float(exact.gradient(DotProduct(d), d ** (exponent + 0.5), n)) for d in sizes]
    level = max(gradients) < (1.0 + Tolerance.HUNDREDTH) * min(gradients)
    return verdict_within(level), {"found": (min(gradients), max(gradients))}


# --- noise and lengths ----------------------------------------------------------------------------


@claim("su.noise")
def noise_hardly_moves(alphas: tuple[float, ...] = (1.0, 4.0), n: int = 1024) -> Decision:
    """Check that noise of std 1 on logits of std α hardly moves the output.

    The output is measured in standard deviations of a value.
    """
    rng = np.random.default_rng(0)
    scores, values, added = rng.standard_normal((3, 400, n))

    def output_change(alpha: float) -> float:
        """Return the root mean square change of the output, with logits of this std."""
        change = rows.softmax(alpha * scores + added) - rows.softmax(scores, alpha)
        return float(np.sqrt(np.mean((change * values).sum(axis=1) ** 2)))

    changes = [output_change(alpha) for alpha in alphas]
    sharing = [1.0 / float(exact.collision_probability(Normal(), alpha, n)) for alpha in alphas]
    texts = listed(
        "{:.2f} at α = {:g}, where {:.0f} keys share the weight", changes, alphas, sharing
    )
    rule = math.sqrt(math.expm1(1.0))
    return verdict_within(*(size < Tolerance.TENTH for size in changes)), {
        "found": texts,
        "rule": rule,
    }


@claim("su.same-effect")
def norms_have_same_effect(d: int = 64, n: int = 512) -> Decision:
    """Check that at the start q·k/√d, q·k/|q| and q·k/|k| are one attention."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((100, 1, d)), rng.standard_normal((100, n, d))
    products = (q @ k.mT)[:, 0]
    usual = rows.softmax(products / math.sqrt(d))
    norms = (np.linalg.norm(q, axis=-1), np.linalg.norm(k, axis=-1))
    moved = [
        float(np.abs(rows.softmax(products / norm) - usual).sum(axis=1).mean()) / 2.0
        for norm in norms
    ]
    return verdict_within(max(moved) < Tolerance.CLOSE), {"moved": moved}


# --- QK-Clip --------------------------------------------------------------------------------------

CAP = 100.0
"""Its threshold τ."""


@claim("su.softcap")
def capped_logit_grows(decay: float = 0.0, cap: float = 2.0) -> Decision:
    """Check that under a soft cap the logit itself is not bounded; it may decay at each step."""
    logit, reached = 0.0, []
    for step in range(20_000):
        inside = math.tanh(logit / cap)
        missing = 1.0 / (1.0 + math.exp(cap * inside))
        logit = (1.0 - decay) * logit + missing * (1.0 - inside**2)
        if step + 1 in (200, 2000, 20_000):
            reached.append(logit)
    grows = min(np.diff(reached)) > Tolerance.HALF * cap
    return verdict_of(reached[-1] > 2.0 * cap and grows), {"reached": reached}


@claim("su.clip")
def clip_bounds_logits(growths: tuple[float, ...] = (1.0, 1.01)) -> Decision:
    """Check that after the clip no logit is above τ; or so after a step by which weights grow."""
    logits = np.array([30.0, -250.0, 120.0])
    factor = CAP / np.abs(logits).max()
    largest = [float(np.abs(factor * growth**2 * logits).max()) for growth in growths]
    below = [logit <= CAP * (1.0 + Tolerance.ROUNDING) for logit in largest]
    texts = listed("{:.1f} for a factor {:g}", largest, growths)
    return verdict_as_meant(all(below), below[0]), {"found": texts}


@claim("kimi.unshared")
def clip_by_head(own: float = 0.5, rotary_query: float = 1.0, rotary_key: float = 0.0) -> Decision:
    """Check that these powers of γ on the parts multiply a head's logits by γ, no other head's."""
    rng, gamma = np.random.default_rng(0), 0.4
    content_q, content_k, rotary_q, shared = rng.standard_normal((4, 2, 5, 8))
    shared = shared[:1]  # one rotary key for both heads

    def logits(own: float, query: float, key: float) -> FloatArray:
        first = np.array([gamma, 1.0])[:, None, None]  # the first head is clipped
        content = (first**own * content_q) @ (first**own * content_k).mT
        return np.asarray(content + (first**query * rotary_q) @ (gamma**key * shared).mT)

    before, after = logits(0.0, 0.0, 0.0), logits(own, rotary_query, rotary_key)
    expected = np.array([gamma, 1.0])[:, None, None] * before
    return verdict_of(float(np.abs(after - expected).max()) < Tolerance.ROUNDING), {}


@claim("kimi.thirty")
def steps_below_cap(share: float = 0.3, of: float = 220_000) -> Decision:
    """Check that the logits stay below the cap from this share of the steps on."""
    measured = 70_000 / of
    return verdict_within(close(measured, share, Tolerance.TENTH)), {"found": 100 * measured}


@claim("wortsman.quadratic")
def logits_quadratic(degree: float = 2.0, normed: bool = False) -> Decision:
    """Check that logits go like weights^degree, with and without normalised queries and keys."""
    rng = np.random.default_rng(0)
    x, query, key = rng.standard_normal((3, 16, 16))

    def logits(factor: float) -> FloatArray:
        q, k = factor * x @ query, factor * x @ key
        if normed:
            q, k = (y / np.sqrt(np.mean(y**2, axis=-1, keepdims=True)) for y in (q, k))
        return np.asarray(q @ k.mT)

    measured = float(np.log2(np.abs(logits(2.0)).mean() / np.abs(logits(1.0)).mean()))
    return verdict_of(abs(measured - degree) < Tolerance.ROUNDING), {"found": measured}


@claim("wortsman.one-hot")
def large_logits_one_hot(shared: tuple[float, ...] = (0.0, 1.0), size: float = 1000.0) -> Decision:
    """Check that logits of this size give one-hot rows; all keys share a part of them."""
    drawn = np.random.default_rng(0).standard_normal((500, 64))
    logits = [size * part + (1.0 - part) * size * drawn + part * drawn for part in shared]
    weights = [float(np.median(rows.softmax(scores).max(axis=-1))) for scores in logits]
    collapsed = [weight > Tolerance.NINE_TENTHS for weight in weights]
    verdict = verdict_as_meant(all(collapsed), collapsed[0], Verdict.HOLDS_WITHIN)
    return verdict, {"most": max(weights), "least": min(weights)}


@claim("wortsman.decay")
def decay_by_rate(sign: float = -1.0, rate: float = 1e-3, strength: float = 0.1) -> Decision:
    """Check that θ − s(ηΔ + sign·λθ) decays, and θ − sη(Δ + sign·λθ) η times as fast."""
    factor, of_default = 1.0 - sign * strength, 1.0 - sign * rate * strength  # s = 1, Δ = 0
    ratio = (of_default - 1.0) / (factor - 1.0)
    return verdict_of(factor < 1.0, abs(ratio / rate - 1.0) < Tolerance.HUNDREDTH), {"kept": factor}


@claim("henry.concentrated")
def cosine_outweighs(learned: bool = True) -> Decision:
    """Check that a cosine of 1 outweighs the rest, times log(L² − L) to this base, or times 1."""
    lengths = np.array([16.0, 64.0, 256.0])
    scales = np.log(lengths**2 - lengths) / math.log(2.0) if learned else np.ones(3)
    weights = 1.0 / (1.0 + (lengths - 1.0) * np.exp(-scales))
    outweighs = weights.min() > Tolerance.NINE_TENTHS
    return verdict_within(outweighs), {"weights": weights, "scales": scales}


@claim("henry.demonstration")
def bleu_and_loss(bleu: float = 0.25, loss: float = 0.31) -> Decision:
    """Check that test BLEU is higher, and validation loss lower, by these shares."""
    gains = (24.325501285684457 / 19.396893780567478 - 1.0, 1.0 - 1.0971173178 / 1.6043478648)
    agree = all(abs(a - b) < Tolerance.HUNDREDTH for a, b in zip(gains, (bleu, loss), strict=True))
    return verdict_within(agree), {"found": gains}


skip_checks("vaswani.additive", "su.key-norm", "su.thirty", "kimi.thousand")
skip_checks("wortsman.diverge", "wortsman.mup", "wortsman.per-head")
