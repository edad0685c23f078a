"""What an audit has found: facts with intervals, and findings where one is not what was meant."""

import json
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from attnlib.auditing.response import Interval
from attnlib.checking import FloatArray

CODES = {
    "scale": "another number multiplies q·k, or the cosine",
    "law": "the scale does not follow the law in n or position",
    "heads": "heads have different scales",
    "cosine": "the scale multiplies a cosine where a product was meant, or the other way round",
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
    "precision": "logits are rounded more than their type rounds, or overflow",
    "kernels": "two implementations of the same attention differ",
}
"""The codes of findings."""

DIGITS = 4
"""After which digit a number is no longer told: the interval may be shorter."""


class Finding(NamedTuple):
    """Something that is not as it was meant."""

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
    """What multiplies q·k, or the cosine: for each row asked, all heads together."""

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

    def at(self, row: int) -> Interval:
        """Return the scale of one of the rows asked."""
        return Interval(float(self.value[row]), float(self.low[row]), float(self.high[row]))

    @property
    def interval(self) -> Interval:
        """At the last row."""
        return self.at(-1)

    def __str__(self) -> str:
        of = "cos(q, k)" if self.applied_to == "cosine" else "q·k"
        return f"{shown(self.interval)} times {of}, {self.law}"


@dataclass
class Report:
    """What `audit` returns."""

    scale: Scale | None = None
    facts: dict[str, str] = field(default_factory=dict)
    """What was found, in words, by name; "unknown" where it cannot be told from outside."""
    findings: list[Finding] = field(default_factory=list)
    parts: dict[str, "Report"] = field(default_factory=dict)
    """The reports of a model's calls, by layer."""

    @property
    def passed(self) -> bool:
        """Whether there is no finding."""
        return not self.findings

    def add(
        self,
        code: str,
        expected: str,
        found: str,
        evidence: str = "",
        *,
        where: str = "",
    ) -> None:
        """Add a finding."""
        self.findings.append(Finding(code, where, expected, found, evidence))

    def _table(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "scale": None if self.scale is None else self.scale._asdict(),
            "facts": self.facts,
            "findings": [finding._asdict() for finding in self.findings],
            "parts": {name: part._table() for name, part in self.parts.items()},
        }

    def to_json(self) -> str:
        """Return all of it as JSON."""

        def numbers(array: Any) -> list[float | None]:
            if not isinstance(array, np.ndarray):
                raise TypeError(type(array))
            return [number if math.isfinite(number) else None for number in array.tolist()]

        return json.dumps(self._table(), default=numbers, ensure_ascii=False, indent=1)

    def __str__(self) -> str:
        lines = [] if self.scale is None else [f"scale: {self.scale}"]
        lines += [f"{name}: {said}" for name, said in self.facts.items()]
        lines += [f"{name}: {part.scale}" for name, part in self.parts.items()]
        if self.passed:
            return "\n".join([*lines, "", "nothing found"])
        lines += ["", f"{counted(len(self.findings), 'finding')}:"]
        return "\n".join([*lines, *(f"- {finding}" for finding in self.findings)])


def counted(number: int, what: str) -> str:
    """Return a number of things."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shown(number: Interval) -> str:
    """Return a number with a bound of its error, a power of ten.

    The bound is at least about 1e-4 of the number: what is less is rounding, another on each
    processor.
    """
    half = max(number.high - number.value, number.value - number.low)
    if not math.isfinite(half):
        return f"{number.value:.4g}"
    size = abs(number.value)
    powers = [round(math.log10(size)) - DIGITS] if size else []
    powers += [math.ceil(math.log10(half) - 1e-9)] if half else []
    if not powers:
        return "0"
    power = max(powers)
    digits = math.floor(math.log10(size) + 1e-4) - power + 1 if size else 1
    return f"{number.value:.{max(digits, 1)}g} ± {10.0**power:g}"
