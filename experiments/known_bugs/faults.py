"""Attention as it was broken, rebuilt from the descriptions in the threads. No code is copied."""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from experiments.known_bugs.attention import (
    attend,
    mask_bias,
    mix_values,
    products,
    repeat_heads,
    scaled_products,
)

TRAIN_LENGTH = 16
"""The length from which laws act here, in place of thousands of tokens."""
BLOCK, GROUP, TILE = 8, 4, 32
CAP, SINK, VALUE_SCALE, DROPOUT, TEMPERATURE = 50.0, 1.0, 0.707, 0.1, 10.0
LOW_CAP = 5.0


def yarn(factor: float, mscale: float = 1.0) -> float:
    """Return YaRN's magnitude, 0.1·mscale·ln(factor) + 1."""
    return 0.1 * mscale * math.log(factor) + 1.0


def qwen_law(n: int, d: int, position: ArrayLike) -> NDArray[np.float64]:
    """Return the scale of the first Qwen models at each position."""
    growth = np.log(np.asarray(position) + 1.0) / np.log(TRAIN_LENGTH)
    return np.asarray(np.maximum(1.0, growth) / np.sqrt(d))


def llama_4_law(n: int, d: int, position: ArrayLike) -> NDArray[np.float64]:
    """Return Llama 4's scale at each position."""
    whole = np.asarray(position) // TRAIN_LENGTH
    return np.asarray((1.0 + 0.1 * np.log(1.0 + whole)) / np.sqrt(d))


# --- logits: from q, k and what the masks add -----------------------------------------------------


def growing_scale(q: Tensor, k: Tensor, masking: Tensor) -> Tensor:
    """Scale block after block of keys, each time by a scale converted to powers of 2 once more."""
    scale, parts = q.shape[-1] ** -0.5, []
    for block in torch.split(products(q, k), BLOCK, dim=-1):
        scale *= math.log2(math.e)
        parts.append(block * scale)
    return torch.cat(parts, -1) / math.log2(math.e) + masking


def half_magnified(q: Tensor, k: Tensor, masking: Tensor) -> Tensor:
    """Magnify the second half of the dimension, which is rotated."""
    gain = torch.ones(q.shape[-1], dtype=q.dtype)
    gain[q.shape[-1] // 2 :] = yarn(16)
    return scaled_products(q * gain, k * gain) + masking


def norms_by_query(q: Tensor, k: Tensor, masking: Tensor) -> Tensor:
    """Divide the scores of query i by its norm and by that of key i, for every key."""
    same_key = torch.arange(q.shape[-2]).clamp(max=k.shape[-2] - 1)
    norms: Tensor = q.norm(dim=-1) * repeat_heads(k, q.shape[1]).norm(dim=-1)[..., same_key]
    return TEMPERATURE * products(q, k) / norms[..., None] + masking


def scaled_mask(q: Tensor, k: Tensor, masking: Tensor) -> Tensor:
    """Scale the sum of scores and mask, as an exponent with the scale inside does."""
    return (products(q, k) + masking) / math.sqrt(q.shape[-1])


def binary_softmax(q: Tensor, k: Tensor, masking: Tensor) -> Tensor:
    """Take powers of 2, with log₂ e on the scores and none on the mask."""
    return (scaled_products(q, k) * math.log2(math.e) + masking) * math.log(2.0)


def mask_then_cap(q: Tensor, k: Tensor, masking: Tensor) -> Tensor:
    """Cap the sum of scores and mask."""
    return LOW_CAP * torch.tanh((scaled_products(q, k) + masking) / LOW_CAP)


def rounded_products(q: Tensor, k: Tensor, masking: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Multiply q and k in a smaller type, and scale the product afterwards."""
    return products(q.to(dtype), k.to(dtype)).to(q.dtype) / math.sqrt(q.shape[-1]) + masking


# --- which keys a causal mask hides, from the places of queries and keys --------------------------


def after_group(place: Tensor, keys: Tensor) -> Tensor:
    """Hide the keys after the group of queries, not after the query."""
    return keys > place[0] + (place - place[0]) // GROUP * GROUP + GROUP - 1


def counted_from_first(place: Tensor, keys: Tensor) -> Tensor:
    """Count the queries from the first key, as if none were cached."""
    return keys > place - place[0]


def hide_nothing(place: Tensor, keys: Tensor) -> Tensor:
    """Hide no key."""
    return keys < 0


def hide_own_key(place: Tensor, keys: Tensor) -> Tensor:
    """Read a cache without the query's own key, which is not written yet."""
    return keys >= place if keys.numel() > place.numel() else keys > place


def windowed(q: Tensor, k: Tensor, v: Tensor, *, seen: int) -> Tensor:
    """Attend to the last `seen` keys up to the query's own."""

    def hidden(place: Tensor, keys: Tensor) -> Tensor:
        return (keys > place) | (keys <= place - seen)

    return attend(q, k, v, is_causal=True, hidden=hidden)


# --- chunks, tiles, heads and dropout -------------------------------------------------------------


def chunked(q: Tensor, k: Tensor, v: Tensor, *, scale: float, exported: float) -> Tensor:
    """Attend to chunks of keys and merge them by their largest logits and their sums."""
    parts = []
    for keys, values in zip(torch.split(k, BLOCK, -2), torch.split(v, BLOCK, -2), strict=True):
        scores = products(q, keys)
        largest = scores.amax(-1, keepdim=True)
        weights = torch.exp(scale * (scores - largest))
        output = weights @ repeat_heads(values, q.shape[1])
        parts.append((largest, weights.sum(-1, keepdim=True), output))
    maxima, sums, outputs = map(torch.stack, zip(*parts, strict=True))
    shares = torch.softmax(maxima * exported, dim=0)
    return (shares * outputs).sum(0) / (shares * sums).sum(0)


def padded_tile(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Fill the last tile of keys, values and mask with zeros, and count them."""
    if attn_mask is None:
        return attend(q, k, v)
    missing = -k.shape[-2] % TILE
    scores = scaled_products(q, k)
    logits = functional.pad(scores + mask_bias(scores, attn_mask), (0, missing))
    return mix_values(logits, functional.pad(v, (0, 0, 0, missing)))


def interleaved_heads(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Lay the key heads out as 0 1 0 1, where 0 0 1 1 is meant."""
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat(1, repeats, 1, 1) for x in (k, v))
    return attend(q, k, v, attn_mask, is_causal)


def dropout_in_use(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Drop weights at random not only in training."""
    scores = scaled_products(q, k)
    weights = torch.softmax(scores + mask_bias(scores, attn_mask, is_causal), -1)
    return torch.dropout(weights, DROPOUT, train=True) @ repeat_heads(v, q.shape[1])


# --- gradients: kernels rebuild the weights of the forward pass, here wrongly ---------------------


def rebuild_backward(output: Tensor, weights: Tensor, logits: Tensor, v: Tensor) -> Tensor:
    """Return the output, with the gradients of a kernel that rebuilt these weights.

    The gradients are pᵀ·do by the values and p·(do·v − do·o) by the logits, with the output o.
    """
    p, v = weights.detach(), repeat_heads(v, weights.shape[1])
    by_values = p @ v
    by_logits = (p * logits) @ v.detach() - (p * logits).sum(-1, keepdim=True) * output.detach()
    through = by_values + by_logits
    return output.detach() + through - through.detach()


def padded_backward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Rebuild the weights at a head size padded to a multiple of 16, from the right log Z."""
    padded = -(-q.shape[-1] // 16) * 16
    logits = products(q, k) / math.sqrt(padded)
    log_z = torch.logsumexp(scaled_products(q, k), -1, keepdim=True)
    return rebuild_backward(attend(q, k, v), torch.exp(logits - log_z), logits, v)


def backward_without_sink(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Rebuild the weights from the sum over the keys alone, without the sink."""
    logits = scaled_products(q, k)
    return rebuild_backward(attend(q, k, v, sink=SINK), torch.softmax(logits, -1), logits, v)
