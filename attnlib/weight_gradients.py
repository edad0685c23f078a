"""Compute ∂L/∂log t of every head from weights and gradients of any framework.

Where logits are linear in a head's queries, multiplying them by t is multiplying the weights and
the bias that make the queries: the derivative is the sum of each entry times its gradient. The
same holds for keys. `attnlib.calibration.from_gradients` finds the arrays in a PyTorch model.

Chapter: calibration.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlib import _checking
from attnlib._checking import FloatArray

Pair = tuple[ArrayLike, ArrayLike]

TOLERANCE = 1e-3
"""How far sums may be apart, over what they would be if their products had random signs."""


def by_head(
    queries: Sequence[Pair],
    keys: Sequence[Pair],
    *,
    heads: int,
    key_heads: int | None = None,
    axis: int = -1,
    tolerance: float = TOLERANCE,
) -> FloatArray:
    """Compute ∂L/∂log t of each head, where t multiplies its logits.

    - `queries`, `keys`: pairs of an array and its gradient, of the same shape: the kernel first,
      then the bias if there is one. Anything that NumPy reads, in half precision too.
    - `heads`, `key_heads`: how many of each, by default as many keys.
    - `axis`: where the kernel has its heads: −1 for (inputs, heads · d), 0 for (heads · d, inputs),
      1 for (inputs, heads, d). A bias is (heads · d,) or (heads, d).
    - `tolerance`: how far the sums of queries and keys may be apart, in units of what they would be
      if their products had random signs. The identity holds for both, so that this notices queries
      which enter elsewhere, or whose rows are not those. Give 0.05 for half precision.

    Returns an array (heads,), accurate to rounding in float64. Read gradients after unscaling and
    before clipping, summed over shards. Raises ValueError where shapes do not fit or where the sums
    disagree.

    >>> w_q, w_k = np.array([[2.0, 1.0]]), np.array([[1.0, 0.5]])
    >>> by_head([(w_q, [[0.5, 3.0]])], [(w_k, [[1.0, 6.0]])], heads=2)
    array([1., 3.])
    """
    heads = _checking.integer("heads", heads, minimum=1)
    groups = heads if key_heads is None else _checking.integer("key_heads", key_heads, minimum=1)
    if heads % groups:
        raise ValueError(f"key_heads must divide heads = {heads}, got {groups}")
    q, k = _sums("queries", queries, heads, axis), _sums("keys", keys, groups, axis)
    difference = apart(q, k)
    if not difference <= _checking.positive("tolerance", tolerance):
        raise ValueError(
            f"queries and keys must have the same sums, got some {difference:.2g} apart, where "
            f"tolerance is {tolerance:g}: the arrays are not those of queries and keys, `axis` is "
            "another, or queries enter beside the logits"
        )
    result: FloatArray = q[0]
    return result


def in_groups(sums: FloatArray, groups: int) -> FloatArray:
    """Return the sums over groups of neighbours, (2, heads) to (2, groups)."""
    grouped: FloatArray = sums.reshape(2, groups, -1).sum(axis=2)
    return grouped


def apart(queries: FloatArray, keys: FloatArray) -> float:
    """Return how far sums are apart, in units of random signs; of all heads if keys lie across."""
    groups = keys.shape[1] if queries.shape[1] % keys.shape[1] == 0 else 1
    (q, q_square), (k, k_square) = in_groups(queries, groups), in_groups(keys, groups)
    unit = float((q_square + k_square).sum())
    return float(np.sqrt(np.square(q - k).sum() / unit)) if unit else 0.0


def _sums(name: str, pairs: Sequence[Pair], heads: int, axis: int) -> FloatArray:
    """Return the sums of products and of their squares, (2, heads)."""
    total = np.zeros((2, heads))
    for i, pair in enumerate(pairs):
        weight, gradient = (_numbers(array) for array in pair)
        if weight.shape != gradient.shape:
            raise ValueError(
                f"{name}[{i}] must be two arrays of one shape, got {weight.shape} and "
                f"{gradient.shape}"
            )
        products = np.moveaxis(weight * gradient, axis, 0) if i == 0 else weight * gradient
        if products.shape[0] % heads:
            raise ValueError(
                f"{name}[{i}] must have a multiple of {heads} along its heads, got shape "
                f"{weight.shape} with axis {axis}"
            )
        products = products.reshape(heads, -1)
        total += products.sum(axis=1), np.square(products).sum(axis=1)
    return total


def _numbers(array: Any) -> FloatArray:
    """Return an array in double precision."""
    detached = array.detach().float().cpu() if hasattr(array, "detach") else array
    numbers: FloatArray = np.asarray(detached).astype(np.float64)
    return numbers
