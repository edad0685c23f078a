"""Observe the calls of attention in a model that runs, and list what cannot be observed.

`Observer` gives each call to a function: `probe` and `Monitor` measure it and add it to a report.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from attnlib import _checking
from attnlib.attention import is_rescaled
from attnlib.models import interception, torch_internals
from attnlib.models.attention_call import (
    ATTENTION,
    HIDDEN,
    MULTI_HEAD,
    TRANSPARENT_MULTI_HEAD,
    Arguments,
)
from attnlib.models.projections import layer_config
from attnlib.models.softmax_record import Layout, Weights, WrittenOut
from attnlib.models.softmax_recorder import ONE_KEY, Recorder, number_of_heads
from attnlib.probing.measure import Call, Queries
from attnlib.probing.report import Report
from attnlib.probing.sample import sample_rows
from attnlib.probing.tokens import Targets, Tokens, TokenTracker

OnCall = Callable[[str, int, Call, Tensor], None]
"""A function of a call's layer, its number in that layer and run, the call, and its output."""

NAMES_SHOWN = 3


@contextmanager
def probe(
    model: nn.Module,
    *,
    mask: ArrayLike | None = None,
    targets: Targets | None = None,
    rows: int | None = None,
    theory: bool = True,
) -> Iterator[Report]:
    """Measure the attention of a model inside a context.

    - `model`: any nn.Module. Compiled parts run as they are written.
    - `mask`: an array (batch, tokens), 1 or True for a token, 0 or False for padding; by position,
      those in a cache included. Queries that are padding do not count as rows. By default padding
      is read from the `attention_mask` of shape (batch, tokens), or the key_padding_mask of
      PyTorch's modules, that the model or a part of it is called with. mask=False counts all
      queries.
    - `targets`: the intended key of each query, by default none. "previous" is the key before,
      "duplicate" the last earlier one of the same token, "induction" the one after that; or an
      array of integers (batch, tokens), the position of each query's key, −1 for none; or a
      function from the model's token ids (batch, tokens) to such an array. The table then has the
      gap of that key, its weight and κ. Targets are for attention of tokens to one another. A
      target that is hidden from its query counts as none. What is in a cache is not read: there,
      targets are "previous" or an array. Beam search, which exchanges sequences between the steps,
      is not followed.
    - `rows`: measure a sample of about so many rows of each head in a call, from up to four
      sequences and all along their length. Means, maxima and numbers of rows are then those of
      the sample. By default all rows are measured.
    - `theory`: False leaves out random scores (NaN), which take a second for each set of lengths.

    Yields a `Report`, to be read after the context. Several runs of the model count together.

    What is measured, in this thread: scaled_dot_product_attention under every name,
    nn.MultiheadAttention and the modules made of it, and attention that writes its softmax out: a
    softmax over the last axis of a product of three axes or more, of queries and keys. Masks of
    every kind, is_causal, grouped queries and scales are honoured: a number of −10⁴ or less in a
    mask hides a key, others add to the logits. The weights are those before dropout. Of the axes of
    q before its last two, the last is the heads, the others are sequences.

    What is not changed: nothing in the model is touched. Outputs, gradients and random numbers are
    bitwise those of a run without `probe`, except that modules leave PyTorch's fast path
    (nn.TransformerEncoder in evaluation, without gradients), which rounds otherwise and returns 0
    for padding.

    What is not measured: another kernel, or weights of exp and a sum. The page on compatibility
    lists the forms of attention that are measured, and what passes without a warning. To measure a
    model under another scale, enter `attnlib.attention.rescale` inside; its post_scale comes after
    what is measured.

    It adds about twice the time of scaled_dot_product_attention, more under a mask, and one or two
    milliseconds for each layer, which is more than a thin model takes: on one core GPT-2 small
    takes 1.2 to 1.4 times as long, a small ViT 1.6. Its memory is linear in the number of keys.
    Where a softmax is written out, its logits are computed again to compare, for each kind of
    module once, and wherever they may have been written into unnoticed. Sums over the rows are
    kept, not the rows: `attnlib.probing.measure.measure` has those of a call, which
    `attnlib.probing.observer.Observer` hands to a function of yours.

    Warns with a UserWarning at the end, and in the report, of what was not measured; of a `mask` or
    `targets` that fit no call; and of layers that have computed NaN or infinity, or logits beyond
    10¹⁹, whose squares overflow.

    Raises RuntimeError where no attention was measured at all, for a model that torch.compile has
    returned, and inside a `rescale` context;
    TypeError if `model` is not a module; ValueError for a mask, targets or a number of rows that
    are not as above. Chapter: probe.

    >>> layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
    >>> with probe(layer) as report:
    ...     output = layer(torch.zeros(2, 10, 64))
    >>> report.table()[["layer", "head", "rows", "collision_probability"]]
           layer  head  rows  collision_probability
    0  self_attn     0    20                    0.1
    1  self_attn     1    20                    0.1
    2  self_attn     2    20                    0.1
    3  self_attn     3    20                    0.1
    """
    if is_rescaled():
        raise RuntimeError(
            "probe would measure the scale before rescale changes it: enter probe first, "
            "with probe(model) as report, rescale(...)"
        )
    report = Report(theory=theory, targets=targets is not None)
    on_call = make_collector(report, rows, np.random.default_rng(0))
    observer = Observer(model, on_call, TokenTracker(mask, targets))
    with torch_internals.parts_eagerly(model), observer.at_work():
        yield report
    report.batch.finish()
    report.not_measured = observer.finish()
    report.notes = [f"{name or observer.model_name}: {x}" for name, x in observer.notes.items()]
    if report.not_finite:
        names = list_first(report.not_finite)
        warnings.warn(
            f"NaN or infinity in {names}: so is what the report has of them", stacklevel=3
        )


def make_collector(report: Report, rows: int | None, rng: np.random.Generator) -> OnCall:
    """Return a function that measures a call and adds it to a report.

    - `rows`: about how many rows of each head are measured, drawn by `rng`; all for None.

    Raises ValueError or TypeError for `rows` that is neither None nor an integer, 1 or more.
    """
    if rows is not None:
        rows = _checking.integer("rows", rows, minimum=1)

    def collect(layer: str, number: int, call: Call, output: Tensor) -> None:
        if rows is not None:
            call, output = sample_rows(call, output, rows, rng)
        report.batch.take(layer, number, call, output)

    return collect


class Observer(interception.ModuleTracker):
    """Give each call of attention in a model to `on_call`, and list what cannot be observed.

    It observes what this thread runs inside `at_work`; `finish` lists the rest. `tracker` finds
    padding and targets, by default padding alone. Raises as `check_model`.
    """

    def __init__(
        self, model: nn.Module, on_call: OnCall, tracker: TokenTracker | None = None
    ) -> None:
        super().__init__(model)
        self.on_call = on_call
        self.tracker = TokenTracker() if tracker is None else tracker
        self.recorder = Recorder(lambda: self.running, changes=False, made=self.note_made)
        self.sdpa_hint = interception.sdpa_hint(model)
        self.tokens: list[Tokens] = []  # of the modules that run
        self.obstacles: dict[tuple[str, str], None] = {}  # modules and reasons, in order
        self.pending: Counter[str] = Counter()  # softmaxes that have met no values, by module
        self.notes: dict[str, str] = {}  # of what is measured, by module
        self.measured = self.compiled = self.in_multi_head = False

    def enter_module(
        self, module: nn.Module, args: Any, named: dict[str, Any] | None = None
    ) -> None:
        """Note that a module starts, and the tokens that it is called with."""
        if not self.belongs(module):
            return
        tokens = self.tokens[-1] if self.tokens else Tokens()
        if not torch_internals.in_trace():
            named = torch_internals.keyword_arguments() if named is None else named
            with torch_internals.hidden_from_modes():
                tokens = self.tracker.inner_tokens(module, args, named, tokens)
        self.tokens.append(tokens)
        super().enter_module(module, args, named)

    def leave_module(self, module: nn.Module, *_: Any) -> None:
        """Note that a module has ended."""
        if self.belongs(module) and self.tokens:
            self.tokens.pop()
        super().leave_module(module)

    @torch_internals.not_compiled
    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of PyTorch and return its result; observe it if it is attention."""
        if torch.compiler.is_compiling():
            self.compiled = True
            return func(*args, **kwargs)
        # A backward pass that computes activations again runs the model a second time.
        if not self.running or torch_internals.in_backward_pass():
            return func(*args, **kwargs)
        if func is MULTI_HEAD:
            return self.run_multi_head(*args, **kwargs)
        if func not in ATTENTION and not self.in_multi_head:
            return self.recorder.run(func, args, kwargs, self.on_softmax)
        result = func(*args, **kwargs)
        if func in ATTENTION:
            self.observe_attention(result, Arguments(*args, **kwargs))
        return result

    def on_softmax(self, call: WrittenOut) -> None:
        """Give a call that writes its softmax out to `on_call`, once its weights meet values.

        Its logits may be freed by then; where they are needed they are computed again. If the call
        cannot be measured, the reason is noted.
        """
        module, tokens = call.module or self.running[-1], self.tokens[-1]
        name, number = self.count_call(module)
        operands, scale, step, layout = call.operands(), call.step.scale(), call.step, call.layout
        reason = _obstacle(call.logits, call.logits)
        if reason or operands is None:
            self.obstacles[name, reason or call.obstacle()] = None
            return
        q, k = (torch.cat([x.real, x.imag], -1) if x.is_complex() else x for x in operands)
        self.note_doubts(name, layout)
        self.pending[name] += 1
        is_pending, measured = True, False

        @torch.no_grad()
        def on_values(values: Tensor, output: Tensor | None, changed: bool) -> None:
            nonlocal is_pending, measured
            if measured:
                self.add_note(
                    name, "its weights meet values more than once: the first are measured"
                )
                return
            self.pending[name] -= is_pending
            is_pending = False
            problem = "its weights are changed after the softmax" if changed else step.problem()
            if problem:
                self.obstacles[name, problem] = None
                return
            if isinstance(self.recorder.entry_of(values), Weights):
                self.add_note(
                    name, "its weights average weights: its value and output columns are of them"
                )
            v, unknown = layout.by_head(values), math.isnan(scale)
            logits = layout.by_head(step.run(None, {})) if output is None or unknown else q
            z = logits.softmax(-1).to(v.dtype) @ v if output is None else layout.by_head(output)
            mask = None if unknown else step.bias()
            if unknown:
                mask = logits.masked_fill(logits <= HIDDEN / 2.0, -math.inf)
            elif mask is not None:
                zero = mask.numel() == 1 and not mask.any()
                mask = None if zero else layout.by_head(mask)
            plain_call = Call(q, k, v.expand(*k.shape[:-1], -1), mask, scale=scale)
            plain_call = plain_call._replace(queries=self.queries(name, tokens, plain_call))
            self.on_call(name or self.model_name, number, plain_call, z)
            measured = self.measured = True

        call.on_values = on_values

    def run_multi_head(self, *args: Any, **kwargs: Any) -> Any:
        """Call PyTorch's multi-head attention, observe the attention inside, return the result."""
        before = self.calls.total()
        self.in_multi_head = True
        with self:
            result = TRANSPARENT_MULTI_HEAD(*args, **kwargs)
        if self.calls.total() == before:
            # need_weights=True writes attention out. Without, the same attention is a call.
            kwargs = {**kwargs, "need_weights": False, "training": False}
            with torch.no_grad(), self:
                TRANSPARENT_MULTI_HEAD(*args, **kwargs)
        self.in_multi_head = False
        return result

    def observe_attention(self, result: Tensor, arguments: Arguments) -> None:
        """Give a call of PyTorch's attention to `on_call`, without dropout, or note why not."""
        module, tokens = self.running[-1], self.tokens[-1]
        name, number = self.count_call(module)
        self.recorder.reached.add(module)
        reason = _obstacle(arguments.query, arguments.key)
        if reason:
            self.obstacles[name, reason] = None
            return
        if arguments.dropout_p > 0.0:
            with torch.no_grad():
                no_dropout = arguments._replace(dropout_p=0.0)._asdict()
                result = functional.scaled_dot_product_attention(**no_dropout)
        call = Call(*arguments[:4], *arguments[5:])
        heads = number_of_heads(self.running)
        call, result = _ungrouped(module, call, result)
        if call.query.ndim > 2:
            self.note_doubts(name, Layout(call.query.shape, heads))
        call, result = _unflattened(heads, call, result)
        call = call._replace(queries=self.queries(name, tokens, call))
        self.on_call(name or self.model_name, number, call, result)
        self.measured = True

    def note_doubts(self, name: str, layout: Layout) -> None:
        """Note that a module's heads are uncertain, by `layout`, or that it calls a `forward`."""
        if part_class := self.called_directly():
            self.add_note(
                name, f"{part_class} runs by its `forward` alone, and counts as part of it"
            )
        if doubt := layout.doubt(self.batch):
            self.add_note(name, doubt)

    def queries(self, name: str, tokens: Tokens, call: Call) -> Queries | None:
        """Return a call's padding and targets, or None if unknown; note if padding is counted."""
        result = self.tracker.queries(tokens, call)
        real = tokens.real if tokens.length == call.query.shape[-2] else None
        padded = self.tracker.mask_from_model and real is not None and not real.all()
        if padded and (result is None or result.real is None):
            self.add_note(name, "its rows are not told by sequence: padding counts")
        return result

    def add_note(self, name: str, line: str) -> None:
        """Add a remark to the notes of module `name`, unless they contain it."""
        before = self.notes.get(name, "")
        if line not in before:
            self.notes[name] = f"{before}; {line}".lstrip("; ")

    def finish(self) -> list[str]:
        """Return a line for all that was not measured, and warn; RuntimeError if nothing was."""
        for name in +self.pending:
            why = "its weights are changed, or meet no values in a product of known form"
            self.obstacles[name, why] = None
        lines = [f"{name or self.model_name}: {why}" for name, why in self.obstacles]
        lines += self.recorder.report_lines(self.label)
        lines += self.recorder.report_lines(self.label, hints=True)
        lines += [*self.modules_elsewhere(), *self._unseen_parts()]
        if not self.measured:
            if self.recorder.one_key:
                lines.append(ONE_KEY)
            if self.ran and not lines:
                ran = list_first(
                    f"{name or 'the model'} ({self.class_names[name]})" for name in self.ran
                )
                lines = [f"{ran} ran, without a softmax of a product of queries and keys"]
            lines = lines or [
                "If it has some, call the model itself inside the context, in the same thread; "
                "parts that are compiled or exported cannot be seen"
            ]
            raise RuntimeError(
                f"probe has measured no attention in {self.model_name}. {'; '.join(lines)}"
            )
        if lines:
            warnings.warn(f"not measured: {'; '.join(lines)}", stacklevel=4)
        if unused := self.tracker.unused():
            warnings.warn(f"not used: {'; '.join(unused)}", stacklevel=4)
        return lines

    def _unseen_parts(self) -> Iterator[str]:
        """Yield lines that name the parts that ran without an observable call, with a remedy."""
        if self.compiled and not self.sdpa_hint:
            yield (
                "a graph of torch.compile has run, which cannot be seen into: a function that is "
                "compiled runs as it is written under torch.compiler.set_stance('force_eager'); "
                "flex_attention is another kernel, which is not measured"
            )
        silent = self.silent_modules()
        if silent or (self.compiled and self.sdpa_hint):
            remedy = f"; {self.sdpa_hint}" if self.sdpa_hint else ""
            yield (
                f"{list_first(silent) or 'its attention'} ran without calling "
                "scaled_dot_product_attention or a softmax of a product of queries and keys: "
                f"another kernel cannot be seen{remedy}"
            )


def list_first(names: Iterable[str], separator: str = ", ") -> str:
    """Return a text of the first three names and the number of the others."""
    names = list(names)
    more = len(names) - NAMES_SHOWN
    return separator.join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _ungrouped(module: nn.Module, call: Call, result: Tensor) -> tuple[Call, Tensor]:
    """Return a call and its result, (batch, heads of queries, 1, d), if its heads are grouped.

    For one token transformers passes the queries that share a key as if they were a sequence,
    (batch, heads of keys, group, d), and so the mask, if it differs by head. Any other call is
    returned unchanged.
    """
    group: Any = getattr(module, "num_key_value_groups", 1)
    heads: Any = getattr(layer_config(module), "num_attention_heads", 0)
    q, mask = call.query, call.mask
    packed = heads and q.ndim == 4 and group > 1
    if not packed or q.shape[1:3] != (heads // group, group) or call.key.shape[1] != q.shape[1]:
        return call, result

    def by_head(t: Tensor) -> Tensor:
        return t.reshape(t.shape[0], heads, 1, t.shape[-1])

    if isinstance(mask, Tensor) and mask.ndim == 4 and mask.shape[1] != 1:
        mask = by_head(mask)
    return call._replace(query=by_head(q), mask=mask, enable_gqa=True), by_head(result)


def _unflattened(heads: int, call: Call, result: Tensor) -> tuple[Call, Tensor]:
    """Return a call and its result with an axis of heads, if heads were part of the batch axis."""
    size = call.query.shape[0]
    tensors = call.query, call.key, call.value
    if not heads or size % heads or any(t.ndim != 3 or t.shape[0] != size for t in tensors):
        return call, result
    q, k, v, result = (t.reshape(-1, heads, *t.shape[1:]) for t in (*tensors, result))
    mask = call.mask
    if isinstance(mask, Tensor) and mask.ndim == 3 and mask.shape[0] == size:
        mask = mask.reshape(-1, heads, *mask.shape[1:])
    return call._replace(query=q, key=k, value=v, mask=mask), result


def _obstacle(query: Tensor, key: Tensor) -> str:
    """Return the reason why a call cannot be measured, or ""."""
    if torch_internals.in_trace():
        return "it is being traced"
    if type(query) not in (Tensor, nn.Parameter):
        return f"its queries are a {type(query).__name__}"
    if torch_internals.is_transformed(query):
        return torch_internals.TRANSFORMED
    if query.is_nested:
        return "its queries are a nested tensor"
    if query.numel() == 0 or key.numel() == 0:
        return "it has no queries or no keys"
    if query.is_meta:
        return "its queries are on the meta device and have no numbers"
    if query.device.type == "mps":
        return "its device has no double precision"
    return ""
