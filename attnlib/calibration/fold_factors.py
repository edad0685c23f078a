"""Build factors into a model: into the weights that make its queries, or by its registry."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlib import interception
from attnlib._checking import FloatArray
from attnlib.attention.registered import eager_attention, is_causal_call
from attnlib.calibration.from_gradients import PACKED, QUERIES
from attnlib.calibration.logit_factors import Place, keys_seen, scale_logits
from attnlib.calibration.passes import Loss
from attnlib.projections import NORMS, named

WEIGHTS = ("q_proj_weight", "in_proj_weight")
"""Names of the weights that make queries in nn.MultiheadAttention."""

TOLERANCE = 1e-4
"""How far queries may be from the intended ones, relative to the largest."""

ORDERS = ("norm", "queries first", "by key")
"""Where factors go: into the norms, or into projections whose rows are all queries, all keys, all
values, or by key head its queries, its key, its value."""


@dataclass
class Applied:
    """Hold what was changed in a model. `undo` restores it to the byte."""

    folded: list[str]
    """Layers whose weights were multiplied."""
    registered: str | None = None
    """The name of the function of attention that the model has now, where it has a new one."""
    _changes: ExitStack = field(default_factory=ExitStack, repr=False)

    @torch.no_grad()
    def undo(self) -> None:
        """Restore the model's bytes, and its function of attention."""
        self._changes.close()


def fold(model: nn.Module, factors: dict[str, FloatArray], text: Any, loss: Loss) -> Applied | None:
    """Multiply weights that make queries by factors, one for each head of each layer.

    A projection is multiplied, alone or packed with keys and values in either order, or the gains
    of a norm that follows it. Rotary positions and grouped queries keep that exact. On `text` the
    queries and the loss are compared with the intended ones. Where these differ in every way that
    is tried, the model is as it was, and None is returned.
    """
    scaled, expected = _queries(model, text, loss, factors)
    sizes = {place.layer: place.d for place in scaled}
    for order in ORDERS:
        done = Applied([])
        for layer, factor in factors.items():
            changes = _changes(model, layer, factor, sizes[layer], order)
            if not changes:
                break
            with torch.no_grad():
                for tensor, times in changes:
                    done._changes.callback(tensor.copy_, tensor.clone())
                    tensor.mul_(times.reshape(-1, *[1] * (tensor.ndim - 1)))
            done.folded.append(layer)
        else:
            folded, value = _queries(model, text, loss, {})
            alike = all(
                bool((folded[place] - query).abs().max() <= TOLERANCE * query.abs().max())
                for place, query in scaled.items()
            )
            if alike and abs(value - expected) <= TOLERANCE * abs(expected):
                return done
        done.undo()
    return None


def _queries(
    model: nn.Module, text: Any, loss: Loss, factors: dict[str, FloatArray]
) -> tuple[dict[Place, Tensor], float]:
    """Return each call's queries times the factors of its layer, by default 1, and the loss."""
    queries: dict[Place, Tensor] = {}

    def factor(place: Place, query: Tensor, _: Tensor) -> Tensor:
        given = factors.get(place.layer, np.ones(place.heads))
        times = torch.from_numpy(given[:, None]).to(query)
        queries[place] = (query * times.unsqueeze(-1)).detach()
        return times

    with torch.no_grad(), scale_logits(model, factor):
        return queries, float(loss(model, text))


def _changes(
    model: nn.Module, layer: str, factor: FloatArray, size: int, order: str
) -> list[tuple[Tensor, Tensor]]:
    """Return what makes a layer's queries, each tensor with its rows' factors; [] if unknown."""
    for around in interception.around(layer):  # a part of a module may attend for it
        module: Any = model.get_submodule(around)
        own = [named(module, name) for name in ("packed_projection", "query_projection")]
        names = NORMS if order == "norm" else (*own, *QUERIES, *WEIGHTS, *PACKED)
        parts = (getattr(module, name, None) for name in names)
        made: Any = next((part for part in parts if part is not None), None)
        if made is None:
            continue
        if isinstance(made, Tensor):  # nn.MultiheadAttention
            given = [made, module.in_proj_bias]
        else:
            given = [getattr(made, name, None) for name in ("weight", "bias")]
        tensors = [entry for entry in given if isinstance(entry, Tensor)]
        if type(made).__name__ == "Conv1D":
            tensors[0] = tensors[0].T
        times = [_times(factor, entry.shape[0], size, order) for entry in tensors]
        return [
            (tensor, torch.from_numpy(each).to(tensor))
            for tensor, each in zip(tensors, times, strict=True)
            if each is not None
        ]
    return []


def _times(factor: FloatArray, channels: int, size: int, order: str) -> FloatArray | None:
    """Return the factor of each channel, with queries in that `order`; None if they do not fit."""
    heads, number = factor.size, channels // size
    if order == "norm" and number < heads:  # of all heads
        return None if np.ptp(factor) else np.full(channels, factor[0])
    if number < heads or channels % size:
        return None
    times = np.ones(number)
    groups = (number - heads) // 2
    if number == heads or order != "by key":
        times[:heads] = factor
    elif groups < 1 or heads % groups:
        return None
    else:
        times.reshape(groups, -1)[:, :-2] = factor.reshape(groups, -1)
    return np.repeat(times, size)


def registered(model: Any, factor: Callable[[str, FloatArray], FloatArray], name: str) -> Applied:
    """Give a model of transformers a function of attention that multiplies logits by factors.

    `factor(layer, n)` is over (…, heads, queries). The function calls the one that was before it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    before = model.config._attn_implementation
    functions, masks = AttentionInterface(), AttentionMaskInterface()
    names = {id(part): layer for layer, part in model.named_modules()}

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, **rest: Any
    ) -> Any:
        causal = is_causal_call(module, query, mask, rest.get("is_causal"))
        keys = keys_seen(query, key, mask, causal)
        times = factor(names[id(module)], keys.double().cpu().numpy())
        query = query * torch.from_numpy(times).to(query).unsqueeze(-1)
        own = functions.get_interface(before, eager_attention(type(module)))
        return own(module, query, key, value, mask, **rest)

    AttentionInterface.register(name, attend)
    if before in masks:
        AttentionMaskInterface.register(name, masks[before])
    model.set_attn_implementation(name)
    done = Applied([], name)
    done._changes.callback(model.set_attn_implementation, before)
    return done
