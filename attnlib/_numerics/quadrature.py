"""Make quadrature rules for a score: nodes and weights that average what `_gumbel` needs.

For normal scores and lengths of queries they are trapezoidal rules, which converge exponentially
for smooth integrands that decay, over variables chosen so that they are. Any other density is cut
into panels: Gauss's rule on each, halved until a polynomial follows the density.

Chapter: mean_gradient.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple, cast

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike

from attnlib import _checking
from attnlib._checking import FloatArray

LogDensity = Callable[[FloatArray], FloatArray]
Tilt = Callable[[float], tuple[float, float]]
"""From α to κ(α) − αm and κ'(α) − m, m = E s."""

DEPTH = 40.0
"""Terms below e^{−DEPTH} of the sum are left out."""

STEP = 0.25
"""Step of the trapezoidal rules, in units of the width of a Gumbel variable: error e^{−π²/STEP}."""

NORMAL_STEP = 0.7
"""The same for a standard normal density: error e^{−2(π/NORMAL_STEP)²}."""

LENGTH_STEP = 0.12
"""The same for the logarithm of a query's length; it shrinks with log n, as freezing sharpens."""

OMEGA = 0.5671432904097838
"""The root of w = e^{−w}."""

POINTS = 16
"""Points of Gauss's rule on a panel."""

WIDTH = 3.0
"""Longest panel, in units of the width of a Gumbel variable."""

TOLERANCE = 1e-10
"""On a panel the density is a polynomial of degree POINTS − 1 up to this share of its maximum."""

HALVINGS = 48
"""Most halvings of a panel about a corner of the density; what is left of it is negligible."""

FAINT = (-746.0, -690.0)
"""Logarithms of the smallest float64 and of one with few digits left: a density that ends between
them has underflowed."""

MOST_HALVED, MOST_PANELS = 2**14, 2**19
"""Most halved panels, beyond which the density is smooth nowhere, and most panels in the end,
beyond which its range is too long for α. They also bound the time: 10⁶ and 10⁷ densities."""


class UnderflowError(ValueError):
    """Signal a log density that is −∞ because the density itself has underflowed to 0."""


class Nodes(NamedTuple):
    """Hold increasing scores and their weights, Σ w = 1, for averages over a score."""

    scores: FloatArray
    weights: FloatArray
    smoothness: float = 1.0  # of the largest αs + X, against that of a Gumbel X


# --- normal scores, lengths of queries ------------------------------------------------------------


def normal_nodes(logpdf: LogDensity, alpha: float, log_n: float, further: float = 0.0) -> Nodes:
    """Return nodes of N(0, 1) to e^{−DEPTH − further} of the peak, on the right to n⁻² of that."""
    width = STEP / alpha if alpha > 0.0 else np.inf
    step = 1.0 / (1.0 / NORMAL_STEP + 1.0 / width)
    lowest, highest = np.sqrt(2.0 * (DEPTH + further + np.array([0.0, 2.0 * log_n])))
    s = step * np.arange(-np.ceil(lowest / step), np.ceil(highest / step) + 1.0)
    weights = np.exp(logpdf(s))
    return Nodes(s, weights / weights.sum(), smoothness(alpha, log_n))


def smoothness(spread: float, log_n: float) -> float:
    """Return by what factor a trapezoidal step may grow: max(1, spread/(1 + √(2 log n)))."""
    return max(1.0, spread / (1.0 + float(np.sqrt(2.0 * log_n))))


def length_nodes(d: int, log_n: float) -> Nodes:
    """Return nodes for the relative length r = |q|/√d of a random query, r² ~ χ²_d/d.

    The rule is trapezoidal in w, log r = w − e^{−w}: few steps cover the long tail at small r.
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
    return Nodes(np.exp(log_length[kept]), weights / weights.sum())


# --- any density ---------------------------------------------------------------------------------

_X, _W = legendre.leggauss(POINTS)
_HALVES = np.concatenate([_X - 1.0, _X + 1.0]) / 2.0
_PLACES = np.concatenate([_HALVES, _X, [-1.0, 1.0]])
_LAGRANGE = np.linalg.inv(legendre.legvander(_X, POINTS - 1))  # values at _X to coefficients
_TO_HALVES = legendre.legvander(_HALVES, POINTS - 1) @ _LAGRANGE
_TO_END = (1.0 - legendre.legvander(_X, POINTS)) @ legendre.legint(_LAGRANGE)  # integrals up to 1
OUTWARD = np.append(16.0 ** np.arange(-5, 0), 4.0 ** np.arange(26))
"""Distances of the first edges on either side of a landmark, in standard deviations."""

TOWARDS_AN_END = np.concatenate([np.arange(8) / 8.0, 1.0 - 0.5 ** np.arange(4, 48), [1.0]])
"""Cuts of a panel for integrands with F^n, which may rise in a small last part of the panel."""

FARTHEST = float(OUTWARD[-2])
"""Scores beyond it, in standard deviations, count only where an integral diverges."""


class Panels(NamedTuple):
    """Hold Gauss's points on intervals, both increasing: arrays (intervals, POINTS)."""

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
    """Return panels for the density f(s)e^{tilt·s}, where it exceeds e^{−depth} of its maximum.

    The first edges lie at 0, at the landmarks, and around each at 10⁻⁶ to 10¹⁵ times `spread`. A
    panel with enough mass is halved until the polynomial through its points agrees with f at the
    points of both halves. The last panels are cut at `fractions`, and to lengths below `width`.

    Raises ValueError or TypeError where `logpdf` is not a log density, underflows where its mass
    matters, or needs too many panels.
    """
    marks = _checking.finite("landmarks", [0.0, *landmarks])
    outward = spread * np.concatenate([-OUTWARD, [0.0], OUTWARD])
    edges = np.unique(np.add.outer(marks, outward))
    left, right = edges[:-1], edges[1:]
    kept, highest, halved = [], -np.inf, 0
    for halving in range(HALVINGS + 1):
        s = (left + right)[:, None] / 2.0 + (right - left)[:, None] / 2.0 * _PLACES
        log_density = evaluate_log_density(logpdf, s)
        logs = log_density + tilt * s
        # At its ends a panel shows a peak between two points; a jump there is its neighbour's.
        mass = logs.max(axis=-1) + np.log(right - left)
        shape = np.exp(logs[:, :-2] - np.maximum(logs[:, :-2].max(axis=-1, keepdims=True), -1e300))
        miss = np.abs(shape[:, : 2 * POINTS] - shape[:, 2 * POINTS :] @ _TO_HALVES.T).max(axis=-1)
        # Rounding in log f and in s leaves so much that no halving will mend.
        size = np.where(shape > TOLERANCE, np.abs(log_density[:, :-2]), 0.0).max(axis=-1)
        noise = 1e-14 * size + 4e-15 * np.abs(s).max(axis=-1) / (right - left)
        converged = (miss <= TOLERANCE + noise) | (halving == HALVINGS)
        counts = (mass >= max(highest, mass.max()) - depth - 10.0) & (mass > -np.inf)
        _check_underflow(log_density[counts], s[counts], tilt)
        highest = max(highest, mass[converged].max(initial=-np.inf))
        kept.append((left[counts & converged], right[counts & converged]))
        left, right = left[counts & ~converged], right[counts & ~converged]
        if not left.size:
            break
        halved += left.size
        _check_number(halved, MOST_HALVED)
        middle = (left + right) / 2.0
        left, right = np.append(left, middle), np.append(middle, right)
    left, right = np.concatenate(kept, axis=-1)
    if not left.size:
        raise UnderflowError(
            f"logpdf must be smooth where e^({tilt:g}s) needs it, and has no digits there"
        )
    edges = left[:, None] + (right - left)[:, None] * fractions
    left, right = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    cuts = np.maximum(np.ceil((right - left) / width), right > left)
    _check_number(cuts.sum(), MOST_PANELS)
    cuts = cuts.astype(np.intp)
    place = np.arange(cuts.sum()) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    half = np.repeat((right - left) / 2.0 / np.maximum(cuts, 1), cuts)
    middle = np.repeat(left, cuts) + (2 * place + 1) * half
    order = np.argsort(middle)
    s = middle[order, None] + half[order, None] * _X
    log_weights, log_density = np.log(half[order, None] * _W), evaluate_log_density(logpdf, s)
    height = (log_weights + log_density + tilt * s).max(axis=-1)
    counts = height >= height.max(initial=-1e300) - depth
    return Panels(s[counts], log_weights[counts], log_density[counts])


def evaluate_log_density(logpdf: LogDensity, s: FloatArray) -> FloatArray:
    """Return the log density at scores, +∞ as −∞; ValueError for NaN, TypeError unless floats."""
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


def _check_underflow(log_density: FloatArray, s: FloatArray, tilt: float) -> None:
    """Raise UnderflowError if a log density is −∞ only because exp of it is below any float64.

    That is so where the rest of its panel is close to the smallest float64. `s` are the scores; the
    message names `tilt`.
    """
    top = log_density.max(axis=-1)
    ended = np.isneginf(log_density).any(axis=-1) & (top > FAINT[0]) & (top < FAINT[1])
    if ended.any():
        raise UnderflowError(
            f"logpdf must not underflow where e^({tilt:g}s) still needs it, "
            f"got {top[ended][0]:.0f} and then -inf near s={s[ended].mean():g}"
        )


def _check_number(count: float, most: int) -> None:
    if count > most:
        raise ValueError(
            f"logpdf must be smooth but for a few places, and alpha not too large for its range: "
            f"{count:.0f} panels are more than {most}"
        )


def tail_at_points(panels: Panels) -> FloatArray:
    """Return P(score > s) at each point s of panels that cover all scores of the law."""
    weights, density = np.exp(panels.log_weights), np.exp(panels.log_density)
    mass = (weights * density).sum(axis=-1)
    beyond = np.append(np.cumsum(mass[::-1])[::-1], 0.0)[1:]
    tail = beyond[:, None] + weights[:, :1] / _W[0] * (density @ _TO_END.T)
    return cast(FloatArray, np.clip(tail, 0.0, np.nextafter(1.0, 0.0)))


def elementwise(function: Callable[[float], float], values: FloatArray) -> FloatArray:
    """Return function(x) for each entry x of `values`, as an array of the same shape."""
    return np.array([function(float(x)) for x in values.ravel()]).reshape(values.shape)


def groupwise(
    function: Callable[..., FloatArray], values: FloatArray, *groups: FloatArray
) -> FloatArray:
    """Return function(*group, value) for each entry of arrays of one shape.

    There is one call for each distinct group: it gets the distinct values of the group, increasing.
    """
    result = np.empty(values.shape)
    labels = np.stack([group.ravel() for group in groups])
    distinct, which, sizes = np.unique(labels, axis=1, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(which.ravel(), kind="stable"), np.cumsum(sizes)[:-1])
    for group, places in zip(distinct.T, members, strict=False):
        arguments, position = np.unique(values.flat[places], return_inverse=True)
        result.flat[places] = function(*map(float, group), arguments)[position]
    return result


def log_mgf_ratio_and_slope(tilt: Tilt, alpha: float) -> tuple[float, float]:
    """Return R(α) = κ(2α) − 2κ(α) and ∂R/∂log α, κ(α) = log E e^{αs}; both ∞ where κ(2α) is."""
    (low, low_slope), (high, high_slope) = tilt(alpha), tilt(2.0 * alpha)
    return (high - 2.0 * low, 2.0 * alpha * (high_slope - low_slope)) if high < inf else (inf, inf)
