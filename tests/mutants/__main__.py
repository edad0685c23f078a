"""Plant faults in the library, one at a time, and see whether its tests fail.

    python -m tests.mutants --sample 60            sixty of each module, drawn at random
    python -m tests.mutants --module attnlib.rows  all of one
    python -m tests.mutants                        all there are; it takes a night

Results are lines of a file under `_build/mutants`, and a run goes on where another was stopped. A
result stays as long as its module is what it was; a fault that survived is tried again once a test
has changed. `equivalent.toml` lists faults that no test can see, and why: one try is enough there.
`scores.json` keeps the score of each module (`--record`); a sample is held against it (`--check`).
"""

import argparse
import hashlib
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded; more threads die in a fork

import pytest

from tests.mutants import faults, forks
from tests.mutants.faults import Mutant
from tests.mutants.server import Server

HERE = Path(__file__).parent
BUILD = Path("_build", "mutants")
CHANCE = 0.01
"""A sample is too bad if chance would make it so bad more rarely than this."""


@cache
def digest(*files: Path) -> str:
    """Return what changes when one of the files does."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class Results:
    """What became of each fault."""

    def __init__(self, path: Path, tests: str, argued: Collection[tuple[str, ...]]) -> None:
        self.path, self.tests, self.argued = path, tests, argued
        self.found: dict[tuple[str, ...], dict[str, Any]] = {}
        for line in path.read_text("utf-8").split("\n") if path.exists() else []:
            if line.endswith("}"):  # a run that was killed may have left a part
                result = json.loads(line)
                self.found[tuple(result["key"])] = result

    @staticmethod
    def key(mutant: Mutant) -> tuple[str, ...]:
        place = f"{mutant.start}-{mutant.stop}"
        return mutant.module, digest(mutant.path), place, mutant.instead

    def status(self, mutant: Mutant) -> str | None:
        result = self.found.get(self.key(mutant), {})
        if result.get("status") == "survived" and mutant.name not in self.argued:
            return "survived" if result["tests"] == self.tests else None
        return result.get("status")

    def add(self, mutant: Mutant, status: str, test: str | None = None) -> None:
        result = {"key": self.key(mutant), "status": status, "test": test, "tests": self.tests}
        self.found[self.key(mutant)] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(result, ensure_ascii=False))


def traced(server: Server, processes: int, package: list[Path]) -> None:
    """Have the server know what each test runs; what is known from before is not run again.

    A trace holds for the library as it was, and for a file of tests of which it knows the beginning
    or all: tests that were written at its end since are traced alone.
    """

    def tasks() -> Iterator[tuple[str, Callable[[], Any], float]]:
        for file, tests in server.files().items():
            known = read(file)
            if known["state"] != state(file, known["size"]):
                known = nothing
            server.learn(known)
            new = [name for name in tests if name not in {*known["seconds"], *known["failed"]}]
            if new:
                yield file, lambda new=new: server.trace(new), 3600.0

    def state(file: str, size: int) -> str:
        helpers = sorted(Path(file).parent.glob("[!t]*.py"))
        begin = hashlib.sha256(Path(file).read_bytes()[:size]).hexdigest()
        return f"{digest(*package, *helpers)} {begin}"

    def read(file: str) -> dict[str, Any]:
        path = folder / f"{file.replace('/', '.')}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else nothing

    nothing: dict[str, Any] = {"state": "", "size": 0, "seconds": {}, "failed": [], "lines": {}}
    folder = BUILD / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    for file, found in forks.run(tasks(), processes):
        if isinstance(found, str):
            pytest.exit(f"{file} cannot be traced: {found}", returncode=1)
        print(f"traced {file}: {sum(found['seconds'].values()):.1f} s", flush=True)
        for name in found["failed"]:
            print(f"  left out, because it fails without a fault: {name}")
        server.learn(found)
        size = Path(file).stat().st_size
        known = server.known(file) | {"state": state(file, size), "size": size}
        (folder / f"{file.replace('/', '.')}.json").write_text(json.dumps(known), "utf-8")


def tried(
    server: Server, mutants: list[Mutant], results: Results, processes: int, budget: float
) -> None:
    """Try the faults of which nothing is known yet."""

    def tasks() -> Iterator[tuple[Mutant, Callable[[], Any], float]]:
        for mutant in mutants:
            if results.status(mutant) is None:
                if tests := server.tests(mutant, budget):
                    usual = sum(server.seconds[name] for name in tests)
                    work = lambda mutant=mutant, tests=tests: server.plant(mutant, tests)  # noqa: E731
                    yield mutant, work, 20.0 + 3.0 * usual
                else:
                    results.add(mutant, "survived")

    for mutant, answer in forks.run(tasks(), processes):
        match answer:
            case None:
                results.add(mutant, "survived")
                print(f"survived: {told(mutant)}", flush=True)
            case [test]:
                results.add(mutant, "killed", test)
            case "timeout":
                results.add(mutant, "timeout")
            case died:
                results.add(mutant, "killed", died)


def told(mutant: Mutant) -> str:
    file = mutant.path.relative_to(Path.cwd())
    return f"{file}:{mutant.line}\n    {mutant.before}\n  → {mutant.after}"


def equivalents(path: Path) -> dict[tuple[str, ...], str]:
    """Return the faults that are argued to be none, and why."""
    entries = tomllib.loads(path.read_text("utf-8"))["equivalent"] if path.exists() else []
    return {
        (entry["module"], entry["within"], entry["before"], after): entry["why"]
        for entry in entries
        for after in entry["after"]
    }


def counted(mutants: list[Mutant], results: Results, argued: Any) -> dict[str, Counter[str]]:
    """Return for each module how many faults there are, were tried, and became what."""
    counts: dict[str, Counter[str]] = {}
    for mutant in mutants:
        count = counts.setdefault(mutant.module, Counter())
        status = results.status(mutant)
        count["faults"] += 1
        if status == "survived" and mutant.name in argued:
            status = "equivalent"
        if status is not None:
            count["tried"] += 1
            count[status] += 1
    return counts


def score(count: Counter[str]) -> tuple[int, int]:
    """Return how many of how many were caught."""
    return count["killed"] + count["timeout"], count["tried"] - count["equivalent"]


def table(counts: dict[str, Counter[str]]) -> str:
    columns = ["faults", "tried", "killed", "timeout", "survived", "equivalent"]
    rows = [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]
    lines = [" ".join([f"{'module':30}", *(f"{name:>10}" for name in columns), "  caught"])]
    for module, count in rows:
        caught, of = score(count)
        share = f"{100 * caught / of:7.1f}%" if of else ""
        lines.append(" ".join([f"{module:30}", *(f"{count[name]:10}" for name in columns), share]))
    return "\n".join(lines)


def worse(counts: dict[str, Counter[str]], recorded: dict[str, dict[str, int]]) -> bool:
    """Whether fewer are caught than the recorded scores lead to expect, by more than chance."""
    from scipy.stats import binomtest

    caught, of, expected = 0, 0, 0.0
    for module, count in counts.items():
        if module in recorded:
            part, whole = score(count)
            known, known_of = score(Counter(recorded[module]))
            caught, of, expected = caught + part, of + whole, expected + whole * known / known_of
    return of > 0 and binomtest(caught, of, expected / of, "less").pvalue < CHANCE


def main() -> int:
    parser = argparse.ArgumentParser(description="Plant faults, see whether the tests fail.")
    parser.add_argument("--package", default="attnlib")
    parser.add_argument(
        "--tests", nargs="+", default=["attnlib", "tests/library", "tests/experiments"]
    )
    parser.add_argument("--module", action="append", help="only this module; may be repeated")
    parser.add_argument("--sample", type=int, help="so many faults of each module, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of tests for a fault")
    parser.add_argument("--record", action="store_true", help="keep the scores")
    parser.add_argument("--check", action="store_true", help="hold them against those kept")
    options = parser.parse_args()
    package = Path(options.package).resolve()
    sources = sorted(package.rglob("*.py"))
    by_module = []
    for source in sources:
        module = ".".join(source.relative_to(package.parent).with_suffix("").parts)
        if not options.module or module in options.module:
            found = sorted(faults.of(source, module), key=lambda one: one.rank(options.seed))
            by_module.append(found[: options.sample])
    # A module after the other, one fault each: a run that is stopped has sampled them all alike.
    mutants = [one for turn in zip_longest(*by_module) for one in turn if one is not None]
    tests = sorted(
        file
        for name in map(Path, options.tests)
        for file in ([name] if name.is_file() else name.rglob("*.py"))
    )
    argued = equivalents(HERE / "equivalent.toml")
    results = Results(BUILD / "results.jsonl", digest(*tests), argued)

    def work(server: Server) -> None:
        traced(server, options.processes, sources)
        server.load(sources + tests)
        tried(server, mutants, results, options.processes, options.budget)

    if any(results.status(mutant) is None for mutant in mutants):
        status = Server(package, work).collect(options.tests)
        if status != 0:
            return status
    counts = counted(mutants, results, argued)
    for mutant in sorted(mutants, key=lambda one: (one.module, one.start)):
        if results.status(mutant) == "survived" and mutant.name not in argued:
            print(f"survived: {told(mutant)}")
    print(table(counts))
    scores = HERE / "scores.json"
    if options.record:
        known = json.loads(scores.read_text("utf-8")) if scores.exists() else {}
        scores.write_text(json.dumps(known | counts, indent=1, sort_keys=True) + "\n", "utf-8")
    return int(options.check and worse(counts, json.loads(scores.read_text("utf-8"))))


if __name__ == "__main__":
    sys.exit(main())
