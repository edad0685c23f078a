"""Faults in code: it runs, or not, and its outputs are not the committed ones."""

import ast
import re
from random import Random

from nbformat import NotebookNode

from tests.notebooks.planting.faults import Fault, Place, caught_by, replaced, shown
from tests.notebooks.planting.outputs import PRINTED, SVG
from tests.notebooks.rules import code_cells

SEED = re.compile(r"(?<=default_rng\()\d+(?=\))")
COUNT = re.compile(r"(?<![\w.\"'])\d[\d_]{2,}(?![\w.\"'])")
OPERATOR = re.compile(r"(?<= )[-+*/](?= )")
OTHER_OPERATOR = {"+": "-", "-": "+", "*": "/", "/": "*"}


def sources(notebook: NotebookNode) -> list[Place]:
    """Return the code of the cells."""
    return [Place(cell, cell, "source") for cell in code_cells(notebook)]


@caught_by("execution")
def changed_seed(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Draw other random numbers, where they show: beside a standard error, or as points."""
    measured = {place.cell.id for place in shown(notebook, *PRINTED) if "±" in place.text}
    measured |= {place.cell.id for place in shown(notebook, SVG)}
    places = [place for place in sources(notebook) if place.cell.id in measured]
    return replaced(rng, places, SEED, lambda match: str(int(match[0]) + 1))


@caught_by("execution")
def changed_count(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Halve a number of keys, rows or dimensions."""
    return replaced(rng, sources(notebook), COUNT, lambda match: str(int(match[0]) // 2))


@caught_by("execution")
def changed_operator(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Add where the right code subtracts, or divide where it multiplies."""
    return replaced(rng, sources(notebook), OPERATOR, lambda match: OTHER_OPERATOR[match[0]])


@caught_by("execution")
def lost_assignment(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove a line that gives a name its value."""
    lines = [
        line
        for place in sources(notebook)
        for node in ast.parse(place.text).body
        if isinstance(node, ast.Assign) and node.lineno == node.end_lineno
        for line in place.text.splitlines()[node.lineno - 1 : node.lineno]
    ]
    if not lines:
        return None
    line = rng.choice(lines)
    pattern = re.compile(rf"^{re.escape(line)}\n", re.MULTILINE)
    return replaced(rng, sources(notebook), pattern, lambda _: "")
