"""The families of transformers, made small: few layers, and weights that take no memory."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnlib.interception import LOOKS_LIKE_ATTENTION
from experiments.census.watched import Weightless

PLACES = [*range(6), 100, 1000, 2047, 2048, 8191, 8192, 16384, 32768, 131072, 1000000]
"""Positions that the rules in use tell apart."""
FIRST = (
    *("gpt_neo", "gemma4", "muse_glimmer", "muse_spark", "beam", "inkling2", "cvt", "timesfm"),
    *("deberta_v2", "longcat_flash", "zamba2", "granite", "t5", "dia", "xlnet", "llama4"),
    *("ministral3", "mistral4", "gpt_oss", "deepseek_v3", "gemma2", "gemma3", "qwen3", "olmo2"),
    *("nanochat", "swinv2", "conditional_detr", "falcon_h1", "evolla", "qwen3_next", "llama"),
    *("gpt2", "inkling", "gemma3n", "mistral_large4", "deepseek_v4", "timesfm2_5", "bert", "vit"),
    *("cohere2", "phi3", "modernbert", "whisper", "clip", "siglip", "wav2vec2"),
)
"""Families that are recorded before the others: those of the catalogue, and well-known ones."""
TOKENS = len(PLACES)
"""Tokens of a text, as many as PLACES."""
LAYERS, ALIKE = 6, 2
"""At most so many where layers come in a pattern, five with a window and one without, or not."""
MANY = re.compile(
    r"(num_\w*layers|\w*encoder_layers|\w*decoder_layers|depth|num_blocks|n_layers?)$"
)
ATTENDS = re.compile(r"[sS]oftmax\(|ALL_ATTENTION_FUNCTIONS|scaled_dot_product_attention")
RELEASED: dict[str, dict[str, Any]] = {
    "DebertaConfig": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DebertaV2Config": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "InklingTextConfig": {"log_scaling_n_floor": 128000},
}
"""Settings of released models where the configuration alone turns a rule off."""
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}


def names() -> list[str]:
    """Return the folders of models that attend: FIRST, then the language models."""
    import transformers.models as models

    found = {}
    for name in sorted(one.name for one in pkgutil.iter_modules(models.__path__)):
        texts = [
            file.read_text("utf-8")
            for file in sorted(Path(models.__path__[0], name).glob("modeling_*.py"))
        ]
        if any(map(ATTENDS.search, texts)):
            found[name] = not any("ForCausalLM(" in text for text in texts)
    others = sorted(found.keys() - set(FIRST), key=lambda name: (found[name], name))
    return [*(name for name in FIRST if name in found), *others]


@cache
def source(file: str) -> dict[str, str]:
    """Return the text of each class in a file, by name."""
    parts = re.split(r"^class (\w+)", Path(file).read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def files(family: str) -> list[Any]:
    """Return the modules of a family that have its models."""
    package = importlib.import_module(f"transformers.models.{family}")
    found = []
    for one in pkgutil.iter_modules(package.__path__):
        if one.name.startswith("modeling_"):
            try:
                found.append(importlib.import_module(f"{package.__name__}.{one.name}"))
            except ImportError:
                continue
    return found


def attention_of(file: Any) -> list[type[nn.Module]]:
    """Return the layers of a file that write attention out or ask the registry for it."""
    from transformers import PreTrainedModel

    text = source(file.__file__)
    return [
        kind
        for name, kind in vars(file).items()
        if isinstance(kind, type)
        and issubclass(kind, nn.Module)
        and not issubclass(kind, PreTrainedModel)
        and ATTENDS.search(text.get(name, ""))
        and LOOKS_LIKE_ATTENTION.search(name)
    ]


def models_of(file: Any) -> list[Any]:
    """Return a file's models, the plain ones first."""
    from transformers import PreTrainedModel

    there: list[Any] = list(vars(file).values())
    kinds = [
        kind
        for kind in there
        if isinstance(kind, type)
        and issubclass(kind, PreTrainedModel)
        and kind.__module__ == file.__name__
        and getattr(kind, "config_class", None) is not None
        and not kind.__name__.endswith("PreTrainedModel")
    ]
    return sorted(kinds, key=lambda kind: not kind.__name__.endswith("Model"))


def settings(config: Any) -> dict[str, Any]:
    """Return what makes a configuration's model small: fewer layers, and in its parts."""
    layers = (
        LAYERS
        if re.search("layer_types|no_rope|sliding_window|interval", repr(vars(config).keys()))
        else ALIKE
    )
    small: dict[str, Any] = {
        name: layers
        for name, value in vars(config).items()
        if MANY.match(name) and type(value) is int and value > layers
    }
    if isinstance(getattr(config, "image_size", None), int) and config.image_size > 448:
        small["image_size"] = 256
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, dict):
            small[name] = {"model_type": part.model_type, **settings(part)}
    return small


def made(kind: Any, change: Callable[[Any], dict[str, Any]] | None = None) -> Any:
    """Return a new model of a class, its configuration changed; small if that can be."""
    first = kind.config_class()
    changes = {**RELEASED.get(type(first).__name__, {}), **(change(first) if change else {})}
    for small in (settings(first), {}):
        try:
            torch.manual_seed(0)
            config = kind.config_class(**merged(small, changes))
            with Weightless():
                return kind._from_config(config, attn_implementation="eager").eval()
        except Exception as error:
            failed = error
    raise failed


def merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Return both, and parts that both have together."""
    return {
        **a,
        **{
            name: merged(a[name], value)
            if name in a and isinstance(value, dict) and isinstance(a[name], dict)
            else value
            for name, value in b.items()
        },
    }


def everywhere(one: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Return a change that is made in the parts of a configuration, too."""

    def change(config: Any) -> dict[str, Any]:
        found = one(config)
        for name in getattr(config, "sub_configs", {}):
            part = getattr(config, name, None)
            if part is not None and not isinstance(part, dict) and (inner := change(part)):
                found[name] = {"model_type": part.model_type, **inner}
        return found

    return change


def other_size(config: Any) -> dict[str, Any]:
    """Return settings with half as many heads of twice the size, or heads of twice the size."""
    told = vars(config)
    for name in ("head_dim", "d_kv", "attention_head_dim"):
        if isinstance(told.get(name), int):
            return {name: 2 * told[name]}
    if "qk_nope_head_dim" in told and isinstance(told["qk_nope_head_dim"], int):
        return {"qk_nope_head_dim": 2 * told["qk_nope_head_dim"]}
    pattern = r"(num_|n_|encoder_|decoder_)?(\w*attention_heads|\w*heads?|n_head)$"
    found: dict[str, Any] = {}
    for name, value in told.items():
        name = config.attribute_map.get(name, name)
        if re.match(pattern, name) and "size" not in name:
            if type(value) is int and value > 1 and value % 2 == 0:
                found[name] = value // 2
            elif isinstance(value, list | tuple) and all(v % 2 == 0 for v in value):
                found[name] = [v // 2 for v in value]
    return found


def narrow(config: Any) -> dict[str, Any]:
    """Return settings with a window of 5 keys, where there is one."""
    return {
        name: 5
        for name in (
            "sliding_window",
            "attention_chunk_size",
            "local_attention",
            "attention_window_size",
            "window_size",
        )
        if getattr(config, name, None) and isinstance(getattr(config, name), int)
    }


def stretched(config: Any, **more: float) -> dict[str, Any]:
    """Return settings with YaRN's longer context, where the model rotates."""
    rotary = getattr(config, "rope_parameters", None) or {}
    if "rope_theta" not in rotary:
        return {}
    kept = {
        name: rotary[name] for name in ("rope_theta", "partial_rotary_factor") if name in rotary
    }
    return {"rope_parameters": {**YARN, **kept, **more}}


def inputs(model: Any) -> Iterator[dict[str, Any]]:
    """Yield what the model may want to read, the likeliest first."""
    wanted = inspect.signature(model.forward).parameters
    config = model.config
    text = getattr(config, "vocab_size", None) or 90
    ids = torch.randint(5, min(max(text, 7), 90), (1, TOKENS), generator=generator())
    size: Any = getattr(config, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else tuple(size)[:2]
    colours: Any = (
        getattr(config, "num_channels", None) or getattr(config, "in_channels", None) or 3
    )
    frames: Any = getattr(config, "num_frames", None) or 2
    mel: Any = getattr(config, "num_mel_bins", None) or getattr(
        config, "input_feat_per_channel", 80
    )
    width_of: Any = getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or 64
    sound = 2 * (getattr(config, "max_source_positions", None) or 64)
    both = {"decoder_input_ids": ids} if "decoder_input_ids" in wanted else {}
    given = {
        "input_ids": [ids],
        "pixel_values": [
            torch.zeros(1, colours, height, width),
            torch.zeros(1, frames, colours, height, width),
        ],
        "pixel_values_videos": [torch.zeros(1, frames, colours, height, width)],
        "input_features": [torch.zeros(1, mel, sound), torch.zeros(1, 128, mel)],
        "input_values": [torch.zeros(1, 16000), torch.zeros(1, 1, 16000)],
        "inputs_embeds": [torch.zeros(1, TOKENS, width_of)],
        "hidden_states": [torch.zeros(1, TOKENS, width_of), torch.zeros(TOKENS, width_of)],
    }
    known = sorted(
        (name for name in given if name in wanted), key=lambda name: name != model.main_input_name
    )
    for name in known:
        for value in given[name]:
            if name == "input_ids" and "position_ids" in wanted:
                yield {name: value, "position_ids": torch.tensor([PLACES]), **both}
            yield {name: value, **both}
    if "pixel_values" in known and "input_ids" in known:
        yield {"input_ids": ids, "pixel_values": given["pixel_values"][0], **both}


def generator() -> torch.Generator:
    """Return a generator that starts where each starts."""
    return torch.Generator().manual_seed(1)


def readers(model: nn.Module) -> list[Any]:
    """Return the model, and those of its parts that are models."""
    from transformers import PreTrainedModel

    return [part for part in model.modules() if isinstance(part, PreTrainedModel)]


def start(layer: nn.Module, file: Any, config: Any) -> None:
    """Give a layer the weights that it starts with in a model of its file."""
    kind = next((one for one in models_of(file)), None)
    if kind is not None:
        model = kind.__new__(kind)
        nn.Module.__init__(model)
        model.config = config
        for module in layer.modules():
            model._init_weights(module)


def alone(
    kind: type[nn.Module], file: Any, configs: list[Any]
) -> Iterator[tuple[nn.Module, Callable[[], Any]]]:
    """Yield a layer of attention by itself, and what runs it on tokens, each way that is made."""
    for config in configs:
        config._attn_implementation = "eager"
        for rest in ({}, {"layer_idx": 0}, {"layer_id": 0}, {"is_cross_attention": False}):
            try:
                with Weightless():
                    layer = kind(config, **rest).eval()
                    start(layer, file, config)
            except Exception:
                continue
            first = next((p for p in layer.parameters() if p.dim() == 2), None)
            width = getattr(config, "hidden_size", 64) if first is None else first.shape[1]
            d = getattr(layer, "head_dim", None) or getattr(config, "head_dim", None) or 64
            turned = torch.ones(1, TOKENS, d), torch.zeros(1, TOKENS, d)
            flat = torch.ones(TOKENS, d), torch.zeros(TOKENS, d)
            x = torch.zeros(1, TOKENS, width)
            for named in (
                {},
                {"attention_mask": None, "position_embeddings": turned},
                {"attention_mask": None},
                {"position_embeddings": flat, "cu_seqlens": torch.tensor([0, TOKENS])},
            ):
                takes = inspect.signature(layer.forward).parameters
                given = {name: value for name, value in named.items() if name in takes}
                shape = x[0] if "cu_seqlens" in given else x
                needed = [
                    one
                    for one in takes.values()
                    if one.default is one.empty
                    and one.kind is one.POSITIONAL_OR_KEYWORD
                    and one.name not in given
                ]
                others = {one.name: None if "mask" in one.name else shape for one in needed[1:]}
                yield layer, partial(layer, shape, **given, **others)
