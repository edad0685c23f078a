"""The formulas of the chapters, as they stand there.

`place` finds a theorem or an equation by its label and `Place.formula` a formula in it, which
`Formula.holds` compares side with side, for the numbers that a check gives to the letters. What is
read is written down in `Place.read`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from tests.book.tex import FormulaError, Statement, evaluate, plain, statements
from tests.paths import CHAPTERS

THEOREM = re.compile(
    r"^(?P<fence>`{3,})\{prf:(?!proof)\w+\}[^\n]*\n:label: (?P<label>\S+)\n.*?^(?P=fence)$"
    r"(?:\n+^(?P<proof>`{3,})\{prf:proof\}.*?^(?P=proof)$)?",
    re.DOTALL | re.MULTILINE,
)
FORMULA = re.compile(r"\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^$\n]+)\$", re.DOTALL)


class Cell(NamedTuple):
    """The text of a cell in Markdown, and where it is."""

    chapter: str
    number: int
    text: str


@dataclass(frozen=True)
class Formula:
    """A formula between dollars: its TeX, from `start` to `stop` of a cell."""

    chapter: str
    cell: int
    start: int
    stop: int
    tex: str
    display: bool

    def values(self, instead: Mapping[str, str] | None = None, **names: Any) -> list[list[Any]]:
        """Return the values of the sides of each statement, for letters by their `names`.

        What is in `instead` is replaced in the TeX first, and must be in it.
        """
        return [statement.values for statement in self._evaluated(instead or {}, names)]

    def value(self, instead: Mapping[str, str] | None = None, **names: Any) -> Any:
        """Return the right-hand side of the only statement; the left may lack its letters."""
        [statement] = self._evaluated(instead or {}, names, last=True)
        return statement.values[0]

    def holds(
        self,
        instead: Mapping[str, str] | None = None,
        *,
        relative: float = 1e-9,
        absolute: float = 0.0,
        rough: float | None = None,
        **names: Any,
    ) -> None:
        """Assert every relation of every statement: = to `relative`, ≈, ~ and → to `rough`.

        An inequality may be missed by `relative`, for rounding; all by `absolute` besides, and
        what is said to be 0 by 1e-12, for it is a difference of numbers near 1.
        """
        for statement in self._evaluated(instead or {}, names):
            statement.holds(relative, absolute, rough)

    def _evaluated(
        self, instead: Mapping[str, str], names: Mapping[str, Any], *, last: bool = False
    ) -> Iterator[Statement]:
        tex = self.tex
        for old, new in instead.items():
            if old not in tex:
                raise FormulaError(f"{old!r} is not in {tex!r}")
            tex = tex.replace(old, f" {new} ")
        for statement in statements(tex):
            yield evaluate(statement, names, last=last)


@dataclass(frozen=True)
class Place:
    """What a check reads from: a theorem and the displays of its proof, or the cell of an equation.

    The steps that a proof takes within a line are left to readers.
    """

    label: str
    cell: Cell
    start: int
    stop: int
    proof: int  # where the proof starts
    shown: int | None = None  # where the labelled equation starts
    read: list[Formula] = field(default_factory=list, compare=False)

    def formulas(self) -> list[Formula]:
        """Return all formulas of the place, in order."""
        return [
            formula
            for formula in formulas(self.cell)
            if self.start <= formula.start and formula.stop <= self.stop
            if formula.display or formula.start < self.proof
        ]

    def formula(self, beginning: str) -> Formula:
        """Return the only formula that begins so, blanks and alignment apart."""
        [found] = self.beginning(beginning, 1)
        return found

    def beginning(self, tex: str, count: int) -> list[Formula]:
        """Return the formulas that begin so, of which there are as many as said."""
        found = [one for one in self.formulas() if plain(one.tex).startswith(plain(tex))]
        return self._noted(found, tex, count)

    def same(self, tex: str) -> Formula:
        """Return the only formula that is this and nothing more."""
        found = [one for one in self.formulas() if plain(one.tex) == plain(tex)]
        return self._noted(found, tex, 1)[0]

    def display(self) -> Formula:
        """Return the equation with the label, or the first display of a theorem."""
        shown = [
            one
            for one in self.formulas()
            if one.start == self.shown or (self.shown is None and one.display)
        ]
        return self._noted(shown[:1], "a display", 1)[0]

    def _noted(self, found: list[Formula], what: str, count: int) -> list[Formula]:
        if len(found) != count:
            raise FormulaError(f"{self.label} has {what!r} {len(found)} times, not {count} times")
        self.read.extend(formula for formula in found if formula not in self.read)
        return found


@cache
def book() -> tuple[Cell, ...]:
    """Return the cells of all chapters that may have formulas."""
    return tuple(
        Cell(path.stem, number, "".join(cell["source"]))
        for path in sorted(CHAPTERS.glob("*.ipynb"))
        for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"])
        if cell["cell_type"] == "markdown"
    )


def formulas(cell: Cell) -> Iterator[Formula]:
    """Return the formulas of a cell, in order."""
    for match in FORMULA.finditer(cell.text):
        kind = match.lastgroup or ""
        yield Formula(
            cell.chapter,
            cell.number,
            match.start(kind),
            match.end(kind),
            match[kind],
            kind == "display",
        )


def displays() -> list[Formula]:
    """Return all formulas of the book that stand on lines of their own."""
    return [formula for cell in book() for formula in formulas(cell) if formula.display]


def labels() -> list[str]:
    """Return the labels of all theorems, with propositions, lemmas and definitions."""
    return [match["label"] for cell in book() for match in THEOREM.finditer(cell.text)]


def place(label: str) -> Place:
    """Return the theorem or the equation of this label, or `chapter: beginning of a display`."""
    found = [one for cell in book() for one in _places(label, cell)]
    if len(found) != 1:
        raise FormulaError(f"{len(found)} places have the label {label!r}")
    return found[0]


def _places(label: str, cell: Cell) -> Iterator[Place]:
    for match in THEOREM.finditer(cell.text):
        if match["label"] == label:
            proof = match.start("proof") if match["proof"] else match.end()
            yield Place(label, cell, match.start(), match.end(), proof)
    chapter, _, beginning = label.partition(": ")
    for formula in formulas(cell):
        named = cell.text[formula.stop :].startswith(f"$$ ({label})")
        begins = cell.chapter == chapter and plain(formula.tex).startswith(plain(beginning))
        if formula.display and (named or (beginning and begins)):
            yield Place(label, cell, 0, len(cell.text), len(cell.text), formula.start)
