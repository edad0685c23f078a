"""Where the chapters say what a symbol is, in words or by an equation, and whether it is that.

`meanings.toml` has for each symbol of the notation list the words that it may be called by and what
it may equal. Another meaning needs a sentence that says "here", for the rest of its section, or "in
this chapter".
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.book.formulas import Cell, Formula, formulas

_LISTS = tomllib.loads((Path(__file__).parent / "meanings.toml").read_text(encoding="utf-8"))
KINDS = _LISTS.pop("kinds")
MEANINGS = _LISTS

NAME = r"(?:\\[A-Za-z]+|[A-Za-z])"
ALONE = re.compile(rf"\s*({NAME})\s*(?:\(({NAME})\))?\s*(?::?=|\\in|\\sim|\\ge|\\le|[<>]|$)")
EQUATION = re.compile(rf"\s*({NAME})\s*(?:\({NAME}\))?\s*:?=\s*(.+)", re.DOTALL)
STATEMENTS = re.compile(r"\\\\|\\quad|\\qquad|\\text\{[^}]*\}|\\(?:begin|end)\{aligned\}")
NUMBER = re.compile(r"(\\(frac|tfrac|sqrt|dots|approx|cdot|infty|pi|log|,)|[\d.,+\-*/^{}()\s]|e)*")

KIND = rf"((?:[\w'’-]+ )?(?:{'|'.join(KINDS)})(?:e?s)?)"
BEFORE = re.compile(rf"\b{KIND} \$$", re.IGNORECASE)
AFTER = re.compile(
    rf"^\$,? (?:(?:is|be|are|denotes|for|as) )?(?:here )?(?:an?|the) (?:[\w'’-]+ ){{0,2}}?{KIND}\b"
)
LED = re.compile(r"\b(?:let|with|where|write|call|calls|and) \$$", re.IGNORECASE)
IS = re.compile(r"^\$ (?:is|denotes) (?:here )?(?:the|a|an) ")
OF_A_LAW = re.compile(r"^\$ (?:be |is )?((?:exponential|normal|uniform)(?:ly distributed)?)\b")
OPERATOR = re.compile(r"\\(?:operatorname|text|label|mathcal|begin|end)\s*(?:\{[^}]*\}|[A-Z])")
HEADING = re.compile(r"^#{1,3} ", re.MULTILINE)
SENTENCE = re.compile(r"(?<=[.?!:])\s+(?=[A-Z*$`(])|\n\n+|\n(?=- )|^`{3,}.*$|^:.*$", re.MULTILINE)
HERE = re.compile(r"\bhere\b", re.I)
CHAPTER = re.compile(r"\bin this chapter\b", re.I)


class Introduction(NamedTuple):
    """A place where a symbol is said to be something."""

    cell: Cell
    at: int
    symbol: str
    called: str
    """By these words, or"""
    equal: str
    """by this right-hand side of an equation, or"""
    used: str = ""
    """used so."""

    def __str__(self) -> str:
        said = f"called {self.called!r}" if self.called else f"= {self.equal}"
        if self.used:
            said = f"in ${self.used}$"
        return f"{self.cell.chapter}, cell {self.cell.number}: ${self.symbol}$ {said}"

    @property
    def known(self) -> bool:
        """Whether it is the meaning of the list, or a value."""
        meaning = MEANINGS[self.symbol]
        if self.used:
            return False
        if self.called:
            return any(re.search(rf"\b{word}", self.called, re.I) for word in meaning["called"])
        if NUMBER.fullmatch(self.equal):
            return True
        return any(re.search(form, self.equal) for form in meaning["equal"])


def introductions(cell: Cell) -> Iterator[Introduction]:
    """Return where a cell says what a symbol of the list is."""
    for formula in formulas(cell):
        yield from _equations(cell, formula)
        yield from _uses(cell, formula)
        if not formula.display:
            yield from _words(cell, formula)


def _equations(cell: Cell, formula: Formula) -> Iterator[Introduction]:
    for part in STATEMENTS.split(formula.tex.replace("&", "")):
        match = EQUATION.match(part)
        if match and match[1] in MEANINGS:
            first = re.split(r"(?<![<>:])=", match[2])[0]
            yield Introduction(cell, formula.start, match[1], "", " ".join(first.split()))


def _uses(cell: Cell, formula: Formula) -> Iterator[Introduction]:
    plain = OPERATOR.sub(" ", formula.tex)
    for symbol, meaning in MEANINGS.items():
        if any(re.search(use, plain) for use in meaning.get("never", [])):
            yield Introduction(cell, formula.start, symbol, "", "", " ".join(formula.tex.split()))


def _words(cell: Cell, formula: Formula) -> Iterator[Introduction]:
    alone = ALONE.match(formula.tex)
    if alone is None or alone[1] not in MEANINGS:
        return
    before = " ".join(cell.text[max(0, formula.start - 80) : formula.start].split())
    after = " ".join(cell.text[formula.stop : formula.stop + 80].split())
    found = [match[1] for match in [BEFORE.search(before)] if match and after[:7] != "$ times"]
    if alone.end() == len(formula.tex):
        led = LED.search(before)
        if led or IS.match(after):
            found += [match[1] for match in [AFTER.match(after)] if match]
        if led:
            found += [match[1] for match in [OF_A_LAW.match(after)] if match]
    for words in found:
        yield Introduction(cell, formula.start, alone[1], words, "")


def freed(cells: Iterable[Cell]) -> dict[str, set[str]]:
    """Return the symbols that mean something else in a whole chapter, which says so."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        for sentence in SENTENCE.split(cell.text):
            if CHAPTER.search(sentence):
                found.setdefault(cell.chapter, set()).update(_in(sentence))
    return found


def redefined(cells: Iterable[Cell]) -> list[Introduction]:
    """Return where a symbol is something else, and no sentence says "here" or "in this chapter"."""
    cells = list(cells)
    free = freed(cells)
    faults: list[Introduction] = []
    section: set[str] = set()
    chapter = ""
    for cell in cells:
        if cell.chapter != chapter:
            section, chapter = set(), cell.chapter
        events: list[tuple[int, int, Introduction | set[str]]] = [
            *((match.start(), 0, set()) for match in HEADING.finditer(cell.text)),
            *((at, 1, _in(sentence)) for at, sentence in _sentences(cell.text)),
            *((one.at, 2, one) for one in introductions(cell)),
        ]
        for _, kind, what in sorted(events, key=lambda event: event[:2]):
            if kind == 0:
                section = set()
            elif isinstance(what, set):
                section = section | what
            elif not what.known and what.symbol not in section | free.get(chapter, set()):
                faults.append(what)
    return faults


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Return the sentences that say "here", and where they begin."""
    begin = 0
    for end in [*SENTENCE.finditer(text), None]:
        sentence = text[begin : end.start() if end else len(text)]
        if HERE.search(sentence):
            yield begin, sentence
        begin = end.end() if end else begin


def _in(sentence: str) -> set[str]:
    """Return the symbols of the list that formulas of a sentence begin with."""
    found = (ALONE.match(formula.tex) for formula in formulas(Cell("", 0, sentence)))
    return {match[1] for match in found if match and match[1] in MEANINGS}
