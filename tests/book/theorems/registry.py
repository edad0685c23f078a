"""Which check goes with which label."""

from collections.abc import Callable
from functools import cache

from tests.book.formulas import Formula, Place, place

Check = Callable[[Place], None]

TIES: dict[str, Check] = {}
"""The check of each label: of a theorem, of an equation, or `chapter: beginning of a display`."""

UNTESTABLE: dict[str, str] = {}
"""Labels of theorems that no machine can test, and why."""


def tied(label: str) -> Callable[[Check], Check]:
    """Tie a check to a label: a theorem's, an equation's, or `chapter: beginning of a display`."""

    def tie(check: Check) -> Check:
        if label in TIES:
            raise ValueError(f"{label!r} has a check already: {TIES[label].__name__}")
        TIES[label] = check
        return check

    return tie


@cache
def tied_formulas(label: str) -> tuple[Formula, ...]:
    """Check the page, and return the formulas that the check of this label reads."""
    at = place(label)
    TIES[label](at)
    return tuple(at.read)
