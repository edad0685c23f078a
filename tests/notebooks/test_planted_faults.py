"""Faults of every kind, planted in copies of all chapters, are caught; what runs says where."""

import os
import subprocess
import sys
from copy import deepcopy
from itertools import count
from random import Random
from xml.etree import ElementTree

import nbformat
import pytest

from book.execute import run
from tests.books import CHAPTERS, ROOT
from tests.notebooks import rules
from tests.notebooks.checks import CHECKS, Book, cell_difference
from tests.notebooks.pages import book_pages
from tests.notebooks.planting import KINDS, code, metadata, outputs

WITHOUT_EXECUTION = [name for name, kind in KINDS.items() if kind.check in CHECKS]
BY_EXECUTION = [name for name, kind in KINDS.items() if kind.check == "execution"]
RUN = "entropy"
"""The chapter of which copies are run: a quick one with two glued values, tables and figures."""

IN_A_COPY = {
    "outputs": [
        outputs.changed_digit,
        outputs.swapped_glue,
        outputs.joined_lines,
        outputs.changed_verdict,
        outputs.changed_label,
        metadata.unexecuted_cell,
    ],
    "code": [code.changed_seed],
}


@pytest.fixture(scope="module")
def book():
    paths = sorted(CHAPTERS.glob("*.ipynb"))
    chapters = {path.stem: nbformat.read(path, as_version=4) for path in paths}
    return Book(chapters, book_pages())


def planted(book, name, draw):
    """Plant a fault in a copy of a chapter that has a place for it; return chapter and copy."""
    rng = Random(f"{name} {draw}")
    for chapter in rng.sample(sorted(book.chapters), len(book.chapters)):
        copy = deepcopy(book.chapters[chapter])
        fault = KINDS[name].plant(copy, rng)
        if fault is not None:
            assert copy != book.chapters[chapter]
            return chapter, copy, fault
    pytest.fail(f"no chapter has a place for {name}")


def assert_caught(book, name, draw):
    chapter, copy, fault = planted(book, name, draw)
    assert CHECKS[KINDS[name].check](book, chapter, copy), f"{chapter}: {fault}"


def test_at_least_forty_kinds_are_planted():
    assert len(KINDS) >= 40
    assert {kind.check for kind in KINDS.values()} == {*CHECKS, "execution"}


@pytest.mark.parametrize("check", CHECKS)
def test_a_committed_chapter_passes(book, check):
    for chapter, notebook in book.chapters.items():
        assert CHECKS[check](book, chapter, notebook) == []


@pytest.mark.parametrize("name", WITHOUT_EXECUTION)
def test_a_fault_is_caught(book, name):
    for draw in range(3):
        assert_caught(book, name, draw)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_EXECUTION)
def test_a_fault_is_caught_wherever_it_is(book, name):
    for draw in range(3, 30):
        assert_caught(book, name, draw)


@pytest.mark.slow
@pytest.mark.parametrize("draw", range(8))
@pytest.mark.parametrize("name", BY_EXECUTION)
def test_changed_code_is_caught_in_any_chapter(book, name, draw):
    chapter, copy, fault = planted(book, name, draw)
    committed = deepcopy(rules.code_cells(copy))
    error = run(copy, CHAPTERS)
    if error is None:
        pairs = zip(rules.code_cells(copy), committed, strict=True)
        found = [
            cell_difference(chapter, number, new.outputs, old.outputs)
            for number, (new, old) in enumerate(pairs)
        ]
        assert any(found), f"{chapter}: {fault}"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run two copies through the book's own test command; return their faults and failures."""
    folder = tmp_path_factory.mktemp("planted")
    faults = {}
    for name, plants in IN_A_COPY.items():
        notebook = nbformat.read(CHAPTERS / f"{RUN}.ipynb", as_version=4)
        faults[name] = {}
        for plant in plants:  # each in a cell of its own
            for seed in count(5):
                copy = deepcopy(notebook)
                fault = plant(copy, Random(seed))
                if fault.cell not in {other.cell for other in faults[name].values()}:
                    break
            notebook, faults[name][plant.__name__] = copy, fault
        nbformat.write(notebook, folder / f"{name}.ipynb")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", f"--rootdir={folder}"]
    options = ["-n", "2", "-p", "no:cacheprovider", "--color=no", f"--junitxml={report}"]
    result = subprocess.run(
        [*command, *options, *sorted(map(str, folder.glob("*.ipynb")))],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
    return faults, failures(report)


def environment():
    """Return the environment without what this run of pytest put there."""
    return {name: os.environ[name] for name in os.environ if not name.startswith("PYTEST_")}


def failures(report):
    """Return for each copy what failed: messages by the number of the cell."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        copy = found.setdefault(case.get("classname").removesuffix(".ipynb"), {})
        number = int(case.get("name").removeprefix("Cell "))
        for failure in case.iter("failure"):
            copy[number] = failure.text
        assert not list(case.iter("error")), ElementTree.tostring(case)
    return found


def numbers(faults):
    """Return the numbers of the cells with faults, counted as nbval counts them."""
    notebook = nbformat.read(CHAPTERS / f"{RUN}.ipynb", as_version=4)
    ids = [cell.id for cell in rules.code_cells(notebook)]
    return {name: ids.index(fault.cell) for name, fault in faults.items()}


def test_faults_in_outputs_fail_in_their_cells_only_and_say_what(executed):
    faults, failed = executed
    places = numbers(faults["outputs"])
    not_seen = places.pop("unexecuted_cell")
    assert len({*places.values(), not_seen}) == len(places) + 1
    assert failed["outputs"].keys() == set(places.values())
    for number, message in failed["outputs"].items():
        assert f"outputs.ipynb, Cell {number}, " in message
        assert "\n  old: " in message
        assert "\n  new: " in message
        assert len(message) < 3000


def test_changed_code_fails_and_what_stands_before_it_passes(executed):
    faults, failed = executed
    [number] = numbers(faults["code"]).values()
    assert min(failed["code"]) == number
