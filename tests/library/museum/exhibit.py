"""What an exhibit is, and the attention without a fault that the exhibits are built on."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch

MASKS = ("attn_mask", "is_causal")


class Exhibit(NamedTuple):
    """A fault found in public, as the smallest attention that has it, and the same mended.

    `broken` and `mended` take q (batch, heads, n, d), k (batch, key heads, m, d) and v (batch,
    key heads, m, dv), with the keywords in `takes`, and return (batch, heads, n, dv). A mask is
    boolean (true: seen) or added to the logits; `is_causal` counts from the last key.

    - `kind`: a short code of the finding;
    - `d`, `heads`, `key_heads`, `n`: the shape at which it is shown, with n queries and n keys;
    - `expected`: what is meant to multiply q·k (or the cosine): a number at this d, or where it
      is a law, a function of the number of keys, of d and of the query's position;
    - `applied_to`: what it is meant to multiply, "dot product" or "cosine";
    - `meant`: what is intended besides: "cap", "window" (keys seen, the query's own among them),
      "causal" (always), "sink" (a logit without a value), "value factor";
    - `quantity`: which number is wrong, `found` the wrong one at the shape above, `right` the
      right one; for the multiplier `right` is what `expected` is there;
    - `also`: other threads on the same fault.
    """

    name: str
    link: str
    kind: str
    what: str
    broken: Callable[..., torch.Tensor]
    mended: Callable[..., torch.Tensor]
    d: int
    expected: float | Callable[..., float]
    found: float
    quantity: str = "multiplier"
    right: float | None = None
    applied_to: str = "dot product"
    meant: Mapping[str, float] = MappingProxyType({})
    takes: tuple[str, ...] = MASKS
    heads: int = 2
    key_heads: int = 2
    n: int = 64
    also: tuple[str, ...] = ()

    def intended(self) -> float:
        """Return what `found` should have been."""
        if self.right is not None:
            return self.right
        if callable(self.expected):
            return float(self.expected(self.n, self.d, self.n - 1))
        return self.expected


def attend(q, k, v, *, scale=None, attn_mask=None, is_causal=False):
    """Return softmax(scale·q·k + mask) v, with 1/√d where no scale is given."""
    scores = products(q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return mix(scores + bias(scores, attn_mask, is_causal), v)


def products(q, k):
    return q @ grouped(k, q.shape[1]).mT


def mix(logits, v):
    return torch.softmax(logits, -1) @ grouped(v, logits.shape[1])


def grouped(x, heads):
    """Repeat each key head for the adjacent query heads that read it."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def bias(scores, attn_mask=None, is_causal=False):
    """Return what the masks add to the scores: −∞ where a key is hidden."""
    added = torch.zeros_like(scores)
    if attn_mask is not None:
        hides = attn_mask.dtype == torch.bool
        added = added.masked_fill(~attn_mask, -torch.inf) if hides else added + attn_mask
    if is_causal:
        place, keys = places(scores)
        added = added.masked_fill(keys > place, -torch.inf)
    return added


def places(scores):
    """Return the queries' positions among the keys, as a column, and the keys', as a row."""
    n, m = scores.shape[-2:]
    return torch.arange(m - n, m)[:, None], torch.arange(m)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)
