"""One exact expectation against Monte Carlo, at the same error.

Nobody draws the rows that a standard error of 1e-6 would take. Their number is extrapolated from
the standard error of a sample, which falls like one over the square root of its size.
"""

from collections.abc import Iterator
from functools import partial
from time import perf_counter

import numpy as np

from attnlib import exact, rows, sampling, scores
from experiments.benchmarks import Ratio, seconds

TARGET = 1e-6
QUICK = {"count": 1000}


def measure(n: int = 1024, alpha: float = 2.0, count: int = 20_000) -> Iterator[Ratio]:
    """Yield the time of a mean gradient for each law, α in units of 1/σ."""
    for law in (scores.Normal(), scores.Cosine(128), scores.DotProduct(64)):
        sigma = np.sqrt(law.variance)
        expected = partial(exact.gradient, law, alpha / sigma, n)
        ours = seconds(expected, 5, perf_counter)
        start = perf_counter()
        statistic = partial(rows.gradient, alpha=alpha / sigma)
        mean, error = sampling.sample(law, n, statistic, rows=count, seed=0).mean()
        needed = count * float(sigma * error / TARGET) ** 2
        yield Ratio(
            f"exact.gradient, {law}, n = {n}",
            f"{needed:.0e} rows of Monte Carlo (extrapolated: a standard error of {TARGET:g}/σ)",
            ours,
            (perf_counter() - start) * needed / count,
            "s",
            f"the sample is off by {float((mean - expected()) / error):+.1f} standard errors",
        )
