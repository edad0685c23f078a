"""The audit of a callable: all questions, and the answers held against what was meant."""

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from attnlib.auditing import questions
from attnlib.auditing.questions import SHORT, Interval, Slope
from attnlib.auditing.report import Finding, Report, Scale, counted, shown
from attnlib.auditing.response import Subject
from attnlib.checking import FloatArray
from attnlib.policies import POLICIES, Policy

AGREES = 0.005
"""A number is the one that was meant if it may be within this share of it."""
NOTHING = 1e-9
"""Logits of random queries and keys that are smaller are none."""
LONGEST = 2**17
"""Of the keys of one query; their values take 64 MB at d = 128."""
LONGER = 64
"""The length at which other keys than the query's own are asked."""
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
    causal_from: str | None
    """"first" or "last": to which key queries are aligned where they are fewer."""
    rotates: bool
    """Whether it rotates q and k by position, so that other keys tell nothing of the scale."""


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
    report.facts["by position"] = "nothing is added" if seen.even else "logits depend on position"
    subject.sees_past = _visible(report, subject, seen.visible)
    here = questions.slope(subject, short, [short - 1])
    if float(np.abs(here.value).max()) * math.sqrt(subject.size.dimension) < NOTHING:
        nothing = np.zeros(1)
        keys = np.array([float(short)])
        report.scale = Scale(
            "dot product", keys, keys - 1.0, nothing, nothing, nothing, "scores do not count"
        )
        finding(report, "scale", "scores that count", "0", "weights stay the same")
        return report
    _scale(report, subject, meant, length)
    _everywhere(report, subject, meant)
    unit = float(np.median(here.value))
    if subject.normalises:
        report.facts["soft cap"] = "unknown: a cosine is at most 1"
    else:
        _cap(report, subject, meant)
    _total(report, subject, meant, unit)
    window = _window(report, subject, meant, length)
    if subject.size.heads > 1:
        _groups(report, subject, int(seen.visible[-1].sum()), unit)
    if subject.mask:
        _mask(report, subject, meant)
    if subject.causal:
        _causal(report, subject, meant, short)
    _cache(report, subject, short, window)
    if report.facts["soft cap"] == "none":
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
        finding(
            report,
            "causal",
            "keys up to its own",
            "one key more",
            f"row 0 sees {counted(counts[0], 'key')}",
        )
        return True
    if (ahead[1:] == -1).all():
        told = f"row 1 sees {counted(counts[1], 'key')}"
        finding(report, "causal", "keys up to its own", "not its own", told)
        return True
    report.facts["sees"] = f"{counts.min()} to {counts.max()} of {n} keys"
    return False


def _scale(report: Report, subject: Subject, meant: Meant, length: int) -> None:
    """Find what multiplies q·k or the cosine, in several rows."""
    d = subject.size.dimension
    powers = questions.powers(subject, min(SHORT, d))
    normalised = [abs(power - 1.0) < 0.1 for power in powers]
    subject.normalises = any(normalised)
    if subject.normalises and not all(normalised):
        only = "q" if normalised[0] else "k"
        finding(report, "cosine", "both q and k of length 1, or neither", f"only {only} normalised")
    ladder = [2**i - 1 for i in range(1, 16) if 2**i <= length][: d - 1]
    if subject.sees_past:
        asked = questions.slope(subject, ladder[-1] + 1, ladder)
    else:
        *parts, straight = zip(
            *(questions.slope(subject, row + 1, [row]) for row in ladder), strict=True
        )
        arrays = [np.concatenate(part, axis=-1) for part in parts]
        asked = Slope(arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], all(straight))
    asked = _further(report, subject, meant, asked)
    if not asked.straight:
        worst = np.argmax(asked.high - asked.low)
        ends = f"{asked.low.flat[worst]:.4g} to {asked.high.flat[worst]:.4g}"
        finding(report, "law", "one scale for all products", ends, "larger and smaller ones")
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
    applied_to = "cosine" if subject.normalises else "dot product"
    law = _law(applied_to, asked, value, low, high, d)
    report.scale = Scale(applied_to, asked.keys, asked.position, value, low, high, law)
    if meant.scale is not None:
        _compare(report, meant.scale, d)


def _further(report: Report, subject: Subject, meant: Meant, asked: Slope) -> Slope:
    """Ask beyond the length at which the law that is meant begins, one query of a cache."""
    if not isinstance(meant.scale, Policy):
        return asked
    n = 2.0 ** np.arange(1, 18)
    law = meant.scale.scale(n=n, d=subject.size.dimension)
    changed = n[~np.isclose(law, law[0])]
    if not changed.size or changed[0] <= asked.keys[-1]:
        return asked
    keys = int(min(4 * changed[0], LONGEST))
    more = None
    with suppress(ValueError):  # it may not take fewer queries than keys
        more = questions.slope(subject, keys, [keys - 1], one_query=True)
    if more is None or not np.isfinite(more.value).all():
        report.facts["law"] = f"unknown: it begins near {changed[0]:g} keys, and fewer were asked"
        return asked
    pairs = zip(asked[:5], more[:5], strict=True)
    value, low, high, seen, position = (np.concatenate(pair, axis=-1) for pair in pairs)
    if subject.sees_past:
        seen[-1] = keys
    return Slope(value, low, high, seen, position, asked.straight and more.straight)


def _everywhere(report: Report, subject: Subject, meant: Meant) -> None:
    """Ask keys at other places than the query's, and other components of q and k."""
    d = subject.size.dimension
    short = min(LONGER, max(SHORT, d - 1))
    ask = partial(questions.slope, subject, short, [short - 1])
    found = {f"component {along}": ask(along=along) for along in (0, d // 2, d - 1)}
    if not meant.rotates:
        found |= {f"key {place}": ask(places=[place]) for place in (0, short // 4, short // 2)}
        if subject.normalises:
            found["a key twice as long"] = ask(places=[short // 2], lengthen=2.0)
    own = found.pop("component 0")
    for name, other in found.items():
        if not np.isfinite(other.value).all():
            continue  # outside of a window
        margin = AGREES * np.abs(own.value)
        if (other.low > own.high + margin).any() or (other.high < own.low - margin).any():
            told = f"{other.value.flat[0]:.4g}, for the query's own key {own.value.flat[0]:.4g}"
            finding(report, "law", "one scale", told, f"{name}, n = {short}")
            return


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
    with np.errstate(divide="ignore"):
        ratio = scale.value / wanted
        worst = int(np.argmax(np.abs(np.log(np.abs(ratio)))))
    found = Interval(*(float(part[worst]) for part in (scale.value, scale.low, scale.high)))
    told = f"{wanted[worst]:.4g}"
    evidence = f"{ratio[worst]:.4g} times what was meant"
    constant = bool(np.ptp(ratio) <= 0.01 * abs(ratio[-1]))
    if not constant:
        at = f"at n = {scale.keys[worst]:g}, position {scale.position[worst]:g}"
        told = f"{meant.name if isinstance(meant, Policy) else 'one number'}, {told} {at}"
        evidence += f" {at}"
    evidence += _reason(found.value, float(wanted[worst]), d)
    away = max(found.low - wanted[worst], wanted[worst] - found.high)
    sure = "certain" if away > found.high - found.low else "likely"
    finding(report, "scale" if constant else "law", told, shown(found), evidence, sure=sure)


def _reason(found: float, wanted: float, d: int) -> str:
    """Return what would explain a number, if something simple does."""
    default = d**-0.5
    known = {
        "scores are not scaled": 1.0,
        "the scale is applied twice": wanted**2,
        "PyTorch's default, 1/√d": default,
        "1/d": 1.0 / d,
        "√d": d**0.5,
        "the sign is wrong": -wanted,
        "log 2 of what was meant: base 2 for e": math.log(2.0) * wanted,
        "log₂ e times what was meant: e for base 2": wanted / math.log(2.0),
    }
    for reason, number in known.items():
        if math.isclose(found, number, rel_tol=1e-3):
            return f": {reason}"
    other = found**-2.0 if found > 0.0 else 0.5
    whole = 1.0 < other < 8192.0 and math.isclose(other, round(other), rel_tol=1e-4)
    if whole and math.isclose(wanted, default, rel_tol=1e-6):
        return f": 1/√{round(other)}, where d is {d}"
    return ""


def _cap(report: Report, subject: Subject, meant: Meant) -> None:
    found = questions.cap(subject, min(SHORT, subject.size.dimension))
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


def _total(report: Report, subject: Subject, meant: Meant, unit: float) -> None:
    found = questions.total(subject, SHORT, unit)
    report.facts["sink"] = "none" if found.sink is None else f"a logit of {shown(found.sink)}"
    report.facts["factor on the output"] = shown(found.factor)
    if meant.sink is False and found.sink is not None:
        finding(report, "sink", "weights that add up to 1", report.facts["sink"], "equal rows")
    if meant.sink is True and found.sink is None:
        finding(report, "sink", "a sink", "weights that add up to 1", "equal rows")
    low, high = found.factor.low * (1 - AGREES), found.factor.high * (1 + AGREES)
    if not low <= meant.factor <= high:
        finding(report, "values", f"a factor of {meant.factor:g}", shown(found.factor), "v = 1")


def _window(report: Report, subject: Subject, meant: Meant, length: int) -> int:
    found = questions.window(subject, length)
    report.facts["window"] = "none" if found == length else counted(found, "key")
    if meant.window is not None and found != min(meant.window, length):
        finding(
            report, "window", counted(meant.window, "key"), report.facts["window"], f"n = {length}"
        )
    return found


def _groups(report: Report, subject: Subject, seen: int, unit: float) -> None:
    heads, key_heads, _ = subject.size
    found = questions.key_head_of(subject, min(SHORT, subject.size.dimension), seen, unit)
    wanted = np.arange(heads) // (heads // key_heads)
    for kind, column in zip(("keys", "values"), found.T, strict=True):
        told = ", ".join(str(one) if one >= 0 else "?" for one in column)
        report.facts[f"head of {kind} of each head"] = told
        if (column != wanted).any():
            finding(report, "groups", ", ".join(map(str, wanted)), told, f"heads of {kind}")


def _mask(report: Report, subject: Subject, meant: Meant) -> None:
    found = questions.mask(subject, SHORT)
    report.facts["a mask of True and False"] = f"True: {found.true_means}"
    if found.true_means == "nothing":
        finding(report, "hidden", "a mask that hides keys", "hidden keys have weight", "bool mask")
    if found.total < 1.0 - 0.02:
        finding(report, "padding", "weights that add up to 1", f"{found.total:.4g}", "with a mask")
    if found.true_means == "seen" and isinstance(meant.scale, Policy):
        _padding(report, subject, meant.scale)
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


def _padding(report: Report, subject: Subject, policy: Policy) -> None:
    """Hide half of the keys: the law's n is that of the others."""
    there = torch.ones(1, 1, LONGER, LONGER, dtype=torch.bool, device=subject.device)
    half = LONGER // 2
    there[..., :half] = False
    options: dict[str, Any] = {str(subject.mask): there}
    found = questions.over(questions.slope(subject, LONGER, [LONGER - 1], **options), 0)
    wanted = policy.scale(n=half, d=subject.size.dimension, position=[half - 1, LONGER - 1])
    if not _agree(wanted, np.full(2, found.low), np.full(2, found.high)).any():
        told = f"{policy.name} of {half} keys, {wanted[0]:.4g}"
        finding(report, "padding", told, shown(found), f"a mask hides {half} of {LONGER} keys")


def _causal(report: Report, subject: Subject, meant: Meant, short: int) -> None:
    name = str(subject.causal)
    visible = questions.structure(subject, short, short, **{name: True}).visible
    _compare_visible(report, visible, np.tril(np.ones_like(visible)), name)
    few = short // 2
    try:
        visible = questions.structure(subject, few, short, **{name: True}).visible
    except ValueError:
        return
    last = visible[:, few:].any()
    report.facts[f"{name} of fewer queries"] = f"aligned to the {'last' if last else 'first'} key"
    if meant.causal_from is not None:
        ahead = short - few if meant.causal_from == "last" else 0
        right = np.tril(np.ones_like(visible), ahead)
        _compare_visible(report, visible, right, f"{name}, {few} queries of {short} keys")


def _compare_visible(report: Report, visible: np.ndarray, right: np.ndarray, name: str) -> None:
    if (visible != right).any():
        row = int(np.flatnonzero((visible != right).any(axis=-1))[0])
        expected, found = right[row].sum(), visible[row].sum()
        code = "causal" if len(visible) == visible.shape[1] else "cache"
        told = counted(expected, "key"), counted(found, "key")
        finding(report, code, *told, f"{name}, row {row}")


def _cache(report: Report, subject: Subject, short: int, window: int) -> None:
    try:
        visible = questions.structure(subject, 1, short).visible
    except ValueError:
        report.facts["one query, many keys"] = "not taken"
        return
    report.facts["one query, many keys"] = f"sees {visible.sum()} of {short}"
    wanted = min(short, window)
    if visible.sum() != wanted:
        told = counted(wanted, "key"), counted(visible.sum(), "key")
        finding(report, "cache", *told, "one query of a cache")


def _precision(report: Report, subject: Subject, unit: float) -> None:
    found = questions.precision(subject, unit, min(SHORT, subject.size.dimension))
    report.facts["precision"] = f"{found.bits:.0f} binary digits of a logit"
    if not found.finite:
        finding(report, "precision", "finite weights", "NaN or infinity", "logits up to 1000")
    elif found.bits < BITS[subject.dtype] - 1.5:
        finding(
            report, "precision", f"{BITS[subject.dtype]} binary digits", f"{found.bits:.1f}",
            "two keys with large logits",
        )  # fmt: skip
