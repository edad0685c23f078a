"""Multiply every head's logits by a factor, in a context in which the loss is differentiated.

The factor multiplies the queries of each call of PyTorch's scaled_dot_product_attention, or of the
functions that a model of transformers gets from its registry (fused, eager or flex). Where the
softmax is written out, it multiplies the product of queries and keys. A factor of 1 leaves every
bit of the output as it was.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlib.models import attention_call, interception, torch_internals
from attnlib.models.attention_call import ATTENTION, MULTI_HEAD, TRANSPARENT_MULTI_HEAD, Arguments
from attnlib.models.attention_interface import is_causal_call, replaced_lookup
from attnlib.models.softmax_record import WrittenOut
from attnlib.models.softmax_recorder import Recorder, number_of_heads
from attnlib.models.torch_internals import FAST_PATH_OFF, TRANSFORMED, is_transformed

SILENT_LAYER = "by its class's name and a tensor that nothing seen has made: another kernel"


class Place(NamedTuple):
    """Hold the place of one call of attention in a run of the model."""

    layer: str  # the module that attends
    call: int  # how often that module has attended before in this context
    heads: int
    d: int  # of a head


FactorFunction = Callable[[Place, Tensor, Tensor], Tensor]
"""A function of a place, its queries and n, the keys that each query sees (…, 1 or heads, queries).
It returns the factor of the logits of each query, (…, heads, queries)."""


class LogitFactors(interception.ModuleTracker):
    """Multiply a model's logits in this thread by the result of `factor`, inside `at_work`."""

    counts_by_run = False  # a loss may call the model several times, and each call has its part

    def __init__(self, model: nn.Module, factor: FactorFunction) -> None:
        super().__init__(model)
        self.model, self.factor = model, factor
        self.in_attention = False
        self.doubts: dict[str, str] = {}  # how heads are told apart, if uncertain, by layer
        self.recorder = Recorder(lambda: self.running, made=self.note_made)

    def multiply_queries(
        self, module: nn.Module, query: Tensor, key: Tensor, mask: Any, is_causal: bool
    ) -> Tensor:
        """Return a call's queries times their factor; unchanged if that fails, with a note why."""
        self.recorder.reached.add(module)
        if why := TRANSFORMED if is_transformed(query) else self.recorder.obstacle(query, mask):
            self.recorder.note(why, module)
            return query
        keys = count_keys(query, key, mask, is_causal)
        shape, heads = query.shape, number_of_heads(self.running)
        if query.ndim == 3 and heads and shape[0] % heads == 0:  # flattened into the batch
            query = query.reshape(-1, heads, *query.shape[1:])
            keys = keys.reshape(-1, heads, *keys.shape[1:]) if keys.shape[0] == shape[0] else keys
        heads = query.shape[-3] if query.ndim > 2 else 1
        place = Place(*self.count_call(module), heads, query.shape[-1])
        factor = self.factor(place, query, keys)
        wide = torch.promote_types(query.dtype, torch.float32)  # a factor in half is a staircase
        return (query * factor.to(wide).unsqueeze(-1)).to(query.dtype).reshape(shape)

    def on_softmax(self, call: WrittenOut) -> Tensor | None:
        """Return a softmax's logits with q·k times the factor; None if that fails, with a note."""
        if is_transformed(call.logits) or not call.step.ordered:
            why = TRANSFORMED if call.step.ordered else call.obstacle()
            self.recorder.note(why, call.module)
            return None
        keys = call.visible_keys().sum(-1).clamp(min=1)
        module = self.running[-1] if self.running else self.model
        name, number = self.count_call(call.module or module)
        if doubt := call.layout.doubt(self.batch):
            self.doubts[name] = f"{name or self.model_name}: {doubt}"
        place = Place(name, number, keys.shape[-2], call.start.dimension)
        return call.logits_times(self.factor(place, call.queries(), keys))

    def hints(self) -> list[str]:
        """Return lines on modules that may have attended unseen, with reason and names."""
        lines = self.recorder.report_lines(self.label, hints=True)
        silent = [f"{name}: {SILENT_LAYER}" for name in self.silent_modules()]
        return lines + self.modules_elsewhere() + silent

    def scaled_interface(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return transformers' `get_interface` with functions that multiply the model's queries."""

        def get_interface(registry: Any, *named: Any, **more: Any) -> Callable[..., Any]:
            attention = original(registry, *named, **more)

            def attend(
                module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kw: Any
            ) -> Any:
                if self.in_attention or not self.belongs(module):
                    return attention(module, query, key, value, *args, **kw)
                mask = args[0] if args else kw.get("attention_mask")
                causal = is_causal_call(module, query, mask, kw.get("is_causal"))
                query = self.multiply_queries(module, query, key, mask, causal)
                self.in_attention = True
                try:
                    return attention(module, query, key, value, *args, **kw)
                finally:
                    self.in_attention = False

            return attend

        return get_interface

    @torch_internals.not_compiled
    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of PyTorch; if it is attention, with its queries multiplied."""
        # In a backward pass a function of a module may be computed again, and no module runs.
        if self.in_attention or not (self.running or torch_internals.in_backward_pass()):
            return func(*args, **kwargs)
        if func is MULTI_HEAD:
            with self:
                return TRANSPARENT_MULTI_HEAD(*args, **kwargs)
        if func in ATTENTION:
            query, key, _, mask, _, is_causal, *_ = arguments = Arguments(*args, **kwargs)
            module = self.running[-1] if self.running else self.model
            query = self.multiply_queries(module, query, key, mask, is_causal)
            return func(**arguments._replace(query=query)._asdict())
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        return self.recorder.run(func, args, kwargs, self.on_softmax)


@contextmanager
def scale_logits(model: nn.Module, factor: FactorFunction) -> Iterator[LogitFactors]:
    """Multiply the model's logits in this thread by the result of `factor`; yield the mode."""
    mode = LogitFactors(model, factor)
    with ExitStack() as stack:
        stack.enter_context(torch_internals.parts_eagerly(model))
        stack.enter_context(FAST_PATH_OFF)
        if any(hasattr(part, "_supports_sdpa") for part in model.modules()):
            stack.enter_context(replaced_lookup(mode.scaled_interface))
        stack.enter_context(mode.at_work())
        yield mode


def count_keys(query: Tensor, key: Tensor, mask: Any, is_causal: bool) -> Tensor:
    """Return the number of keys that each query sees, at least 1, (…, 1 or heads, queries)."""
    queries, keys = query.shape[-2], key.shape[-2]
    past = 0 if is_causal else attention_call.causal_bias(mask, queries, keys)
    if hasattr(mask, "mask_mod"):  # of flex attention
        from torch.nn.attention.flex_attention import create_mask

        batch, heads, device = query.shape[0], query.shape[1], query.device
        mask = create_mask(mask.mask_mod, batch, heads, queries, keys, device=str(device))
    if past is not None:
        counts = torch.arange(1 + past, queries + past + 1, device=query.device).clamp(max=keys)
    elif isinstance(mask, Tensor):
        counts = attention_call.count_visible(mask[..., :keys], keys)
        counts = counts.expand(*mask.shape[:-2], queries)
    else:
        counts = torch.full((queries,), keys, device=query.device)
    counts = counts.clamp(min=1)
    return counts if counts.ndim > 1 else counts[None]
