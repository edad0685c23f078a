"""Statements of a document, each with its verdict and the chapter that decides it."""

import json
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from book.claim_boxes import show
from book.values import statements_table

CHAPTERS = Path(__file__).parents[1] / "chapters"
BOX = re.compile(r'<p class="claim-title"><strong>([\w ]+)</strong> <code>([\w.-]+)</code>')


@cache
def verdicts() -> dict[str, str]:
    """Return the verdict of each claim by its id, as the executed ledger prints them.

    The tests run the ledger again, with all its checks, so that pages with verdicts need not.
    """
    outputs = (output for cell in cells("claims") for output in cell.get("outputs", []))
    boxes = (BOX.search("".join(o.get("data", {}).get("text/html", ""))) for o in outputs)
    return {box[2]: box[1] for box in boxes if box}


@cache
def short_title(page: str) -> str:
    """Return the title of a chapter up to its first colon or question mark."""
    heading: str = cells(page)[0]["source"][0]
    return re.match(r"# ([^:?\n]*\??)", heading)[1]  # type: ignore[index]


def cells(page: str) -> list[dict[str, Any]]:
    """Return the cells of a chapter."""
    notebook = json.loads((CHAPTERS / f"{page}.ipynb").read_text("utf-8"))
    return list(notebook["cells"])


def statements(*sources: str, page: str = "") -> None:
    """Show the checkable statements of some sources: the verdict of each, and where it is decided.

    `page` is the chapter in which the table stands: its statements are decided in "this chapter".
    """
    from claims.registry import STATEMENTS

    rows = []
    for statement in STATEMENTS.values():
        if statement.source in sources:
            on_page = statement.chapter == page
            link = f"{'' if on_page else statement.chapter + '.html'}#claim-{escape(statement.id)}"
            place = "this chapter" if on_page else escape(short_title(statement.chapter))
            sentence = escape(statement.statement)
            verdict = escape(verdicts()[statement.id])
            rows.append((verdict, sentence, f'<a href="{link}">{place}</a>'))
    columns = ("verdict", "statement", "decided in")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    show(statements_table(rows, f"<thead><tr>{head}</tr></thead>"))
