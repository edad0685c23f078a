"""What a run of pytest loads and starts, by what it is asked for."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests import options
from tests.books import ROOT

HEAVY = {"nbval", "nbformat", "jupyter_client", "IPython", "torch"}
RUN = "import sys, pytest; s = pytest.main(sys.argv[1:]); print(*sys.modules); sys.exit(s)"
SHARED_OUT = ["-n", "3", "--dist", "loadfile"]
NOTEBOOKS = ["--nbval", "--nbval-current-env"]


def run(*arguments):
    command = [sys.executable, "-c", RUN, "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_test_of_the_library_loads_nothing_heavy_and_starts_no_process():
    finished = run("tests/library/test_rows.py", "-k", "two_largest")
    assert finished.returncode == 0, finished.stdout
    *report, loaded = finished.stdout.splitlines()
    assert HEAVY.isdisjoint(loaded.split())
    assert "1 passed" in report[-1]
    assert not any("bringing up nodes" in line for line in report)


def test_a_chapter_is_collected_cell_by_cell():
    finished = run("chapters/jacobian.ipynb", "--collect-only", "-qq")
    assert finished.returncode == 0, finished.stdout
    assert finished.stdout.startswith("chapters/jacobian.ipynb: 14\n")


@pytest.mark.parametrize(
    ("named", "processes", "added"),
    [
        ([], None, [*SHARED_OUT, *NOTEBOOKS]),
        (["."], None, [*SHARED_OUT, *NOTEBOOKS]),
        (["attnlib", "chapters"], None, [*SHARED_OUT, *NOTEBOOKS]),
        (["attnlib", "tests/library"], None, SHARED_OUT),
        (["tests/site/../library"], None, SHARED_OUT),
        (["tests/library/test_rows.py"], None, []),
        (["tests/library/test_rows.py::test_x[a::b]"], None, []),
        (["chapters/exact.ipynb::Cell 3"], None, NOTEBOOKS),
        ([], 0, NOTEBOOKS),
        (["chapters/exact.ipynb"], 4, ["--dist", "loadfile", *NOTEBOOKS]),
    ],
)
def test_options_follow_from_what_is_asked_for(named, processes, added, monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    args, loaded = asked_for(named, processes)
    assert args == [*added, "-x"]
    assert loaded == (["nbval.plugin", "tests.notebooks.numeric"] if NOTEBOOKS[0] in added else [])
    assert os.environ == ({"OMP_NUM_THREADS": "1"} if "loadfile" in added else {})


def test_threads_are_as_many_as_somebody_asked_for(monkeypatch):
    monkeypatch.setattr(os, "environ", {"OMP_NUM_THREADS": "4"})
    asked_for([], 2)
    assert os.environ == {"OMP_NUM_THREADS": "4"}


def asked_for(named, processes):
    """Return the command line with what was added, and the plug-ins that were loaded."""
    loaded, args = [], ["-x"]
    config = SimpleNamespace(
        known_args_namespace=SimpleNamespace(file_or_dir=named, numprocesses=processes),
        invocation_params=SimpleNamespace(dir=ROOT),
        rootpath=ROOT,
        getini=lambda name: ["attnlib", "tests", "chapters"],
        pluginmanager=SimpleNamespace(import_plugin=loaded.append),
    )
    options.pytest_load_initial_conftests(config, args)
    return args, loaded
