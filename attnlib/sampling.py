"""Simulate any row statistic by Monte Carlo, with standard errors, on any executor.

Rows of scores are drawn in batches. Batch i has a random stream of its own, the i-th child of the
seed, so on machines of one kind the result has the same bytes whatever executor computes them. Any
`concurrent.futures.Executor` will do. Without one, threads on this machine's processors share the
work: NumPy works outside the interpreter's lock.

The scores are gone when a batch is done. What the statistic says of each row is kept.

Chapter: mean_gradient.
"""

import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.scores import Law, check_law

Statistic = Callable[[FloatArray], ArrayLike]

BATCH_NUMBERS = 2**19
"""Scores in a batch: some ten milliseconds of work, next to which handing it out costs little."""

CHUNK_NUMBERS = 2**16
"""Scores drawn and measured at a time: larger temporary arrays would come from fresh pages of
memory, whose first touch takes longer than the arithmetic."""

BATCH_ROWS = 2**14
"""Most rows in a batch: it bounds the size of a worker's result."""

LARGEST_VALUE = 1e150
"""Largest value of a statistic: sums of squares of larger ones could overflow."""


class Estimate(NamedTuple):
    """Hold an estimate from random rows, a number or an array, and its standard error.

    The standard error is 0 where the value was computed without random numbers.
    """

    value: FloatArray
    standard_error: FloatArray


def sample(
    law: Law,
    n: int,
    statistic: Statistic,
    *,
    rows: int,
    seed: int,
    executor: Executor | None = None,
) -> "Sample":
    """Draw random rows and return a `Sample` of a statistic of each, for its mean and quantiles.

    - `law`: the distribution of the scores, a `Law`.
    - `n`: the number of scores of a row, an integer, 1 or more.
    - `statistic`: a function from scores of the shape (m, n) to numbers of the shape (m,), or
      (m, …) for several numbers a row, all from the same scores. It gets a few rows at a time; how
      many must not matter to it. A pool of processes or a cluster needs it picklable: a function of
      a module, or a `functools.partial` of one, such as `partial(rows.gradient, alpha=2.0)`.
    - `rows`: the number of rows, 2 or more.
    - `seed`: an integer, 0 or more. The bytes of the result depend on law, n, statistic, rows and
      seed only, on processors that round alike.
    - `executor`: a `concurrent.futures.Executor`, by default threads on this machine's processors.

    Returns a `Sample`. Eight bytes are kept of each number.

    Raises ValueError or TypeError for bad arguments, for rows too long for memory, and for a
    statistic whose result has another number of rows, is not real, or has NaN or a number beyond
    ±1e150. Errors of the statistic and of the executor are passed on.

    >>> from functools import partial
    >>> from attnlib import rows, scores
    >>> gradient = partial(rows.gradient, alpha=1.0)
    >>> result = sample(scores.Normal(), 512, gradient, rows=10_000, seed=0)
    >>> value, error = result.mean()
    >>> abs(float(value) - (1.0 - np.e / 512)) < 1e-3, float(error) < 1e-4
    (True, True)
    """
    check_law(law)
    if not callable(statistic):
        raise TypeError(
            "statistic must be a function of scores of shape (rows, n), "
            f"got statistic={statistic!r:.80}"
        )
    keys = _checking.integer("n", n, minimum=1)
    total = _checking.integer("rows", rows, minimum=2)
    origin = _checking.integer("seed", seed, minimum=0)
    of_a_batch = max(1, min(BATCH_ROWS, BATCH_NUMBERS // keys))
    starts = range(0, total, of_a_batch)
    counts = [min(of_a_batch, total - start) for start in starts]
    measure = partial(_batch, law, keys, statistic, origin)
    pool = ThreadPoolExecutor(cores()) if executor is None else nullcontext(executor)
    with pool as workers:
        return Sample(np.concatenate(list(workers.map(measure, range(len(counts)), counts))))


def mean_and_error(values: ArrayLike) -> Estimate:
    """Return the mean of independent values and its standard error, √(variance/N).

    - `values`: an array of N ≥ 2 real numbers of any shape, each an independent value; or a NumPy
      array of booleans, whose mean is the share of True.

    Returns an `Estimate`. Raises ValueError or TypeError for fewer than two values, and for values
    that are not real numbers or not finite.

    >>> mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    >>> float(mean), float(error)
    (2.5, 0.6454...)
    """
    share = isinstance(values, np.ndarray) and values.dtype == np.bool_
    numbers = _checking.finite("values", np.asarray(values, dtype=np.float64) if share else values)
    if numbers.size < 2:
        raise ValueError(f"values must be at least two numbers, got {numbers.size}")
    return make_estimate(numbers.mean(), numbers.std(ddof=1) / np.sqrt(numbers.size))


@dataclass(frozen=True, eq=False)
class Sample:
    """Hold the values of a statistic on random rows, as `sample` computes them.

    A mean has the shape that the statistic has for one row.
    """

    values: FloatArray
    """The statistic of every row, shape (rows, …), in the order of the rows."""

    def mean(self) -> Estimate:
        """Return the mean of the statistic and its standard error √(variance/rows), an `Estimate`.

        Where the values spread by less than 1e-150 their squares underflow, and with them the
        standard error: take logarithms first.
        """
        error = self.values.std(axis=0, ddof=1) / np.sqrt(len(self.values))
        return make_estimate(self.values.mean(axis=0), error)

    def quantile(self, q: ArrayLike) -> Estimate:
        """Return a quantile of the statistic and its standard error, an `Estimate`.

        - `q`: 0 < q < 1, a number or an array of one axis. The result has the shape of q first,
          then that of the statistic.

        Of N rows it is the ⌈qN⌉-th smallest value. The standard error is half the distance between
        the two values whose ranks are one binomial standard deviation, √(q(1 − q)N), to either
        side. Where the statistic takes few distinct values this error says little. Raises TypeError
        for a q that is not real, and ValueError where those ranks are not among the rows.
        """
        levels, count = _checking.real("q", q), len(self.values)
        inside = np.clip(levels, 0.0, 1.0)
        spread = np.sqrt(inside * (1.0 - inside) / count)
        kind = f"between {1 / (count + 1):.2g} and 1 - {1 / (count + 1):.2g} for {count} rows"
        inner = (levels - spread > 0.0) & (levels + spread < 1.0)
        _checking.require("q", levels, inner, kind)
        ranks = np.stack([levels, levels - spread, levels + spread])
        value, below, above = np.quantile(self.values, ranks, axis=0, method="inverted_cdf")
        return make_estimate(value, (above - below) / 2.0)


def make_estimate(value: ArrayLike, error: ArrayLike) -> Estimate:
    """Return an `Estimate` of numbers or arrays; an array of no axes becomes a number."""
    return Estimate(np.asarray(value)[()], np.asarray(error)[()])


def cores() -> int:
    """Return the number of logical processors that this process may use, if known; else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _batch(law: Law, n: int, statistic: Statistic, seed: int, index: int, rows: int) -> FloatArray:
    """Return the statistic of the rows of batch `index`, drawn from a random stream of its own."""
    # The child that SeedSequence(seed).spawn would give, without those before it.
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
    chunk = max(1, CHUNK_NUMBERS // n)
    counts = [min(chunk, rows - start) for start in range(0, rows, chunk)]
    return np.concatenate([_compute_statistic(law, n, statistic, rng, count) for count in counts])


def _compute_statistic(
    law: Law, n: int, statistic: Statistic, rng: np.random.Generator, count: int
) -> FloatArray:
    values = np.asarray(statistic(law.sample(rng, count, n)))
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
