"""Factors put into a model: into the weights that make its queries, or into its registry."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlib.attention.registered import eager_attention
from attnlib.calibration.multiplied import Place, is_causal, keys_seen, multiplied
from attnlib.calibration.passes import Loss
from attnlib.checking import FloatArray
from attnlib.projections import FUSED, NORMS, PROJECTIONS

WEIGHTS = ("q_proj_weight", "in_proj_weight")
"""Of nn.MultiheadAttention: what makes the queries, or its first third does."""

TOLERANCE = 1e-4
"""How far queries may be from those that are meant, relative to the largest."""

Change = Callable[[], None]


@dataclass
class Applied:
    """What was changed in a model. `undo` gives it back the same bytes."""

    folded: list[str]
    """Layers whose weights were multiplied."""
    registered: str | None = None
    """The name of the function of attention that the model has now, where it has a new one."""
    before: str | None = None
    _kept: list[tuple[Tensor, Tensor]] = field(default_factory=list, repr=False)
    _model: Any = field(default=None, repr=False)

    def undo(self) -> None:
        """Undo it."""
        with torch.no_grad():
            for tensor, copy in self._kept:
                tensor.copy_(copy)
        if self.registered is not None:
            self._model.set_attn_implementation(self.before)


def fold(model: nn.Module, factors: dict[str, FloatArray], text: Any, loss: Loss) -> Applied | None:
    """Multiply weights that make queries by factors, one for each head of each layer.

    A projection is multiplied, or the gains of a norm that follows it. Rotary positions and grouped
    queries keep that exact. What was meant is compared with the queries that come out of a text;
    None, and the model is as it was, where they differ.
    """
    meant = _queries(model, text, loss, factors)
    for norms in (True, False):
        done = Applied([])
        for layer, factor in factors.items():
            changed = _change(model.get_submodule(layer), factor, norms)
            if changed is None:
                break
            tensors, multiply = changed
            done._kept += [(tensor, tensor.detach().clone()) for tensor in tensors]
            with torch.no_grad():
                multiply()
            done.folded.append(layer)
        else:
            if _alike(meant, _queries(model, text, loss, {})):
                return done
        done.undo()
    return None


def _queries(
    model: nn.Module, text: Any, loss: Loss, factors: dict[str, FloatArray]
) -> dict[Place, Tensor]:
    """Return the queries of each call times their factors."""
    found: dict[Place, Tensor] = {}

    def factor(place: Place, query: Tensor, _: Tensor) -> Tensor:
        given = factors.get(place.layer, np.ones(place.heads))
        times = torch.from_numpy(given[:, None]).to(query)
        found[place] = (query * times.unsqueeze(-1)).detach()
        return times

    with torch.no_grad(), multiplied(model, factor):
        loss(model, text)
    return found


def _alike(meant: dict[Place, Tensor], found: dict[Place, Tensor]) -> bool:
    return all(
        bool((found[place] - query).abs().max() <= TOLERANCE * query.abs().max())
        for place, query in meant.items()
    )


def _change(module: Any, factor: FloatArray, norms: bool) -> tuple[list[Tensor], Change] | None:
    """Return the tensors that make queries and what multiplies them, or None."""
    heads = factor.size
    if norms:
        gain = next((getattr(module, name) for name in NORMS if hasattr(module, name)), None)
        weight = getattr(gain, "weight", None)
        if not isinstance(weight, Tensor):
            return None
        return _rows([weight], factor if np.ptp(factor) else factor[:1])
    for name in (*PROJECTIONS, *WEIGHTS, *FUSED):
        made = getattr(module, name, None)
        if isinstance(made, Tensor):  # nn.MultiheadAttention
            part = made[: int(module.embed_dim)]
            packed: Any = module.in_proj_bias
            rows = [part] if packed is None else [part, packed[: int(module.embed_dim)]]
            return _rows(rows, factor)
        weight, bias = getattr(made, "weight", None), getattr(made, "bias", None)
        if not isinstance(weight, Tensor):
            continue
        if type(made).__name__ == "Conv1D":
            weight = weight.T
        rows = [weight] if bias is None else [weight, bias]
        if name in FUSED:
            size = getattr(module, "head_dim", None) or weight.shape[0] // (3 * heads)
            rows = [one[: heads * size] for one in rows]
        return _rows(rows, factor)
    return None


def _rows(tensors: list[Tensor], factor: FloatArray) -> tuple[list[Tensor], Change] | None:
    """Return what multiplies the rows of each head."""
    if any(tensor.shape[0] % factor.size for tensor in tensors):
        return None

    def multiply() -> None:
        for tensor in tensors:
            times = (
                torch.from_numpy(factor)
                .to(tensor)
                .repeat_interleave(tensor.shape[0] // factor.size)
            )
            tensor.mul_(times.reshape(-1, *[1] * (tensor.ndim - 1)))

    return tensors, multiply


def registered(model: Any, factor: Callable[[str, FloatArray], FloatArray], name: str) -> Applied:
    """Give a model of transformers a function of attention whose logits are times the factors.

    `factor(layer, n)` is over (…, heads, queries). What computes attention is what did before.
    """
    if not hasattr(model, "set_attn_implementation"):
        raise ValueError(
            f"{type(model).__name__} is not of transformers: only factors that do not depend on n, "
            "which its weights can take, can be put into it"
        )
    from transformers import AttentionInterface, AttentionMaskInterface

    before = model.config._attn_implementation
    functions, masks = AttentionInterface(), AttentionMaskInterface()
    names = {id(part): layer for layer, part in model.named_modules()}

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, **rest: Any
    ) -> Any:
        causal = is_causal(module, query, mask, rest.get("is_causal"))
        keys = keys_seen(query, key, mask, causal)
        times = factor(names[id(module)], keys.double().cpu().numpy())
        query = query * torch.from_numpy(times).to(query).unsqueeze(-1)
        own = functions.get_interface(before, eager_attention(type(module)))
        return own(module, query, key, value, mask, **rest)

    AttentionInterface.register(name, attend)
    if before in masks:
        AttentionMaskInterface.register(name, masks[before])
    model.set_attn_implementation(name)
    return Applied([], name, before, _model=model)
