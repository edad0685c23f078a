"""One exact expectation against Monte Carlo, at the same error.

Nobody draws the rows that a standard error of 1e-6 would take. Their number is extrapolated from
the standard error of a sample, which falls like one over the square root of its size.
"""

from collections.abc import Iterator
from functools import partial
from time import perf_counter

import numpy as np

from attnlib import exact, rows, sampling, scores
from benchmarks import Ratio

TARGET = 1e-6
QUICK = {"count": 1000}


def measure(n: int = 1024, alpha: float = 2.0, count: int = 20_000) -> Iterator[Ratio]:
    """Yield the time of a mean gradient for each law, α in units of 1/σ."""
    for law in (scores.Normal(), scores.Cosine(128), scores.DotProduct(64)):
        sigma = np.sqrt(law.variance)
        scale = alpha / sigma
        repeats = 5
        start = perf_counter()
        for _ in range(repeats):
            value = float(exact.gradient(law, scale, n))
        ours = (perf_counter() - start) / repeats
        start = perf_counter()
        statistic = partial(rows.gradient, alpha=scale)
        mean, error = sampling.sample(law, n, statistic, rows=count, seed=0).mean()
        needed = count * float(sigma * error / TARGET) ** 2
        theirs = (perf_counter() - start) * needed / count
        yield Ratio(
            f"exact.gradient, {law}, n = {n}",
            f"{needed:.0e} rows of Monte Carlo (extrapolated: a standard error of {TARGET:g}/σ)",
            ours,
            theirs,
            "s",
            f"the sample is off by {float((mean - value) / error):+.1f} standard errors",
        )
