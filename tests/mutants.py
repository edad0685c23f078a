"""Faults planted in the library, one at a time: `python -m tests.mutants` says which go unseen.

    python -m tests.mutants                              a hundred, drawn from all modules
    python -m tests.mutants --module attnlib.rows        a hundred of one module
    python -m tests.mutants --sample 30 --seed 7         others

For each fault a process runs the doctests of the module and the files of tests that import it,
until one fails; where none imports it, those that import its importers. A fault that survives calls
for a test or for less code; some change nothing that anybody could see. It is our own because the
kept tools run all tests for every fault, or in a changed copy, where tests that read the repository
fail, and leave out no argument and no check: the faults that tests miss.
"""

import argparse
import ast
import importlib.machinery
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("attnlib", "claims", "experiments")
VARIABLE = "PLANTED_FAULT"
"""It has a file and the number of its fault, in JSON."""

LIMIT = 900.0
"""Seconds that the tests of a fault may take."""

OPERATORS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
FUNCTIONS = {"min": "max", "minimum": "maximum", "any": "all", "floor": "ceil", "log": "log1p"}
FUNCTIONS |= {"argmin": "argmax", "exp": "expm1", "sin": "cos", "zeros_like": "ones_like"}
FUNCTIONS |= {new: old for old, new in FUNCTIONS.items()}
NOT_CHANGED = {"annotation", "returns", "decorator_list", "type_params"}


class Change(NamedTuple):
    """A node of a module, what it stands in, and what stands there instead."""

    holder: ast.AST
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST

    def apply(self) -> None:
        """Put the new node into the place of the old one."""
        if self.index is None:
            setattr(self.holder, self.field, self.new)
        else:
            getattr(self.holder, self.field)[self.index] = self.new


def changes(holder: ast.AST) -> Iterator[Change]:
    """Return the faults in a node, from its beginning to its end; its texts stay as they are."""
    for field, value in ast.iter_fields(holder):
        if field in NOT_CHANGED or isinstance(holder, ast.JoinedStr | ast.Raise):
            continue
        several = isinstance(value, list)
        for index, node in enumerate(value if several else [value]):
            if isinstance(node, ast.AST):
                for new in instead(node):
                    ast.copy_location(new, node)
                    yield Change(holder, field, index if several else None, node, new)
                yield from changes(node)


def instead(node: ast.AST) -> Iterator[ast.AST]:
    """Return what may stand in the place of a node."""
    match node:
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield altered(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[test, *others]):
            yield altered(node, ifs=[ast.UnaryOp(ast.Not(), test), *others])
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(moved(value))
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                yield altered(node, ops=[*ops[:index], OPERATORS[type(op)](), *ops[index + 1 :]])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OPERATORS:
            yield altered(node, op=OPERATORS[type(op)]())
        case ast.Call(func=func, keywords=keywords):
            if isinstance(func, ast.Name) and func.id in FUNCTIONS:
                yield altered(node, func=ast.Name(FUNCTIONS[func.id], ast.Load()))
            if isinstance(func, ast.Attribute) and func.attr in FUNCTIONS:
                yield altered(node, func=altered(func, attr=FUNCTIONS[func.attr]))
            for keyword in keywords:
                yield altered(node, keywords=[one for one in keywords if one is not keyword])


def altered(node: ast.AST, **fields: object) -> ast.AST:
    """Return a copy of a node with other fields."""
    copy = deepcopy(node)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def moved(value: float) -> float:
    """Return a tenth more; twice a small threshold, the square root of a large one."""
    if value == 0.0 or abs(value) <= 1e-3:
        return 2.0 * value or 1.0
    return 1.1 * value if abs(value) < 1e4 else value**0.5


# --- in a process of tests ------------------------------------------------------------------------


def pytest_addoption() -> None:
    """Import one module with its fault; pytest has this module as a plug-in."""
    path, number = json.loads(os.environ[VARIABLE])
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> object:
        if os.path.realpath(loader.path) != path:
            return usual(loader, name)
        tree = ast.parse(loader.get_data(path))
        list(changes(tree))[number].apply()
        return compile(ast.fix_missing_locations(tree), path, "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment]


def tests_of(name: str) -> list[str]:
    """Return the files of tests that import a module, or else its importers."""
    import grimp

    graph = grimp.build_graph(*PACKAGES, "tests", cache_dir=None)
    level = seen = {name.removesuffix(".__init__")}
    while level:
        level = {one for of in level for one in graph.find_modules_that_directly_import(of)} - seen
        seen = seen | level
        files = sorted(
            (one for one in level if ".test_" in one),
            key=lambda one: (one.rsplit("test_")[-1] not in name, one),  # named after it, first
        )
        if files:
            return [f"{one.replace('.', '/')}.py" for one in files]
    return []


def outcome(path: Path, number: int, tests: list[str]) -> str:
    """Plant a fault; return whether it was "killed", ended in a "timeout", or "survived"."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    # pytest compiles a module that it is given by itself, and would not see the fault.
    command += ["--assert", "plain", "-p", "tests.mutants", str(path), *tests]
    fault = json.dumps([os.path.realpath(path), number])
    process = subprocess.Popen(
        command,
        env={**os.environ, VARIABLE: fault, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "timeout"
    # A test fails, a module cannot be imported; or all pass, there are none.
    return {1: "killed", 2: "killed", 0: "survived", 5: "survived"}[status]


def main() -> None:
    """Plant a sample of faults, and print those that no test sees."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--module", action="append", help="only this module; may be repeated")
    parser.add_argument("--sample", type=int, default=100, help="so many faults, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    faults = [
        (path, number, change)
        for package in PACKAGES
        for path in sorted(Path(package).rglob("*.py"))
        if not options.module or module(path) in options.module
        for number, change in enumerate(changes(ast.parse(path.read_bytes())))
    ]
    sample = min(options.sample, len(faults))
    drawn = random.Random(options.seed).sample(faults, sample)
    files = {path: tests_of(module(path)) for path, *_ in drawn}
    counts: Counter[str] = Counter()

    def tried(fault: tuple[Path, int, Change]) -> None:
        path, number, change = fault
        status = outcome(path, number, files[path])
        counts[status] += 1
        if status == "survived":
            line = getattr(change.old, "lineno", getattr(change.holder, "lineno", 0))
            old, new = (ast.unparse(one).splitlines()[0] for one in (change.old, change.new))
            print(f"survived: {path}:{line}\n    {old}\n  → {new}", flush=True)

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(tried, drawn))
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))


def module(path: Path) -> str:
    """Return the name of a module by its file."""
    return ".".join(path.with_suffix("").parts)


if __name__ == "__main__":
    main()
