"""Which check goes with which theorem."""

from collections.abc import Callable

from tests.book.formulas import Place

Check = Callable[[Place], None]

TIES: dict[str, Check] = {}
"""The check of each label of a theorem."""

UNTESTABLE: dict[str, str] = {}
"""Labels of theorems that no machine can test, and why."""


def tied(label: str) -> Callable[[Check], Check]:
    """Tie a check to the label of a theorem."""

    def tie(check: Check) -> Check:
        if label in TIES:
            raise ValueError(f"{label!r} has a check already: {TIES[label].__name__}")
        TIES[label] = check
        return check

    return tie
