"""Checked claims, shown as boxes: in their chapters, and all together in the ledger."""

from html import escape
from typing import TYPE_CHECKING

from IPython.display import display

if TYPE_CHECKING:
    from ledger import Outcome


def claim_box(*identifiers: str) -> None:
    """Check the claims with these ids and show each: statement, its place, verdict, evidence.

    A verdict is what the check returns when the cell runs. Raises KeyError for an unknown id.
    """
    import ledger as claims  # with sympy: seconds, for what only makes the site

    for identifier in identifiers:
        show(box(claims.check(identifier)))


def ledger(outcomes: list["Outcome"], source: str) -> None:
    """Show the checked claims of one source as boxes, each with a link to its chapter."""
    for outcome in outcomes:
        if outcome.source == source:
            show(box(outcome, linked=True))


def show(html: str) -> None:
    """Show HTML as the output of a cell."""
    display({"text/html": html}, raw=True)  # type: ignore[no-untyped-call]


def box(outcome: "Outcome", *, linked: bool = False) -> str:
    """Return a checked claim as HTML, with a link to its chapter if it is `linked`."""
    o = outcome
    kind = o.verdict.replace(" ", "-")
    page = f"{o.chapter}.html#claim-{escape(o.id)}"
    link = f' <a href="{page}">In chapter {escape(o.chapter)}.</a>' if linked else ""
    language = f' lang="{"ko" if o.source == "004" else "zh"}"' if o.translation else ""
    quote = f" <q{language}>{escape(o.quote)}</q>" if o.quote else ""
    translation = f" ({escape(o.translation)})" if o.translation else ""
    return (
        f'<div class="claim claim-{kind}" id="claim-{escape(o.id)}">'
        f'<p class="claim-title"><strong>{escape(o.verdict)}</strong> '
        f"<code>{escape(o.id)}</code></p>"
        f"<p>{escape(o.statement)}</p>"
        f'<p class="claim-place">Source {escape(o.source)}, {escape(o.place)}'
        f"{':' if quote else '.'}{quote}{translation}</p>"
        f'<p class="claim-evidence">{escape(o.evidence)}{link}</p></div>'
    )
