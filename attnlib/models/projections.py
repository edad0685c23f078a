"""List names in use for the layers of queries and keys, and read numbers and names of modules."""

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
"""Linear layers of queries, with those of keys."""

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
"""Norms of queries after their projection, with those of keys."""

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
"""Attributes with the number of heads."""


def declared_name(module: object, attribute: str) -> str:
    """Return the name that a module declares in `attribute`, such as query_projection, or ""."""
    name = getattr(module, attribute, "")
    return name if isinstance(name, str) else ""


def stated_number(names: Iterable[str], *owners: object) -> int:
    """Return the first whole number above 0 that an owner has under one of the names, or 0."""
    numbers = (getattr(owner, name, 0) for owner in owners for name in names)
    return next((number for number in numbers if type(number) is int and number > 0), 0)


def layer_config(module: object) -> Any:
    """Return a module's configuration: the layer's if layers differ, else the model's, or None."""
    config: Any = getattr(module, "config", None)
    number = getattr(module, "layer_idx", None)
    if not getattr(config, "is_heterogeneous", False):
        return config
    return config.per_layer_config[number] if isinstance(number, int) else None
