"""Watch a model run: which module attends, what it hands to attention, and what cannot be seen."""

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

from attnlib import checking, interception
from attnlib.attention import is_rescaled
from attnlib.interception import ATTENTION, FAST_PATH, MULTI_HEAD, MULTI_HEAD_FROM_INSIDE
from attnlib.probing.measure import Call, measure
from attnlib.probing.report import Report
from attnlib.probing.sample import some_rows
from attnlib.probing.tokens import Reader, Targets, Tokens

Sample = Callable[[Call, Tensor | None], tuple[Call, Tensor | None]]
"""From a call and its output to those of some of its rows."""

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
    """Measure every scaled_dot_product_attention call of the model inside the context.

    Nothing in the model is touched; outputs, gradients and random numbers are bitwise those of a
    run without it. Several runs count together. It sees the function under every name, in this
    thread, in nn.MultiheadAttention and the modules made of it (training and evaluation, the
    fast path included), and in models of transformers with attn_implementation="sdpa". Masks of
    every kind, is_causal, grouped queries and scales are honoured: a number of −10⁴ or less in a
    mask hides a key, others add to the logits. The weights are those before dropout. Of
    the axes of q before its last two, the last is the heads, the others are sequences.

    Queries that are padding are no rows. By default they are those of the `attention_mask` of shape
    (batch, tokens), or the key_padding_mask of PyTorch's modules, that the model or a part of it is
    called with; `mask` (1 or True for a token; by position, those in a cache included) goes before
    it, and mask=False counts all. `report.padding` is how many rows are left out.

    `targets` says which key each query is meant to find, and the table and `Report.rows` tell its
    gap, its weight and κ: "previous" is the key before, "duplicate" the last earlier one of the
    same token, "induction" the one after that. Or an array of integers (batch, tokens), the
    position of each query's key, −1 for none; or a function from the model's token ids (batch,
    tokens) to such an array. Targets are for attention of tokens to one another; one that is hidden
    from its query counts as none. The tokens in the cache of transformers are known if the model
    got them inside the context; beam search, which exchanges sequences between the steps, is not
    followed.

    `theory=False` leaves out the columns of random scores, which take a second for each length.
    `rows` measures a sample, about so many rows of each head in a call, from up to four sequences
    and all along their length: means, quantiles and numbers of rows are then those of the sample.

    It adds about the time of the attention itself, twice that under a mask, and memory linear in
    the number of keys. Of each row and head 56 bytes are kept, of at most 2²² rows: of more, a
    random sample, and the sums of all.

    What it cannot see, attention that is written out, another kernel or a graph of torch.compile,
    it names: in a UserWarning at its end, or a RuntimeError if it has seen no call at all; so it
    does with a `mask` and `targets` that fit no call. To measure a model under another scale, enter
    `attnlib.attention.rescale` inside (RuntimeError the other way round); its post_scale comes
    after what is measured. A UserWarning names the layers that have computed NaN or infinity, or
    logits beyond 10¹⁹, whose squares overflow. TypeError if `model` is not a module; ValueError for
    a mask, targets or a number of rows that are not as above. Chapter: probe.

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
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got a {type(model).__name__}")
    if is_rescaled():
        raise RuntimeError(
            "probe would measure the scale before rescale changes it: enter probe first, "
            "with probe(model) as report, rescale(...)"
        )
    if interception.is_compiled(model):
        raise RuntimeError(
            "model is compiled, and a graph cannot be seen into: probe and run the model that was "
            "given to torch.compile"
        )
    if rows is not None:
        rows = checking.integer("rows", rows, minimum=1)
    observer = Observer(
        model,
        Report(theory=theory, targets=targets is not None),
        None if rows is None else partial(some_rows, rows=rows, rng=np.random.default_rng(0)),
        Reader(mask, targets),
    )
    with observer.at_work():
        yield observer.report
    observer.finish()


class Observer(interception.Watcher):
    """Measures each call of attention on the way, and keeps account of what it could not."""

    def __init__(
        self,
        model: nn.Module,
        report: Report,
        sample: Sample | None = None,
        reader: Reader | None = None,
    ) -> None:
        super().__init__()
        self.reader = Reader() if reader is None else reader
        self.report = report
        self.sample = sample
        self.model_name = type(model).__name__
        self.names = {id(module): name for name, module in model.named_modules()}
        self.kinds = {  # a scripted module has an original name
            name: getattr(module, "original_name", type(module).__name__)
            for name, module in model.named_modules()
        }
        self.way_to_be_seen = interception.way_to_be_seen(model)
        self.thread = threading.get_ident()
        self.running: list[tuple[nn.Module, Tokens]] = []
        self.calls: Counter[str] = Counter()
        self.ran: dict[str, None] = {}  # names of modules that look like attention, in order
        self.seen: dict[str, None] = {}
        self.unmeasured: dict[str, str] = {}
        self.compiled = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Watch what this thread runs."""
        with _watched_modules(self), interception.FAST_PATH_KEPT, self:
            yield

    # Modules as they run

    def belongs(self, module: nn.Module) -> bool:
        """Return whether the module is a part of the model, and runs in its thread."""
        return id(module) in self.names and threading.get_ident() == self.thread

    def enter_module(
        self, module: nn.Module, args: Any, named: dict[str, Any] | None = None
    ) -> None:
        """Note that a module starts. Without arguments, the tokens stay unknown."""
        if torch.compiler.is_compiling() or not self.belongs(module):
            return
        if not self.running:
            self.calls.clear()
        tokens = self.running[-1][1] if self.running else Tokens()
        if args is not None and not interception.is_traced():
            named = interception.named_arguments() if named is None else named
            tokens = self.reader.read(module, args, named, tokens)
        self.running.append((module, tokens))
        name = self.names[id(module)]
        if interception.LOOKS_LIKE_ATTENTION.search(self.kinds[name]):
            self.ran[name] = None

    def leave_module(self, module: nn.Module, *_: Any) -> None:
        """Note that a module has ended."""
        if not torch.compiler.is_compiling() and self.belongs(module) and self.running:
            self.running.pop()

    # Functions as they are called

    @interception.not_compiled
    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            self.compiled = True
            return func(*args, **kwargs)
        # A backward pass that computes activations again runs the model a second time.
        if not self.running or interception.in_backward_pass():
            return func(*args, **kwargs)
        if func is MULTI_HEAD:
            return self.multi_head(*args, **kwargs)
        result = func(*args, **kwargs)
        if func in ATTENTION:
            self.attention(result, *args, **kwargs)
        elif func in FAST_PATH:
            self.fast(func, args, kwargs)
        return result

    def multi_head(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and measure its attention."""
        before = self.calls.total()
        with self:
            result = MULTI_HEAD_FROM_INSIDE(*args, **kwargs)
        if self.calls.total() == before:
            # need_weights=True writes attention out. Without, the same attention is a call.
            kwargs = {**kwargs, "need_weights": False, "training": False}
            with torch.no_grad(), self:
                MULTI_HEAD_FROM_INSIDE(*args, **kwargs)
        return result

    def attention(
        self,
        result: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        """Measure a call of scaled_dot_product_attention; the arguments are PyTorch's."""
        call = Call(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        module, _ = self.running[-1]
        call, result = _unpacked(module, call, result)
        self.record(module, [call], None if dropout_p > 0.0 else result)

    def fast(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Measure the attention in a kernel of PyTorch's fast path."""
        given = {**dict(zip(FAST_PATH[function], args, strict=False)), **kwargs}
        for module in self.running[-1][0].modules():
            if getattr(module, "in_proj_weight", None) is given["qkv_weight"]:
                self.record(module, _fast_calls(given), None)

    def record(self, module: nn.Module, calls: list[Call], output: Tensor | None) -> None:
        """Measure what is one call of the module."""
        name = self.names[id(module)]
        number = self.calls[name]
        self.calls[name] += 1
        self.seen[name] = None
        reason = _why_not(calls[0].query, calls[0].key)
        if reason:
            self.unmeasured[name] = reason
            return
        for call in calls:
            call = call._replace(queries=self.reader.queries(self.running[-1][1], call))
            if self.sample is not None:
                call, output = self.sample(call, output)
            self.report.add(name or self.model_name, number, measure(call, output))

    # What is said at the end

    def finish(self) -> None:
        """Name what was not seen: a warning, or an error if nothing was seen at all."""
        lines = [f"{name or self.model_name}: {why}" for name, why in self.unmeasured.items()]
        silent = self.silent()
        if self.compiled and not self.way_to_be_seen:
            lines.append(
                "a part is compiled, and a graph cannot be seen into: run it under "
                "torch.compiler.set_stance('force_eager')"
            )
        if silent or (self.compiled and self.way_to_be_seen):
            kinds = [f"{name or 'the model'} ({self.kinds[name]})" for name in silent[:NAMES_SHOWN]]
            more = len(silent) - len(kinds)
            which = f"{', '.join(kinds)}{f' and {more} more' if more else ''}"
            lines.append(
                f"{which or 'its attention'} ran without calling scaled_dot_product_attention: "
                "attention that is written out or uses another kernel cannot be seen"
                + (f"; {self.way_to_be_seen}" if self.way_to_be_seen else "")
            )
        if self.report.empty:
            if not lines:
                lines.append(
                    "call the model itself inside the context, in the same thread; parts that are "
                    "compiled or exported cannot be seen"
                )
            raise RuntimeError(
                f"probe has measured no attention in {self.model_name}. {'; '.join(lines)}"
            )
        if lines:
            warnings.warn(f"not measured: {'; '.join(lines)}", stacklevel=4)
        if unused := self.reader.unused():
            warnings.warn(f"not used: {'; '.join(unused)}", stacklevel=4)
        broken = self.report.not_finite
        if broken:
            names = ", ".join(broken[:NAMES_SHOWN])
            more = len(broken) - NAMES_SHOWN
            warnings.warn(
                f"NaN or infinity in {names}{f' and {more} more' if more > 0 else ''}: so is what "
                "the report has of them",
                stacklevel=4,
            )

    def silent(self) -> list[str]:
        """Return the modules that look like attention, ran, and made no call, the inmost ones."""

        def inside(name: str, other: str) -> bool:
            return name == other or other == "" or name.startswith(f"{other}.")

        without = [
            name
            for name in self.ran
            if not any(
                inside(seen, name) or (inside(name, seen) and seen in self.ran)
                for seen in self.seen
            )
        ]
        return [
            name
            for name in without
            if not any(inside(other, name) and other != name for other in without)
        ]


def _unpacked(module: nn.Module, call: Call, result: Tensor) -> tuple[Call, Tensor]:
    """Return a call with a head for each head of queries.

    Where a query is one token, transformers takes the queries that share a key for a sequence: they
    come as (batch, heads of keys, group, d), the mask, if it differs by head, likewise.
    """
    group: Any = getattr(module, "num_key_value_groups", 1)
    heads: Any = getattr(getattr(module, "config", None), "num_attention_heads", 0)
    q, mask = call.query, call.mask
    packed = heads and q.ndim == 4 and group > 1
    if not packed or q.shape[1:3] != (heads // group, group) or call.key.shape[1] != q.shape[1]:
        return call, result

    def by_head(t: Tensor) -> Tensor:
        return t.reshape(t.shape[0], heads, 1, t.shape[-1])

    if isinstance(mask, Tensor) and mask.ndim == 4 and mask.shape[1] != 1:
        mask = by_head(mask)
    return call._replace(query=by_head(q), mask=mask, enable_gqa=True), by_head(result)


def _why_not(query: Tensor, key: Tensor) -> str:
    """Return why a call cannot be measured, or nothing."""
    if interception.is_traced():
        return "it is being traced"
    if type(query) not in (Tensor, nn.Parameter):
        return f"its queries are a {type(query).__name__}"
    if interception.is_transformed(query):
        return "it runs under torch.func (vmap, grad); call the model outside of it"
    if query.is_nested:
        return "its queries are a nested tensor"
    if query.numel() == 0 or key.numel() == 0:
        return "it has no queries or no keys"
    if query.is_meta:
        return "its queries are on the meta device and have no numbers"
    if query.device.type == "mps":
        return "its device has no double precision"
    return ""


@contextmanager
def _watched_modules(observer: Observer) -> Iterator[None]:
    """Tell the observer which module runs. Hooks of the modules would switch the fast path off."""
    hooks = [
        torch_module.register_module_forward_pre_hook(observer.enter_module),
        torch_module.register_module_forward_hook(observer.leave_module, always_call=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _fast_calls(given: dict[str, Any]) -> list[Call]:
    """Return the calls of attention, one or one for each sequence, in a kernel of the fast path."""
    x, mask = given["query"], given.get("mask")
    calls = []
    with interception.hidden_from_modes():
        if mask is not None:  # a mask of numbers too hides what is not 0
            mask = ~mask.bool()
            if given["mask_type"] == 1:
                mask = mask[:, None, None, :]
        for sequences in [one.unsqueeze(0) for one in x.unbind()] if x.is_nested else [x]:
            if given.get("norm_first"):
                norm = given["norm_weight_1"], given["norm_bias_1"], given["eps"]
                sequences = functional.layer_norm(sequences, sequences.shape[-1:], *norm)
            packed = functional.linear(sequences, given["qkv_weight"], given["qkv_bias"])
            heads = packed.view(*packed.shape[:-1], 3, given["num_heads"], -1)
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            calls.append(Call(q, k, v, mask))
    return calls
