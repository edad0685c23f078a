"""Audit a callable: ask all questions, and compare the answers with the intended attention."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from functools import partial

import numpy as np
import torch

from attnlib._checking import FloatArray
from attnlib.auditing import causes, questions
from attnlib.auditing.backward import gradients
from attnlib.auditing.questions import SHORT
from attnlib.auditing.report import Report, Scale, counted, shown
from attnlib.auditing.response import Subject, equal_keys, of_heads, row_sums
from attnlib.auditing.scales import (
    AGREES,
    LONGER,
    LONGEST,
    EndedError,
    ScaleAudit,
    agree,
    reason,
)
from attnlib.policies import POLICIES, Policy

PADDED = (80, 96, 129, 144)
"""Sizes of heads that kernels pad to others."""
BLOCKS = 256
"""At how many keys later rows are looked at: blocks of a kernel have 128 queries at most."""
SLOPES = 0.01
"""A derivative is right if it is within this share of what the forward pass gives."""


class CallableAudit(ScaleAudit):
    """Run all checks of one callable: each asks questions and adds facts and findings."""

    def run(self) -> Report:
        """Run all checks and return the report; a finding of the first ones may end them."""
        with suppress(EndedError):
            self.dropout()
            self.no_softmax()
            visible = questions.visible_keys(self.subject, self.short, self.short)
            self.keys_seen(visible)
            self.measure(visible)
        return self.report

    def keys_seen(self, visible: np.ndarray) -> None:
        """Report which keys queries see, and choose the row in which the others are asked."""
        if visible[-2, -2] and not visible[:, -1].any():
            self.end("window", "keys up to the last", "all but the last", "equal keys")
        self.subject.sees_past = self.visible(visible)
        self.causal_itself()
        if not visible[-1].any():
            answer = "window", "keys that are seen", "none"
            if self.random is not None:
                answer = "softmax", "a softmax", "no weight where q·k is 0, as with ReLU"
            self.end(*answer, "the last of equal rows")
        counts = visible.sum(axis=-1)
        if counts.max() == 1:
            self.report.facts["scale"] = "unknown: a query sees its own key only"
            self.window()
            raise EndedError
        self.short = row = int(np.flatnonzero(counts > 1)[-1]) + 1  # the last may begin a chunk
        self.places = np.flatnonzero(visible[row - 1])
        if not visible[row - 1, row - 1] and self.expected.pattern is None:
            if self.report.findings:
                raise EndedError
            actual = f"keys {self.places[0]} to {self.places[-1]}"
            self.end("window", "its own key", actual, f"row {row - 1}")

    def measure(self, visible: np.ndarray) -> None:
        """Ask the scale and what depends on it."""
        self.reference = questions.slope(self.subject, self.short)
        self.unit = float(np.median(self.reference.value))
        self.scoreless()
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
            hidden = torch.from_numpy(~visible[row, : self.short])
            self.hidden_counts(self.subject, hidden, row)
        self.total()
        self.window()
        if self.report.facts.get("sees") == "the keys up to its own":
            self.later_rows(self.subject)
        self.long_sink()
        if self.subject.size.heads > 1:
            self.groups()
        if self.subject.mask:
            self.mask()
        else:
            self.report.facts["a mask"] = "not taken"
        if self.subject.causal:
            self.causal(self.subject.causal)
        self.cache(visible)
        self.every_answer()
        self.backward()

    def every_answer(self) -> None:
        """Report an answer to any question that was not finite, or whose weights were lost."""
        odd = {} if self.half else self.subject.odd  # which large logits exceed
        if self.sink_found is not None or self.expected.pattern is not None:
            odd = {found: where for found, where in odd.items() if found == "NaN"}
        if odd and not self.report.findings:
            found, where = next(iter(odd.items()))
            self.report.add("softmax", "weights that add up to 1", found, where)

    def no_softmax(self) -> None:
        """Report why answers are not those of a softmax, which ends the audit."""
        subject, n, eps = self.subject, min(SHORT, self.d), self.subject.eps
        q, k = equal_keys(subject, n, n)
        equal = subject.weights(q, k, torch.arange(n))
        self.nearer = None if self.expected.rotates else causes.by_distance(equal, eps)
        if self.nearer is not None:
            subject.slopes = self.nearer[0]
        if not np.isfinite(equal).all():
            row = int(np.flatnonzero(~np.isfinite(equal).all(axis=(0, -1)))[0])
            self.end("hidden", "numbers", "NaN", f"row {row} of equal keys")
        self.random: causes.Dense | None = None
        self.few: tuple[int, int] | None = None
        cause = next(filter(None, self.possible_causes(equal)), None)
        if cause is not None:
            self.end(*cause)
        self.few_keys()
        self.bias()

    def possible_causes(self, equal: FloatArray) -> Iterator[causes.Cause | None]:
        """Yield a cause or None from one test after another; the first cause is the answer."""
        subject, target = self.subject, self.expected
        hides = target.pattern or target.window not in (None, math.inf)
        yield causes.layout(subject, equal, window=bool(hides))
        if target.scale is not None:
            yield causes.faint(equal)
        if target.factor == 1.0:
            yield causes.undivided(equal)
        yield self.parts(subject)
        if not target.rotates:
            self.rounding()
        self.random = dense = causes.dense(subject, equal.shape[-1], equal)
        if dense is None:
            return
        stored, uneven = subject.stored, np.ptp(dense.weights.sum(axis=-1))
        if stored is not None and stored.is_floating_point and uneven > 2.0 * subject.eps:
            subject.weights_error = torch.finfo(stored).eps / 2.0
        self.few = causes.few_keys(dense, equal)
        yield causes.axis(dense)
        yield causes.other_rows(subject, dense)
        if subject.stored is None:
            yield causes.other_heads(subject, dense)
        if self.few is None:
            yield causes.no_softmax(subject, dense)
        if self.few is None and not target.rotates:
            yield causes.by_more_than_products(subject, equal.shape[-1])

    def parts(self, subject: Subject) -> causes.Cause | None:
        """Return a cause if parts of a row are merged with wrong weights or have other scales."""
        if self.expected.top_k is not None:
            return None
        lengths, rotates = (min(LONGER, self.d), self.length), self.expected.rotates
        answers = (causes.ranges(subject, length, rotates=rotates) for length in lengths)
        return next(filter(None, answers), None)

    def few_keys(self) -> None:
        """Report how many keys a query chooses by content; others than intended end the audit."""
        target = self.expected.top_k
        if self.few is None:
            if target is not None and target < min(SHORT, self.d):
                self.report.add("few keys", counted(target, "key"), "all keys", "random keys")
            return
        low, high = self.few
        range_of_keys = f"{low} keys" if low == high else f"{low} to {high} keys"
        self.report.facts["keys by content"] = range_of_keys
        if not low == high == target:
            keys = "all keys" if target is None else counted(target, "key")
            self.end("few keys", keys, f"{range_of_keys} by their contents", "random keys")

    def bias(self) -> None:
        """Compare a bias by distance with the intended one."""
        target, actual = self.expected.slopes, self.nearer
        heads = self.subject.size.heads
        slopes, even, error = actual or (np.zeros(heads), True, 0.0)
        text = ", ".join(f"{slope:.4g}" for slope in slopes)
        text = text if even else f"no line, about {text}"
        if actual is not None:
            self.report.facts["bias by distance"] = f"{text} a place, by head"
        meant = target is not None or (actual is not None and self.strict)
        if self.expected.bias or not meant:
            return
        wanted = np.resize(target or (0.0,), heads)
        if even and agree(wanted, slopes - error, slopes + error).all():
            return
        expected = "no bias by distance"
        if target:
            expected = ", ".join(f"{slope:.4g}" for slope in wanted)
        ratio = slopes / wanted if wanted.all() else np.zeros(heads)
        why = f"{ratio[0]:.4g} times" if wanted.all() and np.ptp(ratio) < 0.01 else "by head"
        why = "the sign is wrong" if np.allclose(ratio, -1.0, rtol=0.01) else why
        why += "" if target else ": slopes or bias=True declares it"
        self.report.add("bias", expected, text, f"{why}, nearer keys of equal ones")

    def dropout(self) -> None:
        """Report dropout, which ends the audit; ValueError if calls differ otherwise."""
        dropped = questions.dropout(self.subject, self.short)
        if dropped is None:
            raise ValueError("the callable must give the same output twice, and its outputs differ")
        if dropped:
            self.end("dropout", "the same output twice", f"{dropped:.0%} of weights dropped")

    def visible(self, visible: np.ndarray) -> bool:
        """Report which keys each query sees; return if it is causal without an argument for it."""
        n, counts = len(visible), visible.sum(axis=-1)
        if self.expected.pattern is not None:
            self.report.facts["sees"] = "keys as declared"
            if not self.same_keys("hidden", visible, self.expected.pattern(n), f"n = {n}"):
                self.report.facts["sees"] = _pattern(visible)
            return False
        if visible.all():
            self.report.facts["sees"] = "all keys"
            return False
        ahead = np.array([np.flatnonzero(row).max(initial=-1) - i for i, row in enumerate(visible)])
        if (ahead[: n - 1] == 0).all():
            self.report.facts["sees"] = "the keys up to its own"
            return True
        future, own = np.triu(np.ones((n, n), dtype=bool), 1), np.eye(n, dtype=bool)
        inverted = [(visible[:-1] == hidden[:-1]).all() for hidden in (future, future | own)]
        for row, actual, wrong in (
            (0, "those after: inverted", any(inverted)),
            (0, "one key more", self.expected.ahead is None and (ahead[: n - 2] == 1).all()),
            (1, "not its own", (ahead[1:] == -1).all()),
        ):
            if wrong:
                evidence = f"row {row} sees {counted(counts[row], 'key')}"
                self.report.add("causal", "keys up to its own", actual, evidence)
                if any(inverted):
                    raise EndedError
                return True
        self.report.facts["sees"] = name = _pattern(visible)
        if self.strict and self.expected.causal is None and "its" in name:
            wanted = "all keys, or those up to its own"
            self.report.add("hidden", wanted, name, "equal keys: pattern declares them")
        return False

    def causal_itself(self) -> None:
        """Report if it is causal without an argument and should not be, or the reverse."""
        target, actual = self.expected.causal, self.report.facts.get("sees", "")
        known = any(finding.code == "causal" for finding in self.report.findings)
        if target is not None and target != self.subject.sees_past and not known:
            wanted = "the keys up to its own" if target else "keys after its own too"
            why = "equal keys" + ("" if actual == "all keys" else ": pattern declares others")
            self.report.add("causal", wanted, actual, why)

    def scoreless(self) -> None:
        """Report if no weight depends on the scores, which ends the audit."""
        largest = float(np.abs(self.reference.value).max()) * math.sqrt(self.d)
        if largest >= 1e-9:  # smaller logits of random queries and keys are none
            return
        if self.report.findings:  # such as that its own key is hidden
            raise EndedError
        zero, keys = np.zeros(1), np.array([float(self.short)])
        law = "scores do not count"
        self.report.scale = Scale("dot product", keys, keys - 1.0, zero, zero, zero, law)
        self.end("scale", "scores that count", "0", "weights stay the same")

    def sizes(self) -> None:
        """Report another scale at other sizes of heads, which kernels pad, or of values."""
        if not self.subject.normalises:
            self.padded()
        size = self.d // 2
        taken = self.same_in("scale", self.subject.resized(values=size), f"values of size {size}")
        self.report.facts["values of another size"] = "taken" if taken else "not taken"

    def padded(self) -> None:
        """Report sizes of heads that have the scale of a larger size, unless all sizes have it."""
        answers = {}
        for size in PADDED:
            with suppress(ValueError):  # it may be made for one size
                other = self.subject.resized(d=size)
                answers[size] = questions.slope(other, SHORT).over_heads(0)
        self.report.facts["other head sizes"] = ", ".join(map(str, answers)) or "not taken"
        whole, target = self.reference.over_heads(0), self.expected.scale
        law = target if isinstance(target, Policy) else POLICIES["transformer"]
        at = {"n": self.reference.keys[0], "position": self.reference.position[0]}

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

    def cap(self) -> None:
        """Measure the bound of a soft cap, and compare it with the intended one."""
        if self.subject.normalises:
            self.report.facts["soft cap"] = "unknown: a cosine is at most 1"
            return
        answer, target = questions.cap(self.subject, self.short), self.expected.cap
        soft = as_meant = False
        if answer is None:
            actual, why, as_meant = "none", "logits are straight up to 64", target == math.inf
        else:
            kind, bound = answer
            actual, why = f"a clamp at {shown(bound)}", "logits are straight, and then all one"
            soft = kind == "soft cap"
            if soft:
                self.report.facts["precision"], self.cap_found = "unknown", bound.value
                actual, why = shown(bound), "logits bend"
                finite = target is not None and target < math.inf
                as_meant = finite and bool(agree(target, bound.low, bound.high))
        self.report.facts["soft cap"] = actual
        if target is None or as_meant:
            return
        wanted = "no soft cap" if target == math.inf else f"a soft cap of {target:g}"
        found = f"one of {actual}" if soft and target == math.inf else actual
        self.report.add("cap", wanted, found, why)

    def total(self) -> None:
        """Measure a sink and a factor on the output, and compare them with the intended ones."""
        subject, target = self.subject, self.expected.sink
        block = None if target else questions.blocks(subject, self.unit, self.cap_found)
        if block is not None:
            actual = f"zeros counted to the end of blocks of {block}"
            self.report.add("padding", "keys that are there", actual, "equal rows of 9 to 17 keys")
            return
        n, seen = self.short, np.full(subject.size.heads, float(len(self.places)))
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
            actual = f"a logit of {shown(of_heads(sink, error))}"
            self.sink_found = sink
            if np.ptp(sink) > 2.0 * error.max() + AGREES:
                actual = f"logits of {', '.join(f'{entry:.4g}' for entry in sink.round(5))}"
        self.report.facts["sink"] = actual
        self.report.facts["factor on the output"] = shown(factor)
        whole = "weights that add up to 1"
        if target is False and sink is not None:
            self.report.add("sink", whole, actual, "equal rows")
        elif target and sink is None:
            self.report.add("sink", "a sink", f"{whole[:-1]}{shown(factor)}", "equal rows")
            return
        elif isinstance(target, tuple) and sink is not None:
            wanted = np.resize(target, sink.shape)
            if (np.abs(sink - wanted) > error + AGREES * np.maximum(1.0, np.abs(wanted))).any():
                text = ", ".join(f"{entry:g}" for entry in target)
                self.report.add("sink", f"a logit of {text}", actual, "equal rows")
        known = any(entry.code == "softmax" for entry in self.report.findings)
        if sink is None and self.nearer is None and self.cap_found == math.inf and not known:
            for why, times in questions.sums(
                subject, self.length, self.unit, factor.value, whole=self.whole
            ).items():
                untold = math.isfinite(times) or not self.report.findings
                low, high = times / factor.high, times / factor.low
                off = subject.weights_error * times
                if untold and not agree(1.0, low - off, high + off):
                    actual = f"{times / factor.value:.4g}".replace("nan", "NaN")
                    self.report.add("softmax", "weights that add up to 1", actual, why)
                    break
        if not agree(self.expected.factor, factor.low, factor.high):
            meant_factor = f"a factor of {self.expected.factor:g}"
            self.report.add("values", meant_factor, shown(factor), "v = 1")
        elif subject.stored is not None:  # its scale may be that of keys
            q, k = equal_keys(subject, n, n)
            large, small = (row_sums(subject, q, k, by)[:, -1].sum() for by in (1.0, 0.25))
            times = float(small / large)
            if not 0.5 < times < 2.0:
                self.report.add("values", "a factor of 1", f"{times:.2g}", "v a quarter as large")

    def long_sink(self) -> None:
        """Report a sink that counts more often among many keys, as once in each part of them."""
        if self.sink_found is None or self.nearer is not None or self.expected.rotates:
            return
        n, seen = self.length, float(min(self.seen.first + self.seen.last, self.length))
        unit = float(np.median(questions.slope(self.subject, n).value))
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
        if target.pattern is not None:
            self.whole_pattern(target.pattern)
            return
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
        fact = actual
        if actual == "all keys":
            far_ones = f"none up to {n} keys: those farther weigh nothing"
            fact = "none" if n == self.length else far_ones
        self.report.facts["window"] = fact
        if target.window is not None:
            wanted = _keys(questions.Run(target.first_keys, int(min(target.window, n))), n)
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
                wanted = _keys(questions.Run(target.first_keys, far - LONGER), far)
                if actual != wanted:
                    self.report.add("window", wanted, actual, f"one query of {far} keys")
        whole = target.causal is False and min(target.window or n, target.chunk or n) >= n
        if target.ahead is not None or whole:
            seen = n - 1 - questions.first_key(subject, n, 0, n, back=True)
            wanted_ahead = n - 1 if target.ahead is None else min(target.ahead, n - 1)
            if seen != wanted_ahead:
                keys = f"{counted(wanted_ahead, 'key')} after its own"
                self.report.add("window", keys, str(seen), f"the first query, n = {n}")

    def later_rows(self, subject: Subject) -> None:
        """Report keys after its own that a row of later blocks sees, where early ones see none."""
        n = min(self.length, BLOCKS)
        at = " with ".join([f"queries of {n} keys", *subject.options])
        for queries in (n,) if subject.options else (n, n // 2):
            with suppress(ValueError):  # it may not take fewer queries than keys
                visible = questions.visible_keys(subject, queries, n)
                right = np.tril(visible, n - queries)
                if not self.same_keys("causal", visible, right, f"{queries} {at}"):
                    return

    def whole_pattern(self, pattern: Callable[[int], np.ndarray]) -> None:
        """Compare the keys that all queries, and one query of a cache, see with the pattern."""
        self.seen = questions.Run(0, int(pattern(self.length)[-1].sum()))
        for n, queries in ((self.length, self.length), (self.length - 1, 1)):
            with suppress(ValueError):  # it may not take fewer queries than keys
                visible = questions.visible_keys(self.subject, queries, n)
                code, name = ("hidden", "") if queries > 1 else ("cache", "one query, ")
                self.same_keys(code, visible, pattern(n)[n - queries :], f"{name}n = {n}")

    def groups(self) -> None:
        """Report which head of keys and of values each head of queries reads."""
        heads, key_heads, _ = self.subject.size
        read = questions.key_head_of(self.subject, self.short, self.places, self.unit)
        wanted = np.arange(heads) // (heads // key_heads)
        wrong: dict[str, list[str]] = {}
        for kind, column in zip(("keys", "values"), read.T, strict=True):
            listed = ", ".join(str(head) if head >= 0 else "?" for head in column)
            self.report.facts[f"head of {kind} of each head"] = listed
            if (column != wanted).any():
                wrong.setdefault(listed, []).append(kind)
        for listed, kinds in wrong.items():
            evidence = f"heads of {' and '.join(kinds)}"
            self.report.add("groups", ", ".join(map(str, wanted)), listed, evidence)

    def mask(self) -> None:
        """Measure what a mask does, which hides keys or is added to logits; report faults."""
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
        elif means == "hidden" and not self.expected.true_hides and self.strict:
            text = "True hides it, inverted: true_hides=True allows it"
            report.add("hidden", "True for a key that is seen", text, "bool mask")
        elif means == "seen" and self.expected.true_hides:
            report.add("hidden", "True for a key that is hidden", "True shows it", "bool mask")
        elif means in ("seen", "hidden"):
            hidden = torch.arange(self.short) == 0
            given = (hidden == (means == "hidden")).expand(1, 1, self.short, -1)
            given = given.to(self.subject.device, answer.kind)
            masked = self.subject.masked(given)
            self.first_hidden = masked.options
            self.hidden_counts(masked, hidden, -1)
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
            masked = self.subject.masked(hides_none.to(self.subject.device))
            self.same_in("scale", masked, f"with {self.subject.mask} of {kind}")
        actual = "none added" if times is None else f"added {shown(times)} times"
        report.facts["a mask of numbers"] = actual
        if times is not None and not whole:
            reason = "it is not heeded" if abs(times.value) < AGREES else "it is multiplied"
            reason = "it is inverted" if agree(-1.0, times.low, times.high) else reason
            report.add("mask", "a mask that is added as it is", actual, reason)
        if answer.hidden_row == "NaN" and self.strict and not self.expected.nan_rows:
            row = "a row that a mask hides whole: nan_rows=True allows it"
            report.add("hidden", "numbers", "NaN", row)

    def hidden_counts(self, subject: Subject, hidden: torch.Tensor, row: int) -> None:
        """Report keys that are hidden only after the softmax, so that a row's sum has them."""
        times = questions.hidden_counts(subject, hidden, row, self.unit)
        if times is not None and times < 1.0 - AGREES - 16.0 * self.subject.eps:
            text = f"one over hidden keys too: {times:.4g} of the weight where they are larger"
            why = ", ".join(["they are hidden after the softmax", *subject.options])
            self.report.add("softmax", "a softmax over the keys seen", text, why)

    def padding(self, policy: Policy, kind: torch.dtype) -> None:
        """Report a law whose n counts keys that a mask hides, here half of them."""
        mask = torch.ones(1, 1, LONGER, LONGER, dtype=kind, device=self.subject.device)
        half, n = LONGER // 2, [LONGER, LONGER // 2]
        if np.ptp(policy.scale(n=n, d=self.d, position=LONGER - 1)) == 0.0:
            return
        mask[..., :half] = 0
        slope = questions.slope(self.subject.masked(mask), LONGER).over_heads(0)
        wanted = policy.scale(n=half, d=self.d, position=[half - 1, LONGER - 1])
        if not agree(wanted, slope.low, slope.high).any():
            text = f"{policy.name} of {half} keys, {wanted[0]:.4g}"
            evidence = f"a mask hides {half} of {LONGER} keys"
            self.report.add("padding", text, shown(slope), evidence)

    def causal(self, name: str) -> None:
        """Check the argument `name`, which hides keys after a query's own, with few queries too."""
        n, few, subject = self.short, self.short // 2, self.subject.given(**{name: True})
        visible = questions.visible_keys(subject, n, n)
        if self.same_keys("causal", visible, np.tri(n, dtype=bool), name):
            self.later_rows(subject)
        row = n // 2 - 1
        self.hidden_counts(subject, torch.from_numpy(~visible[row]), row)
        if visible[-1].all():
            self.same_in("scale", subject, f"with {name} of True")
        if self.first_hidden:
            with suppress(ValueError):  # it may not take both
                both = questions.visible_keys(subject.given(**self.first_hidden), n, n)
                both[0], visible[1:, 0] = visible[0], False
                self.same_keys("hidden", both, visible, f"{name} with a mask")
        try:
            visible = questions.visible_keys(subject, few, n)
        except ValueError:
            return
        aligned = "last" if visible[:, few:].any() else "first"
        self.report.facts[f"{name} of fewer queries"] = f"aligned to the {aligned} key"
        if self.expected.causal_from is not None:
            ahead = n - few if self.expected.causal_from == "last" else 0
            right = np.tri(few, n, ahead, dtype=bool)
            self.same_keys("cache", visible, right, f"{name}, {few} queries of {n} keys")

    def same_keys(self, code: str, visible: np.ndarray, right: np.ndarray, name: str) -> bool:
        """Report the first row that sees other keys than `right`; return whether there is none."""
        wrong = np.flatnonzero((visible != right).any(axis=-1))
        if len(wrong):
            row = int(wrong[0])
            expected, actual = (counted(keys[row].sum(), "key") for keys in (right, visible))
            actual = f"{actual}, other ones" if actual == expected else actual
            at = "" if len(right) == 1 else f", row {row}"
            self.report.add(code, expected, actual, f"{name}{at}")
        return not len(wrong)

    def cache(self, visible: np.ndarray) -> None:
        """Compare the last half of the queries, and one, as of a cache, with all queries."""
        n, before = self.short, len(self.report.findings)
        for queries, name in ((n // 2, f"{n // 2} queries"), (1, "one query")):
            asked, right = f"{name} of a cache", visible[n - queries : n, :n]
            try:
                seen_keys = questions.visible_keys(self.subject, queries, n)
                slope = questions.slope(self.subject, n, queries=queries)
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
            if self.same_keys("cache", seen_keys, right, asked):
                self.same("cache", slope, asked)
        if not (first or self.report.findings):
            self.decoding()
        elif self.report.findings[before:]:
            cause = self.parts(self.subject.of_last_query())
            if cause is not None and cause.code == "softmax":
                del self.report.findings[before:]
                self.report.add(*cause, where="one query of a cache")

    def decoding(self) -> None:
        """Check the cap, sink, heads and output of one query of a cache; report what differs."""
        alone = copy(self)
        alone.subject, alone.report = self.subject.of_last_query(), Report()
        alone.cap()
        alone.total()
        alone.long_sink()
        if self.subject.size.heads > 1:
            alone.groups()
        for finding in alone.report.findings:
            self.report.findings.append(finding._replace(where="one query of a cache"))
        if self.expected.top_k is None and not alone.report.findings:
            n = self.length - 1  # kernels drop what is beyond whole blocks
            apart = questions.apart(self.subject, alone.subject, n, self.unit)
            # One query may give another output than the last of many, by 0.05 of its spread.
            if apart > 0.05 + 16.0 * self.subject.eps + 4.0 * self.subject.stored_error:
                text = f"{apart:.1g} of its spread apart, n = {n}"
                cause = causes.Cause("cache", "the output of many queries", text)
                self.report.add(*(self.parts(alone.subject) or cause), where="one query of a cache")

    def backward(self) -> None:
        """Compare gradients of the backward pass with differences of the forward pass."""
        if self.subject.stored is not None:
            self.report.facts["backward"] = f"unknown: stored in {self.subject.stored}"
            return
        unit = float(np.median(self.reference.value))
        try:
            derivatives = gradients(self.subject, self.short, unit)
        except ValueError as error:  # it may have none on this device
            self.report.facts["backward"] = f"unknown: {error}"
            return
        if not derivatives:
            self.report.facts["backward"] = "unknown: no derivative"
            return
        cases = []
        if self.report.facts.get("values of another size") == "taken":
            wide = self.subject.resized(values=2 * self.d)
            cases.append((wide, f", values of size {2 * self.d}", 0.0))
        if self.cap_found < math.inf and self.subject.eps < 1e-5:  # else it is rounded
            half = self.cap_found / (2.0 * unit * math.sqrt(self.d))
            cases.append((self.subject, ", logits of half the cap", half))
        for subject, case, shift in cases:
            with suppress(ValueError):  # it may have none of this size
                each = gradients(subject, self.short, unit, shift)
                derivatives += [entry._replace(of=f"{entry.of}{case}") for entry in each]
        scale = float(self.reference.value[0, 0])
        bends = 0.1 / self.cap_found**2  # by which differences are off
        wrong = [
            derivative
            for derivative in derivatives
            if math.isfinite(derivative.forward)
            and not abs(derivative.backward - derivative.forward)
            <= (SLOPES + 16.0 * self.subject.eps + bends) * abs(derivative.forward)
            + derivative.error
        ]
        self.report.facts["backward"] = "differs" if wrong else "as forward"
        if not wrong:
            return
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


def _pattern(visible: np.ndarray) -> str:
    """Return in words which keys queries see."""
    n, counts = len(visible), visible.sum(axis=-1)
    place, key = np.arange(n)[:, None], np.arange(n)
    for size in range(2, n):
        block, of_key = place // size, key // size
        for name, right in (
            (f"a prefix of {size} and the keys up to its own", (key <= place) | (key < size)),
            (f"the keys of its block of {size}", block == of_key),
            (f"the keys up to the end of its block of {size}", of_key <= block),
        ):
            if (visible == right).all():
                return name
    return f"{counts.min()} to {counts.max()} of {n} keys"


def _keys(seen: questions.Run, n: int) -> str:
    """Return in words which keys a query of n keys sees."""
    if seen.first + seen.last >= n:
        return "all keys"
    beside = f" and the first {seen.first}" if seen.first else ""
    return counted(seen.last, "key") + beside
