"""The ledger: every checkable statement of the book's sources, each with the check that decides it.

A claim is one function. It takes the constants of the statement as arguments, with the source's own
values as defaults, and returns a `Finding` whose verdict follows from numbers and stated
thresholds. Given other constants it must reach another verdict, and the tests see to that.

Nothing is read from outside the package: what the claims on training need of recorded runs, and
those of others of recorded heads, are files beside them. Needs the `claims` extra, sympy.
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
