"""The families of transformers, made small: few layers, and weights that take no memory."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnlib.interception import LOOKS_LIKE_ATTENTION
from experiments.census.watched import Weightless

PLACES = [*range(6), 100, 1000, 2047, 2048, 8191, 8192, 16384, 32768, 131072, 1000000]
"""Positions that the rules in use tell apart."""
TOKENS = len(PLACES)
"""Tokens of a text, as many as PLACES."""
LAYERS, ALIKE = 6, 2
"""At most so many where layers come in a pattern, five with a window and one without, or not."""
MANY = re.compile(
    r"(num_\w*layers|\w*encoder_layers|\w*decoder_layers|depth|num_blocks|n_layers?)$"
)
PATTERNED = re.compile("layer_types|no_rope|sliding_window|interval")
HEADS = re.compile(r"(num_|n_|encoder_|decoder_)?(\w*attention_heads|\w*heads?|n_head)$")
WINDOWS = (
    *("sliding_window", "attention_chunk_size", "local_attention", "attention_window_size"),
    "window_size",
)
FLOORS = ("floor_scale", "log_scaling_n_floor")
"""Settings that say from which position on a rule multiplies."""
ATTENDS = re.compile(r"[sS]oftmax\(|ALL_ATTENTION_FUNCTIONS|scaled_dot_product_attention")
MULTIPLIES = re.compile(r"matmul\(|bmm\(|einsum\(|baddbmm| @ |ALL_ATTENTION_|scaled_dot")
RELEASED: dict[str, dict[str, Any]] = {
    "DebertaConfig": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DebertaV2Config": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "InklingTextConfig": {"log_scaling_n_floor": 128000},
    "HunYuanDenseV1Config": {"head_dim": 128},
    "HunYuanMoEV1Config": {"head_dim": 128},
    "MinistralConfig": {"head_dim": 128},
    "NemotronConfig": {"num_key_value_heads": 8},
    "DeepseekV2Config": {"num_experts_per_tok": 6},
}
"""Settings of released models where the configuration alone turns a rule off."""
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}


def names() -> list[str]:
    """Return the folders of models that attend."""
    import transformers.models as models

    files = Path(models.__path__[0]).glob("*/modeling_*.py")
    return sorted({one.parent.name for one in files if ATTENDS.search(one.read_text("utf-8"))})


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
        and MULTIPLIES.search(text.get(name, ""))
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


def small(config: Any) -> dict[str, Any]:
    """Return settings of few layers, and of small pictures."""
    layers = LAYERS if any(map(PATTERNED.search, vars(config))) else ALIKE
    found: dict[str, Any] = {
        name: layers
        for name, value in vars(config).items()
        if MANY.match(name) and type(value) is int and value > layers
    }
    if isinstance(getattr(config, "image_size", None), int) and config.image_size > 448:
        found["image_size"] = 256
    return found


def nothing(_: Any) -> dict[str, Any]:
    """Return no settings."""
    return {}


def other_size(config: Any) -> dict[str, Any]:
    """Return settings with heads of twice the size, or half as many; and with a window of 5."""
    told = vars(config)
    found: dict[str, Any] = {
        name: 5 for name in WINDOWS if isinstance(getattr(config, name, 0) or "", int)
    }
    for name in ("head_dim", "d_kv", "attention_head_dim", "qk_nope_head_dim"):
        if isinstance(told.get(name), int):
            return {**found, name: 2 * told[name]}
    for name, value in told.items():
        name = config.attribute_map.get(name, name)
        if HEADS.match(name) and "size" not in name:
            if type(value) is int and value > 1 and value % 2 == 0:
                found[name] = value // 2
            elif isinstance(value, list | tuple) and all(v % 2 == 0 for v in value):
                found[name] = [v // 2 for v in value]
    return found


def stretched(config: Any, **more: float) -> dict[str, Any]:
    """Return settings with YaRN's longer context, where the model rotates."""
    rotary = getattr(config, "rope_parameters", None) or {}
    kept = {
        name: rotary[name] for name in ("rope_theta", "partial_rotary_factor") if name in rotary
    }
    return {"rope_parameters": {**YARN, **kept, **more}} if "rope_theta" in rotary else {}


def early(config: Any) -> dict[str, Any]:
    """Return settings that let a rule by position start at 4, so that few tokens show it."""
    return {name: 4 for name in FLOORS if hasattr(config, name)}


def nested(change: Callable[[Any], dict[str, Any]], config: Any) -> dict[str, Any]:
    """Return the settings that a change gives, and those that it gives in parts."""
    found = change(config)
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, dict) and (inner := nested(change, part)):
            found[name] = {"model_type": part.model_type, **inner}
    return found


def made(kind: Any, change: Callable[[Any], dict[str, Any]] = nothing) -> Any:
    """Return a new model of a class, its configuration changed; small if that can be."""
    for size in (small, nothing):

        def all_of(config: Any, size: Any = size) -> dict[str, Any]:
            return {**size(config), **RELEASED.get(type(config).__name__, {}), **change(config)}

        try:
            torch.manual_seed(0)
            config = kind.config_class(**nested(all_of, kind.config_class()))
            with Weightless():
                return kind._from_config(config, attn_implementation="eager").eval()
        except Exception as error:
            failed = error
    raise failed


def told(config: Any, *names: str, otherwise: Any) -> Any:
    """Return the first of these settings that a configuration has."""
    return next((getattr(config, one) for one in names if getattr(config, one, None)), otherwise)


def inputs(model: Any) -> Iterator[dict[str, Any]]:
    """Yield what the model may want to read, the likeliest first."""
    wanted = inspect.signature(model.forward).parameters
    config = model.config
    most = min(max(told(config, "vocab_size", otherwise=90), 7), 90)
    ids = torch.randint(5, most, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    size = told(config, "image_size", otherwise=224)
    picture = (
        told(config, "num_channels", "in_channels", otherwise=3),
        *((size, size) if isinstance(size, int) else tuple(size)[:2]),
    )
    film = torch.zeros(1, told(config, "num_frames", otherwise=2), *picture)
    mel = told(config, "num_mel_bins", "input_feat_per_channel", otherwise=80)
    width = told(config, "hidden_size", "d_model", otherwise=64)
    sound = 2 * told(config, "max_source_positions", otherwise=64)
    given = {
        "input_ids": [ids],
        "pixel_values": [torch.zeros(1, *picture), film],
        "pixel_values_videos": [film],
        "input_features": [torch.zeros(1, mel, sound), torch.zeros(1, 128, mel)],
        "input_values": [torch.zeros(1, 16000), torch.zeros(1, 1, 16000)],
        "inputs_embeds": [torch.zeros(1, TOKENS, width)],
        "hidden_states": [torch.zeros(1, TOKENS, width), torch.zeros(TOKENS, width)],
    }
    both = {"decoder_input_ids": ids} if "decoder_input_ids" in wanted else {}
    known = [name for name in given if name in wanted]
    known.sort(key=lambda name: name != model.main_input_name)
    for name in known:
        for value in given[name]:
            if name == "input_ids" and "position_ids" in wanted:
                yield {name: value, "position_ids": torch.tensor([PLACES]), **both}
            yield {name: value, **both}
    if "pixel_values" in known and "input_ids" in known:
        yield {"input_ids": ids, "pixel_values": given["pixel_values"][0], **both}


def start(layer: nn.Module, file: Any, config: Any) -> None:
    """Give a layer the weights that it starts with in a model of its file."""
    for kind in models_of(file)[:1]:
        model = kind.__new__(kind)
        nn.Module.__init__(model)
        model.config = config
        for module in layer.modules():
            model._init_weights(module)


def alone(kind: type[nn.Module], file: Any) -> Iterator[tuple[nn.Module, Callable[[], Any]]]:
    """Yield a layer of attention by itself, and what runs it on tokens, each way that is made."""
    configs: list[Any] = []
    for name in dict.fromkeys(one.config_class for one in models_of(file)):
        whole = name()
        configs += [whole, *(getattr(whole, part, None) for part in whole.sub_configs)]
    configs.sort(key=lambda one: type(one).__name__ not in str(inspect.signature(kind)))
    numbers: tuple[dict[str, Any], ...] = (
        {},
        {"layer_idx": 0},
        {"layer_id": 0},
        {"is_cross_attention": False},
    )
    for config, number in product(filter(None, configs), numbers):
        config._attn_implementation = "eager"
        try:
            with Weightless():
                layer = kind(config, **number).eval()
                start(layer, file, config)
        except Exception:
            continue
        first = next((p for p in layer.parameters() if p.dim() == 2), None)
        width = getattr(config, "hidden_size", 64) if first is None else first.shape[1]
        d = getattr(layer, "head_dim", None) or getattr(config, "head_dim", None) or 64
        turned = torch.ones(1, TOKENS, d), torch.zeros(1, TOKENS, d)
        flat = turned[0][0], turned[1][0]
        takes = inspect.signature(layer.forward).parameters
        for named in (
            {},
            {"attention_mask": None, "position_embeddings": turned},
            {"attention_mask": None},
            {"position_embeddings": flat, "cu_seqlens": torch.tensor([0, TOKENS])},
        ):
            given = {name: value for name, value in named.items() if name in takes}
            x = torch.zeros(TOKENS, width)
            x = x if "cu_seqlens" in given else x[None]
            needed = [
                one.name
                for one in takes.values()
                if one.default is one.empty
                and one.kind is one.POSITIONAL_OR_KEYWORD
                and one.name not in given
            ]
            others = {name: None if "mask" in name else x for name in needed[1:]}
            yield layer, partial(layer, x, **given, **others)


def readers(model: nn.Module) -> list[Any]:
    """Return the model, and those of its parts that are models."""
    from transformers import PreTrainedModel

    return [part for part in model.modules() if isinstance(part, PreTrainedModel)]
