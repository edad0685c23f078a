"""Which queries, keys, values and masks go together."""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlib import checking

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
"""What kernels of attention take."""


class Call(NamedTuple):
    """What scaled_dot_product_attention is called with, but for the scale."""

    q: Tensor
    k: Tensor
    v: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    enable_gqa: bool = False


def validate(call: Call) -> torch.Size:
    """Return the shape (…, L) of the queries of a call whose tensors go together."""
    q, k, v, attn_mask, _, is_causal, enable_gqa = call
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _validate_tensor(name, tensor)
    if not (q.device == k.device == v.device):
        raise ValueError(
            f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}"
        )
    same_type = q.dtype == k.dtype == v.dtype
    if not same_type and not torch.is_autocast_enabled(q.device.type):
        raise TypeError(f"q, k and v must have one type, got {q.dtype}, {k.dtype} and {v.dtype}")
    checking.flag("is_causal", is_causal)
    checking.flag("enable_gqa", enable_gqa)
    leading = _leading(q, k, v, enable_gqa)
    if leading is None or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(_why_not(q, k, v, enable_gqa))
    if attn_mask is not None:
        if is_causal:
            raise ValueError(
                "is_causal and attn_mask both say which keys are seen: put both into attn_mask"
            )
        _validate_mask(attn_mask, q, torch.Size((*leading, q.shape[-2], k.shape[-2])))
    return torch.Size((*leading, q.shape[-2]))


def _validate_tensor(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got a {type(tensor).__name__}")
    dense(name, tensor)
    if tensor.dtype not in DTYPES:
        raise TypeError(
            f"{name} must have a real floating type of 16 bits or more, got {tensor.dtype}"
        )
    if tensor.ndim < 2 or tensor.shape[-1] == 0:
        raise ValueError(
            f"{name} must have two axes or more, the last not empty, "
            f"got shape {tuple(tensor.shape)}"
        )


def _validate_mask(attn_mask: Tensor, q: Tensor, full: torch.Size) -> None:
    if not isinstance(attn_mask, Tensor) or type(attn_mask).__name__ == "CausalBias":
        raise TypeError(
            f"attn_mask must be a plain tensor, got a {type(attn_mask).__name__}: pass a mask "
            "of booleans, or is_causal=True"
        )
    dense("attn_mask", attn_mask)
    if attn_mask.device != q.device:
        raise ValueError(
            f"attn_mask must be on the device of q, {q.device}, got {attn_mask.device}"
        )
    if attn_mask.dtype not in (torch.bool, torch.float32, q.dtype):
        raise TypeError(
            f"attn_mask must be booleans or of torch.float32 or the type of q, {q.dtype}, "
            f"got {attn_mask.dtype}"
        )
    if attn_mask.ndim < 2 or not broadcasts(attn_mask.shape, full):
        raise ValueError(
            f"attn_mask must have two axes or more and broadcast to {tuple(full)}, "
            f"got shape {tuple(attn_mask.shape)}"
        )


def _why_not(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> str:
    """Return in which way shapes do not go together."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.shape[-1] != k.shape[-1]:
        return f"q and k must have the same last axis, got {shapes}"
    if k.shape[-2] != v.shape[-2]:
        return f"k and v must have the same number of keys, got {shapes}"
    hint = "; the heads of k and v must divide those of q" if enable_gqa else ""
    if not enable_gqa and _leading(q, k, v, True) is not None:
        hint = "; enable_gqa=True shares each head of k and v among several of q"
    return f"the leading axes of q, k and v must broadcast, got {shapes}{hint}"


def dense(name: str, tensor: Tensor) -> None:
    """Refuse a tensor without strides."""
    if tensor.is_nested:
        raise TypeError(f"{name} must not be a nested tensor: pad it and pass a mask")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got the layout {tensor.layout}")


def _leading(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> torch.Size | None:
    """Return the shape that the leading axes of q, k and v broadcast to, or None."""
    of_q, of_k, of_v = q.shape[:-2], k.shape[:-2], v.shape[:-2]
    if of_q == of_k == of_v and (not enable_gqa or (of_q and of_q[-1])):
        return of_q  # as nearly always, in a tenth of the time
    heads = torch.Size()
    if enable_gqa:
        if not (of_q and of_k and of_v) or not of_k[-1] or of_k[-1] != of_v[-1]:
            return None
        if of_q[-1] % of_k[-1]:
            return None
        heads, of_q, of_k, of_v = of_q[-1:], of_q[:-1], of_k[:-1], of_v[:-1]
    try:
        common = torch.broadcast_shapes(of_q, of_k, of_v)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    return torch.Size((*common, *heads))


def broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    """Return whether the shape broadcasts to the target without enlarging it."""
    if len(shape) > len(target):
        return False
    return all(
        size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )
