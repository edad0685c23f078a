"""Somebody else's model at another scale."""

import warnings
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnlib.attention.arithmetic import ENTERED, UNSEEN, scaled
from attnlib.attention.options import Options, checked
from attnlib.interception import (
    FAST_PATH_OFF,
    MULTI_HEAD,
    MULTI_HEAD_FROM_INSIDE,
    seen_from_inside,
)
from attnlib.policies import Policy


def rescale(
    policy: str | Policy | None = None,
    *,
    alpha: ArrayLike | Tensor | None = None,
    scale: ArrayLike | Tensor | None = None,
    post_scale: ArrayLike | Tensor | None = None,
    normalize_qk: bool = False,
) -> "_Context":
    """Return a context in which every scaled_dot_product_attention call runs at another scale.

    What would this model do under that policy? Nothing in the model is touched. The arguments as in
    `attend`, and they replace the scale that the model passes; with `post_scale` alone the model's
    own scale stays. n is the number of keys that a query sees in the call at hand, a cache
    included. Also a decorator of functions.

    It reaches every way to that function in this thread: from torch.nn.functional, an import of
    the name, nn.MultiheadAttention and the modules made of it, torch.ops.aten, and models under
    torch.compile, which are compiled once more for the context (within a compiled function the
    context breaks the graph). What a model does to q before the call, it still does. Of nested
    contexts the innermost counts. Run the backward pass inside too where activations are recomputed
    in it.

    It cannot reach attention that is written out or uses another kernel. So the context warns at
    its end if it has seen no call, and nn.MultiheadAttention with need_weights=True, which is
    written out, is refused (RuntimeError). The shortcut of nn.TransformerEncoder in inference
    passes around the function too, and is off meanwhile (torch.backends.mha, in all threads).

    Raises as `attend`, here or in the model's call; ValueError where there is nothing to change.
    Chapter: policies.

    >>> model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> x = torch.ones(1, 3, 8)
    >>> with rescale("transformer"):
    ...     same = model(x)
    >>> torch.testing.assert_close(same, model(x))
    """
    options = Options(policy, alpha, scale, post_scale, normalize_qk)
    if all(said is None for said in options[:4]) and not normalize_qk:
        raise ValueError(
            "rescale needs a policy, an alpha, a scale or a post_scale: nothing would change"
        )
    checked(options)
    return _Context(options)


class _Context(ContextDecorator):
    """What `rescale` returns. It can be entered again, within itself and in several threads."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def __enter__(self) -> Self:
        mode = _Rescaled(self._options)
        ENTERED.modes.append(mode)
        FAST_PATH_OFF.__enter__()
        mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        mode = ENTERED.modes.pop()
        mode.__exit__(kind, error, trace)
        FAST_PATH_OFF.__exit__()
        if mode.calls == 0 and error is None:
            warnings.warn(
                "rescale has seen no call of scaled_dot_product_attention in this thread, so it "
                "has changed nothing; a model of transformers wants attn_implementation='sdpa'",
                stacklevel=2,
            )


_SEEN_FROM_INSIDE = [
    (MULTI_HEAD, MULTI_HEAD_FROM_INSIDE),
    # The backward pass may compute activations anew.
    *(
        (function, seen_from_inside(function))
        for function in (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
    ),
]


class _Rescaled(TorchFunctionMode):
    """Hands a model's calls of scaled_dot_product_attention to `scaled`."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.calls = 0

    def changed(self, options: Options) -> Options:
        """Return the options of a call, as far as the context leaves them."""
        self.calls += 1
        post_scale = self.options.post_scale
        if post_scale is None:
            post_scale = options.post_scale
        if all(said is None for said in self.options[:3]):
            return options._replace(post_scale=post_scale)
        return self.options._replace(post_scale=post_scale)

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention or func is UNSEEN.default:
            return self.attend(*args, **kwargs)
        for function, inside in _SEEN_FROM_INSIDE:
            if func is function:
                before = self.calls
                with self:
                    result = inside(*args, **kwargs)
                if func is MULTI_HEAD and self.calls == before:
                    raise RuntimeError(
                        "nn.MultiheadAttention writes attention out with need_weights=True, where "
                        "rescale cannot reach it: pass need_weights=False"
                    )
                return result
        return func(*args, **kwargs)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Return attention at this context's scale; the arguments are PyTorch's."""
        options = self.changed(Options(scale=scale))
        return scaled(
            query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, options, UNSEEN
        )


def is_rescaled() -> bool:
    """Return whether this thread is inside a `rescale` context. Chapter: policies.

    >>> is_rescaled()
    False
    """
    return bool(ENTERED.modes)
