"""The ledger: every checkable statement of the book's sources, each with the check that decides it.

A claim is one function. It takes the constants of the statement as arguments, with the source's own
values as defaults, and its verdict follows from numbers and stated thresholds. Given other
constants it must reach another verdict, and the tests see to that.

One standard for all. A statement is read as it is meant, with every qualifier, and in its source's
own case first: what is false there is wrong, whatever holds elsewhere. What is true in one case,
part or reading and false in another that its words cover needs a condition. A slip of writing is of
that kind: its words are false, and true as the source's own formulas, or the question that it
answers, have them. A report of what was seen once, or in models that we did not run, can be
supported, and is open otherwise; what only a large run decides is not checked here.

What training and trained heads decide is read from the records of `experiments`. Needs sympy.
"""

from claims import gradient, lengths, scales, training, variance
from claims.registry import CLAIMS, SOURCES, Outcome, check, check_all

__all__ = ["CLAIMS", "SOURCES", "Outcome", "check", "check_all"]
__all__ += ["gradient", "lengths", "scales", "training", "variance"]
