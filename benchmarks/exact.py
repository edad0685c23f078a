"""One exact expectation against Monte Carlo, at the same error. Run with `make bench`.

Nobody draws the rows that a standard error of 1e-6 would take. Their number is extrapolated from
the standard error of a sample, which falls like one over the square root of its size.
"""

from functools import partial
from time import perf_counter

import click
import numpy as np

from attnlib import exact, rows, sampling, scores

TARGET = 1e-6


@click.command()
@click.option("--n", default=1024, show_default=True, help="Keys in a row.")
@click.option("--alpha", default=2.0, show_default=True, help="Scale, in units of 1/σ.")
@click.option("--count", default=20_000, show_default=True, help="Rows drawn.")
def main(n: int, alpha: float, count: int) -> None:
    """Print the ratio of times, and how far the sample is from the exact mean."""
    print(f"mean gradient at ασ = {alpha:g}, n = {n}; standard error {TARGET:g}/σ extrapolated")
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
        print(
            f"{law!s:18} exact {1e3 * ours:6.1f} ms; Monte Carlo {needed:.0e} rows, "
            f"{theirs / 3600:.1f} h; ratio {theirs / ours:.0e}; "
            f"off by {float((mean - value) / error):+.1f} standard errors"
        )
    grid = np.geomspace(0.1, 20.0, 200)[:, None], np.geomspace(2, 10**6, 20).astype(int)
    for law in (scores.Normal(), scores.Cosine(128), scores.DotProduct(64)):
        start = perf_counter()
        exact.collision_probability(law, grid[0] / np.sqrt(law.variance), grid[1])
        print(f"{law!s:18} 200 × 20 grid of α and n: {perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
