"""What a committed chapter must be, beyond what nbval sees: it passes a cell that never ran.

Nothing may hide an output from the page, or a cell from the checks. A cell may fold its code away
(`hide-input`), and one that only glues and prints numbers may be removed (`remove-cell`).

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
GLUED = "application/papermill.record/text/plain"
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")

METADATA: dict[str, set[str]] = {
    "markdown": {"states"},
    "code": {"states", "tags", "mystnb"},
}
"""What the metadata of a cell may have. Others, such as Jupyter's `source_hidden`, hide cells."""

FIGURE_METADATA = {"figure": {"caption", "name"}, "image": {"alt"}}
"""What `mystnb` may have. Its other fields remove code and outputs from the page."""

NOTEBOOK_METADATA = {"kernelspec", "language_info"}
TAGS = {"hide-input", "remove-cell"}


def violations(notebook: NotebookNode) -> list[str]:
    """Return what is wrong, each named by its cell, numbered among the code cells as nbval does."""
    invalid = [f"not a valid notebook: {error.message}" for error in iter_validate(notebook)]
    if invalid:
        return invalid
    found = [
        *repeated_ids(notebook),
        *metadata_violations(notebook),
        *opening_violations(notebook),
        *figure_violations(notebook),
    ]
    for index, cell in enumerate(code_cells(notebook)):
        messages = [*source_violations(cell), *output_violations(cell), *glue_violations(cell)]
        if cell.execution_count != index + 1:
            messages.append(f"execution count {cell.execution_count}, not {index + 1}")
        found += [f"Cell {index}: {message}" for message in messages]
    return found


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that nbval runs and counts."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def repeated_ids(notebook: NotebookNode) -> Iterator[str]:
    """Report ids that several cells share."""
    for identifier, count in Counter(cell.get("id") for cell in notebook.cells).items():
        if count > 1:
            yield f"{count} cells have the id {identifier!r}"


def metadata_violations(notebook: NotebookNode) -> Iterator[str]:
    """Report tags that are not in TAGS, and other ways to hide a cell."""
    unknown = notebook.metadata.keys() - NOTEBOOK_METADATA
    if unknown:
        yield f"the notebook has the metadata {sorted(unknown)}"
    for cell in notebook.cells:
        other = set(cell.metadata.get("tags", [])) - TAGS
        if other:
            yield f"the cell {cell.id!r} has the tags {sorted(other)}; there are {sorted(TAGS)}"
        if cell.cell_type not in METADATA:
            yield f"the cell {cell.id!r} is of type {cell.cell_type}"
            continue
        unknown = cell.metadata.keys() - METADATA[cell.cell_type]
        for field, content in cell.metadata.get("mystnb", {}).items():
            known = isinstance(content, dict) and content.keys() <= FIGURE_METADATA.get(
                field, set()
            )
            if not known:
                unknown.add(f"mystnb.{field}")
        if unknown:
            yield f"the cell {cell.id!r} has the metadata {sorted(unknown)}"


def opening_violations(notebook: NotebookNode) -> Iterator[str]:
    """Report what plain Jupyter would not show in the first cell, and numbers that are not printed.

    Its metadata have, under "states", each number as it stands there by the name under which a code
    cell glues it, and so prints it.
    """
    opening = notebook.cells[0]
    if "{glue:" in opening.source:
        yield "the opening has a glue role, which plain Jupyter shows raw"
    printed = "\n".join(
        output.get("text", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ).splitlines()
    for name, stated in opening.metadata.get("states", {}).items():
        if stated not in opening.source:
            yield f"the opening does not state {name} = {stated}"
        if f"{name} = {stated}" not in printed:
            now = [line for line in printed if line.startswith(f"{name} = ")]
            yield f"the opening states {name} = {stated}; printed is {now or 'nothing'}"


def figure_violations(notebook: NotebookNode) -> Iterator[str]:
    """Report figures without a name, a caption and an alternative text of their own."""
    for cell in notebook.cells:
        drawn = [one for one in cell.get("outputs", []) if "image/svg+xml" in one.get("data", {})]
        if not drawn and "mystnb" not in cell.metadata:
            continue
        settings = cell.metadata.get("mystnb", {})
        texts = {**settings.get("figure", {}), **settings.get("image", {})}
        lacking = [key for key in ("name", "caption", "alt") if not texts.get(key, "").strip()]
        if len(drawn) != 1 or lacking or texts["alt"] == texts["caption"]:
            yield f"the cell {cell.id!r} draws {len(drawn)} figures, without {lacking}"


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


def glue_violations(cell: NotebookNode) -> Iterator[str]:
    """Report a glued value that the cell does not print, and what else a removed cell displays."""
    values = glued(cell)
    printed = "".join(output.get("text", "") for output in cell.outputs).splitlines()
    for name, value in values:
        if f"{name} = {value}" not in printed:
            yield f"it glues and does not print {name} = {value}"
    displayed = [output for output in cell.outputs if output.output_type != "stream"]
    if "remove-cell" in cell.metadata.get("tags", []) and len(displayed) > len(values):
        yield "it is removed from the page and displays more than what it glues"


def glued(cell: NotebookNode) -> list[tuple[str, str]]:
    """Return the names and values that a code cell glues, as a page will find them."""
    return [
        (output.metadata.scrapbook.name, output.data[GLUED].strip("'"))
        for output in cell.outputs
        if GLUED in output.get("data", {}) and "scrapbook" in output.metadata
    ]


if __name__ == "__main__":
    found = [
        f"{path}: {violation}"
        for path in sys.argv[1:]
        for violation in violations(nbformat.read(path, as_version=nbformat.NO_CONVERT))
    ]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
