"""The audit of a callable: all questions, and the answers held against what was meant."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attnlib.auditing import questions
from attnlib.auditing.questions import SHORT, Interval, Slope
from attnlib.auditing.report import Finding, Report, Scale, shown
from attnlib.auditing.response import Subject
from attnlib.checking import FloatArray
from attnlib.policies import POLICIES, Policy

AGREES = 0.005
"""A number is the one that was meant if it may be within this share of it."""
BITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 15, torch.float64: 15}
"""How many digits of a logit have to count."""


@dataclass(frozen=True)
class Meant:
    """What the attention should do; None where nothing is said of it."""

    scale: float | Policy | None
    cap: float | None
    window: int | None
    sink: bool | None
    factor: float


def audit_callable(subject: Subject, meant: Meant, length: int) -> Report:
    """Ask a callable everything that it can be asked."""
    report = Report()
    short = min(SHORT, subject.size.dimension)
    dropped = questions.dropout(subject, short)
    if dropped is None:
        raise ValueError("the callable must give the same output twice, and its outputs differ")
    if dropped:
        finding(report, "dropout", "the same output twice", f"{dropped:.0%} of weights dropped")
        return report
    seen = questions.structure(subject, short, short)
    causal = _visible(report, subject, seen.visible)
    report.facts["by position"] = "nothing is added" if seen.even else "logits depend on position"
    _scale(report, subject, meant, causal, length)
    assert report.scale is not None
    of_cosine = report.scale.applied_to == "cosine"
    here = questions.slope(subject, short, [short - 1], causal=causal, of_cosine=of_cosine)
    unit = float(np.median(here.value))
    if not of_cosine:
        _cap(report, subject, meant, causal)
    else:
        report.facts["soft cap"] = "unknown: a cosine is at most 1"
    _total(report, subject, meant, unit, of_cosine, causal)
    _window(report, subject, meant, length)
    if subject.size.heads > 1:
        _groups(report, subject)
    if subject.mask:
        _mask(report, subject)
    if subject.causal:
        _causal(report, subject, short)
    _cache(report, subject, causal, short)
    if not of_cosine and report.facts["soft cap"] == "none" and seen.even:
        _precision(report, subject, unit)
    else:
        report.facts["precision"] = "unknown"
    return report


def finding(
    report: Report, code: str, expected: str, found: str, evidence: str = "", **more: str
) -> None:
    """Add a finding."""
    report.findings.append(
        Finding(code, more.get("where", ""), expected, found, evidence, more.get("sure", "certain"))
    )


def _visible(report: Report, subject: Subject, visible: np.ndarray) -> bool:
    """Say which keys are seen; return whether the callable is causal by itself."""
    n = len(visible)
    counts = visible.sum(axis=-1)
    if visible.all():
        report.facts["sees"] = "all keys"
        return False
    ahead = np.array([np.flatnonzero(row).max(initial=-1) - i for i, row in enumerate(visible)])
    if (ahead[: n - 1] == 0).all():
        report.facts["sees"] = "the keys up to its own"
        return True
    if (ahead[: n - 2] == 1).all():
        finding(report, "causal", "keys up to its own", "one key more", f"row 0 sees {counts[0]}")
        return True
    if (ahead[1:] == -1).all():
        finding(report, "causal", "keys up to its own", "not its own", f"row 1 sees {counts[1]}")
        return True
    report.facts["sees"] = f"{counts.min()} to {counts.max()} of {n} keys"
    return False


def _scale(report: Report, subject: Subject, meant: Meant, causal: bool, length: int) -> None:
    """Find what multiplies q·k or the cosine, in several rows."""
    d = subject.size.dimension
    by_q, by_k = questions.powers(subject, min(SHORT, d), causal=causal)
    normalised = [abs(power - 1.0) < 0.1 for power in (by_q, by_k)]
    of_cosine = any(normalised)
    if of_cosine and not all(normalised):
        only = "q" if normalised[0] else "k"
        finding(report, "cosine", "both q and k of length 1, or neither", f"only {only} normalised")
    ladder = [2**i - 1 for i in range(1, 16) if 2**i <= length][: d - 1]
    if causal:
        asked = questions.slope(subject, ladder[-1] + 1, ladder, causal=True, of_cosine=of_cosine)
    else:
        parts = [
            questions.slope(subject, row + 1, [row], causal=False, of_cosine=of_cosine)
            for row in ladder
        ]
        asked = Slope(*(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)))
    apart = [
        head
        for head in range(subject.size.heads)
        if (asked.low[head] > asked.high[0]).any() or (asked.high[head] < asked.low[0]).any()
    ]
    if apart:
        each = ", ".join(f"{value:.4g}" for value in asked.value[:, -1])
        report.facts["scale by head"] = each
        if meant.scale is not None:
            finding(report, "heads", "one scale", "several", each)
    value = np.median(asked.value, axis=0)
    low, high = asked.low.min(axis=0), asked.high.max(axis=0)
    applied_to = "cosine" if of_cosine else "dot product"
    law = _law(applied_to, asked, value, low, high, d)
    report.scale = Scale(applied_to, asked.keys, asked.position, value, low, high, law)
    if meant.scale is not None:
        _compare(report, meant.scale, d)


def _law(
    applied_to: str, asked: Slope, value: FloatArray, low: FloatArray, high: FloatArray, d: int
) -> str:
    """Return what kind of rule in n and position the numbers follow."""
    if low.max() <= high.min():
        return "the same for every n"
    for policy in POLICIES.values():
        if policy.applied_to == applied_to and policy.family == "length":
            rule = policy.scale(n=asked.keys, d=d, position=asked.position)
            if _agree(rule, low, high).all():
                return policy.name
    logs = np.log(asked.keys)
    slope, start = np.polyfit(logs, value, 1)
    if _agree(start + slope * logs, low, high).all():
        return f"{start:.4g} + {slope:.4g} log n"
    ends = f"{value[0]:.4g} at n = {asked.keys[0]:g}, {value[-1]:.4g} at {asked.keys[-1]:g}"
    return f"changes with n: {ends}"


def _agree(rule: FloatArray, low: FloatArray, high: FloatArray) -> np.ndarray:
    margin = AGREES * np.abs(rule)
    return np.asarray((low - margin <= rule) & (rule <= high + margin))


def _compare(report: Report, meant: float | Policy, d: int) -> None:
    """Hold the scale against what was meant."""
    scale = report.scale
    assert scale is not None
    if isinstance(meant, Policy):
        wanted = meant.scale(n=scale.keys, d=d, position=scale.position)
        if meant.applied_to != scale.applied_to:
            finding(
                report, "cosine", f"a scale of the {meant.applied_to}", f"of the {scale.applied_to}"
            )
            return
    else:
        wanted = np.full(scale.keys.shape, float(meant))
    right = _agree(wanted, scale.low, scale.high)
    if right.all():
        return
    worst = int(np.argmax(np.abs(np.log(np.abs(scale.value / wanted)))))
    ratio = scale.value / wanted
    at = f"at n = {scale.keys[worst]:g}, position {scale.position[worst]:g}"
    constant = np.ptp(ratio) <= 0.01 * abs(ratio[-1])
    found = Interval(*(float(part[worst]) for part in (scale.value, scale.low, scale.high)))
    evidence = f"{ratio[worst]:.4g} times what was meant" + ("" if constant else f" {at}")
    finding(
        report,
        "scale" if constant else "law",
        f"{wanted[worst]:.4g}"
        if constant
        else f"{meant.name if isinstance(meant, Policy) else 'one number'}, {wanted[worst]:.4g} {at}",
        shown(found),
        evidence + _reason(float(scale.value[worst]), float(wanted[worst]), d, scale.applied_to),
    )


def _reason(found: float, wanted: float, d: int, applied_to: str) -> str:
    """Return what would explain a ratio, if something simple does."""
    ratio = found / wanted
    known = {
        "the scale is applied twice": wanted,
        "the scale is missing": 1.0 / wanted,
        "1/d in place of 1/√d, or the other way round": d**-0.5,
        "√d in place of 1/√d": float(d),
        "the softmax is in base 2": math.log(2.0),
        "a factor log₂ e too much": 1.0 / math.log(2.0),
        "the sign is wrong": -1.0,
    }
    for reason, factor in known.items():
        if math.isclose(ratio, factor, rel_tol=1e-2):
            return f": {reason}"
    if math.isclose(wanted, d**-0.5, rel_tol=1e-6) and found > 0.0 and applied_to != "cosine":
        other = found**-2.0
        if other < 1e6 and math.isclose(other, round(other), rel_tol=5e-3):
            return f": that of a dimension of {round(other)}, not {d}"
    return ""


def _cap(report: Report, subject: Subject, meant: Meant, causal: bool) -> None:
    found = questions.cap(subject, min(SHORT, subject.size.dimension), causal=causal)
    report.facts["soft cap"] = "none" if found is None else shown(found)
    if meant.cap is None:
        return
    if meant.cap == math.inf:
        if found is not None:
            finding(report, "cap", "no soft cap", f"one of {shown(found)}", "logits bend")
    elif found is None:
        finding(
            report, "cap", f"a soft cap of {meant.cap:g}", "none", "logits are straight up to 64"
        )
    elif not found.low * (1 - AGREES) <= meant.cap <= found.high * (1 + AGREES):
        finding(report, "cap", f"a soft cap of {meant.cap:g}", shown(found), "logits bend")


def _total(
    report: Report, subject: Subject, meant: Meant, unit: float, of_cosine: bool, causal: bool
) -> None:
    found = questions.total(subject, SHORT, unit, of_cosine=of_cosine, causal=causal)
    report.facts["sink"] = "none" if found.sink is None else f"a logit of {shown(found.sink)}"
    report.facts["factor on the output"] = shown(found.factor)
    if meant.sink is False and found.sink is not None:
        finding(report, "sink", "weights that add up to 1", report.facts["sink"], "equal rows")
    if meant.sink is True and found.sink is None:
        finding(report, "sink", "a sink", "weights that add up to 1", "equal rows")
    low, high = found.factor.low * (1 - AGREES), found.factor.high * (1 + AGREES)
    if not low <= meant.factor <= high:
        finding(report, "values", f"a factor of {meant.factor:g}", shown(found.factor), "v = 1")


def _window(report: Report, subject: Subject, meant: Meant, length: int) -> None:
    found = questions.window(subject, length)
    report.facts["window"] = "none" if found == length else f"{found} keys"
    if meant.window is not None and found != min(meant.window, length):
        finding(report, "window", f"{meant.window} keys", report.facts["window"], f"n = {length}")


def _groups(report: Report, subject: Subject) -> None:
    heads, key_heads, _ = subject.size
    found = questions.key_head_of(subject, min(SHORT, subject.size.dimension))
    wanted = np.arange(heads) // (heads // key_heads)
    for kind, column in zip(("keys", "values"), found.T, strict=True):
        told = ", ".join(str(one) if one >= 0 else "?" for one in column)
        report.facts[f"head of {kind} of each head"] = told
        if (column != wanted).any():
            finding(report, "groups", ", ".join(map(str, wanted)), told, f"heads of {kind}")


def _mask(report: Report, subject: Subject) -> None:
    found = questions.mask(subject, SHORT)
    report.facts["a mask of True and False"] = f"True: {found.true_means}"
    if found.true_means == "nothing":
        finding(report, "hidden", "a mask that hides keys", "hidden keys have weight", "bool mask")
    if found.multiplier is None:
        report.facts["a mask of numbers"] = "not taken"
        return
    report.facts["a mask of numbers"] = f"added {shown(found.multiplier)} times"
    if not found.multiplier.low - AGREES <= 1.0 <= found.multiplier.high + AGREES:
        reason = "it is not heeded" if abs(found.multiplier.value) < AGREES else "it is multiplied"
        finding(
            report,
            "mask",
            "a mask that is added as it is",
            report.facts["a mask of numbers"],
            reason,
        )


def _causal(report: Report, subject: Subject, short: int) -> None:
    name = str(subject.causal)
    visible = questions.structure(subject, short, short, **{name: True}).visible
    right = np.tril(np.ones_like(visible))
    if (visible != right).any():
        row = int(np.flatnonzero((visible != right).any(axis=-1))[0])
        finding(
            report, "causal", "keys up to its own", f"row {row} sees {visible[row].sum()} keys",
            f"{name}=True",
        )  # fmt: skip
    try:
        longer = questions.structure(subject, 2, short, **{name: True}).visible
    except ValueError:
        return
    last = longer[:, -1].any()
    report.facts[f"{name} of fewer queries"] = f"aligned to the {'last' if last else 'first'} key"


def _cache(report: Report, subject: Subject, causal: bool, short: int) -> None:
    try:
        visible = questions.structure(subject, 1, short).visible
    except ValueError:
        report.facts["one query, many keys"] = "not taken"
        return
    report.facts["one query, many keys"] = f"sees {visible.sum()} of {short}"
    if not visible.all():
        finding(report, "cache", f"all {short} keys", f"{visible.sum()}", "one query of a cache")


def _precision(report: Report, subject: Subject, unit: float) -> None:
    found = questions.precision(subject, unit)
    report.facts["precision"] = f"{found.bits:.0f} binary digits of a logit"
    if not found.finite:
        finding(report, "precision", "finite weights", "NaN or infinity", "logits up to 1000")
    elif found.bits < BITS[subject.dtype] - 1.5:
        finding(
            report, "precision", f"{BITS[subject.dtype]} binary digits", f"{found.bits:.1f}",
            "two keys with large logits",
        )  # fmt: skip
