"""The checks of the notebooks that take no execution, as one list, each by its name.

A fault that is planted in a copy is caught if a check returns a message.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from nbformat import NotebookNode

from tests.books import ROOT
from tests.notebooks import figures, numeric, pages, rules


class Book(NamedTuple):
    """The committed chapters and pages, in which a copy takes the place of one chapter."""

    chapters: Mapping[str, NotebookNode]
    pages: Mapping[str, pages.Page]


def comparison(book: Book, chapter: str, copy: NotebookNode) -> list[str]:
    """Compare a copy with what a run of its code gives: the committed outputs of equal cells."""
    committed = rules.code_cells(book.chapters[chapter])
    by_id = {(cell.id, cell.source): cell.outputs for cell in committed}
    by_source = {cell.source: cell.outputs for cell in committed}
    found = []
    for number, cell in enumerate(rules.code_cells(copy)):
        fresh = by_id.get((cell.id, cell.source), by_source.get(cell.source))
        if fresh is not None and cell.execution_count is not None:
            found += cell_difference(chapter, number, fresh, cell.outputs)
    return found


def cell_difference(chapter: str, number: int, fresh: list[Any], committed: list[Any]) -> list[str]:
    """Call the comparison that nbval calls; return what it reports."""
    item = SimpleNamespace(
        path=ROOT / "chapters" / f"{chapter}.ipynb",
        config=SimpleNamespace(rootpath=ROOT),
        cell_num=number,
    )
    same = numeric.compare_outputs(item, fresh, committed)
    return [] if same else item.comparison_traceback


Check = Callable[[Book, str, NotebookNode], list[str]]

CHECKS: dict[str, Check] = {
    "comparison": comparison,
    "rules": lambda book, chapter, copy: rules.violations(copy, rules.allowed_tags(chapter)),
    "figures": lambda book, chapter, copy: figures.violations(copy),
    "pages": lambda book, chapter, copy: pages.violations(
        {**book.pages, f"chapters/{chapter}": pages.page(copy)}
    ),
}
"""The checks by the name under which the kinds of faults list them."""
