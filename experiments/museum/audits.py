"""What the audit says of the exhibits, and of attention without a fault."""

import math
import warnings
from collections.abc import Iterable

import torch

from attnlib.auditing import Report, audit
from experiments.compatibility import given, tiny
from experiments.museum.attention import Attend
from experiments.museum.exhibits import EXHIBITS, KINDS, Exhibit
from experiments.records import Fields

CODE = {kind: code for code, kinds in KINDS.items() for kind in kinds}
"""The code of the finding that each kind of exhibit is."""


def audit_exhibit(exhibit: Exhibit, function: Attend) -> Report:
    """Audit an exhibit, broken or mended, against what was meant."""
    options = exhibit.meant
    return audit(
        function,
        d=exhibit.d,
        expected=exhibit.expected,
        heads=exhibit.heads,
        key_heads=exhibit.key_heads,
        cap=options.get("cap", math.inf),
        window=options.get("window"),
        sink="sink" in options,
        factor=options.get("values", 1.0),
        causal_from="last",
        nan_rows=True,
        length=64,
    )


def describe_exhibit(exhibit: Exhibit) -> Fields:
    """Return the label of an exhibit, and what the audit says of the broken attention."""
    torch.manual_seed(0)
    findings = {f.code: f for f in reversed(audit_exhibit(exhibit, exhibit.broken).findings)}
    finding = findings[CODE[exhibit.kind]]
    wrong = exhibit.label["quantity"] == "multiplier"
    return {
        **exhibit.label,
        "intended": f"{exhibit.right:.4g}",
        "found": f"{exhibit.found:.4g}",
        "times": exhibit.found / exhibit.right if wrong else None,
        "audit": {**finding._asdict(), "also": sorted(set(findings) - {finding.code})},
    }


# --- where nothing is wrong -----------------------------------------------------------------------

UNREACHED = ("Bloom", "GPTJ", "DebertaV2")
"""Families that write attention out in their own modules."""


def alarms_of_family(family: str) -> Fields:
    """Audit every call of attention of a small model of transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns of its own
        report = audit(tiny(family), given(family, False), length=64)
    wrong = {finding.where.split(",")[0] for finding in report.findings}
    return count_alarms(name not in wrong for name in report.parts)


def alarms_of_mended() -> Fields:
    """Audit the exhibits as they were mended."""
    return count_alarms(not audit_exhibit(exhibit, exhibit.mended).findings for exhibit in EXHIBITS)


def count_alarms(passed: Iterable[bool]) -> Fields:
    """Return how many audits there were, and in how many there was an alarm."""
    outcomes = list(passed)
    return {"audits": len(outcomes), "alarms": outcomes.count(False)}
