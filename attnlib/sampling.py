"""Monte Carlo of any row statistic: streaming, in constant memory, with standard errors.

Rows of scores are drawn in batches. Batch i has a random stream of its own, the i-th child of the
seed, and batches are folded in their order, so the result has the same bytes however many workers
there are and in whatever order they finish. Any `concurrent.futures.Executor` will do. Without one,
threads on this machine's processors share the work: NumPy works outside the interpreter's lock.

Of each statistic only the first four central moments are kept, and a histogram of its values
rounded to 15 significant bits, from which the quantiles are read.

Chapter: typical.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlib import checking, provenance
from attnlib.checking import FloatArray

IntegerArray = NDArray[np.int64]
Statistic = Callable[[FloatArray], ArrayLike]
Result = TypeVar("Result")

BATCH_NUMBERS = 2**19
"""Scores in a batch: some ten milliseconds of work, next to which handing it out costs little."""

CHUNK_NUMBERS = 2**16
"""Scores drawn and measured at a time: larger temporary arrays would come from fresh pages of
memory, whose first touch takes longer than the arithmetic."""

BATCH_ROWS = 2**14
"""Most rows in a batch: it bounds what a worker sends back."""

IN_FLIGHT = 128
"""Most batches handed to the executor and not yet folded; a cluster uses up to as many workers."""

LARGEST_VALUE = 1e70
"""The fourth power of a larger one, summed over the rows, could overflow."""

DROPPED_BITS = 38
"""Of the 52 bits of a float64 after its leading one; 14 are kept."""

RESOLUTION = 2.0**-14
"""Largest spacing of the histogram's values, relative to a value."""


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


class SamplingInterrupted(RuntimeError):  # noqa: N818 - it says what happened, and can be mended
    """The executor failed. `partial` is the `Sample` so far, to pass as `resume`."""

    def __init__(self, message: str, partial: "Sample | None" = None) -> None:
        super().__init__(message)
        self.partial = partial


class SamplingStopped(KeyboardInterrupt):
    """The keyboard stopped it. `partial` is the `Sample` so far, to pass as `resume`."""

    def __init__(self, message: str, partial: "Sample | None" = None) -> None:
        super().__init__(message)
        self.partial = partial


def sample(
    law: RowLaw,
    n: int,
    statistic: Statistic,
    *,
    rows: int,
    seed: int,
    executor: Executor | None = None,
    progress: bool = False,
    resume: "Sample | None" = None,
) -> "Sample":
    """Return the moments and quantiles of a statistic over `rows` ≥ 2 random rows of n scores.

    `statistic` maps scores of shape (m, n) to numbers of shape (m,), or (m, …) for several numbers
    a row, all from the same scores. It sees a few rows at a time; how many must not matter to it. A
    pool of processes or a cluster needs it picklable: a function of a module, or a
    `functools.partial` of one, such as `partial(rows.gradient, alpha=2.0)`. In threads any callable
    will do; one that spends its time in Python rather than NumPy gains from a pool of processes.

    The memory needed does not grow with `rows` once the histogram has its values. The bytes of the
    result depend on law, n, statistic, rows and seed only, on processors that round alike.
    `progress` shows a bar on stderr.

    When the executor fails, by a killed worker for example, SamplingInterrupted is raised and
    holds what was folded; `resume=error.partial`, the other arguments unchanged, goes on from there
    to the same bytes as if nothing had happened. SamplingStopped does the same for Ctrl-C. A lost
    Dask worker is no failure: the scheduler runs its batches elsewhere.

    Raises ValueError or TypeError for bad arguments, rows too long for memory, a `resume` of
    another call, and a statistic that returns another number of rows, no real numbers, NaN, or
    anything beyond ±1e70. What the statistic itself raises is passed on.

    >>> from functools import partial
    >>> from attnlib import rows, scores
    >>> gradient = partial(rows.gradient, alpha=1.0)
    >>> result = sample(scores.Normal(), 512, gradient, rows=10_000, seed=0)
    >>> value, error = result.mean()
    >>> abs(float(value) - (1.0 - np.e / 512)) < 1e-3, float(error) < 1e-4
    (True, True)
    """
    job = _job(law, n, statistic, rows, seed)
    result = Sample(job) if resume is None else _resumed(resume, job)
    indices = range(result.batches, job.batches)
    try:
        with _bar(progress, job.rows, result.count) as bar:
            for summary in _in_order(job.summary, indices, executor):
                result = result._with(summary)  # one assignment: Ctrl-C leaves it whole
                if bar is not None:
                    bar.update(summary.moments.rows)
    except _ExecutorError as failure:
        cause = failure.__cause__
        raise SamplingInterrupted(
            f"the executor failed after {result.count} of {job.rows} rows "
            f"({type(cause).__name__}: {cause}); resume=error.partial goes on from there",
            result,
        ) from cause
    except KeyboardInterrupt:
        raise SamplingStopped(
            f"stopped after {result.count} of {job.rows} rows; "
            "resume=error.partial goes on from there",
            result,
        ) from None
    return result


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
    grows with `rows`, and after SamplingInterrupted, whose `partial` is None, nothing is kept.

    >>> from attnlib import scores
    >>> draws(scores.Normal(), 4, lambda s: s.max(axis=-1), rows=3, seed=0).shape
    (3,)
    """
    job = _job(law, n, statistic, rows, seed)
    try:
        np.empty(rows)  # asked for now, not after a day's work
    except (MemoryError, ValueError):
        raise ValueError(
            f"rows must be few enough for memory to hold a number of each, got rows={rows}"
        ) from None
    try:
        return np.concatenate(list(_in_order(job.values, range(job.batches), executor)))
    except _ExecutorError as failure:
        cause = failure.__cause__
        raise SamplingInterrupted(
            f"the executor failed ({type(cause).__name__}: {cause})"
        ) from cause


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


class _Moments(NamedTuple):
    """Rows, mean and sums of powers of the deviations from the mean."""

    rows: int
    mean: FloatArray
    second: FloatArray
    third: FloatArray
    fourth: FloatArray

    @classmethod
    def of(cls, values: FloatArray) -> "_Moments":
        mean = values.mean(axis=0)
        deviation = values - mean
        square = deviation**2
        return cls(
            len(values),
            mean,
            square.sum(axis=0),
            (square * deviation).sum(axis=0),
            (square**2).sum(axis=0),
        )

    def merge(self, other: "_Moments") -> "_Moments":
        """Return the moments of both samples together: the binomial theorem about the new mean."""
        count = self.rows + other.rows
        a, b = self.rows / count, other.rows / count
        step = other.mean - self.mean
        weight = a * b * count
        return _Moments(
            count,
            self.mean + b * step,
            self.second + other.second + weight * step**2,
            self.third
            + other.third
            + weight * (a - b) * step**3
            + 3.0 * step * (a * other.second - b * self.second),
            self.fourth
            + other.fourth
            + weight * (a * a - a * b + b * b) * step**4
            + 6.0 * step**2 * (a * a * other.second + b * b * self.second)
            + 4.0 * step * (a * other.third - b * self.third),
        )


class _Counts(NamedTuple):
    """How often each rounded value occurred, by the key of the value."""

    keys: IntegerArray  # sorted, none twice
    counts: IntegerArray

    @classmethod
    def of(cls, values: FloatArray) -> "_Counts":
        return cls(*np.unique(_keys(values), return_counts=True))

    @classmethod
    def total(cls, parts: "tuple[_Counts, ...]") -> "_Counts":
        keys = np.concatenate([part.keys for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
        return cls(keys[first], np.add.reduceat(counts[order], first))


def _keys(values: FloatArray) -> IntegerArray:
    """Return integers in the order of the values, one for each value of 15 significant bits."""
    bits = np.ascontiguousarray(values).view(np.int64)
    magnitude = bits & np.iinfo(np.int64).max
    key = (magnitude + (1 << (DROPPED_BITS - 1))) >> DROPPED_BITS
    return np.where(bits < 0, -key, key)


def _values(keys: IntegerArray) -> FloatArray:
    magnitude = (np.abs(keys) << DROPPED_BITS).view(np.float64)
    return np.copysign(magnitude, keys)


class _Histogram(NamedTuple):
    """Exact counts. New ones wait until they outnumber the old, so that folding stays linear."""

    parts: tuple[_Counts, ...] = ()
    waiting: int = 0

    def add(self, part: _Counts) -> "_Histogram":
        parts, waiting = (*self.parts, part), self.waiting + part.keys.size
        if waiting > max(parts[0].keys.size, BATCH_ROWS):
            return _Histogram((_Counts.total(parts),))
        return _Histogram(parts, waiting)


class _Summary(NamedTuple):
    """What a worker sends back of a batch: one entry of `counts` for each number of a row."""

    moments: _Moments
    counts: list[_Counts]


@dataclass(frozen=True)
class _Job:
    """What is sampled: all that the result depends on."""

    law: RowLaw
    n: int
    statistic: Statistic
    rows: int
    seed: int

    @property
    def batch_rows(self) -> int:
        return max(1, min(BATCH_ROWS, BATCH_NUMBERS // self.n))

    @property
    def batches(self) -> int:
        return -(-self.rows // self.batch_rows)

    def values(self, index: int) -> FloatArray:
        """Return the statistic of the rows of one batch."""
        # The child that SeedSequence(seed).spawn would give, without those before it.
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index,)))
        rows = min(self.batch_rows, self.rows - index * self.batch_rows)
        chunk = max(1, CHUNK_NUMBERS // self.n)
        counts = [min(chunk, rows - start) for start in range(0, rows, chunk)]
        values = [self._chunk(rng, count) for count in counts]
        if any(part.shape[1:] != values[0].shape[1:] for part in values):
            raise ValueError(
                "statistic must return one shape for every row, "
                f"got {sorted({part.shape[1:] for part in values})}"
            )
        return np.concatenate(values)

    def _chunk(self, rng: np.random.Generator, count: int) -> FloatArray:
        try:
            scores = self.law.sample(rng, count, self.n)
            if np.shape(scores) != (count, self.n):
                raise ValueError(
                    f"law must return scores of the shape asked for, {(count, self.n)}, "
                    f"got shape {np.shape(scores)}"
                )
            values = np.asarray(self.statistic(scores))
        except MemoryError:
            raise ValueError(
                f"n must be small enough for memory to hold a row of scores, got n={self.n}"
            ) from None
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

    def summary(self, index: int) -> _Summary:
        values = self.values(index)
        columns = values.reshape(len(values), -1).T
        return _Summary(_Moments.of(values), [_Counts.of(column) for column in columns])


@dataclass(frozen=True, eq=False)
class Sample:
    """The moments and quantiles of a statistic over the rows sampled so far; `sample` makes it.

    Each estimate has the shape that the statistic has for one row. It can be pickled, to resume
    another day.
    """

    _job: _Job
    batches: int = 0
    _moments: _Moments | None = None
    _histograms: tuple[_Histogram, ...] = ()

    @property
    def count(self) -> int:
        """How many rows there are."""
        return 0 if self._moments is None else self._moments.rows

    def mean(self) -> Estimate:
        """Return the mean, with the standard error √(variance/rows).

        Where the values spread by less than 1e-150 their squares underflow, and with them the
        standard error: take logarithms first. Raises ValueError below two rows.
        """
        moments = self._enough()
        variance = moments.second / (moments.rows - 1)
        return _estimate(moments.mean, np.sqrt(variance / moments.rows))

    def variance(self) -> Estimate:
        """Return the unbiased variance, with its standard error from the fourth central moment.

        The latter is √[(m₄ − m₂²(N − 3)/(N − 1))/N]. Raises ValueError below two rows.
        """
        moments = self._enough()
        count = moments.rows
        second, fourth = moments.second / count, moments.fourth / count
        spread = np.maximum(fourth - second**2 * ((count - 3) / (count - 1)), 0.0)
        return _estimate(moments.second / (count - 1), np.sqrt(spread / count))

    def quantile(self, q: ArrayLike) -> Estimate:
        """Return the q-quantile, 0 < q < 1: shape of q first, then that of the statistic.

        It is the ⌈qN⌉-th smallest value, rounded to 15 significant bits (a relative error of up to
        3.1e-5; none for short numbers such as 0 and 1). The standard error is half the distance of
        the values whose ranks are one binomial standard deviation √(q(1 − q)N) to either side, and
        the rounding's own. Where the statistic takes few values it says little. Raises ValueError
        where q is so close to 0 or 1 that those ranks are not among the rows.
        """
        moments = self._enough()
        levels = checking.real("q", q)
        inside = np.clip(levels, 0.0, 1.0)
        spread = np.sqrt(inside * (1.0 - inside) / moments.rows)
        wrong = (levels - spread <= 0.0) | (levels + spread >= 1.0)
        if wrong.any():
            least = 1.0 / (moments.rows + 1)
            raise ValueError(
                f"q must be between {least:.2g} and 1 - {least:.2g} for {moments.rows} rows, "
                f"got q={levels[wrong].flat[0]:g}"
            )
        ranks = np.stack([levels, levels - spread, levels + spread]) * moments.rows
        columns = [_of_rank(_Counts.total(h.parts), ranks) for h in self._histograms]
        shape = (3, *levels.shape, *moments.mean.shape)
        value, below, above = np.stack(columns, axis=-1).reshape(shape)
        rounding = RESOLUTION / np.sqrt(12.0) * np.abs(value)
        return _estimate(value, np.hypot((above - below) / 2.0, rounding))

    def _enough(self) -> _Moments:
        if self._moments is None or self._moments.rows < 2:
            raise ValueError(f"an estimate needs rows, at least 2, got {self.count}")
        return self._moments

    def _with(self, summary: _Summary) -> "Sample":
        """Return the sample with one more batch."""
        moments, before = summary.moments, self._moments
        if before is None:
            histograms = tuple(_Histogram() for _ in summary.counts)
        elif before.mean.shape == moments.mean.shape:
            moments, histograms = before.merge(moments), self._histograms
        else:
            raise ValueError(
                "statistic must return one shape for every row, "
                f"got {before.mean.shape} and then {moments.mean.shape}"
            )
        added = (h.add(counts) for h, counts in zip(histograms, summary.counts, strict=True))
        return Sample(self._job, self.batches + 1, moments, tuple(added))


def _of_rank(counts: _Counts, ranks: FloatArray) -> FloatArray:
    """Return the values of the given ranks, from 1 on, each rank rounded up."""
    cumulative = np.cumsum(counts.counts)
    whole = np.clip(np.ceil(ranks), 1.0, float(cumulative[-1]))
    return _values(counts.keys)[np.searchsorted(cumulative, whole)]


def _estimate(value: ArrayLike, error: ArrayLike) -> Estimate:
    return Estimate(np.asarray(value)[()], np.asarray(error)[()])


def _job(law: RowLaw, n: int, statistic: Statistic, rows: int, seed: int) -> _Job:
    if isinstance(law, type) or not callable(getattr(law, "sample", None)):
        raise TypeError(f"law must have a method sample(rng, rows, n), got law={law!r:.80}")
    if not callable(statistic):
        raise TypeError(
            "statistic must be a function of scores of shape (rows, n), "
            f"got statistic={statistic!r:.80}"
        )
    return _Job(
        law,
        checking.integer("n", n, minimum=1),
        statistic,
        checking.integer("rows", rows, minimum=2),
        checking.integer("seed", seed, minimum=0),
    )


def _resumed(resume: "Sample", job: _Job) -> "Sample":
    if not isinstance(resume, Sample):
        raise TypeError(f"resume must be a Sample, got resume={resume!r:.80}")
    for name in ("law", "n", "statistic", "rows", "seed"):
        before, now = getattr(resume._job, name), getattr(job, name)
        if not _same(before, now):
            raise ValueError(
                f"{name} must be that of the call that resume comes from, {before!r:.80}, "
                f"got {name}={now!r:.80}"
            )
    return resume


def _same(a: Any, b: Any) -> bool:
    """Return whether a and b are the same; two equal partial functions pickle to the same bytes."""
    if a is b:
        return True
    try:
        return bool(a == b) or pickle.dumps(a) == pickle.dumps(b)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError):
        return False


class _ExecutorError(Exception):
    """The executor, not the statistic, raised this exception's cause."""


class _Raised(NamedTuple):
    """An exception of the statistic, sent back as a result: what is raised is the executor's."""

    error: Exception


def _attempt(function: Callable[[int], Result], index: int) -> Result | _Raised:
    try:
        return function(index)
    except Exception as error:
        return _Raised(error)


def _in_order(
    function: Callable[[int], Result], indices: range, executor: Executor | None
) -> Iterator[Result]:
    """Yield function(index) for each index, in order, with a bounded number of calls under way."""
    if executor is None and len(indices) <= 1:
        yield from map(function, indices)
        return
    pool = ThreadPoolExecutor(provenance.cores()) if executor is None else executor
    waiting: deque[tuple[int, Future[Result | _Raised]]] = deque()
    failure: Exception | None = None

    def submitted(index: int) -> Future[Result | _Raised]:
        return pool.submit(partial(_attempt, function), index)

    def oldest() -> Result:
        index, future = waiting.popleft()
        try:
            result = future.result()
        except Exception as error:
            # A cluster may lose a result with the worker that holds it, and the error need not say
            # so; the batch is the same wherever and however often it is computed.
            try:
                result = submitted(index).result()
            except Exception:
                raise _ExecutorError from error
        if isinstance(result, _Raised):
            raise result.error
        return result

    try:
        for index in indices:
            if len(waiting) == IN_FLIGHT:
                yield oldest()
            try:
                waiting.append((index, submitted(index)))
            except Exception as error:  # a broken pool: what it finished before is still good
                failure = error
                break
        while waiting:
            yield oldest()
        if failure is not None:
            raise _ExecutorError from failure
    finally:
        for _, future in waiting:
            future.cancel()
        if executor is None:
            pool.shutdown(cancel_futures=True)


def _bar(progress: bool, total: int, done: int) -> Any:
    if not progress:
        return nullcontext()
    from tqdm import tqdm  # not needed without a bar

    return tqdm(total=total, initial=done, unit="row", unit_scale=True)
