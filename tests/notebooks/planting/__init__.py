"""Faults planted in a copy of a chapter, to see whether they are caught.

A kind of fault is a function that changes a notebook somewhere, drawn with the generator that it is
given, and returns the fault, or None where the chapter has no place for it. It is listed with the
check that must catch it:

comparison    the comparison of outputs with those of a fresh run (`numeric`)
rules         what a committed chapter must be (`rules`)
figures       what its figures must have (`figures`)
pages         what the Markdown of the pages must be (`pages`)
execution     the comparison, once the changed code has run

Two kinds have exhaustive tests of their own: a digit of each number in the text (`test_prose`), and
a sign, a number or a fraction of each formula that a check reads (`tests/book/test_theorems.py`).

No machine catches a wrong word in prose, a reference to the wrong theorem, a paragraph that is gone
or in another place, two glued values exchanged in a sentence, or changed code of which the page
shows nothing. These are not among the kinds.
"""

from tests.notebooks.planting import code, markdown, metadata, outputs, structure
from tests.notebooks.planting.faults import KINDS

__all__ = ["KINDS", "code", "markdown", "metadata", "outputs", "structure"]
