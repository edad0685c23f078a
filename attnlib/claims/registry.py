"""What a claim is, and the registry of all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from attnlib import scores

SOURCES = {
    "000": "su2023gradient",
    "001": "scores_post",
    "002": "orr2023almost",
    "003": "su2023gradient",
    "004": "dotproduct_post",
}
"""The documents whose statements the ledger carries: their number in this book, and their key in
its bibliography. 000 is the English translation of 003, which adds its readers' comments."""

LIMIT = 6.0
"""A simulation refutes a number that lies this many standard errors away.

By chance 2 in a billion do, so that no seed decides. What is closer, exact numbers tell apart.
"""

ROUNDING = 1e-12
"""Numbers that are equal and were computed in two ways differ by less: some thousand roundings."""

IN_THE_LIMIT = 1e-3
"""What is said of a limit is computed so far out that less than this is left to it."""

ONE_HOT = 0.9
"""The largest weight of a row that is nearly one-hot: the other keys share less than a tenth."""

FADED = 0.5
"""A gradient that is less than half of what it is compared with does not flow as that does."""

TENTH = 0.1
"""What has vanished is less than a tenth of what it was; what is about right is off by less."""


ENTRY = scores.product_moments(0.0, 1.0, 0.0, 1.0)
"""The exact mean and variance of one of the d products that q·k adds up."""


class Verdict(StrEnum):
    """What a check can find."""

    HOLDS = "holds"
    """Proved, or true to rounding or to the resolution of a simulation that could refute it."""
    HOLDS_WITHIN = "holds within"
    """True up to the error and over the range that the evidence gives."""
    NEEDS_A_CONDITION = "needs a condition"
    """True under a condition that the source leaves out, false without it."""
    WRONG = "wrong"
    """False; the evidence gives the correction."""
    OPEN = "open"
    """Evidence for and against."""


class Finding(NamedTuple):
    """What a check returns: the verdict, and the numbers it rests on in a sentence or two."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Claim:
    """A statement of a source, in our words, with its check."""

    id: str
    source: str
    chapter: str
    statement: str
    check: Callable[..., Finding]


@dataclass(frozen=True)
class Outcome:
    """A claim and what its check found."""

    id: str
    source: str
    statement: str
    verdict: str
    evidence: str
    chapter: str


CLAIMS: dict[str, Claim] = {}
"""Every claim by its id."""

Check = Callable[..., Finding]


def claim(
    identifier: str, *, source: str, chapter: str, statement: str
) -> Callable[[Check], Check]:
    """Register the decorated function as the check of a claim. The id must be new."""

    def register(function: Check) -> Check:
        if identifier in CLAIMS:
            raise ValueError(f"identifier must be new, got {identifier!r} a second time")
        if source not in SOURCES:
            raise ValueError(f"source must be one of {sorted(SOURCES)}, got source={source!r}")
        CLAIMS[identifier] = Claim(identifier, source, chapter, statement, function)
        return function

    return register


def reproduced(holds: bool) -> str:
    """Return what the evidence says of a figure."""
    return "Reproduced" if holds else "Not reproduced"


def check(identifier: str) -> Outcome:
    """Run the check of one claim with the source's own constants.

    Raises KeyError for an id that is not in the ledger.
    """
    if identifier not in CLAIMS:
        raise KeyError(f"no claim has the id {identifier!r}; the ledger has {', '.join(CLAIMS)}")
    entry = CLAIMS[identifier]
    finding = entry.check()
    return Outcome(
        entry.id,
        entry.source,
        entry.statement,
        str(finding.verdict),
        finding.evidence,
        entry.chapter,
    )


def check_all() -> list[Outcome]:
    """Run every check, source by source."""
    return [check(entry.id) for entry in sorted(CLAIMS.values(), key=lambda entry: entry.source)]
