"""best_alpha for cosine scores against SciPy's quad and minimize_scalar, point by point.

The grid is source 000's: d = 128, n = 40, 80, …, 20000.
"""

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from tqdm import tqdm

from attnlib import annealed, scores
from benchmarks import Ratio

QUICK = {"every": 100}


def searched(law: scores.Cosine, n: float) -> float:
    """Return the optimum as a user would find it: quadrature inside a bounded search."""

    def mean(alpha: float) -> float:
        # Without epsabs=0 quad stops early: the mean is far below its absolute tolerance.
        def tilted(s: float) -> float:
            return np.exp(alpha * (s - 1.0) + law.logpdf(s))

        return quad(tilted, -1.0, 1.0, epsabs=0.0)[0]

    def loss(alpha: float) -> float:
        return -alpha * (1.0 - mean(2.0 * alpha) / mean(alpha) ** 2 / n)

    return minimize_scalar(loss, bounds=(1.0, 100.0), method="bounded", options={"xatol": 1e-9}).x


def measure(every: int = 1) -> Iterator[Ratio]:
    """Yield the time of a point, where every k-th is searched."""
    law, n = scores.Cosine(128), np.arange(40.0, 20001.0, 40.0)
    best = annealed.best_alpha(law, n)
    repeats = 20
    start = perf_counter()
    for _ in range(repeats):
        annealed.best_alpha(law, n)
    ours = (perf_counter() - start) / repeats / n.size

    points = np.arange(0, n.size, every)
    start = perf_counter()
    found = [searched(law, n[i]) for i in tqdm(points)]
    theirs = (perf_counter() - start) / points.size
    difference = np.abs(np.array(found) / best[points] - 1.0).max()
    yield Ratio(
        f"annealed.best_alpha, cosines, d = 128, {n.size} values of n",
        "scipy's quad in minimize_scalar",
        1e3 * ours,
        1e3 * theirs,
        "ms a point",
        f"largest relative difference {difference:.0e}",
    )
