"""Rules of quadrature over one score: points and weights that average what `exact` needs.

For normal scores, cosines and lengths of queries they are trapezoidal rules, which converge
exponentially for smooth integrands that decay, over variables chosen so that they are. Any other
density is cut into panels: Gauss's rule on each, halved until a polynomial follows the density.

Chapter: exact.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc, ndtr

from attnlib import checking
from attnlib.checking import FloatArray

LogDensity = Callable[[FloatArray], FloatArray]

DEPTH = 40.0
"""Terms below e^{−DEPTH} of the sum are left out."""

ABOVE = 5.0
"""From it on e^{kx} exp(−e^x) is nothing, for k up to 16: scores so far above u add nothing."""

STEP = 0.25
"""Step of the trapezoidal rules, in units of the width of a Gumbel variable: error e^{−π²/STEP}."""

NORMAL_STEP = 0.7
"""The same for a standard normal density: error e^{−2(π/NORMAL_STEP)²}."""

LENGTH_STEP = 0.12
"""The same for the logarithm of a query's length; freezing sharpens with log n, and it shrinks."""

SMOOTH_DIMENSION = 100
"""From this d on the ends ±1 of the range of a cosine are too unlikely to matter."""

OMEGA = 0.5671432904097838
"""Where w = e^{−w}."""

POINTS = 16
"""Points of Gauss's rule on a panel."""

WIDTH = 3.0
"""Longest panel, in units of the width of a Gumbel variable."""

TOLERANCE = 1e-10
"""On a panel the density is a polynomial of degree POINTS − 1 up to this share of its maximum."""

HALVINGS = 48
"""A panel about a point where the density is not smooth is halved so often, and then is no loss."""

MOST_PANELS = 2**19
"""More are a sign of a density that is nowhere smooth, or of a range too long for its α."""

BLOCK = 2**13
"""How many numbers are averaged at a time: they stay in the processor's cache."""


class Rule(NamedTuple):
    """Increasing scores and weights, Σ w = 1, that average e^{αs} and the like over a score."""

    scores: FloatArray
    weights: FloatArray
    smoothness: float | None = None  # of the largest αs + X, against that of a Gumbel X, if known


class Block(NamedTuple):
    """Some values of u, each against the scores that matter there: arrays (u, scores)."""

    alpha: float
    scores: FloatArray  # s
    exponent: FloatArray  # αs − u
    power: FloatArray  # e^{αs−u}
    gumbel: FloatArray  # exp(−e^{αs−u})


Kernel = Callable[[Block], FloatArray]


class Averages:
    """Averages over a rule of scores at any u: of φ(u) = E exp(−e^{αs−u}), and of a kernel.

    Scores further than `reach` below u are taken to be far below, for which φ is 1 and a kernel 0.
    All terms are positive where the kernel is: what is tiny has as many digits as the rest.
    """

    def __init__(self, rule: Rule, alpha: float, reach: float) -> None:
        self._alpha, self._reach = alpha, reach
        self._scores, self._weights, _ = rule
        self._levels = alpha * self._scores
        self._below = np.append(0.0, np.cumsum(self._weights))
        self._above = np.append(np.cumsum(self._weights[::-1])[::-1], 0.0)

    @property
    def ends(self) -> tuple[float, float]:
        """The u below which φ is 0, and the largest αs."""
        return float(self._levels[0] - ABOVE), float(self._levels[-1])

    @property
    def edges(self) -> FloatArray:
        """The values of αs with a gap to the next: all that stand alone, and the first and last."""
        gaps = np.diff(self._levels, prepend=-np.inf, append=np.inf) > WIDTH * 1.01
        return self._levels[gaps[:-1] | gaps[1:]]

    def __call__(self, u: FloatArray, kernel: Kernel) -> tuple[FloatArray, FloatArray]:
        """Return log φ and E kernel at each u; of a kernel that returns several, as many rows."""
        start = np.searchsorted(self._levels, u - self._reach)
        stop = np.searchsorted(self._levels, u + ABOVE)
        width = min(max(1, int((stop - start).max())), self._levels.size)
        start = np.minimum(start, self._levels.size - width)
        # Scores far below u count in full in φ, those far above it in 1 − φ.
        cdf, complement = self._below[start], self._above[start + width]
        inner = []
        rows = max(1, BLOCK // width)
        for i in range(0, u.size, rows):
            part = slice(i, i + rows)
            index = start[part, None] + np.arange(width)
            # From 7 on exp(−e^{αs−u}) is 0, but e^{k(αs−u)} would overflow.
            exponent = np.minimum(self._levels[index] - u[part, None], 7.0)
            power = np.exp(exponent)
            block = Block(self._alpha, self._scores[index], exponent, power, np.exp(-power))
            weights = self._weights[index]
            cdf[part] += (weights * block.gumbel).sum(axis=-1)
            complement[part] -= (weights * np.expm1(-power)).sum(axis=-1)
            inner.append((weights * kernel(block)).sum(axis=-1))
        with np.errstate(divide="ignore"):
            low = np.maximum(np.log(cdf), -1e200)  # times n it is a float
        log_cdf = np.where(complement > 0.5, low, np.log1p(-np.minimum(complement, 0.5)))
        return log_cdf, np.concatenate(inner, axis=-1)


def first(block: Block) -> FloatArray:
    """Return the kernel e^{αs−u} exp(−e^{αs−u}), whose average is the density of αs + X."""
    return block.power * block.gumbel


# --- normal scores, cosines, lengths of queries ---------------------------------------------------


def normal_rule(logpdf: LogDensity, alpha: float, log_n: float, further: float = 0.0) -> Rule:
    """Return the rule for standard normal scores, or one to where f is e^{−further} smaller."""
    width = STEP / alpha if alpha > 0.0 else np.inf
    step = 1.0 / (1.0 / NORMAL_STEP + 1.0 / width)
    lowest, highest = np.sqrt(2.0 * (DEPTH + further + np.array([0.0, 2.0 * log_n])))
    s = step * np.arange(-np.ceil(lowest / step), np.ceil(highest / step) + 1.0)
    weights = np.exp(logpdf(s))
    return Rule(s, weights / weights.sum(), _smoothness(alpha, log_n))


def cosine_rule(logpdf: LogDensity, d: int, alpha: float, log_n: float) -> Rule:
    """Return the rule for cosines in d dimensions, on a uniform grid of τ.

    s = log[cosh(τ + L)/cosh(τ − L)]/2L, with L = α, moves evenly in αs and approaches ±1
    exponentially: the ends of the interval, where the density is not smooth, move to infinity.
    """
    bend = max(alpha, 0.5)
    lowest, highest = (_cosine_range(d, bend, depth) for depth in (DEPTH, DEPTH + 2.0 * log_n))
    s, weights = _cosine_grid(logpdf, d, alpha, -lowest, highest)
    # In low dimensions the density has corners at ±1, which only X smoothes.
    smooth = _smoothness(alpha * float(np.sqrt(1.0 / d)), log_n) if d >= SMOOTH_DIMENSION else 1.0
    return Rule(s, weights / weights.sum(), smooth)


def tilted_cosine_rule(
    logpdf: LogDensity,
    d: int,
    theta: float,
    mean: float,
    alpha: float,
    log_n: float,
    further: float,
) -> Rule:
    """Return such a rule, with L = max(α, θ), for cosines of density f(s)e^{θs}, and this mean."""
    bend = max(alpha, theta, 0.5)
    depth = DEPTH + 2.0 * log_n + further
    reach = tilted_reach(d, depth)
    lowest, highest = (_cosine_place(d, bend, s, depth) for s in (mean - reach, mean + reach))
    s, weights = _cosine_grid(logpdf, d, max(alpha, theta), lowest, highest, theta)
    weights = weights / weights.sum()
    spread = float(np.sqrt(weights @ (s - weights @ s) ** 2))
    return Rule(s, weights, _smoothness(alpha * spread, log_n) if d >= SMOOTH_DIMENSION else 1.0)


def tilted_reach(d: int, depth: float) -> float:
    """Return how far from its maximum f(s)e^{θs} is below e^{−depth} of it.

    There −log f bends by d − 3 at least.
    """
    return float(1.1 * np.sqrt(2.0 * depth / (d - 3))) if d > 3 else np.inf


def _cosine_grid(
    logpdf: LogDensity,
    d: int,
    alpha: float,
    lowest: float,
    highest: float,
    theta: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Return cosines on a uniform grid of τ, and the weights of f(s)e^{θs} but for a factor."""
    width = STEP / alpha if alpha > 0.0 else np.inf
    bend = max(alpha, 0.5)
    spacing = 1.0 / (np.sqrt(d) / NORMAL_STEP + 1.0 / width)  # of s, near 0
    step = min(STEP, spacing * bend / np.tanh(bend))
    tau = step * np.arange(np.floor(lowest / step), np.ceil(highest / step) + 1.0)
    plus = np.log1p(np.exp(-2.0 * np.abs(tau + bend)))
    minus = np.log1p(np.exp(-2.0 * np.abs(tau - bend)))
    s = (2.0 * np.clip(tau, -bend, bend) + plus - minus) / (2.0 * bend)
    log_slope = -2.0 * np.maximum(np.abs(tau) - bend, 0.0) - plus - minus
    s = np.clip(s, -1.0, 1.0)
    logs = logpdf(s) + log_slope
    return s, np.exp(logs + theta * s - (logs + theta * s).max() if theta else logs)


def _cosine_range(d: int, bend: float, depth: float) -> float:
    """Return the τ beyond which the density of s is below e^{−depth} of its maximum."""
    s = np.sqrt(-np.expm1(-2.0 * depth / (d - 3))) if d > 3 else 1.0
    return _cosine_place(d, bend, s if s <= 0.999 else 1.0, depth)


def _cosine_place(d: int, bend: float, s: float, depth: float) -> float:
    """Return the τ of a cosine, at most those beyond which the density is below e^{−depth}."""
    at_the_end = bend + depth / (d - 1) + 1.0
    if abs(s) >= 1.0:
        return at_the_end if s > 0.0 else -at_the_end
    # The inverse of the map: τ = ½ log[sinh L(1 + s)/sinh L(1 − s)].
    shares = [bend * (1.0 + s), bend * (1.0 - s)]
    logs = [x + np.log(-np.expm1(-2.0 * x)) for x in shares]
    return float(np.clip((logs[0] - logs[1]) / 2.0, -at_the_end, at_the_end))


def _smoothness(spread: float, log_n: float) -> float:
    return max(1.0, spread / (1.0 + float(np.sqrt(2.0 * log_n))))


def length_rule(d: int, log_n: float) -> Rule:
    """Return the rule for r = |q|/√d, r² ~ χ²_d/d.

    The trapezoidal rule in w with log r = w − e^{−w}, which pulls in the tail of short queries.
    """
    # log r has the std 1/√(2d) in high dimensions, and d log r/dw is below 1.6 near r = 1.
    step = 1.0 / np.hypot((1.0 + log_n / 9.0) / LENGTH_STEP, 1.9 * np.sqrt(2.0 * d) / NORMAL_STEP)
    # Beyond `reach` from r = 1 the density is below e^{−DEPTH}/n.
    reach = np.sqrt(2.0 * (DEPTH + log_n) / d)
    w = np.arange(max(OMEGA - reach, -8.0), min(OMEGA + reach, 4.0), step)
    log_length = w - np.exp(-w)
    half = d / 2.0
    with np.errstate(over="ignore"):
        exponent = half * (2.0 * log_length - np.expm1(2.0 * log_length))
    kept = exponent > -DEPTH - np.where(log_length > 0.0, log_n, 0.0)
    weights = (np.exp(exponent) * (1.0 + np.exp(-w)))[kept]
    return Rule(np.exp(log_length[kept]), weights / weights.sum())


# --- any density ---------------------------------------------------------------------------------

_X, _W = legendre.leggauss(POINTS)
_HALVES = np.concatenate([_X - 1.0, _X + 1.0]) / 2.0
_PLACES = np.concatenate([_HALVES, _X, [-1.0, 1.0]])
_LAGRANGE = np.linalg.inv(legendre.legvander(_X, POINTS - 1))  # values at _X to coefficients
_TO_HALVES = legendre.legvander(_HALVES, POINTS - 1) @ _LAGRANGE
_TO_END = (1.0 - legendre.legvander(_X, POINTS)) @ legendre.legint(_LAGRANGE)  # integrals up to 1
_OUTWARD = np.append(16.0 ** np.arange(-5, 0), 4.0 ** np.arange(26))

TOWARDS_AN_END = np.concatenate([np.arange(8) / 8.0, 1.0 - 0.5 ** np.arange(4, 48), [1.0]])
"""Cuts of a panel that follow F^n too, whose last part may lie in a small part of the panel."""

FARTHEST = float(_OUTWARD[-2])
"""Scores beyond it, in standard deviations, count only where an integral diverges."""


class Panels(NamedTuple):
    """Gauss's points on intervals, both increasing: arrays (intervals, POINTS)."""

    scores: FloatArray
    log_weights: FloatArray
    log_density: FloatArray


def panels(
    logpdf: LogDensity,
    landmarks: Sequence[float] | FloatArray,
    spread: float,
    tilt: float = 0.0,
    depth: float = DEPTH,
    width: float = np.inf,
    fractions: ArrayLike = (0.0, 1.0),
) -> Panels:
    """Return panels for a density times e^{tilt·s}, where that is above e^{−depth} of its maximum.

    They start from edges at 0, at the landmarks, and around each at 10⁻⁶ to 10¹⁵ times `spread`.
    Those that count are halved until the polynomial through a panel's points meets the function at
    the points of both halves. In the end each is cut at `fractions`, and to lengths below `width`.

    Raises ValueError or TypeError where `logpdf` is no log density, or needs too many panels.
    """
    marks = checking.finite("landmarks", [0.0, *landmarks])
    outward = spread * np.concatenate([-_OUTWARD, [0.0], _OUTWARD])
    edges = np.unique(np.add.outer(marks, outward))
    left, right = edges[:-1], edges[1:]
    kept, highest = [], -np.inf
    for halving in range(HALVINGS + 1):
        s = (left + right)[:, None] / 2.0 + (right - left)[:, None] / 2.0 * _PLACES
        log_density = _evaluated(logpdf, s)
        logs = log_density + tilt * s
        # At its ends a panel shows a peak between two points; a jump there is its neighbour's.
        mass = logs.max(axis=-1) + np.log(right - left)
        shape = np.exp(logs[:, :-2] - np.maximum(logs[:, :-2].max(axis=-1, keepdims=True), -1e300))
        miss = np.abs(shape[:, : 2 * POINTS] - shape[:, 2 * POINTS :] @ _TO_HALVES.T).max(axis=-1)
        # Rounding in log f and in s leaves so much that no halving will mend.
        size = np.where(shape > TOLERANCE, np.abs(log_density[:, :-2]), 0.0).max(axis=-1)
        noise = 1e-14 * size + 4e-15 * np.abs(s).max(axis=-1) / (right - left)
        done = (miss <= TOLERANCE + noise) | (halving == HALVINGS)
        counts = (mass >= max(highest, mass.max()) - depth - 10.0) & (mass > -np.inf)
        highest = max(highest, mass[done].max(initial=-np.inf))
        kept.append((left[counts & done], right[counts & done]))
        left, right = left[counts & ~done], right[counts & ~done]
        if not left.size:
            break
        _check_number(left.size)
        middle = (left + right) / 2.0
        left, right = np.append(left, middle), np.append(middle, right)
    left, right = np.concatenate(kept, axis=-1)
    edges = left[:, None] + (right - left)[:, None] * fractions
    left, right = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    cuts = np.maximum(np.ceil((right - left) / width), right > left)
    _check_number(cuts.sum())
    cuts = cuts.astype(np.intp)
    place = np.arange(cuts.sum()) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    half = np.repeat((right - left) / 2.0 / np.maximum(cuts, 1), cuts)
    middle = np.repeat(left, cuts) + (2 * place + 1) * half
    order = np.argsort(middle)
    s = middle[order, None] + half[order, None] * _X
    log_weights, log_density = np.log(half[order, None] * _W), _evaluated(logpdf, s)
    height = (log_weights + log_density + tilt * s).max(axis=-1)
    counts = height >= height.max(initial=-1e300) - depth
    return Panels(s[counts], log_weights[counts], log_density[counts])


def _evaluated(logpdf: LogDensity, s: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        values = np.asarray(logpdf(s))
    if values.shape != s.shape or values.dtype.kind != "f":
        raise TypeError(
            f"logpdf must return a float for each score, shape {s.shape}, "
            f"got shape {values.shape} of type {values.dtype}"
        )
    if np.isnan(values).any():
        raise ValueError(
            "logpdf must return numbers, -inf where there are no scores, "
            f"got nan at s={s[np.isnan(values)][0]:g}"
        )
    return np.where(values < np.inf, values, -np.inf)  # at an end; inside, it will not add up to 1


def _check_number(count: float) -> None:
    if count > MOST_PANELS:
        raise ValueError(
            f"logpdf must be smooth but for a few places, and alpha not too large for its range: "
            f"{count:.0f} panels are more than {MOST_PANELS}"
        )


# --- the gap of the two largest scores ------------------------------------------------------------


def normal_gap_density(logpdf: LogDensity, n: float) -> float:
    """Return n(n−1) ∫ f² F^{n−2} ds for standard normal scores."""
    log_n = float(np.log(n))
    step = STEP / (1.0 + np.sqrt(2.0 * log_n))
    s = np.arange(-10.0, np.sqrt(2.0 * (DEPTH + log_n)), step)
    return float(step * _gap_integrand(logpdf(s), 0.0, ndtr(-s), n).sum())


def cosine_gap_density(log_density_at_0: float, d: int, n: float) -> float:
    """Return n(n−1) ∫ f² F^{n−2} ds for cosines in d dimensions."""
    log_n = float(np.log(n))
    depth = (DEPTH + 2.0 * log_n) / (2.0 * d - 4.0)  # of log cosh v
    tails = cosine_tails(d, log_n, depth)
    log_density = log_density_at_0 + (d - 3) / 2.0 * tails.log_slope
    integrand = _gap_integrand(log_density, tails.log_slope, tails.complement, n)
    return float(tails.step * integrand.sum())


class CosineTails(NamedTuple):
    """Cosines s = tanh v on a grid of v, log ds/dv, and P(cos > s)."""

    step: float
    scores: FloatArray
    log_slope: FloatArray
    complement: FloatArray


def cosine_tails(
    d: int, log_n: float, depth: float, lowest: float = -1.0, highest: float = 1.0
) -> CosineTails:
    """Return the tails up to log cosh v = depth, on a grid for functions of F^n in d dimensions.

    s = tanh v: ds = (1 − s²) dv, and P(cos > s) is an incomplete beta function of 1 − s². At most
    from the lowest cosine to the highest.
    """
    step = STEP / (np.sqrt(d) * (1.0 + np.sqrt(2.0 * log_n)))
    reach = depth + np.log1p(np.sqrt(-np.expm1(-2.0 * depth)))
    end = np.tanh(reach)
    left = -reach if lowest <= -end else np.arctanh(lowest)
    right = reach if highest >= end else np.arctanh(highest)
    v = np.arange(left, right, step)
    log_slope = -np.log1p(np.sinh(v) ** 2)
    return CosineTails(step, np.tanh(v), log_slope, cosine_tail(d, np.tanh(v), np.exp(log_slope)))


def cosine_tail(d: int, s: FloatArray, sine_squared: FloatArray) -> FloatArray:
    """Return P(cos > s) in d dimensions, from s and 1 − s²."""
    half_d = (d - 1) / 2.0
    beyond = np.where(
        np.abs(s) < np.tanh(1.0), betaincc(0.5, half_d, s**2), betainc(half_d, 0.5, sine_squared)
    )
    return cast(FloatArray, np.where(s > 0.0, beyond / 2.0, 1.0 - beyond / 2.0))


def panel_gap_density(found: Panels, n: float) -> float:
    """Return n(n−1) ∫ f² F^{n−2} ds on panels."""
    complement = panel_tail(found)
    return float(_gap_integrand(found.log_density, found.log_weights, complement, n).sum())


def panel_tail(found: Panels) -> FloatArray:
    """Return P(score > s) at each point of panels that reach up to where there are none."""
    weights, density = np.exp(found.log_weights), np.exp(found.log_density)
    mass = (weights * density).sum(axis=-1)
    beyond = np.append(np.cumsum(mass[::-1])[::-1], 0.0)[1:]
    tail = beyond[:, None] + weights[:, :1] / _W[0] * (density @ _TO_END.T)
    return cast(FloatArray, np.clip(tail, 0.0, np.nextafter(1.0, 0.0)))


def _gap_integrand(
    log_density: FloatArray, log_measure: FloatArray | float, complement: FloatArray, n: float
) -> FloatArray:
    """Return n(n−1)f²(1 − complement)^{n−2} times the measure."""
    with np.errstate(divide="ignore"):
        log_others = (n - 2.0) * np.log1p(-complement) if n > 2.0 else 0.0
    logs = 2.0 * log_density + log_measure + log_others + float(np.log(n)) + np.log(n - 1.0)
    return cast(FloatArray, np.exp(logs))
