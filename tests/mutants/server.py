"""A pytest plug-in that runs the tests again and again, each time in a fork with one fault in it.

The process that collects the tests imports everything and runs none of them: a fork of it is as
good as a new process, and costs no import. A fault inside a function is planted by giving the
function another `__code__`. What runs while the library and its tests are imported (constants,
defaults, classes, functions that these call) is past by then: for those faults the fork forgets the
library and the tests, and imports and collects them again.
"""

import ast
import contextlib
import functools
import gc
import importlib.machinery
import os
import sys
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutants import forks
from tests.mutants.faults import Mutant

Lines = dict[str, dict[str, list[str]]]  # file → line → the tests that run it


class Watch:
    """What became of the tests."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class Server:
    """Collect the tests, find what each of them runs, then plant faults for as long as asked."""

    def __init__(self, package: Path, work: Callable[["Server"], None]) -> None:
        self.package, self.work = package, work
        self.imported = _coverage(package)
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.lines: Lines = {}
        self.functions: dict[str, list[types.FunctionType]] = defaultdict(list)
        self.caches: list[functools._lru_cache_wrapper[Any]] = []

    def collect(self, arguments: list[str]) -> int:
        """Collect, then do the work. Return pytest's exit status."""
        self.imported.start()
        # Everything in one process, and nothing left behind that another run would read.
        options = ["-n", "0", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
        return pytest.main([*options, *arguments], plugins=[self])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.imported.stop()
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        self.items = {item.nodeid: item for item in session.items}
        self.at_import = {(file, line) for file, of in _lines(self.imported).items() for line in of}
        for one in gc.get_objects():  # not isinstance, which some objects answer with a warning
            if type(one) is types.FunctionType:
                self.functions[one.__code__.co_filename].append(one)
            elif type(one) is functools._lru_cache_wrapper and self._ours(one.__wrapped__):
                self.caches.append(one)
        self.work(self)
        return True

    def load(self, sources: list[Path]) -> None:
        """Import what functions import when they are called: once here, instead of in each fork."""
        for source in sources:
            for node in ast.walk(ast.parse(source.read_bytes())):
                match node:
                    case ast.Import(names=names):
                        modules = [name.name for name in names]
                    case ast.ImportFrom(module=str(module), names=names, level=0):
                        modules = [module, *(f"{module}.{name.name}" for name in names)]
                    case _:
                        continue
                with contextlib.suppress(ImportError), warnings.catch_warnings(action="ignore"):
                    for module in modules:
                        importlib.import_module(module)

    def files(self) -> dict[str, list[str]]:
        """Return the tests of each file."""
        files: dict[str, list[str]] = defaultdict(list)
        for name in self.items:
            files[name.split("::")[0]].append(name)
        return files

    def trace(self, tests: list[str]) -> dict[str, Any]:
        """Run tests, in a fork; return the seconds of those that pass, and what ran each line."""
        watch, lines = self._watch(), _coverage(self.package)
        lines.start()
        seconds = {}
        for name, following in zip(tests, [*tests[1:], None], strict=True):
            for one in self.caches:
                one.cache_clear()  # a test that finds an answer there would not run its lines
            lines.switch_context(name)
            start = forks.processor_time()
            self._run(name, following)
            if name not in watch.failed:
                seconds[name] = round(forks.processor_time() - start, 4)
        lines.stop()
        return {"seconds": seconds, "lines": _lines(lines), "failed": watch.failed}

    def learn(self, found: dict[str, Any]) -> None:
        """Take in what `trace` has returned."""
        self.seconds |= found["seconds"]
        self.failed += found["failed"]
        for file, lines in found["lines"].items():
            for line, tests in lines.items():
                self.lines.setdefault(file, {}).setdefault(line, []).extend(tests)

    def known(self, file: str) -> dict[str, Any]:
        """Return what is known of the tests of a file, as `trace` does."""

        def own(names: Iterable[str]) -> list[str]:
            return [name for name in names if name.split("::")[0] == file]

        return {
            "seconds": {name: self.seconds[name] for name in own(self.seconds)},
            "failed": own(self.failed),
            "lines": {
                source: {line: mine for line, tests in lines.items() if (mine := own(tests))}
                for source, lines in self.lines.items()
            },
        }

    def tests(self, mutant: Mutant, budget: float) -> list[str]:
        """Return the tests that run its line, or its module: its own before others, quick first.

        Together they take `budget` seconds without the fault, and none takes half of it.
        """
        first, last = mutant.statement
        file, lines = str(mutant.path), {str(line) for line in range(first, last + 1)}
        early = not mutant.within or any((file, line) in self.at_import for line in lines)
        of_file = self.lines.get(file, {})
        names = {name for line in of_file if early or line in lines for name in of_file[line]}
        called = {mutant.path.stem, mutant.path.parent.name}  # attention/shapes: test_attention
        own = {
            name
            for name in self.seconds
            if any(word in Path(name.split("::")[0]).stem for word in called)
        }
        if early:
            names |= own  # a test may look at a constant and run nothing

        def order(name: str) -> tuple[bool, float]:
            return name not in own, self.seconds[name]

        chosen, total = [], 0.0
        for name in sorted(names & self.seconds.keys() & self.items.keys(), key=order):
            if self.seconds[name] <= min(budget / 2.0, budget - total):
                chosen.append(name)
                total += self.seconds[name]
        return chosen

    def plant(self, mutant: Mutant, tests: list[str]) -> list[str] | None:
        """Return the first test that fails with the fault in place, in a fork; None without one."""
        watch = self._watch()
        if mutant.within and self._exchange(mutant):
            for name, following in zip(tests, [*tests[1:], None], strict=True):
                self._run(name, following)
                if watch.failed:
                    return watch.failed[:1]
            if (str(mutant.path), str(mutant.line)) not in self.at_import:
                return None
        return self._import_again(mutant, tests)

    def _ours(self, function: Any) -> bool:
        code = getattr(function, "__code__", None)
        return code is not None and Path(code.co_filename).is_relative_to(self.package)

    def _watch(self) -> Watch:
        """Be silent from here on, and watch."""
        plugins = next(iter(self.items.values())).config.pluginmanager
        plugins.unregister(name="terminalreporter")
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        watch = Watch()
        plugins.register(watch)
        return watch

    def _run(self, name: str, following: str | None) -> None:
        item = self.items[name]
        nextitem = None if following is None else self.items[following]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)

    def _exchange(self, mutant: Mutant) -> bool:
        """Give the functions of the module the code that they have with the fault."""
        found = dict(_codes(compile(mutant.source, str(mutant.path), "exec")))
        exchanged = False
        for function in self.functions[str(mutant.path)]:
            code = found.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is None or len(code.co_freevars) != len(function.__code__.co_freevars):
                continue
            function.__code__ = code
            exchanged |= code.co_qualname == mutant.within
        return exchanged

    def _import_again(self, mutant: Mutant, tests: list[str]) -> list[str] | None:
        loader = importlib.machinery.SourceFileLoader
        usual = loader.get_code

        def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> Any:
            if name == mutant.module.removesuffix(".__init__"):
                return compile(mutant.source, str(mutant.path), "exec")
            return usual(self, name)

        loader.get_code = get_code  # type: ignore[method-assign]
        root = str(Path.cwd())
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if file.startswith(root) and "/." not in file and not file.endswith("conftest.py"):
                del sys.modules[name]
        for file in dict.fromkeys(name.split("::")[0] for name in tests):
            watch, chosen = Watch(), Chosen(tests)
            pytest.main(["-x", "-n", "0", "-p", "no:cacheprovider", file], plugins=[watch, chosen])
            if watch.failed:
                return watch.failed[:1]
        return None


class Chosen:
    """Run these tests, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.place = {name: place for place, name in enumerate(tests)}

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        config.pluginmanager.unregister(name="terminalreporter")
        items[:] = [item for item in items if item.nodeid in self.place]
        items.sort(key=lambda item: self.place[item.nodeid])


def _coverage(package: Path) -> coverage.Coverage:
    found = coverage.Coverage(data_file=None, config_file=False, include=[f"{package}/*"])
    found.set_option("run:disable_warnings", ["no-data-collected"])  # by a test of other processes
    return found


def _lines(measured: coverage.Coverage) -> Lines:
    data = measured.get_data()
    return {
        file: {str(line): tests for line, tests in data.contexts_by_lineno(file).items()}
        for file in data.measured_files()
    }


def _codes(code: types.CodeType) -> Iterator[tuple[tuple[str, int], types.CodeType]]:
    """Yield the functions of compiled source, by name and first line."""
    yield (code.co_qualname, code.co_firstlineno), code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
