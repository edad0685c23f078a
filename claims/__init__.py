"""The ledger: every checkable statement of the book's sources, each with the check that decides it.

The check of a claim is one function, named after what the claim says. It takes the constants of
the statement as arguments, with the source's own values as defaults, and its verdict follows from
numbers and stated thresholds. Tests see to it that other constants give another verdict.

One standard for all. A statement is read as it is meant, with every qualifier, and in its source's
own case first: if it is false there it is wrong, even if true elsewhere. It needs a condition if it
is true in one case, part or reading, and false in another that its words cover. So does a slip of
writing: false by its words, true by the source's own formulas or the question that it answers. A
report of something seen once, or in models that we did not run, can be supported, and is open
otherwise. A statement that only a large run decides is not checked here.

Claims on training and on trained heads are decided by the records of `experiments`. Needs sympy.
"""

from claims import gradient, lengths, scales, training, variance
from claims.registry import CLAIMS, SOURCES, Outcome, check, check_all

__all__ = ["CLAIMS", "SOURCES", "Outcome", "check", "check_all"]
__all__ += ["gradient", "lengths", "scales", "training", "variance"]
