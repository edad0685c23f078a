"""Attention without a fault, written out, and the parts of which the bugs are made.

q: (batch, heads, n, d), k: (batch, key heads, m, d), v: (batch, key heads, m, size).
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

Attend = Callable[..., Tensor]
Law = Callable[[int, int, ArrayLike], NDArray[np.float64]]
"""A scale as a function of the number of keys, of d and of the query's position."""
Hidden = Callable[[Tensor, Tensor], Tensor]
"""From the positions of queries, a column, and of keys, a row, to True where a key is hidden."""


def comes_later(place: Tensor, keys: Tensor) -> Tensor:
    """Return whether each key comes after the query, (queries, keys)."""
    return keys > place


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    scale: float | Tensor | Law | None = None,
    cosine: bool = False,
    cap: float | None = None,
    sink: float | None = None,
    values: float = 1.0,
    logits: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    hidden: Hidden = comes_later,
) -> Tensor:
    """Return softmax(cap(scale · q·k) + mask) · values · v; the scale is by default 1/√d.

    `scale` may be a tensor, (queries, 1), or a law. A boolean mask is True where a key is seen,
    another is added; `is_causal` counts from the last key. `sink` is one more logit, whose value is
    0. Faults replace the function that makes `logits` from q, k and the masks, or that says which
    keys are `hidden` by a causal mask.
    """
    if cosine:
        q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
    scores = products(q, k)
    masking = mask_bias(scores, attn_mask, is_causal, hidden)
    if logits is not None:
        return mix_values(logits(q, k, masking), v)
    if callable(scale):
        place, keys = places(scores)
        law = scale(len(keys), q.shape[-1], place.numpy())
        scale = torch.from_numpy(law).to(q.dtype)
    scores = scores * (1.0 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = scores + masking
    if sink is not None:
        scores = torch.cat([scores, torch.full_like(scores[..., :1], sink)], -1)
        v = functional.pad(v, (0, 0, 0, 1))
    return mix_values(scores, values * v)


def products(q: Tensor, k: Tensor) -> Tensor:
    """Return q·k, (batch, heads, n, m)."""
    return q @ repeat_heads(k, q.shape[1]).mT


def scaled_products(q: Tensor, k: Tensor) -> Tensor:
    """Return q·k/√d, (batch, heads, n, m)."""
    return products(q, k) / math.sqrt(q.shape[-1])


def mix_values(logits: Tensor, v: Tensor) -> Tensor:
    """Return softmax(logits) v."""
    return torch.softmax(logits, -1) @ repeat_heads(v, logits.shape[1])


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat each key head for the adjacent query heads that read it."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def mask_bias(
    scores: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    hidden: Hidden = comes_later,
) -> Tensor:
    """Return the numbers that the masks add to the scores: −∞ where a key is hidden."""
    masking = torch.zeros_like(scores)
    if attn_mask is not None:
        is_boolean = attn_mask.dtype == torch.bool
        masking = masking.masked_fill(~attn_mask, -torch.inf) if is_boolean else masking + attn_mask
    return masking.masked_fill(hidden(*places(scores)), -torch.inf) if is_causal else masking


def places(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the queries' positions among the keys, (n, 1), and the keys', (m,)."""
    n, m = scores.shape[-2:]
    return torch.arange(m - n, m)[:, None], torch.arange(m)
