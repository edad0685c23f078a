"""What a committed chapter must be, beyond what nbval sees: it passes a cell that never ran.

Nothing may hide an output from the page, or a cell from the checks, and a glued number is printed,
for nbval to compare. A cell may fold its code away (`hide-input`), and one that only glues and
prints numbers may be removed (`remove-cell`).
"""

import re

import nbformat
import pytest

from tests.paths import CHAPTERS

NAMES = sorted(path.stem for path in CHAPTERS.glob("*.ipynb"))
GLUED = "application/papermill.record/text/plain"
SWITCHED_OFF = re.compile(r"^\s*#+\s*(NBVAL_|PYTEST_VALIDATE_)", re.MULTILINE)

METADATA = {"markdown": {"states"}, "code": {"states", "tags", "mystnb"}}
MYSTNB = {"figure", "image"}
TAGS = {"hide-input", "remove-cell"}
"""Other metadata and tags hide a cell, or what it shows, from the page or from nbval."""


def printed(cell):
    """Return the lines that a code cell prints."""
    return "".join(output.get("text", "") for output in cell.outputs).splitlines()


@pytest.fixture(params=NAMES)
def notebook(request):
    return nbformat.read(CHAPTERS / f"{request.param}.ipynb", as_version=4)


@pytest.fixture
def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_every_cell_ran_in_order_without_an_error(code):
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        for output in cell.outputs:
            assert output.output_type != "error", cell.id
            assert output.get("name") != "stderr", cell.id


def test_nothing_hides_a_cell_or_switches_a_check_off(notebook):
    for cell in notebook.cells:
        assert cell.metadata.keys() <= METADATA[cell.cell_type], cell.id
        assert set(cell.metadata.get("tags", [])) <= TAGS, cell.id
        assert cell.metadata.get("mystnb", {}).keys() <= MYSTNB, cell.id
        assert not SWITCHED_OFF.search(cell.source), cell.id


def test_what_is_glued_is_printed_and_a_removed_cell_displays_no_more(code):
    for cell in code:
        glued = [output for output in cell.outputs if GLUED in output.get("data", {})]
        for output in glued:
            name, value = output.metadata.scrapbook.name, output.data[GLUED].strip("'")
            assert f"{name} = {value}" in printed(cell), cell.id
        if "remove-cell" in cell.metadata.get("tags", []):
            displayed = [output for output in cell.outputs if output.output_type != "stream"]
            assert displayed == glued, cell.id


def test_the_opening_states_what_the_chapter_prints(notebook, code):
    """Its metadata have, under "states", each number by the name under which a cell prints it."""
    opening = notebook.cells[0]
    lines = [line for cell in code for line in printed(cell)]
    for name, stated in opening.metadata.get("states", {}).items():
        assert stated in opening.source, name
        assert f"{name} = {stated}" in lines
