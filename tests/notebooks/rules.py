"""What a committed chapter must be, beyond what nbval sees: it passes a cell that never ran.

`python -m tests.notebooks.rules FILE...` prints what is wrong in each.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from nbformat.validator import iter_validate

LONGEST_CELL = 20
FORBIDDEN_TAG = re.compile(r"nbval-|raises-exception$|skip-execution$")
FORBIDDEN_COMMENT = re.compile(r"^\s*#+\s*(NBVAL_|PYTEST_VALIDATE_)", re.MULTILINE)
TIMESTAMPS = {"execution", "ExecuteTime", "papermill"}
BITMAPS = {"image/png", "image/jpeg", "image/gif"}
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")


def violations(notebook: NotebookNode) -> list[str]:
    """Return what is wrong, each named by its cell, numbered among the code cells as nbval does."""
    invalid = [f"not a valid notebook: {error.message}" for error in iter_validate(notebook)]
    if invalid:
        return invalid
    found = list(repeated_ids(notebook))
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for index, cell in enumerate(code_cells):
        messages = [*source_violations(cell), *output_violations(cell)]
        if cell.execution_count != index + 1:
            messages.append(f"execution count {cell.execution_count}, not {index + 1}")
        found += [f"Cell {index}: {message}" for message in messages]
    return found


def repeated_ids(notebook: NotebookNode) -> Iterator[str]:
    """Report ids that several cells share."""
    for identifier, count in Counter(cell.get("id") for cell in notebook.cells).items():
        if count > 1:
            yield f"{count} cells have the id {identifier!r}"


def source_violations(cell: NotebookNode) -> Iterator[str]:
    """Report what must not be in the code or in the metadata of a cell."""
    source = cell.source.strip()
    if not source:
        yield "no code"
    if TransformerManager().transform_cell(source).strip() != source:
        yield "a magic, a shell line or a call for help, which is not Python"
    if len(source.splitlines()) > LONGEST_CELL:
        yield f"longer than {LONGEST_CELL} lines"
    if FORBIDDEN_COMMENT.search(source):
        yield "a comment that switches a check off"
    if any(FORBIDDEN_TAG.match(tag) for tag in cell.metadata.get("tags", [])):
        yield "a tag that switches a check off"
    if TIMESTAMPS & cell.metadata.keys():
        yield "times of execution in the metadata"


def output_violations(cell: NotebookNode) -> Iterator[str]:
    """Report what must not be among the outputs of a cell."""
    for output in cell.outputs:
        if output.output_type == "error":
            yield f"an error: {output.ename}"
            continue
        if output.get("name") == "stderr":
            yield "output on stderr"
        shown = output.get("data", {"text": output.get("text")})
        if not all(shown.values()) or not shown:
            yield "an empty output"
        if BITMAPS & shown.keys():
            yield "a bitmap; figures are SVG"
        if any(ADDRESS.search(str(content)) for content in shown.values()):
            yield "a memory address"


if __name__ == "__main__":
    found = [
        f"{path}: {violation}"
        for path in sys.argv[1:]
        for violation in violations(nbformat.read(path, as_version=nbformat.NO_CONVERT))
    ]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
