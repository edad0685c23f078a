"""Estimate from rows of logits how far a head's scale is from that of the least mean loss.

Chapter: retrieval.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlib import _checking, rows
from attnlib._checking import FloatArray
from attnlib._roots import root
from attnlib.sampling import Estimate, make_estimate


class NeedleCalibration(NamedTuple):
    """Hold how far a head's scale is from that of the least mean loss, as `needle_calibration`."""

    ratio: Estimate
    """E[(1 − P)ℓ_*]/E[(1 − P)m], logits counted from the plain mean of the others: 1 if right."""
    best_factor: Estimate
    """t*, the factor of all logits that has the least mean loss."""


def needle_calibration(logits: ArrayLike, needle: int = 0) -> NeedleCalibration:
    """Estimate from rows of logits how far a head's scale is from that of the least mean loss.

    - `logits`: an array (rows, keys), two of each or more.
    - `needle`: the place of the intended key, from 0, by default 0.

    P is the weight on the needle, ℓ_* its logit, and m the mean of the others under their own
    softmax; with all logits times t they are P_t, tℓ_* and tm_t. The mean loss E[−log P_t] has the
    derivative −E[(1 − P_t)(ℓ_* − m_t)] in t, which increases: it is least at one factor t*. So t* =
    1 if and only if E[(1 − P)(ℓ_* − m)] = 0: for every n and every noise. Rows with P near 1 have
    no influence. Choose rows by a rule that does not look at P, or both numbers are biased.

    Returns a `NeedleCalibration`. Standard errors are between rows, taken as independent, by
    linearisation; `attnlib.calibration.needles` has intervals between texts. t* is 0 or infinite,
    with an error of NaN, where it is beyond 10⁻³ to 10³.

    Raises ValueError or TypeError for logits that are not finite or not of that shape, and for a
    `needle` that is not the place of a key. Chapter: retrieval.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(4000, 64)) + 3.0 * np.eye(1, 64)  # a needle of strength 3
    >>> calibration = needle_calibration(2.0 * scores)  # under α = 2
    >>> round(float(calibration.best_factor.value), 1)
    1.5
    """
    ell = _checking.finite("logits", logits)
    if ell.ndim != 2 or min(ell.shape) < 2:
        raise ValueError(f"logits must be of shape (rows, keys), two or more, got {ell.shape}")
    place = _checking.integer("needle", needle, minimum=0, maximum=ell.shape[1] - 1)
    ell = ell - (ell.sum(axis=1) - ell[:, place])[:, None] / (ell.shape[1] - 1)
    needle_logit = ell[:, place]

    def weighted_logits(t: float) -> tuple[FloatArray, FloatArray]:
        """Return (1 − P)ℓ_* and (1 − P)m of each row, where t multiplies all logits."""
        others = rows.softmax(ell, t)
        others[:, place] = 0.0
        return others.sum(axis=1) * needle_logit, np.einsum("ij,ij->i", others, ell)

    def error(values: FloatArray) -> float:
        """Return the standard error of the mean of `values` over rows, where that mean is 0."""
        return float(np.sqrt(np.square(values).mean() / (values.size - 1.0)))

    gap, mean = weighted_logits(1.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # others that are all alike
        ratio = gap.mean() / mean.mean()
        ratio_error = error(gap - ratio * mean) / abs(mean.mean())

    def slope(log_t: float) -> float:
        gap, mean = weighted_logits(float(np.exp(log_t)))
        return float((mean - gap).mean())

    def calibration(best: float, best_error: float) -> NeedleCalibration:
        return NeedleCalibration(make_estimate(ratio, ratio_error), make_estimate(best, best_error))

    end = float(np.log(1e3))  # of the factors that are searched
    if slope(-end) >= 0.0 or slope(end) <= 0.0:
        return calibration(0.0 if slope(-end) >= 0.0 else np.inf, np.nan)
    best = float(np.exp(root(slope, 0.0, -end, end)))
    p = rows.softmax(ell, best)
    curvature = ((p * ell**2).sum(axis=1) - (p * ell).sum(axis=1) ** 2).mean()
    gap, mean = weighted_logits(best)
    return calibration(best, error(gap - mean) / float(curvature))
