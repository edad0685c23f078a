"""Numbers of a chapter: in its text, and in tables."""

import re
from collections.abc import Iterable
from html import escape
from typing import Self

from IPython import get_ipython
from IPython.display import display
from tabulate import tabulate

GLUED = "application/papermill.record/"
"""What `myst_nb` puts before the type of a glued value."""


def glue(name: str, value: float | str, spec: str = "") -> None:
    """Print `name = value` and make the value available to the text as {glue:text}`name`.

    `value` is formatted with `spec`, as by format(). Outside a notebook it is only printed. The
    output is that of `myst_nb.glue`, whose import would load Sphinx: two seconds a chapter.

    >>> glue("half", 0.5, ".2f")
    half = 0.50
    """
    text = format(value, spec)
    print(f"{name} = {text}")
    if get_ipython() is not None:
        record = {"name": name, "mime_prefix": GLUED}
        content = {f"{GLUED}text/plain": repr(text)}
        display(content, raw=True, metadata={"scrapbook": record})  # type: ignore[no-untyped-call]


class Markup(str):
    """A cell of a `Table` that has other text in HTML.

    >>> Markup("x²", "x<sup>2</sup>").html
    'x<sup>2</sup>'
    """

    def __new__(cls, text: str, html: str) -> Self:
        """Return the text."""
        markup = super().__new__(cls, text)
        markup.html = html
        return markup

    html: str


class Link(Markup):
    """A cell of a `Table` that is a link in HTML.

    >>> link = Link("a thread", "https://example.org/?a=1&b=2")
    >>> print(link, link.html)
    a thread <a href="https://example.org/?a=1&amp;b=2">a thread</a>
    """

    def __new__(cls, text: str, address: str) -> Self:
        """Return the text; its address is in the HTML alone."""
        return super().__new__(cls, text, f'<a href="{escape(address)}">{escape(text)}</a>')


def long_table(name: str, label: str, head: str, rows: str) -> str:
    """Return a long table as HTML, which a script searches and sorts by its `name`."""
    return (
        f'<div class="listing" role="region" aria-label="{label}" tabindex="0">'
        f'<table id="{name}"><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'
    )


def statements_table(rows: Iterable[Iterable[str]], head: str = "") -> str:
    """Return a table of sentences as HTML, from rows of cells and a head that are HTML."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="numbers statements">{head}<tbody>{body}</tbody></table>'


class Table:
    """A table of numbers: HTML in the book and in Jupyter, aligned text elsewhere.

    The headings come first, then each row, cell by cell; the last line of its code cell is the
    table itself. A cell is text, written with the digits that it deserves, or a number, shown as
    Python shows it. Columns of numbers are flush right. `row` raises ValueError for a row of
    another length than the headings. By a `name` a live figure finds it.

    >>> table = Table("law", "n", "mean")
    >>> table.row("normal", 4, f"{0.5:.2f} ± 0.01")
    >>> table.row("cosine", 4096, f"{12.25:.2f} ± 0.30")
    >>> table
    law        n          mean
    normal     4   0.50 ± 0.01
    cosine  4096  12.25 ± 0.30
    """

    def __init__(self, *headings: str, caption: str = "", name: str = "") -> None:
        self.headings = headings
        self.caption = caption
        self.name = name
        self.rows: list[tuple[str, ...]] = []

    def row(self, *cells: object) -> None:
        """Add a row; ValueError unless it has as many cells as there are headings."""
        if len(cells) != len(self.headings):
            raise ValueError(
                f"a row must have {len(self.headings)} cells, one for each heading, "
                f"got {len(cells)}: {cells}"
            )
        self.rows.append(tuple(cell if isinstance(cell, str) else str(cell) for cell in cells))

    def __repr__(self) -> str:
        sides = ["right" if numbers else "left" for numbers in self._numbers()]
        options = {"tablefmt": "plain", "colalign": sides, "disable_numparse": True}
        text = tabulate(self.rows, self.headings, **options)
        return f"{self.caption}\n{text}" if self.caption else str(text)

    def _repr_html_(self) -> str:
        sides, number = self._numbers(), ' class="number"'

        def cells(name: str, attributes: str, line: tuple[str, ...]) -> str:
            html = [cell.html if isinstance(cell, Markup) else escape(cell) for cell in line]
            return "".join(
                f"<{name}{attributes}{number if right else ''}>{cell}</{name}>"
                for cell, right in zip(html, sides, strict=True)
            )

        head = cells("th", ' scope="col"', self.headings)
        body = "".join(f"<tr>{cells('td', '', row)}</tr>\n" for row in self.rows)
        title = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        name = f' id="{escape(self.name)}"' if self.name else ""
        return (
            f'<table class="numbers"{name}>{title}<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}</tbody></table>"
        )

    def _numbers(self) -> list[bool]:
        """Return for each column whether all its cells are numbers or empty."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.headings)
        return [all(map(_is_number, column)) for column in columns]


NOTHING = ("", "—", "∞", "none", "never")
"""What may stand in the place of a number."""

WORDS = re.compile(r"(?<=\d)e[-+]?\d+|\b(?:to|of)\b")
"""What a number may have of letters: an exponent, as in 1e-05, and "1 to 2" or "1 of 2"."""


def _is_number(cell: str) -> bool:
    """Return whether a cell may stand in a column of numbers."""
    if cell in NOTHING:
        return True
    text = WORDS.sub("", cell)
    return any(map(str.isdigit, text)) and not any(map(str.isalpha, text)) and "√" not in text
