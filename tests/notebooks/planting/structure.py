"""Faults in the order and the number of cells."""

from copy import deepcopy
from random import Random

from nbformat import NotebookNode
from nbformat.v4 import new_raw_cell

from tests.notebooks.planting.faults import Fault, caught_by, drawn
from tests.notebooks.rules import code_cells


@caught_by("rules")
def swapped_cells(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange two code cells."""
    places = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    one, other = rng.sample(places, 2)
    cells = notebook.cells
    cells[one], cells[other] = cells[other], cells[one]
    return Fault(cells[one].id, cells[one].id, cells[other].id)


@caught_by("rules")
def missing_cell(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove a code cell that is not the last."""
    cell = drawn(rng, code_cells(notebook)[:-1])
    if cell is None:
        return None
    notebook.cells.remove(cell)
    return Fault(cell.id, "(nothing)", cell.source)


@caught_by("rules")
def repeated_code_cell(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Paste a code cell twice."""
    return pasted(notebook, rng, "code")


@caught_by("pages")
def repeated_text_cell(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Paste a Markdown cell of more than a few words twice."""
    return pasted(notebook, rng, "markdown")


def pasted(notebook: NotebookNode, rng: Random, cell_type: str) -> Fault | None:
    """Paste a cell twice, under an id of its own."""
    cells = [
        (place, cell)
        for place, cell in enumerate(notebook.cells)
        if cell.cell_type == cell_type and len(cell.source) > 99
    ]
    chosen = drawn(rng, cells)
    if chosen is None:
        return None
    place, cell = chosen
    copy = deepcopy(cell)
    copy.id = f"{cell.id}-2"
    notebook.cells.insert(place, copy)
    return Fault(cell.id, copy.id, "(nothing)")


@caught_by("rules")
def raw_cell(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Make a cell raw: neither run nor shown."""
    place = rng.randrange(1, len(notebook.cells))
    cell = notebook.cells[place]
    notebook.cells[place] = new_raw_cell(cell.source, id=cell.id)
    return Fault(cell.id, "raw", cell.cell_type)
