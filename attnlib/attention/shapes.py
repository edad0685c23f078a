"""Hold a call of attention, and check the shape of its queries."""

from typing import NamedTuple

import torch
from torch import Tensor


class Call(NamedTuple):
    """Hold the arguments of scaled_dot_product_attention but the scale."""

    q: Tensor
    k: Tensor
    v: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    enable_gqa: bool = False


def of_queries(call: Call) -> torch.Size:
    """Return the output's shape before its last axis, (…, L).

    Raises ValueError where q, k, v and mask do not fit together, TypeError for a CausalBias.
    """
    q, k, v, attn_mask, *_ = call
    if type(attn_mask).__name__ == "CausalBias":  # it has no numbers to count keys by
        raise TypeError("attn_mask must be a plain tensor, got a CausalBias: pass is_causal=True")
    leading = [q.shape[:-2], k.shape[:-2], v.shape[:-2]]
    if call.enable_gqa:  # each of their heads is shared by several of q
        leading[1:] = (torch.Size((*shape[:-1], *leading[0][-1:])) for shape in leading[1:])
    common = leading[0]
    if not common == leading[1] == leading[2]:  # hardly ever: it takes ten times as long
        try:
            common = torch.broadcast_shapes(*leading)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise ValueError(
                f"q {(*q.shape,)}, k {(*k.shape,)}, v {(*v.shape,)} must broadcast before their "
                "last two axes; heads that share keys are (batch, heads, n, d) with enable_gqa=True"
            ) from error
    shape = torch.Size((*common, q.shape[-2]))
    if attn_mask is not None and not broadcasts(attn_mask.shape, (*shape, k.shape[-2])):
        wanted, got = (*shape, k.shape[-2]), tuple(attn_mask.shape)
        raise ValueError(f"attn_mask must broadcast to {wanted}, got shape {got}")
    return shape


def broadcasts(shape: torch.Size, target: tuple[int, ...]) -> bool:
    """Return whether the shape broadcasts to the target without enlarging it."""
    if len(shape) > len(target):
        return False
    return all(
        size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )
