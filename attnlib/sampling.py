"""Monte Carlo of any row statistic: streaming, in constant memory, with standard errors.

Rows of scores are drawn in batches. Batch i has a random stream of its own, the i-th child of the
seed, and batches are folded in their order, so on machines of one kind the result has the same
bytes whatever executor computes them. Any `concurrent.futures.Executor` will do. Without one,
threads on this machine's processors share the work: NumPy works outside the interpreter's lock.

Of each statistic only mean and variance are kept, and a histogram of its values rounded to 15
significant bits, from which the quantiles are read.

Chapter: exact.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlib import checking
from attnlib.checking import FloatArray

Statistic = Callable[[FloatArray], ArrayLike]

BATCH_NUMBERS = 2**19
"""Scores in a batch: some ten milliseconds of work, next to which handing it out costs little."""

CHUNK_NUMBERS = 2**16
"""Scores drawn and measured at a time: larger temporary arrays would come from fresh pages of
memory, whose first touch takes longer than the arithmetic."""

BATCH_ROWS = 2**14
"""Most rows in a batch: it bounds what a worker sends back."""

IN_FLIGHT = 128
"""Batches handed to the executor at a time; a cluster uses up to as many workers."""

LARGEST_VALUE = 1e150
"""The square of a larger one, summed over the rows, could overflow."""

BITS = 15
"""Significant bits of the values in the histogram."""


class Estimate(NamedTuple):
    """A number estimated from random rows, or an array of them, with its standard error.

    The standard error is 0 where the value was computed without random numbers.
    """

    value: FloatArray
    standard_error: FloatArray


class RowLaw(Protocol):
    """A law of rows: any law of `attnlib.scores`, or an object of yours with this method."""

    def sample(self, rng: np.random.Generator, rows: int, n: int, /) -> FloatArray:
        """Return `rows` rows of `n` scores, shape (rows, n)."""


def sample(
    law: RowLaw,
    n: int,
    statistic: Statistic,
    *,
    rows: int,
    seed: int,
    executor: Executor | None = None,
) -> "Sample":
    """Return the mean and the quantiles of a statistic over `rows` ≥ 2 random rows of n scores.

    `statistic` maps scores of shape (m, n) to numbers of shape (m,), or (m, …) for several numbers
    a row, all from the same scores. It sees a few rows at a time; how many must not matter to it. A
    pool of processes or a cluster needs it picklable: a function of a module, or a
    `functools.partial` of one, such as `partial(rows.gradient, alpha=2.0)`.

    The memory needed does not grow with `rows` once the histogram has its values. The bytes of the
    result depend on law, n, statistic, rows and seed only, on processors that round alike.

    Raises ValueError or TypeError for bad arguments, for rows too long for memory, and for a
    statistic that returns another number of rows, no real numbers, NaN, or anything beyond ±1e150.
    What the statistic or the executor raises is passed on.

    >>> from functools import partial
    >>> from attnlib import rows, scores
    >>> gradient = partial(rows.gradient, alpha=1.0)
    >>> result = sample(scores.Normal(), 512, gradient, rows=10_000, seed=0)
    >>> value, error = result.mean()
    >>> abs(float(value) - (1.0 - np.e / 512)) < 1e-3, float(error) < 1e-4
    (True, True)
    """
    batches = _batches(law, n, statistic, rows, seed, executor)
    first = next(batches)
    mean = first.mean(axis=0)
    squares = ((first - mean) ** 2).sum(axis=0)
    histograms = [_Histogram(column) for column in first.reshape(len(first), -1).T]
    count = len(first)
    for values in batches:
        share = len(values) / (count + len(values))
        step = values.mean(axis=0) - mean
        squares = squares + ((values - mean - step) ** 2).sum(axis=0) + count * share * step**2
        mean = mean + share * step
        count += len(values)
        for histogram, column in zip(histograms, values.reshape(len(values), -1).T, strict=True):
            histogram.add(column)
    return Sample(count, mean, squares, [histogram.counts() for histogram in histograms])


def draws(
    law: RowLaw,
    n: int,
    statistic: Statistic,
    *,
    rows: int,
    seed: int,
    executor: Executor | None = None,
) -> FloatArray:
    """Return the statistic of every row, shape (rows, …), in the order of the rows.

    The same rows as those of `sample`, and what it says of the arguments holds here too; but memory
    grows with `rows`.

    >>> from attnlib import scores
    >>> draws(scores.Normal(), 4, lambda s: s.max(axis=-1), rows=3, seed=0).shape
    (3,)
    """
    return np.concatenate(list(_batches(law, n, statistic, rows, seed, executor)))


def mean_and_error(values: ArrayLike) -> Estimate:
    """Return the mean of independent values that are at hand, and its standard error √(variance/N).

    All N ≥ 2 values count alike, whatever their shape; of an array of truth values it is the share
    that is true. Raises ValueError or TypeError for fewer than two values, and for what is no real
    number or not finite.

    >>> mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    >>> float(mean), float(error)
    (2.5, 0.6454...)
    """
    share = isinstance(values, np.ndarray) and values.dtype == np.bool_
    given = checking.finite("values", np.asarray(values, dtype=np.float64) if share else values)
    if given.size < 2:
        raise ValueError(f"values must be at least two numbers, got {given.size}")
    return _estimate(given.mean(), given.std(ddof=1) / np.sqrt(given.size))


@dataclass(frozen=True, eq=False)
class Sample:
    """Mean and quantiles of a statistic over `count` rows; `sample` makes it.

    Each estimate has the shape that the statistic has for one row.
    """

    count: int
    _mean: FloatArray
    _squares: FloatArray
    _histograms: list[tuple[FloatArray, NDArray[np.int64]]]

    def mean(self) -> Estimate:
        """Return the mean, with the standard error √(variance/rows).

        Where the values spread by less than 1e-150 their squares underflow, and with them the
        standard error: take logarithms first.
        """
        return _estimate(self._mean, np.sqrt(self._squares / (self.count - 1) / self.count))

    def quantile(self, q: ArrayLike) -> Estimate:
        """Return the q-quantile, 0 < q < 1: shape of q first, then that of the statistic.

        It is the ⌈qN⌉-th smallest value, rounded to 15 significant bits (a relative error of up to
        3.1e-5; none for short numbers such as 0 and 1). The standard error is half the distance of
        the values whose ranks are one binomial standard deviation √(q(1 − q)N) to either side, and
        the rounding's own. Where the statistic takes few values it says little. Raises ValueError
        where q is so close to 0 or 1 that those ranks are not among the rows.
        """
        levels = checking.real("q", q)
        inside = np.clip(levels, 0.0, 1.0)
        spread = np.sqrt(inside * (1.0 - inside) / self.count)
        wrong = (levels - spread <= 0.0) | (levels + spread >= 1.0)
        if wrong.any():
            least = 1.0 / (self.count + 1)
            raise ValueError(
                f"q must be between {least:.2g} and 1 - {least:.2g} for {self.count} rows, "
                f"got q={levels[wrong].flat[0]:g}"
            )
        ranks = np.ceil(np.stack([levels, levels - spread, levels + spread]) * self.count)
        columns = [
            values[np.searchsorted(np.cumsum(counts), np.clip(ranks, 1.0, self.count))]
            for values, counts in self._histograms
        ]
        shape = (3, *levels.shape, *self._mean.shape)
        value, below, above = np.stack(columns, axis=-1).reshape(shape)
        rounding = 2.0 ** (1 - BITS) / np.sqrt(12.0) * np.abs(value)
        return _estimate(value, np.hypot((above - below) / 2.0, rounding))


class _Histogram:
    """How often each rounded value occurred. New ones wait until they outnumber the old."""

    def __init__(self, values: FloatArray) -> None:
        self._values, self._counts = np.unique(_rounded(values), return_counts=True)
        self._waiting: list[FloatArray] = []

    def add(self, values: FloatArray) -> None:
        self._waiting.append(_rounded(values))
        if sum(part.size for part in self._waiting) > max(self._values.size, BATCH_ROWS):
            self.counts()

    def counts(self) -> tuple[FloatArray, NDArray[np.int64]]:
        """Return the values, sorted, none twice, and their counts."""
        if self._waiting:
            fresh, count = np.unique(np.concatenate(self._waiting), return_counts=True)
            both = np.concatenate([self._values, fresh])
            self._values, place = np.unique(both, return_inverse=True)
            total = np.bincount(place, np.concatenate([self._counts, count]))
            self._counts, self._waiting = total.astype(np.int64), []
        return self._values, self._counts


def _rounded(values: FloatArray) -> FloatArray:
    fraction, exponent = np.frexp(values)
    return cast(FloatArray, np.ldexp(np.rint(np.ldexp(fraction, BITS)), exponent - BITS))


def _estimate(value: ArrayLike, error: ArrayLike) -> Estimate:
    return Estimate(np.asarray(value)[()], np.asarray(error)[()])


def _batches(
    law: RowLaw, n: int, statistic: Statistic, rows: int, seed: int, executor: Executor | None
) -> Iterator[FloatArray]:
    """Yield the statistic of the rows of each batch, in order."""
    if isinstance(law, type) or not callable(getattr(law, "sample", None)):
        raise TypeError(f"law must have a method sample(rng, rows, n), got law={law!r:.80}")
    if not callable(statistic):
        raise TypeError(
            "statistic must be a function of scores of shape (rows, n), "
            f"got statistic={statistic!r:.80}"
        )
    keys = checking.integer("n", n, minimum=1)
    total = checking.integer("rows", rows, minimum=2)
    origin = checking.integer("seed", seed, minimum=0)
    of_a_batch = max(1, min(BATCH_ROWS, BATCH_NUMBERS // keys))
    batches = -(-total // of_a_batch)
    measure = partial(_batch, law, keys, statistic, origin)
    pool = ThreadPoolExecutor(cores()) if executor is None else nullcontext(executor)
    with pool as workers:
        for start in range(0, batches, IN_FLIGHT):
            indices = range(start, min(batches, start + IN_FLIGHT))
            counts = [min(of_a_batch, total - index * of_a_batch) for index in indices]
            yield from workers.map(measure, indices, counts)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _batch(
    law: RowLaw, n: int, statistic: Statistic, seed: int, index: int, rows: int
) -> FloatArray:
    """Return the statistic of the rows of one batch."""
    # The child that SeedSequence(seed).spawn would give, without those before it.
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
    chunk = max(1, CHUNK_NUMBERS // n)
    counts = [min(chunk, rows - start) for start in range(0, rows, chunk)]
    return np.concatenate([_measured(law, n, statistic, rng, count) for count in counts])


def _measured(
    law: RowLaw, n: int, statistic: Statistic, rng: np.random.Generator, count: int
) -> FloatArray:
    scores = law.sample(rng, count, n)
    if np.shape(scores) != (count, n):
        raise ValueError(
            f"law must return scores of the shape asked for, {(count, n)}, "
            f"got shape {np.shape(scores)}"
        )
    values = np.asarray(statistic(scores))
    if values.dtype.kind not in "iuf":
        raise TypeError(f"statistic must return real numbers, got type {values.dtype}")
    if values.shape[:1] != (count,) or values.size == 0:
        raise ValueError(
            f"statistic must return numbers for each of the {count} rows, shape ({count},) or "
            f"({count}, …), got shape {values.shape}"
        )
    values = values.astype(np.float64)
    wrong = ~(np.abs(values) <= LARGEST_VALUE)
    if wrong.any():
        raise ValueError(
            f"statistic must return numbers from -{LARGEST_VALUE:g} to {LARGEST_VALUE:g}, "
            f"got {values[wrong][0]:g}"
        )
    return values
