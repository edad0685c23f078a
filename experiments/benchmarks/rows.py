"""Measures of one row's gradient against the same from torch's Jacobian."""

from collections.abc import Iterator
from functools import partial
from time import perf_counter

import numpy as np
import torch

from attnlib import rows, scores
from experiments.benchmarks import Ratio, seconds

QUICK = {"length": 512}


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
    measured_by_torch(tensor)  # what a first call loads
    plain = seconds(lambda: measured_by_torch(tensor), 3, perf_counter)
    difference = abs(measured_by_torch(tensor) / rows.gradient(s) - 1.0)
    for function, row, theirs, note in (
        (rows.gradient, s, plain, f"relative difference {difference:.0e}"),
        (rows.frobenius_norm, s, plain, ""),
        (rows.largest_entry, s, plain, ""),
        (rows.collision_probability, rows.softmax(s), plain, ""),
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
