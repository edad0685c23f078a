"""Change the scale of an existing model inside a context."""

import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import ContextDecorator, ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from attnlib import _checking
from attnlib.attention.arithmetic import (
    ACTIVE_CONTEXTS,
    RAW_SDPA,
    factors_by_query,
    scaled_attention,
)
from attnlib.attention.options import (
    Factor,
    Options,
    resolve_factor,
    validate,
    warn_scale_replaced,
)
from attnlib.models import torch_internals
from attnlib.models.attention_call import MULTI_HEAD, TRANSPARENT_MULTI_HEAD, Arguments
from attnlib.models.interception import Mode
from attnlib.models.softmax_record import WrittenOut
from attnlib.models.softmax_recorder import ONE_KEY, Recorder, running_modules
from attnlib.models.torch_internals import (
    FAST_PATH_OFF,
    SCRIPTS_SEEN,
    not_compiled,
    without_torch_function,
)
from attnlib.policies import Policy, ScaleFunction


def rescale(
    policy: str | Policy | ScaleFunction | None = None,
    *,
    alpha: ArrayLike | Tensor | None = None,
    factor: str | Policy | ScaleFunction | ArrayLike | Tensor | None = None,
    train_length: float | None = None,
    normalize_qk: bool = False,
    layers: Iterable[int | str] | None = None,
) -> "_Context":
    """Change the scale of the attention that runs inside a context.

    Use it to find out what a model does under another rule. The model itself is not changed. The
    context is also a decorator of functions.

    - `policy`, `alpha`, `normalize_qk`: the scale that replaces the model's own, as in `attend`. n
      is the number of keys that a query sees in the call at hand, a cache included.
    - `factor`: what multiplies the model's own scale instead. A number; one for each query or head,
      of a shape such as (heads, 1); a policy (a name or a Policy), divided by its value at
      `train_length` keys, where it changes nothing; or a function of n, d and the position, arrays
      of one shape, which returns the factor.
    - `train_length`: n at which a factor that is a rule is 1. A policy needs it. A function is
      divided by its value there if it is given.
    - `layers`: a list of the modules to change: numbers, counted from 0 as modules first attend in
      the context, or names, as `probe` names them. By default all change. With `layers`, models
      under torch.compile run as they are written, because a graph does not tell layers apart.

    Give a scale or a `factor`, not both.

    Returns the context. It can be entered again, within itself and in several threads. Of nested
    contexts the innermost counts.

    What is reached, in this thread: every way to scaled_dot_product_attention, from
    torch.nn.functional, an import of the name, nn.MultiheadAttention and the modules made of it,
    torch.ops.aten, and models under torch.compile. These are compiled once more for the context
    (within a compiled function the context breaks the graph). What a model does to q before the
    call, it still does. nn.TransformerEncoder has a fast path in inference that does not call the
    function; it is off inside the context (torch.backends.mha, in all threads). Where the backward
    pass computes activations again, run it inside the context too.

    A `factor` also reaches attention that writes its softmax out: a softmax over the last axis of
    a product (matmul, bmm, baddbmm, einsum) of three axes or more, whatever is done to the product
    on the way, if the same functions give the same logits again. The product is computed once more,
    times the factor; biases, caps and masks stay.

    What is not reached: another kernel, weights made of exp and a sum, and softmaxes in a graph of
    torch.compile. The page on compatibility lists what passes without a warning, such as logits
    that are returned beside their softmax, and a softmax of such a product that is an output.

    Warns with a UserWarning where the scale that is replaced is not 1/√d (Gemma 3, Granite, T5,
    Whisper), because there α = 1 changes the model too; and at the end of the context for attention
    that it observed and could not change, by module and reason, and where it observed no attention.

    Raises the errors of `attend`, here or in the model's call; ValueError where there is nothing to
    change, and at the end where one of the `layers` did not attend; RuntimeError for a policy or an
    alpha where attention writes its softmax out, whose scale is in its own code, and for
    nn.MultiheadAttention with need_weights=True in a graph.
    Chapter: scaling_rules.

    >>> model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> x = torch.ones(1, 3, 8)
    >>> with rescale("transformer"):
    ...     same = model(x)
    >>> torch.testing.assert_close(same, model(x))
    """
    options = Options(policy, alpha, normalize_qk=normalize_qk)
    scaled_anew = bool(options.scale_names()) or normalize_qk
    if factor is None:
        if not scaled_anew:
            raise ValueError("rescale needs a policy, an alpha or a factor: nothing would change")
        if train_length is not None:
            raise ValueError("train_length is for a factor, which is not given")
    elif scaled_anew:
        raise ValueError("factor multiplies the model's own scale: give no other, or no factor")
    validate(options)
    relative = None if factor is None else resolve_factor(factor, train_length)
    return _Context(partial(_RescaleMode, options, relative, _check_layers(layers)))


def _check_layers(layers: Iterable[int | str] | None) -> set[int | str] | None:
    """Return the `layers` of `rescale` as a set, None for all; TypeError or ValueError if wrong."""
    if layers is None:
        return None
    if isinstance(layers, str) or not isinstance(layers, Iterable):
        raise TypeError(
            f"layers must be a list of integers from 0 on or names, such as [{layers!r:.80}], got "
            f"layers={layers!r:.80}"
        )
    chosen = {
        layer if isinstance(layer, str) else _checking.integer("layers", layer, minimum=0)
        for layer in layers
    }
    if not chosen:
        raise ValueError("layers must name one or more, got none")
    return chosen


class _Context(ContextDecorator):
    """Hold the context that `rescale` returns; each `with` enters a new `_RescaleMode`."""

    def __init__(self, mode: Callable[[], "_RescaleMode"]) -> None:
        self._mode = mode

    def __enter__(self) -> Self:
        mode = self._mode()
        if mode.layers is not None:  # a graph mixes layers
            mode.contexts.enter_context(torch_internals.eagerly(load=True))
        for context in (FAST_PATH_OFF, SCRIPTS_SEEN, mode):
            mode.contexts.enter_context(context)
        ACTIVE_CONTEXTS.modes.append(mode)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        mode = ACTIVE_CONTEXTS.modes.pop()
        mode.contexts.close()
        if ACTIVE_CONTEXTS.modes:  # the outer one would have changed them
            ACTIVE_CONTEXTS.modes[-1].calls += mode.calls
        if error is not None:
            return
        unreached = mode.recorder.report_lines(mode.recorder.label)
        if mode.softmax_in_graph and not mode.graph_seen:
            unreached.append(
                "a softmax in a graph of torch.compile, if it is one of attention: "
                "torch.compiler.set_stance('force_eager') runs models as they are written"
            )
        if unreached:
            warnings.warn(f"not changed: {'; '.join(unreached)}", stacklevel=2)
        if hints := mode.recorder.report_lines(mode.recorder.label, hints=True):
            warnings.warn(f"may attend and was not changed: {'; '.join(hints)}", stacklevel=2)
        if mode.calls == 0:
            warnings.warn(
                "rescale has seen no call of scaled_dot_product_attention in this thread, and no "
                "softmax of what a product of queries and keys has given, so it has changed nothing"
                + (f"; {ONE_KEY}" if mode.recorder.one_key else "")
                + (_TRANSFORMERS_HINT if "transformers" in sys.modules else ""),
                stacklevel=2,
            )
        missing = (mode.layers or set()) - mode.attended
        if missing:
            raise ValueError(
                "layers must be some of those that attend, got layers with "
                f"{_quote_layers(missing)}; those that came are "
                f"{_quote_layers(mode.attended) or 'none'}"
            )


def _quote_layers(layers: set[int | str]) -> str:
    """Return layers as one text: numbers, then names in quotes, each sorted."""
    return ", ".join(map(repr, sorted(layers, key=lambda layer: (isinstance(layer, str), layer))))


_TRANSFORMERS_HINT = (
    "; a model of transformers wants attn_implementation='sdpa', one that refuses it "
    "model.set_attn_implementation(attnlib.attention.register(…)), and one that does not support "
    "setting it cannot be changed"
)

_SEEN_FROM_INSIDE = [
    (MULTI_HEAD, TRANSPARENT_MULTI_HEAD),
    # The backward pass may compute activations anew.
    *(
        (function, without_torch_function(function))
        for function in (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
    ),
]


class _RescaleMode(Mode):
    """Replace calls of attention by calls at another scale, as a mode of PyTorch.

    `options` have the scale that replaces the model's own, or none; `relative` multiplies it.
    """

    def __init__(
        self, options: Options, relative: Policy | Factor | None, layers: set[int | str] | None
    ) -> None:
        super().__init__()
        self.options, self.relative, self.layers = options, relative, layers
        self.contexts = ExitStack()  # open while this mode is
        self.calls = 0  # of attention
        self.softmax_in_graph = False
        self.graph_seen = False  # whether that graph ran as functions of PyTorch, and was seen
        self.recorder = Recorder(running_modules)
        self.module_places: WeakKeyDictionary[nn.Module, tuple[int, str]] = WeakKeyDictionary()
        self.attended: set[int | str] = set()

    def _selects(self, module: nn.Module | None = None) -> bool:
        """Note that a module attends, by default the inmost; return whether its scale changes."""
        if self.layers is None:
            return True
        modules = running_modules()
        module = module or next(reversed(modules), None)
        places: set[int | str] = {0}
        if module is not None:
            number, name = self.module_places.get(module, (len(self.module_places), ""))
            if not torch_internals.in_backward_pass():  # there the model around it does not run
                names = {part: name for name, part in modules[0].named_modules()}
                name = names.get(module, "")
            self.module_places[module] = number, name
            places = {number, name}
        self.attended |= places
        return not self.layers.isdisjoint(places)

    def rescaled(self, call: Arguments, options: Options) -> Tensor:
        """Return a call's output at the context's scale; in a layer left out, with `options`."""
        self.calls += 1
        if not self._selects():
            return scaled_attention(call, options, RAW_SDPA)
        if self.options.scale_names():
            replaced: Any = options.scale
            if not self.options.normalize_qk and isinstance(replaced, float):
                warn_scale_replaced(replaced, call.query.shape[-1], "rescale")
            options = self.options._replace(post_scale=options.post_scale)
        return scaled_attention(call, options, RAW_SDPA, self.relative)

    def written(self, call: WrittenOut) -> Tensor | None:
        """Return the logits of a softmax written out, with q·k times the factor; None to keep them.

        Raises RuntimeError for a policy or an alpha.
        """
        self.calls += 1
        self.graph_seen = self.graph_seen or torch_internals.in_graph()
        if ACTIVE_CONTEXTS.modes[-1] is not self or not self._selects(call.module):
            return None
        if self.relative is not None:
            return call.logits_times(factors_by_query(self.relative, call))
        multi_head = isinstance(call.module, nn.MultiheadAttention)
        name = "a function" if call.module is None else type(call.module).__name__
        name = "a compiled graph (torch.compile)" if name == "<lambda>" else name
        raise RuntimeError(
            f"{name} writes its softmax out, where its scale is in its own code: "
            "rescale(factor=…) multiplies that, a policy or an alpha cannot replace it"
            + ("; pass need_weights=False" if multi_head else "")
        )

    @not_compiled
    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of PyTorch, at the scale of the context if it is attention."""
        if func is functional.scaled_dot_product_attention or func is RAW_SDPA.default:
            call = Arguments(*args, **kwargs)
            compiling = torch.compiler.is_compiling()
            why = "" if compiling else self.recorder.obstacle(call.query, call.attn_mask)
            if why and self._selects():
                self.calls += 1
                self.recorder.note(why)
                return func(*args, **kwargs)
            return self.rescaled(call, Options(scale=call.scale))
        for function, inside in _SEEN_FROM_INSIDE:
            if func is function:
                before = self.calls
                with self:
                    result = inside(*args, **kwargs)
                if func is MULTI_HEAD and self.calls == before:
                    raise RuntimeError(
                        "nn.MultiheadAttention writes attention out with need_weights=True, where "
                        "rescale cannot reach it in a graph: pass need_weights=False"
                    )
                return result
        if torch.compiler.is_compiling():
            if func in (torch.softmax, Tensor.softmax, functional.softmax) and args[0].ndim > 2:
                self.softmax_in_graph = True
            return func(*args, **kwargs)
        return self.recorder.run(func, args, kwargs, self.written)


def is_rescaled() -> bool:
    """Return whether this thread is inside a `rescale` context: True or False.

    >>> is_rescaled()
    False
    """
    return bool(ACTIVE_CONTEXTS.modes)
