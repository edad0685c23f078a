"""The formulas of the chapters, as they stand there.

`place` finds a theorem by its label and `Place.formula` a formula in it, which `Formula.holds`
compares side with side, for the numbers that a check gives to the letters.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.book.tex import FormulaError, Statement, evaluate, plain, statements
from tests.paths import CHAPTERS

THEOREM = re.compile(
    r"^(?P<fence>`{3,})\{prf:(?!proof|lemma)\w+\}[^\n]*\n:label: (?P<label>\S+)\n"
    r"(?P<text>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
FORMULA = re.compile(r"\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^$\n]+)\$", re.DOTALL)


@dataclass(frozen=True)
class Formula:
    """A formula between dollars."""

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
    """What a check reads from: the statement of a theorem. Lemmas and proofs are for readers."""

    label: str
    text: str

    def formulas(self) -> list[Formula]:
        """Return all formulas of the place, in order."""
        return [
            Formula(match[kind], kind == "display")
            for match in FORMULA.finditer(self.text)
            if (kind := match.lastgroup)
        ]

    def formula(self, beginning: str) -> Formula:
        """Return the only formula that begins so, blanks and alignment apart."""
        [formula] = self.beginning(beginning, 1)
        return formula

    def beginning(self, tex: str, count: int) -> list[Formula]:
        """Return the formulas that begin so, of which there are as many as said."""
        formulas = [f for f in self.formulas() if plain(f.tex).startswith(plain(tex))]
        return self._counted(formulas, tex, count)

    def same(self, tex: str) -> Formula:
        """Return the only formula that is this and nothing more."""
        formulas = [f for f in self.formulas() if plain(f.tex) == plain(tex)]
        return self._counted(formulas, tex, 1)[0]

    def display(self) -> Formula:
        """Return the first display of the theorem."""
        displays = [f for f in self.formulas() if f.display]
        return self._counted(displays[:1], "a display", 1)[0]

    def _counted(self, formulas: list[Formula], what: str, count: int) -> list[Formula]:
        if len(formulas) != count:
            raise FormulaError(f"{self.label} has {what!r} {len(formulas)} times, not {count}")
        return formulas


@cache
def book() -> tuple[str, ...]:
    """Return the texts of the cells of all chapters that may have formulas."""
    return tuple(
        "".join(cell["source"])
        for path in sorted(CHAPTERS.glob("*.ipynb"))
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    )


def labels() -> list[str]:
    """Return the labels of all theorems, with propositions and definitions."""
    return [match["label"] for text in book() for match in THEOREM.finditer(text)]


def place(label: str) -> Place:
    """Return the theorem of this label."""
    matches = [match for text in book() for match in THEOREM.finditer(text)]
    [statement] = [match["text"] for match in matches if match["label"] == label]
    return Place(label, statement)
