"""The symbols of the book, as the page notation.md lists them."""

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "chapters" / "notation.md"

ENTRY = re.compile(
    r"^\$(.+)\$\n: \*(.+?)\*(?:: (.+))?\. "
    r'<span lang="zh">(.+)</span> · <span lang="ko">(.+)</span> · \[.+\]\((\w+)\)$',
    re.MULTILINE,
)


class Symbol(NamedTuple):
    """A symbol of the book, in LaTeX, with its names and the chapter that defines it."""

    latex: str
    english: str
    meaning: str
    chinese: str
    korean: str
    chapter: str


def symbols() -> list[Symbol]:
    """Return the symbols in the order of the page."""
    return [Symbol(*found) for found in ENTRY.findall(PAGE.read_text(encoding="utf-8"))]
