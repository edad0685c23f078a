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
def outputs_of(model: nn.Module, outputs: Outputs | None = None) -> Iterator[Outputs]:
    """Keep the outputs of a model's leaf modules inside the context; yield them by module."""
    noted: Outputs = {} if outputs is None else outputs

    def note(part: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor) and output.is_floating_point():
            noted.setdefault(part, []).append(output.detach())

    with ExitStack() as hooks:
        for part in model.modules():
            if next(part.children(), None) is None:
                hooks.enter_context(part.register_forward_hook(note))
        yield noted


class Before(NamedTuple):
    """Hold what was done to q and k before attention."""

    times: float | None = None
    """|q| |k| over that of the projections' outputs, or their norms'; None if not one number."""
    turned: bool = False
    """Whether q, as far as it is known, is not that output times one number: it was rotated."""
    kept: str = ""
    """Which of q and k ("q and k") are their projections times one number: without a norm."""


def before_attention(module: nn.Module, query: Tensor, key: Tensor, outputs: Outputs) -> Before:
    """Return what was done to q and k, (batch, heads, tokens, d) or with the first two joined."""
    q, k = (_matching(module, tensor, outputs, norms=True) for tensor in (query, key))
    tensors = {"q": query, "k": key}
    kept = [
        name for name, value in tensors.items() if _matching(module, value, outputs, norms=False)
    ]
    if q is None or k is None:
        return Before(kept=" and ".join(kept))
    apart = float((query - q[0] * q[1]).abs().max() / query.abs().max())
    return Before(q[0] * k[0], apart > 2.0 * SAME, " and ".join(kept))


def _matching(
    module: nn.Module, tensor: Tensor, outputs: Outputs, norms: bool
) -> tuple[float, Tensor] | None:
    """Return the common ratio of lengths to the output of a part, and that output; else None."""
    same = SAME if norms else 64.0 * torch.finfo(tensor.dtype).eps
    for ratios, projected in _ratios(module, tensor, outputs, norms):
        known = ratios[~ratios.isnan()]
        middle = float(known.median())
        if len(known) and bool(((known / middle - 1.0).abs() < same).all()):
            return middle, projected
    return None


def by_token(module: nn.Module, query: Tensor, outputs: Outputs) -> Tensor | None:
    """Return q's length over its projection's, by token, if all heads agree; else None."""
    for ratios, _ in _ratios(module, query, outputs, norms=False):
        each = ratios.flatten(0, -2)
        if len(each) > 1 and bool(((each / each[0] - 1.0).abs() < SAME).all()):
            return each[0]
    return None


def _ratios(
    module: nn.Module, tensor: Tensor, outputs: Outputs, norms: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the ratios of lengths to each output that may be the same, and that output."""
    lengths = tensor.detach().double().norm(dim=-1)
    for part in module.modules():
        if norms or "norm" not in type(part).__name__.lower():
            for output in reversed(outputs.get(part, [])):
                for projected in _by_head(output, tensor.shape):
                    yield lengths / projected.double().norm(dim=-1), projected


def _by_head(output: Tensor, shape: torch.Size) -> Iterator[Tensor]:
    """Yield the parts of an output that may be q or k: all, or one beside others, by head.

    shape: (batch, heads, tokens, d), or (batch · heads, tokens, d).
    """
    if output.shape == shape:
        yield output
    *several, tokens, d = shape
    batch = several[0] if len(several) == 2 else output.shape[0] if output.dim() > 2 else 1
    heads = math.prod(several) // batch
    if not heads or math.prod(several) % batch or output.numel() % (batch * tokens * d):
        return
    slots = output.numel() // (batch * tokens * d)
    each = output.reshape(batch, tokens, slots, d)
    for first in range(0, slots - heads + 1, heads):
        yield each[:, :, first : first + heads].transpose(1, 2).reshape(shape)
    if heads > 1 and slots > heads and slots % heads == 0:
        by_head = each.reshape(batch, tokens, heads, slots // heads, d)
        yield from (part.transpose(1, 2).reshape(shape) for part in by_head.unbind(3))
