"""Theorems and displayed formulas hold as they stand on the page, and their checks can fail."""

import pytest

from tests.book.formulas import displays, labels, place
from tests.book.tex import changes, plain
from tests.book.theorems.registry import (
    EQUIVALENT,
    TIES,
    UNTESTABLE,
    holds,
    planted,
    tied_formulas,
)


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


@pytest.mark.slow
@pytest.mark.parametrize("label", TIES)
def test_a_changed_formula_fails(label):
    missed = [
        f"{change.old} → {change.new} in {formula.tex}"
        for formula, change, changed in planted(label)
        if holds(label, changed)
    ]
    assert not missed


@pytest.mark.slow
@pytest.mark.parametrize(("label", "beginning"), EQUIVALENT)
def test_what_is_called_equivalent_holds(label, beginning):
    [(formula, change)] = [
        (formula, change)
        for formula in tied_formulas(label)
        for change in changes(formula.tex)
        if plain(change.tex).startswith(plain(beginning))
    ]
    assert holds(label, place(label).changed(formula, change.tex))


def test_every_sign_number_relation_and_fraction_is_changed():
    found = {change.tex for change in changes(r"\frac12 x^2 - 1.54 \le y")}
    assert found == {
        r"\frac{2}{1} x^2 - 1.54 \le y",
        r"\frac22 x^2 - 1.54 \le y",
        r"\frac13 x^2 - 1.54 \le y",
        r"\frac12 x^3 - 1.54 \le y",
        r"\frac12 x^2 + 1.54 \le y",
        r"\frac12 x^2 - 1.55 \le y",
        r"\frac12 x^2 - 1.54 \ge y",
    }
