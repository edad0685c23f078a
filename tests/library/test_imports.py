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


WANTING = {
    "import attnlib.attention": ("torch", "torch"),
    "import attnlib.probing": ("torch", "torch"),
    "import attnlib.auditing": ("torch", "torch"),
}
WANTING_WITH_TORCH = {
    "from attnlib.probing import Report; Report().table()": ("pandas", "table"),
    "from attnlib.attention import register; register('mup')": ("transformers", "probe"),
}


@pytest.mark.parametrize("statements", [WANTING, WANTING_WITH_TORCH])
def test_what_is_missing_names_the_extra_that_brings_it(statements):
    code = [
        "import sys",
        f"sys.modules.update(dict.fromkeys({[m for m, _ in statements.values()]}))",
    ]
    for statement in statements:
        code += [
            "try:",
            f"    {statement}",
            "except ModuleNotFoundError as error:",
            "    print(error)",
        ]
    answer = subprocess.run(
        [sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, check=True
    )
    lines = answer.stdout.splitlines()
    for (missing, extra), line in zip(statements.values(), lines, strict=True):
        named = (
            rf"{missing}\S* is missing; pip install \"attnlib\[{extra}\]\" brings what this needs"
        )
        assert re.fullmatch(named, line)
