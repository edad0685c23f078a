"""Checked claims, shown as boxes: in their chapters, and all together in the ledger."""

from collections import Counter
from html import escape
from typing import TYPE_CHECKING

from IPython.display import display

from book.values import Table

if TYPE_CHECKING:
    from claims import Outcome


def claim_box(*identifiers: str) -> None:
    """Check the claims with these ids and show a line for each, with a link to the ledger.

    A verdict is what the check returns when the cell runs. Raises KeyError for an unknown id.
    """
    import claims  # with sympy: seconds, for what only makes the site

    for identifier in identifiers:
        show(line_html(claims.check(identifier)))


def ledger(outcomes: list["Outcome"], source: str) -> None:
    """Show the checked claims of one source as boxes, each with a link to its chapter."""
    for outcome in outcomes:
        if outcome.source == source:
            show(box_html(outcome))


GROUPS = {
    "true": ("holds", "holds within", "extended"),
    "on a condition": ("needs a condition",),
    "wrong": ("wrong",),
    "open": ("open", "answered", "not checked here"),
}
"""The verdicts that the table of the sources counts together."""


def counts(outcomes: list["Outcome"]) -> Table:
    """Return a table of the sources: how many claims of each got which verdicts."""
    from claims import SOURCES

    table = Table("source", "on", "claims", *GROUPS)
    for source in sorted({o.source for o in outcomes}):
        tally = Counter(o.verdict for o in outcomes if o.source == source)
        counted = (sum(tally[verdict] for verdict in verdicts) for verdicts in GROUPS.values())
        table.row(source, SOURCES[source].name, tally.total(), *(count or "" for count in counted))
    return table


def show(html: str) -> None:
    """Show HTML as the output of a cell."""
    display({"text/html": html}, raw=True)  # type: ignore[no-untyped-call]


def title_html(outcome: "Outcome") -> str:
    """Return the verdict and the id of a claim as HTML."""
    return f"<strong>{escape(outcome.verdict)}</strong> <code>{escape(outcome.id)}</code>"


def line_html(outcome: "Outcome") -> str:
    """Return a checked claim as one line of HTML, with a link to its evidence in the ledger."""
    o = outcome
    return (
        f'<p class="claim claim-{o.verdict.replace(" ", "-")}" id="claim-{escape(o.id)}">'
        f'<span class="claim-title">{title_html(o)}</span> {escape(o.statement)} '
        f'<a href="claims.html#claim-{escape(o.id)}">The evidence.</a></p>'
    )


def box_html(outcome: "Outcome") -> str:
    """Return a checked claim as HTML: the statement, its place, verdict, evidence, chapter."""
    o = outcome
    page = f"{o.chapter}.html" + ("" if o.address else f"#claim-{escape(o.id)}")
    language = f' lang="{"ko" if o.source == "004" else "zh"}"' if o.translation else ""
    quote = f" <q{language}>{escape(o.quote)}</q>" if o.quote else ""
    translation = f" ({escape(o.translation)})" if o.translation else ""
    place = f'<a href="{o.address}">{escape(o.place)}</a>' if o.address else escape(o.place)
    return (
        f'<div class="claim claim-{o.verdict.replace(" ", "-")}" id="claim-{escape(o.id)}">'
        f'<p class="claim-title">{title_html(o)}</p><p>{escape(o.statement)}</p>'
        f'<p class="claim-place">Source {escape(o.source)}, {place}'
        f"{':' if quote else '.'}{quote}{translation}</p>"
        f'<p class="claim-evidence">{escape(o.evidence)} '
        f'<a href="{page}">In chapter {escape(o.chapter)}.</a></p></div>'
    )
