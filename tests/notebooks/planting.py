"""Faults planted in a copy of a chapter, to see whether they are caught.

Each function changes a notebook and returns the fault: the index of its code cell, the committed
text and the text of a fresh run.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nbformat import NotebookNode
from nbformat.v4 import new_output

FLOAT = re.compile(r"(?<![\w.])[0-9]+\.[0-9]+(?![\w.])")
WORD = re.compile(r"\b[A-Za-z]{4,}\b")
CURVE = re.compile(r'<path d="([^"]*)"[^>]*clip-path=')
Y_COORDINATE = re.compile(r"(?<= )[0-9]+\.[0-9]+(?= \n)")


class Fault(NamedTuple):
    """Where a fault was planted, what the copy says and what is right."""

    cell: int
    planted: str
    right: str


def changed_number(notebook: NotebookNode) -> Fault:
    """Change the first float that is printed by one part in ten thousand."""

    def change(match: re.Match[str]) -> str:
        return f"{float(match[0]) * 1.0001:.9g}"

    return changed_text(notebook, FLOAT, change)


def changed_word(notebook: NotebookNode) -> Fault:
    """Change the first word that is printed."""
    return changed_text(notebook, WORD, lambda match: match[0][::-1] + "x")


def changed_text(
    notebook: NotebookNode, pattern: re.Pattern[str], change: Callable[[re.Match[str]], str]
) -> Fault:
    """Change the first match of `pattern` that is not zero in what the notebook prints."""
    for cell, output in outputs(notebook):
        text = output.get("text", "")
        for match in pattern.finditer(text):
            if match[0].strip("0."):
                planted = change(match)
                output.text = text[: match.start()] + planted + text[match.end() :]
                return Fault(cell, planted, match[0])
    raise ValueError(f"the notebook prints nothing that matches {pattern.pattern}")


def missing_output(notebook: NotebookNode) -> Fault:
    """Remove the first output."""
    cell, output = next(outputs(notebook))
    code_cells(notebook)[cell].outputs.remove(output)
    return Fault(cell, "(nothing)", output.get("name") or min(output.data))


def extra_output(notebook: NotebookNode) -> Fault:
    """Add an output to the first cell."""
    output = new_output("display_data", data={"text/plain": "an output too many"})
    code_cells(notebook)[0].outputs.append(output)
    return Fault(0, "text/plain: an output too many", "(nothing)")


def changed_curve(notebook: NotebookNode) -> Fault:
    """Move the first points of the longest curve of the first figure by a pixel."""
    for cell, output in outputs(notebook):
        curves = CURVE.findall(output.get("data", {}).get("image/svg+xml", ""))
        if not curves:
            continue
        curve = max(curves, key=len)
        moved = Y_COORDINATE.sub(lambda match: f"{float(match[0]) + 1:f}", curve, count=3)
        output.data["image/svg+xml"] = output.data["image/svg+xml"].replace(curve, moved, 1)
        return Fault(cell, *(Y_COORDINATE.findall(path)[0] for path in (moved, curve)))
    raise ValueError("the notebook draws no curve")


def unexecuted_cell(notebook: NotebookNode) -> Fault:
    """Clear the first cell that has outputs, as Jupyter does."""
    cell, _ = next(outputs(notebook))
    code_cells(notebook)[cell].update(execution_count=None, outputs=[])
    return Fault(cell, "execution count None", "")


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that nbval counts."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """Return the outputs, each with the index of its code cell."""
    for index, cell in enumerate(code_cells(notebook)):
        for output in cell.outputs:
            yield index, output
