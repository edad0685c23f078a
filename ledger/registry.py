"""What a claim is, and the registry of all of them.

What each says, where, and what the evidence for it says, stands in `statements.toml` beside this
file: a check computes a verdict and numbers, no words.
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

from attnlib import scores

SOURCES = {
    "000": "su2023gradient",
    "001": "scores_post",
    "002": "orr2023almost",
    "003": "su2023gradient",
    "004": "dotproduct_post",
    "005": "velickovic2024softmax",
    "006": "li2025vanishing",
    "007": "hayase2026unified",
    "008": "demir2025optimal",
    "009": "vaswani2017attention",
    "010": "su2021entropy",
    "011": "su2022derivation",
    "012": "su2023lemma",
    "013": "su2023robustness",
    "014": "su2023keynorm",
    "015": "su2024extrapolation",
    "016": "su2025qkclip",
    "017": "peng2024yarn",
    "018": "nakanishi2025ssmax",
    "019": "chen2026critical",
    "020": "giorlandino2025two",
    "021": "anson2025scale",
    "022": "wortsman2023small",
    "023": "kimi2025k2",
    "024": "chiang2022overcoming",
    "025": "henry2020qknorm",
}
"""The documents whose statements the ledger carries: their number in this book, and their key in
its bibliography. 000 is the English translation of 003, which adds its readers' comments. Of 005 to
008, papers on attention at other lengths, it carries one law each; from 009 on several, which no
chapter follows, each with the `address` of the text."""


class Bar:
    """The thresholds of the checks: what words mean in numbers, if the evidence gives no other."""

    LIMIT = 6.0
    """A simulation refutes a number that lies this many standard errors away.

    By chance 2 in a billion do, so that no seed decides. What is closer, exact numbers tell apart.
    """
    ROUNDING = 1e-12
    """Numbers that are equal and were computed in two ways differ by less: a thousand roundings."""
    IN_THE_LIMIT = 1e-3
    """What is said of a limit is computed so far out that less than this is left to it."""
    HUNDREDTH = 0.01
    """The exponent of a power law, measured where the law is reached, is off by less."""
    TWENTIETH = 0.05
    """A good fit errs by less, and two curves that differ by less are one."""
    TENTH = 0.1
    """What is about right errs by less, and what has vanished is less than that of what it was."""
    FIFTH = 0.2
    """What is close, or of about the size of a rule, is off by less."""
    HALF = 0.5
    """Most are more than half; what fades, or falls short, is less than half of what it was."""
    NINE_TENTHS = 0.9
    """The largest weight of a row that is nearly one-hot; the share that holds over a range."""


ENTRY = scores.product_moments(0.0, 1.0, 0.0, 1.0)
"""The exact mean and variance of one of the d products that q·k adds up."""


class Verdict(StrEnum):
    """What a check can find of a statement as it is meant, with every qualifier that it has."""

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


class Finding(NamedTuple):
    """A verdict, and the numbers it rests on in a sentence or two."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a source says, in our words, and where it says it."""

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


WORDS = tomllib.loads(files("ledger").joinpath("statements.toml").read_text("utf-8"))
EVIDENCE: dict[str, str] = {
    identifier: words.pop("evidence") for identifier, words in WORDS.items()
}
"""What the evidence for each statement says: a template for the numbers of its check."""
STATEMENTS = {identifier: Statement(id=identifier, **words) for identifier, words in WORDS.items()}
"""Every statement by its id."""
CLAIMS: dict[str, Callable[..., Finding]] = {}
"""The check of every claim by its id."""

Decision = tuple[Verdict, Mapping[str, Any]]
"""What a check decides, and the numbers that the template of its evidence names."""
Check = Callable[..., Decision]


def claim(identifier: str, **constants: Any) -> Callable[[Check], Check]:
    """Register the decorated function as the check of a statement, which must not have one.

    `constants` are those of the source where they differ from the function's defaults. The template
    of the evidence names numbers of the check, its arguments, and constants of its module.
    """

    def register(function: Check) -> Check:
        if identifier in CLAIMS:
            raise ValueError(f"identifier must be new, got {identifier!r} a second time")
        if identifier not in STATEMENTS:
            raise ValueError(f"identifier must be in statements.toml, got {identifier!r}")

        @wraps(function)
        def check(**arguments: Any) -> Finding:
            given = signature(function).bind(**{**constants, **arguments})
            given.apply_defaults()
            verdict, numbers = function(**given.arguments)
            names = ChainMap(dict(numbers), given.arguments, function.__globals__)
            return Finding(verdict, EVIDENCE[identifier].format_map(names))

        CLAIMS[identifier] = check
        return function

    return register


def not_checked(*identifiers: str) -> None:
    """Register statements that only large runs decide."""
    for identifier in identifiers:
        claim(identifier)(lambda: (Verdict.NOT_CHECKED, {}))


def holds(*parts: Any, whole: Verdict = Verdict.HOLDS) -> Verdict:
    """Return the verdict on what is true or false: `whole` if all parts are true, wrong if none."""
    if all(parts):
        return whole
    return Verdict.NEEDS_A_CONDITION if any(parts) else Verdict.WRONG


def holds_within(*parts: Any) -> Verdict:
    """Return the same of what is true up to some error."""
    return holds(*parts, whole=Verdict.HOLDS_WITHIN)


def extended_unless(as_said: Any, true: Any, whole: Verdict = Verdict.HOLDS) -> Verdict:
    """Return `whole` for what is true as it is said, extended if it is true as it is meant."""
    if not true:
        return Verdict.WRONG
    return whole if as_said else Verdict.EXTENDED


def listed(pattern: str, *columns: Iterable[Any]) -> str:
    """Return a list in words: the pattern, filled from each row of the columns."""
    return ", ".join(pattern.format(*row) for row in zip(*columns, strict=True))


def reproduced(true: bool) -> str:
    """Return what the evidence says of a figure."""
    return "Reproduced" if true else "Not reproduced"


def check(identifier: str) -> Outcome:
    """Run the check of one claim with the source's own constants.

    Raises KeyError for an id that is not in the ledger.
    """
    if identifier not in CLAIMS:
        raise KeyError(f"no claim has the id {identifier!r}; the ledger has {', '.join(CLAIMS)}")
    verdict, evidence = CLAIMS[identifier]()
    return Outcome(**asdict(STATEMENTS[identifier]), verdict=str(verdict), evidence=evidence)


def check_all() -> list[Outcome]:
    """Run every check, source by source, in the order of the statements."""
    return [check(one) for one in sorted(STATEMENTS, key=lambda one: STATEMENTS[one].source)]
