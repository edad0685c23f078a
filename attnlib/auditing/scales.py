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
from attnlib.auditing import questions
from attnlib.auditing.questions import SHORT, Slope, joined
from attnlib.auditing.report import Report, Scale, counted, shown
from attnlib.auditing.response import INT4, WHOLE, Interval, Subject, equal_keys
from attnlib.policies import POLICIES, Policy

AGREES = 0.005
"""A number is the intended one if it may be within this share of it."""
LONGER = 64
"""The length at which other keys than the query's own are asked."""
LONGEST = 2**17
"""Of the keys of one query; their values take 64 MB at d = 128."""
BITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 15, torch.float64: 40}
"""How many digits of a logit have to count."""
KEPT = {**BITS, torch.float32: 10, torch.float8_e4m3fn: 4, torch.float8_e5m2: 3}
KEPT |= {torch.int8: 4, INT4: 3}
"""How many of keys: kernels may multiply ten, and a sixteenth of int8's range may be their size."""
DIGITS = {9.5: "float16", 5.5: "bfloat16", 4.0: "float8_e4m3fn", 2.5: "float8_e5m2 or int4"}
"""Types that more digits than these may be of."""


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
        self.reference: Slope
        """The scale in the last of `short` rows; `unit` is its median over the heads."""
        self.unit: float
        self.d = subject.size.dimension
        self.short = min(SHORT, self.d)
        if expected.top_k is not None:  # fewer keys are all seen
            self.short = min(self.short, expected.top_k)
            self.length = min(length, expected.top_k)
        self.whole = subject.eps < 1e-5 and subject.stored is None
        """Whether no type of fewer digits than float32 is declared."""
        self.half = subject.eps == torch.finfo(torch.float16).eps
        """Whether float16 is declared."""
        self.cap_found = math.inf
        self.sink_found: FloatArray | None = None
        self.first_hidden: dict[str, Any] = {}
        """The argument that hides the first key, if there is one."""
        self.one_sided = False
        """Whether only one of q and k is normalised."""

    @property
    def strict(self) -> bool:
        """Whether the intended scale is given, so that what is not said is not meant."""
        return self.expected.scale is not None

    def end(self, *finding: str) -> NoReturn:
        """Add a finding that ends the audit."""
        self.report.add(*finding)
        raise EndedError

    def rounding(self) -> None:
        """Measure whether keys or weights are rounded more than their type; widen intervals."""
        subject = self.subject
        bits = questions.digits(subject, self.short)
        if bits is None:
            return
        stored = None if subject.stored == subject.dtype else subject.stored
        needed = KEPT.get(stored or subject.dtype, 3)
        self.report.facts["rounding"] = f"{bits:.0f} binary digits of keys and weights"
        self.report.rounding = error = 2.0 ** (1.0 - bits)
        if bits < needed - 0.25 and error > 8.0 * subject.eps:
            name = next((name for kind, name in DIGITS.items() if bits > kind), "int8")
            text = f"about {bits:.0f}, as of {name}: kv_dtype declares it"
            text = text if stored is None else f"about {bits:.1f}"
            what = f"keys of {needed} binary digits" if stored else "keys of all their digits"
            if self.strict:
                self.report.add("precision", what, text, "keys of one length")
            if stored is None and bits < 6.0:
                subject.keep_in(torch.float8_e4m3fn if bits > 4.0 else torch.float8_e5m2)
            elif stored is not None:
                subject.stored_error = error
        if subject.stored is None:
            subject.eps = max(subject.eps, error)

    def length_one(self) -> None:
        """Measure whether q and k are normalised; a large epsilon ends the audit."""
        subject = self.subject
        powers = dict(zip("qk", questions.powers(subject, self.short), strict=True))
        # With normalised q or k of twice the length logits may grow by 1.002.
        large = {name: power for name, power in powers.items() if 1.002 < power < 1.9}
        if large and self.whole and self.strict:  # √(1 + ε) / √(4 + ε), twice, is the power
            each = [f"{4.0 * (x**2 - 1.0) / (4.0 - x**2):.2g} of {t}'s" for t, x in large.items()]
            text = f"an epsilon of about {' and '.join(each)} mean square"
            self.end("norm", "q and k over their lengths, or not", text, "twice as long")
        normalised = [name for name, power in powers.items() if abs(power - 1.0) < 0.1]
        subject.normalises = bool(normalised)
        self.one_sided = len(normalised) == 1
        if self.one_sided:
            only = f"only {normalised[0]} normalised"
            self.report.add("cosine", "both q and k of length 1, or neither", only)
        if subject.normalises:
            self.reference = questions.slope(subject, self.short)
            centred = " and ".join(questions.centred(subject, self.short))
            if centred and self.strict:
                text = f"{centred} less the mean: a LayerNorm's"
                self.report.add("norm", "q and k over their lengths", text, "1 added to all")

    def scale(self) -> None:
        """Measure what multiplies q·k or the cosine, in several rows, and compare it."""
        subject, report = self.subject, self.report
        ladder = [2**i - 1 for i in range(1, 16) if 2**i <= self.length][: self.d - 1]
        ladder = [row for row in ladder if subject.keys_of([row], row + 1) > 1]
        if subject.sees_past:
            slope = questions.slope(subject, ladder[-1] + 1, ladder)
        else:
            slope = joined([questions.slope(subject, row + 1, [row]) for row in ladder])
        slope = self.finite_rows(self.further(slope))
        if not slope.straight:
            worst = np.argmax(slope.high - slope.low)
            ends = f"{slope.low.flat[worst]:.4g} to {slope.high.flat[worst]:.4g}"
            why = "larger and smaller ones"
            if subject.stored is not None and slope.low.flat[worst] < 0.0 < slope.high.flat[worst]:
                why += ": perhaps a zero point is left out"
            report.add("law", "one scale for all products", ends, why)
        if ((slope.low > slope.high[0]) | (slope.high < slope.low[0])).any():
            each = ", ".join(f"{value:.4g}" for value in slope.value[:, -1])
            report.facts["scale by head"] = each
            if self.strict:
                report.add("heads", "one scale", "several", each)
        value = np.median(slope.value, axis=0)
        low, high = slope.low.min(axis=0), slope.high.max(axis=0)
        applied_to = "cosine" if subject.normalises else "dot product"
        scale = Scale(applied_to, slope.keys, slope.position, value, low, high, "")
        report.scale = scale._replace(law=_law(scale, self.d, self.expected.scale))
        if self.expected.scale is not None and not self.one_sided:
            self.compare(report.scale, self.expected.scale)

    def finite_rows(self, slope: Slope) -> Slope:
        """Return the rows with a finite scale, `reference` if none has; report those without."""
        known = np.isfinite(slope.value).all(axis=0)
        if known.all():
            return slope
        at = ", ".join(f"{n:g}" for n in slope.keys[~known])
        self.report.facts["scale"] = f"unknown at n = {at}: weights are NaN, or all but one are 0"
        if not any(finding.code == "bias" for finding in self.report.findings):
            n = int(slope.keys[~known][0])
            chosen = questions.chosen(self.subject, n, self.unit) if n > self.short else n
            answer = "law", "a scale for every n", f"none at n = {at}", "NaN or weights of 0"
            if chosen < n:
                actual = f"{counted(chosen, 'key')} by their contents"
                answer = "few keys", "all keys", actual, f"{n} random keys"
            self.report.add(*answer)
        if not known.any():
            return self.reference
        kept = (part[..., known] for part in slope[:5])
        return Slope._make([*kept, True])  # the others made it none

    def further(self, slope: Slope) -> Slope:
        """Return `slope`, with one query of a cache if the intended law begins beyond its rows."""
        if not isinstance(self.expected.scale, Policy):
            return slope
        n = 2.0 ** np.arange(1, 18)
        law = self.expected.scale.scale(n=n, d=self.d)
        changed = n[~np.isclose(law, law[0])]
        if not changed.size or changed[0] <= slope.keys[-1]:
            return slope
        keys = int(min(4 * changed[0], LONGEST))
        more = None
        with suppress(ValueError):  # it may not take fewer queries than keys
            more = questions.slope(self.subject, keys, queries=1)
        if more is None or not np.isfinite(more.value).all():
            begins = f"it begins near {changed[0]:g} keys, and fewer were asked"
            self.report.facts["law"] = f"unknown: {begins}"
            return slope
        return joined([slope, more])

    def compare(self, scale: Scale, target: float | Policy) -> None:
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
            wrong = f"of the {scale.applied_to}, {shown(scale.interval)}"
            self.report.add("cosine", f"a scale of the {applied_to}", wrong)
            return
        if agree(wanted, scale.low, scale.high).all():
            return
        with np.errstate(divide="ignore"):
            ratio = scale.value / wanted
            worst = int(np.argmax(np.abs(np.log(np.abs(ratio)))))
        measured, right = scale.at(worst), float(wanted[worst])
        evidence = f"{ratio[worst]:.4g} times what was meant"
        why = reason(measured.value, right, self.d)
        constant = agree(np.median(ratio) * wanted, scale.low, scale.high).all()
        if not constant:
            at = f"at n = {scale.keys[worst]:g}, position {scale.position[worst]:g}"
            evidence += f" {at}"
            if agree(scale.keys**-0.5, scale.low, scale.high).all():
                why = ": 1/√n, n the number of keys"
        self.report.add(
            "scale" if constant else "law",
            f"{right:.4g}" if constant else f"{text}, {right:.4g} {at}",
            shown(measured) + (" times the cosine" if applied_to == "cosine" else ""),
            evidence + why,
        )

    def everywhere(self) -> None:
        """Measure the scale with keys at other places, and by other components of q and k."""
        d, n = self.d, min(LONGER, max(SHORT, self.d - 1))
        ask = partial(questions.slope, self.subject, n, [n - 1])
        answers = {f"component {along}": ask(along=along) for along in (0, d // 2, d - 1)}
        if not self.expected.rotates:
            # A cache may hold no larger numbers.
            name, by = ("twice", 2.0) if self.subject.stored is None else ("half", 0.5)
            answers[f"a key {name} as long"] = ask(places=[n // 2], lengthen=by)
        own = answers.pop("component 0")
        for name, other in answers.items():
            if not np.isfinite(other.value).all():
                continue  # outside of a window
            margin = AGREES * np.abs(own.value)
            if (other.low > own.high + margin).any() or (other.high < own.low - margin).any():
                text = f"{other.value.flat[0]:.4g}, for the query's own key {own.value.flat[0]:.4g}"
                if name.startswith("component"):
                    text = f"{other.value.flat[0]:.4g}, of component 0 {own.value.flat[0]:.4g}"
                    name += " has another, as by a vector of gains"
                self.report.add("law", "one scale", text, f"{name}, n = {n}")
                return

    def same(self, code: str, slope: Slope, where: str) -> None:
        """Report a scale that is not `reference`, that of the last row, within its interval."""
        (value, low, high), right = slope.over_heads(0), self.reference.over_heads(0)
        margin = AGREES * abs(right.value)
        if not right.low - margin <= high >= low <= right.high + margin:
            self.report.add(code, f"{right.value:.4g}", shown(Interval(value, low, high)), where)

    def same_in(self, code: str, subject: Subject, where: str) -> bool:
        """Report another scale of the last row of a subject; return whether it takes the call."""
        with suppress(ValueError):
            self.same(code, questions.slope(subject, self.short), where)
            return True
        return False

    def precision(self) -> None:
        """Measure how logits are rounded; widen intervals where that is more than their type."""
        coarse = self.report.rounding > 1e-5
        apart = coarse and not self.subject.normalises
        bits, finite = questions.precision(self.subject, self.unit, self.short, apart=apart)
        self.report.facts["precision"] = f"{bits:.0f} binary digits of a logit"
        eps = self.subject.eps
        needed = BITS.get(self.subject.dtype, min(15.0, -math.log2(eps)))
        if self.subject.stored is not None:  # queries may be kept in it too, by 10.5 sure digits
            needed = 6.0 if self.subject.stored in WHOLE else min(needed, 10.5)
        if coarse and not apart:
            needed = min(needed, -math.log2(self.report.rounding))
        self.values_digits()
        if not finite:
            actual = "NaN or infinity"
            self.report.add("precision", "finite weights", actual, "logits up to 1000")
        elif bits < needed - 1.5:
            digits = f"{needed} binary digits"
            self.report.add("precision", digits, f"{bits:.1f}", "two keys with large logits")
            self.subject.eps = max(eps, 4.0 * 2.0**-bits)

    def values_digits(self) -> None:
        """Report values that are rounded to fewer digits than the declared type has."""
        kept = KEPT.get(self.subject.stored or self.subject.dtype, 3)
        needed = min(kept, -math.log2(self.subject.eps))
        bits = questions.digits_of_values(self.subject, self.unit, self.short)
        known = any(finding.code == "precision" for finding in self.report.findings)
        if bits is None or bits >= needed - 0.5 or known or not self.strict:
            return
        text = f"values of {needed:.0f} binary digits"
        self.report.add("precision", text, f"about {bits:.1f}", "a key with most of the weight")

    def range(self) -> None:
        """Report products that overflow in float16, and small weights that become 0 in it."""
        subject = self.subject
        if subject.stored is not None or subject.normalises:
            return
        if abs(self.unit) < 0.5:  # else logits may be too large themselves
            q, k = (torch.full_like(t, (1e5 / self.d) ** 0.5) for t in equal_keys(subject, 2, 2))
            finite = np.isfinite(subject.weights(q, k, torch.arange(2))).all()
            why = "q·k above 65504 overflows in float16 before it is scaled"
            self.report.facts["q·k of 1e5"] = "finite" if finite else why
            if self.strict and not finite and not self.half:
                self.report.add("precision", "finite weights", "NaN or infinity", why)
        if self.whole and self.expected.top_k is None:
            least = questions.small_weight(subject, self.unit, self.short)
            if self.strict and least == 0.0:
                text = "0: weights are kept in float16"
                self.report.add("precision", "a weight of about 1e-10", text, "a small logit")


def agree(wanted: Any, low: Any, high: Any) -> np.ndarray:
    """Return, elementwise, whether `wanted` lies in [low, high], widened by AGREES · |wanted|."""
    margin = AGREES * np.abs(wanted)
    return np.asarray((low - margin <= wanted) & (wanted <= high + margin))


def _law(scale: Scale, d: int, target: float | Policy | None) -> str:
    """Return the rule in n and position that the numbers follow: the intended one, if it fits."""
    low, high, value = scale.low, scale.high, scale.value
    if isinstance(target, Policy) and target.applied_to == scale.applied_to:
        wanted = target.scale(n=scale.keys, d=d, position=scale.position)
        if agree(wanted, low, high).all():
            return target.name
    if low.max() <= high.min() or agree(float(np.median(value)), low, high).all():
        return "the same for every n"
    for policy in POLICIES.values():
        if policy.applied_to == scale.applied_to and policy.depends_on_n:
            rule = policy.scale(n=scale.keys, d=d, position=scale.position)
            if agree(rule, low, high).all():
                return policy.name
    logs: FloatArray = np.log(scale.keys)
    slope, start = np.polyfit(logs, value, 1)
    if agree(start + slope * logs, low, high).all():
        return f"{start:.4g} + {slope:.4g} log n"
    ends = f"{value[0]:.4g} at n = {scale.keys[0]:g}, {value[-1]:.4g} at {scale.keys[-1]:g}"
    return f"changes with n: {ends}"


def reason(measured: float, wanted: float, d: int) -> str:
    """Return ": " and simple explanations of a wrong number in words, or "" if there are none."""
    known = {
        "scores are not scaled": 1.0,
        "the scale is applied twice": wanted**2,
        "PyTorch's default, 1/√d": d**-0.5,
        "1/d": 1.0 / d,
        "√d": d**0.5,
        "the sign is wrong": -wanted,
        "log 2 of what was meant: base 2 for e": math.log(2.0) * wanted,
        "log₂ e times what was meant: e for base 2": wanted / math.log(2.0),
    }
    reasons = [name for name, x in known.items() if math.isclose(measured, x, rel_tol=1e-3)]
    other = measured**-2.0 if 0.01 < measured < 1.0 else 0.5
    size = round(other)
    # That of padded heads, of a model's width, or the number of heads.
    sized = size % 4 == 0 and size >= 8 and math.isclose(other, size, rel_tol=1e-4)
    if sized and not reasons:
        reasons.append(f"1/√{size}, where d is {d}")
    return f": {', or '.join(reasons)}" if reasons else ""
