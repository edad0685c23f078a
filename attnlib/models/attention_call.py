"""Hold a call of scaled_dot_product_attention: its arguments, and the keys that a mask hides."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attnlib.models.torch_internals import without_torch_function

OPERATOR = torch.ops.aten.scaled_dot_product_attention
ATTENTION = (functional.scaled_dot_product_attention, OPERATOR, OPERATOR.default)
"""The functions that a mode gets for a call of attention. They take the same arguments."""

MULTI_HEAD = functional.multi_head_attention_forward
"""The function that nn.MultiheadAttention calls."""

TRANSPARENT_MULTI_HEAD = without_torch_function(MULTI_HEAD)
"""A copy of that function whose call of attention a mode sees."""


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
"""The largest number in a mask that hides a key. Its weight is 0 in every precision."""


def causal_bias(mask: Any, queries: int, keys: int) -> int | None:
    """Return the number of keys that stand before the first query's own; None unless a CausalBias.

    The class is known by its name: importing torch.nn.attention.bias loads the compiler.
    """
    if type(mask).__name__ != "CausalBias":
        return None
    return keys - queries if mask.variant.name == "LOWER_RIGHT" else 0


def count_visible(mask: Tensor, keys: int) -> Tensor:
    """Return the number of keys that each query sees, of the mask's shape without its last axis.

    Visible are those where the mask is True or, in a mask of numbers, above −10⁴. `keys` is their
    number: the mask may have one column for all.
    """
    visible = mask if mask.dtype == torch.bool else mask > HIDDEN
    return visible.expand(*mask.shape[:-1], keys).sum(-1)
