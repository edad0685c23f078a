"""Choose some rows of a call of attention, at random or by index."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlib.models.attention_call import causal_bias
from attnlib.probing.measure import Call, Queries

SEQUENCES = 4
"""Rows come from so many sequences, or from all if there are fewer: rows of one are alike."""


def sample_rows(
    call: Call, output: Tensor, rows: int, rng: np.random.Generator
) -> tuple[Call, Tensor]:
    """Return a call and its output restricted to about `rows` rows of each head, drawn by `rng`.

    The rows come from up to four sequences. Each of these is cut into equal parts, and one row is
    drawn from each part. A call with no more rows, or whose q, k and v do not have the axes (batch,
    heads, tokens, size), is returned unchanged.
    """
    q, k, v = call[:3]
    batch, length = q.shape[0], q.shape[-2]
    four_axes = q.ndim == k.ndim == v.ndim == 4 and k.shape[0] == v.shape[0] == batch
    if not four_axes or batch * length <= rows:
        return call, output
    sequences = np.sort(rng.choice(batch, min(batch, SEQUENCES, rows), replace=False))
    edges = np.linspace(0, length, min(length, rows // len(sequences)) + 1).astype(int)
    return restrict_call(call, output, sequences, rng.integers(edges[:-1], edges[1:]))


@torch.no_grad()
def restrict_call(
    call: Call, output: Tensor, sequences: ArrayLike, queries: ArrayLike
) -> tuple[Call, Tensor]:
    """Return a call and its output restricted to some sequences and, in each, some queries.

    `sequences` and `queries` are indices. q, k and v have the axes (batch, heads, tokens, size).
    """
    q, k, v, mask, is_causal, scale, enable_gqa, call_queries = call
    batch, length, keys = q.shape[0], q.shape[-2], k.shape[-2]
    b, i = (torch.as_tensor(index, device=q.device) for index in (sequences, queries))

    def select(t: Tensor) -> Tensor:
        return t.index_select(0, b).index_select(-2, i)

    past = 0 if is_causal else causal_bias(mask, length, keys)
    if past is not None:
        mask = torch.arange(keys, device=q.device) <= i[:, None] + past
    elif mask is not None:
        heads = mask.shape[-3] if mask.ndim > 2 else 1
        mask = select(mask.expand(batch, heads, length, keys))
    k, v = k.index_select(0, b), v.index_select(0, b)
    if call_queries is not None:
        call_queries = Queries(*(None if t is None else t[b][:, i] for t in call_queries))
    return Call(select(q), k, v, mask, False, scale, enable_gqa, call_queries), select(output)
