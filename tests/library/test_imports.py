"""Importing the library stays cheap: it loads NumPy and SciPy, and nothing heavier."""

import re
import subprocess
import sys

import pytest


def modules_after(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(answer.stdout.split())


@pytest.mark.parametrize(
    "statement", ["import attnlib", "from attnlib import rows, scores, _checking, _numerics"]
)
def test_importing_the_library_loads_no_heavy_package(statement):
    loaded = modules_after(statement)
    assert {"attnlib.rows", "attnlib.scores", "numpy", "scipy"} <= loaded
    heavy = {"torch", "matplotlib", "sympy", "mpmath", "IPython", "typer", "rich", "pandas"}
    assert loaded.isdisjoint(heavy | {"tqdm", "dask", "distributed"})


@pytest.mark.parametrize(
    ("statement", "missing", "extra"),
    [
        ("import attnlib.probing", "torch", "torch"),
        ("from attnlib.probing import Report; Report().table()", "pandas", "table"),
        ("from attnlib.attention import register; register('mup')", "transformers", "probe"),
    ],
)
def test_what_is_missing_names_the_extra_that_brings_it(statement, missing, extra):
    code = f"import sys; sys.modules[{missing!r}] = None; {statement}"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    named = rf"{missing}\S* is missing; pip install \"attnlib\[{extra}\]\" brings what this needs"
    assert re.search(f": {named}$", process.stderr.strip())
