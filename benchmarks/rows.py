"""Measures of one row of attention against torch's Jacobian, n = 4096. Run with `make bench`."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch

from attnlib import rows, scores

LENGTH = 4096


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


def main() -> None:
    """Print the ratio of times for each measure, and the difference of the gradients."""
    s = scores.Normal().sample(np.random.default_rng(0), 1, LENGTH)[0]
    tensor = torch.tensor(s)
    theirs = seconds(lambda: measured_by_torch(tensor), 3)
    print(f"torch.autograd.functional.jacobian, n = {LENGTH}: {1e3 * theirs:.0f} ms")
    p = rows.softmax(s)
    for name, function in (
        ("gradient", lambda: rows.gradient(s)),
        ("frobenius_norm", lambda: rows.frobenius_norm(s)),
        ("largest_entry", lambda: rows.largest_entry(s)),
        ("collision_probability", lambda: rows.collision_probability(p)),
    ):
        ours = seconds(function, 50)
        print(f"{name:22} {1e3 * ours:.3f} ms, ratio {theirs / ours:.0f}")
    theirs = seconds(lambda: torch.linalg.eigvalsh(jacobian(tensor))[-1], 1)
    ours = seconds(lambda: rows.spectral_norm(s), 50)
    print(f"with torch.linalg.eigvalsh: {1e3 * theirs:.0f} ms")
    print(f"{'spectral_norm':22} {1e3 * ours:.3f} ms, ratio {theirs / ours:.0f}")
    difference = abs(measured_by_torch(tensor) / rows.gradient(s) - 1.0)
    print(f"relative difference of the gradients {difference:.1e}")


if __name__ == "__main__":
    main()
