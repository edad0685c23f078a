"""Compute a policy's α, or the exact post-scale, for a query that sees n keys.

NumPy computes it, once for each length. PyTorch's compiler and its transforms see one operator.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlib import exact
from attnlib._checking import FloatArray
from attnlib.interception import constant_in_graphs, count_visible
from attnlib.policies import POLICIES, Policy
from attnlib.scores import Cosine, DotProduct


def within_range(name: str, largest: float, dtype: torch.dtype) -> None:
    """Raise ValueError where `largest` is NaN or above √M, for the largest number M of `dtype`."""
    limit = math.sqrt(torch.finfo(dtype).max)
    if not largest <= limit:
        raise ValueError(
            f"{name} must be at most {limit:.3g} to multiply in {dtype}, got {name}={largest:.3g}"
        )


@constant_in_graphs
def scale_of_dimension(policy: Policy, d: int) -> float:
    """Return σ of a policy whose scale depends on d alone, not on n or the position."""
    return float(policy.scale(1.0, d))


def each_query(
    quantity: str,
    scale: Policy | float,
    q: Tensor,
    k: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    cosine: bool,
) -> Tensor | float:
    """Return α (`quantity` "alpha") or the exact c ("post_scale") for the keys each query sees.

    `scale` is a policy or, for c, a number α. With `cosine` a policy's α is its scale σ, else σ√d.

    Returns a float where all queries see all keys, or a tensor (1,) in a graph and for subclasses
    of Tensor; else a tensor (queries,) or, for a mask, of its shape without the last axis. Tensors
    are float32 or wider. ValueError for an α that is too large.
    """
    visible = "causal" if is_causal else "all" if attn_mask is None else "masked"
    token, alpha = (_token(scale), 1.0) if isinstance(scale, Policy) else ("", scale)
    lengths = q.shape[-2], k.shape[-2]
    row = quantity, token, alpha, q.shape[-1], cosine, visible, *lengths, q.dtype
    in_graph = torch.compiler.is_compiling() or type(q) is not Tensor or type(lengths[1]) is not int
    if visible == "all" and not in_graph:
        return float(_numbers(*row)[0])
    numbers: Tensor = (_numbers_of_rows if in_graph else _kept)(*row, q.device)
    return numbers if attn_mask is None else numbers[count_visible(attn_mask, k.shape[-2])]


_TOKENS = {policy: name for name, policy in POLICIES.items()}
_RULES = dict(POLICIES)


@constant_in_graphs
def _token(policy: Policy) -> str:
    """Return the name under which `_RULES` has a policy: an operator of PyTorch takes strings."""
    token = _TOKENS.setdefault(policy, f"{policy.name} {len(_TOKENS)}")
    _RULES[token] = policy
    return token


# An operator of its own: the compiler need not follow NumPy, and lengths may vary. It copies from
# the CPU, which a CUDA graph cannot record.
@torch.library.custom_op(
    "attnlib::numbers_of_rows",
    mutates_args=(),
    schema="(str quantity, str policy, float alpha, SymInt d, bool cosine, str visible, "
    "SymInt queries, SymInt keys, ScalarType dtype, Device device) -> Tensor",
    tags=(torch.Tag.cudagraph_unsafe,),
)
def _numbers_of_rows(*row: Any) -> Tensor:
    """Return `_numbers` of all arguments but the last, a device, as a tensor on that."""
    *what, device = row
    return torch.tensor(_numbers(*what), dtype=_wide(what[-1]), device=device)


@_numbers_of_rows.register_fake
def _(*row: Any) -> Tensor:
    *_, visible, queries, keys, dtype, device = row
    size = {"all": 1, "causal": queries, "masked": keys + 1}[visible]
    return torch.empty(size, dtype=_wide(dtype), device=device)


@lru_cache(maxsize=32)
def _kept(*row: Any) -> Tensor:
    """Return the result of `_numbers_of_rows` from a cache, made outside of inference mode."""
    with torch.inference_mode(False):
        numbers: Tensor = _numbers_of_rows(*row)
    return numbers


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@lru_cache(maxsize=32)
def _numbers(
    quantity: str,
    policy: str,
    alpha: float,
    d: int,
    cosine: bool,
    visible: str,
    queries: int,
    keys: int,
    dtype: torch.dtype,
) -> FloatArray:
    """Return α or c: for all queries ("all"), each ("causal"), or n = 0 to `keys` ("masked")."""
    if visible == "all":
        n = np.full(1, float(keys))
    elif visible == "causal":
        n = np.minimum(np.arange(1.0, queries + 1.0), keys)
    else:
        n = np.arange(keys + 1.0)
    n = np.maximum(n, 1.0)  # a query without a key gets zeros, whatever they are multiplied by
    scale = np.full(n.shape, alpha)
    if policy:
        unit = 1.0 if cosine else 1.0 / math.sqrt(d)
        scale = _RULES[policy].scale(n, d) / unit
    if quantity == "alpha":
        within_range("policy", float(scale.max(initial=0.0)), dtype)
        return scale
    return exact.post_scale(Cosine(d) if cosine else DotProduct(d), scale, n)
