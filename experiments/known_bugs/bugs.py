"""The bugs: what each was, from `bugs.toml`, with the attention that has it, and fixed."""

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
    """The number that is wrong, at n queries and n keys; `right` is what it should be."""
    right: float
    meant: Mapping[str, Any]
    """What `attend` is told where nothing is broken, and "window" (the keys seen, with its own)."""
    fixed: Attend
    heads: int = 2
    key_heads: int = 2
    n: int = 64

    @property
    def label(self) -> dict[str, str]:
        """The thread, the kind of fault, what it was, and which quantity is wrong."""
        label = {"quantity": "multiplier", **LABELS[self.name]}
        label["link"] = f"https://github.com/{label['link']}"
        return {part: label[part] for part in ("link", "kind", "what", "quantity")}

    @property
    def kind(self) -> str:
        """A short code of the fault."""
        return self.label["kind"]

    @property
    def expected(self) -> float | Law:
        """What is meant to multiply q·k or the cosine, a number or a law."""
        scale: float | Law = self.meant.get("scale", self.d**-0.5)
        return scale

    def ratio(self, n: int) -> Any:
        """Return what multiplies the scores over what should: a number, or one for n queries."""
        if not callable(self.expected):
            return self.found / self.right
        return torch.from_numpy(self.found / self.expected(n, self.d, np.arange(n)))


def bug(
    name: str, broken: Attend, d: int, wrong: float, right: float | None = None, **more: Any
) -> Bug:
    """Return a bug; what is no field is what `attend` is told, and fixed by."""
    shape = {key: more.pop(key) for key in ("heads", "key_heads", "n", "fixed") if key in more}
    if right is None:
        scale = more.get("scale", d**-0.5)
        n = shape.get("n", 64)
        right = float(scale(n, d, n - 1)) if callable(scale) else scale
    shape = {"fixed": partial(attend, **more), **shape}
    return Bug(name, broken, d, wrong, right, more, **shape)


def number(name: str, d: int, wrong: float, right: float, heads: int = 2, **more: Any) -> Bug:
    """Return a bug in which another number multiplies q·k, or the cosine."""
    broken = partial(attend, scale=wrong, **more)
    return bug(name, broken, d, wrong, heads=heads, key_heads=heads, scale=right, **more)


def logits(name: str, wrong: Callable[..., Tensor], *numbers: Any, **more: Any) -> Bug:
    """Return a bug in which the logits are wrong."""
    return bug(name, partial(attend, logits=wrong), *numbers, **more)


def root(d: int) -> float:
    """Return 1/√d."""
    return float(d**-0.5)


DEEPSEEK = yarn(40) ** 2 * root(192)
CHUNKED = partial(faults.chunked, scale=DEEPSEEK, exported=root(192))
WINDOWED = {seen: partial(faults.windowed, seen=seen) for seen in (4, 5)}
COSINE = {"scale": TEMPERATURE, "cosine": True}
HALF, BRAIN = (partial(faults.rounded, dtype=t) for t in (torch.float16, torch.bfloat16))

BUGS = (
    number("transformers-44380", 64, 1 / 8, 1 / 8 / 6),
    number("vllm-36637", 64, 1 / 8, 1.0),
    number("vllm-48623", 128, yarn(16) ** 2 * root(128), root(128)),
    number("exllamav3-259", 128, root(128), yarn(16) ** 2 * root(128)),
    number("mobius-548", 192, root(192), yarn(40, 0.707) ** 2 * root(192)),
    number("x-transformers-190", 64, 1 / 640, 10.0, cosine=True),
    number("x-transformers-352", 64, 10.0, 10.0 * 1.5 * 1.2, cosine=True),
    number("timm-2280", 64, 1 / 8, 1 / 64),
    number("pytorch-174361", 64, 1 / 8, math.sqrt(8.0)),
    number("megatron-3698", 128, root(128), 0.02),
    number("mlc-llm-3426", 64, 1.0, 1 / 8),
    number("maxtext-1370", 192, math.sqrt(192.0), root(192)),
    number("skainet-880", 64, 0.0, 1 / 8),
    number("sglang-18396", 192, 0.06 * root(192), root(192)),
    number("maxtext-3138", 192, 1 / 192, root(192)),
    number("ollama-13893", 576, 1 / 24, 1 / 16),
    number("transformerlens-694", 256, root(224), 1 / 16),
    number("llama-cpp-13951", 128, root(128), 1 / 12),
    number("tt-metal-56789", 64, root(12), 1 / 8, heads=12),
    number("vit-pytorch-65", 64, root(512), 1 / 8, heads=8),
    bug("vllm-44136", attend, 64, 1 / 8, scale=faults.qwen),
    bug("vllm-48621", attend, 128, root(128), scale=faults.llama_4),
    logits("flaggems-424", faults.growing, 64, math.log2(math.e) / 8),
    bug("tensorrt-llm-19112", CHUNKED, 192, root(192), scale=DEEPSEEK),
    logits("atlas-342", faults.half_magnified, 128, yarn(16) ** 2 * root(128)),
    logits("tt-metal-42891", faults.scaled_mask, 64, 1 / 8, 1.0),
    logits("segment-anything-fast-71", faults.binary, 64, math.log(2.0), 1.0),
    logits("onnx-7865", faults.mask_then_cap, 64, -LOW_CAP, -math.inf, cap=LOW_CAP),
    bug("transformers-39408", WINDOWED[5], 64, 5, 4, fixed=WINDOWED[4], window=4),
    bug("pytorch-195910", partial(attend, hidden=faults.after_the_group), 64, faults.GROUP, 1),
    bug("keras-23038", partial(attend, hidden=faults.nothing), 64, 64, 1),
    bug("executorch-21749", partial(attend, hidden=faults.from_the_first), 64, 1, 57),
    bug("cs249r-book-1953", partial(attend, hidden=faults.itself), 64, 56, 57),
    bug("tt-metal-54833", faults.tiled, 64, 64, 40, n=40),
    bug("jax-js-180", faults.tiled_heads, 64, 1, 0, heads=4),
    bug("vllm-metal-665", attend, 256, math.inf, CAP, cap=CAP),
    bug("vllm-52156", attend, 64, -math.inf, SINK, sink=SINK),
    bug("megatron-bridge-4155", attend, 192, 1.0, faults.VALUE_SCALE, values=faults.VALUE_SCALE),
    logits("swin-v2-1", faults.norms_of_the_query_alone, 64, 1.0, 0.0, **COSINE),
    bug("timm-1978", faults.always_dropping, 64, DROPOUT, 0.0),
    logits("metal-flash-attention-8", HALF, 64, 65504.0, math.inf),
    logits("transformers-33317", BRAIN, 64, 2.0**-8, 0.0),
    number("transformers-13430", 512, math.e, 1 / 0.07, cosine=True),
    number("tiny-transformers-71", 64, 1.0, 1 / 8),
    number("mlx-lm-1507", 128, yarn(8) ** 2 * root(128), root(128)),
    number("transformerlens-27", 64, 1 / 8, 1 / 8 / 6),
    number("ng-video-lecture-6", 64, root(384), 1 / 8, heads=6),
    number("dl4proteins-notebooks-12", 16, 1 / 8, 1 / 4, heads=4),
    number("ipex-llm-12619", 80, root(128), root(80)),
    number("sglang-485", 72, root(80), root(72)),
    bug("tilelang-ascend-1670", faults.padded_backward, 129, root(144), fixed=attend),
    bug("cudnn-frontend-421", faults.backward_without_the_sink, 64, 0.0, 1.0, sink=SINK),
)
