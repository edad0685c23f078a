"""Measures of one row's gradient against the same from torch's Jacobian."""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch

from attnlib import rows, scores
from benchmarks import Ratio

QUICK = {"length": 512}


def seconds(function: Callable[[], Any], repeats: int) -> float:
    """Return the shortest time of several calls."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)


def jacobian(s: torch.Tensor) -> torch.Tensor:
    """Return the n × n Jacobian as a user would find it."""
    return torch.autograd.functional.jacobian(lambda x: torch.softmax(x, 0), s, vectorize=True)


def measured_by_torch(s: torch.Tensor) -> float:
    """Return half the L1 norm of the Jacobian."""
    return float(jacobian(s).abs().sum() / 2)


def measure(length: int = 4096) -> Iterator[Ratio]:
    """Yield the time of each measure of a row."""
    s = scores.Normal().sample(np.random.default_rng(0), 1, length)[0]
    tensor = torch.tensor(s)
    theirs = seconds(lambda: measured_by_torch(tensor), 3)
    difference = abs(measured_by_torch(tensor) / rows.gradient(s) - 1.0)
    p = rows.softmax(s)
    for name, function in (
        ("gradient", lambda: rows.gradient(s)),
        ("frobenius_norm", lambda: rows.frobenius_norm(s)),
        ("largest_entry", lambda: rows.largest_entry(s)),
        ("collision_probability", lambda: rows.collision_probability(p)),
    ):
        yield Ratio(
            f"rows.{name}, n = {length}",
            "from torch.autograd's jacobian",
            1e3 * seconds(function, 50),
            1e3 * theirs,
            "ms",
            f"relative difference {difference:.0e}" if name == "gradient" else "",
        )
    yield Ratio(
        f"rows.spectral_norm, n = {length}",
        "the same with torch.linalg.eigvalsh",
        1e3 * seconds(lambda: rows.spectral_norm(s), 50),
        1e3 * seconds(lambda: torch.linalg.eigvalsh(jacobian(tensor))[-1], 1),
        "ms",
    )
