"""Measure what a module multiplies q and k by between their projections and attention.

Parts are not known by their names: the length of a query is one number times that of its
projection, in every head and token, since a rotation leaves lengths alone; chance does not do this.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

SAME = 1e-2
"""Ratios of lengths that differ by less are one number."""
Outputs = dict[nn.Module, list[Tensor]]


@contextmanager
def keep_outputs(model: nn.Module, outputs: Outputs | None = None) -> Iterator[Outputs]:
    """Keep the outputs of a model's leaf modules inside the context; yield them by module.

    They are added to `outputs` if given.
    """
    kept: Outputs = {} if outputs is None else outputs

    def keep(part: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor) and output.is_floating_point():
            kept.setdefault(part, []).append(output.detach())

    with ExitStack() as hooks:
        for part in model.modules():
            if next(part.children(), None) is None:
                hooks.enter_context(part.register_forward_hook(keep))
        yield kept


class Preparation(NamedTuple):
    """Hold what a module did to q and k between their projections and attention."""

    factor: float | None = None
    """|q| |k| over that of the projections' outputs, or their norms'; None if not one number."""
    rotated: bool = False
    """Whether q, as far as it is known, is not that output times one number."""
    unnormed: str = ""
    """Which of q and k ("q and k") are their projections times one number: without a norm."""


def preparation_of(module: nn.Module, query: Tensor, key: Tensor, outputs: Outputs) -> Preparation:
    """Return what was done to q and k, (batch, heads, tokens, d) or with the first two joined."""
    q, k = (_constant_ratio(module, tensor, outputs, norms=True) for tensor in (query, key))
    unnormed = " and ".join(
        name
        for name, tensor in (("q", query), ("k", key))
        if _constant_ratio(module, tensor, outputs, norms=False)
    )
    if q is None or k is None:
        return Preparation(unnormed=unnormed)
    (q_factor, projected), (k_factor, _) = q, k
    difference = float((query - q_factor * projected).abs().max() / query.abs().max())
    return Preparation(q_factor * k_factor, difference > 2.0 * SAME, unnormed)


def _constant_ratio(
    module: nn.Module, tensor: Tensor, outputs: Outputs, norms: bool
) -> tuple[float, Tensor] | None:
    """Return the ratio of lengths to a part's output, and that output, if it is one number.

    Outputs of norms count only with `norms`, which allows more difference. None without such a
    part.
    """
    tolerance = SAME if norms else 64.0 * torch.finfo(tensor.dtype).eps
    for ratios, projected in _length_ratios(module, tensor, outputs, norms):
        known = ratios[~ratios.isnan()]
        middle = float(known.median())
        if len(known) and bool(((known / middle - 1.0).abs() < tolerance).all()):
            return middle, projected
    return None


def factors_by_token(module: nn.Module, query: Tensor, outputs: Outputs) -> Tensor | None:
    """Return q's length over its projection's, (tokens,), if all heads agree; else None."""
    for ratios, _ in _length_ratios(module, query, outputs, norms=False):
        by_head = ratios.flatten(0, -2)
        if len(by_head) > 1 and bool(((by_head / by_head[0] - 1.0).abs() < SAME).all()):
            return by_head[0]
    return None


def _length_ratios(
    module: nn.Module, tensor: Tensor, outputs: Outputs, norms: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the ratios of lengths, without the last axis, to each output that may be `tensor`."""
    lengths = tensor.detach().double().norm(dim=-1)
    for part in module.modules():
        if norms or "norm" not in type(part).__name__.lower():
            for output in reversed(outputs.get(part, [])):
                for projected in _candidates(output, tensor.shape):
                    yield lengths / projected.double().norm(dim=-1), projected


def _candidates(output: Tensor, shape: torch.Size) -> Iterator[Tensor]:
    """Yield the parts of an output that may be q or k, which may stand side by side in it.

    shape: of these parts, (batch, heads, tokens, d) or (batch · heads, tokens, d).
    """
    if output.shape == shape:
        yield output
    *several, tokens, d = shape
    batch = several[0] if len(several) == 2 else output.shape[0] if output.dim() > 2 else 1
    heads = math.prod(several) // batch
    if not heads or math.prod(several) % batch or output.numel() % (batch * tokens * d):
        return
    slots = output.numel() // (batch * tokens * d)
    by_slot = output.reshape(batch, tokens, slots, d)
    for first in range(0, slots - heads + 1, heads):
        yield by_slot[:, :, first : first + heads].transpose(1, 2).reshape(shape)
    if heads > 1 and slots > heads and slots % heads == 0:
        by_head = by_slot.reshape(batch, tokens, heads, slots // heads, d)
        yield from (part.transpose(1, 2).reshape(shape) for part in by_head.unbind(3))
