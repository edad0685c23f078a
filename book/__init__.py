"""The book: what makes the site of the chapters, the printed book and the live figures.

A chapter begins with `import book` and `book.set_style()`: one style of figures (`style`), tables
and numbers for the text (`values`), the boxes of the checked claims (`claim_boxes`). The other
modules are the maintainer's: each says in its first line what it makes.
"""

from book.claim_boxes import claim_box, counts, ledger
from book.documents import statements
from book.evidence import all_evidence, evidence
from book.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    PALETTE,
    PURPLE,
    VERMILLION,
    figure,
    readings,
    set_style,
)
from book.values import Link, Table, glue
from experiments.lab.comparison import power_of_two

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "INK",
    "PALETTE",
    "PURPLE",
    "VERMILLION",
    "Link",
    "Table",
    "all_evidence",
    "claim_box",
    "counts",
    "evidence",
    "figure",
    "glue",
    "ledger",
    "power_of_two",
    "readings",
    "set_style",
    "statements",
]
