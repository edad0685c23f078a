"""The numbers that the short answer and the questions take from other chapters are those."""

import pytest

from tests.notebooks.prose import ROOT, Page

TAKEN = [
    ("short_answer", "harm_output", "training", "training_best"),
    ("short_answer", "output_256", "output_scale", "output_256"),
    ("short_answer", "spread_rows", "typical", "spread_4096"),
    ("short_answer", "bugs", "audit", "found"),
    ("questions", "harm", "training", "training_best"),
    ("questions", "too_large", "audit", "too_large"),
    ("questions", "wanted_brief", "short_answer", "wanted_brief"),
    ("questions", "wanted_long", "short_answer", "wanted_long"),
]
"""A page and its name for a number; the chapter that it is from, and the name there."""


def printed(chapter, name):
    """Return the value that a chapter prints under a name."""
    lines = Page(ROOT / "chapters" / f"{chapter}.ipynb").lines()
    [value] = {line.partition(" = ")[2] for line in lines if line.startswith(f"{name} = ")}
    return value


@pytest.mark.parametrize(("page", "name", "chapter", "original"), TAKEN)
def test_a_number_from_another_chapter_is_the_number_there(page, name, chapter, original):
    assert printed(page, name) == printed(chapter, original)


def test_the_verdict_on_the_predictions_is_that_of_their_chapter():
    held, told = (printed("length", name) for name in ("all_hold", "predictions"))
    assert printed("short_answer", "predictions") == f"{held} of {told}"
    assert printed("short_answer", "root_rule").startswith("0 of ")
    assert ": 0.0%" in "\n".join(Page(ROOT / "chapters" / "length.ipynb").lines())


@pytest.mark.parametrize(
    ("chapter", "names"),
    [
        ("training", ("harm_inverse_d", "harm_annealed", "harm_typical", "harm_normalised")),
        ("length", ("slope_ratio", "variance_ratio")),
    ],
)
def test_numbers_from_a_table_stand_in_it(chapter, names):
    table = "\n".join(Page(ROOT / "chapters" / f"{chapter}.ipynb").lines())
    for name in names:
        assert printed("short_answer", name) in table


def test_the_alarms_are_those_of_their_chapter():
    assert printed("probe", "alarms_before").replace("the ", "") == printed(
        "questions", "alarms_before"
    )
    assert printed("probe", "alarms_usual").startswith(printed("questions", "alarms_usual") + " of")
