"""Show the result of an audit: facts with intervals, and findings where one is not as intended."""

import json
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from attnlib._checking import FloatArray
from attnlib.auditing.response import Interval

CODES = {
    "scale": "another number multiplies q·k, or the cosine",
    "layout": "q, k and v are read with other axes than (batch, heads, tokens, d)",
    "softmax": "weights are no softmax over keys: along another axis, or none",
    "few keys": "each query sees a few keys that their contents choose",
    "bias": "logits depend on the distance of a key, with another slope or where none was meant",
    "law": "the scale does not follow the law in n or position",
    "heads": "heads have different scales",
    "layers": "layers of one kind have different scales",
    "cosine": "the scale multiplies a cosine where a product was meant, or the other way round",
    "norm": "q or k is not normalised, and was meant to be, or over all heads together",
    "cap": "a soft cap is missing, has another bound, or was not meant",
    "mask": "a mask is not added as it is",
    "hidden": "a mask does not hide what it should, or not all",
    "causal": "queries see keys after their own, or too few",
    "cache": "a query does not see all keys of a cache, or has another scale there",
    "padding": "with a mask, keys that are hidden or not there are counted",
    "window": "the sliding window has another length, is missing, or was not meant",
    "groups": "a head of queries reads another head of keys or values",
    "values": "a factor multiplies the output",
    "sink": "weights do not add up to 1, and were meant to, or the other way round",
    "head size": "the scale at some size of heads is that of a larger one, to which it is padded",
    "backward": "gradients are not those of what the forward pass does",
    "dropout": "weights are dropped at random",
    "precision": "logits, keys, values or weights are rounded more than their type, or overflow",
    "kernels": "two implementations of the same attention differ",
}
"""The codes of findings."""

NO_QUESTIONS = ("not asked", "not answered")
"""Facts that say what was not asked, or not answered, in files."""
OF_MODELS = {"a scale in the weights of projections": "unknown: no one says how large they are"}
"""What cannot be known of any model."""
UNASKED = ("unknown", "not taken", "refused")
"""How facts begin that say that a question had no answer."""
SHOWN_DIGITS = 4
"""The most decimal digits of a number that are shown: its interval may leave fewer."""


class Finding(NamedTuple):
    """Hold a property that is not as intended: what was expected and found, in words.

    `code` is its kind, a key of `CODES`; `where` and `evidence` are words too, or empty.
    """

    code: str
    where: str
    expected: str
    found: str
    evidence: str

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        why = f" ({self.evidence})" if self.evidence else ""
        return f"{self.code}: {place}expected {self.expected}, found {self.found}{why}"


class Scale(NamedTuple):
    """Hold the number that multiplies q·k, or the cosine: by row asked, all heads together.

    Arrays have the shape (rows asked,); `value` lies between `low` and `high`.
    """

    applied_to: str
    """"dot product" or "cosine"."""
    keys: FloatArray
    """The number of keys that the row sees."""
    position: FloatArray
    value: FloatArray
    low: FloatArray
    high: FloatArray
    law: str
    """"the same for every n", a name in `attnlib.policies.POLICIES`, or what was fitted."""

    def interval_at(self, index: int) -> Interval:
        """Return the scale as (value, low, high); `index` is among the rows asked, from 0."""
        return Interval(float(self.value[index]), float(self.low[index]), float(self.high[index]))

    @property
    def interval(self) -> Interval:
        """Return the scale at the last row asked as (value, low, high)."""
        return self.interval_at(-1)

    def __str__(self) -> str:
        of = "cos(q, k)" if self.applied_to == "cosine" else "q·k"
        return f"{shown(self.interval)} times {of}, {self.law}"


@dataclass
class Report:
    """Hold the result of `audit`, a summary when printed; `scale` is None if not measured."""

    scale: Scale | None = None
    facts: dict[str, str] = field(default_factory=dict)
    """Properties in words, by name; "unknown" where they cannot be measured from outside."""
    findings: list[Finding] = field(default_factory=list)
    parts: dict[str, "Report"] = field(default_factory=dict)
    """The reports of a model's calls, by layer."""

    unknown: list[str] = field(default_factory=list)
    """Scales where the intended one is not known, by call."""
    rounding: float = 0.0
    """The relative error by which keys and weights are rounded, as far as measured."""
    verbose: bool = False
    """Whether facts are printed."""

    @property
    def passed(self) -> bool | None:
        """Return False if there are findings; else None if `unknown` holds something, else True."""
        return None if self.unknown and not self.findings else not self.findings

    def add(
        self,
        code: str,
        expected: str,
        found: str,
        evidence: str = "",
        *,
        where: str = "",
    ) -> None:
        """Add a `Finding`: its code, what is intended, what was found, the evidence, and where."""
        self.findings.append(Finding(code, where, expected, found, evidence))

    def _table(self) -> dict[str, Any]:
        """Return what `to_json` writes."""
        return {
            "passed": self.passed,
            "scale": None if self.scale is None else self.scale._asdict(),
            "facts": self.facts,
            "unknown": self.unknown,
            "findings": [finding._asdict() for finding in self.findings],
            "parts": {name: part._table() for name, part in self.parts.items()},
        }

    def to_json(self) -> str:
        """Return JSON text of `passed`, scale, facts, unknown, findings and parts."""

        def numbers(array: Any) -> list[float | None]:
            if not isinstance(array, np.ndarray):
                raise TypeError(type(array))
            return [number if math.isfinite(number) else None for number in array.tolist()]

        return json.dumps(self._table(), default=numbers, ensure_ascii=False, indent=1)

    def _count_asked(self) -> tuple[int, list[str]]:
        """Return how many facts have an answer, and the names of those without."""
        facts = dict(self.facts)
        for part in self.parts.values():
            facts |= part.facts
        unasked = [name for name, fact in facts.items() if fact.startswith(UNASKED)]
        asked = len(facts.keys() - {*unasked, *NO_QUESTIONS})
        return asked, unasked + [facts[name] for name in NO_QUESTIONS if name in facts]

    def __str__(self) -> str:
        lines = [f"{counted(len(self.findings), 'finding')}:"] if self.findings else []
        lines += [f"- {finding}" for finding in self.findings]
        lines += [f"not known what is meant: {unknown}" for unknown in self.unknown]
        asked, unasked = self._count_asked()
        lines = lines or ["passed: nothing found"]
        if unasked and not self.verbose and (self.passed or NO_QUESTIONS[0] in self.facts):
            lines.append(f"not asked: {', '.join(unasked)}")
        scales: dict[str, list[str]] = {}
        for name, part in {"itself": self, **self.parts}.items():
            if part.scale is not None:
                scales.setdefault(str(part.scale), []).append(name)
        for scale, names in scales.items():
            where = ", ".join(names) if self.verbose else counted(len(names), "call")
            lines.append(f"scale: {scale}" + (f", in {where}" if self.parts else ""))
        if self.verbose:
            lines += [f"{name}: {fact}" for name, fact in self.facts.items()]
        elif asked:
            more = f"; {counted(asked, 'fact')} with verbose=True or --facts"
            lines[0 if self.passed else -1] += more
        return "\n".join(lines)


def counted(number: int, what: str) -> str:
    """Return a number and its noun in words, such as "2 findings"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shown(number: Interval) -> str:
    """Return a number in words, with a bound of its error, a power of ten.

    The bound is at least about 1e-4 of the number: less would be rounding, which differs between
    processors. Where it is more than a tenth, the ends of the interval are returned.
    """
    error = max(number.high - number.value, number.value - number.low)
    if not math.isfinite(error):
        return f"{number.value:.4g}"
    size = abs(number.value)
    powers = [round(math.log10(size)) - SHOWN_DIGITS] if size else []
    powers += [math.ceil(math.log10(error) - 1e-9)] if error else []
    if not powers:
        return "0"
    power = max(powers)
    if 10.0**power > 0.1 * size > 0.0:
        return f"{number.low:.3g} to {number.high:.3g}"
    digits = math.floor(math.log10(size) + 1e-4) - power + 1 if size else 1
    return f"{number.value:.{max(digits, 1)}g} ± {10.0**power:g}"
