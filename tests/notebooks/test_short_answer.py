"""The numbers that the short answer and the questions take from other chapters are those."""

import pytest

from tests.notebooks.test_prose import read

TAKEN = [
    ("short_answer", "short_undivided", "unscaled", "undivided_64"),
    ("short_answer", "short_undivided_unseen", "unscaled", "undivided_64_unseen"),
    ("questions", "asked_norm_one", "qk_norm", "norm_64"),
    ("questions", "asked_norm_over", "qk_norm", "norm_over_64"),
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
