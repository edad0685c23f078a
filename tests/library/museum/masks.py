"""Keys that are seen and should not be, or the other way round, and scales that reach the mask."""

import math
from functools import partial

import torch

from tests.library.museum.exhibit import (
    MASKS,
    Exhibit,
    attend,
    bias,
    grouped,
    mix,
    places,
    products,
)
from tests.library.museum.multipliers import GITHUB

CAP, WINDOW, GROUP, TILE = 5.0, 4, 4, 32


def scaled(q, k):
    return products(q, k) * q.shape[-1] ** -0.5


def weighted_mask(q, k, v, by, **masks):
    """Attend with the mask multiplied by a number."""
    scores = scaled(q, k)
    return mix(scores + bias(scores, **masks) * by, v)


def scaled_mask(q, k, v, **masks):
    """Scale the sum of scores and mask, as an exponent with the scale inside does."""
    scores = products(q, k)
    return mix((scores + bias(scores, **masks)) * q.shape[-1] ** -0.5, v)


def binary(q, k, v, **masks):
    """Attend in powers of 2, with log₂ e on the scores and none on the mask."""
    scores = scaled(q, k)
    exponents = scores * math.log2(math.e) + bias(scores, **masks)
    weights = torch.exp2(exponents - exponents.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True) @ grouped(v, q.shape[1])


def capped(scores, cap):
    return cap * torch.tanh(scores / cap)


def mask_then_cap(q, k, v, **masks):
    scores = scaled(q, k)
    return mix(capped(scores + bias(scores, **masks), CAP), v)


def cap_then_mask(q, k, v, **masks):
    scores = scaled(q, k)
    return mix(capped(scores, CAP) + bias(scores, **masks), v)


def windowed(q, k, v, seen):
    """Attend to the last keys up to the query's own, as many as `seen`."""
    scores = scaled(q, k)
    place, keys = places(scores)
    hidden = (keys > place) | (keys <= place - seen)
    return mix(scores.masked_fill(hidden, -torch.inf), v)


def causal_by_group(q, k, v, is_causal=False):
    """Hide what comes after the group of queries, not after the query."""
    scores = scaled(q, k)
    place, keys = places(scores)
    first = place[0]
    last = first + (place - first) // GROUP * GROUP + GROUP - 1
    return mix(scores.masked_fill((keys > last) & is_causal, -torch.inf), v)


def causal_from_the_first(q, k, v, is_causal=False):
    """Count the queries from the first key, as if none were cached."""
    scores = scaled(q, k)
    keys = torch.arange(scores.shape[-1])
    later = keys > torch.arange(scores.shape[-2])[:, None]
    return mix(scores.masked_fill(later & is_causal, -torch.inf), v)


def not_causal(q, k, v, is_causal=False):
    return attend(q, k, v)


def without_itself(q, k, v, is_causal=False):
    """Read a cache that has not yet got the query's own key."""
    scores = scaled(q, k)
    place, keys = places(scores)
    cached = scores.shape[-1] > scores.shape[-2]
    later = keys >= place if cached else keys > place
    return mix(scores.masked_fill(later & is_causal, -torch.inf), v)


def tiled(q, k, v, attn_mask=None):
    """Fill the last tile of keys, values and mask with zeros, and count them."""
    missing = -k.shape[-2] % TILE
    scores = scaled(q, k)
    logits = torch.nn.functional.pad(scores + bias(scores, attn_mask), (0, missing))
    values = torch.nn.functional.pad(v, (0, 0, 0, missing))
    return attend(q, k, v) if attn_mask is None else mix(logits, values)


def tiled_heads(q, k, v, **masks):
    """Lay the key heads out in turn, 0 1 0 1, where 0 0 1 1 is meant."""
    repeats = q.shape[1] // k.shape[1]
    return attend(q, k.repeat(1, repeats, 1, 1), v.repeat(1, repeats, 1, 1), **masks)


EXHIBITS = (
    Exhibit(
        name="tt-metal-42891",
        link=GITHUB + "tenstorrent/tt-metal/pull/42891",
        kind="mask scaled",
        what=(
            "The scale was taken into the exponent of the softmax, behind the sum, and so "
            "multiplied the mask as well: a bias lost most of its weight."
        ),
        broken=scaled_mask,
        mended=attend,
        d=64,
        expected=0.125,
        quantity="factor on the mask",
        found=0.125,
        right=1.0,
    ),
    Exhibit(
        name="segment-anything-fast-71",
        link=GITHUB + "meta-pytorch/segment-anything-fast/pull/71",
        kind="mask scaled",
        what=(
            "A kernel in powers of 2 converted the scores and forgot the bias, which counted "
            "ln 2 of what it should."
        ),
        broken=binary,
        mended=attend,
        d=64,
        expected=0.125,
        quantity="factor on the mask",
        found=math.log(2.0),
        right=1.0,
    ),
    Exhibit(
        name="onnx-7865",
        link=GITHUB + "onnx/onnx/issues/7865",
        kind="mask capped",
        what=(
            "The cap came after the mask, which turned −∞ into a finite logit, so that hidden "
            "keys kept some weight. Shown: a cap of 5."
        ),
        broken=mask_then_cap,
        mended=cap_then_mask,
        d=64,
        expected=0.125,
        quantity="logit of a hidden key",
        found=-CAP,
        right=-math.inf,
        meant={"cap": CAP},
        also=(
            GITHUB + "emmtrix/emx-onnx-cgen/pull/731",
            GITHUB + "Dao-AILab/flash-attention/pull/1025",
        ),
    ),
    Exhibit(
        name="transformers-39408",
        link=GITHUB + "huggingface/transformers/issues/39408",
        kind="window",
        what=(
            "The window was handed to a kernel that counts the keys before the query's own, where "
            "the configuration counts that one too: one key too many. Shown: four keys."
        ),
        broken=partial(windowed, seen=WINDOW + 1),
        mended=partial(windowed, seen=WINDOW),
        d=64,
        expected=0.125,
        quantity="keys seen",
        found=WINDOW + 1,
        right=WINDOW,
        meant={"window": WINDOW, "causal": True},
        takes=(),
        also=(
            GITHUB + "NVIDIA-NeMo/Megatron-Bridge/pull/2656",
            GITHUB + "zml/zml/pull/763",
        ),
    ),
    Exhibit(
        name="pytorch-195910",
        link=GITHUB + "pytorch/pytorch/issues/195910",
        kind="future seen",
        what=(
            "A kernel applied the causal mask once for four queries, so that three of them saw "
            "up to three keys of their future. Shown: what the first query of four sees."
        ),
        broken=causal_by_group,
        mended=attend,
        d=64,
        expected=0.125,
        quantity="keys seen by the first query",
        found=GROUP,
        right=1,
        takes=("is_causal",),
    ),
    Exhibit(
        name="keras-23038",
        link=GITHUB + "keras-team/keras/issues/23038",
        kind="mask missing",
        what=(
            "The causal mask was left to the fused kernel, and where that one was not used, with "
            "dropout or when the weights were asked for, nobody applied it."
        ),
        broken=not_causal,
        mended=attend,
        d=64,
        expected=0.125,
        quantity="keys seen by the first query",
        found=64,
        right=1,
        takes=("is_causal",),
        also=(GITHUB + "facebookresearch/xformers/issues/103",),
    ),
    Exhibit(
        name="executorch-21749",
        link=GITHUB + "pytorch/executorch/pull/21749",
        kind="cache missed",
        what=(
            "The causal mask counted the queries from the first key, though keys were cached "
            "before them: the first query of a second chunk saw one key instead of its history. "
            "Shown: eight queries with 64 keys."
        ),
        broken=causal_from_the_first,
        mended=attend,
        d=64,
        expected=0.125,
        quantity="keys seen by the first query of eight",
        found=1,
        right=57,
        takes=("is_causal",),
        also=(
            GITHUB + "onnx/onnx/pull/8068",
            GITHUB + "gittensor-ai-lab/sparkinfer/issues/3",
        ),
    ),
    Exhibit(
        name="cs249r-book-1953",
        link=GITHUB + "harvard-edge/cs249r_book/pull/1953",
        kind="mask off by one",
        what=(
            "With a cache, the keys were read before the query's own was made visible, so that a "
            "new token never saw itself. Shown: eight queries with 64 keys."
        ),
        broken=without_itself,
        mended=attend,
        d=64,
        expected=0.125,
        quantity="keys seen by the first query of eight",
        found=56,
        right=57,
        takes=("is_causal",),
    ),
    Exhibit(
        name="tt-metal-54833",
        link=GITHUB + "tenstorrent/tt-metal/issues/54833",
        kind="padding counted",
        what=(
            "With a mask, the keys are filled up with zeros to a multiple of 32, and the mask "
            "with zeros too, which means seen: the sum of the softmax has keys that are not "
            "there. Shown: 40 keys."
        ),
        broken=tiled,
        mended=attend,
        d=64,
        n=40,
        expected=0.125,
        quantity="keys counted",
        found=64,
        right=40,
        takes=MASKS[:1],
    ),
    Exhibit(
        name="jax-js-180",
        link=GITHUB + "ekzhang/jax-js/pull/180",
        kind="grouping",
        what=(
            "Query heads that share a key head are neighbours; the heads were dealt out in turn. "
            "Shown: four query heads and two key heads, and what the second query head reads."
        ),
        broken=tiled_heads,
        mended=attend,
        d=64,
        heads=4,
        key_heads=2,
        expected=0.125,
        quantity="key head of the second query head",
        found=1,
        right=0,
        also=(
            GITHUB + "onnx/onnx/pull/7274",
            GITHUB + "apple/axlearn/pull/842",
        ),
    ),
)
