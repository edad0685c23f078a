"""Running a chapter elsewhere: what Binder installs.

That the buttons are there, tests/site/test_published.py shows.
"""

import nbformat

from tests.paths import CHAPTERS, ROOT
from tests.repository.packages import asked_for, imported


def pins(path):
    lines = (ROOT / path).read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def test_binder_and_the_extra_for_chapters_have_what_chapters_import():
    cells = (
        cell
        for path in CHAPTERS.glob("*.ipynb")
        for cell in nbformat.read(path, as_version=4).cells
    )
    needed = set().union(*(imported(cell.source) for cell in cells if cell.cell_type == "code"))
    assert {"numpy", "matplotlib", "torch"} <= needed
    assert needed <= asked_for("chapters") | {"mpmath"}  # which comes with SymPy
    binder = pins(".binder/pins.txt")
    assert binder.items() <= pins("requirements.txt").items()
    # Binder has a Jupyter of its own, and what the command line needs changes no number.
    computing = needed | asked_for("table", "torch")
    assert computing - {"ipython", "typer", "rich", "tqdm"} <= set(binder)
