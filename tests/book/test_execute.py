import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from book.execute import main

WORKING = "import os\nfor i in range(3):\n    print(i, flush=True)\nos.path.basename(os.getcwd())"
BROKEN = "print('before')\n1 / 0"


@pytest.mark.slow
def test_runs_in_place_and_reports_errors(tmp_path, capsys):
    paths = []
    for name, source in [("working", WORKING), ("broken", BROKEN)]:
        noted = {"execution": {"shell.execute_reply": "x"}}
        cells = [
            new_markdown_cell("# Título", id="title"),
            new_code_cell("x = 1", id="first", metadata=noted),
            new_code_cell(source, id="second"),
        ]
        paths.append(tmp_path / f"{name}.ipynb")
        nbformat.write(new_notebook(cells=cells), paths[-1])
    working, broken = paths
    unrun = broken.read_bytes()

    assert main(paths)
    said = capsys.readouterr().out
    assert f"{working}: updated\n" in said
    assert re.search(r"broken.ipynb: error in Cell 1 \(second\): .*ZeroDivisionError", said)
    assert broken.read_bytes() == unrun

    written = working.read_bytes()
    cells = nbformat.reads(written.decode("utf-8"), as_version=4).cells
    assert [cell.id for cell in cells] == ["title", "first", "second"]
    assert [cell.execution_count for cell in cells[1:]] == [1, 2]
    stream, value = cells[2].outputs
    assert stream.text == "0\n1\n2\n"
    assert value.data["text/plain"] == f"'{tmp_path.name}'"
    assert cells[1].metadata == {}
