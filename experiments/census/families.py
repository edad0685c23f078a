"""The families of transformers, made small: few layers, and weights that take no memory."""

import importlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, models

from attnlib.models.interception import LOOKS_LIKE_ATTENTION
from experiments.census.watched import Weightless

TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PLACES = TABLE["places"]
TOKENS = len(PLACES)
LAYERS, ALIKE = 6, 2
"""At most so many where layers come in a pattern, five with a window and one without, or not."""
MANY = re.compile(r"(num_\w*layers|\w*(en|de)coder_layers|depth|num_blocks|n_layers?)$")
PATTERNED = re.compile("layer_types|no_rope|sliding_window|interval")
HEADS = re.compile(r"(num_|n_|encoder_|decoder_)?(\w*attention_heads|\w*heads?|n_head)$")
ATTENDS = re.compile(r"[sS]oftmax\(|ALL_ATTENTION_FUNCTIONS|scaled_dot_product_attention")
MULTIPLIES = re.compile(r"matmul\(|bmm\(|einsum\(|baddbmm| @ |ALL_ATTENTION_|scaled_dot")
Settings = dict[str, Any]
Change = Callable[[Any], Settings]


def names() -> list[str]:
    """Return the families of transformers that attend: the names of their folders."""
    files = Path(models.__path__[0]).glob("*/modeling_*.py")
    return sorted({file.parent.name for file in files if ATTENDS.search(file.read_text("utf-8"))})


def files(family: str) -> list[Any]:
    """Return the modules of a family that define its models."""
    paths = sorted(Path(models.__path__[0], family).glob("modeling_*.py"))
    return [importlib.import_module(f"{models.__name__}.{family}.{path.stem}") for path in paths]


@cache
def class_sources(file: str) -> dict[str, str]:
    """Return the text of each class in a file, by name."""
    parts = re.split(r"^class (\w+)", Path(file).read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def classes_of(file: Any, base: type) -> list[Any]:
    """Return the classes in a file that derive from `base`."""
    return [x for x in vars(file).values() if isinstance(x, type) and issubclass(x, base)]


def attention_of(file: Any) -> list[type[nn.Module]]:
    """Return the layers of a file that write attention out, or take it from the registry."""
    text = class_sources(file.__file__)
    return [
        kind
        for kind in classes_of(file, nn.Module)
        if not issubclass(kind, PreTrainedModel)
        and ATTENDS.search(text.get(kind.__name__, ""))
        and MULTIPLIES.search(text.get(kind.__name__, ""))
        and LOOKS_LIKE_ATTENTION.search(kind.__name__)
    ]


def models_of(file: Any) -> list[Any]:
    """Return a file's models, the plain ones first."""
    kinds = [
        kind
        for kind in classes_of(file, PreTrainedModel)
        if kind.__module__ == file.__name__
        and kind.config_class is not None
        and not kind.__name__.endswith("PreTrainedModel")
    ]
    return sorted(kinds, key=lambda kind: not kind.__name__.endswith("Model"))


def small_settings(config: Any) -> Settings:
    """Return settings of few layers, and of small pictures."""
    layers = LAYERS if any(map(PATTERNED.search, vars(config))) else ALIKE
    settings: Settings = {
        name: layers
        for name, value in vars(config).items()
        if MANY.match(name) and type(value) is int and value > layers
    }
    if isinstance(getattr(config, "image_size", None), int) and config.image_size > 448:
        settings["image_size"] = 256
    return settings


def no_settings(_: Any) -> Settings:
    """Return no settings."""
    return {}


def other_size(config: Any) -> Settings:
    """Return settings with heads of twice the size, or half as many; and with a window of 5."""
    settings: Settings = {
        name: 5 for name in TABLE["windows"] if isinstance(getattr(config, name, 0) or "", int)
    }
    for name in TABLE["sizes"]:
        if isinstance(vars(config).get(name), int):
            return {**settings, name: 2 * vars(config)[name]}
    for name, value in vars(config).items():
        name = config.attribute_map.get(name, name)
        if HEADS.match(name) and "size" not in name:
            if type(value) is int and value > 1 and value % 2 == 0:
                settings[name] = value // 2
            elif isinstance(value, list | tuple) and all(v % 2 == 0 for v in value):
                settings[name] = [v // 2 for v in value]
    return settings


def yarn_settings(config: Any, **more: float) -> Settings:
    """Return settings with YaRN's longer context, where the model rotates."""
    rotary = getattr(config, "rope_parameters", None) or {}
    rope = {k: rotary[k] for k in ("rope_theta", "partial_rotary_factor") if k in rotary}
    return {"rope_parameters": {**TABLE["yarn"], **rope, **more}} if "rope_theta" in rotary else {}


def early_settings(config: Any) -> Settings:
    """Return settings that let a rule by position start at 4, so that few tokens show it."""
    return {name: 4 for name in TABLE["floors"] if hasattr(config, name)}


def change_all(change: Change, config: Any) -> Settings:
    """Return the settings of a change for a configuration, and for each configuration within it."""
    settings = change(config)
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, dict) and (inner := change_all(change, part)):
            settings[name] = {"model_type": part.model_type, **inner}
    return settings


def build_model(kind: Any, change: Change = no_settings) -> Any:
    """Return a new model of a class, its configuration changed; small if possible."""
    for size in (small_settings, no_settings):

        def all_of(config: Any, size: Change = size) -> Settings:
            released = TABLE["released"].get(type(config).__name__, {})
            return {**size(config), **released, **change(config)}

        try:
            torch.manual_seed(0)
            config = kind.config_class(**change_all(all_of, kind.config_class()))
            with Weightless():
                return kind._from_config(config, attn_implementation="eager").eval()
        except Exception as error:
            failed = error
    raise failed


def model_parts(model: nn.Module) -> list[Any]:
    """Return the model, and its parts that are models too."""
    return [part for part in model.modules() if isinstance(part, PreTrainedModel)]


def inputs(model: Any) -> Iterator[dict[str, Tensor]]:
    """Yield possible inputs of the model, the likeliest first."""

    def setting(*names: str, otherwise: Any) -> Any:
        values = (getattr(model.config, name, None) for name in names)
        return next(filter(None, values), otherwise)

    parameters = inspect.signature(model.forward).parameters
    most = min(max(setting("vocab_size", otherwise=90), 7), 90)
    ids = torch.randint(5, most, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    size = setting("image_size", otherwise=224)
    sides = (size, size) if isinstance(size, int) else tuple(size)[:2]
    picture = (setting("num_channels", "in_channels", otherwise=3), *sides)
    film = (setting("num_frames", otherwise=2), *picture)
    mel = setting("num_mel_bins", "input_feat_per_channel", otherwise=80)
    width = setting("hidden_size", "d_model", otherwise=64)
    sound = 2 * setting("max_source_positions", otherwise=64)
    shapes: dict[str, list[Any]] = {
        "input_ids": [ids.shape],
        "pixel_values": [(1, *picture), (1, *film)],
        "pixel_values_videos": [(1, *film)],
        "input_features": [(1, mel, sound), (1, 128, mel)],
        "input_values": [(1, 16000), (1, 1, 16000), (1, setting("max_length", otherwise=64), mel)],
        "inputs_embeds": [(1, TOKENS, width)],
        "hidden_states": [(1, TOKENS, width), (TOKENS, width)],
    }
    decoder = {"decoder_input_ids": ids} if "decoder_input_ids" in parameters else {}
    known = [name for name in shapes if name in parameters]
    for name in sorted(known, key=lambda name: name != model.main_input_name):
        for shape in shapes[name]:
            tensors = {name: ids if name == "input_ids" else torch.zeros(shape), **decoder}
            if name == "input_ids" and "position_ids" in parameters:
                yield {**tensors, "position_ids": torch.tensor([PLACES])}
            yield tensors
    if "pixel_values" in known and "input_ids" in known:
        yield {"input_ids": ids, "pixel_values": torch.zeros(1, *picture), **decoder}


def build_layers(kind: type[nn.Module], file: Any) -> Iterator[tuple[nn.Module, Callable[[], Any]]]:
    """Yield layers of attention by themselves, each with a call on tokens, as they can be built."""
    of_models = models_of(file)
    configs: list[Any] = []
    for name in dict.fromkeys(model.config_class for model in of_models):
        whole = name()
        configs += [whole, *(getattr(whole, part, None) for part in whole.sub_configs)]
    configs.sort(key=lambda config: type(config).__name__ not in str(inspect.signature(kind)))
    for config, number in product(filter(None, configs), TABLE["numbers"]):
        config._attn_implementation = "eager"
        try:
            with Weightless():
                layer = kind(config, **number).eval()
                initialise(layer, of_models[0], config)
        except Exception:
            continue
        yield from ((layer, partial(layer, **kwargs)) for kwargs in layer_inputs(layer, config))


def initialise(layer: nn.Module, kind: Any, config: Any) -> None:
    """Give a layer the initial weights that it has in a model of a class."""
    model = kind.__new__(kind)
    nn.Module.__init__(model)
    model.config = config
    for module in layer.modules():
        model._init_weights(module)


def layer_inputs(layer: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    """Yield possible inputs of a layer of attention."""
    first = next((weight for weight in layer.parameters() if weight.dim() == 2), None)
    width = getattr(config, "hidden_size", 64) if first is None else first.shape[1]
    d = getattr(layer, "head_dim", None) or getattr(config, "head_dim", None) or 64
    flat = torch.ones(TOKENS, d), torch.zeros(TOKENS, d)
    turned = flat[0][None], flat[1][None]
    takes = inspect.signature(layer.forward).parameters
    [read, *others] = [
        name
        for i, (name, p) in enumerate(takes.items())
        if i == 0 or (p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)
    ]
    for named in (
        {},
        {"attention_mask": None, "position_embeddings": turned},
        {"attention_mask": None},
        {"position_embeddings": flat, "cu_seqlens": torch.tensor([0, TOKENS])},
    ):
        kwargs = {name: value for name, value in named.items() if name in takes}
        x = torch.zeros(TOKENS, width) if "cu_seqlens" in kwargs else torch.zeros(1, TOKENS, width)
        yield {read: x} | {name: None if "mask" in name else x for name in others} | kwargs
