"""Multipliers that depend on a place: on the query's, the key's, a chunk's, or on a dimension."""

import math
from functools import partial

import numpy as np
import torch

from tests.library.museum.exhibit import Exhibit, attend, bias, grouped, mix, places, products
from tests.library.museum.multipliers import GITHUB, yarn

TRAIN_LENGTH = 16
"""The length from which laws act here, in place of thousands of tokens."""
BLOCK = 8
LOG2E = math.log2(math.e)
DEEPSEEK = yarn(40) ** 2
ROTATED = yarn(16)


def qwen(n, d, position):
    return np.maximum(1.0, np.log(np.asarray(position) + 1.0) / np.log(TRAIN_LENGTH)) / np.sqrt(d)


def llama_4(n, d, position):
    return (1.0 + 0.1 * np.log(1.0 + np.asarray(position) // TRAIN_LENGTH)) / np.sqrt(d)


def lawful(q, k, v, law, **masks):
    """Attend with a scale for each query, a law of its position."""
    place, keys = places(products(q, k))
    scale = torch.from_numpy(law(len(keys), q.shape[-1], place.numpy())).to(q.dtype)
    return attend(q, k, v, scale=scale, **masks)


def growing(q, k, v, **masks):
    """Attend block after block of keys, in powers of 2, converting the scale in each again."""
    scores = products(q, k)
    scale, parts = q.shape[-1] ** -0.5, []
    for block in scores.split(BLOCK, dim=-1):
        scale *= LOG2E
        parts.append(block * scale)
    return mix(torch.cat(parts, -1) / LOG2E + bias(scores, **masks), v)


def chunked(q, k, v, scale, exported=None):
    """Attend to chunks of keys and merge them by their largest logits and their sums."""
    parts = []
    for keys, values in zip(k.split(BLOCK, -2), v.split(BLOCK, -2), strict=True):
        scores = products(q, keys)
        largest = scores.amax(-1, keepdim=True)
        weights = torch.exp(scale * (scores - largest))
        parts.append(
            (largest, weights.sum(-1, keepdim=True), weights @ grouped(values, q.shape[1]))
        )
    maxima, sums, outputs = map(torch.stack, zip(*parts, strict=True))
    shares = torch.softmax(maxima * (scale if exported is None else exported), dim=0)
    return (shares * outputs).sum(0) / (shares * sums).sum(0)


def half_magnified(q, k, v, **masks):
    """Attend where the second half of the dimension, which is rotated, is too large."""
    gain = torch.ones(q.shape[-1], dtype=q.dtype)
    gain[q.shape[-1] // 2 :] = ROTATED
    return attend(q * gain, k * gain, v, **masks)


EXHIBITS = (
    Exhibit(
        name="vllm-44136",
        link=GITHUB + "vllm-project/vllm/pull/44136",
        kind="law in n",
        what=(
            "The first Qwen models multiply a query past the training length by the logarithm of "
            "its position over that of the length. It was skipped without a warning, and long "
            "inputs got worse answers. Shown: a training length of 16."
        ),
        broken=attend,
        mended=partial(lawful, law=qwen),
        d=64,
        expected=qwen,
        found=0.125,
    ),
    Exhibit(
        name="vllm-48621",
        link=GITHUB + "vllm-project/vllm/issues/48621",
        kind="law in n",
        what=(
            "Ministral 3 has Llama 4's temperature, 1 + β ln(1 + ⌊position/length⌋), in a place "
            "of its configuration that was not read, so that the scale stayed the same at every "
            "position. Shown: β = 0.1 and a length of 16."
        ),
        broken=attend,
        mended=partial(lawful, law=llama_4),
        d=128,
        expected=llama_4,
        found=128**-0.5,
    ),
    Exhibit(
        name="flaggems-424",
        link=GITHUB + "flagos-ai/FlagGems/pull/424",
        kind="law in key",
        what=(
            "A kernel works in powers of 2 and multiplied its scale by log₂ e once for each block "
            "of keys: right in the first, 1.44 times too large in the second, and so on. Shown: "
            "blocks of eight keys, and the number of the second."
        ),
        broken=growing,
        mended=attend,
        d=64,
        expected=0.125,
        found=0.125 * LOG2E,
    ),
    Exhibit(
        name="tensorrt-llm-19112",
        link=GITHUB + "NVIDIA/TensorRT-LLM/pull/19112",
        kind="chunks",
        what=(
            "Chunks of keys are merged by their largest logits, which were handed on at 1/√d "
            "where the softmax had DeepSeek V3's 1.87 times that: right within a chunk, wrong "
            "between chunks. Shown: chunks of eight keys."
        ),
        broken=partial(chunked, scale=DEEPSEEK * 192**-0.5, exported=192**-0.5),
        mended=partial(chunked, scale=DEEPSEEK * 192**-0.5),
        d=192,
        expected=DEEPSEEK * 192**-0.5,
        quantity="multiplier of a chunk's largest q·k",
        found=192**-0.5,
        takes=(),
    ),
    Exhibit(
        name="atlas-342",
        link=GITHUB + "Avarok-Cybersecurity/atlas/pull/342",
        kind="part of the dimension",
        what=(
            "DeepSeek V4 turns part of q and k without YaRN's magnitude; with it, the logits of "
            "that part were 1.63 times too large and the rest right. Shown: the second half of "
            "the dimension is turned."
        ),
        broken=half_magnified,
        mended=attend,
        d=128,
        expected=128**-0.5,
        quantity="multiplier in the second half of the dimension",
        found=ROTATED**2 * 128**-0.5,
    ),
)
