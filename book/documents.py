"""Statements of a document, with the verdict of each and where the book decides it."""

import json
import re
from functools import cache
from html import escape
from pathlib import Path

from book.claim_boxes import show

LEDGER = Path(__file__).parents[1] / "chapters" / "claims.ipynb"
BOX = re.compile(r'<p class="claim-title"><strong>([\w ]+)</strong> <code>([\w.-]+)</code>')


@cache
def verdicts() -> dict[str, str]:
    """Return the verdict of each claim by its id, as the executed ledger prints them.

    The ledger is run again by the tests, with all its checks: so no page that lists verdicts has
    to repeat them.
    """
    cells = json.loads(LEDGER.read_text("utf-8"))["cells"]
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    boxes = (BOX.search("".join(one.get("data", {}).get("text/html", ""))) for one in outputs)
    return {box[2]: box[1] for box in boxes if box}


def rows(*sources: str, page: str = "") -> str:
    """Return a table in HTML of the statements of some sources: verdict, statement, place.

    `page` is the chapter in which the table stands; statements decided there have a link to their
    claim without the name of a page.
    """
    from claims.registry import STATEMENTS

    lines = []
    for one in STATEMENTS.values():
        if one.source in sources:
            here = one.chapter == page
            link = f"{'' if here else one.chapter + '.html'}#claim-{escape(one.id)}"
            place = "this chapter" if here else one.chapter.replace("_", " ")
            lines.append(
                f"<tr><td>{escape(verdicts()[one.id])}</td><td>{escape(one.statement)}</td>"
                f'<td><a href="{link}">{place}</a></td></tr>'
            )
    head = "<tr><th>verdict</th><th>statement</th><th>decided in</th></tr>"
    return f'<table class="statements"><thead>{head}</thead><tbody>{"".join(lines)}</tbody></table>'


def statements(*sources: str, page: str = "") -> None:
    """Show every checkable statement of some sources: its verdict, and where it is decided."""
    show(rows(*sources, page=page))
