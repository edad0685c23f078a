"""Plant faults in the library, one at a time, and see whether its tests fail.

    python -m tests.mutants                        a hundred, drawn from all modules
    python -m tests.mutants --seed 7               another hundred
    python -m tests.mutants --module attnlib.rows  a hundred of one module

For each fault a process runs whole files of tests until one fails: the doctests of the module and
the files that are named after it. A fault that survives meets the others that import the module,
the direct ones first, as long as they take no more than `--budget` seconds without it. What such a
test starts as another process does not have the fault.

A fault that survives calls for a test or for less code; some change nothing that anybody could see.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import grimp

from tests.mutants import faults
from tests.mutants.faults import Mutant

PACKAGES = [Path("attnlib"), Path("claims"), Path("experiments")]
TESTS = [Path("tests", name) for name in ("library", "claims", "experiments")]
FAILED = {1, 2}
"""How pytest ends when a test fails, or a module cannot be imported."""


class Tests:
    """The files of tests, what they import, and how long each takes without a fault."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.paths = {
            module(path): path.resolve()
            for folder in TESTS
            for path in sorted(folder.rglob("test_*.py"))
        }
        self.graph = grimp.build_graph(*map(str, PACKAGES), "tests", cache_dir=None)
        self.known: dict[Path, float] = {}
        self.locks: defaultdict[Path, Lock] = defaultdict(Lock)

    def nearest(self, name: str) -> list[str]:
        """Return the files that import a module, the direct ones first, by their names."""
        found = level = dict.fromkeys([name.removesuffix(".__init__")])
        while level:
            importers = (self.graph.find_modules_that_directly_import(one) for one in level)
            level = dict.fromkeys(sorted(set().union(*importers) - found.keys()))
            found = found | level
        return [one for one in found if one in self.paths]

    def seconds(self, path: Path) -> float:
        """Return how long a file takes: for ever if it fails, or has no tests."""
        with self.locks[path]:
            if path not in self.known:
                start = time.monotonic()
                passed = run([path], os.environ, 10.0 * self.budget) == 0
                self.known[path] = time.monotonic() - start if passed else math.inf
            return self.known[path]

    def stages(self, mutant: Mutant) -> Iterator[tuple[list[Path], float]]:
        """Yield the files to run for a fault, and how long they take without it, in two stages."""
        names = self.nearest(mutant.module)

        def named(modules: Collection[str]) -> list[str]:
            words = {word for one in modules for word in one.split(".")[1:]}
            return [name for name in names if words & set(name.split(".")[-1].split("_"))]

        of = mutant.module.removesuffix(".__init__")
        own = named([of]) or named(self.graph.find_modules_that_directly_import(of))
        first = [mutant.path, *(self.paths[name] for name in own)]
        yield self.within(first, math.inf)
        yield self.within([self.paths[name] for name in names if name not in own], self.budget)

    def within(self, paths: list[Path], budget: float) -> tuple[list[Path], float]:
        """Return those of the files that take no longer than the budget together, and how long."""
        chosen, total = [], 0.0
        for path in paths:
            if total > 0.9 * budget:
                break
            seconds = self.seconds(path)
            if seconds < math.inf and total + seconds <= budget:
                chosen.append(path)
                total += seconds
        return chosen, total


def run(files: list[Path], environment: dict[str, str], limit: float, *options: str) -> int | None:
    """Run tests until one fails; return how pytest ends, None if it does not in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [*command, *options, *map(str, files)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def outcome(mutant: Mutant, tests: Tests) -> str:
    """Plant a fault; return whether it was "killed", ended in a "timeout", or "survived"."""
    fault = [os.path.realpath(mutant.path), mutant.start, mutant.stop, mutant.instead]
    environment = {**os.environ, "PLANTED_FAULT": json.dumps(fault)}
    for files, seconds in tests.stages(mutant):
        if not files:
            continue
        # pytest compiles a module that it is given by itself, and would not see the fault.
        options = "--assert", "plain", "-p", "tests.mutants.planted"
        status = run(files, environment, 30.0 + 3.0 * seconds, *options)
        if status is None:
            return "timeout"
        if status in FAILED:
            return "killed"
        assert status == 0, f"pytest ends with {status}: {mutant.name}"
    return "survived"


def all_mutants() -> list[Mutant]:
    """Return the faults of all modules."""
    return [
        mutant
        for package in map(Path.resolve, PACKAGES)
        for path in sorted(package.rglob("*.py"))
        for mutant in faults.of(path, module(path.relative_to(package.parent)))
    ]


def module(path: Path) -> str:
    """Return the name of a module by its file."""
    return ".".join(path.with_suffix("").parts)


def main() -> int:
    """Plant a sample of faults; return how the program ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--module", action="append", help="only this module; may be repeated")
    parser.add_argument("--sample", type=int, default=100, help="so many faults, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of tests for a fault")
    options = parser.parse_args()
    mutants = all_mutants()
    drawn = [one for one in mutants if one.module in (options.module or [one.module])]
    drawn = sorted(drawn, key=lambda one: one.rank(options.seed))[: options.sample]
    tests = Tests(options.budget)
    counts: dict[str, Counter[str]] = {}

    def tried(mutant: Mutant) -> None:
        status = outcome(mutant, tests)
        counts.setdefault(mutant.module, Counter())[status] += 1
        if status == "survived":
            where = f"{mutant.path.relative_to(Path.cwd())}:{mutant.line}"
            print(f"survived: {where}\n    {mutant.before}\n  → {mutant.after}", flush=True)

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(tried, drawn))
    counts["all"] = sum(counts.values(), Counter())
    for name, count in counts.items():
        print(f"{name}: {', '.join(f'{count[how]} {how}' for how in sorted(count))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
