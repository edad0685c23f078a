"""The theory's functions against SciPy, Monte Carlo and torch's Jacobian."""

from collections.abc import Iterator
from functools import partial
from time import perf_counter

import numpy as np
import torch
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from attnlib import annealed, exact, rows, sampling, scores
from experiments.benchmarks import Ratio, seconds

TARGET = 1e-6
"""The standard error at which an expectation is compared."""


def search_alpha(law: scores.Cosine, n: float) -> float:
    """Return the optimum as a user would find it: quadrature inside a bounded search."""

    def mean(alpha: float) -> float:
        # Without epsabs=0 quad stops early: the mean is far below its absolute tolerance.
        return quad(lambda s: np.exp(alpha * (s - 1.0) + law.logpdf(s)), -1.0, 1.0, epsabs=0.0)[0]

    def loss(alpha: float) -> float:
        return -alpha * (1.0 - mean(2.0 * alpha) / mean(alpha) ** 2 / n)

    return minimize_scalar(loss, bounds=(1.0, 100.0), method="bounded", options={"xatol": 1e-9}).x


def best_alphas(every: int = 1) -> Iterator[Ratio]:
    """Yield the time of the best α at a point of source 000's grid, d = 128, n = 40, 80, …, 20000.

    Every `every`-th point is searched with SciPy.
    """
    law, n = scores.Cosine(128), np.arange(40.0, 20001.0, 40.0)
    best = annealed.best_alpha(law, n)
    alphas: list[float] = []
    theirs = seconds(lambda: alphas.extend(search_alpha(law, keys) for keys in n[::every]))
    theirs /= len(alphas)
    yield Ratio(
        f"annealed.best_alpha, cosines, d = 128, {n.size} values of n",
        "scipy's quad in minimize_scalar",
        1e3 * seconds(lambda: annealed.best_alpha(law, n), 20) / n.size,
        1e3 * theirs,
        "ms a point",
        f"largest relative difference {np.abs(alphas / best[::every] - 1.0).max():.0e}",
    )


def expectations(n: int = 1024, alpha: float = 2.0, count: int = 20_000) -> Iterator[Ratio]:
    """Yield the time of a mean gradient for each law, α in units of 1/σ.

    Nobody draws the rows that a standard error of 1e-6 would take. Their number is extrapolated
    from the standard error of a sample, which falls like one over the square root of its size.
    """
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


def torch_gradient(s: torch.Tensor) -> float:
    """Return half the L1 norm of the n × n Jacobian, as a user would find it."""
    jacobian = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, 0), s, vectorize=True)
    return float(jacobian.abs().sum() / 2)


def row_measures(length: int = 4096) -> Iterator[Ratio]:
    """Yield the time of each measure of a row."""
    s = scores.Normal().sample(np.random.default_rng(0), 1, length)[0]
    tensor = torch.tensor(s)
    torch_gradient(tensor)  # what a first call loads
    theirs = seconds(lambda: torch_gradient(tensor), 3, perf_counter)
    difference = abs(torch_gradient(tensor) / rows.gradient(s) - 1.0)
    for function, row, note in (
        (rows.gradient, s, f"relative difference {difference:.0e}"),
        (rows.frobenius_norm, s, ""),
        (rows.largest_entry, s, ""),
        (rows.collision_probability, rows.softmax(s), ""),
    ):
        function(row)
        yield Ratio(
            f"rows.{function.__name__}, n = {length}",
            "from torch.autograd's jacobian",
            1e3 * seconds(partial(function, row), 50, perf_counter),
            1e3 * theirs,
            "ms",
            note,
        )
