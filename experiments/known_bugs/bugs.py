"""The bugs: each with its label, from `bugs.toml`, the attention that has it, and the fixed one."""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.known_bugs import faults
from experiments.known_bugs.attention import Attend, Law, attend
from experiments.known_bugs.faults import CAP, DROPOUT, LOW_CAP, SINK, TEMPERATURE, yarn

LABELS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
KINDS: dict[str, list[str]] = LABELS.pop("codes")
"""The kinds of fault, by the code of the finding in which the audit sees them."""
MULTIPLIERS = ("multiplier", "scale twice", "dimension", "padded head size", "law in n")
"""Kinds of faults that are a wrong multiplier of all scores of a query."""


@dataclass(frozen=True)
class Bug:
    """A fault found in public, as the smallest attention that has it, and the same fixed."""

    name: str
    broken: Attend
    d: int
    found: float
    """The wrong quantity, at n queries and n keys; `right` is its right value."""
    right: float
    meant: Mapping[str, Any]
    """Arguments of `attend` where nothing is broken, and "window" (keys seen, with its own)."""
    fixed: Attend
    heads: int = 2
    key_heads: int = 2
    n: int = 64

    @property
    def label(self) -> dict[str, str]:
        """Return the thread, the kind of fault, the fault in words, and the wrong quantity."""
        label = {"quantity": "multiplier", **LABELS[self.name]}
        label["link"] = f"https://github.com/{label['link']}"
        return {part: label[part] for part in ("link", "kind", "what", "quantity")}

    @property
    def kind(self) -> str:
        """Return the kind of the fault, a short code."""
        return self.label["kind"]

    @property
    def expected(self) -> float | Law:
        """Return the intended factor on q·k or on the cosine, a number or a law."""
        scale: float | Law = self.meant.get("scale", self.d**-0.5)
        return scale

    def ratio(self, n: int) -> Any:
        """Return the factor on the scores over the right one, a number or one for each query."""
        if not callable(self.expected):
            return self.found / self.right
        return torch.from_numpy(self.found / self.expected(n, self.d, np.arange(n)))


def make_bug(
    name: str, broken: Attend, d: int, wrong: float, right: float | None = None, **meant: Any
) -> Bug:
    """Return a bug. Arguments that are not its fields are those of `attend` when it is fixed."""
    fields = {key: meant.pop(key) for key in ("heads", "key_heads", "n", "fixed") if key in meant}
    if right is None:
        scale = meant.get("scale", d**-0.5)
        n = fields.get("n", 64)
        right = float(scale(n, d, n - 1)) if callable(scale) else scale
    fields = {"fixed": partial(attend, **meant), **fields}
    return Bug(name, broken, d, wrong, right, meant, **fields)


def wrong_scale(name: str, d: int, wrong: float, right: float, heads: int = 2, **meant: Any) -> Bug:
    """Return a bug whose factor on q·k, or on the cosine, is wrong."""
    broken = partial(attend, scale=wrong, **meant)
    return make_bug(name, broken, d, wrong, heads=heads, key_heads=heads, scale=right, **meant)


def wrong_logits(name: str, wrong: Callable[..., Tensor], *numbers: Any, **meant: Any) -> Bug:
    """Return a bug whose logits are wrong."""
    return make_bug(name, partial(attend, logits=wrong), *numbers, **meant)


def inv_sqrt(d: int) -> float:
    """Return 1/√d."""
    return float(d**-0.5)


DEEPSEEK = yarn(40) ** 2 * inv_sqrt(192)
CHUNKED = partial(faults.chunked, scale=DEEPSEEK, exported=inv_sqrt(192))
WINDOWED = {seen: partial(faults.windowed, seen=seen) for seen in (4, 5)}
COSINE = {"scale": TEMPERATURE, "cosine": True}
HALF, BRAIN = (partial(faults.rounded_products, dtype=t) for t in (torch.float16, torch.bfloat16))

BUGS = (
    wrong_scale("transformers-44380", 64, 1 / 8, 1 / 8 / 6),
    wrong_scale("vllm-36637", 64, 1 / 8, 1.0),
    wrong_scale("vllm-48623", 128, yarn(16) ** 2 * inv_sqrt(128), inv_sqrt(128)),
    wrong_scale("exllamav3-259", 128, inv_sqrt(128), yarn(16) ** 2 * inv_sqrt(128)),
    wrong_scale("mobius-548", 192, inv_sqrt(192), yarn(40, 0.707) ** 2 * inv_sqrt(192)),
    wrong_scale("x-transformers-190", 64, 1 / 640, 10.0, cosine=True),
    wrong_scale("x-transformers-352", 64, 10.0, 10.0 * 1.5 * 1.2, cosine=True),
    wrong_scale("timm-2280", 64, 1 / 8, 1 / 64),
    wrong_scale("pytorch-174361", 64, 1 / 8, math.sqrt(8.0)),
    wrong_scale("megatron-3698", 128, inv_sqrt(128), 0.02),
    wrong_scale("mlc-llm-3426", 64, 1.0, 1 / 8),
    wrong_scale("maxtext-1370", 192, math.sqrt(192.0), inv_sqrt(192)),
    wrong_scale("skainet-880", 64, 0.0, 1 / 8),
    wrong_scale("sglang-18396", 192, 0.06 * inv_sqrt(192), inv_sqrt(192)),
    wrong_scale("maxtext-3138", 192, 1 / 192, inv_sqrt(192)),
    wrong_scale("ollama-13893", 576, 1 / 24, 1 / 16),
    wrong_scale("transformerlens-694", 256, inv_sqrt(224), 1 / 16),
    wrong_scale("llama-cpp-13951", 128, inv_sqrt(128), 1 / 12),
    wrong_scale("tt-metal-56789", 64, inv_sqrt(12), 1 / 8, heads=12),
    wrong_scale("vit-pytorch-65", 64, inv_sqrt(512), 1 / 8, heads=8),
    make_bug("vllm-44136", attend, 64, 1 / 8, scale=faults.qwen_law),
    make_bug("vllm-48621", attend, 128, inv_sqrt(128), scale=faults.llama_4_law),
    wrong_logits("flaggems-424", faults.growing_scale, 64, math.log2(math.e) / 8),
    make_bug("tensorrt-llm-19112", CHUNKED, 192, inv_sqrt(192), scale=DEEPSEEK),
    wrong_logits("atlas-342", faults.half_magnified, 128, yarn(16) ** 2 * inv_sqrt(128)),
    wrong_logits("tt-metal-42891", faults.scaled_mask, 64, 1 / 8, 1.0),
    wrong_logits("segment-anything-fast-71", faults.binary_softmax, 64, math.log(2.0), 1.0),
    wrong_logits("onnx-7865", faults.mask_then_cap, 64, -LOW_CAP, -math.inf, cap=LOW_CAP),
    make_bug("transformers-39408", WINDOWED[5], 64, 5, 4, fixed=WINDOWED[4], window=4),
    make_bug("pytorch-195910", partial(attend, hidden=faults.after_group), 64, faults.GROUP, 1),
    make_bug("keras-23038", partial(attend, hidden=faults.hide_nothing), 64, 64, 1),
    make_bug("executorch-21749", partial(attend, hidden=faults.counted_from_first), 64, 1, 57),
    make_bug("cs249r-book-1953", partial(attend, hidden=faults.hide_own_key), 64, 56, 57),
    make_bug("tt-metal-54833", faults.padded_tile, 64, 64, 40, n=40),
    make_bug("jax-js-180", faults.interleaved_heads, 64, 1, 0, heads=4),
    make_bug("vllm-metal-665", attend, 256, math.inf, CAP, cap=CAP),
    make_bug("vllm-52156", attend, 64, -math.inf, SINK, sink=SINK),
    make_bug(
        "megatron-bridge-4155", attend, 192, 1.0, faults.VALUE_SCALE, values=faults.VALUE_SCALE
    ),
    wrong_logits("swin-v2-1", faults.norms_by_query, 64, 1.0, 0.0, **COSINE),
    make_bug("timm-1978", faults.dropout_in_use, 64, DROPOUT, 0.0),
    wrong_logits("metal-flash-attention-8", HALF, 64, 65504.0, math.inf),
    wrong_logits("transformers-33317", BRAIN, 64, 2.0**-8, 0.0),
    wrong_scale("transformers-13430", 512, math.e, 1 / 0.07, cosine=True),
    wrong_scale("tiny-transformers-71", 64, 1.0, 1 / 8),
    wrong_scale("mlx-lm-1507", 128, yarn(8) ** 2 * inv_sqrt(128), inv_sqrt(128)),
    wrong_scale("transformerlens-27", 64, 1 / 8, 1 / 8 / 6),
    wrong_scale("ng-video-lecture-6", 64, inv_sqrt(384), 1 / 8, heads=6),
    wrong_scale("dl4proteins-notebooks-12", 16, 1 / 8, 1 / 4, heads=4),
    wrong_scale("ipex-llm-12619", 80, inv_sqrt(128), inv_sqrt(80)),
    wrong_scale("sglang-485", 72, inv_sqrt(80), inv_sqrt(72)),
    make_bug("tilelang-ascend-1670", faults.padded_backward, 129, inv_sqrt(144), fixed=attend),
    make_bug("cudnn-frontend-421", faults.backward_without_sink, 64, 0.0, 1.0, sink=SINK),
)
