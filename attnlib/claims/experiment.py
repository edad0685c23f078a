"""The measurements that several claims share: source 001's experiment, and rows under a scale.

Chapters: variance, saturation, entropy.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlib import annealed, checking, rows, scores

DIMENSIONS = (10, 50, 100, 500, 1000)
"""The dimensions of source 001's experiment."""

VECTORS = 512
"""Its number of queries, and of keys."""

LIMIT = 4.5
"""A simulation refutes a number that lies this many standard errors away: chance 7 in a million."""


class RowMoments(NamedTuple):
    """Averages over the rows of QKᵀ: of the row's mean and of its variance; or their errors."""

    mean: float
    variance: float


def row_moments(
    rng: np.random.Generator, d: int, *, vectors: int = VECTORS, factor: float = 1.0
) -> RowMoments:
    """Return both averages over the rows of `factor`·QKᵀ, for Gaussian Q and K, (vectors, d) each.

    This is source 001's experiment. Chapter: variance.
    """
    queries = rng.standard_normal((vectors, d))
    keys = rng.standard_normal((vectors, d))
    products = factor * (queries @ keys.T)
    return RowMoments(float(products.mean()), float(products.var(axis=1, ddof=1).mean()))


def standard_errors(d: int, *, vectors: int = VECTORS) -> RowMoments:
    """Return the exact standard deviations of the two averages, with m = `vectors`.

    The mean is q̄·k̄, so its variance is d/m². The mean row variance is the trace of the product of
    two independent Wishart matrices, the keys' covariance and the queries' second moments; its
    variance is 2d/m + 2d(m + d + 1)/(m(m − 1)), close to 4d/m + 2d²/m². Treating the m² products as
    independent would leave only the last term. Chapter: variance.

    >>> [round(x, 3) for x in standard_errors(1000)]
    [0.062, 3.933]
    """
    dimension = checking.integer("d", d, minimum=1)
    m = checking.integer("vectors", vectors, minimum=2)
    variance = 2 * dimension / m + 2 * dimension * (m + dimension + 1) / (m * (m - 1))
    return RowMoments(float(np.sqrt(dimension)) / m, float(np.sqrt(variance)))


class RowSample(NamedTuple):
    """What `sample_rows` measures, one number a row."""

    spread: NDArray[np.float64]  # largest minus smallest of the scaled scores
    largest: NDArray[np.float64]  # largest attention weight
    collision: NDArray[np.float64]  # Σp²
    entropy: NDArray[np.float64]  # Shannon entropy, nats
    gradient: NDArray[np.float64]  # α(1 − Σp²), by the score q·k/√d


def sample_rows(
    rng: np.random.Generator, d: int, n: int, *, exponent: float, count: int = 2000
) -> RowSample:
    """Measure `count` rows of attention whose dot products q·k are multiplied by d^`exponent`.

    Exponent −½ is the Transformer's scale, 0 leaves the scores unscaled. Per q·k/√d that is
    α = d^(exponent + ½). Chapter: saturation.
    """
    alpha = float(d) ** (exponent + 0.5)
    s = scores.DotProduct(d).sample(rng, count, n)
    p = rows.softmax(s, alpha)
    return RowSample(
        spread=alpha * np.ptp(s, axis=1),
        largest=p.max(axis=1),
        collision=rows.collision_probability(p),
        entropy=rows.shannon_entropy(p),
        gradient=rows.gradient(s, alpha),
    )


HEADS_AT_A_TIME = 16


def output_squares(
    rng: np.random.Generator, d: int, n: int, heads: int, *, causal: bool = False
) -> NDArray[np.float64]:
    """Return the mean square of the output at each position of each head, shape (heads, n).

    Queries, keys and values are standard normal, (n, d) each, in float32; the scores are q·k/√d,
    and with `causal` a position sees itself and those before. The heads are independent; the
    outputs of one head are not, for they share its values. Chapter: output_scale.
    """
    hidden = np.triu(np.full((n, n), -np.inf, dtype=np.float32), 1) if causal else np.float32(0.0)
    squares = []
    for start in range(0, heads, HEADS_AT_A_TIME):
        shape = (3, min(HEADS_AT_A_TIME, heads - start), n, d)
        q, k, v = rng.standard_normal(shape, dtype=np.float32)
        s = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(d)) + hidden
        weights = np.exp(s - s.max(axis=-1, keepdims=True))
        output = weights @ v / weights.sum(axis=-1, keepdims=True)
        squares.append((output.astype(np.float64) ** 2).mean(axis=-1))
    return np.concatenate(squares)


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean of independent values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size))


ENTROPY_KEYS = (64, 256, 1024, 4096, 16384)
"""The numbers of keys over which the growth of an entropy is measured."""


def entropy_slope(
    rng: np.random.Generator,
    *,
    order: float,
    alpha: float | None = None,
    law: scores.Normal | scores.Cosine | None = None,
    count: int = 100,
) -> tuple[float, float]:
    """Return the slope of the mean Rényi entropy of an order against log n, and its standard error.

    Over `ENTROPY_KEYS`, from `count` rows each, by least squares; order 1 is Shannon's entropy. The
    rows are normal, or of `law`. The scale is `alpha`, or α*(n) of the approximation if it is None.
    Chapter: entropy.
    """
    law = scores.Normal() if law is None else law
    measured = []
    for n in ENTROPY_KEYS:
        scale = annealed.best_alpha(law, n) if alpha is None else alpha
        p = rows.softmax(law.sample(rng, count, n), scale)
        measured.append(mean_and_error(rows.renyi_entropy(p, order)))
    mean, error = np.array(measured).T
    centred = np.log(ENTROPY_KEYS) - np.log(ENTROPY_KEYS).mean()
    weights = centred / (centred @ centred)
    return float(weights @ mean), float(np.sqrt(weights**2 @ error**2))
