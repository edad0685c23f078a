"""Importing the library stays cheap: it loads NumPy and SciPy, and nothing heavier."""

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
    "statement", ["import attnlib", "from attnlib import rows, scores, special, checking"]
)
def test_importing_the_library_loads_no_heavy_package(statement):
    loaded = modules_after(statement)
    assert {"attnlib.rows", "attnlib.scores", "numpy", "scipy"} <= loaded
    heavy = {"torch", "matplotlib", "sympy", "mpmath", "IPython", "typer", "rich", "pandas"}
    assert loaded.isdisjoint(heavy | {"tqdm", "dask", "distributed"})


@pytest.mark.parametrize(
    "statement", ["from attnlib.lab import comparison, data, small_models", "import attnlib.claims"]
)
def test_texts_comparisons_and_claims_need_no_torch(statement):
    assert {"torch", "pooch"}.isdisjoint(modules_after(statement))


def test_attention_and_the_probe_do_not_load_the_compiler():
    loaded = modules_after("import attnlib.attention, attnlib.probing")
    assert loaded.isdisjoint({"torch._dynamo", "torch._inductor", "pandas", "transformers"})
