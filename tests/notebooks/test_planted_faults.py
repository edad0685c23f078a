"""The re-execution of a chapter catches what it should, and says where."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest

from tests.notebooks import planting
from tests.notebooks.rules import violations

ROOT = Path(__file__).parents[2]
CHAPTER = ROOT / "chapters" / "jacobian.ipynb"
CAUGHT_BY_EXECUTION = [
    planting.changed_number,
    planting.changed_word,
    planting.missing_output,
    planting.extra_output,
    planting.changed_curve,
]


def copy_with(plant, folder):
    """Write a copy of the chapter, named for the fault that `plant` leaves in it."""
    notebook = nbformat.read(CHAPTER, as_version=4)
    fault = plant(notebook)
    nbformat.write(notebook, folder / f"{plant.__name__}.ipynb")
    return fault


def unchanged(notebook):
    return None


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run a copy for each fault through the book's own test command; return faults, failures."""
    folder = tmp_path_factory.mktemp("planted")
    plants = [*CAUGHT_BY_EXECUTION, planting.unexecuted_cell, unchanged]
    faults = {plant.__name__: copy_with(plant, folder) for plant in plants}
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
    """Return for each copy what failed: pairs of a cell and its message."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        copy = found.setdefault(case.get("classname").removesuffix(".ipynb"), [])
        copy += [(case.get("name"), failure.text) for failure in case.iter("failure")]
        assert not list(case.iter("error")), ElementTree.tostring(case)
    return found


@pytest.mark.parametrize("plant", CAUGHT_BY_EXECUTION, ids=lambda plant: plant.__name__)
def test_fault_fails_in_its_cell_only_and_says_what(executed, plant):
    faults, failed = executed
    fault = faults[plant.__name__]
    [(cell, message)] = failed[plant.__name__]
    assert cell == f"Cell {fault.cell}"
    assert f"{plant.__name__}.ipynb, {cell}, " in message
    assert f"old: {fault.planted}" in message
    assert f"new: {fault.right}" in message
    assert len(message) < 3000


def test_unchanged_copy_passes(executed):
    _, failed = executed
    assert failed["unchanged"] == []


def test_unexecuted_cell_passes_execution_and_fails_the_rules(executed):
    _, failed = executed
    assert failed["unexecuted_cell"] == []
    notebook = nbformat.read(CHAPTER, as_version=4)
    fault = planting.unexecuted_cell(notebook)
    assert f"Cell {fault.cell}: {fault.planted}, not {fault.cell + 1}" in violations(notebook)
