"""The ledger: every checkable statement of the book's sources, each with the check that decides it.

A claim is one function. It takes the constants of the statement as arguments, with the source's own
values as defaults, and its verdict follows from numbers and stated thresholds. Given other
constants it must reach another verdict, and the tests see to that.

What training and trained heads decide is read from the records of `experiments`. Needs sympy.
"""

from ledger import gradient, heads, jacobian, output, scales, training, variance
from ledger.registry import (
    CLAIMS,
    SOURCES,
    Claim,
    Finding,
    Outcome,
    Verdict,
    check,
    check_all,
)

__all__ = [
    "CLAIMS",
    "SOURCES",
    "Claim",
    "Finding",
    "Outcome",
    "Verdict",
    "check",
    "check_all",
    "gradient",
    "heads",
    "jacobian",
    "output",
    "scales",
    "training",
    "variance",
]
