"""Which check goes with which label, and what no check can see."""

from collections.abc import Callable, Iterator

from tests.book.formulas import Change, Formula, Place, changes, place

Check = Callable[[Place], None]

TIES: dict[str, Check] = {}
"""The check of each label: of a theorem, of an equation, or `chapter: beginning of a display`."""

UNTESTABLE: dict[str, str] = {}
"""Labels of theorems that no machine can test, and why."""

EQUIVALENT = {
    r"\dots": "a rest, known by its order only, has no sign",
    "O(": "a rest, known by its order only, has no sign and no factor",
    "o(": "a rest, known by its order only, has no sign and no factor",
}
"""What makes a change equivalent: the sign stands before it, or it has the number in brackets."""


def tied(label: str) -> Callable[[Check], Check]:
    """Tie a check to a label: a theorem's, an equation's, or `chapter: beginning of a display`."""

    def tie(check: Check) -> Check:
        if label in TIES:
            raise ValueError(f"{label!r} has a check already: {TIES[label].__name__}")
        TIES[label] = check
        return check

    return tie


def holds(label: str, at: Place) -> bool:
    """Return whether the check of a label passes at a place, which may have been changed."""
    try:
        TIES[label](at)
    except Exception:  # a test that raises anything fails
        return False
    return True


def tied_formulas(label: str) -> list[Formula]:
    """Return the formulas that the check of a label reads."""
    at = place(label)
    TIES[label](at)
    return at.read


def planted(label: str) -> Iterator[tuple[Formula, Change, Place]]:
    """Change what the check of a label reads, in one place at a time: what, and the new place.

    Changes that are equivalent are left out.
    """
    at = place(label)
    for formula in tied_formulas(label):
        for change in changes(formula.tex):
            if not _equivalent(formula.tex, change):
                yield formula, change, at.changed(formula, change.tex)


def _equivalent(tex: str, change: Change) -> bool:
    after = tex[change.at :].lstrip("+-& \\\n").removeprefix("quad")
    before = tex[: change.at]
    rest = any(after.startswith(sign.lstrip("\\")) for sign in EQUIVALENT)
    within = any(before.rstrip().endswith(sign) for sign in ("O(", "o("))
    return (rest and tex[change.at] in "+-") or within
