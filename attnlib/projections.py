"""List names in use for the layers of queries and keys; read the configuration of a layer."""

from collections.abc import Iterable
from typing import Any

PROJECTIONS = {
    "q_proj": "k_proj",
    "query": "key",
    "q_lin": "k_lin",
    "to_q": "to_k",
    "wq": "wk",
    "q": "k",
}
"""Linear layers of queries, and of keys."""

FUSED = ("c_attn", "qkv_proj", "Wqkv", "in_proj", "qkv", "attn_qkv", "query_key_value")
"""Linear layers of queries, keys and values at once."""

NORMS = {
    "q_norm": "k_norm",
    "q_layernorm": "k_layernorm",
    "query_norm": "key_norm",
    "query_layernorm": "key_layernorm",
    "norm_q": "norm_k",
    "q_ln": "k_ln",
}
"""Norms of queries after the projection, and of keys."""

HEADS = (
    "num_heads",
    "num_attention_heads",
    "n_heads",
    "n_head",
    "heads",
    "nhead",
    "head_num",
    "no_heads",
)
"""Attributes that hold the number of heads."""


def named(module: object, attribute: str) -> str:
    """Return the string in a module's `attribute`, such as query_projection, or "" without one."""
    name = getattr(module, attribute, "")
    return name if isinstance(name, str) else ""


def stated_number(names: Iterable[str], *places: object) -> int:
    """Return the first number above 0 that one of the places has under one of the names, or 0."""
    numbers = (getattr(place, name, 0) for place in places for name in names)
    return next((number for number in numbers if type(number) is int and number > 0), 0)


def layer_config(module: object) -> Any:
    """Return the model's configuration, or the layer's own where layers differ; else None."""
    config: Any = getattr(module, "config", None)
    number = getattr(module, "layer_idx", None)
    if not getattr(config, "is_heterogeneous", False):
        return config
    return config.per_layer_config[number] if isinstance(number, int) else None
