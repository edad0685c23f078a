"""The numbers that the short answer and the questions take from other chapters are those."""

import pytest

from tests.notebooks.test_prose import read

TAKEN = [
    ("short_answer", "short_undivided", "unscaled", "undivided_64"),
    ("short_answer", "short_undivided_unseen", "unscaled", "undivided_64_unseen"),
    *(
        (page, f"{taken}_norm_{scale}", "qk_norm", glued)
        for page, taken in (("short_answer", "short"), ("questions", "asked"))
        for scale, glued in (("one", "norm_64"), ("over", "norm_over_64"))
    ),
    ("short_answer", "short_output_256", "almost_scaled", "output_256"),
    ("short_answer", "short_bugs", "audit", "found"),
    ("questions", "asked_best_brief", "short_answer", "short_best_brief"),
    ("questions", "asked_best_long", "short_answer", "short_best_long"),
]
"""A page and its name for a number; the chapter that it is from, and the name there."""


def printed(chapter, name):
    """Return the value that a chapter prints under a name."""
    lines = read(f"chapters/{chapter}").printed.splitlines()
    [value] = {line.partition(" = ")[2] for line in lines if line.startswith(f"{name} = ")}
    return value


@pytest.mark.parametrize(("page", "name", "chapter", "original"), TAKEN)
def test_a_number_from_another_chapter_is_the_number_there(page, name, chapter, original):
    assert printed(page, name) == printed(chapter, original)


def test_the_rule_of_the_training_length_is_as_wrong_as_its_chapter_says():
    lines = "\n".join(read("chapters/length_extrapolation").printed.splitlines())
    rule = printed("short_answer", "short_root_rule")
    assert f"t* at the training's length: wrong in {rule} cells" in lines


def test_harms_stand_in_the_table_of_training():
    table = "\n".join(read("chapters/training_details").printed.splitlines())
    for name in ("inverse_d", "annealed", "normalised"):
        assert printed("short_answer", f"short_harm_{name}") in table


def test_the_alarms_are_those_of_their_chapter():
    found = printed("probe", "alarms_before").replace("the ", "")
    assert printed("questions", "asked_alarms_before") == found
