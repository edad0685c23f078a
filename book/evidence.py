"""The evidence of each headline, as a table of its own, and a table of all."""

from html import escape

from book.claim_boxes import show
from book.values import statements_table

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
    """Show the evidence of a headline, one row of experiments.evidence, as a table."""
    from experiments.evidence import row as compute

    row = compute(name)
    fields = {HEADINGS[field]: getattr(row, field) for field in HEADINGS}
    quantity = fields.pop("what")
    lines = {"what": quantity, "estimate, 95 %": row.estimate, **fields}
    cells = ((f"<strong>{escape(name)}</strong>", escape(text)) for name, text in lines.items())
    show(statements_table(cells))


def all_evidence() -> None:
    """Show the quantity, estimate and pairs of each headline, in a row with a link to it."""
    from experiments.evidence import WORDS
    from experiments.evidence import row as compute

    rows = []
    for name in WORDS:
        row = compute(name)
        link = f'<a href="#sure-{name}">{escape(row.quantity)}</a>'
        rows.append((link, escape(row.estimate), escape(row.pairs)))
    head = "<thead><tr><th>measured</th><th>estimate, 95 %</th><th>pairs</th></tr></thead>"
    show(statements_table(rows, head))
