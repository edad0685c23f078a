"""Compute the statistics of rows of random scores by the exact theory, for reports to compare."""

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import chdtrc, chdtri

from attnlib import exact, freezing
from attnlib._checking import FloatArray
from attnlib.scores import DotProduct

RANDOM = (
    "Random scores: the exact mean for independent normal q and k in d dimensions, at the head's α "
    "and the rows' n."
)

OUTPUTS = (
    "Random outputs: those of values that are independent of the keys. Where both are made of the "
    "same tokens the output has about α²/w more of the values' variance, w the model's width, and "
    "less than that with rotary positions: this is left out."
)

NODES = 24
"""Numbers of keys at which the theory is computed; between them it is interpolated."""


@dataclass(frozen=True)
class RandomScores:
    """Hold rows of random scores in d dimensions: `counts` rows of n keys, for each n."""

    dimension: int
    n: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def critical_alpha(self) -> float:
        """Return the mean of √(2 log n) over the rows; NaN without rows."""
        return float(self._mean(freezing.critical_alpha(self.n)))

    @property
    def gradient_limit(self) -> float:
        """Return the mean over the rows of the gradient's limit as α → ∞."""
        nodes = self._nodes(NODES)
        limits = exact.gradient_limit(DotProduct(self.dimension), nodes)
        return float(self._mean(self._interpolate(nodes, limits)))

    def columns(self, alphas: FloatArray) -> dict[str, FloatArray]:
        """Return the report's columns of random scores, (alphas,) each; NaN for α above 10⁴."""
        covered = alphas <= exact.LARGEST_SCALE
        alpha = np.where(covered, alphas, 0.0)
        law, nodes = DotProduct(self.dimension), self._nodes(NODES)
        by_n = alpha[:, None], nodes
        log_collision = np.log(exact.collision_probability(law, *by_n))
        collision_probability = self._mean(np.exp(self._interpolate(nodes, log_collision)))
        columns = {
            "random_wide": self._mean(self._wide_share(alpha)),
            "random_collision_probability": collision_probability,
            "random_effective_keys": 1.0 / collision_probability,
            "random_entropy": self._mean(self._interpolate(nodes, exact.entropy(law, *by_n))),
            "random_gradient": alpha * (1.0 - collision_probability),
        }
        return {name: np.where(covered, values, math.nan) for name, values in columns.items()}

    def _wide_share(self, alpha: FloatArray) -> FloatArray:
        """Return the share of rows with a spread of √(2 log n) or more, (α, n).

        It is P(α r √(χ²/(n − 1)) ≥ √(2 log n)), with χ² of n − 1 degrees and r² ~ χ²_d/d.
        """
        nodes = self._nodes(3 * NODES)
        shares = (np.arange(64) + 0.5) / 64
        variances = alpha[:, None, None] ** 2 * chdtri(self.dimension, shares) / self.dimension
        threshold = ((nodes - 1.0) * 2.0 * np.log(nodes))[:, None]
        with np.errstate(divide="ignore"):
            probability = chdtrc(nodes[:, None] - 1.0, threshold / variances).mean(axis=-1)
        return self._interpolate(nodes, probability)

    def _nodes(self, count: int) -> FloatArray:
        """Return the numbers of keys, at most about `count`, with the smallest and the largest."""
        n = np.array(self.n)
        return n if n.size <= count else np.unique(np.round(np.geomspace(n[0], n[-1], count)))

    def _interpolate(self, nodes: FloatArray, values: FloatArray) -> FloatArray:
        """Return the values at every n from those at the nodes, both along the last axis."""
        if nodes.size == len(self.n):
            return values
        return cast(FloatArray, CubicSpline(np.log(nodes), values, axis=-1)(np.log(self.n)))

    def _mean(self, values: FloatArray) -> FloatArray:
        """Return the mean over the rows of values given for each n, along the last axis."""
        if not self.n:
            return np.full(values.shape[:-1], math.nan)
        return np.average(values, axis=-1, weights=self.counts)
