"""Theorems hold as they stand on the page."""

import pytest

from tests.book.formulas import labels, place
from tests.book.theorems.registry import TIES, UNTESTABLE


@pytest.mark.parametrize("label", TIES)
def test_page_holds(label):
    TIES[label](place(label))


def test_every_theorem_is_tied_to_a_check_or_says_why_not():
    untied = set(labels()) - set(TIES)
    assert untied == set(UNTESTABLE), "tie a check to the label, or say why no machine can test it"
    assert len(labels()) == len(set(labels()))
