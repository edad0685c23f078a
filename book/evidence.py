"""The evidence of each headline, as a table of its own, and a table of all."""

from html import escape

from book.claim_boxes import show

HEADINGS = {
    "quantity": "what",
    "pairs": "pairs",
    "chosen": "chosen by looking",
    "differs": "what else differs",
    "among": "comparisons of its kind",
    "against": "what speaks against it",
    "covers": "holds for",
}


def evidence(name: str) -> None:
    """Show what a headline rests on: one row of experiments.evidence.ROWS."""
    from experiments.evidence import ROWS

    row = ROWS[name]()
    fields = {HEADINGS[field]: getattr(row, field) for field in HEADINGS}
    what = fields.pop("what")
    lines = {"what": what, "estimate, 95 %": row.shown(), **fields}
    body = "".join(
        f"<tr><td><strong>{escape(heading)}</strong></td><td>{escape(text)}</td></tr>"
        for heading, text in lines.items()
    )
    show(f'<table class="numbers statements"><tbody>{body}</tbody></table>')


def all_evidence() -> None:
    """Show what each headline measured, its estimate and its pairs, in a line that leads to it."""
    from experiments.evidence import ROWS

    lines = "".join(
        f'<tr><td><a href="#sure-{name}">{escape(row.quantity)}</a></td>'
        f"<td>{escape(row.shown())}</td><td>{escape(row.pairs)}</td></tr>"
        for name, row in ((name, compute()) for name, compute in ROWS.items())
    )
    head = "<tr><th>measured</th><th>estimate, 95 %</th><th>pairs</th></tr>"
    show(f'<table class="numbers statements"><thead>{head}</thead><tbody>{lines}</tbody></table>')
