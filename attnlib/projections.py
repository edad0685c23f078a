"""List names in use for layers that make queries and keys, and for the number of heads."""

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

HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")
"""Attributes that hold the number of heads."""


def named(module: object, attribute: str) -> str:
    """Return the string in a module's `attribute`, such as query_projection, or "" without one."""
    name = getattr(module, attribute, "")
    return name if isinstance(name, str) else ""
