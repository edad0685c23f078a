"""Attention as it was broken, rebuilt from what the threads say. Nothing of theirs is copied."""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from experiments.museum.attention import attend, bias, grouped, mix, places, products, scaled

TRAIN_LENGTH = 16
"""The length from which laws act here, in place of thousands of tokens."""
BLOCK, GROUP, TILE = 8, 4, 32
CAP, SINK, VALUE_SCALE, DROPOUT, TEMPERATURE = 50.0, 1.0, 0.707, 0.1, 10.0
LOW_CAP = 5.0


def yarn(factor: float, mscale: float = 1.0) -> float:
    """Return YaRN's magnitude, 0.1·mscale·ln(factor) + 1."""
    return 0.1 * mscale * math.log(factor) + 1.0


def qwen(n: int, d: int, position: ArrayLike) -> NDArray[np.float64]:
    """Return the law of the first Qwen models."""
    growth = np.log(np.asarray(position) + 1.0) / np.log(TRAIN_LENGTH)
    return np.asarray(np.maximum(1.0, growth) / np.sqrt(d))


def llama_4(n: int, d: int, position: ArrayLike) -> NDArray[np.float64]:
    """Return Llama 4's law."""
    whole = np.asarray(position) // TRAIN_LENGTH
    return np.asarray((1.0 + 0.1 * np.log(1.0 + whole)) / np.sqrt(d))


# --- the multiplier, at a place -------------------------------------------------------------------


def growing(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Attend block after block of keys, in powers of 2, converting the scale in each again."""
    scores = products(q, k)
    scale, parts = q.shape[-1] ** -0.5, []
    for block in torch.split(scores, BLOCK, dim=-1):
        scale *= math.log2(math.e)
        parts.append(block * scale)
    logits = torch.cat(parts, -1) / math.log2(math.e)
    return mix(logits + bias(scores, attn_mask, is_causal), v)


def chunked(q: Tensor, k: Tensor, v: Tensor, *, scale: float, exported: float) -> Tensor:
    """Attend to chunks of keys and merge them by their largest logits and their sums."""
    parts = []
    for keys, values in zip(torch.split(k, BLOCK, -2), torch.split(v, BLOCK, -2), strict=True):
        scores = products(q, keys)
        largest = scores.amax(-1, keepdim=True)
        weights = torch.exp(scale * (scores - largest))
        parts.append(
            (largest, weights.sum(-1, keepdim=True), weights @ grouped(values, q.shape[1]))
        )
    maxima, sums, outputs = map(torch.stack, zip(*parts, strict=True))
    shares = torch.softmax(maxima * exported, dim=0)
    return (shares * outputs).sum(0) / (shares * sums).sum(0)


def half_magnified(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Attend where the second half of the dimension, which is rotated, is too large."""
    gain = torch.ones(q.shape[-1], dtype=q.dtype)
    gain[q.shape[-1] // 2 :] = yarn(16)
    return attend(q * gain, k * gain, v, attn_mask, is_causal)


def norms_of_the_query_alone(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Divide the scores of query i by its norm and by that of key i, for every key."""
    scores = products(q, k)
    own = torch.arange(q.shape[-2]).clamp(max=k.shape[-2] - 1)
    norms = q.norm(dim=-1) * grouped(k, q.shape[1]).norm(dim=-1)[..., own]
    logits = TEMPERATURE * scores / norms[..., None]
    return mix(logits + bias(scores, attn_mask, is_causal), v)


# --- masks ----------------------------------------------------------------------------------------


def scaled_mask(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Scale the sum of scores and mask, as an exponent with the scale inside does."""
    scores = products(q, k)
    return mix((scores + bias(scores, attn_mask, is_causal)) * q.shape[-1] ** -0.5, v)


def binary(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Attend in powers of 2, with log₂ e on the scores and none on the mask."""
    scores = scaled(q, k)
    exponents = scores * math.log2(math.e) + bias(scores, attn_mask, is_causal)
    weights = torch.exp2(exponents - exponents.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True) @ grouped(v, q.shape[1])


def mask_then_cap(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Cap the sum of scores and mask."""
    scores = scaled(q, k)
    return mix(LOW_CAP * torch.tanh((scores + bias(scores, attn_mask, is_causal)) / LOW_CAP), v)


def windowed(q: Tensor, k: Tensor, v: Tensor, *, seen: int) -> Tensor:
    """Attend to the last keys up to the query's own, as many as `seen`."""
    scores = scaled(q, k)
    place, keys = places(scores)
    hidden = (keys > place) | (keys <= place - seen)
    return mix(scores.masked_fill(hidden, -torch.inf), v)


def causal_by_group(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Hide what comes after the group of queries, not after the query."""
    scores = scaled(q, k)
    place, keys = places(scores)
    last = place[0] + (place - place[0]) // GROUP * GROUP + GROUP - 1
    return mix(scores.masked_fill((keys > last) & is_causal, -torch.inf), v)


def causal_from_the_first(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Count the queries from the first key, as if none were cached."""
    scores = scaled(q, k)
    place, keys = places(scores)
    return mix(scores.masked_fill((keys > place - place[0]) & is_causal, -torch.inf), v)


def not_causal(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Attend to all keys."""
    return attend(q, k, v)


def without_itself(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """Read a cache that has not yet got the query's own key."""
    scores = scaled(q, k)
    place, keys = places(scores)
    cached = scores.shape[-1] > scores.shape[-2]
    later = keys >= place if cached else keys > place
    return mix(scores.masked_fill(later & is_causal, -torch.inf), v)


def tiled(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Fill the last tile of keys, values and mask with zeros, and count them."""
    if attn_mask is None:
        return attend(q, k, v)
    missing = -k.shape[-2] % TILE
    scores = scaled(q, k)
    logits = functional.pad(scores + bias(scores, attn_mask), (0, missing))
    return mix(logits, functional.pad(v, (0, 0, 0, missing)))


# --- heads, dropout and precision -----------------------------------------------------------------


def tiled_heads(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Lay the key heads out in turn, 0 1 0 1, where 0 0 1 1 is meant."""
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat(1, repeats, 1, 1) for x in (k, v))
    return attend(q, k, v, attn_mask, is_causal)


def always_dropping(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Drop weights at random, in use too."""
    scores = scaled(q, k)
    weights = torch.softmax(scores + bias(scores, attn_mask, is_causal), -1)
    return torch.dropout(weights, DROPOUT, train=True) @ grouped(v, q.shape[1])


def rounded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    dtype: torch.dtype,
) -> Tensor:
    """Multiply q and k in a smaller type, and scale what comes out."""
    scores = products(q.to(dtype), k.to(dtype)).to(q.dtype) * q.shape[-1] ** -0.5
    return mix(scores + bias(scores, attn_mask, is_causal), v)
