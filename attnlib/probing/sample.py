"""Some rows of a call of attention: what a monitor looks at."""

import numpy as np
import torch
from torch import Tensor

from attnlib.interception import causal_bias
from attnlib.probing.measure import Call

SEQUENCES = 4
"""Rows come from this many sequences, if there are as many: those of one are alike."""


@torch.no_grad()
def some_rows(
    call: Call, output: Tensor | None, rows: int, rng: np.random.Generator
) -> tuple[Call, Tensor | None]:
    """Return the call and its output for about `rows` rows of each head.

    They come from a few sequences, and there from places spread over the length, one drawn in each
    of equal parts. q, k and v have the axes (batch, heads, tokens, size); another call, and one
    with no more rows, stays as it is.
    """
    q, k, v, mask, is_causal, scale, enable_gqa, known = call
    batch, length, keys = q.shape[0], q.shape[-2], k.shape[-2]
    alike = q.ndim == k.ndim == v.ndim == 4 and k.shape[0] == v.shape[0] == batch
    if not alike or batch * length <= rows:
        return call, output
    chosen = rng.choice(batch, min(batch, SEQUENCES, rows), replace=False)
    sequences = torch.from_numpy(np.sort(chosen)).to(q.device)
    edges = np.linspace(0, length, min(length, rows // len(chosen)) + 1).astype(int)
    queries = torch.from_numpy(rng.integers(edges[:-1], edges[1:])).to(q.device)

    def of(t: Tensor) -> Tensor:
        return t.index_select(0, sequences).index_select(-2, queries)

    past = causal_bias(mask, length, keys)
    if is_causal:
        past = 0
    if past is not None:
        mask = torch.arange(keys, device=q.device) <= queries[:, None] + past
    elif mask is not None:
        heads = mask.shape[-3] if mask.ndim > 2 else 1
        mask = of(mask.expand(batch, heads, length, keys))
    k, v = k.index_select(0, sequences), v.index_select(0, sequences)
    if known is not None:
        known = known._replace(
            sequence=known.sequence[sequences],
            position=known.position[sequences][:, queries],
            real=None if known.real is None else known.real[sequences][:, queries],
            target=None if known.target is None else known.target[sequences][:, queries],
        )
    some = Call(of(q), k, v, mask, False, scale, enable_gqa, known)
    return some, None if output is None else of(output)
