"""What a callable does to queries, keys and values that are chosen to show it.

Values that are unit vectors make the output the weights of groups of keys. Two keys then tell the
scale: with a key of content x among keys of content 0, the logarithm of its weight over theirs
grows by the multiplier of q·k times q·x, whatever else the row sees.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlib.checking import FloatArray

Attention = Callable[..., Any]

MASKS = ("attn_mask", "attention_mask", "mask", "bias", "attn_bias")
"""What a mask or a bias is called in signatures, the first that is there."""
CAUSAL = ("is_causal", "causal")
GROUPED = ("enable_gqa",)


class Size(NamedTuple):
    """What is asked: heads of queries and of keys, and the dimension d of each."""

    heads: int
    key_heads: int
    dimension: int


class Subject:
    """A callable under question: (q, k, v, …) → output, called with tensors and read in float64."""

    def __init__(self, function: Attention, size: Size, dtype: torch.dtype, device: str) -> None:
        self.function = function
        self.size = size
        self.dtype = dtype
        self.device = device
        self.mask = _first(MASKS, function)
        self.causal = _first(CAUSAL, function)
        self.grouped = _first(GROUPED, function)
        self.sees_past = False  # found out by asking: whether it is causal by itself,
        self.normalises = False  # and whether q and k are brought to length 1

    @torch.no_grad()
    def output(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> FloatArray:
        """Return what it answers, of shape (heads, queries, size of v), in float64.

        q, k and v have the axes (heads, tokens, size) and float64. Raises ValueError, in one line,
        where the callable raises, or its answer is no tensor or has another shape.
        """
        if self.grouped and self.size.heads != self.size.key_heads:
            options = {self.grouped: True, **options}
        given = [t[None].to(self.dtype).to(self.device) for t in (q, k, v)]
        try:
            found = self.function(*given, **options)
        except Exception as error:
            said = " ".join(str(error).split())
            raise ValueError(
                f"the callable raises {type(error).__name__} for q, k and v of the shapes "
                f"{', '.join(str(tuple(t.shape)) for t in given)}: {said:.200}"
            ) from error
        found = found[0] if isinstance(found, tuple) else found
        wanted = (1, *q.shape[:2], v.shape[-1])
        if not isinstance(found, Tensor) or found.shape != wanted:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"the callable must return a tensor of shape {wanted}, got {got}")
        return found[0].double().cpu().numpy()

    def weights(self, q: Tensor, k: Tensor, groups: Tensor, **options: Any) -> FloatArray:
        """Return the weight of each group of keys, (heads, queries, number of groups).

        `groups` has the group of each key, a number below d.
        """
        v = torch.nn.functional.one_hot(groups, self.size.dimension).double()
        v = v.expand(self.size.key_heads, -1, -1)
        return self.output(q, k, v, **options)[..., : int(groups.max()) + 1]

    def rounded(self, numbers: Any) -> Tensor:
        """Return numbers as the callable gets them, in float64."""
        return torch.as_tensor(numbers, dtype=torch.float64).to(self.dtype).double()


def _first(names: tuple[str, ...], function: Attention) -> str | None:
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function of PyTorch's, written in C++, has none
        known = dict.fromkeys(("attn_mask", "is_causal", "enable_gqa"), None)  # type: ignore[assignment]
    return next((name for name in names if name in known), None)


class Contents(NamedTuple):
    """Queries and keys whose products are known: q = a·e, ordinary keys and some special ones."""

    q: Tensor
    k: Tensor
    product: FloatArray
    """q·k of each special key, less that of ordinary ones."""
    cosine: FloatArray
    """The same for cos(q, k)."""


def contents(
    subject: Subject,
    queries: int,
    keys: int,
    special: Tensor,
    x: FloatArray | float,
    *,
    shift: float = 0.0,
    stretch: tuple[float, float] = (1.0, 1.0),
    along: int = 0,
    lengthen: float = 1.0,
) -> Contents:
    """Return queries of length √d and keys of length √d whose products with them are chosen.

    The component of a special key along the query is x, of the others `shift`, each up to √d;
    what is left of their length lies at a right angle to it. The query has the component `along`
    only. `stretch` multiplies q and k, `lengthen` special keys alone.
    """
    heads, key_heads, d = subject.size
    across = (along + 3) % d
    length = math.sqrt(d)
    room = max(length, 2.0 * abs(shift))
    q = torch.zeros(heads, queries, d, dtype=torch.float64)
    q[..., along] = length * stretch[0]
    k = torch.zeros(key_heads, keys, d, dtype=torch.float64)
    component = torch.full((keys,), shift, dtype=torch.float64)
    component[special] = shift + torch.as_tensor(x, dtype=torch.float64)
    k[..., along] = component * stretch[1]
    k[..., across] = (room**2 - component**2).clamp(min=0.0).sqrt() * stretch[1]
    k[:, special] *= lengthen
    q, k = subject.rounded(q), subject.rounded(k)
    product = torch.einsum("d,md->m", q[0, 0], k[0])
    cosine = product / (q[0, 0].norm() * k[0].norm(dim=-1))
    ordinary = torch.ones(keys, dtype=torch.bool)
    ordinary[special] = False
    other = int(ordinary.nonzero()[0]) if bool(ordinary.any()) else int(special[0])
    return Contents(
        q,
        k,
        (product[special] - product[other]).numpy(),
        (cosine[special] - cosine[other]).numpy(),
    )


def log_odds(
    subject: Subject, given: Contents, rows: Tensor, special: Tensor, **options: Any
) -> FloatArray:
    """Return log(weight of a row's special key / weight of its ordinary keys), (heads, rows).

    Row rows[i] has the special key special[i]; those of other rows count for neither.
    """
    keys = given.k.shape[-2]
    groups = torch.full((keys,), len(special))
    groups[special] = torch.arange(len(special))
    found = subject.weights(given.q, given.k, groups, **options)[:, rows.numpy()]
    own = found[:, np.arange(len(rows)), np.arange(len(special))]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(own) - np.log(found[..., len(special)]))
