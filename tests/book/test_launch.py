"""Running a chapter elsewhere: the cell that installs, and what Binder installs.

That the buttons are there, tests/site/test_published.py shows.
"""

import os
import subprocess
import sys

import nbformat
import pytest

from book import launch
from tests.books import CHAPTERS, ROOT
from tests.repository.packages import PROJECT, asked_for, imported

HERE = launch.Source("https://github.com/owner/name", "launch")
SAID = {"BOOK_REPOSITORY": HERE.repository, "BOOK_RELEASE": HERE.release}


@pytest.mark.parametrize("address", ["owner/name", "http://github.com/a/b", "https://github.com/a"])
def test_an_address_that_no_button_can_be_made_of_is_refused(address):
    with pytest.raises(ValueError, match="BOOK_REPOSITORY"):
        launch.source({"BOOK_REPOSITORY": address})


def test_the_cell_is_the_first_after_the_title_and_nothing_else_changes(tmp_path, monkeypatch):
    path = tmp_path / "jacobian.ipynb"
    before = (CHAPTERS / path.name).read_bytes()
    path.write_bytes(before)
    monkeypatch.setattr(launch, "CHAPTERS", tmp_path)
    monkeypatch.setattr(os, "environ", {})
    with pytest.raises(SystemExit, match="BOOK_REPOSITORY is not set"):
        launch.main()
    assert path.read_bytes() == before
    for environment in ({**SAID, "BOOK_RELEASE": "v1.0.0"}, SAID):  # the second time it is renewed
        monkeypatch.setattr(os, "environ", environment)
        launch.main()
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cell = notebook.cells.pop(1)
    assert (cell.id, cell.metadata.tags) == ("install", ["remove-cell"])
    assert HERE.release in cell.source
    assert (nbformat.writes(notebook) + "\n").encode() == before


def run_cell(folder, found, before="", asked="os.getcwd()"):
    """Run the cell in a Python of its own; return the folder in which it ends, or what is asked."""
    code = f"{before}\n{launch.CELL.format(**found._asdict())}\nprint({asked})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


WITHOUT_ATTNLIB = """
import importlib.util, subprocess, sys
importlib.util.find_spec = lambda name: None
really = subprocess.run
def run(command, check):
    return really(command if command[0] == "git" else ["true"], check=check)
subprocess.run = run
"""
"""pip would want a network; what it is asked for, test_the_wheel… and the workflows install."""


def test_the_cell_fetches_the_release_where_attnlib_is_missing_and_nothing_where_it_is(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    assert run_cell(here, HERE) == str(here)
    assert list(here.iterdir()) == []
    repository = tmp_path / "origin"
    for package in ("attnlib", "book"):
        (repository / package).mkdir(parents=True)
        (repository / package / "__init__.py").write_text("")
    git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@b.c"]
    for command in (["init", "-q", "-b", "launch"], ["add", "."], ["commit", "-q", "-m", "One"]):
        subprocess.run([*git, *command], check=True)
    found = launch.Source(repository.as_uri(), "launch")
    for _ in range(2):  # the second time, what was fetched is there
        # What is installed lies elsewhere, without the book and the records that chapters read.
        where = run_cell(here, found, WITHOUT_ATTNLIB, "__import__('book').__file__")
        assert where == str(here / "the-scale-of-attention" / "book" / "__init__.py")


# --- what is installed ---------------------------------------------------------------------------


def imported_by_the_chapters():
    found = set()
    for path in CHAPTERS.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                found |= imported(cell.source)
    return found


def pins(path):
    lines = (ROOT / path).read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def test_binder_and_the_extra_for_chapters_have_what_chapters_import():
    needed = imported_by_the_chapters()
    assert {"numpy", "matplotlib", "torch", "sympy"} <= needed
    assert needed <= asked_for("chapters") | {"mpmath"}  # which comes with SymPy
    binder = pins(".binder/pins.txt")
    assert binder.items() <= pins("requirements.txt").items()
    # Binder has a Jupyter of its own, and what the command line needs changes no number.
    computing = needed | asked_for("table", "torch")
    assert computing - {"ipython", "typer", "rich", "tqdm"} <= set(binder)
    lines = (ROOT / ".binder" / "pins.txt").read_text("utf-8").splitlines()
    assert "-e .[chapters]" in lines
    version = (ROOT / ".binder" / "runtime.txt").read_text("utf-8").removeprefix("python-").strip()
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
