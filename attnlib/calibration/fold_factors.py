"""Put factors into a model: into the weights that make its queries, or into its attention."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlib._checking import FloatArray
from attnlib.calibration.from_gradients import PACKED, QUERIES
from attnlib.calibration.logit_factors import Place, count_keys, scale_logits
from attnlib.calibration.passes import Loss
from attnlib.models import interception
from attnlib.models.attention_interface import (
    function_of,
    implementation_in_use,
    is_causal_call,
    register_function,
)
from attnlib.models.projections import NORMS, declared_name

MULTI_HEAD_WEIGHTS = ("q_proj_weight", "in_proj_weight")
"""Names of the weights that make queries in nn.MultiheadAttention."""

TOLERANCE = 1e-4
"""Largest distance of queries from the intended ones, relative to the largest query."""

ORDERS = ("norm", "queries first", "by key")
"""Where factors go: into norms of queries; into projections whose rows are all queries, then all
keys, then all values; or into those whose rows are queries, key and value of each key head."""


@dataclass
class Applied:
    """Hold the changes of a model. `undo` restores it to the byte."""

    folded: list[str]
    """Layers whose weights were multiplied."""
    registered: str | None = None
    """The name of the function of attention that the model has now, where it has a new one."""
    _changes: ExitStack = field(default_factory=ExitStack, repr=False)

    @torch.no_grad()
    def undo(self) -> None:
        """Restore the model's bytes, and its function of attention."""
        self._changes.close()


def check_sizes(
    model: nn.Module, fitted: dict[str, tuple[int, int]], text: Any, loss: Loss
) -> None:
    """Raise ValueError unless the model's layers have the heads and the d that were fitted."""
    found: dict[str, tuple[int, int]] = {}
    for place in _scaled_queries(model, text, loss, {})[0]:
        found[place.layer] = max(found.get(place.layer, (0, 0)), (place.heads, place.d))
    for layer in {**fitted, **found}:
        if fitted.get(layer) != found.get(layer):
            had, has = (
                "{} heads of {}".format(*sizes[layer]) if layer in sizes else "no attention"
                for sizes in (fitted, found)
            )
            raise ValueError(
                f"model must be the one that was fitted, with {had} in its layer {layer!r}, "
                f"got a {type(model).__name__} with {has} there"
            )


def fold(model: nn.Module, factors: dict[str, FloatArray], text: Any, loss: Loss) -> Applied | None:
    """Multiply the weights that make queries by factors, one for each head of each layer.

    The weights are those of a projection, alone or packed with keys and values in either order, or
    the gains of a norm after it. Rotary positions and grouped queries keep that exact. On `text`
    queries and loss are compared with the intended ones. If they differ for all of `ORDERS`, the
    model is left as it was, and the result is None.
    """
    expected_queries, expected_loss = _scaled_queries(model, text, loss, factors)
    sizes = {place.layer: place.d for place in expected_queries}
    for order in ORDERS:
        applied = Applied([])
        for layer, factor in factors.items():
            changes = _channel_factors(model, layer, factor, sizes[layer], order)
            if not changes:
                break
            with torch.no_grad():
                for tensor, channel_factors in changes:
                    applied._changes.callback(tensor.copy_, tensor.clone())
                    tensor.mul_(channel_factors.reshape(-1, *[1] * (tensor.ndim - 1)))
            applied.folded.append(layer)
        else:
            folded_queries, folded_loss = _scaled_queries(model, text, loss, {})
            alike = all(
                bool((folded_queries[place] - query).abs().max() <= TOLERANCE * query.abs().max())
                for place, query in expected_queries.items()
            )
            if alike and abs(folded_loss - expected_loss) <= TOLERANCE * abs(expected_loss):
                return applied
        applied.undo()
    return None


def _scaled_queries(
    model: nn.Module, text: Any, loss: Loss, factors: dict[str, FloatArray]
) -> tuple[dict[Place, Tensor], float]:
    """Return the queries of each call times their layer's factors, by default 1, and the loss."""
    queries: dict[Place, Tensor] = {}

    def factor(place: Place, query: Tensor, _: Tensor) -> Tensor:
        layer_factors = factors.get(place.layer, np.ones(place.heads))
        head_factors = torch.from_numpy(layer_factors[:, None]).to(query)
        queries[place] = (query * head_factors.unsqueeze(-1)).detach()
        return head_factors

    with torch.no_grad(), scale_logits(model, factor):
        return queries, float(loss(model, text))


def _channel_factors(
    model: nn.Module, layer: str, factor: FloatArray, size: int, order: str
) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors that make a layer's queries, each with its rows' factors; [] if unknown.

    `factor` is (heads,), `size` is d.
    """
    for around in interception.ancestry(layer):  # a part of a module may attend for it
        module: Any = model.get_submodule(around)
        stated = [declared_name(module, name) for name in ("packed_projection", "query_projection")]
        names = NORMS if order == "norm" else (*stated, *QUERIES, *MULTI_HEAD_WEIGHTS, *PACKED)
        parts = (getattr(module, name, None) for name in names)
        projection: Any = next((part for part in parts if part is not None), None)
        if projection is None:
            continue
        if isinstance(projection, Tensor):  # nn.MultiheadAttention
            candidates = [projection, module.in_proj_bias]
        else:
            candidates = [getattr(projection, name, None) for name in ("weight", "bias")]
        tensors = [entry for entry in candidates if isinstance(entry, Tensor)]
        if type(projection).__name__ == "Conv1D":
            tensors[0] = tensors[0].T
        factors = [_ordered(factor, entry.shape[0], size, order) for entry in tensors]
        return [
            (tensor, torch.from_numpy(channel_factor).to(tensor))
            for tensor, channel_factor in zip(tensors, factors, strict=True)
            if channel_factor is not None
        ]
    return []


def _ordered(factor: FloatArray, channels: int, size: int, order: str) -> FloatArray | None:
    """Return the factor of each channel, (channels,), by `order`; None if heads do not fit."""
    heads, slots = factor.size, channels // size
    if order == "norm" and slots < heads:  # of all heads
        return None if np.ptp(factor) else np.full(channels, factor[0])
    if slots < heads or channels % size:
        return None
    factors = np.ones(slots)
    groups = (slots - heads) // 2
    if slots == heads or order != "by key":
        factors[:heads] = factor
    elif groups < 1 or heads % groups:
        return None
    else:
        factors.reshape(groups, -1)[:, :-2] = factor.reshape(groups, -1)
    return np.repeat(factors, size)


def register_factors(
    model: Any, factor: Callable[[str, FloatArray], FloatArray], name: str
) -> Applied:
    """Give a model of transformers a function of attention that multiplies logits by factors.

    `factor(layer, n)` returns the factors, (…, heads, queries), for n of that shape, heads being 1
    or all. The new function calls the one that the model had before.
    """
    before, mask_function = implementation_in_use(model)
    names = {id(part): layer for layer, part in model.named_modules()}

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, **rest: Any
    ) -> Any:
        causal = is_causal_call(module, query, mask, rest.get("is_causal"))
        keys = count_keys(query, key, mask, causal)
        factors = factor(names[id(module)], keys.double().cpu().numpy())
        query = query * torch.from_numpy(factors).to(query).unsqueeze(-1)
        return function_of(before, module)(module, query, key, value, mask, **rest)

    register_function(name, attend, mask_function)
    model.set_attn_implementation(name)
    applied = Applied([], name)
    applied._changes.callback(model.set_attn_implementation, before)
    return applied
