import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
    new_raw_cell,
    reads,
)

from book.contents import page_names
from tests.notebooks.rules import TAGS, allowed_tags, violations

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_keeps_the_rules(path):
    notebook = reads(path.read_text(encoding="utf-8"))
    found = violations(notebook, allowed_tags(path.stem))
    assert not found, "\n".join(found)


def test_every_chapter_is_in_the_table_of_contents():
    assert {f"chapters/{path.stem}" for path in CHAPTERS} <= set(page_names(ROOT))


def test_every_page_of_the_table_of_contents_exists():
    for name in page_names(ROOT):
        assert (ROOT / f"{name}.md").exists() or (ROOT / f"{name}.ipynb").exists(), name


def tidy_notebook():
    cells = [new_markdown_cell("# Title", id="title")]
    for count in (1, 2):
        output = new_output("stream", name="stdout", text="0.5\n")
        cell = new_code_cell("print(0.5)", id=f"code-{count}", execution_count=count)
        cell.outputs.append(output)
        cells.append(cell)
    return new_notebook(cells=cells)


def test_tidy_notebook_keeps_the_rules():
    notebook = tidy_notebook()
    notebook.cells[2].source = 'x = 7 \\\n    % 2  # why?\nprint("really?", "100 %")'
    assert violations(notebook) == []


def displayed(**data):
    return new_output("display_data", data={key.replace("_", "/"): data[key] for key in data})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("execution_count", None, "execution count None, not 2"),
        ("execution_count", 5, "execution count 5, not 2"),
        ("source", "%matplotlib inline", "not Python"),
        ("source", "%%time\nx = 1", "not Python"),
        ("source", "!ls", "not Python"),
        ("source", "x = 1\n  !ls", "not Python"),
        ("source", "files = !ls", "not Python"),
        ("source", "print?", "not Python"),
        ("source", "", "no code"),
        ("source", "x = 1\n" * 21, "longer than 20 lines"),
        ("source", 'print(f"{0.5:8.3f}")', "a column of width '8.3f'"),
        ("source", 'print(f"{0.5:>8}")', "a column of width '>8'"),
        ("source", 'print("   d    mean")', "blanks that align"),
        ("source", 'line = "x"\nprint(line, f"   {0.5:.2f}")', "blanks that align"),
        ("source", "# NBVAL_IGNORE_OUTPUT\nx = 1", "comment that switches"),
        ("source", "x = 1\n#  NBVAL_SKIP", "comment that switches"),
        ("metadata", {"tags": ["nbval-skip"]}, "tag that switches"),
        ("metadata", {"tags": ["hide-input", "nbval-ignore-output"]}, "tag that switches"),
        ("metadata", {"tags": ["raises-exception"]}, "tag that switches"),
        ("metadata", {"execution": {"iopub.execute_input": "2024"}}, "times of execution"),
        ("outputs", [new_output("error", ename="ValueError")], "an error: ValueError"),
        ("outputs", [new_output("stream", name="stderr", text="!")], "output on stderr"),
        ("outputs", [new_output("stream", name="stdout", text="")], "an empty output"),
        ("outputs", [displayed()], "an empty output"),
        ("outputs", [displayed(text_plain="")], "an empty output"),
        ("outputs", [displayed(image_png="iVBO", text_plain="Figure")], "a bitmap"),
        ("outputs", [displayed(text_plain="<A at 0x7f3a5c>")], "a memory address"),
        ("outputs", [displayed(text_html="<p>0x7f3a5c1b</p>")], "a memory address"),
    ],
)
def test_violation_is_reported_with_its_cell(key, value, message):
    notebook = tidy_notebook()
    notebook.cells[2][key] = nbformat.from_dict(value)
    found = violations(notebook)
    assert any(line.startswith("Cell 1: ") and message in line for line in found), found


def test_repeated_id_is_reported():
    notebook = tidy_notebook()
    notebook.cells[2].id = "code-1"
    assert violations(notebook) == ["2 cells have the id 'code-1'"]


def test_a_format_without_a_width_is_no_column():
    notebook = tidy_notebook()
    notebook.cells[2].source = 'print(f"{0.5:.3f} ± {0.5:+.2e} {0.5:g} {0.5}")'
    assert violations(notebook) == []


def test_the_opening_states_what_the_chapter_prints():
    notebook = tidy_notebook()
    notebook.cells[0].source = "# Title\n\nA variance of 995."
    notebook.cells[0].metadata["states"] = {"variance": "995"}
    printed = notebook.cells[1].outputs[0]
    printed.text = "variance = 995\n"
    assert violations(notebook) == []
    printed.text = "variance = 994\n"
    assert violations(notebook) == [
        "the opening states variance = 995; printed is ['variance = 994']"
    ]
    notebook.cells[0].source = "# Title\n\nA variance of {glue:text}`variance`."
    assert violations(notebook)[:2] == [
        "the opening has a glue role, which plain Jupyter shows raw",
        "the opening does not state variance = 995",
    ]


@pytest.mark.parametrize(
    ("hidden", "visible", "wrong"),
    [
        ("x = 1", "print(x)", "'x'"),
        ("def x():\n    return 1", "print(x())", "'x'"),
        ("import math", "print(math.pi)", "'math'"),
        ("x = 1", "x = 2\nprint(x)", None),
        ("print(0.5)", "y = 1\nprint(y)", None),
        ("x = 1", "print([x for x in range(3)])", None),
    ],
)
def test_a_name_in_a_visible_cell_is_not_defined_in_a_hidden_one(hidden, visible, wrong):
    notebook = tidy_notebook()
    notebook.cells[1].source, notebook.cells[2].source = hidden, visible
    notebook.cells[1].metadata["tags"] = ["remove-cell"]
    notebook.cells[1].outputs = []
    expected = [f"the cell 'code-2' uses {wrong}, which 'code-1' defines"] if wrong else []
    assert violations(notebook, {"code-1": {"remove-cell"}}) == expected


@pytest.mark.parametrize("tag", ["remove-cell", "remove-output", "hide-input", "x"])
def test_a_tag_is_for_cells_that_are_named(tag):
    notebook = tidy_notebook()
    notebook.cells[2].update(metadata={"tags": [tag]}, outputs=[])
    assert violations(notebook, {"code-2": {tag}}) == []
    for allowed in ({}, {"code-1": {tag}}, {"code-2": {tag, "scroll-output"}}):
        assert any("'code-2' has the tags" in line for line in violations(notebook, allowed))
    notebook.cells[2].metadata["tags"] = []
    assert violations(notebook, {"code-2": {tag}}) != []


def test_a_tag_is_not_kept_for_a_cell_that_is_gone():
    found = violations(tidy_notebook(), {"code-7": {"remove-cell"}})
    assert found == ["tags are given to cells that are not there: ['code-7']"]


def test_tags_are_given_to_chapters_that_exist():
    named = {chapter for chapters in TAGS.values() for chapter in chapters}
    assert named <= {path.stem for path in CHAPTERS}
    assert allowed_tags("variance") == {"figure": {"hide-input"}, "glue": {"remove-cell"}}


@pytest.mark.parametrize(
    ("cell", "metadata", "named"),
    [
        (2, {"jupyter": {"outputs_hidden": True}}, "jupyter"),
        (2, {"collapsed": True}, "collapsed"),
        (2, {"mystnb": {"remove_code_outputs": True}}, "mystnb.remove_code_outputs"),
        (2, {"mystnb": {"image": {"alt": "x", "width": "0"}}}, "mystnb.image"),
        (0, {"mystnb": {"figure": {"name": "x"}}}, "mystnb"),
    ],
)
def test_other_metadata_that_may_hide_a_cell_are_reported(cell, metadata, named):
    notebook = tidy_notebook()
    notebook.cells[cell].metadata = nbformat.from_dict(metadata)
    [found] = violations(notebook)
    assert f"has the metadata ['{named}']" in found


def test_metadata_of_the_notebook_and_raw_cells_are_reported():
    notebook = tidy_notebook()
    notebook.metadata["mystnb"] = {"remove_code_outputs": True}
    notebook.cells.append(new_raw_cell("hidden", id="raw"))
    assert violations(notebook) == [
        "the notebook has the metadata ['mystnb']",
        "the cell 'raw' is of type raw",
    ]


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
    nbformat.write(notebook, tmp_path / "tidy.ipynb")
    notebook.cells[2].execution_count = 7
    nbformat.write(notebook, tmp_path / "untidy.ipynb")
    command = [sys.executable, "-m", "tests.notebooks.rules"]
    for name, said in (("tidy", ""), ("untidy", "Cell 1: execution count 7, not 2\n")):
        path = tmp_path / f"{name}.ipynb"
        finished = subprocess.run([*command, path], cwd=ROOT, capture_output=True, text=True)
        assert finished.stdout == (f"{path}: {said}" if said else "")
        assert finished.returncode == bool(said), finished.stderr


@pytest.mark.parametrize("key", ["id", "source", "outputs"])
def test_invalid_format_is_reported(key):
    notebook = tidy_notebook()
    notebook.cells[2][key] = [7]
    assert any("not a valid notebook" in line for line in violations(notebook))
