"""Attention at initialisation, simulated: heads and rows of random queries, keys and values.

All entries are standard normal. These are the measurements that the sources make, at their sizes:
the scores of source 001, the rows of 000 and 003, the outputs of 002. `sampling` has the means and
quantiles of any other statistic of random rows.

`alpha_at_start` and `self_attention_variance` say what real layers start with, whose queries, keys
and values are made of the same tokens.

Chapters: variance, saturation, output_scale, questions.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlib import checking, exact, rows, scores
from attnlib.checking import FloatArray

DIMENSIONS = (10, 50, 100, 500, 1000)
"""The dimensions of source 001's experiment."""

VECTORS = 512
"""Its number of queries, and of keys."""

TEMPERATURES: FloatArray = 2.0 ** np.arange(-4.0, 4.1, 0.5)
"""Those of source 002's figure."""

HEADS_AT_A_TIME = 16


class RowMoments(NamedTuple):
    """Averages over the rows of QKᵀ: of the row's mean and of its variance; or their errors."""

    mean: float
    variance: float


def row_moments(
    rng: np.random.Generator, d: int, *, vectors: int = VECTORS, factor: float = 1.0
) -> RowMoments:
    """Return both averages over the rows of `factor`·QKᵀ, for Q and K of shape (vectors, d).

    This is source 001's experiment; `standard_errors` has the errors. Raises ValueError or
    TypeError for d below 1, fewer than two vectors, and a factor that is not finite. Chapter:
    variance.
    """
    shape = (checking.integer("vectors", vectors, minimum=2), checking.integer("d", d, minimum=1))
    times = float(checking.finite("factor", checking.number("factor", factor)))
    queries = checking.generator("rng", rng).standard_normal(shape)
    keys = rng.standard_normal(shape)
    products = times * (queries @ keys.T)
    return RowMoments(float(products.mean()), float(products.var(axis=1, ddof=1).mean()))


def standard_errors(d: int, *, vectors: int = VECTORS) -> RowMoments:
    """Return the exact standard deviations of the averages of `row_moments`, with m = `vectors`.

    The mean is q̄·k̄, so its variance is d/m². The mean row variance is the trace of the product of
    two independent Wishart matrices, the keys' covariance and the queries' second moments; its
    variance is 2d/m + 2d(m + d + 1)/(m(m − 1)), close to 4d/m + 2d²/m². Treating the m² products as
    independent normal numbers would leave only the last term. Raises ValueError or TypeError for d
    below 1 and fewer than two vectors. Chapter: variance.

    >>> [round(x, 3) for x in standard_errors(1000)]
    [0.062, 3.933]
    """
    dimension = checking.integer("d", d, minimum=1)
    m = checking.integer("vectors", vectors, minimum=2)
    variance = 2 * dimension / m + 2 * dimension * (m + dimension + 1) / (m * (m - 1))
    return RowMoments(float(np.sqrt(dimension)) / m, float(np.sqrt(variance)))


class RowSample(NamedTuple):
    """What `sample_rows` measures, one number a row."""

    spread: FloatArray  # largest minus smallest of the scaled scores
    largest: FloatArray  # largest attention weight
    collision: FloatArray  # Σp²
    entropy: FloatArray  # Shannon entropy, nats
    gradient: FloatArray  # α(1 − Σp²), by the score q·k/√d


def sample_rows(
    rng: np.random.Generator, d: int, n: int, *, exponent: float, count: int = 2000
) -> RowSample:
    """Measure `count` rows of attention whose dot products q·k are multiplied by d^`exponent`.

    Exponent −½ is the Transformer's scale, 0 leaves the scores unscaled. Per q·k/√d that is
    α = d^(exponent + ½). Raises ValueError or TypeError for d, n or a count below 1, and an
    exponent that is not finite. Chapter: saturation.
    """
    power = float(checking.finite("exponent", checking.number("exponent", exponent)))
    law = scores.DotProduct(d)
    alpha = float(d) ** (power + 0.5)
    s = law.sample(rng, checking.integer("count", count, minimum=1), n)
    p = rows.softmax(s, alpha)
    return RowSample(
        spread=alpha * np.ptp(s, axis=1),
        largest=p.max(axis=1),
        collision=rows.collision_probability(p),
        entropy=rows.shannon_entropy(p),
        gradient=rows.gradient(s, alpha),
    )


def output_squares(
    rng: np.random.Generator, d: int, n: int, heads: int, *, causal: bool = False
) -> FloatArray:
    """Return the mean square of the output at each position of each head, shape (heads, n).

    Queries, keys and values have shape (n, d), in float32; the scores are q·k/√d, and with `causal`
    a position sees itself and those before. The heads are independent; the outputs of one head are
    not, for they share its values. Raises ValueError or TypeError for d, n or heads below 1.
    Chapter: output_scale.
    """
    size = (checking.integer("n", n, minimum=1), checking.integer("d", d, minimum=1))
    total = checking.integer("heads", heads, minimum=1)
    checking.generator("rng", rng)
    hidden: NDArray[np.float32] | np.float32 = np.float32(0.0)
    if checking.flag("causal", causal):
        hidden = np.triu(np.full((n, n), -np.inf, dtype=np.float32), 1)
    squares = []
    for start in range(0, total, HEADS_AT_A_TIME):
        shape = (3, min(HEADS_AT_A_TIME, total - start), *size)
        q, k, v = rng.standard_normal(shape, dtype=np.float32)
        s = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(d)) + hidden
        weights = np.exp(s - s.max(axis=-1, keepdims=True))
        output = weights @ v / weights.sum(axis=-1, keepdims=True)
        squares.append((output.astype(np.float64) ** 2).mean(axis=-1))
    return np.concatenate(squares)


INITIALISERS = ("linear", "packed", "xavier", "normal")


def alpha_at_start(
    width: int, initialiser: str = "linear", *, inner: int | None = None, std: float = 0.02
) -> float:
    """Return the α that 1/√d gives at the start: √(wσ_q² · wσ_k²), w the model's width.

    For q = W_q x and k = W_k x with independent weights of mean 0 and variance σ², and tokens x
    with independent entries of mean 0 and variance 1, as a norm makes them, q·k/√d has the standard
    deviation α = wσ²; a head's size does not matter. The weights are drawn as

    - "linear": nn.Linear's default, σ² = 1/(3w): α = 1/3;
    - "packed": nn.MultiheadAttention's, Xavier for all 3w × w at once, σ² = 1/(2w): α = 1/2;
    - "xavier": σ² = 2/(w + inner), with heads · d = `inner` (by default w): α = 1 where it is w;
    - "normal": of the standard deviation `std`: α = w std², 0.31 at w = 768 and 1.64 at 4096.

    With a norm on queries and keys after the projection α is the product of the two norms' gains,
    whatever the weights. Another scale σ than 1/√d multiplies α by σ√d. Raises ValueError or
    TypeError for sizes below 1, another initialiser and a std that is not above 0. Chapter:
    questions.

    >>> round(alpha_at_start(4096, "normal"), 2)
    1.64
    """
    w = checking.integer("width", width, minimum=1)
    out = w if inner is None else checking.integer("inner", inner, minimum=1)
    variances = {
        "linear": 1.0 / (3.0 * w),
        "packed": 1.0 / (2.0 * w),
        "xavier": 2.0 / (w + out),
        "normal": checking.positive("std", std) ** 2,
    }
    return w * variances[checking.choice("initialiser", initialiser, INITIALISERS)]


def self_attention_variance(
    alpha: ArrayLike, n: ArrayLike, width: int, d: int | None = None
) -> FloatArray:
    """Return the output's variance over the values' for keys and values made of the same tokens.

    For n independent standard normal tokens x of `width` w, scores s = u·x of one query, |u| = α,
    and values a·x with a of random direction, it is

        (1 − 1/w) E Y + (1/w) E m²,    m = Σ p_i ξ_i,

    ξ the tokens' component along u. In long rows below freezing m tends to α, so the variance never
    falls below about α²/w; independent values, E Y, are the case w → ∞. Here (E m)² = (α(1 − E Y))²
    stands for E m²: Var m/w is left out, of the order of E Y/w; 5 % of the whole at α = 1, n = 64
    and w = 32, below 1 % where n is above a few times w. With `d` the length of u varies as that of
    a random query in d dimensions, and the scores' law is DotProduct(d); without, it is Normal.
    Errors as `attnlib.exact`. Chapter: output_scale.

    >>> round(float(np.sqrt(self_attention_variance(1.0, 4096, 128))), 3)
    0.092
    """
    w = checking.integer("width", width, minimum=1)
    law = scores.Normal() if d is None else scores.DotProduct(d)
    collision = exact.collision_probability(law, alpha, n)
    along = exact.mean_score(law, alpha, n)
    result: FloatArray = (1.0 - 1.0 / w) * collision + along**2 / w
    return result
