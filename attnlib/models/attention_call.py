"""Hold a call of scaled_dot_product_attention: its names, its arguments, the keys it hides."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attnlib.models.torch_internals import without_torch_function

OPERATOR = torch.ops.aten.scaled_dot_product_attention

ATTENTION = (functional.scaled_dot_product_attention, OPERATOR, OPERATOR.default)
"""What a mode gets for a call of attention. The arguments are the same."""

MULTI_HEAD = functional.multi_head_attention_forward
"""What nn.MultiheadAttention calls."""

MULTI_HEAD_ALONE = without_torch_function(MULTI_HEAD)
"""The same function; called within a mode, it shows that mode its call of attention."""


class Arguments(NamedTuple):
    """Hold the arguments of scaled_dot_product_attention, as PyTorch names them."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


HIDDEN = -1e4
"""A number in a mask that hides a key, and so do lower ones. Its weight is 0 in every precision."""


def causal_bias(mask: Any, queries: int, keys: int) -> int | None:
    """Return how many keys before its own the first query sees; None unless a CausalBias.

    The class is known by its name: to import torch.nn.attention.bias loads the compiler.
    """
    if type(mask).__name__ != "CausalBias":
        return None
    return keys - queries if mask.variant.name == "LOWER_RIGHT" else 0


def count_visible(mask: Tensor, keys: int) -> Tensor:
    """Return how many keys of a mask each query sees: those True, or, in numbers, above −10⁴."""
    visible = mask if mask.dtype == torch.bool else mask > HIDDEN
    return visible.expand(*mask.shape[:-1], keys).sum(-1)
