"""Attention at initialisation, simulated: heads and rows of random queries, keys and values.

All entries are standard normal. These are the measurements that the sources make, at their sizes:
the scores of source 001, the rows of 000 and 003, the outputs of 002.
"""

from typing import NamedTuple

import numpy as np

from attnlib import rows, scores
from attnlib.checking import FloatArray

DIMENSIONS = (10, 50, 100, 500, 1000)
"""The dimensions of source 001's experiment."""

VECTORS = 512
"""Its number of queries, and of keys."""

TEMPERATURES: FloatArray = 2.0 ** np.arange(-4.0, 4.1, 0.5)
"""Those of source 002's figure."""


class RowSample(NamedTuple):
    """What `sample_rows` measures, one number a row."""

    largest: FloatArray  # largest attention weight
    gradient: FloatArray  # α(1 − Σp²), by the score q·k/√d


def sample_rows(
    rng: np.random.Generator, d: int, n: int, *, exponent: float, count: int = 2000
) -> RowSample:
    """Measure `count` rows of attention whose dot products q·k are multiplied by d^`exponent`.

    Exponent −½ is the Transformer's scale, 0 leaves the scores unscaled. Per q·k/√d that is
    α = d^(exponent + ½). Chapter: why.
    """
    alpha = float(d) ** (exponent + 0.5)
    s = scores.DotProduct(d).sample(rng, count, n)
    return RowSample(rows.softmax(s, alpha).max(axis=1), rows.gradient(s, alpha))
