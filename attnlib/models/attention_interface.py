"""Reach attention in transformers, whose models take it by name from a registry of functions."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from attnlib.extras import extra_packages
from attnlib.models.interception import LOOKS_LIKE_ATTENTION
from attnlib.models.torch_internals import cached_in_graphs

EAGER = re.compile(r"get_interface\(\s*[\w.]+,\s*(\w+)")


def register_function(name: str, function: Callable[..., Any], mask: Any = None) -> None:
    """Put a function of attention into the registry, with the function that makes its masks.

    Without `mask` models make it the masks of their default. Raises MissingExtraError without
    transformers.
    """
    with extra_packages("probe"):
        from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, function)
    if mask is not None:
        AttentionMaskInterface.register(name, mask)


def implementation_in_use(model: Any) -> tuple[str, Any]:
    """Return the name of a model's function of attention and the function that makes its masks."""
    from transformers import AttentionMaskInterface

    name: str = model.config._attn_implementation
    return name, AttentionMaskInterface().get(name)


def function_of(name: str, module: nn.Module) -> Callable[..., Any]:
    """Return the function of attention that a module has under the implementation `name`."""
    from transformers import AttentionInterface

    function: Callable[..., Any]
    function = AttentionInterface().get_interface(name, eager_attention(type(module)))
    return function


@contextmanager
def replaced_function(model: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Give a model another function of attention, registered as `name`, inside the context."""
    from transformers.masking_utils import eager_mask, sdpa_mask

    in_use = model.config._attn_implementation
    # some models change the mask, and want it as they have it
    register_function(name, function, eager_mask if in_use == "eager" else sdpa_mask)
    try:
        model.set_attn_implementation(name)
        yield
    finally:
        model.set_attn_implementation(in_use)
        register_function(name, function_of("sdpa", model))  # which keeps no model alive


def replaced_lookup(
    change: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> AbstractContextManager[Any]:
    """Return a context in which models look their functions up by `change(get_interface)`."""
    from transformers import AttentionInterface

    changed = change(AttentionInterface.get_interface)
    return mock.patch.object(AttentionInterface, "get_interface", changed)


def fused_mask(*arguments: Any, config: Any, **named: Any) -> Tensor | None:
    """Return the fused kernel's mask, for arguments of the registry of masks.

    Raises RuntimeError for a model that asks that registry, but no registry for attention.
    """
    from transformers.masking_utils import sdpa_mask

    asking, written_out = attention_classes(type(config))
    if written_out and not asking:
        raise RuntimeError(
            f"{written_out[0]} has attention written out and does not ask the registry, so attnlib "
            "cannot change its scale: make the model with attn_implementation='eager'"
        )
    mask: Tensor | None = sdpa_mask(*arguments, config=config, **named)
    return mask


@cached_in_graphs
def attention_classes(kind: type) -> tuple[list[str], list[str]]:
    """Return the names of classes that ask the registry, and of those that write attention out.

    They are in the file of `kind`, a class of modules or of configurations; none are found outside
    transformers.
    """
    asking: list[str] = []
    written_out: list[str] = []
    file = kind.__module__.replace("configuration_", "modeling_")
    if not file.startswith("transformers.models.") or file not in sys.modules:
        return asking, written_out
    for name, part in vars(sys.modules[file]).items():
        if isinstance(part, type) and issubclass(part, nn.Module) and part.__module__ == file:
            source = inspect.getsource(part)
            if "ALL_ATTENTION_FUNCTIONS" in source:
                asking.append(name)
            elif LOOKS_LIKE_ATTENTION.search(name) and "softmax(" in source:
                written_out.append(name)
    return asking, written_out


def attend_as_default(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool,
    **named: Any,
) -> tuple[Tensor, Tensor | None]:
    """Call the fused kernel or, where the model refuses that, its eager attention.

    Arguments and result are those of functions in the registry. Raises RuntimeError for a model
    that refuses the kernel and has no eager function.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    plain = named.get("softcap") is None and named.get("s_aux") is None
    if plain and _supports_fused(type(module)):
        function: Callable[..., Any] = sdpa_attention_forward
    else:
        eager = eager_attention(type(module))
        if eager is None:
            raise RuntimeError(
                f"{type(module).__name__} refuses scaled_dot_product_attention, and "
                f"{type(module).__module__} has no eager_attention_forward: attnlib cannot "
                "change its scale"
            )
        function, mask = eager, mask_of_numbers(mask, is_causal, query, key)
    result: tuple[Tensor, Tensor | None] = function(
        module, query, key, value, mask, is_causal=is_causal, **named
    )
    return result


@cached_in_graphs
def _supports_fused(kind: type[nn.Module]) -> bool:
    """Return whether all models in the file of `kind` support scaled_dot_product_attention."""
    from transformers import PreTrainedModel

    file = kind.__module__
    members = vars(sys.modules[file]).values()
    models: list[Any] = [
        model for model in members if isinstance(model, type) and issubclass(model, PreTrainedModel)
    ]
    return all(model._supports_sdpa for model in models if model.__module__ == file)


def eager_attention(kind: type[nn.Module]) -> Callable[..., Any] | None:
    """Return the eager attention function in the file of a module's class; None if it has none."""
    return getattr(sys.modules[kind.__module__], _eager_name(kind), None)


@cached_in_graphs
def _eager_name(kind: type) -> str:
    """Return the name that `kind` hands to get_interface, else "eager_attention_forward"."""
    match = None
    with suppress(OSError, TypeError):  # there is no source
        match = EAGER.search(inspect.getsource(kind))
    return match[1] if match else "eager_attention_forward"


def is_causal_call(module: nn.Module, query: Tensor, mask: Any, declared: bool | None) -> bool:
    """Return whether a call is causal: it has no mask and several queries, and is declared so.

    `declared` is the call's argument is_causal; None stands for the module's own.
    """
    declared = getattr(module, "is_causal", True) if declared is None else declared
    return mask is None and query.shape[-2] > 1 and bool(declared)


def mask_of_numbers(
    mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor
) -> Tensor | None:
    """Return the mask that eager attention adds to the logits; None without mask and causality."""
    if mask is None and is_causal:
        square = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool)
        mask = square.tril()[None, None]
    if mask is None or mask.dtype != torch.bool:
        return mask
    hidden = torch.finfo(query.dtype).min
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, hidden)
