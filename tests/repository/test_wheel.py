"""The wheel: attnlib, without the book, in an environment that has only what it asks for."""

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import attnlib
from tests.paths import ROOT
from tests.repository.packages import EXTRAS, PROJECT, asked_for, imported


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


def closure(requirements):
    """Return the distributions that these requirements bring, with all that they bring in turn."""
    found, waiting = set(), [Requirement(line) for line in requirements]
    while waiting:
        one = waiting.pop()
        if canonicalize_name(one.name) in found or (one.marker and not one.marker.evaluate()):
            continue
        found.add(canonicalize_name(one.name))
        waiting += map(Requirement, distribution(one.name).requires or [])
    return found


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """Return a folder with what `pip install` of the wheel would bring, linked from here."""
    folder = tmp_path_factory.mktemp("clean")
    for name in closure(PROJECT["dependencies"]):
        for file in distribution(name).files:
            top = file.parts[0]
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(distribution(name).locate_file(top))
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def run(folder, *arguments):
    """Run Python, somewhere else, with nothing but its standard library and the folder."""
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        f"sys.argv = {['attnlib', *arguments]!r}\n"
        "import attnlib; assert attnlib.__file__.startswith(sys.path[0])\n"
        "from attnlib.cli import app; app()"
    )
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        env=environment,
        cwd=folder.parent,
        capture_output=True,
        text=True,
    )


def test_it_works_with_only_what_it_asks_for(clean):
    assert not (clean / "torch").exists()
    finished = run(clean, "scale", "--n", "600", "--d", "64", "--json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["n"] == 600


def test_what_is_missing_is_named_in_a_line_with_the_extra_that_brings_it(clean):
    finished = run(clean, "probe", "gpt2", "--text", "text")
    assert finished.returncode == 1
    named = r'Error: torch is missing; pip install "attnlib\[probe\]".*\n'
    assert re.fullmatch(named, finished.stderr), finished.stderr


def test_all_that_it_can_import_is_asked_for_by_it_or_an_extra():
    files = (ROOT / "attnlib").rglob("*.py")
    found = set().union(*(imported(path.read_text("utf-8")) for path in files))
    assert {"numpy", "torch", "pandas"} <= found
    assert found <= asked_for(*EXTRAS)
