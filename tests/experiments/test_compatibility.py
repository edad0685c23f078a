"""What attnlib does with the models of transformers: the record, the page, and what a run finds."""

from importlib import import_module
from itertools import product

import pytest

from experiments.compatibility import FAMILIES, MORE
from experiments.compatibility.cells import (
    COLUMNS,
    FEWER,
    NONE,
    REFUSED,
    RIGHT,
    TOOLS,
    cell,
    entries_to_compute,
    family_cells,
    supports,
)
from experiments.records import load

page = import_module("experiments.compatibility.__main__")

RECORD = load("compatibility")
FOUND = page.answers_by_cell(RECORD)


def test_the_record_has_every_cell_and_the_page_shows_it():
    assert [entry.key for entry in RECORD.entries] == [at for at, _ in entries_to_compute()]
    tried = [*product(FAMILIES, COLUMNS, TOOLS), *product(MORE, FEWER, TOOLS)]
    assert sorted(FOUND) == sorted(tried)
    assert {answer["is"] for answer in FOUND.values()} == {RIGHT, REFUSED, NONE}
    assert all("\n" not in answer.get("line", "") for answer in FOUND.values())
    assert page.PAGE.read_text("utf-8") == page.page(RECORD)


@pytest.mark.parametrize(
    ("family", "column", "tools"),
    [
        *(
            (family, "padding" if supports(family, "padding") else "sdpa", TOOLS)
            for family in list(FAMILIES)[::6]  # all, weekly
        ),
        ("Gemma2", "flex_attention", TOOLS),
        ("Hubert", "right padding", TOOLS),
        ("Gemma3Text", "generation", TOOLS),
        ("Whisper", "generation", TOOLS),
        ("GptOss", "eager", TOOLS),
        # Its experts break the graph, and a mode's own function was compiled.
        pytest.param("Mixtral", "compile", ["probe"], marks=pytest.mark.slow),
    ],
)
def test_a_cell_is_recorded_as_a_run_finds_it(family, column, tools):
    for tool in tools:
        assert cell(family, column, tool) == FOUND[family, column, tool], tool


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, *MORE])
def test_every_cell_is_as_recorded(family):
    assert family_cells(family) == RECORD.find(family=family)
