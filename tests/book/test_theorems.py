"""Theorems and displayed formulas hold as they stand on the page."""

import pytest

from tests.book.formulas import displays, labels
from tests.book.theorems.registry import TIES, UNTESTABLE, tied_formulas


@pytest.mark.parametrize("label", TIES)
def test_page_holds(label):
    assert tied_formulas(label)


def test_every_theorem_is_tied_to_a_check_or_says_why_not():
    untied = set(labels()) - set(TIES)
    assert untied == set(UNTESTABLE), "tie a check to the label, or say why no machine can test it"
    assert len(labels()) == len(set(labels()))


def test_every_displayed_formula_is_read_by_a_check():
    read = {formula for label in TIES for formula in tied_formulas(label)}
    unread = [formula for formula in displays() if formula not in read]
    assert not unread, "let the check of its place, or one of its own, read it"
