"""What the audit says of the bugs, and of attention without a fault."""

import math
import warnings
from collections.abc import Iterable

import torch

from attnlib.auditing import Report, audit
from experiments.compatibility import given, tiny
from experiments.known_bugs.attention import Attend
from experiments.known_bugs.bugs import BUGS, KINDS, Bug
from experiments.records import Fields

CODE = {kind: code for code, kinds in KINDS.items() for kind in kinds}
"""The code of the finding that each kind of bug is."""


def audit_bug(bug: Bug, function: Attend) -> Report:
    """Audit a bug, broken or fixed, against what was meant."""
    options = bug.meant
    return audit(
        function,
        d=bug.d,
        expected=bug.expected,
        heads=bug.heads,
        key_heads=bug.key_heads,
        cap=options.get("cap", math.inf),
        window=options.get("window"),
        sink="sink" in options,
        factor=options.get("values", 1.0),
        causal_from="last",
        nan_rows=True,
        length=64,
    )


def describe_bug(bug: Bug) -> Fields:
    """Return the label of a bug, and what the audit says of the broken attention."""
    torch.manual_seed(0)
    findings = {f.code: f for f in reversed(audit_bug(bug, bug.broken).findings)}
    finding = findings[CODE[bug.kind]]
    wrong = bug.label["quantity"] == "multiplier"
    return {
        **bug.label,
        "intended": f"{bug.right:.4g}",
        "found": f"{bug.found:.4g}",
        "times": bug.found / bug.right if wrong else None,
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


def alarms_of_fixed() -> Fields:
    """Audit the bugs as they were fixed."""
    return count_alarms(not audit_bug(bug, bug.fixed).findings for bug in BUGS)


def count_alarms(passed: Iterable[bool]) -> Fields:
    """Return how many audits there were, and in how many there was an alarm."""
    outcomes = list(passed)
    return {"audits": len(outcomes), "alarms": outcomes.count(False)}
