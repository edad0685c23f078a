"""Attention that is odd but right, of which the audit should find nothing wrong."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from attnlib.attention import attend
from attnlib.auditing import audit
from experiments.museum.exhibits import root

kernel = functional.scaled_dot_product_attention


def logits_of(q: Tensor, k: Tensor) -> Tensor:
    """Return q·k/√d."""
    return q @ k.mT * root(q.shape[-1])


def on_both_sides(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Divide q and k by the fourth root of d each."""
    fourth = q.shape[-1] ** -0.25
    return torch.softmax((q * fourth) @ (k * fourth).mT, -1) @ v


def powers_of_two(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Use powers of two, with the scale in that base."""
    exponents = logits_of(q, k) * math.log2(math.e)
    powers = torch.exp2(exponents - exponents.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True) @ v


def online(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Go through the keys five at a time."""
    top, total, output = torch.tensor(-math.inf), torch.tensor(0.0), torch.tensor(0.0)
    for keys, values in zip(torch.split(k, 5, -2), torch.split(v, 5, -2), strict=True):
        logits = logits_of(q, keys)
        new = torch.maximum(top, logits.amax(-1, keepdim=True))
        powers, kept = torch.exp(logits - new), torch.exp(top - new)
        total = total * kept + powers.sum(-1, keepdim=True)
        top, output = new, output * kept + powers @ values
    return output / total


def causal(q: Tensor, k: Tensor, v: Tensor, seen: float = math.inf, slope: float = 0.0) -> Tensor:
    """See the last keys up to one's own, counted from the last, less what grows with distance."""
    n, m = q.shape[-2], k.shape[-2]
    far = torch.arange(m - n, m)[:, None] - torch.arange(m)
    bias = (-slope * far).to(q.dtype).masked_fill((far < 0) | (far >= seen), -math.inf)
    return kernel(q, k, v, attn_mask=bias)


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Bound logits by 50, softly."""
    return torch.softmax(50.0 * torch.tanh(logits_of(q, k) / 50.0), -1) @ v


class Sunk(nn.Module):
    """Attention with a learned gain, and a learned sink in each of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.tensor([0.3, -1.0]))
        self.gain = nn.Parameter(torch.tensor(1.0))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the output."""
        logits = self.gain * logits_of(q, k)
        sink = self.sink[:, None, None].to(q.dtype).expand(*logits.shape[:-1], 1)
        return torch.softmax(torch.cat([logits, sink], -1), -1)[..., :-1] @ v


def padded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Pad heads to a multiple of 64, and keep the scale of their own size."""
    d = q.shape[-1]
    q, k = (functional.pad(x, (0, -d % 64)) for x in (q, k))
    return kernel(q, k, v, scale=root(d))


class Flash(torch.autograd.Function):
    """A backward pass of one's own, right, or with another scale or without a sink of logit 0."""

    wrong, sink, forgets = 1.0, False, False

    @classmethod
    def forward(cls, ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the output."""
        logits = logits_of(q, k)
        with_sink = functional.pad(logits, (0, 1)) if cls.sink else logits
        total = with_sink.logsumexp(-1, keepdim=True)
        output = torch.exp(logits - total) @ v
        kept = logits.logsumexp(-1, keepdim=True) if cls.forgets else total
        ctx.save_for_backward(q, k, v, output, kept)
        return output

    @classmethod
    def backward(cls, ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the derivatives with respect to q, k and v."""
        q, k, v, output, total = ctx.saved_tensors
        weights = torch.exp(logits_of(q, k) - total)
        inner = weights * (g @ v.mT - (g * output).sum(-1, keepdim=True))
        inner = cls.wrong * root(q.shape[-1]) * inner
        return inner @ k, inner.mT @ q, weights.mT @ g


def of_one_size(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Take heads of 64 only."""
    if not q.shape[-1] == v.shape[-1] == 64:
        raise ValueError("made for heads of 64")
    return kernel(q, k, v)


windowed = partial(causal, seen=8)

ODD: dict[Callable[..., Any], dict[str, Any]] = {
    on_both_sides: {},
    powers_of_two: {},
    online: {},
    causal: {},
    windowed: {"window": 8},
    partial(causal, slope=0.1): {"rotates": True},
    capped: {"cap": 50.0},
    Sunk(): {"sink": True},
    partial(attend, scale=12.0, normalize_qk=True): {"expected": 12.0},
    padded: {},
    partial(checkpoint, kernel, use_reentrant=False): {},  # computes all again, backwards
    Flash.apply: {},
    torch.no_grad()(kernel): {},
    partial(kernel, scale=root(128)): {"d": 128},  # whatever the size of heads
    of_one_size: {},
}
"""And what is meant, where it is not the scale 1/√d and nothing more."""


def passes(attention: Callable[..., Any], dtype: torch.dtype = torch.float32) -> bool:
    """Return whether the audit finds nothing wrong with one of them."""
    meant = {"d": 64, "expected": "transformer", "length": 64, **ODD[attention]}
    return audit(attention, dtype=dtype, **meant).passed
