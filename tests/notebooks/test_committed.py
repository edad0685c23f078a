"""The committed chapters keep the rules, and a notebook that breaks one is told which."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.books import CHAPTERS
from tests.notebooks import pages
from tests.notebooks.rules import violations

NAMES = sorted(path.stem for path in CHAPTERS.glob("*.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_chapter_keeps_the_rules(name):
    notebook = nbformat.read(CHAPTERS / f"{name}.ipynb", as_version=4)
    found = violations(notebook)
    assert not found, "\n".join(found)


def test_the_text_of_the_pages_is_whole():
    assert pages.violations(pages.book_pages()) == []


def tidy_notebook():
    cells = [new_markdown_cell("# Title", id="title")]
    for count in (1, 2):
        output = new_output("stream", name="stdout", text="0.5\n")
        cell = new_code_cell("print(0.5)", id=f"code-{count}", execution_count=count)
        cell.outputs.append(output)
        cells.append(cell)
    return new_notebook(cells=cells)


def displayed(**data):
    return new_output("display_data", data={key.replace("_", "/"): data[key] for key in data})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("execution_count", None, "execution count None, not 2"),
        ("id", "code-1", "2 cells have the id 'code-1'"),
        ("cell_type", "raw", "not a valid notebook"),
        ("source", "files = !ls", "not Python"),
        ("source", "x = 1\n" * 21, "longer than 20 lines"),
        ("source", "x = 1\n#  NBVAL_SKIP", "comment that switches"),
        ("metadata", {"tags": ["nbval-ignore-output"]}, "tag that switches"),
        ("metadata", {"tags": ["remove-output"]}, "has the tags ['remove-output']"),
        ("metadata", {"jupyter": {"source_hidden": True}}, "has the metadata ['jupyter']"),
        ("metadata", {"mystnb": {"remove_code_outputs": True}}, "mystnb.remove_code_outputs"),
        ("metadata", {"execution": {"iopub.execute_input": "2024"}}, "times of execution"),
        ("outputs", [new_output("error", ename="ValueError")], "an error: ValueError"),
        ("outputs", [new_output("stream", name="stderr", text="!")], "output on stderr"),
        ("outputs", [displayed(text_plain="")], "an empty output"),
        ("outputs", [displayed(image_png="iVBO", text_plain="Figure")], "a bitmap"),
        ("outputs", [displayed(text_html="<p>0x7f3a5c1b</p>")], "a memory address"),
        ("outputs", [displayed(**{"image_svg+xml": "<svg/>"})], "without ['name', 'caption'"),
    ],
)
def test_violation_is_reported(key, value, message):
    notebook = tidy_notebook()
    assert violations(notebook) == []
    notebook.cells[2][key] = nbformat.from_dict(value)
    found = violations(notebook)
    assert any(message in line for line in found), found


def test_the_opening_states_what_the_chapter_prints():
    notebook = tidy_notebook()
    notebook.cells[0].source = "# Title\n\nA variance of 995."
    notebook.cells[0].metadata["states"] = {"variance": "995"}
    printed = notebook.cells[1].outputs[0]
    printed.text = "variance = 995\n"
    assert violations(notebook) == []
    printed.text = "variance = 994\n"
    [found] = violations(notebook)
    assert found == "the opening states variance = 995; printed is ['variance = 994']"


def test_a_glued_value_is_printed_and_a_removed_cell_displays_no_more():
    notebook = tidy_notebook()
    value = displayed(**{"application_papermill.record/text/plain": "'0.50'"})
    value.metadata["scrapbook"] = {"name": "half"}
    printed = new_output("stream", name="stdout", text="half = 0.51\n")
    table = displayed(text_html="<table></table>")
    notebook.cells[2].update(outputs=[printed, value, table], metadata={"tags": ["remove-cell"]})
    assert violations(notebook) == [
        "Cell 1: it glues and does not print half = 0.50",
        "Cell 1: it is removed from the page and displays more than what it glues",
    ]
