"""Measure the scale of a callable: its law in n, where it holds, and how many digits count."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch

from attnlib._checking import FloatArray
from attnlib.auditing import questions, rounding
from attnlib.auditing.questions import ScaleByHead, join_rows, measure_scale
from attnlib.auditing.report import Report, Scale, counted, shown
from attnlib.auditing.response import INT4, INTEGERS, Subject, equal_keys
from attnlib.policies import POLICIES, Policy

TOLERANCE = 0.005
"""A number is the intended one if it may be within this share of it."""
SHORT = 16
"""Keys of most questions, so few that the weight of each is seen in one call."""
LONGER = 64
"""The number of keys where other ones than the query's own are asked."""
LONGEST = 2**17
"""The most keys of one query; their values take 64 MB at d = 128."""
LOGIT_DIGITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 15, torch.float64: 40}
"""The binary digits of a logit that have to count, by type."""
KEY_DIGITS = {**LOGIT_DIGITS, torch.float32: 10, torch.float8_e4m3fn: 4, torch.float8_e5m2: 3}
KEY_DIGITS |= {torch.int8: 4, INT4: 3}
"""Those of keys: kernels may multiply ten, and keys may fill a sixteenth of int8's range."""
TYPE_BY_DIGITS = {9.5: "float16", 5.5: "bfloat16", 4.0: "float8_e4m3fn", 2.5: "float8_e5m2 or int4"}
"""The type that keys of more digits than these may be kept in."""


@dataclass(frozen=True)
class Expected:
    """Hold what the attention should do, as arguments of `audit`; None where nothing is stated."""

    scale: float | Policy | None
    cap: float | None = None
    cosine: bool | None = None
    causal: bool | None = None
    window: float | None = None
    chunk: int | None = None
    first_keys: int = 0
    ahead: int | None = None
    """How many keys after its own a query sees: the second number of `window`."""
    sink: bool | tuple[float, ...] | None = None
    slopes: tuple[float, ...] | None = None
    bias: bool = False
    top_k: int | None = None
    true_hides: bool = False
    nan_rows: bool = False
    factor: float = 1.0
    pattern: Callable[[int], np.ndarray] | None = None
    causal_from: str | None = None
    one_size: bool = False
    """Whether heads of other sizes are not asked, as in a model."""
    rotates: bool = False


class EndedError(Exception):
    """Signal that what was found leaves nothing more to ask."""


class ScaleAudit:
    """Run the checks of one callable's scale: each asks questions, adds facts and findings."""

    def __init__(self, subject: Subject, expected: Expected, length: int) -> None:
        self.subject, self.expected, self.length = subject, expected, length
        subject.pattern = expected.pattern
        self.report = Report()
        self.reference: ScaleByHead
        """The scale in the last of `short` rows; `unit` is its median over the heads."""
        self.unit: float
        self.d = subject.size.dimension
        self.short = min(SHORT, self.d)
        if expected.top_k is not None:  # fewer keys are all seen
            self.short = min(self.short, expected.top_k)
            self.length = min(length, expected.top_k)
        self.full_precision = subject.eps < 1e-5 and subject.stored is None
        """Whether no type of fewer digits than float32 is declared."""
        self.is_float16 = subject.eps == torch.finfo(torch.float16).eps
        """Whether float16 is declared."""
        self.cap = math.inf
        """The bound of the soft cap that was measured."""
        self.sink: FloatArray | None = None
        """The logits of the sinks that were measured, by head."""
        self.hiding_first: dict[str, Any] = {}
        """The argument that hides the first key, if there is one."""
        self.one_sided = False
        """Whether only one of q and k is normalised."""

    @property
    def strict(self) -> bool:
        """Whether the intended scale is given: then a property that is not stated is a finding."""
        return self.expected.scale is not None

    def end(self, *finding: str) -> NoReturn:
        """Add a finding that ends the audit."""
        self.report.add(*finding)
        raise EndedError

    def check_keys_rounding(self) -> None:
        """Measure whether keys or weights are rounded more than their type; widen intervals."""
        subject = self.subject
        bits = rounding.digits_of_keys(subject, self.short)
        if bits is None:
            return
        declared = None if subject.stored == subject.dtype else subject.stored
        needed = KEY_DIGITS.get(declared or subject.dtype, 3)
        self.report.facts["rounding"] = f"{bits:.0f} binary digits of keys and weights"
        self.report.rounding = error = 2.0 ** (1.0 - bits)
        if bits < needed - 0.25 and error > 8.0 * subject.eps:
            name = next((name for limit, name in TYPE_BY_DIGITS.items() if bits > limit), "int8")
            text = f"about {bits:.0f}, as of {name}: kv_dtype declares it"
            text = text if declared is None else f"about {bits:.1f}"
            wanted = f"keys of {needed} binary digits" if declared else "keys of all their digits"
            if self.strict:
                self.report.add("precision", wanted, text, "keys of one length")
            if declared is None and bits < 6.0:
                subject.store_in(torch.float8_e4m3fn if bits > 4.0 else torch.float8_e5m2)
            elif declared is not None:
                subject.stored_error = error
        if subject.stored is None:
            subject.eps = max(subject.eps, error)

    def check_norm(self) -> None:
        """Measure whether q and k are normalised; a large epsilon of the norm ends the audit."""
        subject = self.subject
        powers = dict(zip("qk", questions.factors_when_doubled(subject, self.short), strict=True))
        # With normalised q or k of twice the length logits may grow by 1.002.
        partly = {name: power for name, power in powers.items() if 1.002 < power < 1.9}
        if partly and self.full_precision and self.strict:
            # The power is twice √(1 + ε) / √(4 + ε).
            epsilons = [
                f"{4.0 * (x**2 - 1.0) / (4.0 - x**2):.2g} of {t}'s" for t, x in partly.items()
            ]
            text = f"an epsilon of about {' and '.join(epsilons)} mean square"
            self.end("norm", "q and k over their lengths, or not", text, "twice as long")
        normalised = [name for name, power in powers.items() if abs(power - 1.0) < 0.1]
        subject.normalises = bool(normalised)
        self.one_sided = len(normalised) == 1
        if self.one_sided:
            only = f"only {normalised[0]} normalised"
            self.report.add("cosine", "both q and k of length 1, or neither", only)
        if subject.normalises:
            self.reference = measure_scale(subject, self.short)
            centred = " and ".join(questions.centred_tensors(subject, self.short))
            if centred and self.strict:
                text = f"{centred} less the mean: a LayerNorm's"
                self.report.add("norm", "q and k over their lengths", text, "1 added to all")

    def check_scale(self) -> None:
        """Measure what multiplies q·k or the cosine, in several rows, and compare it."""
        subject, report = self.subject, self.report
        rows = [2**i - 1 for i in range(1, 16) if 2**i <= self.length][: self.d - 1]
        rows = [row for row in rows if subject.visible_counts([row], row + 1) > 1]
        if not rows:
            why = "hides all keys but one from the last query of each n up to length"
            raise ValueError(f"pattern must show a query two keys or more: it {why}={self.length}")
        if subject.is_causal:
            by_head = measure_scale(subject, rows[-1] + 1, rows)
        else:
            by_head = join_rows([measure_scale(subject, row + 1, [row]) for row in rows])
        by_head = self.drop_unknown_rows(self.add_long_row(by_head))
        if not by_head.straight:
            widest = np.argmax(by_head.high - by_head.low)
            low, high = by_head.low.flat[widest], by_head.high.flat[widest]
            why = "larger and smaller ones"
            if subject.stored is not None and low < 0.0 < high:
                why += ": perhaps a zero point is left out"
            report.add("law", "one scale for all products", f"{low:.4g} to {high:.4g}", why)
        if ((by_head.low > by_head.high[0]) | (by_head.high < by_head.low[0])).any():
            each = ", ".join(f"{value:.4g}" for value in by_head.value[:, -1])
            report.facts["scale by head"] = each
            if self.strict:
                report.add("heads", "one scale", "several", each)
        median = np.median(by_head.value, axis=0)
        low, high = by_head.low.min(axis=0), by_head.high.max(axis=0)
        applied_to = "cosine" if subject.normalises else "dot product"
        scale = Scale(applied_to, by_head.keys, by_head.position, median, low, high, "")
        report.scale = scale._replace(law=_law_name(scale, self.d, self.expected.scale))
        if self.expected.scale is not None and not self.one_sided:
            self.compare_scale(report.scale, self.expected.scale)

    def drop_unknown_rows(self, by_head: ScaleByHead) -> ScaleByHead:
        """Return the rows with a finite scale, `reference` if none has; report the others."""
        known = np.isfinite(by_head.value).all(axis=0)
        if known.all():
            return by_head
        at = ", ".join(f"{n:g}" for n in by_head.keys[~known])
        self.report.facts["scale"] = f"unknown at n = {at}: weights are NaN, or all but one are 0"
        if not any(finding.code == "bias" for finding in self.report.findings):
            n = int(by_head.keys[~known][0])
            count = questions.count_chosen_keys(self.subject, n, self.unit) if n > self.short else n
            finding = "law", "a scale for every n", f"none at n = {at}", "NaN or weights of 0"
            if count < n:
                actual = f"{counted(count, 'key')} by their contents"
                finding = "few keys", "all keys", actual, f"{n} random keys"
            self.report.add(*finding)
        if not known.any():
            return self.reference
        kept = (part[..., known] for part in by_head[:5])
        return ScaleByHead._make([*kept, True])  # the others made it none

    def add_long_row(self, by_head: ScaleByHead) -> ScaleByHead:
        """Return the rows, and one of a cache if the intended law begins beyond all of them."""
        if not isinstance(self.expected.scale, Policy):
            return by_head
        n = 2.0 ** np.arange(1, 18)
        law = self.expected.scale.scale(n=n, d=self.d)
        changing = n[~np.isclose(law, law[0])]
        if not changing.size or changing[0] <= by_head.keys[-1]:
            return by_head
        keys = int(min(4 * changing[0], LONGEST))
        long_row = None
        with suppress(ValueError):  # it may not take fewer queries than keys
            long_row = measure_scale(self.subject, keys, queries=1)
        if long_row is None or not np.isfinite(long_row.value).all():
            begins = f"it begins near {changing[0]:g} keys, and fewer were asked"
            self.report.facts["law"] = f"unknown: {begins}"
            return by_head
        return join_rows([by_head, long_row])

    def compare_scale(self, scale: Scale, target: float | Policy) -> None:
        """Compare the measured scale with the intended one."""
        text, applied_to = "one number", scale.applied_to
        if self.expected.cosine is not None:
            applied_to = "cosine" if self.expected.cosine else "dot product"
        if isinstance(target, Policy):
            text, applied_to = target.name, target.applied_to
            wanted = target.scale(n=scale.keys, d=self.d, position=scale.position)
        else:
            wanted = np.full(scale.keys.shape, target)
        if applied_to != scale.applied_to:
            actual = f"of the {scale.applied_to}, {shown(scale.interval)}"
            self.report.add("cosine", f"a scale of the {applied_to}", actual)
            return
        if agree(wanted, scale.low, scale.high).all():
            return
        with np.errstate(divide="ignore"):
            ratio = scale.value / wanted
            worst = int(np.argmax(np.abs(np.log(np.abs(ratio)))))
        interval, right = scale.interval_at(worst), float(wanted[worst])
        evidence = f"{ratio[worst]:.4g} times what was meant"
        why = known_mistakes(interval.value, right, self.d)
        by_one_factor = agree(np.median(ratio) * wanted, scale.low, scale.high).all()
        if not by_one_factor:
            at_row = f"at n = {scale.keys[worst]:g}, position {scale.position[worst]:g}"
            evidence += f" {at_row}"
            if agree(scale.keys**-0.5, scale.low, scale.high).all():
                why = ": 1/√n, n the number of keys"
        self.report.add(
            "scale" if by_one_factor else "law",
            f"{right:.4g}" if by_one_factor else f"{text}, {right:.4g} {at_row}",
            shown(interval) + (" times the cosine" if applied_to == "cosine" else ""),
            evidence + why,
        )

    def check_other_keys(self) -> None:
        """Report another scale of other keys than the query's own, or of other components."""
        d, n = self.d, min(LONGER, max(SHORT, self.d - 1))
        measure = partial(measure_scale, self.subject, n, [n - 1])
        by_case = {f"component {along}": measure(along=along) for along in (0, d // 2, d - 1)}
        if not self.expected.rotates:
            # A cache may hold no larger numbers.
            name, by = ("twice", 2.0) if self.subject.stored is None else ("half", 0.5)
            by_case[f"a key {name} as long"] = measure(special=[n // 2], lengthen=by)
        own = by_case.pop("component 0")
        for name, scale in by_case.items():
            if not np.isfinite(scale.value).all():
                continue  # outside of a window
            margin = TOLERANCE * np.abs(own.value)
            if (scale.low > own.high + margin).any() or (scale.high < own.low - margin).any():
                text = f"{scale.value.flat[0]:.4g}, for the query's own key {own.value.flat[0]:.4g}"
                if name.startswith("component"):
                    text = f"{scale.value.flat[0]:.4g}, of component 0 {own.value.flat[0]:.4g}"
                    name += " has another, as by a vector of gains"
                self.report.add("law", "one scale", text, f"{name}, n = {n}")
                return

    def compare_with_reference(self, code: str, scale: ScaleByHead, where: str) -> None:
        """Report a scale that differs from `reference` by more than their intervals."""
        measured, right = scale.over_heads(0), self.reference.over_heads(0)
        margin = TOLERANCE * abs(right.value)
        if not right.low - margin <= measured.high >= measured.low <= right.high + margin:
            self.report.add(code, f"{right.value:.4g}", shown(measured), where)

    def check_variant(self, code: str, subject: Subject, where: str) -> bool:
        """Report a subject's scale if not that of `reference`; return whether it takes the call."""
        with suppress(ValueError):
            self.compare_with_reference(code, measure_scale(subject, self.short), where)
            return True
        return False

    def check_logit_rounding(self) -> None:
        """Measure how logits are rounded; widen intervals where that is more than their type."""
        rounded = self.report.rounding > 1e-5
        separate = rounded and not self.subject.normalises
        bits, finite = rounding.digits_of_logits(
            self.subject, self.unit, self.short, separate=separate
        )
        self.report.facts["precision"] = f"{bits:.0f} binary digits of a logit"
        eps = self.subject.eps
        needed_bits = LOGIT_DIGITS.get(self.subject.dtype, min(15.0, -math.log2(eps)))
        if self.subject.stored is not None:  # queries may be kept in it too, by 10.5 sure digits
            needed_bits = 6.0 if self.subject.stored in INTEGERS else min(needed_bits, 10.5)
        if rounded and not separate:
            needed_bits = min(needed_bits, -math.log2(self.report.rounding))
        self.check_values_rounding()
        if not finite:
            actual = "NaN or infinity"
            self.report.add("precision", "finite weights", actual, "logits up to 1000")
        elif bits < needed_bits - 1.5:
            digits = f"{needed_bits} binary digits"
            self.report.add("precision", digits, f"{bits:.1f}", "two keys with large logits")
            self.subject.eps = max(eps, 4.0 * 2.0**-bits)

    def check_values_rounding(self) -> None:
        """Report values that are rounded to fewer digits than the declared type has."""
        declared_bits = KEY_DIGITS.get(self.subject.stored or self.subject.dtype, 3)
        needed_bits = min(declared_bits, -math.log2(self.subject.eps))
        bits = rounding.digits_of_values(self.subject, self.unit, self.short)
        reported = any(finding.code == "precision" for finding in self.report.findings)
        if bits is None or bits >= needed_bits - 0.5 or reported or not self.strict:
            return
        text = f"values of {needed_bits:.0f} binary digits"
        self.report.add("precision", text, f"about {bits:.1f}", "a key with most of the weight")

    def check_overflow(self) -> None:
        """Report products that overflow in float16, and small weights that become 0 in it."""
        subject = self.subject
        if subject.stored is not None or subject.normalises:
            return
        if abs(self.unit) < 0.5:  # else logits may be too large themselves
            q, k = (torch.full_like(t, (1e5 / self.d) ** 0.5) for t in equal_keys(subject, 2, 2))
            finite = np.isfinite(subject.weights(q, k, torch.arange(2))).all()
            evidence = "q·k above 65504 overflows in float16 before it is scaled"
            self.report.facts["q·k of 1e5"] = "finite" if finite else evidence
            if self.strict and not finite and not self.is_float16:
                self.report.add("precision", "finite weights", "NaN or infinity", evidence)
        if self.full_precision and self.expected.top_k is None:
            smallest = rounding.smallest_weight(subject, self.unit, self.short)
            if self.strict and smallest == 0.0:
                text = "0: weights are kept in float16"
                self.report.add("precision", "a weight of about 1e-10", text, "a small logit")


def agree(wanted: Any, low: Any, high: Any) -> np.ndarray:
    """Return, elementwise, whether `wanted` lies in [low, high] up to TOLERANCE · |wanted|."""
    margin = TOLERANCE * np.abs(wanted)
    return np.asarray((low - margin <= wanted) & (wanted <= high + margin))


def _law_name(scale: Scale, d: int, target: float | Policy | None) -> str:
    """Return the name of the law that a scale follows: of the intended one, if it fits."""
    low, high, value = scale.low, scale.high, scale.value
    if isinstance(target, Policy) and target.applied_to == scale.applied_to:
        intended = target.scale(n=scale.keys, d=d, position=scale.position)
        if agree(intended, low, high).all():
            return target.name
    if low.max() <= high.min() or agree(float(np.median(value)), low, high).all():
        return "the same for every n"
    for policy in POLICIES.values():
        if policy.applied_to == scale.applied_to and policy.depends_on_n:
            rule = policy.scale(n=scale.keys, d=d, position=scale.position)
            if agree(rule, low, high).all():
                return policy.name
    logs_of_n: FloatArray = np.log(scale.keys)
    per_log, start = np.polyfit(logs_of_n, value, 1)
    if agree(start + per_log * logs_of_n, low, high).all():
        return f"{start:.4g} + {per_log:.4g} log n"
    ends = f"{value[0]:.4g} at n = {scale.keys[0]:g}, {value[-1]:.4g} at {scale.keys[-1]:g}"
    return f"changes with n: {ends}"


def known_mistakes(measured: float, wanted: float, d: int) -> str:
    """Return ": " and the usual mistakes that give this number, in words, or ""."""
    results = {
        "scores are not scaled": 1.0,
        "the scale is applied twice": wanted**2,
        "PyTorch's default, 1/√d": d**-0.5,
        "1/d": 1.0 / d,
        "√d": d**0.5,
        "the sign is wrong": -wanted,
        "log 2 of what was meant: base 2 for e": math.log(2.0) * wanted,
        "log₂ e times what was meant: e for base 2": wanted / math.log(2.0),
    }
    mistakes = [name for name, x in results.items() if math.isclose(measured, x, rel_tol=1e-3)]
    other_d = measured**-2.0 if 0.01 < measured < 1.0 else 0.5
    size = round(other_d)
    # That of padded heads, of a model's width, or the number of heads.
    is_size = size % 4 == 0 and size >= 8 and math.isclose(other_d, size, rel_tol=1e-4)
    if is_size and not mistakes:
        mistakes.append(f"1/√{size}, where d is {d}")
    return f": {', or '.join(mistakes)}" if mistakes else ""
