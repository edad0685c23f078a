"""Compute a policy's α, or the exact post-scale, for a query that sees n keys.

NumPy computes it, once for each length. PyTorch's compiler and its transforms see a single
operator, `attnlib::numbers_of_rows`.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlib import exact
from attnlib._checking import FloatArray
from attnlib.models.attention_call import count_visible
from attnlib.models.torch_internals import constant_in_graphs
from attnlib.policies import POLICIES, Policy
from attnlib.scores import Cosine, DotProduct


def check_range(name: str, largest: float, dtype: torch.dtype) -> None:
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


def numbers_by_query(
    quantity: str,
    scale: Policy | float,
    q: Tensor,
    k: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    cosine: bool,
) -> Tensor | float:
    """Return α or the exact post-scale c of each query, by the number of keys that it sees.

    - `quantity`: "alpha" or "post_scale".
    - `scale`: a policy or, for c, a number α.
    - `q`, `k`: queries (…, L, d) and keys (…, S, d), of which only shapes, dtype and device count.
    - `cosine`: True where the scale σ multiplies cosines: α is then σ, else σ√d.

    Returns a float if all queries see all keys (in a graph and for subclasses of Tensor a tensor of
    shape (1,)); if causal, a tensor (L,); under a mask a tensor of its shape without the last axis.
    Tensors are float32 or wider. Raises ValueError for an α that is too large.
    """
    visible = "causal" if is_causal else "all" if attn_mask is None else "masked"
    token, alpha = (_token(scale), 1.0) if isinstance(scale, Policy) else ("", scale)
    lengths = q.shape[-2], k.shape[-2]
    row = quantity, token, alpha, q.shape[-1], cosine, visible, *lengths, q.dtype
    in_graph = torch.compiler.is_compiling() or type(q) is not Tensor or type(lengths[1]) is not int
    if visible == "all" and not in_graph:
        return float(_compute_numbers(*row)[0])
    numbers: Tensor = (_numbers_of_rows if in_graph else _cached_numbers)(*row, q.device)
    return numbers if attn_mask is None else numbers[count_visible(attn_mask, k.shape[-2])]


_TOKENS = {policy: name for name, policy in POLICIES.items()}
_RULES = dict(POLICIES)


@constant_in_graphs
def _token(policy: Policy) -> str:
    """Return a policy's name in `_RULES`, to which it is added: operators take strings."""
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
    """Return the result of `_compute_numbers` as a tensor on a device, the last argument."""
    *arguments, device = row
    numbers = _compute_numbers(*arguments)
    return torch.tensor(numbers, dtype=_wide_dtype(arguments[-1]), device=device)


@_numbers_of_rows.register_fake
def _(*row: Any) -> Tensor:
    """Return an empty tensor of the shape of the operator's result, for the compiler."""
    *_, visible, queries, keys, dtype, device = row
    size = {"all": 1, "causal": queries, "masked": keys + 1}[visible]
    return torch.empty(size, dtype=_wide_dtype(dtype), device=device)


@lru_cache(maxsize=32)
def _cached_numbers(*row: Any) -> Tensor:
    """Return the operator's result, cached; made outside inference mode, for use anywhere."""
    with torch.inference_mode(False):
        numbers: Tensor = _numbers_of_rows(*row)
    return numbers


def _wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float32, or `dtype` if that is wider."""
    return torch.promote_types(dtype, torch.float32)


@lru_cache(maxsize=32)
def _compute_numbers(
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
    """Return α or c as an array; `policy` is a name in `_RULES`, or "" for the number `alpha`.

    By `visible` it has one number for all queries ("all"), one for each ("causal"), or one for each
    n from 0 to `keys` ("masked").
    """
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
        check_range("policy", float(scale.max(initial=0.0)), dtype)
        return scale
    return exact.post_scale(Cosine(d) if cosine else DotProduct(d), scale, n)
