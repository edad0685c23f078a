"""Faults of every kind, planted in copies of the chapters, are caught; what runs says where."""

import os
import subprocess
import sys
from copy import deepcopy
from functools import cache, partial
from random import Random
from xml.etree import ElementTree

import nbformat
import pytest

from tests.books import CHAPTERS, ROOT
from tests.nbval_compare import contents, first_difference
from tests.notebooks import pages
from tests.notebooks.planting import MARKDOWN, OUTPUTS

pytestmark = pytest.mark.slow

PRINTS = {"print(12.5)": "12.5", "print('a word')": "a word", "print(2 * '|')": "||"}
"""The cells that are run, and what each prints."""


@cache
def book():
    paths = sorted(CHAPTERS.glob("*.ipynb"))
    return {path.stem: nbformat.read(path, as_version=4) for path in paths}


@cache
def book_pages():
    return pages.book_pages()


def planted(kind, draw):
    """Plant a fault in a copy of a chapter that has a place for it; return all three."""
    rng = Random(f"{kind.pattern} {draw}")
    for chapter in rng.sample(sorted(book()), len(book())):
        copy = deepcopy(book()[chapter])
        try:
            return chapter, copy, kind.plant(copy, rng)
        except IndexError:
            continue
    return pytest.fail("no chapter has a place for it")


@pytest.mark.parametrize("name", MARKDOWN)
def test_a_fault_in_the_text_is_caught(name):
    for draw in range(3):
        chapter, copy, cell = planted(MARKDOWN[name], draw)
        changed = {**book_pages(), f"chapters/{chapter}": pages.page(copy)}
        assert pages.violations(changed), (chapter, cell.id)


def test_a_value_that_is_glued_is_used():
    assert list(pages.page_violations(pages.Page(["# Title"], [], ["x"], set())))


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_fault_in_the_outputs_is_caught(name):
    for draw in range(3):
        chapter, _, cell = planted(OUTPUTS[name], draw)
        [before] = [one for one in book()[chapter].cells if one.id == cell.id]
        difference = first_difference(contents(before.outputs), contents(cell.outputs))
        assert difference, (chapter, cell.id)


def test_a_run_fails_in_the_cells_with_faults_only_and_says_what(tmp_path):
    cell = partial(nbformat.v4.new_code_cell, execution_count=1)
    stream = partial(nbformat.v4.new_output, "stream")
    written = [cell(code, outputs=[stream(text=f"{text}\n")]) for code, text in PRINTS.items()]
    copy = nbformat.v4.new_notebook(cells=written)
    faults = {
        written.index(OUTPUTS[name].plant(copy, Random(0)))
        for name in ("changed_digit", "changed_word")
    }
    nbformat.write(copy, tmp_path / "copy.ipynb")
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", f"--rootdir={tmp_path}"]
    options = ["--nbval", "-n", "0", "-p", "no:cacheprovider", "--color=no", f"--junitxml={report}"]
    result = subprocess.run(
        [*command, *options, tmp_path / "copy.ipynb"],
        cwd=ROOT,
        env={name: os.environ[name] for name in os.environ if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
    failed = {
        int(case.get("name").removeprefix("Cell ")): failure.text
        for case in ElementTree.parse(report).iter("testcase")
        for failure in case.iter("failure")
    }
    assert failed.keys() == faults
    for number, message in failed.items():
        assert f"copy.ipynb, Cell {number}, " in message
        assert "\n  old: " in message
        assert "\n  new: " in message
        assert len(message) < 3000
