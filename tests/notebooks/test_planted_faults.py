"""Faults of every kind, planted in copies of all chapters, are caught; what runs says where.

A kind is drawn three times; with `-m slow`, thirty times and, where code must run, eight.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from copy import deepcopy
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import NamedTuple
from xml.etree import ElementTree

import nbformat
import pytest
from nbformat import NotebookNode

from book.execute import run
from tests.books import CHAPTERS, ROOT
from tests.notebooks import figures, numeric, pages, rules
from tests.notebooks.planting import KINDS

WITHOUT_EXECUTION = [name for name, kind in KINDS.items() if kind.check != "execution"]
BY_EXECUTION = [name for name, kind in KINDS.items() if kind.check == "execution"]
RUN = "entropy"
"""The chapter of which copies are run: a quick one with two glued values, tables and figures."""

IN_A_COPY = {
    "outputs": ["changed_digit", "swapped_glue", "changed_verdict", "changed_label"],
    "code": ["changed_seed"],
}


class Book(NamedTuple):
    """The committed chapters and pages, in which a copy takes the place of one chapter."""

    chapters: Mapping[str, NotebookNode]
    pages: Mapping[str, pages.Page]


@pytest.fixture(scope="module")
def book():
    paths = sorted(CHAPTERS.glob("*.ipynb"))
    chapters = {path.stem: nbformat.read(path, as_version=4) for path in paths}
    return Book(chapters, pages.book_pages())


def comparison(book, chapter, copy):
    """Compare a copy with what a run of its code gives: the committed outputs of equal cells."""
    cells = rules.code_cells(book.chapters[chapter])
    committed = {cell.id: cell.outputs for cell in cells}
    return [
        line
        for number, cell in enumerate(rules.code_cells(copy))
        for line in cell_difference(chapter, number, committed[cell.id], cell.outputs)
    ]


def cell_difference(chapter, number, fresh, committed):
    """Call the comparison that nbval calls; return what it reports."""
    path, config = CHAPTERS / f"{chapter}.ipynb", SimpleNamespace(rootpath=ROOT)
    item = SimpleNamespace(path=path, config=config, cell_num=number)
    same = numeric.compare_outputs(item, fresh, committed)
    return [] if same else item.comparison_traceback


CHECKS = {
    "comparison": comparison,
    "rules": lambda book, chapter, copy: rules.violations(copy, rules.allowed_tags(chapter)),
    "figures": lambda book, chapter, copy: figures.violations(copy),
    "pages": lambda book, chapter, copy: pages.violations(
        {**book.pages, f"chapters/{chapter}": pages.page(copy)}
    ),
}


def planted(book, name, draw):
    """Plant a fault in a copy of a chapter that has a place for it; return chapter and copy."""
    rng = Random(f"{name} {draw}")
    for chapter in rng.sample(sorted(book.chapters), len(book.chapters)):
        copy = deepcopy(book.chapters[chapter])
        try:
            cell = KINDS[name].plant(copy, rng)
        except (IndexError, ValueError):  # nothing to choose from
            continue
        if copy != book.chapters[chapter]:
            return chapter, copy, cell
    return pytest.fail(f"no chapter has a place for {name}")


def missed(book, name, draws):
    """Return where a fault of this kind is planted and not caught."""
    found = (planted(book, name, draw) for draw in draws)
    check = CHECKS[KINDS[name].check]
    return [f"{chapter}, {cell}" for chapter, copy, cell in found if not check(book, chapter, copy)]


@pytest.mark.parametrize("check", CHECKS)
def test_a_committed_chapter_passes(book, check):
    for chapter, notebook in book.chapters.items():
        assert CHECKS[check](book, chapter, notebook) == []


@pytest.mark.parametrize("name", WITHOUT_EXECUTION)
def test_a_fault_is_caught(book, name):
    assert not missed(book, name, range(3))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_EXECUTION)
def test_a_fault_is_caught_wherever_it_is(book, name):
    assert not missed(book, name, range(3, 30))


@pytest.mark.slow
@pytest.mark.parametrize("draw", range(8))
@pytest.mark.parametrize("name", BY_EXECUTION)
def test_changed_code_is_caught_in_any_chapter(book, name, draw):
    chapter, copy, cell = planted(book, name, draw)
    committed = deepcopy(rules.code_cells(copy))
    if run(copy, CHAPTERS) is None:
        pairs = zip(rules.code_cells(copy), committed, strict=True)
        assert any(
            cell_difference(chapter, number, new.outputs, old.outputs)
            for number, (new, old) in enumerate(pairs)
        ), f"{chapter}, {cell}"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run two copies through the book's own test command; return the cells with faults, failures.

    Cells are counted as nbval counts them; failures are messages by the number of the cell.
    """
    folder = tmp_path_factory.mktemp("planted")
    original = nbformat.read(CHAPTERS / f"{RUN}.ipynb", as_version=4)
    ids = [cell.id for cell in rules.code_cells(original)]
    faults = {}
    for name, kinds in IN_A_COPY.items():
        notebook, faults[name] = original, set()
        for kind in kinds:  # each in a cell of its own
            for seed in count(5):
                copy = deepcopy(notebook)
                cell = ids.index(KINDS[kind].plant(copy, Random(seed)))
                if cell not in faults[name]:
                    break
            notebook = copy
            faults[name].add(cell)
        nbformat.write(notebook, folder / f"{name}.ipynb")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", f"--rootdir={folder}"]
    options = ["-n", "2", "-p", "no:cacheprovider", "--color=no", f"--junitxml={report}"]
    result = subprocess.run(
        [*command, *options, *sorted(map(str, folder.glob("*.ipynb")))],
        cwd=ROOT,
        env={name: os.environ[name] for name in os.environ if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
    failed = {name: {} for name in IN_A_COPY}
    for case in ElementTree.parse(report).iter("testcase"):
        number = int(case.get("name").removeprefix("Cell "))
        for failure in case.iter("failure"):
            failed[case.get("classname").removesuffix(".ipynb")][number] = failure.text
    return faults, failed


def test_faults_in_outputs_fail_in_their_cells_only_and_say_what(executed):
    faults, failed = executed
    assert failed["outputs"].keys() == faults["outputs"]
    for number, message in failed["outputs"].items():
        assert f"outputs.ipynb, Cell {number}, " in message
        assert "\n  old: " in message
        assert "\n  new: " in message
        assert len(message) < 3000


def test_changed_code_fails_and_what_stands_before_it_passes(executed):
    faults, failed = executed
    assert [min(failed["code"])] == list(faults["code"])
