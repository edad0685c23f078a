"""Define claims, and register the check of each.

The words of a claim stand in `statements.toml` beside this file: its statement, its place in the
source, its evidence. A check computes a verdict and numbers, no words.
"""

import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import wraps
from importlib.resources import files
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Source(NamedTuple):
    """A document with statements that the ledger checks."""

    key: str
    """In this book's bibliography."""
    name: str
    address: str = ""
    """Where the text can be had, of a source that no chapter follows."""


class Tolerance:
    """The thresholds of the checks: words in numbers, unless the evidence gives others."""

    ROUNDING = 1e-12
    """Equal numbers, computed in two ways, differ by less: a thousand roundings."""
    IN_THE_LIMIT = 1e-3
    """A limit is computed so far out that the distance from it is smaller."""
    HUNDREDTH = 0.01
    """The exponent of a power law is off by less, measured where the law is reached."""
    CLOSE = 0.05
    """A good fit errs by less, and curves that differ by less count as one."""
    TENTH = 0.1
    """"About right" errs by less; "vanished" is a smaller share of the former size."""
    FIFTH = 0.2
    """A number close to a rule, or of about its size, is off by less."""
    HALF = 0.5
    """Most are more than half; "fades" and "falls short" leave less than half."""
    NINE_TENTHS = 0.9
    """A row is nearly one-hot, and a range is covered, from this weight or share on."""


class Verdict(StrEnum):
    """What a check finds of a statement, read as it is meant, with every qualifier."""

    HOLDS = "holds"
    """Proved, or true to rounding or to the resolution of a simulation that could refute it."""
    HOLDS_WITHIN = "holds within"
    """True up to the error and over the range that the evidence gives."""
    EXTENDED = "extended"
    """True as it is meant; what the evidence adds is ours, and corrects nothing."""
    NEEDS_A_CONDITION = "needs a condition"
    """True under a condition that the source leaves out, or in a part or reading; false without."""
    WRONG = "wrong"
    """False in the source's own case; the evidence gives the correction."""
    OPEN = "open"
    """The evidence does not decide it."""
    NOT_CHECKED = "not checked here"
    """Only a run that is too large for this book decides it; the evidence says which."""
    ANSWERED = "answered"
    """A question, which can be neither true nor false; the evidence answers it."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a source says, in our words, and the place where it says so."""

    id: str
    source: str
    chapter: str
    place: str
    statement: str
    quote: str = ""
    """Where the wording decides: the few words themselves, in the source's own language."""
    translation: str = ""
    """Of a quote that is not English: ours."""
    address: str = ""
    """Where the text can be had, of a source that no chapter follows."""


@dataclass(frozen=True, kw_only=True)
class Outcome(Statement):
    """A statement and what its check found."""

    verdict: str
    evidence: str
    """The numbers that the verdict rests on, in a sentence or two."""


_WORDS = tomllib.loads(files("claims").joinpath("statements.toml").read_text("utf-8"))
SOURCES = {number: Source(**source) for number, source in _WORDS.pop("sources").items()}
"""The sources, by number."""
EVIDENCE: dict[str, str] = {}
"""The evidence for each statement, a template for the numbers of its check."""
STATEMENTS: dict[str, Statement] = {}
"""Every statement by its id."""
for _number, _chapters in _WORDS.items():
    for _chapter, _statements in _chapters.items():
        for _id, _words in _statements.items():
            EVIDENCE[_id] = _words.pop("evidence")
            _place = {"source": _number, "chapter": _chapter, "address": SOURCES[_number].address}
            STATEMENTS[_id] = Statement(id=_id, **_place, **_words)

CLAIMS: dict[str, Callable[..., Outcome]] = {}
"""The check of every claim by its id."""

Decision = tuple[Verdict, Mapping[str, Any]]
"""A verdict, and the numbers that the template of the evidence names."""
Check = Callable[..., Decision]


def claim(identifier: str, **constants: Any) -> Callable[[Check], Check]:
    """Register the decorated function as the check of a statement; ValueError if it has one.

    `constants` are those of the source where they differ from the function's defaults. The template
    of the evidence may name the numbers that the check returns, its arguments, and constants of its
    module.
    """

    def register(function: Check) -> Check:
        if identifier in CLAIMS:
            raise ValueError(f"identifier must be new, got {identifier!r} a second time")
        if identifier not in STATEMENTS:
            raise ValueError(f"identifier must be in statements.toml, got {identifier!r}")

        @wraps(function)
        def check(**arguments: Any) -> Outcome:
            bound = signature(function).bind(**{**constants, **arguments})
            bound.apply_defaults()
            verdict, numbers = function(**bound.arguments)
            fields = ChainMap(dict(numbers), bound.arguments, function.__globals__)
            evidence = EVIDENCE[identifier].format_map(fields)
            statement = asdict(STATEMENTS[identifier])
            return Outcome(**statement, verdict=str(verdict), evidence=evidence)

        CLAIMS[identifier] = check
        return function

    return register


def skip_checks(*identifiers: str) -> None:
    """Register statements that only a large run could decide."""
    for identifier in identifiers:
        claim(identifier)(lambda: (Verdict.NOT_CHECKED, {}))


def verdict_of(*parts: Any, verdict: Verdict = Verdict.HOLDS) -> Verdict:
    """Return `verdict` if all parts are true, WRONG if none is, else NEEDS_A_CONDITION."""
    if all(parts):
        return verdict
    return Verdict.NEEDS_A_CONDITION if any(parts) else Verdict.WRONG


def verdict_within(*parts: Any) -> Verdict:
    """Return the verdict on parts that are true up to an error: HOLDS_WITHIN if all are true."""
    return verdict_of(*parts, verdict=Verdict.HOLDS_WITHIN)


def verdict_as_meant(as_said: Any, as_meant: Any, verdict: Verdict = Verdict.HOLDS) -> Verdict:
    """Return `verdict` for a claim that is true as said, EXTENDED if only as meant, else WRONG."""
    if not as_meant:
        return Verdict.WRONG
    return verdict if as_said else Verdict.EXTENDED


def close(measured: ArrayLike, claimed: ArrayLike, bar: float = Tolerance.ROUNDING) -> bool:
    """Return whether all numbers equal the claimed ones, up to the relative error `bar`."""
    return bool((np.abs(np.divide(measured, claimed) - 1.0) < bar).all())


def power_of(x: ArrayLike, y: ArrayLike) -> float:
    """Return p of the power law y ∝ x^p, by least squares on the logarithms."""
    return slope(np.log(x), np.log(y))


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """Return the slope of the line y(x), by least squares."""
    return float(np.polyfit(np.asarray(x, float), np.asarray(y, float), 1)[0])


def listed(pattern: str, *columns: Iterable[Any]) -> str:
    """Fill the pattern from each row of the columns, and join the results by commas."""
    return ", ".join(pattern.format(*row) for row in zip(*columns, strict=True))


def check(identifier: str) -> Outcome:
    """Run the check of one claim with the source's own constants.

    Raises KeyError for an id that is not in the ledger.
    """
    if identifier not in CLAIMS:
        raise KeyError(f"no claim has the id {identifier!r}; the ledger has {', '.join(CLAIMS)}")
    return CLAIMS[identifier]()


def check_all() -> list[Outcome]:
    """Run every check, source by source, in the order of the statements."""
    return [check(name) for name in sorted(STATEMENTS, key=lambda name: STATEMENTS[name].source)]
