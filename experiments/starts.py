"""Record the α of fresh layers' logits, and the size of their output.

    python -m experiments.starts

takes half an hour of one core, and goes on where it was stopped. The measures and the
predictions are in predictions/starts.md, the numbers in starts.toml; starts_families.json has the
models and what they have beside the defaults of their configurations. Of DeepSeek-V3's 128 heads it
has 16, for memory.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from attnlib.models.interception import LOOKS_LIKE_ATTENTION
from attnlib.probing.measure import Call, logits
from attnlib.probing.observer import Observer
from attnlib.probing.sample import restrict_call
from attnlib.sampling import mean_and_error
from experiments.compatibility import by_hand
from experiments.records import Work, compute_missing

TOKENS, ROWS, SEEDS = 256, 64, 8
FAMILIES: dict[str, Any] = json.loads(
    Path(__file__).with_name("starts_families.json").read_text("utf-8")
)
OUTPUTS = ("nn.TransformerEncoderLayer", "T5 small", "GPT-2", "Qwen3 0.6B", "Llama 7B")


def entries_to_compute() -> Work:
    """Yield the key of each entry and a function that measures its layers."""
    for family in FAMILIES:
        for own in (False,) if family.startswith("nn.") else (False, True):
            at = {"of": "alpha", "family": family, "own": own}
            yield at, partial(measure_layers, family, TOKENS, own)
    for family in OUTPUTS:
        for n in (512, 4096):
            yield (
                {"of": "output", "family": family, "n": n},
                partial(measure_layers, family, n, False),
            )
    yield {"of": "depth", "family": "GPT-2"}, partial(measure_layers, "GPT-2", 512, True, depth=12)


def measure_layers(family: str, n: int, own: bool, *, depth: int = 1) -> list[dict[str, Any]]:
    """Return for each layer the roots of its mean squares over the seeds, with errors.

    `own`: the tokens are the model's own, not normal ones.
    """
    seeds = [measure_seed(family, n, own, depth, seed)[:depth] for seed in range(SEEDS)]
    return [
        {name: root_of_mean([squares[name] for squares in layer]) for name in layer[0]}
        for layer in zip(*seeds, strict=True)
    ]


def root_of_mean(squares: list[float]) -> dict[str, float]:
    """Return the root of the mean of squares, with its standard error."""
    mean, error = mean_and_error(squares)
    root = float(np.sqrt(mean))
    return {"value": root, "standard_error": float(error) / (2.0 * root)}


@torch.no_grad()
def measure_seed(family: str, n: int, own: bool, depth: int, seed: int) -> list[dict[str, float]]:
    """Return the `squares` of each call of attention in a fresh model."""
    torch.manual_seed(seed)
    model, run = fresh_model(family, n, depth)
    if not own and not family.startswith("nn."):
        blocks = next(module for module in model.modules() if has_attention(module))
        blocks[0].register_forward_pre_hook(lambda _, x: (torch.randn_like(x[0]), *x[1:]))
    if family.startswith("Gemma 2"):  # it refuses the kernel, for the sake of its cap
        with by_hand(model, "own") as hand:
            run()
        return [{"alpha": variance(s[..., -ROWS:, :])} for s, _ in hand.calls.values()]
    seen: list[dict[str, float]] = []
    observer = Observer(model, lambda _, __, *call: seen.append(squares(*call)))
    with observer.at_work():
        run()
    return seen


def fresh_model(family: str, n: int, depth: int) -> tuple[Any, Callable[[], Any]]:
    """Return a new model, and a function that runs it on n tokens."""
    class_name, options = FAMILIES[family]
    if family.startswith("nn."):
        layer = getattr(nn, class_name)(**options, batch_first=True).eval()
        x = torch.randn(1, n, options.get("d_model") or options["embed_dim"])
        return layer, partial(layer, *[x] * (3 if class_name == "MultiheadAttention" else 1))
    small = {"num_hidden_layers": depth, "intermediate_size": 64, "vocab_size": n + 16}
    small |= {"max_position_embeddings": n, "pad_token_id": 0, "eos_token_id": 1}
    model_class = getattr(transformers, f"{class_name}Model")
    config = model_class.config_class(**{**small, **options})
    attention = "sdpa" if model_class._supports_sdpa else "eager"
    model = model_class._from_config(config, attn_implementation=attention).eval()
    model = model.encoder if class_name == "Whisper" else model
    inputs = {
        "input_ids": torch.randperm(n)[None] + 16,
        "pixel_values": torch.randn(1, 3, 224, 224),
        "input_values": torch.randn(1, 320 * n + 80),
        "input_features": torch.randn(1, 80, 2 * n),
    }
    return model, partial(model, inputs[model.main_input_name])


def has_attention(module: nn.Module) -> bool:
    """Return whether a module is a list of blocks that attend."""
    kinds = [type(part).__name__ for part in module.modules()]
    return isinstance(module, nn.ModuleList) and any(map(LOOKS_LIKE_ATTENTION.search, kinds))


def squares(call: Call, output: Tensor) -> dict[str, float]:
    """Return α² of the last rows, and the mean squares of output and mean value.

    The latter are over the mean square of the values.
    """
    queries, v = call.query.shape[-2], call.value.double()
    rows, output = restrict_call(call, output, [0], list(range(max(0, queries - ROWS), queries)))
    output_square, mean_square, square = (
        float(x.double().square().mean()) for x in (output, v.mean(dim=-2), v)
    )
    relative = {"output": output_square / square, "mean": mean_square / square}
    return {"alpha": variance(logits(rows)), **relative}


def variance(s: Tensor) -> float:
    """Return the mean variance of rows of logits, which are −∞ where a key is hidden."""
    return float(np.nanvar(s.where(s.isfinite(), np.nan).numpy(), axis=-1, ddof=1).mean())


if __name__ == "__main__":
    torch.set_num_threads(1)
    settings = {"tokens": TOKENS, "rows": ROWS, "seeds": SEEDS}
    compute_missing("starts", entries_to_compute(), settings, "torch", "transformers")
