"""Claims on how large logits get, and on what bounds them: posts and papers not followed here.

Su Jianlin's posts on noise, key normalisation and QK-Clip (013, 014, 016), Kimi K2 (023), small
proxies of large runs (022), and a repository on QK-norm (025).
"""

import math

import numpy as np

from attnlib import exact, rows
from attnlib._checking import FloatArray
from attnlib.scores import Normal
from claims.registry import (
    Decision,
    Tolerance,
    Verdict,
    claim,
    close,
    extended_unless,
    holds,
    holds_within,
    listed,
    not_checked,
)

CAP = 100.0
"""The threshold τ of QK-Clip."""


# --- noise and lengths ----------------------------------------------------------------------------


@claim("su.noise")
def noise(alphas: tuple[float, ...] = (1.0, 4.0), n: int = 1024) -> Decision:
    """The claim: noise of std 1 on the logits, of which the scores make α, hardly moves outputs.

    Outputs are measured in standard deviations of a value.
    """
    rng = np.random.default_rng(0)
    scores, values, added = rng.standard_normal((3, 400, n))

    def moved(alpha: float) -> float:
        change = rows.softmax(alpha * scores + added) - rows.softmax(scores, alpha)
        return float(np.sqrt(np.mean((change * values).sum(axis=1) ** 2)))

    changes = [moved(alpha) for alpha in alphas]
    sharing = [1.0 / float(exact.collision_probability(Normal(), alpha, n)) for alpha in alphas]
    shown = listed(
        "{:.2f} at α = {:g}, where {:.0f} keys share the weight", changes, alphas, sharing
    )
    rule = math.sqrt(math.expm1(1.0))
    return holds_within(*(size < Tolerance.TENTH for size in changes)), {
        "found": shown,
        "rule": rule,
    }


@claim("su.same-effect")
def same_effect(d: int = 64, n: int = 512) -> Decision:
    """The claim: at the start q·k/√d, q·k/|q| and q·k/|k| are one attention."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((100, 1, d)), rng.standard_normal((100, n, d))
    products = (q @ k.mT)[:, 0]
    usual = rows.softmax(products / math.sqrt(d))
    norms = (np.linalg.norm(q, axis=-1), np.linalg.norm(k, axis=-1))
    moved = [
        float(np.abs(rows.softmax(products / norm) - usual).sum(axis=1).mean()) / 2.0
        for norm in norms
    ]
    return holds_within(max(moved) < Tolerance.CLOSE), {"moved": moved}


# --- QK-Clip --------------------------------------------------------------------------------------


@claim("su.softcap")
def softcap(decay: float = 0.0, cap: float = 2.0) -> Decision:
    """The claim: under a soft cap the logit itself is not bounded; it may decay at each step."""
    logit, reached = 0.0, []
    for step in range(20_000):
        inside = math.tanh(logit / cap)
        missing = 1.0 / (1.0 + math.exp(cap * inside))
        logit = (1.0 - decay) * logit + missing * (1.0 - inside**2)
        if step + 1 in (200, 2000, 20_000):
            reached.append(logit)
    grows = min(np.diff(reached)) > Tolerance.HALF * cap
    return holds(reached[-1] > 2.0 * cap and grows), {"reached": reached}


@claim("su.clip")
def clip(growths: tuple[float, ...] = (1.0, 1.01)) -> Decision:
    """The claim: after the clip no logit is above τ; or so after a step by which weights grow."""
    logits = np.array([30.0, -250.0, 120.0])
    factor = CAP / np.abs(logits).max()
    largest = [float(np.abs(factor * growth**2 * logits).max()) for growth in growths]
    below = [logit <= CAP * (1.0 + Tolerance.ROUNDING) for logit in largest]
    shown = listed("{:.1f} for a factor {:g}", largest, growths)
    return extended_unless(all(below), below[0]), {"found": shown}


@claim("kimi.unshared")
def unshared(own: float = 0.5, rotary_query: float = 1.0, rotary_key: float = 0.0) -> Decision:
    """The claim: these powers of γ on the parts multiply a head's logits by γ, no other head's."""
    rng, gamma = np.random.default_rng(0), 0.4
    content_q, content_k, rotary_q, shared = rng.standard_normal((4, 2, 5, 8))
    shared = shared[:1]  # one rotary key for both heads

    def logits(own: float, query: float, key: float) -> FloatArray:
        first = np.array([gamma, 1.0])[:, None, None]  # the first head is clipped
        content = (first**own * content_q) @ (first**own * content_k).mT
        return np.asarray(content + (first**query * rotary_q) @ (gamma**key * shared).mT)

    before, after = logits(0.0, 0.0, 0.0), logits(own, rotary_query, rotary_key)
    wanted = np.array([gamma, 1.0])[:, None, None] * before
    return holds(float(np.abs(after - wanted).max()) < Tolerance.ROUNDING), {}


@claim("kimi.thirty")
def thirty(share: float = 0.3, of: float = 220_000) -> Decision:
    """The claim: the logits stay below the cap from this share of the steps on."""
    measured = 70_000 / of
    return holds_within(close(measured, share, Tolerance.TENTH)), {"found": 100 * measured}


@claim("wortsman.quadratic")
def quadratic(degree: float = 2.0, normed: bool = False) -> Decision:
    """The claim: logits go like weights^degree, with and without normalised queries and keys."""
    rng = np.random.default_rng(0)
    x, query, key = rng.standard_normal((3, 16, 16))

    def logits(factor: float) -> FloatArray:
        q, k = factor * x @ query, factor * x @ key
        if normed:
            q, k = (y / np.sqrt(np.mean(y**2, axis=-1, keepdims=True)) for y in (q, k))
        return np.asarray(q @ k.mT)

    measured = float(np.log2(np.abs(logits(2.0)).mean() / np.abs(logits(1.0)).mean()))
    return holds(abs(measured - degree) < Tolerance.ROUNDING), {"found": measured}


@claim("wortsman.one-hot")
def one_hot(shared: tuple[float, ...] = (0.0, 1.0), size: float = 1000.0) -> Decision:
    """The claim: logits of this size give one-hot rows; all keys share this part of them."""
    drawn = np.random.default_rng(0).standard_normal((500, 64))
    logits = [size * part + (1.0 - part) * size * drawn + part * drawn for part in shared]
    weights = [float(np.median(rows.softmax(scores).max(axis=-1))) for scores in logits]
    collapsed = [weight > Tolerance.NINE_TENTHS for weight in weights]
    verdict = extended_unless(all(collapsed), collapsed[0], Verdict.HOLDS_WITHIN)
    return verdict, {"most": max(weights), "least": min(weights)}


@claim("wortsman.decay")
def decay(sign: float = -1.0, rate: float = 1e-3, strength: float = 0.1) -> Decision:
    """The claims: θ − s(ηΔ + sign·λθ) decays; θ − sη(Δ + sign·λθ) does so η times as fast."""
    kept, of_default = 1.0 - sign * strength, 1.0 - sign * rate * strength  # s = 1, Δ = 0
    ratio = (of_default - 1.0) / (kept - 1.0)
    return holds(kept < 1.0, abs(ratio / rate - 1.0) < Tolerance.HUNDREDTH), {"kept": kept}


@claim("henry.concentrated")
def concentrated(learned: bool = True) -> Decision:
    """The claim: times log(L² − L), to this base, or times 1, a cosine of 1 outweighs the rest."""
    lengths = np.array([16.0, 64.0, 256.0])
    scales = np.log(lengths**2 - lengths) / math.log(2.0) if learned else np.ones(3)
    weights = 1.0 / (1.0 + (lengths - 1.0) * np.exp(-scales))
    good = weights.min() > Tolerance.NINE_TENTHS
    return holds_within(good), {"weights": weights, "scales": scales}


@claim("henry.demonstration")
def demonstration(bleu: float = 0.25, loss: float = 0.31) -> Decision:
    """The claim: test BLEU is higher, and validation loss lower, by these shares."""
    gains = (24.325501285684457 / 19.396893780567478 - 1.0, 1.0 - 1.0971173178 / 1.6043478648)
    good = all(abs(a - b) < Tolerance.HUNDREDTH for a, b in zip(gains, (bleu, loss), strict=True))
    return holds_within(good), {"found": gains}


not_checked("vaswani.additive", "su.key-norm", "su.thirty", "kimi.thousand")
not_checked("wortsman.diverge", "wortsman.mup", "wortsman.per-head")
