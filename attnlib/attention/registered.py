"""Models of transformers at another scale, for good: a policy in its registry of attention."""

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention.by_query import each_query
from attnlib.attention.options import named_policy
from attnlib.interception import constant_in_graphs
from attnlib.policies import Policy, Rule, own


def register(policy: str | Policy | Rule, *, name: str | None = None) -> str:
    """Put a policy into transformers' registry of attention functions; return its name there.

    The name is "attnlib-" and that of the policy or function, unless `name` says otherwise. It is
    for `model.set_attn_implementation(name)`, or for `attn_implementation=name` where a model is
    made, and stays with the model: in training, in generation with a cache, under torch.compile.
    Registering a name again replaces what it stood for.

    The scale replaces the model's own: the logits are σ q·k, with σ of the policy for the n keys
    that each query sees, those of a cache included, those that padding or a sliding window hides
    not. Soft caps, sinks and biases of positions stay as they are, and come after the scale. With a
    policy for cosines q and k are divided by their lengths.

    q is multiplied by what it lacks, in float32 and rounded once, and goes to the function that
    the model would use: PyTorch's fused kernel, or where the model refuses that (Gemma 2, GPT-OSS)
    its own eager one, whose memory grows with n². What cannot be reached is refused in the model's
    call with RuntimeError: a paged cache, and a model that refuses the fused kernel and has no
    eager function. transformers itself warns of a model that does not ask the registry.

    Raises as `attend` for the policy, ModuleNotFoundError without transformers 5.
    Chapter: policies.

    >>> register("ssmax")
    'attnlib-ssmax'
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    rule = named_policy("policy", policy) or own(cast(Rule, policy))
    name = f"attnlib-{rule.name}" if name is None else name
    AttentionInterface.register(name, _Registered(rule))
    AttentionMaskInterface.register(name, sdpa_mask)
    return name


class _Registered:
    """A function of attention as transformers calls it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **rest: Any,
    ) -> tuple[Tensor, Tensor | None]:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        if rest.get("cache") is not None:
            raise RuntimeError("attnlib's scales do not reach a paged cache: use another one")
        wide = torch.promote_types(query.dtype, torch.float32)
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        is_causal = attention_mask is None and query.shape[2] > 1 and is_causal
        of_cosines = self._policy.applied_to == "cosine"
        q = query.to(wide)
        if of_cosines:
            q = functional.normalize(q, dim=-1)
            key = functional.normalize(key.to(wide), dim=-1).to(key.dtype)
        alpha = each_query("alpha", self._policy, query, key, attention_mask, is_causal, of_cosines)
        # What α is relative to is 1/√d, and 1 for cosines; it goes into the kernel's own scale.
        unit = 1.0 if of_cosines else 1.0 / math.sqrt(query.shape[-1])
        query = (q * alpha.unsqueeze(-1)).to(query.dtype)
        if rest.get("softcap") is None and rest.get("s_aux") is None and _fused(type(module)):
            function: Callable[..., Any] = sdpa_attention_forward
        else:
            function = _eager(type(module))
            attention_mask = _of_numbers(attention_mask, is_causal, query, key)
        options = {**rest, "scaling": unit, "is_causal": is_causal}
        result: tuple[Tensor, Tensor | None] = function(
            module, query, key, value, attention_mask, **options
        )
        return result


@constant_in_graphs
def _fused(kind: type[nn.Module]) -> bool:
    """Return whether the models in the file of this module say that the fused kernel is right."""
    return _all_support_sdpa(kind.__module__)


@cache
def _all_support_sdpa(file: str) -> bool:
    from transformers import PreTrainedModel

    there = vars(sys.modules[file]).values()
    models: list[Any] = [
        one for one in there if isinstance(one, type) and issubclass(one, PreTrainedModel)
    ]
    return all(one._supports_sdpa for one in models if one.__module__ == file)


def _eager(kind: type[nn.Module]) -> Callable[..., Any]:
    """Return the attention that the file of this module writes out."""
    function = getattr(sys.modules[kind.__module__], "eager_attention_forward", None)
    if function is None:
        raise RuntimeError(
            f"{kind.__name__} refuses scaled_dot_product_attention, and {kind.__module__} has no "
            "eager_attention_forward: attnlib cannot change its scale"
        )
    return cast(Callable[..., Any], function)


def _of_numbers(mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor) -> Tensor | None:
    """Return a mask as eager attention wants it: numbers that are added to the logits."""
    if mask is None and is_causal:
        square = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool)
        mask = square.tril()[None, None]
    if mask is None or mask.dtype != torch.bool:
        return mask
    hidden = torch.finfo(query.dtype).min
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, hidden)
