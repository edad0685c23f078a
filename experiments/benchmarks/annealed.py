"""best_alpha for cosine scores against SciPy's quad and minimize_scalar, point by point.

The grid is source 000's: d = 128, n = 40, 80, …, 20000.
"""

from collections.abc import Iterator

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from attnlib import annealed, scores
from experiments.benchmarks import Ratio, seconds

QUICK = {"every": 100}


def searched(law: scores.Cosine, n: float) -> float:
    """Return the optimum as a user would find it: quadrature inside a bounded search."""

    def mean(alpha: float) -> float:
        # Without epsabs=0 quad stops early: the mean is far below its absolute tolerance.
        return quad(lambda s: np.exp(alpha * (s - 1.0) + law.logpdf(s)), -1.0, 1.0, epsabs=0.0)[0]

    def loss(alpha: float) -> float:
        return -alpha * (1.0 - mean(2.0 * alpha) / mean(alpha) ** 2 / n)

    return minimize_scalar(loss, bounds=(1.0, 100.0), method="bounded", options={"xatol": 1e-9}).x


def measure(every: int = 1) -> Iterator[Ratio]:
    """Yield the time of a point, where every k-th is searched."""
    law, n = scores.Cosine(128), np.arange(40.0, 20001.0, 40.0)
    best = annealed.best_alpha(law, n)
    alphas: list[float] = []
    theirs = seconds(lambda: alphas.extend(searched(law, keys) for keys in n[::every]))
    theirs /= len(alphas)
    yield Ratio(
        f"annealed.best_alpha, cosines, d = 128, {n.size} values of n",
        "scipy's quad in minimize_scalar",
        1e3 * seconds(lambda: annealed.best_alpha(law, n), 20) / n.size,
        1e3 * theirs,
        "ms a point",
        f"largest relative difference {np.abs(alphas / best[::every] - 1.0).max():.0e}",
    )
