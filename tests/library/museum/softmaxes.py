"""What happens around the softmax: caps, sinks, norms, values, dropout, and the precision."""

import math
from functools import partial

import torch

from tests.library.museum.exhibit import Exhibit, attend, bias, grouped, mix, products, unit
from tests.library.museum.masks import capped, scaled
from tests.library.museum.multipliers import GITHUB

CAP, SINK, VALUE_SCALE, DROPOUT, TEMPERATURE = 50.0, 1.0, 0.707, 0.1, 10.0


def gemma_2(q, k, v, **masks):
    scores = scaled(q, k)
    return mix(capped(scores, CAP) + bias(scores, **masks), v)


def with_sink(q, k, v, **masks):
    """Give each query one more logit, the sink's, which has no value."""
    scores = scaled(q, k)
    logits = scores + bias(scores, **masks)
    sink = torch.full_like(logits[..., :1], SINK)
    weights = torch.softmax(torch.cat([logits, sink], -1), -1)[..., :-1]
    return weights @ grouped(v, q.shape[1])


def scaled_values(q, k, v, **masks):
    return attend(q, k, v * VALUE_SCALE, **masks)


def cosines(q, k, v, **masks):
    return attend(unit(q), unit(k), v, scale=TEMPERATURE, **masks)


def norms_of_the_query_alone(q, k, v, **masks):
    """Divide the scores of query i by its norm and by that of key i, for every key."""
    scores = products(q, k)
    own = torch.arange(q.shape[-2]).clamp(max=k.shape[-2] - 1)
    norms = q.norm(dim=-1) * grouped(k, q.shape[1]).norm(dim=-1)[..., own]
    return mix(TEMPERATURE * scores / norms[..., None] + bias(scores, **masks), v)


def always_dropping(q, k, v, **masks):
    scores = scaled(q, k)
    weights = torch.softmax(scores + bias(scores, **masks), -1)
    return torch.dropout(weights, DROPOUT, train=True) @ grouped(v, q.shape[1])


def rounded(q, k, v, dtype, **masks):
    """Multiply q and k in a smaller type, and scale what comes out."""
    scores = products(q.to(dtype), k.to(dtype)).to(q.dtype) * q.shape[-1] ** -0.5
    return mix(scores + bias(scores, **masks), v)


EXHIBITS = (
    Exhibit(
        name="vllm-metal-665",
        link=GITHUB + "vllm-project/vllm-metal/issues/665",
        kind="cap",
        what=(
            "The kernel could cap the scores, as Gemma 2 wants at 50, and was called with 0, "
            "which means no cap."
        ),
        broken=attend,
        mended=gemma_2,
        d=256,
        expected=1 / 16,
        quantity="cap",
        found=math.inf,
        right=CAP,
        meant={"cap": CAP},
        also=(
            GITHUB + "vllm-project/vllm-metal/pull/666",
            GITHUB + "kekzl/imp/pull/688",
            GITHUB + "sgl-project/sgl-kernel-xpu/pull/491",
        ),
    ),
    Exhibit(
        name="vllm-52156",
        link=GITHUB + "vllm-project/vllm/pull/52156",
        kind="sink dropped",
        what=(
            "Models with a learned sink hand it to the attention, and one backend dropped it: "
            "every softmax was wrong, and the answer to a plain prompt empty. Shown: a sink of 1."
        ),
        broken=attend,
        mended=with_sink,
        d=64,
        expected=0.125,
        quantity="logit of the sink",
        found=-math.inf,
        right=SINK,
        meant={"sink": SINK},
    ),
    Exhibit(
        name="megatron-bridge-4155",
        link=GITHUB + "NVIDIA-NeMo/Megatron-Bridge/pull/4155",
        kind="value factor",
        what=(
            "MiMo V2 multiplies its values by 0.707. The number was read and never used, so that "
            "the attention of every layer was 1.41 times too large."
        ),
        broken=attend,
        mended=scaled_values,
        d=192,
        expected=192**-0.5,
        quantity="factor on the values",
        found=1.0,
        right=VALUE_SCALE,
        meant={"value factor": VALUE_SCALE},
    ),
    Exhibit(
        name="swin-v2-1",
        link=GITHUB + "ChristophReich1996/Swin-Transformer-V2/issues/1",
        kind="cosine",
        what=(
            "The cosine divided each query's scores by the norm of the key at its own place, not "
            "of the key they belong to, so that long keys kept their advantage. Shown: a scale "
            "of 10."
        ),
        broken=norms_of_the_query_alone,
        mended=cosines,
        d=64,
        expected=TEMPERATURE,
        quantity="power of the key's norm in the logit",
        found=1.0,
        right=0.0,
        applied_to="cosine",
    ),
    Exhibit(
        name="timm-1978",
        link=GITHUB + "huggingface/pytorch-image-models/pull/1978",
        kind="dropout",
        what=(
            "The fused attention drops weights whenever it is given a rate, in evaluation too; "
            "it was always given one. Shown: 0.1."
        ),
        broken=always_dropping,
        mended=attend,
        d=64,
        expected=0.125,
        quantity="rate of dropout",
        found=DROPOUT,
        right=0.0,
        also=(
            GITHUB + "pytorch/pytorch/issues/124464",
            GITHUB + "suno-ai/bark/pull/662",
        ),
    ),
    Exhibit(
        name="metal-flash-attention-8",
        link=GITHUB + "philipturner/metal-flash-attention/issues/8",
        kind="precision",
        what=(
            "q·k was kept in half precision and scaled afterwards: where it exceeds 65504 the "
            "output is not a number, though the logit is within reach."
        ),
        broken=partial(rounded, dtype=torch.float16),
        mended=attend,
        d=64,
        expected=0.125,
        quantity="largest q·k",
        found=65504.0,
        right=math.inf,
        also=(GITHUB + "ultralytics/ultralytics/pull/24990",),
    ),
    Exhibit(
        name="transformers-33317",
        link=GITHUB + "huggingface/transformers/pull/33317",
        kind="precision",
        what=(
            "Qwen 2 multiplied q and k in the model's own type. In bfloat16, which keeps eight "
            "bits, the perplexity rose from 7.13 to 8.00; in float16 it was not a number."
        ),
        broken=partial(rounded, dtype=torch.bfloat16),
        mended=attend,
        d=64,
        expected=0.125,
        quantity="largest relative error of q·k by rounding",
        found=2.0**-8,
        right=0.0,
    ),
)
