"""One wrong number before q·k: a configured scale ignored, a wrong dimension, a scale twice."""

import math
from functools import partial

from tests.library.museum.exhibit import Exhibit, attend, unit

GITHUB = "https://github.com/"


def yarn(factor, mscale=1.0):
    """Return YaRN's magnitude, 0.1·mscale·ln(factor) + 1."""
    return 0.1 * mscale * math.log(factor) + 1.0


MINISTRAL = yarn(16)
DEEPSEEK_LITE = yarn(40, 0.707) ** 2
GAIN_Q, GAIN_K = 1.5, 1.2


def twice(q, k, v, **masks):
    """Scale the queries, then call what scales by default."""
    return attend(q * q.shape[-1] ** -0.5, k, v, **masks)


def cosine(q, k, v, scale, **masks):
    return attend(unit(q), unit(k), v, scale=scale, **masks)


def inverted_cosine(q, k, v, **masks):
    """Prepare the queries for a default scale by its ratio to the wanted one, upside down."""
    default = q.shape[-1] ** -0.5
    return attend(unit(q) * (default / 10.0), unit(k), v, **masks)


def magnified(q, k, v, by, **masks):
    """Attend with q and k as a rotation leaves them whose cosines and sines are too large."""
    return attend(q * by, k * by, v, **masks)


def by_heads(q, k, v, **masks):
    return attend(q, k, v, scale=q.shape[1] ** -0.5, **masks)


def by_width(q, k, v, **masks):
    return attend(q, k, v, scale=(q.shape[1] * q.shape[-1]) ** -0.5, **masks)


EXHIBITS = (
    Exhibit(
        name="transformers-44380",
        link=GITHUB + "huggingface/transformers/issues/44380",
        kind="multiplier",
        what=(
            "GPT-2's options to divide the scores by the number of the layer, or not to scale "
            "them, reached only the eager attention; the fused ones used 1/√d in every layer. "
            "Shown: the sixth layer."
        ),
        broken=attend,
        mended=partial(attend, scale=0.125 / 6),
        d=64,
        expected=0.125 / 6,
        found=0.125,
        also=(GITHUB + "huggingface/transformers/pull/44397",),
    ),
    Exhibit(
        name="vllm-36637",
        link=GITHUB + "vllm-project/vllm/pull/36637",
        kind="multiplier",
        what=(
            "GPTBigCode wrote 1/√d into the code, so that models configured to leave their "
            "scores unscaled got other logits than in Transformers."
        ),
        broken=attend,
        mended=partial(attend, scale=1.0),
        d=64,
        expected=1.0,
        found=0.125,
    ),
    Exhibit(
        name="vllm-48623",
        link=GITHUB + "vllm-project/vllm/pull/48623",
        kind="multiplier",
        what=(
            "YaRN's magnitude for Ministral 3 (factor 16) left out that mscale and "
            "mscale_all_dim are both 1 and cancel. It enters through the cosines and sines that "
            "turn q and k, so the logits grow by its square, 1.63."
        ),
        broken=partial(magnified, by=MINISTRAL),
        mended=attend,
        d=128,
        expected=128**-0.5,
        found=MINISTRAL**2 * 128**-0.5,
        also=(
            GITHUB + "vllm-project/vllm/issues/48621",
            GITHUB + "vllm-project/vllm/pull/46280",
        ),
    ),
    Exhibit(
        name="exllamav3-259",
        link=GITHUB + "turboderp-org/exllamav3/issues/259",
        kind="multiplier",
        what=(
            "The same pair of ones read as a ratio, where the report says that the model needs "
            "YaRN's magnitude: fluent text that did not follow the prompt. Which reading is meant "
            "is the checkpoint's to say. The factor is not in the report; shown: 16."
        ),
        broken=attend,
        mended=partial(magnified, by=yarn(16)),
        d=128,
        expected=yarn(16) ** 2 * 128**-0.5,
        found=128**-0.5,
    ),
    Exhibit(
        name="mobius-548",
        link=GITHUB + "onnxruntime/mobius/pull/548",
        kind="multiplier",
        what=(
            "DeepSeek V2 Lite corrects its softmax by mscale² = 1.59 besides the rotation, where "
            "the magnitudes cancel. The correction was missing; with one key it could not be seen."
        ),
        broken=attend,
        mended=partial(attend, scale=DEEPSEEK_LITE * 192**-0.5),
        d=192,
        expected=DEEPSEEK_LITE * 192**-0.5,
        found=192**-0.5,
        also=(GITHUB + "huggingface/transformers/pull/47435",),
    ),
    Exhibit(
        name="x-transformers-190",
        link=GITHUB + "lucidrains/x-transformers/issues/190",
        kind="multiplier",
        what=(
            "With normalised q and k the plain path multiplied the cosine by 10. The fused one "
            "divided the queries by 10√d where it should have multiplied, then scaled by 1/√d: "
            "nearly uniform attention."
        ),
        broken=inverted_cosine,
        mended=partial(cosine, scale=10.0),
        d=64,
        expected=10.0,
        found=1 / 640,
        applied_to="cosine",
    ),
    Exhibit(
        name="x-transformers-352",
        link=GITHUB + "lucidrains/x-transformers/issues/352",
        kind="multiplier",
        what=(
            "Learned gains of the normalised q and k were made, and trained for nothing: the "
            "forward pass never applied them. Shown: gains 1.5 and 1.2 in every dimension."
        ),
        broken=partial(cosine, scale=10.0),
        mended=partial(cosine, scale=10.0 * GAIN_Q * GAIN_K),
        d=64,
        expected=10.0 * GAIN_Q * GAIN_K,
        found=10.0,
        applied_to="cosine",
        also=(GITHUB + "Cerebras/modelzoo/pull/85",),
    ),
    Exhibit(
        name="timm-2280",
        link=GITHUB + "huggingface/pytorch-image-models/issues/2280",
        kind="multiplier",
        what=(
            "The fused attention of the vision transformer was called without the module's own "
            "scale, so that another one was ignored without a word. Shown: 1/d."
        ),
        broken=attend,
        mended=partial(attend, scale=1 / 64),
        d=64,
        expected=1 / 64,
        found=0.125,
    ),
    Exhibit(
        name="pytorch-174361",
        link=GITHUB + "pytorch/pytorch/pull/174361",
        kind="multiplier",
        what=(
            "The compiler recognised attention written out, put the fused one in its place, and "
            "let the default 1/√d replace the scale in the code. The report divides by 1/√8."
        ),
        broken=attend,
        mended=partial(attend, scale=math.sqrt(8.0)),
        d=64,
        expected=math.sqrt(8.0),
        found=0.125,
        also=(GITHUB + "pytorch/pytorch/issues/174049",),
    ),
    Exhibit(
        name="megatron-3698",
        link=GITHUB + "NVIDIA/Megatron-LM/pull/3698",
        kind="multiplier",
        what=(
            "A softmax scale set in the configuration was at places not read, and 1/√d used. "
            "Shown: 0.02 in its place."
        ),
        broken=attend,
        mended=partial(attend, scale=0.02),
        d=128,
        expected=0.02,
        found=128**-0.5,
    ),
    Exhibit(
        name="mlc-llm-3426",
        link=GITHUB + "mlc-ai/mlc-llm/pull/3426",
        kind="multiplier",
        what=(
            "The path without a fused kernel did not scale at all. Embeddings of a BERT model "
            "had a cosine of 0.86 with the right ones."
        ),
        broken=partial(attend, scale=1.0),
        mended=attend,
        d=64,
        expected=0.125,
        found=1.0,
        also=(GITHUB + "ggml-org/llama.cpp/pull/14892",),
    ),
    Exhibit(
        name="maxtext-1370",
        link=GITHUB + "AI-Hypercomputer/maxtext/issues/1370",
        kind="multiplier",
        what=(
            "The queries were divided by 1/√d, which multiplies them by √d: training was unstable."
        ),
        broken=partial(attend, scale=math.sqrt(192.0)),
        mended=attend,
        d=192,
        expected=192**-0.5,
        found=math.sqrt(192.0),
        also=(GITHUB + "esceptico/perceiver-io/issues/9",),
    ),
    Exhibit(
        name="skainet-880",
        link=GITHUB + "SKaiNET-developers/SKaiNET/pull/880",
        kind="multiplier",
        what=(
            "A scale of 0 stood for the default 1/√d in the interface, and for 0 in the code: "
            "every key got the same weight."
        ),
        broken=partial(attend, scale=0.0),
        mended=attend,
        d=64,
        expected=0.125,
        found=0.0,
    ),
    Exhibit(
        name="sglang-18396",
        link=GITHUB + "sgl-project/sglang/pull/18396",
        kind="multiplier",
        what=(
            "The factor that undoes the quantisation of cached keys was applied to keys that were "
            "not quantised. With 0.06 the text became repetitions."
        ),
        broken=partial(attend, scale=0.06 * 192**-0.5),
        mended=attend,
        d=192,
        expected=192**-0.5,
        found=0.06 * 192**-0.5,
    ),
    Exhibit(
        name="maxtext-3138",
        link=GITHUB + "AI-Hypercomputer/maxtext/issues/3138",
        kind="scale twice",
        what="The queries came scaled, and one of the backends scaled by 1/√d again.",
        broken=twice,
        mended=attend,
        d=192,
        expected=192**-0.5,
        found=1 / 192,
        also=(
            GITHUB + "AI-Hypercomputer/maxtext/pull/3312",
            GITHUB + "huggingface/transformers/pull/38290",
        ),
    ),
    Exhibit(
        name="ollama-13893",
        link=GITHUB + "ollama/ollama/pull/13893",
        kind="dimension",
        what=(
            "Latent attention absorbs a projection into the queries, which makes them longer, 576 "
            "in place of 256. The scale took the new length; tools were called badly and the "
            "model ran in loops."
        ),
        broken=attend,
        mended=partial(attend, scale=1 / 16),
        d=576,
        expected=1 / 16,
        found=1 / 24,
    ),
    Exhibit(
        name="transformerlens-694",
        link=GITHUB + "TransformerLensOrg/TransformerLens/pull/694",
        kind="dimension",
        what=(
            "Gemma 2 of 9 billion parameters divides by the root of its head dimension, 256, and "
            "several libraries took its width over its heads, 224. This thread says only that its "
            "number was wrong; 224 is that of the others."
        ),
        broken=partial(attend, scale=224**-0.5),
        mended=attend,
        d=256,
        expected=1 / 16,
        found=224**-0.5,
        also=(
            GITHUB + "huggingface/transformers/issues/31891",
            GITHUB + "ggml-org/llama.cpp/pull/8444",
        ),
    ),
    Exhibit(
        name="llama-cpp-13951",
        link=GITHUB + "ggml-org/llama.cpp/pull/13951",
        kind="dimension",
        what=(
            "Gemma 2 of 27 billion parameters is the other way round: its width over its heads, "
            "144, is meant, and the head dimension, 128, was used."
        ),
        broken=attend,
        mended=partial(attend, scale=1 / 12),
        d=128,
        expected=1 / 12,
        found=128**-0.5,
        also=(GITHUB + "antonellof/ferrox/issues/40",),
    ),
    Exhibit(
        name="tt-metal-56789",
        link=GITHUB + "tenstorrent/tt-metal/pull/56789",
        kind="dimension",
        what=(
            "CLIP's scores were divided by the root of the number of heads. The right caption "
            "still won, so that nobody noticed; the wrong ones got three times their probability."
        ),
        broken=by_heads,
        mended=attend,
        d=64,
        heads=12,
        key_heads=12,
        expected=0.125,
        found=12**-0.5,
        also=(GITHUB + "huggingface/pytorch-image-models/issues/2385",),
    ),
    Exhibit(
        name="vit-pytorch-65",
        link=GITHUB + "lucidrains/vit-pytorch/issues/65",
        kind="dimension",
        what="The scale took the width of the model for that of a head. Shown: eight heads of 64.",
        broken=by_width,
        mended=attend,
        d=64,
        heads=8,
        key_heads=8,
        expected=0.125,
        found=512**-0.5,
        also=(
            GITHUB + "omihub777/ViT-CIFAR/pull/12",
            GITHUB + "FareedKhan-dev/train-llm-from-scratch/pull/3",
        ),
    ),
)
