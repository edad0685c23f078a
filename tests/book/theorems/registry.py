"""Which check goes with which label, and what is changed on the page to see it fail."""

import re
from collections.abc import Callable, Iterator
from functools import cache

from tests.book.formulas import Formula, Place, place
from tests.book.tex import Change, changes, plain

Check = Callable[[Place], None]

TIES: dict[str, Check] = {}
"""The check of each label: of a theorem, of an equation, or `chapter: beginning of a display`."""

UNTESTABLE: dict[str, str] = {}
"""Labels of theorems that no machine can test, and why."""

EQUIVALENT: dict[tuple[str, str], str] = {}
"""Changed formulas of a label, by their beginnings, that are as true as before, and why."""

RESTS = (r"\dots", "O(", "o(")
"""A rest, known by its order only, has no sign, and no factor in its brackets."""


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


def holds(label: str, at: Place) -> bool:
    """Return whether the check of a label passes at a place, which may have been changed."""
    try:
        TIES[label](at)
    except Exception:  # a test that raises anything fails
        return False
    return True


def planted(label: str) -> Iterator[tuple[Formula, Change, Place]]:
    """Change what the check of a label reads, one thing at a time: what, and the new place.

    Changes that leave a statement as true as it was are left out.
    """
    at = place(label)
    for formula in tied_formulas(label):
        for change in changes(formula.tex):
            if not equivalent(label, formula, change):
                yield formula, change, at.changed(formula, change.tex)


def equivalent(label: str, formula: Formula, change: Change) -> bool:
    """Return whether a change is in `EQUIVALENT`, or is one of the sign or factor of a rest."""
    if any(label == of and plain(change.tex).startswith(plain(tex)) for of, tex in EQUIVALENT):
        return True
    before, after = formula.tex[: change.at], formula.tex[change.at + len(change.old) :]
    of_rest = re.match(r"[&\s\\]*(quad\s*)?(" + "|".join(map(re.escape, RESTS)) + ")", after)
    return (change.old in "+-" and bool(of_rest)) or before.endswith(RESTS[1:])
