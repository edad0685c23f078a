"""What the wheel has and asks for; what chapters import, the extra for them and Binder bring."""

import ast
import json
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import attnlib
from tests.paths import CHAPTERS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
BY_MODULE = packages_distributions()
OURS = {"attnlib", "book", "experiments", "claims"}


def imported(source):
    """Return the distributions that code imports, anywhere in it, without the standard library."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) if not node.level}
    modules = {name.split(".")[0] for name in names} - sys.stdlib_module_names - OURS
    return {canonicalize_name(BY_MODULE[module][0]) for module in modules}


def asked_for(*extras):
    """Return the distributions that attnlib asks for, with those of these extras."""
    names = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    for requirement in (Requirement(line) for extra in extras for line in EXTRAS[extra]):
        if requirement.name == "attnlib":
            names |= asked_for(*requirement.extras)
        else:
            names.add(canonicalize_name(requirement.name))
    return names


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--quiet"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT]
    subprocess.run(command, check=True)
    (path,) = folder.glob("*.whl")
    return path


DATA = {"attnlib/py.typed", "attnlib/policies.toml", "attnlib/auditing/meant.toml"}


def test_it_holds_the_library_and_nothing_else(wheel):
    assert wheel.name == f"attnlib-{attnlib.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "attnlib").rglob("*.py")}
    about = {name for name in names if ".dist-info/" in name}
    assert names - about == ours | DATA
    assert any(name.endswith("licenses/LICENSE") for name in about)


def run(*arguments):
    """Run the command where no package of an extra can be imported."""
    extra = asked_for(*EXTRAS) - asked_for()
    missing = [name for name, (owner, *_) in BY_MODULE.items() if canonicalize_name(owner) in extra]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); from attnlib.cli import app"
    command = [sys.executable, "-c", f"{code}; app()", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_it_works_with_only_what_it_asks_for():
    finished = run("scale", "--n", "600", "--d", "64", "--json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["n"] == 600


def test_all_that_it_can_import_is_asked_for_by_it_or_an_extra():
    files = (ROOT / "attnlib").rglob("*.py")
    packages = set().union(*(imported(path.read_text("utf-8")) for path in files))
    assert {"numpy", "torch", "pandas"} <= packages
    assert packages <= asked_for(*EXTRAS)


def pins(path):
    lines = (ROOT / path).read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def test_binder_and_the_extra_for_chapters_have_what_chapters_import():
    books = [nbformat.read(path, as_version=4) for path in CHAPTERS.glob("*.ipynb")]
    code = (cell.source for book in books for cell in book.cells if cell.cell_type == "code")
    needed = set().union(*map(imported, code))
    assert {"numpy", "matplotlib", "torch"} <= needed
    assert needed <= asked_for("chapters") | {"mpmath"}  # which comes with SymPy
    binder = pins(".binder/pins.txt")
    assert binder.items() <= pins("requirements.txt").items()
    # Binder has a Jupyter of its own, and what the command line needs changes no number.
    computing = needed | asked_for("table", "torch")
    assert computing - {"ipython", "typer", "rich", "tqdm"} <= set(binder)
