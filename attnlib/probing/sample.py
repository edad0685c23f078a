"""Choose some rows of a call of attention."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlib.models.attention_call import causal_bias
from attnlib.probing.measure import Call, Queries

SEQUENCES = 4
"""Rows come from this many sequences, if there are as many: those of one are alike."""


def some_rows(
    call: Call, output: Tensor, rows: int, rng: np.random.Generator
) -> tuple[Call, Tensor]:
    """Return the call and its output for about `rows` rows of each head.

    The rows come from a few sequences. Each sequence is cut into equal parts, and one row is drawn
    from each. A call is returned as it is if it has no more rows, or if q, k and v do not have the
    axes (batch, heads, tokens, size).
    """
    q, k, v = call[:3]
    batch, length = q.shape[0], q.shape[-2]
    alike = q.ndim == k.ndim == v.ndim == 4 and k.shape[0] == v.shape[0] == batch
    if not alike or batch * length <= rows:
        return call, output
    sequences = np.sort(rng.choice(batch, min(batch, SEQUENCES, rows), replace=False))
    edges = np.linspace(0, length, min(length, rows // len(sequences)) + 1).astype(int)
    return choose(call, output, sequences, rng.integers(edges[:-1], edges[1:]))


@torch.no_grad()
def choose(
    call: Call, output: Tensor, sequences: ArrayLike, queries: ArrayLike
) -> tuple[Call, Tensor]:
    """Return the call and its output for the `sequences` of its batch, and the `queries` in each.

    q, k and v have the axes (batch, heads, tokens, size).
    """
    q, k, v, mask, is_causal, scale, enable_gqa, known = call
    batch, length, keys = q.shape[0], q.shape[-2], k.shape[-2]
    some, at = (torch.as_tensor(chosen, device=q.device) for chosen in (sequences, queries))

    def of(t: Tensor) -> Tensor:
        return t.index_select(0, some).index_select(-2, at)

    past = 0 if is_causal else causal_bias(mask, length, keys)
    if past is not None:
        mask = torch.arange(keys, device=q.device) <= at[:, None] + past
    elif mask is not None:
        heads = mask.shape[-3] if mask.ndim > 2 else 1
        mask = of(mask.expand(batch, heads, length, keys))
    k, v = k.index_select(0, some), v.index_select(0, some)
    if known is not None:
        known = Queries(*(None if t is None else t[some][:, at] for t in known))
    return Call(of(q), k, v, mask, False, scale, enable_gqa, known), of(output)
