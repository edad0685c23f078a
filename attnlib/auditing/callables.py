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
from attnlib.auditing.questions import measure_scale
from attnlib.auditing.report import Report, Scale, counted, shown
from attnlib.auditing.response import Subject, equal_keys, interval_over_heads, row_sums
from attnlib.auditing.scales import (
    LONGER,
    LONGEST,
    SHORT,
    TOLERANCE,
    EndedError,
    ScaleAudit,
    agree,
    known_mistakes,
)
from attnlib.auditing.visible import (
    Span,
    first_key,
    measure_mask,
    sum_beside_hidden,
    visible_keys,
    visible_span,
)
from attnlib.policies import POLICIES, Policy

PADDED = (80, 96, 129, 144)
"""Sizes of heads that kernels pad to larger ones."""
BLOCKS = 256
"""Keys at which later rows are checked: blocks of a kernel have 128 queries at most."""
SAME_DERIVATIVE = 0.01
"""A derivative is right if it is within this share of what the forward pass gives."""


class CallableAudit(ScaleAudit):
    """Run all checks of one callable: each asks questions, adds facts and findings."""

    def run(self) -> Report:
        """Run all checks and return the report; a finding of the first ones may end them."""
        with suppress(EndedError):
            self.check_dropout()
            self.check_softmax()
            visible = visible_keys(self.subject, self.short, self.short)
            self.check_visible_keys(visible)
            self.check_properties(visible)
        return self.report

    def check_visible_keys(self, visible: np.ndarray) -> None:
        """Report the keys that queries see, (queries, keys), and choose the row of later questions.

        A callable of which nothing more can be asked ends the audit.
        """
        if visible[-2, -2] and not visible[:, -1].any():
            self.end("window", "keys up to the last", "all but the last", "equal keys")
        self.subject.is_causal = self.check_pattern(visible)
        self.check_causality()
        if not visible[-1].any():
            answer = "window", "keys that are seen", "none"
            if self.random_answer is not None:
                answer = "softmax", "a softmax", "no weight where q·k is 0, as with ReLU"
            self.end(*answer, "the last of equal rows")
        counts = visible.sum(axis=-1)
        if counts.max() == 1:
            self.report.facts["scale"] = "unknown: a query sees its own key only"
            self.check_window()
            raise EndedError
        self.short = row = int(np.flatnonzero(counts > 1)[-1]) + 1  # the last may begin a chunk
        self.seen_keys = np.flatnonzero(visible[row - 1])
        if not visible[row - 1, row - 1] and self.expected.pattern is None:
            if self.report.findings:
                raise EndedError
            actual = f"keys {self.seen_keys[0]} to {self.seen_keys[-1]}"
            self.end("window", "its own key", actual, f"row {row - 1}")

    def check_properties(self, visible: np.ndarray) -> None:
        """Check the scale and everything that needs it; `visible` is (queries, keys)."""
        self.reference = measure_scale(self.subject, self.short)
        self.unit = float(np.median(self.reference.value))
        self.check_scores_count()
        self.check_norm()
        self.check_logit_rounding()
        self.check_overflow()
        self.check_scale()
        if self.short == SHORT:
            if not self.one_sided:
                self.check_other_keys()
            if not self.expected.one_size:
                self.check_other_sizes()
        self.check_cap()
        if self.expected.top_k is None:
            row = self.short // 2 - 1
            hidden = torch.from_numpy(~visible[row, : self.short])
            self.check_hidden_keys(self.subject, hidden, row)
        self.check_sink()
        self.check_window()
        if self.report.facts.get("sees") == "the keys up to its own":
            self.check_later_rows(self.subject)
        self.check_long_sink()
        if self.subject.size.heads > 1:
            self.check_key_heads()
        if self.subject.mask_name:
            self.check_mask()
        else:
            self.report.facts["a mask"] = "not taken"
        if self.subject.causal_name:
            self.check_causal_argument(self.subject.causal_name)
        self.check_cache(visible)
        self.check_anomalies()
        self.check_gradients()

    def check_anomalies(self) -> None:
        """Report an answer to any question that was not finite, or whose weights were lost."""
        anomalies = {} if self.is_float16 else self.subject.anomalies  # which large logits exceed
        if self.sink is not None or self.expected.pattern is not None:
            anomalies = {name: anomalies[name] for name in anomalies if name == "NaN"}
        if anomalies and not self.report.findings:
            anomaly, question = next(iter(anomalies.items()))
            self.report.add("softmax", "weights that add up to 1", anomaly, question)

    def check_softmax(self) -> None:
        """Report why answers are not those of a softmax, which ends the audit.

        Sets `bias`, `random_answer` and `chosen_range`, the least and most keys that a
        query chooses by content.
        """
        subject, n, eps = self.subject, min(SHORT, self.d), self.subject.eps
        q, k = equal_keys(subject, n, n)
        equal = subject.weights(q, k, torch.arange(n))
        self.bias = None if self.expected.rotates else causes.distance_bias(equal, eps)
        if self.bias is not None:
            subject.bias_slopes = self.bias.slopes
        if not np.isfinite(equal).all():
            row = int(np.flatnonzero(~np.isfinite(equal).all(axis=(0, -1)))[0])
            self.end("hidden", "numbers", "NaN", f"row {row} of equal keys")
        self.random_answer: causes.RandomAnswer | None = None
        self.chosen_range: tuple[int, int] | None = None
        cause = next(filter(None, self.possible_causes(equal)), None)
        if cause is not None:
            self.end(*cause)
        self.check_chosen_keys()
        self.check_bias()

    def possible_causes(self, equal: FloatArray) -> Iterator[causes.Cause | None]:
        """Yield a cause or None from one test after another, given the weights of equal keys."""
        subject, target = self.subject, self.expected
        has_window = target.pattern or target.window not in (None, math.inf)
        yield causes.wrong_layout(subject, equal, window=bool(has_window))
        if target.scale is not None:
            yield causes.faint_weights(equal)
        if target.factor == 1.0:
            yield causes.undivided_weights(equal)
        yield self.cause_in_parts(subject)
        if not target.rotates:
            self.check_keys_rounding()
        self.random_answer = answer = causes.answer_to_random(subject, equal.shape[-1], equal)
        if answer is None:
            return
        stored, range_of_sums = subject.stored, np.ptp(answer.weights.sum(axis=-1))
        if stored is not None and stored.is_floating_point and range_of_sums > 2.0 * subject.eps:
            subject.weights_error = torch.finfo(stored).eps / 2.0
        self.chosen_range = causes.range_of_chosen_keys(answer, equal)
        yield causes.other_axis(answer)
        yield causes.other_rows(subject, answer)
        if subject.stored is None:
            yield causes.other_heads(subject, answer)
        if self.chosen_range is None:
            yield causes.no_softmax(subject, answer)
        if self.chosen_range is None and not target.rotates:
            yield causes.not_by_products(subject, equal.shape[-1])

    def cause_in_parts(self, subject: Subject) -> causes.Cause | None:
        """Return the cause if parts of a row are merged with wrong weights or have other scales."""
        if self.expected.top_k is not None:
            return None
        lengths, rotates = (min(LONGER, self.d), self.length), self.expected.rotates
        answers = (causes.merged_parts(subject, length, rotates=rotates) for length in lengths)
        return next(filter(None, answers), None)

    def check_chosen_keys(self) -> None:
        """Report how many keys a query chooses by content; another than intended ends the audit."""
        target = self.expected.top_k
        if self.chosen_range is None:
            if target is not None and target < min(SHORT, self.d):
                self.report.add("few keys", counted(target, "key"), "all keys", "random keys")
            return
        low, high = self.chosen_range
        range_of_keys = f"{low} keys" if low == high else f"{low} to {high} keys"
        self.report.facts["keys by content"] = range_of_keys
        if not low == high == target:
            keys = "all keys" if target is None else counted(target, "key")
            self.end("few keys", keys, f"{range_of_keys} by their contents", "random keys")

    def check_bias(self) -> None:
        """Compare a bias by distance with the intended one."""
        target, measured = self.expected.slopes, self.bias
        heads = self.subject.size.heads
        slopes, straight, error = measured or (np.zeros(heads), True, 0.0)
        text = ", ".join(f"{slope:.4g}" for slope in slopes)
        text = text if straight else f"no line, about {text}"
        if measured is not None:
            self.report.facts["bias by distance"] = f"{text} a place, by head"
        stated = target is not None or (measured is not None and self.strict)
        if self.expected.bias or not stated:
            return
        wanted = np.resize(target or (0.0,), heads)
        if straight and agree(wanted, slopes - error, slopes + error).all():
            return
        expected = "no bias by distance"
        if target:
            expected = ", ".join(f"{slope:.4g}" for slope in wanted)
        ratio = slopes / wanted if wanted.all() else np.zeros(heads)
        why = f"{ratio[0]:.4g} times" if wanted.all() and np.ptp(ratio) < 0.01 else "by head"
        why = "the sign is wrong" if np.allclose(ratio, -1.0, rtol=0.01) else why
        why += "" if target else ": slopes or bias=True declares it"
        self.report.add("bias", expected, text, f"{why}, nearer keys of equal ones")

    def check_dropout(self) -> None:
        """Report dropout, which ends the audit; ValueError if calls differ otherwise."""
        share = questions.dropout_share(self.subject, self.short)
        if share is None:
            raise ValueError("the callable must give the same output twice, and its outputs differ")
        if share:
            self.end("dropout", "the same output twice", f"{share:.0%} of weights dropped")

    def check_pattern(self, visible: np.ndarray) -> bool:
        """Report the keys that each query sees; return whether it is causal without an argument."""
        n, counts = len(visible), visible.sum(axis=-1)
        if self.expected.pattern is not None:
            self.report.facts["sees"] = "keys as declared"
            if not self.compare_keys("hidden", visible, self.expected.pattern(n), f"n = {n}"):
                self.report.facts["sees"] = _pattern_text(visible)
            return False
        if visible.all():
            self.report.facts["sees"] = "all keys"
            return False
        ahead = np.array([np.flatnonzero(row).max(initial=-1) - i for i, row in enumerate(visible)])
        if (ahead[: n - 1] == 0).all():
            self.report.facts["sees"] = "the keys up to its own"
            return True
        future, diagonal = np.triu(np.ones((n, n), dtype=bool), 1), np.eye(n, dtype=bool)
        inverted = [(visible[:-1] == hidden[:-1]).all() for hidden in (future, future | diagonal)]
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
        self.report.facts["sees"] = pattern = _pattern_text(visible)
        if self.strict and self.expected.causal is None and "its" in pattern:
            wanted = "all keys, or those up to its own"
            self.report.add("hidden", wanted, pattern, "equal keys: pattern declares them")
        return False

    def check_causality(self) -> None:
        """Report if it is causal without an argument and should not be, or the reverse."""
        target, sees = self.expected.causal, self.report.facts.get("sees", "")
        known = any(finding.code == "causal" for finding in self.report.findings)
        if target is not None and target != self.subject.is_causal and not known:
            wanted = "the keys up to its own" if target else "keys after its own too"
            why = "equal keys" + ("" if sees == "all keys" else ": pattern declares others")
            self.report.add("causal", wanted, sees, why)

    def check_scores_count(self) -> None:
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

    def check_other_sizes(self) -> None:
        """Report another scale at other sizes of heads or of values."""
        if not self.subject.normalises:
            self.check_head_sizes()
        size = self.d // 2
        resized = self.subject.resized(values=size)
        taken = self.check_variant("scale", resized, f"values of size {size}")
        self.report.facts["values of another size"] = "taken" if taken else "not taken"

    def check_head_sizes(self) -> None:
        """Report a size of heads with the scale of a larger one, to which a kernel pads it."""
        by_size = {}
        for size in PADDED:
            with suppress(ValueError):  # it may be made for one size
                other = self.subject.resized(d=size)
                by_size[size] = measure_scale(other, SHORT).over_heads(0)
        self.report.facts["other head sizes"] = ", ".join(map(str, by_size)) or "not taken"
        reference, target = self.reference.over_heads(0), self.expected.scale
        law = target if isinstance(target, Policy) else POLICIES["transformer"]
        row = {"n": self.reference.keys[0], "position": self.reference.position[0]}

        def wanted(d: int) -> float:
            return reference.value * float(law.scale(d=d, **row) / law.scale(d=self.d, **row))

        # All sizes may follow a law of their own, such as 1/d.
        powers = [
            np.log(measured.value / reference.value) / np.log(size / self.d)
            for size, measured in by_size.items()
            if size != self.d
        ]
        if len(powers) > 1 and np.ptp(powers) < 0.01:
            return
        for size, measured in by_size.items():
            as_wanted = agree(wanted(size), measured.low, measured.high)
            margin = (TOLERANCE + 4.0 * self.subject.stored_error) * reference.value
            low, high = measured.low - margin, measured.high + margin
            as_reference = low <= reference.high and reference.low <= high
            larger_sizes = range(size + 8 - size % 8, 4 * size, 8)
            fits = [d for d in larger_sizes if agree(wanted(d), measured.low, measured.high)]
            if fits and not as_wanted and not (as_reference and len(by_size) > 1):
                text = f"{shown(measured)}, that of d = {fits[0]}"
                self.report.add("head size", f"{wanted(size):.4g}", text, f"heads of size {size}")
                return

    def check_cap(self) -> None:
        """Measure the bound of a soft cap, and compare it with the intended one."""
        if self.subject.normalises:
            self.report.facts["soft cap"] = "unknown: a cosine is at most 1"
            return
        answer, target = questions.measure_cap(self.subject, self.short), self.expected.cap
        soft = as_meant = False
        if answer is None:
            measured, why, as_meant = "none", "logits are straight up to 64", target == math.inf
        else:
            shape, bound = answer
            measured, why = f"a clamp at {shown(bound)}", "logits are straight, and then all one"
            soft = shape == "soft cap"
            if soft:
                self.report.facts["precision"], self.cap = "unknown", bound.value
                measured, why = shown(bound), "logits bend"
                finite = target is not None and target < math.inf
                as_meant = finite and bool(agree(target, bound.low, bound.high))
        self.report.facts["soft cap"] = measured
        if target is None or as_meant:
            return
        wanted = "no soft cap" if target == math.inf else f"a soft cap of {target:g}"
        actual = f"one of {measured}" if soft and target == math.inf else measured
        self.report.add("cap", wanted, actual, why)

    def check_sink(self) -> None:
        """Measure a sink and a factor on the output, and compare them with the intended ones."""
        subject, target = self.subject, self.expected.sink
        block = None if target else questions.padding_block(subject, self.unit, self.cap)
        if block is not None:
            actual = f"zeros counted to the end of blocks of {block}"
            self.report.add("padding", "keys that are there", actual, "equal rows of 9 to 17 keys")
            return
        n, counts = self.short, np.full(subject.size.heads, float(len(self.seen_keys)))
        if self.bias is not None and self.bias.straight:
            counts = np.exp(-self.bias.slopes[:, None] * np.arange(n)).sum(axis=-1)
        factor, sink, error = questions.measure_sink(subject, n, self.unit, self.cap, counts)
        if not math.isfinite(factor.value):
            self.report.facts["sink"] = "unknown: weights are not finite"
            if not self.report.findings:
                self.report.add("values", "weights that add up to 1", "NaN", "equal rows")
            return
        actual = "none"
        if sink is not None:
            actual = f"a logit of {shown(interval_over_heads(sink, error))}"
            self.sink = sink
            if np.ptp(sink) > 2.0 * error.max() + TOLERANCE:
                actual = f"logits of {', '.join(f'{entry:.4g}' for entry in sink.round(5))}"
        self.report.facts["sink"] = actual
        self.report.facts["factor on the output"] = shown(factor)
        whole_sum = "weights that add up to 1"
        if target is False and sink is not None:
            self.report.add("sink", whole_sum, actual, "equal rows")
        elif target and sink is None:
            self.report.add("sink", "a sink", f"{whole_sum[:-1]}{shown(factor)}", "equal rows")
            return
        elif isinstance(target, tuple) and sink is not None:
            wanted = np.resize(target, sink.shape)
            if (np.abs(sink - wanted) > error + TOLERANCE * np.maximum(1.0, np.abs(wanted))).any():
                text = ", ".join(f"{entry:g}" for entry in target)
                self.report.add("sink", f"a logit of {text}", actual, "equal rows")
        reported = any(entry.code == "softmax" for entry in self.report.findings)
        if sink is None and self.bias is None and self.cap == math.inf and not reported:
            for why, total in questions.sums_by_fault(
                subject, self.length, self.unit, factor.value, wide=self.full_precision
            ).items():
                unreported = math.isfinite(total) or not self.report.findings
                low, high = total / factor.high, total / factor.low
                error_of_sum = subject.weights_error * total
                if unreported and not agree(1.0, low - error_of_sum, high + error_of_sum):
                    actual = f"{total / factor.value:.4g}".replace("nan", "NaN")
                    self.report.add("softmax", "weights that add up to 1", actual, why)
                    break
        if not agree(self.expected.factor, factor.low, factor.high):
            meant_factor = f"a factor of {self.expected.factor:g}"
            self.report.add("values", meant_factor, shown(factor), "v = 1")
        elif subject.stored is not None:  # its scale may be that of keys
            q, k = equal_keys(subject, n, n)
            large, small = (row_sums(subject, q, k, by)[:, -1].sum() for by in (1.0, 0.25))
            total = float(small / large)
            if not 0.5 < total < 2.0:
                self.report.add("values", "a factor of 1", f"{total:.2g}", "v a quarter as large")

    def check_long_sink(self) -> None:
        """Report a sink that counts more than once among many keys, as in each part of them."""
        if self.sink is None or self.bias is not None or self.expected.rotates:
            return
        n, count = self.length, float(min(sum(self.span), self.length))
        unit = float(np.median(measure_scale(self.subject, n).value))
        counts = np.full(self.subject.size.heads, count)
        _, sink, error = questions.measure_sink(self.subject, n, unit, self.cap, counts)
        ratio = 0.0 if sink is None else np.exp(np.median(sink - self.sink))
        invisible = math.exp(float(self.sink.min())) / count < 64.0 * self.subject.eps
        if sink is None and invisible:  # it would not show
            return
        if np.max(error) < 0.2 and not 0.7 < ratio < 1.5:
            why = f"{n} keys beside {self.short}"
            self.report.add("sink", "a sink counted once", f"{ratio:.2g} times", why)

    def check_window(self) -> None:
        """Measure the window or chunk of keys that a query sees, and compare it."""
        target, subject, n = self.expected, self.subject, self.length
        if target.pattern is not None:
            self.check_whole_pattern(target.pattern)
            return
        if self.bias is not None:  # a bias leaves far keys no weight
            steepest = float(np.abs(self.bias.slopes).max())
            n = min(n, max(self.short, int(60.0 / max(steepest, 1e-9))))
        span_of = partial(visible_span, subject, n, even=self.bias is None)
        span, span_before = (span_of(n - back, n) for back in (1, 2))
        self.span = span
        actual = _span_text(span, n)
        if span.window not in (n, span_before.window):
            first = n - span.window  # of the last chunk
            chunk = span_of(first - 1, n).window
            hidden = f"all keys but {span.first_keys} to {first - 1}"
            actual = f"chunks of {chunk} keys" if chunk >= span.window else hidden
        fact = actual
        if actual == "all keys":
            weightless = f"none up to {n} keys: those farther weigh nothing"
            fact = "none" if n == self.length else weightless
        self.report.facts["window"] = fact
        if target.window is not None:
            wanted = _span_text(Span(target.first_keys, int(min(target.window, n))), n)
            wanted = f"chunks of {target.chunk} keys" if (target.chunk or n) < n else wanted
            if actual != wanted:
                self.report.add("window", wanted, actual, f"n = {n}")
        far = 0  # keys of one query with which a longer window is asked
        if n <= (target.window or 0.0) < math.inf:
            unasked = f"the window of {target.window:g}, at most {n} keys were asked"
            self.report.facts["not asked"] = unasked
            far = int(target.window or 0.0) + LONGER if self.bias is None else 0
        hidden_last = first_key(subject, n - 1, n - 2, n - 1, from_end=True)
        if hidden_last:  # a kernel may drop what is beyond whole blocks
            self.report.add("window", "its own key", f"not the last {hidden_last}", f"n = {n - 1}")
        with suppress(ValueError):  # it may not take fewer queries than keys
            alone = span_of(n - 1, 1)
            later = first_key(subject, n, 0, 1, from_end=True)
            if n > self.short and alone != span and later == 0:  # else aligned to the first key
                actual = _span_text(alone, n)
                self.report.add("cache", _span_text(span, n), actual, f"one query of {n} keys")
            elif n < far <= LONGEST and later == 0:
                actual = _span_text(visible_span(subject, far, far - 1, 1, even=True), far)
                self.report.facts.pop("not asked")
                wanted = _span_text(Span(target.first_keys, far - LONGER), far)
                if actual != wanted:
                    self.report.add("window", wanted, actual, f"one query of {far} keys")
        sees_all = target.causal is False and min(target.window or n, target.chunk or n) >= n
        if target.ahead is not None or sees_all:
            seen = n - 1 - first_key(subject, n, 0, n, from_end=True)
            wanted_ahead = n - 1 if target.ahead is None else min(target.ahead, n - 1)
            if seen != wanted_ahead:
                keys = f"{counted(wanted_ahead, 'key')} after its own"
                self.report.add("window", keys, str(seen), f"the first query, n = {n}")

    def check_later_rows(self, subject: Subject) -> None:
        """Report keys after its own that a row of later blocks sees, where early ones see none."""
        n = min(self.length, BLOCKS)
        at = " with ".join([f"queries of {n} keys", *subject.options])
        for queries in (n,) if subject.options else (n, n // 2):
            with suppress(ValueError):  # it may not take fewer queries than keys
                visible = visible_keys(subject, queries, n)
                right = np.tril(visible, n - queries)
                if not self.compare_keys("causal", visible, right, f"{queries} {at}"):
                    return

    def check_whole_pattern(self, pattern: Callable[[int], np.ndarray]) -> None:
        """Compare the keys that all queries, and one query of a cache, see with the pattern."""
        self.span = Span(0, int(pattern(self.length)[-1].sum()))
        for n, queries in ((self.length, self.length), (self.length - 1, 1)):
            with suppress(ValueError):  # it may not take fewer queries than keys
                visible = visible_keys(self.subject, queries, n)
                code, name = ("hidden", "") if queries > 1 else ("cache", "one query, ")
                self.compare_keys(code, visible, pattern(n)[n - queries :], f"{name}n = {n}")

    def check_key_heads(self) -> None:
        """Report which head of keys and of values each head of queries reads."""
        heads, key_heads, _ = self.subject.size
        read = questions.key_heads_read(self.subject, self.short, self.seen_keys, self.unit)
        wanted = np.arange(heads) // (heads // key_heads)
        wrong: dict[str, list[str]] = {}
        for of, column in zip(("keys", "values"), read.T, strict=True):
            heads_read = ", ".join(str(head) if head >= 0 else "?" for head in column)
            self.report.facts[f"head of {of} of each head"] = heads_read
            if (column != wanted).any():
                wrong.setdefault(heads_read, []).append(of)
        for heads_read, tensors in wrong.items():
            evidence = f"heads of {' and '.join(tensors)}"
            self.report.add("groups", ", ".join(map(str, wanted)), heads_read, evidence)

    def check_mask(self) -> None:
        """Measure whether a mask hides keys or is added to logits; report faults."""
        report, unit = self.report, self.unit
        answer = measure_mask(self.subject, self.short, unit)
        true_means = answer.true_means
        report.facts["a mask of True and False"] = f"True: {true_means}"
        multiplier = answer.multiplier
        adds_as_is = multiplier is not None and bool(agree(1.0, multiplier.low, multiplier.high))
        if true_means == "1" and adds_as_is:
            report.facts["a mask of True and False"] = "added as 1 and 0: it takes numbers"
        elif true_means in ("1", "nothing"):
            report.add("hidden", "a mask that hides keys", "hidden keys have weight", "bool mask")
        elif true_means == "hidden" and not self.expected.true_hides and self.strict:
            text = "True hides it, inverted: true_hides=True allows it"
            report.add("hidden", "True for a key that is seen", text, "bool mask")
        elif true_means == "seen" and self.expected.true_hides:
            report.add("hidden", "True for a key that is hidden", "True shows it", "bool mask")
        elif true_means in ("seen", "hidden"):
            hidden = torch.arange(self.short) == 0
            hides_first = (hidden == (true_means == "hidden")).expand(1, 1, self.short, -1)
            hides_first = hides_first.to(self.subject.device, answer.true_dtype)
            subject = self.subject.with_mask(hides_first)
            self.hiding_first = subject.options
            self.check_hidden_keys(subject, hidden, -1)
        report.facts["a row that a mask hides whole"] = answer.hidden_row
        if not (answer.keeps_shares and measure_mask(self.subject, self.length, unit).keeps_shares):
            text = f"shares of keys change, n = {self.length}"
            report.add("hidden", "weights as without a mask", text, "a mask that hides no key")
        if answer.sum_ratio < 1.0 - 0.02:
            total = f"{answer.sum_ratio:.4g}"
            report.add("padding", "weights that add up to 1", total, "with a mask")
        if true_means == "seen" and isinstance(self.expected.scale, Policy):
            self.check_padding(self.expected.scale, answer.true_dtype)
        hides_none = torch.full((1, 1, self.short, self.short), true_means != "hidden")
        branches = {}
        if true_means in ("seen", "hidden"):
            branches["True and False"] = hides_none.to(answer.true_dtype)
        if adds_as_is and true_means != "nothing":
            branches["numbers"] = torch.zeros_like(hides_none, dtype=self.subject.mask_dtype)
        for kind, mask in branches.items():
            subject = self.subject.with_mask(mask.to(self.subject.device))
            self.check_variant("scale", subject, f"with {self.subject.mask_name} of {kind}")
        actual = "none added" if multiplier is None else f"added {shown(multiplier)} times"
        report.facts["a mask of numbers"] = actual
        if multiplier is not None and not adds_as_is:
            why = "it is not heeded" if abs(multiplier.value) < TOLERANCE else "it is multiplied"
            why = "it is inverted" if agree(-1.0, multiplier.low, multiplier.high) else why
            report.add("mask", "a mask that is added as it is", actual, why)
        if answer.hidden_row == "NaN" and self.strict and not self.expected.nan_rows:
            row = "a row that a mask hides whole: nan_rows=True allows it"
            report.add("hidden", "numbers", "NaN", row)

    def check_hidden_keys(self, subject: Subject, hidden: torch.Tensor, row: int) -> None:
        """Report keys, True in `hidden`, that are hidden only after the softmax, in a row's sum."""
        ratio = sum_beside_hidden(subject, hidden, row, self.unit)
        if ratio is not None and ratio < 1.0 - TOLERANCE - 16.0 * self.subject.eps:
            text = f"one over hidden keys too: {ratio:.4g} of the weight where they are larger"
            why = ", ".join(["they are hidden after the softmax", *subject.options])
            self.report.add("softmax", "a softmax over the keys seen", text, why)

    def check_padding(self, policy: Policy, true_dtype: torch.dtype) -> None:
        """Report a law whose n counts keys that a mask of this type hides, half of them."""
        mask = torch.ones(1, 1, LONGER, LONGER, dtype=true_dtype, device=self.subject.device)
        half, n = LONGER // 2, [LONGER, LONGER // 2]
        if np.ptp(policy.scale(n=n, d=self.d, position=LONGER - 1)) == 0.0:
            return
        mask[..., :half] = 0
        scale = measure_scale(self.subject.with_mask(mask), LONGER).over_heads(0)
        wanted = policy.scale(n=half, d=self.d, position=[half - 1, LONGER - 1])
        if not agree(wanted, scale.low, scale.high).any():
            text = f"{policy.name} of {half} keys, {wanted[0]:.4g}"
            evidence = f"a mask hides {half} of {LONGER} keys"
            self.report.add("padding", text, shown(scale), evidence)

    def check_causal_argument(self, name: str) -> None:
        """Check the argument `name`, which hides keys after a query's own, with few queries too."""
        n, few, subject = self.short, self.short // 2, self.subject.with_options(**{name: True})
        visible = visible_keys(subject, n, n)
        if self.compare_keys("causal", visible, np.tri(n, dtype=bool), name):
            self.check_later_rows(subject)
        row = n // 2 - 1
        self.check_hidden_keys(subject, torch.from_numpy(~visible[row]), row)
        if visible[-1].all():
            self.check_variant("scale", subject, f"with {name} of True")
        if self.hiding_first:
            with suppress(ValueError):  # it may not take both
                both = visible_keys(subject.with_options(**self.hiding_first), n, n)
                both[0], visible[1:, 0] = visible[0], False
                self.compare_keys("hidden", both, visible, f"{name} with a mask")
        try:
            visible = visible_keys(subject, few, n)
        except ValueError:
            return
        aligned = "last" if visible[:, few:].any() else "first"
        self.report.facts[f"{name} of fewer queries"] = f"aligned to the {aligned} key"
        if self.expected.causal_from is not None:
            ahead = n - few if self.expected.causal_from == "last" else 0
            right = np.tri(few, n, ahead, dtype=bool)
            self.compare_keys("cache", visible, right, f"{name}, {few} queries of {n} keys")

    def compare_keys(self, code: str, visible: np.ndarray, right: np.ndarray, name: str) -> bool:
        """Report the first row that sees other keys than `right`; return whether there is none.

        Both are booleans (queries, keys); `name` is the question.
        """
        wrong = np.flatnonzero((visible != right).any(axis=-1))
        if len(wrong):
            row = int(wrong[0])
            expected, actual = (counted(keys[row].sum(), "key") for keys in (right, visible))
            actual = f"{actual}, other ones" if actual == expected else actual
            in_row = "" if len(right) == 1 else f", row {row}"
            self.report.add(code, expected, actual, f"{name}{in_row}")
        return not len(wrong)

    def check_cache(self, visible: np.ndarray) -> None:
        """Compare the last half of the queries, and one, as of a cache, with all queries."""
        n, findings_before = self.short, len(self.report.findings)
        for queries, name in ((n // 2, f"{n // 2} queries"), (1, "one query")):
            question, right = f"{name} of a cache", visible[n - queries : n, :n]
            try:
                seen_keys = visible_keys(self.subject, queries, n)
                scale = measure_scale(self.subject, n, queries=queries)
            except ValueError:
                self.report.facts[question] = "not taken"
                return
            seen, wanted = int(seen_keys[-1].sum()), int(right[-1].sum())
            self.report.facts[question] = f"sees {seen} of {n}"
            first_aligned = self.subject.is_causal and seen == queries
            if first_aligned and self.expected.causal_from != "last":
                text = f"aligned to the first key, sees {seen} of {n}"
                self.report.facts[question] = f"not taken: {text}"
                if self.expected.causal and self.expected.causal_from is None and queries == 1:
                    why = f"{question}: causal_from='first' allows it"
                    self.report.add("cache", counted(wanted, "key"), text, why)
                continue
            if self.compare_keys("cache", seen_keys, right, question):
                self.compare_with_reference("cache", scale, question)
        if not (first_aligned or self.report.findings):
            self.check_decoding()
        elif self.report.findings[findings_before:]:
            cause = self.cause_in_parts(self.subject.last_query_alone())
            if cause is not None and cause.code == "softmax":
                del self.report.findings[findings_before:]
                self.report.add(*cause, where="one query of a cache")

    def check_decoding(self) -> None:
        """Check the cap, sink, heads and output of one query of a cache; report what differs."""
        alone = copy(self)
        alone.subject, alone.report = self.subject.last_query_alone(), Report()
        alone.check_cap()
        alone.check_sink()
        alone.check_long_sink()
        if self.subject.size.heads > 1:
            alone.check_key_heads()
        for finding in alone.report.findings:
            self.report.findings.append(finding._replace(where="one query of a cache"))
        if self.expected.top_k is None and not alone.report.findings:
            n = self.length - 1  # kernels drop what is beyond whole blocks
            difference = questions.output_difference(self.subject, alone.subject, n, self.unit)
            # One query may give another output than the last of many, by 0.05 of its spread.
            if difference > 0.05 + 16.0 * self.subject.eps + 4.0 * self.subject.stored_error:
                text = f"{difference:.1g} of its spread apart, n = {n}"
                cause = causes.Cause("cache", "the output of many queries", text)
                cause = self.cause_in_parts(alone.subject) or cause
                self.report.add(*cause, where="one query of a cache")

    def check_gradients(self) -> None:
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
        if self.cap < math.inf and self.subject.eps < 1e-5:  # else it is rounded
            half_cap = self.cap / (2.0 * unit * math.sqrt(self.d))
            cases.append((self.subject, ", logits of half the cap", half_cap))
        for subject, case, shift in cases:
            with suppress(ValueError):  # it may have none of this size
                of_case = gradients(subject, self.short, unit, shift)
                derivatives += [entry._replace(of=f"{entry.of}{case}") for entry in of_case]
        scale = float(self.reference.value[0, 0])
        bend_error = 0.1 / self.cap**2  # by which differences are off
        wrong = [
            derivative
            for derivative in derivatives
            if math.isfinite(derivative.forward)
            and not abs(derivative.backward - derivative.forward)
            <= (SAME_DERIVATIVE + 16.0 * self.subject.eps + bend_error) * abs(derivative.forward)
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
                evidence += known_mistakes(ratio * scale, scale, self.d)
        evidence += f" with respect to {first.of}"
        if others:
            evidence += f"; also to {'; '.join(derivative.of for derivative in others)}"
        self.report.add("backward", f"{wanted}, as forward", text, evidence)


def _pattern_text(visible: np.ndarray) -> str:
    """Return in words which keys the queries see, from booleans (queries, keys)."""
    n, counts = len(visible), visible.sum(axis=-1)
    row, key = np.arange(n)[:, None], np.arange(n)
    for size in range(2, n):
        block_of_row, block_of_key = row // size, key // size
        for name, pattern in (
            (f"a prefix of {size} and the keys up to its own", (key <= row) | (key < size)),
            (f"the keys of its block of {size}", block_of_row == block_of_key),
            (f"the keys up to the end of its block of {size}", block_of_key <= block_of_row),
        ):
            if (visible == pattern).all():
                return name
    return f"{counts.min()} to {counts.max()} of {n} keys"


def _span_text(span: Span, n: int) -> str:
    """Return in words the keys out of n that a query sees."""
    if sum(span) >= n:
        return "all keys"
    beside = f" and the first {span.first_keys}" if span.first_keys else ""
    return counted(span.window, "key") + beside
