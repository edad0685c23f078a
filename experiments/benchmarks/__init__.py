"""Compare attnlib with what a user would use instead; `make bench` runs all comparisons.

Each is a function that yields ratios as they are measured. `python -m experiments.benchmarks NAME`
prints the ratios of one.
"""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple


class Ratio(NamedTuple):
    """Two costs of the same thing, in the same unit: time or memory."""

    ours: str
    theirs: str
    our_cost: float
    their_cost: float
    unit: str
    note: str = ""
    """How far the two results are apart, or what else a reader must know."""

    @property
    def ratio(self) -> float:
        """Return how many times less ours costs."""
        return self.their_cost / self.our_cost

    def __str__(self) -> str:
        """Return everything in one line."""
        costs = [f"{cost:.3g} {self.unit}" for cost in (self.our_cost, self.their_cost)]
        end = f"; {self.note}" if self.note else ""
        return f"{self.ours} {costs[0]}; {self.theirs} {costs[1]}; ratio {self.ratio:.3g}{end}"


def measure_ratios(
    name: str, function: Callable[..., Iterator[Ratio]], options: dict[str, int]
) -> list[dict[str, Any]]:
    """Return the ratios of a benchmark, and print them as they come.

    It is here because a process of its own cannot find the functions of `__main__`.
    """
    ratios = []
    for ratio in function(**options):
        print(f"{name}: {ratio}", flush=True)
        ratios.append(ratio._asdict())
    return ratios


def run_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def seconds(
    call: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = process_time
) -> float:
    """Return the mean time of a call, by default the processor's: other programs do not count."""
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def peak_growth(call: Callable[[], object]) -> float:
    """Return by how many MiB a call raises the peak of this process's memory. Linux only."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _kibibytes("VmRSS")
    call()
    return (_kibibytes("VmHWM") - before) / 1024


def _kibibytes(name: str) -> int:
    """Return a size of this process by its name in /proc/self/status, in KiB."""
    match = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match
    return int(match[1])
