"""Faults in metadata: a cell is hidden from the page or a check, a figure parted from its words."""

from random import Random

from nbformat import NotebookNode
from nbformat.v4 import new_output

from tests.notebooks.planting.faults import (
    Fault,
    caught_by,
    drawn,
    exchanged,
    figure_texts,
)
from tests.notebooks.rules import code_cells


def tagged(notebook: NotebookNode, rng: Random, tag: str) -> Fault | None:
    """Give a cell a tag."""
    cells = [cell for cell in code_cells(notebook) if tag not in cell.metadata.get("tags", [])]
    cell = drawn(rng, cells)
    if cell is None:
        return None
    tags = cell.metadata.get("tags", [])
    cell.metadata["tags"] = [*tags, tag]
    return Fault(cell.id, tag, str(tags))


@caught_by("rules")
def hidden_output(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove what a cell shows from the page."""
    return tagged(notebook, rng, "remove-output")


@caught_by("rules")
def hidden_cell(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove a cell from the page."""
    return tagged(notebook, rng, "remove-cell")


@caught_by("rules")
def hidden_code(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove or fold the code of a cell."""
    return tagged(notebook, rng, rng.choice(["remove-input", "hide-input", "hide-cell"]))


@caught_by("rules")
def folded_output(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Fold what a cell shows."""
    return tagged(notebook, rng, "hide-output")


@caught_by("rules")
def skipped_cell(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Let nbval pass over a cell or its outputs, by a tag."""
    return tagged(notebook, rng, rng.choice(["nbval-skip", "nbval-ignore-output"]))


@caught_by("rules")
def allowed_error(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Let a cell raise an error."""
    return tagged(notebook, rng, "raises-exception")


@caught_by("rules")
def lost_tag(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Show what is to be hidden."""
    cell = drawn(rng, [cell for cell in code_cells(notebook) if "tags" in cell.metadata])
    if cell is None:
        return None
    return Fault(cell.id, "no tags", str(cell.metadata.pop("tags")))


@caught_by("rules")
def ignored_by_comment(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Let nbval pass over a cell, by a comment."""
    cell = rng.choice(code_cells(notebook))
    comment = rng.choice(
        ["# NBVAL_SKIP", "# NBVAL_IGNORE_OUTPUT", "#PYTEST_VALIDATE_IGNORE_OUTPUT"]
    )
    cell.source = f"{comment}\n{cell.source}"
    return Fault(cell.id, comment, "(nothing)")


@caught_by("rules")
def hidden_in_jupyter(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Hide a cell by a field that Jupyter sets."""
    cell = rng.choice(code_cells(notebook))
    field = rng.choice(["source_hidden", "outputs_hidden"])
    cell.metadata["jupyter"] = {field: True}
    return Fault(cell.id, field, "(nothing)")


@caught_by("rules")
def hidden_by_setting(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Hide what a cell, or the notebook, shows by a setting of myst-nb."""
    cell = rng.choice(code_cells(notebook))
    holder = rng.choice([cell, notebook])
    holder.metadata.setdefault("mystnb", NotebookNode())["remove_code_outputs"] = True
    return Fault(cell.id, "remove_code_outputs", "(nothing)")


@caught_by("rules")
def unexecuted_cell(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Clear a cell that has outputs, as Jupyter does."""
    cell = drawn(rng, [cell for cell in code_cells(notebook) if cell.outputs])
    if cell is None:
        return None
    fault = Fault(cell.id, "execution count None", str(cell.execution_count))
    cell.update(execution_count=None, outputs=[])
    return fault


@caught_by("rules")
def wrong_count(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Run one cell a second time."""
    cell, right = rng.choice(code_cells(notebook)), len(code_cells(notebook))
    fault = Fault(cell.id, f"{right + 1}", f"{cell.execution_count}")
    cell.execution_count = right + 1
    return fault


@caught_by("rules")
def repeated_id(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Give a cell the id of another."""
    cell, other = rng.sample(notebook.cells, 2)
    fault = Fault(cell.id, other.id, cell.id)
    cell.id = other.id
    return fault


@caught_by("rules")
def committed_error(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Commit a cell that failed."""
    cell = rng.choice(code_cells(notebook))
    error = new_output("error", ename="ValueError", evalue="x", traceback=[])
    cell.outputs.append(error)
    return Fault(cell.id, "ValueError", "(nothing)")


@caught_by("rules")
def warning_on_stderr(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Commit a cell that warned."""
    cell = rng.choice(code_cells(notebook))
    cell.outputs.append(new_output("stream", name="stderr", text="UserWarning: careful\n"))
    return Fault(cell.id, "stderr", "(nothing)")


@caught_by("rules")
def changed_opening(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Change a number in the opening that a cell glues."""
    opening = notebook.cells[0]
    stated = drawn(rng, sorted(opening.metadata.get("states", {}).values()))
    if stated is None:
        return None
    planted = ("9" if stated[0] != "9" else "8") + stated[1:]
    opening.source = opening.source.replace(stated, planted)
    return Fault(opening.id, planted, stated)


@caught_by("figures")
def lost_alternative_text(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Empty the alternative text of a figure."""
    place = drawn(rng, figure_texts(notebook, "alt"))
    return place and place.put("")


@caught_by("figures")
def lost_caption(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Empty the caption of a figure."""
    place = drawn(rng, figure_texts(notebook, "caption"))
    return place and place.put(" ")


@caught_by("figures")
def lost_figure_metadata(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Make a figure a bare picture, without number, caption and alternative text."""
    place = drawn(rng, figure_texts(notebook, "name"))
    if place is None:
        return None
    del place.cell.metadata["mystnb"]
    return Fault(place.cell.id, "(nothing)", place.text)


@caught_by("figures")
def swapped_alternative_texts(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange the alternative texts of two figures."""
    return exchanged(rng, figure_texts(notebook, "alt"))


@caught_by("figures")
def swapped_captions(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange the captions of two figures."""
    return exchanged(rng, figure_texts(notebook, "caption"))


@caught_by("figures")
def swapped_figure_metadata(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange name, caption and alternative text of two figures."""
    names = figure_texts(notebook, "name")
    if len(names) < 2:
        return None
    one, other = (place.cell for place in rng.sample(names, 2))
    one.metadata.mystnb, other.metadata.mystnb = other.metadata.mystnb, one.metadata.mystnb
    return Fault(one.id, one.metadata.mystnb.figure.name, other.metadata.mystnb.figure.name)


@caught_by("figures")
def copied_caption(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Give a figure its caption for an alternative text."""
    place = drawn(rng, figure_texts(notebook, "alt"))
    return place and place.put(place.cell.metadata.mystnb.figure.caption)


@caught_by("pages")
def repeated_figure_name(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Give two figures one name."""
    names = figure_texts(notebook, "name")
    if len(names) < 2:
        return None
    one, other = rng.sample(names, 2)
    return one.put(other.text)
