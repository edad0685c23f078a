"""Audit a callable: ask all questions, and compare the answers with the intended attention."""

import math
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from attnlib._checking import FloatArray
from attnlib.auditing import causes, questions
from attnlib.auditing.backward import gradients
from attnlib.auditing.questions import SHORT, Slope, joined
from attnlib.auditing.report import Report, Scale, counted, shown
from attnlib.auditing.response import Interval, Subject, equal_keys
from attnlib.policies import POLICIES, Policy

AGREES = 0.005
"""A number is the intended one if it may be within this share of it."""
NOTHING = 1e-9
"""Logits of random queries and keys that are smaller are none."""
LONGEST = 2**17
"""Of the keys of one query; their values take 64 MB at d = 128."""
LONGER = 64
"""The length at which other keys than the query's own are asked."""
PADDED = (80, 96, 129, 144)
"""Sizes of heads that kernels pad to others."""
APART = 0.05
"""One query of a cache may give another output than the last of many, by this of its spread."""
SLOPES = 0.01
"""A derivative is right if it is within this share of what the forward pass gives."""
BITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 15, torch.float64: 40}
"""How many digits of a logit have to count."""
KEPT = {**BITS, torch.float32: 10, torch.float8_e4m3fn: 4, torch.float8_e5m2: 3, torch.int8: 4}
"""How many of keys: kernels may multiply ten, and a sixteenth of int8's range may be their size."""
OF_QUERIES = 10.5
"""How many digits of a large logit are sure where queries are kept in float8."""
DIGITS = {9.5: "float16", 5.5: "bfloat16", 4.0: "float8_e4m3fn", 2.5: "float8_e5m2 or int4"}
"""Types that more digits than these may be of."""


@dataclass(frozen=True)
class Expected:
    """What the attention should do; None where nothing is stated."""

    scale: float | Policy | None
    cap: float | None = None
    cosine: bool | None = None
    """Whether the scale multiplies a cosine."""
    causal: bool | None = None
    """Whether queries see keys up to their own only, without an argument that says so."""
    window: float | None = None
    chunk: int | None = None
    """How many keys have windows of their own, that begin with their first."""
    first: int = 0
    """How many keys at the beginning a query sees beside its window."""
    ahead: int | None = None
    """How many keys after its own a query sees."""
    sink: bool | tuple[float, ...] | None = None
    """Whether there is one, or its logit, in each head."""
    slopes: tuple[float, ...] | None = None
    """By how much the logit of a key is lower with each place farther, in each head."""
    biased: bool = False
    """Whether logits depend on the place of a key in another way, which is not asked."""
    top_k: int | None = None
    """How many keys are chosen by their contents."""
    true_hides: bool = False
    """Whether True in a mask says that a key is hidden."""
    nan_rows: bool = False
    """Whether rows that a mask hides whole may be NaN."""
    factor: float = 1.0
    causal_from: str | None = None
    """"first" or "last": to which key queries are aligned where they are fewer."""
    one_size: bool = False
    """Whether its heads have one size: a model's."""
    rotates: bool = False
    """Whether it rotates q and k by position, so that other keys do not show the scale."""


class CallableAudit:
    """The checks of one callable: each asks questions and adds facts and findings."""

    def __init__(self, subject: Subject, expected: Expected, length: int) -> None:
        self.subject, self.expected, self.length = subject, expected, length
        self.report = Report()
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
        self.one_sided = False
        """Whether only one of q and k is normalised."""

    def run(self) -> Report:
        """Return the report of all checks. The first checks may leave nothing more to ask."""
        if self.dropout():
            return self.report
        if self.no_softmax():
            return self.report
        visible = questions.visible_keys(self.subject, self.short, self.short)
        if visible[-2, -2] and not visible[:, -1].any():
            self.report.add("window", "keys up to the last", "all but the last", "equal keys")
            return self.report
        self.subject.sees_past = self.visible(visible)
        self.causal_itself()
        if any(finding.found.endswith("inverted") for finding in self.report.findings):
            return self.report
        if not visible[-1].any():
            answer = "window", "keys that are seen", "none"
            if self.random is not None:
                answer = "softmax", "a softmax", "no weight where q·k is 0, as with ReLU"
            self.report.add(*answer, "the last of equal rows")
            return self.report
        counts = visible.sum(axis=-1)
        if counts.max() == 1:
            self.report.facts["scale"] = "unknown: a query sees its own key only"
            self.window()
            return self.report
        self.short = int(np.flatnonzero(counts > 1)[-1]) + 1  # the last may begin a chunk
        self.here = questions.slope(self.subject, self.short, [self.short - 1])
        self.unit = float(np.median(self.here.value))
        if self.scoreless():
            return self.report
        self.length_one()
        self.precision()
        self.range()
        self.scale()
        if self.short == SHORT:
            if not self.one_sided:
                self.everywhere()
            if not self.expected.one_size:
                self.sizes()
        self.cap()
        if self.expected.top_k is None:
            row = self.short // 2 - 1
            self.hidden_counts(torch.from_numpy(~visible[row, : self.short]), row, {})
        self.total()
        self.window()
        seen = int(visible[self.short - 1].sum())
        self.long_sink()
        if self.subject.size.heads > 1:
            self.groups(seen)
        if self.subject.mask:
            self.mask()
        else:
            self.report.facts["a mask"] = "not taken"
        if self.subject.causal:
            self.causal(self.subject.causal)
        self.cache(visible)
        self.backward()
        return self.report

    def no_softmax(self) -> bool:
        """Report why answers are not those of a softmax over all keys; return whether so."""
        subject, n, eps = self.subject, min(SHORT, self.d), self.subject.eps
        q, k = equal_keys(subject, n, n)
        equal = subject.weights(q, k, torch.arange(n))
        self.nearer = None if self.expected.rotates else causes.by_distance(equal, eps)
        if self.nearer is not None:
            subject.slopes = self.nearer[0]
        if not np.isfinite(equal).all():
            row = int(np.flatnonzero(~np.isfinite(equal).all(axis=(0, -1)))[0])
            self.report.add("hidden", "numbers", "NaN", f"row {row} of equal keys")
            return True
        cause = causes.layout(subject, equal, window=self.expected.window not in (None, math.inf))
        if cause is None and self.expected.scale is not None:
            cause = causes.faint(equal)
        if cause is None and self.expected.factor == 1.0:
            cause = causes.undivided(equal)
        if cause is None and self.expected.top_k is None:
            for length in (min(LONGER, self.d), self.length):
                cause = cause or causes.ranges(subject, length, rotates=self.expected.rotates)
        if cause is None and not self.expected.rotates:
            self.rounding()
        self.random = dense = None if cause else causes.dense(subject, n, equal)
        few = None
        if dense is not None:
            few = causes.few_keys(dense, equal)
            cause = causes.axis(dense)
            if cause is None:
                cause = causes.other_rows(subject, dense)
            if cause is None and subject.stored is None:
                cause = causes.other_heads(subject, dense)
            if cause is None and few is None:
                cause = causes.no_softmax(subject, dense)
            if cause is None and few is None and not self.expected.rotates:
                cause = causes.by_more_than_products(subject, n)
        if cause is not None:
            self.report.add(*cause)
            return True
        return self.few_keys(few) or self.bias()

    def few_keys(self, few: tuple[int, int] | None) -> bool:
        """Report how many keys their contents choose; return whether that is not intended."""
        target = self.expected.top_k
        if few is None:
            if target is not None and target < min(SHORT, self.d):
                self.report.add("few keys", counted(target, "key"), "all keys", "random keys")
            return False
        low, high = few
        range_of_keys = f"{low} keys" if low == high else f"{low} to {high} keys"
        self.report.facts["keys by content"] = range_of_keys
        if low == high == target:
            return False
        keys = "all keys" if target is None else counted(target, "key")
        self.report.add("few keys", keys, f"{range_of_keys} by their contents", "random keys")
        return True

    def bias(self) -> bool:
        """Compare a bias by distance with the intended one. No later check depends on it."""
        target, actual = self.expected.slopes, self.nearer
        heads = self.subject.size.heads
        slopes, even, error = actual or (np.zeros(heads), True, 0.0)
        text = ", ".join(f"{slope:.4g}" for slope in slopes)
        text = text if even else f"no line, about {text}"
        if actual is not None:
            self.report.facts["bias by distance"] = f"{text} a place, by head"
        if self.expected.biased:
            return False
        if target is None and (actual is None or self.expected.scale is None):
            return False
        wanted = np.resize(target or (0.0,), heads)
        if even and agree(wanted, slopes - error, slopes + error).all():
            return False
        expected = (
            ", ".join(f"{slope:.4g}" for slope in wanted) if target else "no bias by distance"
        )
        ratio = slopes / wanted if wanted.all() else np.zeros(heads)
        why = f"{ratio[0]:.4g} times" if wanted.all() and np.ptp(ratio) < 0.01 else "by head"
        why = "the sign is wrong" if np.allclose(ratio, -1.0, rtol=0.01) else why
        why += "" if target else ": slopes or bias=True declares it"
        self.report.add("bias", expected, text, f"{why}, nearer keys of equal ones")
        return False

    def dropout(self) -> bool:
        """Ask twice; return whether weights are dropped at random."""
        dropped = questions.dropout(self.subject, self.short)
        if dropped is None:
            raise ValueError("the callable must give the same output twice, and its outputs differ")
        if dropped:
            actual = f"{dropped:.0%} of weights dropped"
            self.report.add("dropout", "the same output twice", actual)
        return bool(dropped)

    def visible(self, visible: np.ndarray) -> bool:
        """Report which keys each query sees; return whether the callable is causal by itself."""
        n, counts = len(visible), visible.sum(axis=-1)
        if visible.all():
            self.report.facts["sees"] = "all keys"
            return False
        ahead = np.array([np.flatnonzero(row).max(initial=-1) - i for i, row in enumerate(visible)])
        if (ahead[: n - 1] == 0).all():
            self.report.facts["sees"] = "the keys up to its own"
            return True
        future = np.triu(np.ones((n, n), dtype=bool), 1)
        if any(
            (visible[:-1] == (future | own)[:-1]).all() for own in (False, np.eye(n, dtype=bool))
        ):
            evidence = f"row 0 sees {counted(counts[0], 'key')}"
            self.report.add("causal", "keys up to its own", "those after: inverted", evidence)
            return True
        for row, actual, wrong in (
            (0, "one key more", self.expected.ahead is None and (ahead[: n - 2] == 1).all()),
            (1, "not its own", (ahead[1:] == -1).all()),
        ):
            if wrong:
                evidence = f"row {row} sees {counted(counts[row], 'key')}"
                self.report.add("causal", "keys up to its own", actual, evidence)
                return True
        self.report.facts["sees"] = f"{counts.min()} to {counts.max()} of {n} keys"
        return False

    def causal_itself(self) -> None:
        """Compare whether it is causal without an argument with the intention."""
        target, actual = self.expected.causal, self.subject.sees_past
        known = any(finding.code == "causal" for finding in self.report.findings)
        if target is not None and target != actual and not known:
            wanted = "the keys up to its own" if target else "keys after its own too"
            self.report.add("causal", wanted, self.report.facts["sees"], "equal keys")

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
            if self.expected.scale is not None:
                self.report.add("precision", what, text, "keys of one length")
            if stored is None and bits < 6.0:
                subject.keep_in(torch.float8_e4m3fn if bits > 4.0 else torch.float8_e5m2)
            elif stored is not None:
                subject.stored_error = error
        if subject.stored is None:
            subject.eps = max(subject.eps, error)

    def scoreless(self) -> bool:
        """Return whether the weights do not depend on scores at all."""
        if float(np.abs(self.here.value).max()) * math.sqrt(self.d) >= NOTHING:
            return False
        if not self.report.findings:  # such as that its own key is hidden
            nothing, keys = np.zeros(1), np.array([float(self.short)])
            self.report.scale = Scale(
                "dot product", keys, keys - 1.0, nothing, nothing, nothing, "scores do not count"
            )
            self.report.add("scale", "scores that count", "0", "weights stay the same")
        return True

    def length_one(self) -> None:
        """Measure whether q and k are normalised to length 1."""
        subject = self.subject
        normalised = [abs(power - 1.0) < 0.1 for power in questions.powers(subject, self.short)]
        subject.normalises = any(normalised)
        self.one_sided = subject.normalises and not all(normalised)
        if self.one_sided:
            only = f"only {'q' if normalised[0] else 'k'} normalised"
            self.report.add("cosine", "both q and k of length 1, or neither", only)
        if subject.normalises:
            self.here = questions.slope(subject, self.short, [self.short - 1])

    def scale(self) -> None:
        """Measure the number that multiplies q·k or the cosine, in several rows."""
        subject, report = self.subject, self.report
        ladder = [2**i - 1 for i in range(1, 16) if 2**i <= self.length][: self.d - 1]
        if subject.sees_past:
            slope = questions.slope(subject, ladder[-1] + 1, ladder)
        else:
            slope = joined([questions.slope(subject, row + 1, [row]) for row in ladder])
        slope = self.told(self.further(slope))
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
            if self.expected.scale is not None:
                report.add("heads", "one scale", "several", each)
        value = np.median(slope.value, axis=0)
        low, high = slope.low.min(axis=0), slope.high.max(axis=0)
        applied_to = "cosine" if subject.normalises else "dot product"
        scale = Scale(applied_to, slope.keys, slope.position, value, low, high, "")
        report.scale = scale._replace(law=_law(scale, self.d, self.expected.scale))
        if self.expected.scale is not None and not self.one_sided:
            self.compare(report.scale, self.expected.scale)

    def told(self, slope: Slope) -> Slope:
        """Return the rows with a finite number; report those without, as where weights are NaN."""
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
            return self.here
        value, low, high, keys, position = (part[..., known] for part in slope[:5])
        return Slope(value, low, high, keys, position, straight=True)  # the others made it none

    def further(self, slope: Slope) -> Slope:
        """Ask beyond the length from which the intended law varies, one query of a cache."""
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
            more = questions.slope(self.subject, keys, [keys - 1], queries=1)
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
            applied_to = target.applied_to
        if applied_to != scale.applied_to:
            wrong = f"of the {scale.applied_to}, {shown(scale.interval)}"
            self.report.add("cosine", f"a scale of the {applied_to}", wrong)
            return
        if isinstance(target, Policy):
            text, wanted = (
                target.name,
                target.scale(n=scale.keys, d=self.d, position=scale.position),
            )
        else:
            wanted = np.full(scale.keys.shape, target)
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
                self.report.add("law", "one scale", text, f"{name}, n = {n}")
                return

    def sizes(self) -> None:
        """Measure the scale for heads of other sizes, which kernels pad, and other values."""
        if not self.subject.normalises:
            self.padded()
        try:
            other = self.subject.resized(values=self.d // 2)
            slope = questions.slope(other, self.short, [self.short - 1])
        except ValueError:
            self.report.facts["values of another size"] = "not taken"
            return
        self.report.facts["values of another size"] = "taken"
        self.same("scale", slope, f"values of size {self.d // 2}")

    def padded(self) -> None:
        """Report sizes of heads that have the scale of a larger size, unless all sizes have it."""
        answers = {}
        for size in PADDED:
            with suppress(ValueError):  # it may be made for one size
                other = self.subject.resized(d=size)
                answers[size] = questions.slope(other, SHORT, [SHORT - 1]).over_heads(0)
        self.report.facts["other head sizes"] = ", ".join(map(str, answers)) or "not taken"
        whole, target = self.here.over_heads(0), self.expected.scale
        law = target if isinstance(target, Policy) else POLICIES["transformer"]
        at = {"n": self.here.keys[0], "position": self.here.position[0]}

        def rule(d: int) -> float:
            return whole.value * float(law.scale(d=d, **at) / law.scale(d=self.d, **at))

        # All sizes may follow a law of their own, such as 1/d.
        powers = [
            np.log(measured.value / whole.value) / np.log(size / self.d)
            for size, measured in answers.items()
            if size != self.d
        ]
        if len(powers) > 1 and np.ptp(powers) < 0.01:
            return
        for size, measured in answers.items():
            own = agree(rule(size), measured.low, measured.high)
            margin = (AGREES + 4.0 * self.subject.stored_error) * whole.value
            constant = measured.low <= whole.high + margin and whole.low - margin <= measured.high
            larger = range(size + 8 - size % 8, 4 * size, 8)
            fits = [d for d in larger if agree(rule(d), measured.low, measured.high)]
            if fits and not own and not (constant and len(answers) > 1):
                text = f"{shown(measured)}, that of d = {fits[0]}"
                self.report.add("head size", f"{rule(size):.4g}", text, f"heads of size {size}")
                return

    def same(self, code: str, slope: Slope, where: str) -> None:
        """Compare a scale with that of the last row, where nothing was varied."""
        (value, low, high), right = slope.over_heads(0), self.here.over_heads(0)
        margin = AGREES * abs(right.value)
        if math.isfinite(value) and not right.low - margin <= high >= low <= right.high + margin:
            self.report.add(code, f"{right.value:.4g}", shown(Interval(value, low, high)), where)

    def cap(self) -> None:
        """Measure the bound of a soft cap."""
        if self.subject.normalises:
            self.report.facts["soft cap"] = "unknown: a cosine is at most 1"
            return
        answer, target = questions.cap(self.subject, self.short), self.expected.cap
        cap = None if answer is None else answer.bound
        actual = self.report.facts["soft cap"] = "none" if cap is None else shown(cap)
        if answer is not None and answer.kind == "clamp":
            actual = self.report.facts["soft cap"] = f"a clamp at {shown(answer.bound)}"
            if target is not None:
                wanted = "no soft cap" if target == math.inf else f"a soft cap of {target:g}"
                self.report.add("cap", wanted, actual, "logits are straight, and then all one")
            return
        if cap is not None:
            self.report.facts["precision"], self.cap_found = "unknown", cap.value
        if target is None:
            return
        if target == math.inf:
            if cap is not None:
                self.report.add("cap", "no soft cap", f"one of {actual}", "logits bend")
        elif cap is None or not agree(target, cap.low, cap.high):
            why = "logits are straight up to 64" if cap is None else "logits bend"
            self.report.add("cap", f"a soft cap of {target:g}", actual, why)

    def total(self) -> None:
        """Measure a sink, and a factor on the output."""
        subject, target = self.subject, self.expected.sink
        block = None if target else questions.blocks(subject, self.unit, self.cap_found)
        if block is not None:
            actual = f"zeros counted to the end of blocks of {block}"
            self.report.add("padding", "keys that are there", actual, "equal rows of 9 to 17 keys")
            return
        n, seen = self.short, np.full(subject.size.heads, float(self.short))
        if self.nearer is not None and self.nearer[1]:
            seen = np.exp(-self.nearer[0][:, None] * np.arange(n)).sum(axis=-1)
        factor, sink, error = questions.total(subject, n, self.unit, self.cap_found, seen)
        if not math.isfinite(factor.value):
            self.report.facts["sink"] = "unknown: weights are not finite"
            if not self.report.findings:
                self.report.add("values", "weights that add up to 1", "NaN", "equal rows")
            return
        actual = "none"
        if sink is not None:
            low, high = float((sink - error).min()), float((sink + error).max())
            actual = f"a logit of {shown(Interval(float(np.median(sink)), low, high))}"
            self.sink_found = sink
            if np.ptp(sink) > 2.0 * error.max() + AGREES:
                actual = f"logits of {', '.join(f'{entry:.4g}' for entry in sink.round(5))}"
        self.report.facts["sink"] = actual
        self.report.facts["factor on the output"] = shown(factor)
        whole = "weights that add up to 1"
        if target is False and sink is not None:
            self.report.add("sink", whole, actual, "equal rows")
        elif target and sink is None:
            self.report.add("sink", "a sink", whole, "equal rows")
        elif isinstance(target, tuple) and sink is not None:
            wanted = np.resize(target, sink.shape)
            if (np.abs(sink - wanted) > error + AGREES * np.maximum(1.0, np.abs(wanted))).any():
                text = ", ".join(f"{entry:g}" for entry in target)
                self.report.add("sink", f"a logit of {text}", actual, "equal rows")
        known = any(entry.code == "softmax" for entry in self.report.findings)
        if sink is None and self.nearer is None and self.cap_found == math.inf and not known:
            for why, times in questions.sums(subject, self.length, self.unit).items():
                untold = math.isfinite(times) or not self.report.findings
                if untold and not agree(1.0, times / factor.high, times / factor.low):
                    actual = f"{times / factor.value:.4g}".replace("nan", "NaN")
                    self.report.add("softmax", "weights that add up to 1", actual, why)
        if not agree(self.expected.factor, factor.low, factor.high):
            meant_factor = f"a factor of {self.expected.factor:g}"
            self.report.add("values", meant_factor, shown(factor), "v = 1")
        elif subject.stored is not None:  # its scale may be that of keys
            times = questions.of_small_values(subject, n)
            if not 0.5 < times < 2.0:
                self.report.add("values", "a factor of 1", f"{times:.2g}", "v a quarter as large")

    def long_sink(self) -> None:
        """Report a sink that counts more often among many keys, as once in each part of them."""
        if self.sink_found is None or self.nearer is not None or self.expected.rotates:
            return
        n, seen = self.length, float(min(self.seen.first + self.seen.last, self.length))
        unit = float(np.median(questions.slope(self.subject, n, [n - 1]).value))
        heads = np.full(self.subject.size.heads, seen)
        _, sink, error = questions.total(self.subject, n, unit, self.cap_found, heads)
        times = 0.0 if sink is None else np.exp(np.median(sink - self.sink_found))
        seldom = math.exp(float(self.sink_found.min())) / seen < 64.0 * self.subject.eps
        if sink is None and seldom:  # it would not show
            return
        if np.max(error) < 0.2 and not 0.7 < times < 1.5:
            why = f"{n} keys beside {self.short}"
            self.report.add("sink", "a sink counted once", f"{times:.2g} times", why)

    def window(self) -> None:
        """Measure the window or chunk of keys a query sees; report one that is not expected."""
        target, subject, n = self.expected, self.subject, self.length
        if self.nearer is not None:  # a bias leaves far keys no weight
            steepest = float(np.abs(self.nearer[0]).max())
            n = min(n, max(self.short, int(60.0 / max(steepest, 1e-9))))
        ask = partial(questions.run, subject, n, even=self.nearer is None)
        last, before = (ask(n - back, n) for back in (1, 2))
        self.seen = last
        actual = _keys(last, n)
        if last.last not in (n, before.last):
            chunk = ask(n - last.last - 1, n).last
            hidden = f"all keys but {last.first} to {n - last.last - 1}"
            actual = f"chunks of {chunk} keys" if chunk >= last.last else hidden
        self.report.facts["window"] = (
            actual
            if actual != "all keys"
            else (
                "none" if n == self.length else f"none up to {n} keys: those farther weigh nothing"
            )
        )
        if target.window is not None:
            wanted = _keys(questions.Run(target.first, min(int(min(target.window, n)), n)), n)
            wanted = f"chunks of {target.chunk} keys" if (target.chunk or n) < n else wanted
            if actual != wanted:
                self.report.add("window", wanted, actual, f"n = {n}")
        far = 0
        if n <= (target.window or 0.0) < math.inf:
            unasked = f"the window of {target.window:g}, at most {n} keys were asked"
            self.report.facts["not asked"] = unasked
            far = int(target.window or 0.0) + LONGER if self.nearer is None else 0
        behind = questions.first_key(subject, n - 1, n - 2, n - 1, back=True)
        if behind:  # a kernel may drop what is beyond whole blocks
            self.report.add("window", "its own key", f"not the last {behind}", f"n = {n - 1}")
        with suppress(ValueError):  # it may not take fewer queries than keys
            alone = ask(n - 1, 1)
            after = questions.first_key(subject, n, 0, 1, back=True)
            if n > self.short and alone != last and after == 0:  # else aligned to the first key
                self.report.add("cache", _keys(last, n), _keys(alone, n), f"one query of {n} keys")
            elif n < far <= LONGEST and after == 0:
                actual = _keys(questions.run(subject, far, far - 1, 1, even=True), far)
                self.report.facts.pop("not asked")
                wanted = _keys(questions.Run(target.first, far - LONGER), far)
                if actual != wanted:
                    self.report.add("window", wanted, actual, f"one query of {far} keys")
        whole = target.causal is False and min(target.window or n, target.chunk or n) >= n
        if target.ahead is not None or whole:
            seen = n - 1 - questions.first_key(subject, n, 0, n, back=True)
            wanted_ahead = n - 1 if target.ahead is None else min(target.ahead, n - 1)
            if seen != wanted_ahead:
                keys = f"{counted(wanted_ahead, 'key')} after its own"
                self.report.add("window", keys, str(seen), f"the first query, n = {n}")

    def groups(self, seen: int) -> None:
        """Report which head of keys and of values each head of queries reads."""
        heads, key_heads, _ = self.subject.size
        read = questions.key_head_of(self.subject, self.short, seen, self.unit)
        wanted = np.arange(heads) // (heads // key_heads)
        wrong: dict[str, str] = {}
        for kind, column in zip(("keys", "values"), read.T, strict=True):
            listed = ", ".join(str(head) if head >= 0 else "?" for head in column)
            self.report.facts[f"head of {kind} of each head"] = listed
            if (column != wanted).any():
                wrong[listed] = (
                    f"{wrong[listed]} and {kind}" if listed in wrong else f"heads of {kind}"
                )
        for listed, evidence in wrong.items():
            self.report.add("groups", ", ".join(map(str, wanted)), listed, evidence)

    def mask(self) -> None:
        """Measure the effect of an argument that hides keys, or is added to logits."""
        report, unit = self.report, self.unit
        answer = questions.mask(self.subject, self.short, unit)
        means = answer.true_means
        report.facts["a mask of True and False"] = f"True: {means}"
        times = answer.multiplier
        whole = times is not None and bool(agree(1.0, times.low, times.high))
        if means == "1" and whole:
            report.facts["a mask of True and False"] = "added as 1 and 0: it takes numbers"
        elif means in ("1", "nothing"):
            report.add("hidden", "a mask that hides keys", "hidden keys have weight", "bool mask")
        elif means == "hidden" and not self.expected.true_hides and self.expected.scale is not None:
            text = "True hides it, inverted: true_hides=True allows it"
            report.add("hidden", "True for a key that is seen", text, "bool mask")
        elif means == "seen" and self.expected.true_hides:
            report.add("hidden", "True for a key that is hidden", "True shows it", "bool mask")
        elif means in ("seen", "hidden"):
            hidden = torch.arange(self.short) == 0
            given = (hidden == (means == "hidden")).expand(1, 1, self.short, -1)
            given = given.to(self.subject.device, answer.kind)
            self.hidden_counts(hidden, -1, {str(self.subject.mask): given})
        report.facts["a row that a mask hides whole"] = answer.hidden_row
        if not (answer.even and questions.mask(self.subject, self.length, unit).even):
            text = f"shares of keys change, n = {self.length}"
            report.add("hidden", "weights as without a mask", text, "a mask that hides no key")
        if answer.total < 1.0 - 0.02:
            total = f"{answer.total:.4g}"
            report.add("padding", "weights that add up to 1", total, "with a mask")
        if means == "seen" and isinstance(self.expected.scale, Policy):
            self.padding(self.expected.scale, answer.kind)
        same = torch.full((1, 1, self.short, self.short), means != "hidden")
        branches = {"True and False": same.to(answer.kind)} if means in ("seen", "hidden") else {}
        if whole and means != "nothing":
            branches["numbers"] = torch.zeros_like(same, dtype=self.subject.of_masks)
        for kind, hides_none in branches.items():
            self.branch(str(self.subject.mask), hides_none.to(self.subject.device), kind)
        actual = "none added" if times is None else f"added {shown(times)} times"
        report.facts["a mask of numbers"] = actual
        if times is not None and not whole:
            reason = "it is not heeded" if abs(times.value) < AGREES else "it is multiplied"
            reason = "it is inverted" if agree(-1.0, times.low, times.high) else reason
            report.add("mask", "a mask that is added as it is", actual, reason)
        strict = self.expected.scale is not None and not self.expected.nan_rows
        if answer.hidden_row == "NaN" and strict:
            row = "a row that a mask hides whole: nan_rows=True allows it"
            report.add("hidden", "numbers", "NaN", row)

    def branch(self, name: str, value: Any, kind: str) -> None:
        """Compare the scale of the last row, given an argument that hides none of its keys."""
        with suppress(ValueError):  # it may not take this kind
            slope = questions.slope(self.subject, self.short, [self.short - 1], **{name: value})
            self.same("scale", slope, f"with {name} of {kind}")

    def hidden_counts(self, hidden: torch.Tensor, row: int, options: dict[str, Any]) -> None:
        """Report keys that are hidden after the softmax: a row does not see but counts them."""
        times = questions.hidden_counts(self.subject, hidden, row, self.unit, **options)
        if times is not None and times < 1.0 - AGREES - 16.0 * self.subject.eps:
            text = f"one over hidden keys too: {times:.4g} of the weight where they are larger"
            why = ", ".join(["they are hidden after the softmax", *options])
            self.report.add("softmax", "a softmax over the keys seen", text, why)

    def padding(self, policy: Policy, kind: torch.dtype) -> None:
        """Hide half of the keys: the n of the law should be that of the others."""
        mask = torch.ones(1, 1, LONGER, LONGER, dtype=kind, device=self.subject.device)
        half, n = LONGER // 2, [LONGER, LONGER // 2]
        if np.ptp(policy.scale(n=n, d=self.d, position=LONGER - 1)) == 0.0:
            return
        mask[..., :half] = 0
        options: dict[str, Any] = {str(self.subject.mask): mask}
        slope = questions.slope(self.subject, LONGER, [LONGER - 1], **options).over_heads(0)
        wanted = policy.scale(n=half, d=self.d, position=[half - 1, LONGER - 1])
        if not agree(wanted, slope.low, slope.high).any():
            text = f"{policy.name} of {half} keys, {wanted[0]:.4g}"
            evidence = f"a mask hides {half} of {LONGER} keys"
            self.report.add("padding", text, shown(slope), evidence)

    def causal(self, name: str) -> None:
        """Measure the argument that hides the keys after a query's own, with fewer queries too."""
        n, few, switch = self.short, self.short // 2, {name: True}
        visible = questions.visible_keys(self.subject, n, n, **switch)
        self.compare_visible(visible, 0, name)
        row = n // 2 - 1
        self.hidden_counts(torch.from_numpy(~visible[row]), row, switch)
        if visible[-1].all():
            self.branch(name, True, "True")
        try:
            visible = questions.visible_keys(self.subject, few, n, **switch)
        except ValueError:
            return
        aligned = "last" if visible[:, few:].any() else "first"
        self.report.facts[f"{name} of fewer queries"] = f"aligned to the {aligned} key"
        if self.expected.causal_from is not None:
            ahead = n - few if self.expected.causal_from == "last" else 0
            self.compare_visible(visible, ahead, f"{name}, {few} queries of {n} keys")

    def compare_visible(self, visible: np.ndarray, ahead: int, name: str) -> None:
        """Compare the visible keys with those up to a query's own; `ahead` are cached."""
        right = np.tril(np.ones_like(visible), ahead)
        if (visible != right).any():
            row = int(np.flatnonzero((visible != right).any(axis=-1))[0])
            code = "causal" if len(visible) == visible.shape[1] else "cache"
            expected, actual = (counted(keys[row].sum(), "key") for keys in (right, visible))
            self.report.add(code, expected, actual, f"{name}, row {row}")

    def cache(self, visible: np.ndarray) -> None:
        """Ask one query of many keys, and a chunk of a prompt whose beginning is cached."""
        n = self.short
        for queries, name in ((n // 2, f"{n // 2} queries"), (1, "one query")):
            asked, right = f"{name} of a cache", visible[n - queries : n, :n]
            try:
                seen_keys = questions.visible_keys(self.subject, queries, n)
                slope = questions.slope(self.subject, n, [n - 1], queries=queries)
            except ValueError:
                self.report.facts[asked] = "not taken"
                return
            seen, wanted = int(seen_keys[-1].sum()), int(right[-1].sum())
            self.report.facts[asked] = f"sees {seen} of {n}"
            first = self.subject.sees_past and seen == queries
            if first and self.expected.causal_from != "last":
                text = f"aligned to the first key, sees {seen} of {n}"
                self.report.facts[asked] = f"not taken: {text}"
                if self.expected.causal and self.expected.causal_from is None and queries == 1:
                    why = f"{asked}: causal_from='first' allows it"
                    self.report.add("cache", counted(wanted, "key"), text, why)
                continue
            if (seen_keys != right).any():
                row = int(np.flatnonzero((seen_keys != right).any(axis=-1))[0])
                expected, actual = (counted(keys[row].sum(), "key") for keys in (right, seen_keys))
                at = asked if queries == 1 else f"{asked}, the first of them that differs"
                self.report.add("cache", expected, actual, at)
            else:
                self.same("cache", slope, asked)
        if not (first or self.report.findings):
            self.decoding(int(visible[n - 1].sum()))

    def decoding(self, seen: int) -> None:
        """Ask the cap, the sink and the heads of one query of a cache, and compare its output."""
        alone = copy(self)
        alone.subject, alone.report = self.subject.of_last_query(), Report()
        alone.cap()
        alone.total()
        alone.long_sink()
        if self.subject.size.heads > 1:
            alone.groups(seen)
        for finding in alone.report.findings:
            self.report.findings.append(finding._replace(where="one query of a cache"))
        if self.expected.top_k is None and not alone.report.findings:
            n = self.length - 1  # kernels drop what is beyond whole blocks
            apart = questions.apart(self.subject, alone.subject, n, self.unit)
            if apart > APART + 16.0 * self.subject.eps + 4.0 * self.subject.stored_error:
                text = f"{apart:.1g} of its spread apart"
                self.report.add("cache", "the output of many queries", text, f"one of {n} keys")

    def precision(self) -> None:
        """Measure how logits are rounded; widen intervals where that is more than their type."""
        coarse = self.report.rounding > 1e-5
        apart = coarse and not self.subject.normalises
        answer = questions.precision(self.subject, self.unit, self.short, apart=apart)
        self.report.facts["precision"] = f"{answer.bits:.0f} binary digits of a logit"
        eps = self.subject.eps
        needed = BITS.get(self.subject.dtype, min(15.0, -math.log2(eps)))
        if self.subject.stored is not None:  # queries may be kept in it too
            needed = 6.0 if self.subject.stored == torch.int8 else min(needed, OF_QUERIES)
        if coarse and not apart:
            needed = min(needed, -math.log2(self.report.rounding))
        self.values_digits()
        if not answer.finite:
            actual = "NaN or infinity"
            self.report.add("precision", "finite weights", actual, "logits up to 1000")
        elif answer.bits < needed - 1.5:
            digits = f"{needed} binary digits"
            self.report.add("precision", digits, f"{answer.bits:.1f}", "two keys with large logits")
            self.subject.eps = max(eps, 4.0 * 2.0**-answer.bits)

    def values_digits(self) -> None:
        """Compare the digits of values with those of the declared type, as of keys before."""
        kept = KEPT.get(self.subject.stored or self.subject.dtype, 3)
        needed = min(kept, -math.log2(self.subject.eps))
        bits = questions.digits_of_values(self.subject, self.unit, self.short)
        known = any(finding.code == "precision" for finding in self.report.findings)
        if bits is None or bits >= needed - 0.5 or known or self.expected.scale is None:
            return
        text = f"values of {needed:.0f} binary digits"
        self.report.add("precision", text, f"about {bits:.1f}", "a key with most of the weight")

    def range(self) -> None:
        """Report what the numbers of float16 cannot hold: large products, and small weights."""
        subject, strict = self.subject, self.expected.scale is not None
        if subject.stored is not None or subject.normalises:
            return
        if abs(self.unit) < 0.5:  # else logits may be too large themselves
            q, k = (torch.full_like(t, (1e5 / self.d) ** 0.5) for t in equal_keys(subject, 2, 2))
            finite = np.isfinite(subject.weights(q, k, torch.arange(2))).all()
            why = "q·k above 65504 overflows in float16 before it is scaled"
            self.report.facts["q·k of 1e5"] = "finite" if finite else why
            if strict and not finite and not self.half:
                self.report.add("precision", "finite weights", "NaN or infinity", why)
        if self.whole and self.expected.top_k is None:
            least = questions.small_weight(subject, self.unit, self.short)
            if strict and least == 0.0:
                text = "0: weights are kept in float16"
                self.report.add("precision", "a weight of about 1e-10", text, "a small logit")

    def backward(self) -> None:
        """Compare gradients with differences of what the forward pass gives."""
        if self.subject.stored is not None:
            self.report.facts["backward"] = f"unknown: stored in {self.subject.stored}"
            return
        unit = float(np.median(self.here.value))
        try:
            derivatives = gradients(self.subject, self.short, unit)
        except ValueError as error:  # it may have none on this device
            self.report.facts["backward"] = f"unknown: {error}"
            return
        if self.report.facts.get("values of another size") == "taken":
            wide = self.subject.resized(values=2 * self.d)
            with suppress(ValueError):
                derivatives += [
                    derivative._replace(of=f"{derivative.of}, values of size {2 * self.d}")
                    for derivative in gradients(wide, self.short, unit)
                ]
        if (
            derivatives and self.cap_found < math.inf and self.subject.eps < 1e-5
        ):  # else it is rounded
            half = self.cap_found / (2.0 * unit * math.sqrt(self.d))
            near = gradients(self.subject, self.short, unit, shift=half)
            derivatives += [
                derivative._replace(of=f"{derivative.of}, logits of half the cap")
                for derivative in near
            ]
        self.report.facts["backward"] = "as forward" if derivatives else "unknown: no derivative"
        scale = float(self.here.value[0, 0])
        bends = 0.1 / self.cap_found**2  # by which differences are off
        wrong = [
            derivative
            for derivative in derivatives
            if math.isfinite(derivative.forward)
            and not abs(derivative.backward - derivative.forward)
            <= (SLOPES + 16.0 * self.subject.eps + bends) * abs(derivative.forward)
            + derivative.error
        ]
        if not wrong:
            return
        self.report.facts["backward"] = "differs"
        first, *others = wrong
        text, wanted, evidence = f"{first.backward:.4g}", f"{first.forward:.4g}", "the derivative"
        if first.forward:
            ratio = first.backward / first.forward
            evidence = f"{ratio:.4g} times its derivative"
            if first.of.split(",")[0] in ("q", "k"):
                text, wanted = f"the scale {ratio * scale:.4g}", f"{scale:.4g}"
                evidence += reason(ratio * scale, scale, self.d)
        evidence += f" with respect to {first.of}"
        if others:
            evidence += f"; also to {'; '.join(derivative.of for derivative in others)}"
        self.report.add("backward", f"{wanted}, as forward", text, evidence)


def _keys(seen: questions.Run, n: int) -> str:
    """Return in words which keys a query of n keys sees."""
    if seen.first + seen.last >= n:
        return "all keys"
    beside = f" and the first {seen.first}" if seen.first else ""
    return counted(seen.last, "key") + beside


def agree(wanted: Any, low: Any, high: Any) -> np.ndarray:
    """Return whether the expected numbers lie in the interval, widened by a share AGREES."""
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
    """Return in words a simple explanation of a wrong number, if there is one."""
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
