"""Compute ∂L/∂log t of every head, for logits times t, from weights and their gradients.

Logits are linear in the weights and the bias that make a head's queries. So the derivative by the
logarithm of a factor t on the logits is the sum of each such entry times its gradient; the same
holds for keys. `attnlib.calibration.from_gradients` finds the arrays in a PyTorch model.

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
    """Return ∂L/∂log t of each head: L is the loss, and t a factor on the head's logits.

    - `queries`, `keys`: pairs (array, gradient) of one shape: the kernel first, then the bias if
      there is one. Any arrays that NumPy reads, in half precision too.
    - `heads`, `key_heads`: numbers of query heads and key heads, by default equal. The second
      divides the first.
    - `axis`: the axis of the kernel that runs over heads: −1 (the default) for (inputs, heads · d),
      0 for (heads · d, inputs), 1 for (inputs, heads, d). A bias is (heads · d,) or (heads, d).
    - `tolerance`: how far the sums over queries and over keys may differ, by default 0.001, in
      units of their difference if all products had random signs. In theory the sums are equal. They
      differ where queries enter the model elsewhere too, or where wrong arrays are given. Give 0.05
      for half precision.

    Returns an array (heads,), accurate to rounding in float64. Give gradients that are unscaled,
    summed over shards and not yet clipped. Raises ValueError or TypeError where shapes or numbers
    of heads do not fit, and ValueError where the sums disagree.

    >>> w_q, w_k = np.array([[2.0, 1.0]]), np.array([[1.0, 0.5]])
    >>> by_head([(w_q, [[0.5, 3.0]])], [(w_k, [[1.0, 6.0]])], heads=2)
    array([1., 3.])
    """
    heads = _checking.integer("heads", heads, minimum=1)
    groups = heads if key_heads is None else _checking.integer("key_heads", key_heads, minimum=1)
    if heads % groups:
        raise ValueError(f"key_heads must divide heads = {heads}, got {groups}")
    q, k = _sum_products("queries", queries, heads, axis), _sum_products("keys", keys, groups, axis)
    difference = mismatch(q, k)
    if not difference <= _checking.positive("tolerance", tolerance):
        raise ValueError(
            f"queries and keys must have the same sums, got some {difference:.2g} apart, where "
            f"tolerance is {tolerance:g}: the arrays are not those of queries and keys, `axis` is "
            "another, or queries enter beside the logits"
        )
    result: FloatArray = q[0]
    return result


def sum_groups(sums: FloatArray, groups: int) -> FloatArray:
    """Return sums over groups of neighbouring heads, from shape (2, heads) to (2, groups).

    - `sums`: for each head the sum of weights times gradients, and the sum of their squares.
    - `groups`: the number of groups. Raises ValueError where it does not divide the heads.
    """
    grouped: FloatArray = sums.reshape(2, groups, -1).sum(axis=2)
    return grouped


def mismatch(queries: FloatArray, keys: FloatArray) -> float:
    """Return how far the sums of queries and keys differ, in units of what random signs give.

    - `queries`, `keys`: arrays (2, heads) and (2, key heads), as `sum_groups` takes them. Heads
      that share keys are added up; all heads, where key heads do not divide them.

    Returns a float, 0 where all sums are 0.
    """
    groups = keys.shape[1] if queries.shape[1] % keys.shape[1] == 0 else 1
    (q, q_square), (k, k_square) = sum_groups(queries, groups), sum_groups(keys, groups)
    unit = float((q_square + k_square).sum())
    return float(np.sqrt(np.square(q - k).sum() / unit)) if unit else 0.0


def _sum_products(name: str, pairs: Sequence[Pair], heads: int, axis: int) -> FloatArray:
    """Return for each head Σ w·∂L/∂w over its weights w and the sum of the squares, (2, heads)."""
    total = np.zeros((2, heads))
    for i, pair in enumerate(pairs):
        weight, gradient = (_as_float64(array) for array in pair)
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


def _as_float64(array: Any) -> FloatArray:
    """Return an array of any framework as a NumPy array of float64."""
    detached = array.detach().float().cpu() if hasattr(array, "detach") else array
    numbers: FloatArray = np.asarray(detached).astype(np.float64)
    return numbers
