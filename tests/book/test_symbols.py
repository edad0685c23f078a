"""A symbol of the notation list has one meaning, but where a line says "here"."""

import re

import pytest

from tests.book import notation
from tests.book.formulas import Cell, book
from tests.book.symbols import MEANINGS, NAME, redefined

CHAPTERS = sorted({cell.chapter for cell in book()})
LETTERS = {
    re.match(NAME, part)[0]
    for symbol in notation.symbols()
    for part in symbol.latex.split(", ")
    if re.match(NAME, part) and not part.startswith(r"\operatorname")
}
OTHERS = {"E", "R"}
"""E would be taken for the expectation, and R is the remainder of the free energy."""

# What somebody could write into a chapter, and the letter whose meaning it changes.
REDEFINED = [
    (r"Z", r"A factor $Z$ enters a variance squared."),
    (r"Z", r"$$Z := q\cdot k$$"),
    (r"\sigma", r"The weights are $\sigma(\alpha\Delta)$ and the rest."),
    (r"\sigma", r"So $a = 0$ gives the multiplier $\sigma$."),
    (r"\kappa", r"Let $\kappa$ be the concentration of the law."),
    (r"L", r"The slope is $\partial L/\partial W$."),
    (r"L", r"With $L$ the number of layers, the sum is large."),
    (r"c", r"With $c = \log(n-1) + \frac12\alpha^2$ the rest follows."),
    (r"E", r"The median has $E = \log 2$."),
    (r"R", r"Times a common factor $R$, they are normal."),
    (r"\rho", r"They are $\sqrt{1-\rho}\,z_i$ plus a shift."),
    (r"W", r"Let $W$ be the matrix of the projection."),
    (r"J", r"We write $J$ for the number of keys."),
    (r"\Delta", r"The width $\Delta$ of the model is large."),
    (r"n", r"Let $n$ be the depth of the model."),
    (r"p", r"The exponent $p$ of the norm is 2."),
    (r"f", r"Let $f = 1 + x^2$."),
]

# What is no change of a meaning.
KEPT = [
    r"With $n = 512$ keys and $d = 64$, $\alpha = \sqrt d$ and $c = 6.9$.",
    r"Let $Z = \sum_i e^{\alpha s_i}$. The variance of $Z$ is small.",
    r"Of the mean of $Y$, of $G$ and of $H$ nothing is said; with $J$ it differs.",
    r"$$\begin{aligned} G &= \operatorname{E}\alpha(1 - Y) \\ &\le \alpha \end{aligned}$$",
    r"Let $E_n$ be something, $\operatorname{E}Z$ its mean, and $\alpha_c\sqrt{\log n}$ large.",
]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_symbol_is_redefined_without_a_line_that_says_here(chapter):
    faults = redefined(cell for cell in book() if cell.chapter == chapter)
    assert not faults, "rename the letter, or say 'here' or 'in this chapter': " + "; ".join(
        map(str, faults)
    )


def test_every_symbol_of_the_list_has_its_meaning():
    assert set(MEANINGS) == LETTERS | OTHERS


@pytest.mark.parametrize(("symbol", "text"), REDEFINED)
def test_another_meaning_is_found(symbol, text):
    assert {one.symbol for one in redefined([Cell("page", 0, text)])} == {symbol}


def test_another_meaning_may_stand_where_a_line_says_here():
    symbol, text = REDEFINED[0]
    here = f"Here ${symbol}$ is something else."
    assert not redefined([Cell("page", 0, f"{here} {text}")])
    assert not redefined([Cell("page", 0, here), Cell("page", 1, text)])
    assert redefined([Cell("page", 0, here), Cell("page", 1, f"## The next section\n\n{text}")])
    assert redefined([Cell("page", 0, f"## A section\n\nHere $x$ is large. {text}")])
    all_along = f"In this chapter ${symbol}$ is something else."
    assert not redefined([Cell("page", 0, f"## One\n\n{text}"), Cell("page", 1, all_along)])
    assert redefined([Cell("page", 0, text), Cell("other", 0, all_along)])


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_other_meaning_passes(text):
    assert not redefined([Cell("page", 0, text)])
