"""The committed chapters keep the rules, and a notebook that breaks one is told which, and where.

What hides a cell or was not run is planted in the chapters themselves (`test_planted_faults`).
"""

import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book.contents import page_names
from tests.books import CHAPTERS, ROOT
from tests.notebooks.rules import TAGS, allowed_tags, violations

NAMES = sorted(path.stem for path in CHAPTERS.glob("*.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_chapter_keeps_the_rules(name):
    notebook = nbformat.read(CHAPTERS / f"{name}.ipynb", as_version=4)
    found = violations(notebook, allowed_tags(name))
    assert not found, "\n".join(found)


def test_the_table_of_contents_has_every_chapter_and_no_page_that_is_not_there():
    pages = page_names(ROOT)
    assert {f"chapters/{name}" for name in NAMES} <= set(pages)
    for name in pages:
        assert (ROOT / f"{name}.md").exists() or (ROOT / f"{name}.ipynb").exists(), name


def test_tags_are_given_to_chapters_that_exist():
    assert {chapter for chapters in TAGS.values() for chapter in chapters} <= set(NAMES)


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
    "source",
    [
        'x = 7 \\\n    % 2  # why?\nprint("really?", "100 %")',
        'print(f"{0.5:.3f} ± {0.5:+.2e} {0.5:g} {0.5}")',  # formats without a width
    ],
)
def test_tidy_notebook_keeps_the_rules(source):
    notebook = tidy_notebook()
    notebook.cells[2].source = source
    assert violations(notebook) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("execution_count", 5, "execution count 5, not 2"),
        ("source", "%%time\nx = 1", "not Python"),
        ("source", "files = !ls", "not Python"),
        ("source", "", "no code"),
        ("source", "x = 1\n" * 21, "longer than 20 lines"),
        ("source", 'print(f"{0.5:8.3f}")', "a column of width '8.3f'"),
        ("source", 'line = "x"\nprint(line, f"   {0.5:.2f}")', "blanks that align"),
        ("source", "x = 1\n#  NBVAL_SKIP", "comment that switches"),
        ("metadata", {"tags": ["hide-input", "nbval-ignore-output"]}, "tag that switches"),
        ("metadata", {"execution": {"iopub.execute_input": "2024"}}, "times of execution"),
        ("outputs", [new_output("error", ename="ValueError")], "an error: ValueError"),
        ("outputs", [new_output("stream", name="stderr", text="!")], "output on stderr"),
        ("outputs", [displayed(text_plain="")], "an empty output"),
        ("outputs", [displayed(image_png="iVBO", text_plain="Figure")], "a bitmap"),
        ("outputs", [displayed(text_html="<p>0x7f3a5c1b</p>")], "a memory address"),
    ],
)
def test_violation_is_reported_with_its_cell(key, value, message):
    notebook = tidy_notebook()
    notebook.cells[2][key] = nbformat.from_dict(value)
    found = violations(notebook)
    assert any(line.startswith("Cell 1: ") and message in line for line in found), found


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


@pytest.mark.parametrize(
    ("hidden", "visible", "wrong"),
    [
        ("def x():\n    return 1", "print(x())", "'x'"),
        ("import math", "print(math.pi)", "'math'"),
        ("x = 1", "x = 2\nprint([x for x in range(3)])", None),
    ],
)
def test_a_name_in_a_visible_cell_is_not_defined_in_a_hidden_one(hidden, visible, wrong):
    notebook = tidy_notebook()
    notebook.cells[1].source, notebook.cells[2].source = hidden, visible
    notebook.cells[1].update(metadata={"tags": ["remove-cell"]}, outputs=[])
    expected = [f"the cell 'code-2' uses {wrong}, which 'code-1' defines"] if wrong else []
    assert violations(notebook, {"code-1": {"remove-cell"}}) == expected


def test_a_tag_is_for_the_cells_that_are_named():
    notebook = tidy_notebook()
    notebook.cells[2].update(metadata={"tags": ["hide-input"]}, outputs=[])
    assert violations(notebook, {"code-2": {"hide-input"}}) == []
    [found] = violations(notebook, {"code-7": {"hide-input"}})[1:]
    assert found == "tags are given to cells that are not there: ['code-7']"


def test_a_glued_value_is_printed_and_a_removed_cell_displays_no_more():
    notebook = tidy_notebook()
    value = displayed(**{"application_papermill.record/text/plain": "'0.50'"})
    value.metadata["scrapbook"] = {"name": "half"}
    printed = new_output("stream", name="stdout", text="half = 0.50\n")
    notebook.cells[2].update(outputs=[printed, value], metadata={"tags": ["remove-cell"]})
    tags = {"code-2": {"remove-cell"}}
    assert violations(notebook, tags) == []
    printed.text = "half = 0.51\n"
    assert violations(notebook, tags) == ["Cell 1: it glues and does not print half = 0.50"]
    printed.text = "half = 0.50\n"
    notebook.cells[2].outputs.append(displayed(text_html="<table></table>"))
    [found] = violations(notebook, tags)
    assert found == "Cell 1: it is removed from the page and displays more than what it glues"


def test_as_a_command_it_names_the_file_and_the_cell(tmp_path):
    notebook = tidy_notebook()
    notebook.cells[2].execution_count = 7
    path = tmp_path / "untidy.ipynb"
    nbformat.write(notebook, path)
    command = [sys.executable, "-m", "tests.notebooks.rules", path]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.stdout == f"{path}: Cell 1: execution count 7, not 2\n"
    assert finished.returncode == 1


def test_invalid_format_is_reported():
    notebook = tidy_notebook()
    notebook.cells[2]["source"] = [7]
    assert any("not a valid notebook" in line for line in violations(notebook))
