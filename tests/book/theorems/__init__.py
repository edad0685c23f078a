"""The theorems and the displayed formulas of the chapters, each tied to a check by its label.

A check gets the place of the label and reads its formulas from the page (`tests.book.formulas`).
`TIES` has them all, once the modules with the checks are imported, which this package does.
"""

from tests.book.theorems import audit, decoders, exact, freezing, laws, needle, normal, output, rows
from tests.book.theorems.registry import (
    EQUIVALENT,
    TIES,
    UNTESTABLE,
    failing,
    holds,
    in_chapter,
    planted,
    tied_formulas,
)

__all__ = [
    "EQUIVALENT",
    "TIES",
    "UNTESTABLE",
    "audit",
    "decoders",
    "exact",
    "failing",
    "freezing",
    "holds",
    "in_chapter",
    "laws",
    "needle",
    "normal",
    "output",
    "planted",
    "rows",
    "tied_formulas",
]
