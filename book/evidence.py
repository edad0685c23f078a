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
    """Show what a headline rests on: one row of experiments.evidence."""
    from experiments.evidence import row as compute

    row = compute(name)
    fields = {HEADINGS[field]: getattr(row, field) for field in HEADINGS}
    what = fields.pop("what")
    lines = {"what": what, "estimate, 95 %": row.estimate, **fields}
    body = "".join(
        f"<tr><td><strong>{escape(heading)}</strong></td><td>{escape(text)}</td></tr>"
        for heading, text in lines.items()
    )
    show(f'<table class="numbers statements"><tbody>{body}</tbody></table>')


def all_evidence() -> None:
    """Show what each headline measured, its estimate and its pairs, in a line that leads to it."""
    from experiments.evidence import WORDS
    from experiments.evidence import row as compute

    lines = "".join(
        f'<tr><td><a href="#sure-{name}">{escape(row.quantity)}</a></td>'
        f"<td>{escape(row.estimate)}</td><td>{escape(row.pairs)}</td></tr>"
        for name, row in ((name, compute(name)) for name in WORDS)
    )
    head = "<tr><th>measured</th><th>estimate, 95 %</th><th>pairs</th></tr>"
    show(f'<table class="numbers statements"><thead>{head}</thead><tbody>{lines}</tbody></table>')
