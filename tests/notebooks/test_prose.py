"""Every number in the text of the book is proved, and a wrong digit is not."""

import re

import pytest
from nbformat.v4 import new_code_cell, new_output

from tests.notebooks.prose import (
    Page,
    Piece,
    Scope,
    constants,
    covers,
    numbers,
    pages,
    proof,
    read,
    unproved,
)

PAGES = {page.name: page for page in map(Page, pages())}
BOOK = [(page, number) for page in PAGES.values() for p in page.pieces for number in numbers(p)]


@pytest.mark.parametrize("name", PAGES)
def test_every_number_is_proved(name):
    assert not unproved(PAGES[name])


@pytest.mark.parametrize("digits", ["27"])
def test_a_wrong_last_digit_is_caught(digits):
    """Of all numbers with these for their last digits at least 95 in 100 are caught."""
    passes = [passed(*one, digit) for digit in digits for one in BOOK]
    planted = [found for found in passes if found is not None]
    assert sum(planted) < 0.05 * len(planted)


def passed(page, number, digit):
    """Return whether a number with this last digit passes; None if it is the right one.

    Caught are a number that nothing proves, and a text that is listed or tied and no longer there.
    """
    piece, listed = number.piece, constants(page.name)
    place = last_digit(number)
    if digit == piece.source[place]:
        return None
    texts = [*(listed.keys() - constants("no page").keys()), *piece.ties.values()]
    if any(covers(number, text) is not None and occurrences(page, text) == 1 for text in texts):
        return False
    source = piece.source[:place] + digit + piece.source[place + 1 :]
    planted = piece._replace(source=source, read=read(source))
    seen = [other for other in numbers(planted) if other.start <= place < other.end]
    return not seen or proof(page, seen[0], listed)


def occurrences(page, text):
    return sum(piece.source.count(text) for piece in page.pieces)


def last_digit(number):
    """Return the place of the last digit: of an exponent, else of the number before its error."""
    if number.value.power:
        return number.end - len(re.search(r"\D*$", number.text)[0]) - 1
    return (
        number.start + re.match(r"[-−]?\d[\d.]*(?:[^\d.]{1,3}\d{3}(?!\d))*", number.text).end() - 1
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It grows by 0.34 ± 0.01 in $n = 512$ keys.", ["0.34 ± 0.01", "512"]),
        ("Of 12 rows, 5 % and 10,000 and 3 thousand.", ["12", "5 %", "10,000", "3 thousand"]),
        (
            r"up to $10^{-6}$, $2^{24}$, 10⁷ and 2 to the 9",
            ["10^{-6}", "2^{24}", "10⁷", "2 to the 9"],
        ),
        (r"$H \approx \log n - \frac12\alpha^2$ and $\sqrt{2\log n}$ or √(2 log n), 1/√3", []),
        (r"At $\alpha = 1$ and 0. Source 003 of 2023, `x = 7`, [see 4](page5), {eq}`eq-6`", ["4"]),
        ("GPT-2, H₂ and x1; Llama 4", ["4"]),
    ],
)
def test_numbers_are_read(text, expected):
    assert [number.text for number in numbers(Piece("a cell", text, read(text)))] == expected


def scope(printed, source="x"):
    output = new_output("stream", name="stdout", text=printed)
    return Scope([new_code_cell(source, outputs=[output])])


@pytest.mark.parametrize(
    ("typed", "printed", "source", "proved"),
    [
        ("2.3", "2.31", "x", True),
        ("2.31", "2.3", "x", False),  # more digits than are printed
        ("2.3", "2.31 2.42", "x", False),  # 2.4 is printed beside it
        ("37 %", "0.367", "x", True),
        ("0.34 ± 0.02", "0.34 ± 0.01 and 0.34, 0.02", "x", False),
        ("0.34", "", "x = 0.341", False),  # code is exact
        ("from 2 to 7", "2 3 7 8", "set(xlim=(2, 8))", False),
        (r"$\rho = 0.5$", "0.4 0.5", "ρ = 0.5", True),
        ("$10^6$", "", "(10**6, 10**7)", False),
    ],
)
def test_a_number_is_found_or_not(typed, printed, source, proved):
    number = numbers(Piece("a cell", typed, read(typed)))[0]
    assert scope(printed, source).proves(number, [-1, 1]) == proved
