"""Sum up the rows of one module for a report, in double precision."""

import math

import numpy as np
from scipy.special import expit

from attnlib import freezing
from attnlib._checking import FloatArray
from attnlib.probing.measure import Measured, Rows, TargetRows

FIELDS = (*Rows._fields, *TargetRows._fields)
"""What is measured of a row, in single precision."""

SUMMED = (
    *FIELDS,
    *("rows", "targets", "complement", "alpha_to_critical", "wide", "value_variance"),
    *("target_lost_gap", "target_excess"),
)
"""What is summed over the rows, `target…` over those with a target.

`target_lost_gap` is (1 − P)(gap), `target_excess` H + log P, for a target of weight P in a row of
entropy H: the difference of the two is (1 − P) κ′(1), so that no other sum need be kept.
"""


class Tally:
    """Hold sums over the rows of a module's heads, without rows that see fewer than two keys."""

    def __init__(self, heads: int) -> None:
        self.scale = math.nan
        self.sums = np.zeros((len(SUMMED), heads))
        self.largest_logit = np.full(heads, -np.inf)
        self.lengths = np.zeros((heads, 2), np.int64)
        """How many rows of each head see n keys, (heads, n + 1)."""

    @np.errstate(invalid="ignore", over="ignore")  # of a model that computes infinity
    def add(self, measured: Measured) -> None:
        """Add the rows of a measured call, whose scale replaces that of the one before."""
        values = np.full((len(FIELDS), *measured.rows.keys.shape), np.nan, np.float32)
        values[: len(Rows._fields)] = measured.rows
        if measured.targets is not None:
            values[len(Rows._fields) :] = measured.targets
        keys, variance = values[0], measured.value_variance[..., None]
        counted = keys >= 2.0
        known = counted & ~np.isnan(values[FIELDS.index("target_weight")])
        wide, own, fields = values.astype(np.float64), len(Rows._fields), len(FIELDS)
        self.sums[:own] += np.where(counted, wide[:own], 0.0).sum(axis=(1, 3))
        self.sums[own:fields] += np.where(known, wide[own:], 0.0).sum(axis=(1, 3))
        for i, name in enumerate(SUMMED[fields:], fields):
            of_target = name.startswith("target")
            if of_target and measured.targets is None:
                continue
            column = _column(name, wide, variance)
            self.sums[i] += np.where(known if of_target else counted, column, 0.0).sum(axis=(0, 2))
        logits = np.where(counted, values[FIELDS.index("largest_logit")], -np.inf)
        self.largest_logit = np.maximum(self.largest_logit, logits.max(axis=(0, 2)))
        numbers = np.where(counted, keys, 0.0).astype(np.int64).swapaxes(0, 1)
        size = max(int(numbers.max()) + 1, self.lengths.shape[1])
        counts = np.array([np.bincount(head.ravel(), minlength=size) for head in numbers])
        counts[:, : self.lengths.shape[1]] += self.lengths
        self.lengths, self.scale = counts, measured.scale


def _column(name: str, values: FloatArray, variance: FloatArray) -> FloatArray:
    """Return what is summed as `name`, for each row, where that is not a field itself."""

    def of(field: str) -> FloatArray:
        column: FloatArray = values[FIELDS.index(field)]
        return column

    if name in ("rows", "targets"):
        return np.ones(1)
    if name == "complement":
        return np.exp(of("log_complement"))
    if name == "value_variance":
        return variance
    if name.startswith("target_"):
        # the target's log-odds; a weight of single precision would vanish below e⁻¹⁰³
        odds = of("target_gap") - of("target_kappa") - np.log((of("keys") - 1.0).clip(min=1.0))
        lost: FloatArray = expit(-odds) * of("target_gap")
        excess: FloatArray = of("entropy") - np.logaddexp(0.0, -odds)
        return lost if name == "target_lost_gap" else excess
    relative = np.sqrt(of("variance")) / freezing.critical_alpha(of("keys").clip(min=2.0))
    return relative if name == "alpha_to_critical" else (relative >= 1.0).astype(np.float64)
