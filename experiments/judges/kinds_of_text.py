"""The record of experiments.kinds, and the verdicts on predictions/kinds.md, K1 to K17.

G is the sum of ∂L/∂log t over all heads of a window, in nats.

Chapters: calibration, predictions.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations

import numpy as np
from numpy.polynomial import Polynomial
from scipy.stats import f_oneway, spearmanr

from attnlib import _files
from attnlib._checking import FloatArray
from experiments import kinds
from experiments.calibrate import PASSAGE
from experiments.judges.judging import OPEN, REFUTED, Part, above, decided, limits, number
from experiments.kinds import LONG, LONGEST, SHORT
from experiments.real_heads.kinds import KINDS
from experiments.records import Fields

PROPERTIES = ("loss", "surprise", "repeated", "rare", "digits", "marks", "capitals", "characters")
"""Of a window; *surprise* is the loss less the entropy of what the model says."""
EVEN, ODD = slice(0, None, 2), slice(1, None, 2)
"""Halves of the windows of a kind."""
SURE = 0.74
"""A rank correlation over twelve kinds: by chance one of eight properties is above it in 5 %."""
NAMES = [kind for kind in KINDS if kind not in kinds.CONTROLS]


class Windows:
    """The windows of a kind, in their order: gradients, G and losses, each with a row a window."""

    def __init__(self, lines: list[Fields]) -> None:
        self.lines = lines
        self.gradient = np.array([line["gradient"] for line in lines])
        self.G = np.nansum(self.gradient, axis=(1, 2))
        self.log_t = np.array([0.0, *lines[0]["log_t"]])
        self.losses = np.array([[line["loss"], *line["losses"]] for line in lines])

    def mean(self, name: str) -> float:
        """Return the mean of one of `PROPERTIES` over the windows."""
        if name == "surprise":
            return float(np.mean([line["loss"] - line["entropy"] for line in self.lines]))
        return float(np.mean([line[name] for line in self.lines]))

    def curve(self, chosen: slice = slice(None)) -> Polynomial:
        """Return the mean loss as a polynomial in log t, through all losses, of slope G at 0."""
        powers = np.arange(len(self.log_t) + 1)
        equations = np.vstack([self.log_t[:, None] ** powers, powers == 1])
        values = [*self.losses[chosen].mean(axis=0), self.G[chosen].mean()]
        return Polynomial(np.linalg.solve(equations, values))

    def gains(self, log_t: float, chosen: slice = slice(None)) -> FloatArray:
        """Return the fall of each window's loss by a factor, (windows,), in nats per token."""
        curves = [Windows([line]).curve() for line in self.lines[chosen]]
        return np.array([curve(0.0) - curve(log_t) for curve in curves])


@cache
def windows(kind: str, tokens: int, model: str = "SmolLM2") -> Windows:
    """Return the recorded windows of a kind."""
    at = {"model": model, "kind": kind, "tokens": tokens}
    chosen = [line for line in lines() if at.items() <= line["at"].items()]
    return Windows(sorted(chosen, key=lambda line: line["at"]["window"]))


@cache
def lines() -> tuple[Fields, ...]:
    """Return the record, a line for each window."""
    return tuple(_files.lines(kinds.OUT))


def mean_gradients(tokens: int, model: str = "SmolLM2") -> FloatArray:
    """Return the mean G of each kind, (kinds,)."""
    return np.array([windows(kind, tokens, model).G.mean() for kind in NAMES])


# --- factors --------------------------------------------------------------------------------------


def best_log_t(curves: list[Polynomial]) -> float:
    """Return the log t among those measured or between them at which the mean curve is least."""
    fine = np.linspace(kinds.SHIFTS[0], kinds.SHIFTS[-1], 601)
    return float(fine[np.mean([curve(fine) for curve in curves], axis=0).argmin()])


def own_gains(tokens: int) -> dict[str, FloatArray]:
    """Return the gains of each kind's windows by the factor that is best for its other half."""
    gains = {}
    for kind in NAMES:
        of_kind = windows(kind, tokens)
        gains[kind] = np.concatenate(
            [
                of_kind.gains(best_log_t([of_kind.curve(fitted)]), judged)
                for fitted, judged in ((EVEN, ODD), (ODD, EVEN))
            ]
        )
    return gains


def common_gains(tokens: int) -> FloatArray:
    """Return the gain of each kind by the factor that is best for the eleven others, (kinds,)."""
    curves = [windows(kind, tokens).curve() for kind in NAMES]
    gains = []
    for at, curve in enumerate(curves):
        others = best_log_t([*curves[:at], *curves[at + 1 :]])
        gains.append(curve(0.0) - curve(others))
    return np.array(gains)


# --- heads ----------------------------------------------------------------------------------------


def by_head(kind: str, chosen: slice) -> FloatArray:
    """Return the mean ∂L/∂log t of each head at 512 tokens, (layers · heads,)."""
    gradient: FloatArray = windows(kind, SHORT).gradient[chosen].mean(axis=0).ravel()
    return gradient


def agreement() -> tuple[FloatArray, FloatArray]:
    """Return the shares of heads whose signs agree: within each kind, and in each pair of kinds."""
    signs = [np.sign([by_head(kind, half) for half in (EVEN, ODD)]) for kind in NAMES]
    within = [np.mean(even == odd) for even, odd in signs]
    between = [np.mean(a == b) for a, b in combinations(signs, 2)]
    return np.array(within), np.array(between)


def variance_share(chosen_on: slice, judged_on: slice, count: int = 10) -> float:
    """Return the share of the variance of G between kinds that is due to `count` heads.

    They are those of the largest covariance with G in the windows `chosen_on`.
    """
    heads = np.array([by_head(kind, chosen_on) for kind in NAMES])
    most = np.argsort(-_covariance(heads, heads.sum(axis=1)))[:count]
    others = np.array([by_head(kind, judged_on) for kind in NAMES])
    total = others.sum(axis=1)
    return float(_covariance(others[:, most], total).sum() / total.var())


def _covariance(heads: FloatArray, total: FloatArray) -> FloatArray:
    """Return the covariance of each head with the sum of all, over the kinds."""
    covariance: FloatArray = (heads - heads.mean(axis=0)).T @ (total - total.mean()) / len(total)
    return covariance


def rank_correlations(tokens: int = SHORT) -> dict[str, float]:
    """Return the rank correlation of each of `PROPERTIES` with G, over the kinds."""
    slopes, kinds_windows = mean_gradients(tokens), [windows(kind, tokens) for kind in NAMES]
    return {
        name: float(spearmanr([of.mean(name) for of in kinds_windows], slopes).statistic)
        for name in PROPERTIES
    }


# --- what became of the predictions ---------------------------------------------------------------


def judge_kinds() -> Iterator[Part]:
    """Yield the parts of kinds.md."""
    yield from _judge_each_kind()
    yield from _judge_properties()
    yield from _judge_heads()
    yield from _judge_factors()
    rank = float(spearmanr(mean_gradients(SHORT), mean_gradients(LONG)).statistic)
    yield number("K15", "ρ of G at 512 and at 2,048 tokens", rank, "at least 0.7")
    smaller = abs(mean_gradients(SHORT)).mean() - abs(mean_gradients(LONG)).mean()
    yield number("K15", "mean |G|, 512 less 2,048", float(smaller), "above 0")
    prose, *others = (windows(kind, LONGEST).G.mean() for kind in kinds.SOME)
    for kind, mean in zip(kinds.SOME[1:], others, strict=True):
        yield number("K16", f"{kind} less prose, 8,192", float(mean - prose), "above 0")
    rank = abs(float(spearmanr(mean_gradients(SHORT), mean_gradients(PASSAGE, "MiniLM")).statistic))
    half = 1.96 * np.sqrt(1.06 / (len(NAMES) - 3))  # Fisher's interval
    low, high = (abs(np.tanh(np.arctanh(rank) + sign * half)) for sign in (-1.0, 1.0))
    what = "|ρ| of G, MiniLM and SmolLM2"
    yield decided("K17", what, "below 0.6", rank, bool(high < 0.6), refuted=bool(low > 0.6))


def _judge_each_kind() -> Iterator[Part]:
    """Yield the parts of K1 to K4: G of each kind."""
    samples = {kind: windows(kind, SHORT).G for kind in NAMES}
    chance = f_oneway(*samples.values()).pvalue
    yield number("K1", "p of the analysis of variance", chance, "below .001")
    sides = {kind: limits(values) for kind, values in samples.items()}
    (low, high), bible = sides["prose"], sides["bible"]
    kept, narrow = low <= 0.0 <= high, high - low <= bible[1] - bible[0]
    yield decided("K2", "G of prose", "holds 0", samples["prose"], kept and narrow, not kept)
    up = sum(low > 0.0 for low, _ in sides.values())
    down = sum(high < 0.0 for _, high in sides.values())
    yield number("K3", "kinds whose G is above 0", up, "at least 6")
    yield number("K3", "kinds whose G is below 0", down, "at most 2")
    yield above("K4", "mean of G over the kinds", mean_gradients(SHORT))


def _judge_properties() -> Iterator[Part]:
    """Yield the parts of K8 to K12: properties of texts, and texts that were changed."""
    by_name = rank_correlations()
    kept = all(abs(rank) < SURE or name == "surprise" for name, rank in by_name.items())
    largest, expected = max(by_name.values(), key=abs), "none, or loss less entropy"
    yield decided("K8", "largest ρ of eight properties", expected, largest, kept)
    for name in ("loss", "repeated"):
        yield number("K9", f"|ρ| of {name}", abs(by_name[name]), f"below {SURE}")
    prose, bible = windows("prose", SHORT).G, windows("bible", SHORT).G
    yield above("K10", "G of prose less read twice", prose - windows("twice", SHORT).G)
    numbered = windows("numbered", SHORT).G
    ratio = numbered.mean() / bible.mean()
    part = number("K11", "G with numbers over without", ratio, "at most 0.75")
    low, high = limits(bible - numbered)
    unsure = limits(bible)[0] <= 0.0 or low <= 0.0 <= high
    yield part._replace(verdict=OPEN) if unsure else part
    yield above("K12", "G of small letters less prose", windows("lower", SHORT).G - prose)


def _judge_heads() -> Iterator[Part]:
    """Yield the parts of K13 and K14: single heads."""
    within, between = (float(shares.mean()) for shares in agreement())
    yield number("K13", "heads whose signs agree within a kind", within, "at least 0.7")
    yield number("K13", "and between two kinds", between, "at most 0.62")
    low, high = sorted((variance_share(EVEN, ODD), variance_share(ODD, EVEN)))
    expected = "below 0.5 both ways"
    yield decided("K14", "share of ten heads", expected, high, high < 0.5, refuted=low >= 0.5)


def _judge_factors() -> Iterator[Part]:
    """Yield the parts of K5 to K7: gains by a factor."""
    for tokens, most in ((SHORT, 0.01), (LONG, 0.005)):
        gains = own_gains(tokens)
        kind = max(gains, key=lambda kind: float(gains[kind].mean()))
        refuted = bool(gains[kind].mean() >= most)
        holds = max(limits(values)[1] for values in gains.values()) < most
        what = f"largest gain of a factor a kind, {tokens} tokens ({kind})"
        yield decided("K5", what, f"below {most}", gains[kind], holds, refuted)
    gain, what = common_gains(LONG), f"gain of one factor, {LONG} tokens"
    (low, high), small = limits(gain), bool(gain.mean() < 0.002)
    holds, refuted = small and low <= 0.0 <= high, not small or low > 0.0
    yield decided("K6", what, "below 0.002, holds 0", gain, holds, refuted)
    for tokens in (SHORT, LONG):
        own = np.array([gain.mean() for gain in own_gains(tokens).values()])
        part = above("K7", f"a kind's own less one for all, {tokens}", own - common_gains(tokens))
        yield part._replace(verdict=REFUTED) if part.mean >= 0.004 else part
