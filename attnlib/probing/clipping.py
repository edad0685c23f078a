"""Scale the weights of queries and keys down where a logit was too large: QK-clip."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.models.projections import PROJECTIONS

NORM_NAMES = re.compile(r"(q|k|qk|query|key)_?(norm|ln|layer_?norm)|(norm|ln)_?(q|k)")
"""Names of parts that normalise queries and keys."""

Parts = list[Tensor]
"""Views of weights and biases, each with the axes (heads, size of a head, …)."""


@torch.no_grad()
def clip(model: nn.Module, table: Any, limit: float = 100.0) -> list[tuple[str, int, float]]:
    """Scale the projections of heads whose largest logit is above a limit, in place (QK-clip).

    - `model`: the nn.Module that was measured. It is changed.
    - `table`: what was measured of it, `Report.table()` or one of `Monitor.tables`. Call `clip`
      after the optimiser's step.
    - `limit`: the largest logit allowed, above 0, by default 100.

    Where the largest logit of a head is s > limit, the weights and biases of its queries and of its
    keys are multiplied by √(limit/s) each, so that on the same input its largest logit is the
    limit; other heads stay bitwise as they are. Where several heads share their keys, the keys get
    √(limit/s) of the largest s, and the queries of each head the rest of its factor: a head below
    the limit keeps its logits up to rounding. A rotation by position does not matter, and what a
    mask adds to the logits is not scaled.

    Returns a list of (layer, head, s) for the heads that were clipped.

    It knows nn.MultiheadAttention, GPT-2, and modules whose linear layers of queries and keys have
    names of `attnlib.models.projections`. If a module of your own has one linear layer for queries,
    keys and values, in this order and each head by head, name it in an attribute
    `packed_projection`.

    Raises ValueError with the layer's name, before anything is changed: for an unknown module, for
    one that normalises its queries and keys (smaller weights would change nothing), and for logits
    that are not finite. Also raises TypeError for a `model` that is not an nn.Module
    and a `table` of another kind, ValueError for a limit that is not above 0. Chapter: probe.

    >>> from attnlib.probing import probe
    >>> layer, x = nn.MultiheadAttention(8, 2, batch_first=True), 100.0 * torch.eye(8)[None]
    >>> with probe(layer, theory=False) as report:
    ...     output = layer(x, x, x)
    >>> [head for _, head, largest in clip(layer, report.table())]
    [0, 1]
    """
    _checking.instance("model", model, nn.Module)
    limit = _checking.positive("limit", limit)
    if not hasattr(table, "groupby"):
        raise TypeError(f"table must be one of Report.table(), got {table!r:.80}")
    planned, clipped = [], []
    for layer, lines in table.groupby("layer", sort=False):
        largest = lines.groupby("head")["largest_logit"].max().to_numpy()
        if not np.isfinite(largest).all():
            raise ValueError(f"{layer} has logits that are not finite, and no factor changes that")
        if (largest > limit).any():
            d = int(lines["dimension"].iloc[0])
            planned.append((largest, *_weights_by_head(model, str(layer), len(largest), d)))
            clipped += [(str(layer), i, float(s)) for i, s in enumerate(largest) if s > limit]
    for largest, queries, keys in planned:
        factors = limit / np.maximum(largest, limit)
        groups = factors.reshape(len(keys[0]), -1)
        key_factors = np.sqrt(groups.min(axis=1, keepdims=True))
        _multiply_heads(keys, key_factors.ravel())
        _multiply_heads(queries, (groups / key_factors).ravel())
    return clipped


def _multiply_heads(parts: Parts, factors: FloatArray) -> None:
    """Multiply the weights of each head by its factor, in place; a factor of 1 changes no bit."""
    for part in parts:
        precision = torch.promote_types(part.dtype, torch.float32)
        head_factors = torch.as_tensor(factors, dtype=precision, device=part.device)
        part.mul_(head_factors.reshape(-1, *[1] * (part.ndim - 1)))


def _weights_by_head(model: nn.Module, layer: str, heads: int, size: int) -> tuple[Parts, Parts]:
    """Return weights of queries and keys by head; ValueError if unknown or normalised."""
    modules = dict(model.named_modules())
    module: Any = modules.get(layer, model)
    normalises = any(NORM_NAMES.fullmatch(name) for name, _ in module.named_children())
    options = getattr(module, "options", module)
    if normalises or getattr(options, "normalize_qk", False):
        raise ValueError(
            f"{layer} normalises its queries and keys, so that smaller projections change nothing: "
            "clip its scale, or the weights of its norms"
        )
    sides = _weights(module, heads * size)
    queries, keys = ([_split_heads(t, size) for t in weights] for weights in sides)
    known = queries and keys and len(queries[0]) == heads and len(keys[0])
    if not known or heads % len(keys[0]):
        raise ValueError(
            f"{layer} is a {type(module).__name__}, and which of its weights make {heads} heads of "
            f"queries and keys of size {size} is not known: if one linear layer makes queries, "
            "keys and values, one after the other, give its name in module.packed_projection"
        )
    return queries, keys


def _split_heads(t: Tensor, size: int) -> Tensor:
    """Return a view with the axes (heads, size, …); no heads where `size` does not fit."""
    return t.view(-1, size, *t.shape[1:]) if len(t) % size == 0 else t[:0]


def _weights(module: Any, width: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return weights and biases of queries (`width` outputs) and of keys; empty if unknown."""
    if isinstance(module, nn.MultiheadAttention):
        parameters = {name: t for name, t in module._parameters.items() if t is not None}
        joint = [t for name, t in parameters.items() if name in ("in_proj_weight", "in_proj_bias")]
        queries, keys = [t[:width] for t in joint], [t[width : 2 * width] for t in joint]
        if "q_proj_weight" in parameters:
            queries.append(parameters["q_proj_weight"])
            keys.append(parameters["k_proj_weight"])
        if "bias_k" in parameters:  # a key beside the others
            keys.append(parameters["bias_k"][0, 0])
        return queries, keys
    for query, key in PROJECTIONS.items():
        if hasattr(module, query) and hasattr(module, key):
            return list(_linear(getattr(module, query))), list(_linear(getattr(module, key)))
    packed_name = getattr(module, "packed_projection", "")
    layer = getattr(module, packed_name or "c_attn", None)
    known = packed_name or type(layer).__name__ == "Conv1D"  # other c_attn have another order
    packed = [t for t in _linear(layer) if known and len(t) == 3 * width]
    return [t[:width] for t in packed], [t[width : 2 * width] for t in packed]


def _linear(layer: Any) -> Iterator[Tensor]:
    """Yield the weight, (outputs, inputs), and the bias of a linear layer; nothing for others."""
    transposed = type(layer).__name__ == "Conv1D"
    if not (transposed or isinstance(layer, nn.Linear)):
        return
    weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
    if weight is not None and weight.is_floating_point():
        yield weight.T if transposed else weight
        if bias is not None:
            yield bias
