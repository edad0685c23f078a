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


def test_a_test_of_the_library_loads_nothing_heavy_and_starts_no_process():
    options_ = ["-p", "no:cacheprovider", "--collect-only", "tests/library/test_rows.py"]
    command = [sys.executable, "-c", RUN, *options_]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout
    *report, loaded = finished.stdout.splitlines()
    assert HEAVY.isdisjoint(loaded.split())
    assert not any("bringing up nodes" in line for line in report)


@pytest.mark.parametrize(
    ("named", "processes", "added"),
    [
        ([], None, [*SHARED_OUT, *NOTEBOOKS]),
        (["tests/site/../library"], None, SHARED_OUT),
        (["chapters/exact.ipynb::Cell 3"], None, NOTEBOOKS),
        (["chapters/exact.ipynb"], 4, ["--dist", "loadfile", *NOTEBOOKS]),
    ],
)
def test_options_follow_from_what_is_asked_for(named, processes, added, monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    loaded, args = [], ["-x"]
    config = SimpleNamespace(
        known_args_namespace=SimpleNamespace(file_or_dir=named, numprocesses=processes),
        invocation_params=SimpleNamespace(dir=ROOT),
        rootpath=ROOT,
        getini=lambda name: ["attnlib", "tests", "chapters"],
        pluginmanager=SimpleNamespace(import_plugin=loaded.append),
    )
    options.pytest_load_initial_conftests(config, args)
    assert args == [*added, "-x"]
    assert loaded == (["nbval.plugin", "tests.notebooks.numeric"] if NOTEBOOKS[0] in added else [])
    assert os.environ == ({"OMP_NUM_THREADS": "1"} if "loadfile" in added else {})
