"""What a module multiplies q and k by between their projections, or norms, and attention."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from attnlib.projections import FUSED, NORMS, PROJECTIONS

QUERIES, KEYS = (*NORMS, *PROJECTIONS, "q_b_proj"), (*NORMS.values(), *PROJECTIONS.values())
"""What the modules are called whose outputs are the queries and keys, the last of them first."""
SAME = 1e-2
"""Ratios of lengths that differ by less are one number."""


@contextmanager
def outputs_of(
    model: nn.Module, outputs: dict[nn.Module, Tensor] | None = None
) -> Iterator[dict[nn.Module, Tensor]]:
    """Note what the projections and norms of queries and keys give."""
    noted: dict[nn.Module, Tensor] = {} if outputs is None else outputs
    hooks = [
        module.register_forward_hook(lambda part, _, output: noted.__setitem__(part, output))
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in (*QUERIES, *KEYS, *FUSED)
    ]
    try:
        yield noted
    finally:
        for hook in hooks:
            hook.remove()


def multiplied_before(
    module: nn.Module, query: Tensor, key: Tensor, outputs: dict[nn.Module, Tensor]
) -> float | None:
    """Return |q| |k| over the same of what was projected: a rotation leaves lengths alone.

    query, key: (batch, heads, tokens, d). None where no projection fits, or the ratio varies.
    """

    def output_of(names: tuple[str, ...]) -> Tensor | None:
        parts = (getattr(module, name, None) for name in names)
        return next((outputs[part] for part in parts if part in outputs), None)

    def ratio(tensor: Tensor, projected: Tensor) -> float:
        batch, heads, tokens, d = tensor.shape
        if projected.shape != tensor.shape:
            projected = projected.reshape(batch, tokens, heads, d).transpose(1, 2)
        ratios = tensor.double().norm(dim=-1) / projected.double().norm(dim=-1)
        middle = float(ratios.median())
        return middle if bool(((ratios / middle - 1.0).abs() < SAME).all()) else math.nan

    batch, heads, tokens, d = query.shape
    key_heads = key.shape[1]
    q, k, fused = output_of(QUERIES), output_of(KEYS), output_of(FUSED)
    pairs = [] if q is None or k is None else [(q, k)]
    if fused is not None and fused.numel() == batch * tokens * (heads + 2 * key_heads) * d:
        flat = fused.reshape(batch, tokens, heads + 2 * key_heads, d)
        pairs.append((flat[:, :, :heads], flat[:, :, heads : heads + key_heads]))
        if heads == key_heads:  # q, k and v of a head side by side
            by_head = fused.reshape(batch, tokens, heads, 3, d)
            pairs.append((by_head[:, :, :, 0], by_head[:, :, :, 1]))
    for q, k in pairs:
        if q.numel() == query.numel() and k.numel() == key.numel():
            both = ratio(query, q) * ratio(key, k)
            if math.isfinite(both):
                return both
    return None
