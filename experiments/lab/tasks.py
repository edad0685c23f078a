"""Tasks for a head or a small Transformer, in which the place of the needle is known.

- `nearest`: the query is a noisy copy of one of n keys, which are directions in d dimensions.
- `recall`: pairs of a key and a value, a token each, and then keys, of which the value is to be
  said. A Transformer of one layer can learn it, without positions.
- `induction`: a sequence, and a stretch of it again, of which each next token is to be said. It
  takes two layers, and positions.

What the needle has above the others is a task's `gap`:

- "noise": of a law of the noise's own kind, tilted by θ, whatever n (`attnlib.retrieval.Tilted`);
- "fixed": exactly so much, whatever n (`attnlib.retrieval.Fixed`);
- "growing": tilted by θ log n/log n₀, n₀ the length of training. In `recall` the key that is meant
  stands at one place only, as where the gap is fixed, and a wrong query is one of its 7
  look-alikes: so their number grows with n, and the rule that keeps up with it is log n.

Chapter: length_extrapolation.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.scores import Cosine
from experiments.lab.descent import DECAYS, Descent
from experiments.lab.fields import checked, checked_lengths

TASKS = ("nearest", "recall", "induction")
GAPS = ("noise", "fixed", "growing")
QUERIES = 8
"""Queries of one set of keys, and the last ones of a sequence, which are measured."""
SYMBOLS = 64
"""The number of the keys of `recall`, and of the tokens of `induction`."""
ALIKE = 8
"""Where the gap grows, so many keys of `recall` in a row are taken for one another."""
VALUES = 3
"""The number of the values that a key of `recall` may have."""


def _checked_shortest(name: str, value: Any) -> int | None:
    """Return the value, None or a whole number from 24 on."""
    return None if value is None else _checking.integer(name, value, minimum=3 * QUERIES)


@dataclass(frozen=True)
class Task(Descent):
    """A task, how it is learned, and the lengths at which it is tested.

    A batch is of sets of keys, each with eight queries, or of sequences. Raises ValueError or
    TypeError that names a field, its value and what is allowed. Chapter: length_extrapolation.

    >>> Task(gap="growing", lengths=[16, 64]).lengths
    (16, 64)
    """

    name: str = checked("nearest", _checking.choice, allowed=TASKS)
    """One of `TASKS`."""
    gap: str = checked("noise", _checking.choice, allowed=GAPS)
    """One of `GAPS`."""
    strength: float = checked(0.5, _checking.positive)
    """ϱ, between 0 and 1: the (mean) cosine of query and needle at n₀; of tokens the chance that
    the query is a true copy, which is 1 where the gap is fixed."""
    learning_rate: float = checked(2.0**-7, _checking.positive)
    decay: str = checked("linear", _checking.choice, allowed=DECAYS)
    steps: int = checked(1000, _checking.integer, minimum=1)
    batch: int = checked(32, _checking.integer, minimum=1)
    lengths: tuple[int, ...] = checked((), checked_lengths)
    """Of the tests, in keys or tokens; n₀ is tested first, and alone where there are none."""
    shortest: int | None = checked(None, _checked_shortest)
    """Sequences of training are as long as n₀, or with a number, at least 24, of any length from it
    to n₀, each equally often on a scale of log n and the same in a batch."""
    rows: int = checked(1024, _checking.integer, minimum=1)
    """Queries of a test, a multiple of 8."""


def tilt(strength: float, d: int) -> float:
    """Return θ, by which a needle among random directions is tilted whose mean cosine is ϱ.

    The root of κ'(θ) = ϱ, 0 < ϱ < 1, for cosines in d ≥ 3 dimensions.
    Chapter: length_extrapolation.

    >>> round(tilt(0.5, 32), 3)
    21.072
    """
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    law = Cosine(d)

    def excess(log_theta: float) -> float:
        """Return κ'(θ) − ϱ."""
        return float(law.log_mgf_derivatives(np.exp(log_theta)).first) - strength

    return float(np.exp(brentq(excess, -30.0, 30.0, xtol=1e-12)))


class Drawn(NamedTuple):
    """Rows of a task: the arrays to read, and the answer and the needle of each query."""

    read: tuple[NDArray[Any], ...]
    """Queries (sets, queries, d) and keys (sets, n, d), of length √d; or tokens (sets, n)."""
    answer: NDArray[np.int64]
    """(sets, queries): of keys the needle itself."""
    needle: NDArray[np.int64]
    """(sets, queries)"""


def draw_nearest(
    task: Task, length: int, d: int, n: int, rng: np.random.Generator, sets: int
) -> Drawn:
    """Return sets of n keys for a head of training length `length`.

    Keys are uniform on the sphere. A query has the cosine w with its needle and is uniform but for
    that: w = ϱ where the gap is fixed, else of the density (1 − w²)^{(d−3)/2} e^{θw}, so that given
    the query the needle is von Mises and Fisher's. Chapter: length_extrapolation.
    """
    keys = _directions(rng, (sets, n, d))
    needle = rng.integers(0, n, (sets, QUERIES))
    cosine = np.full(needle.shape, task.strength)
    if task.gap != "fixed":
        growth = np.log(n) / np.log(length) if task.gap == "growing" else 1.0
        cosine = np.interp(rng.random(needle.shape), *_quantiles(task.strength, d, growth))
    cosine = cosine[..., None].astype(np.float32)
    targets = np.take_along_axis(keys, needle[..., None], axis=1)
    aside = _directions(rng, targets.shape)
    aside -= (aside * targets).sum(axis=-1, keepdims=True) * targets
    aside /= np.linalg.norm(aside, axis=-1, keepdims=True)
    queries = cosine * targets + np.sqrt(1.0 - cosine**2) * aside
    root = np.float32(np.sqrt(d))
    return Drawn(((root * queries).astype(np.float32), root * keys), needle, needle)


def draw_sequences(
    task: Task, length: int, n: int, rng: np.random.Generator, sets: int, queries: int = QUERIES
) -> Drawn:
    """Return sequences of n tokens, the last of them queries, for training length `length`.

    `recall`: the token 4·key + value is a pair, with a value from 1 to 3, and 4·key asks for it.
    The needle of a query is the pair. `induction`: the queries are tokens in a row of those
    before, and the needle is the one after the query's own.

    Where the gap is fixed, what a query copies stands at one place only. Else all are drawn alike,
    and the copy is true with the chance ϱ, and any other token without it: a needle tilted by
    θ = log(63ϱ/(1 − ϱ)) among scores 0 or 1, times log n/log n₀ where the gap grows. In `recall` it
    then stands at one place only, too, and a wrong token is one of 7 for 63.
    Chapter: length_extrapolation.
    """
    before, induction = n - queries, task.name == "induction"
    similar = task.gap == "growing" and not induction
    alike = task.gap != "fixed" and not similar
    starts = rng.integers(0, before - queries, (sets, 1)) + np.arange(queries)
    anywhere = rng.random((sets, before)).argsort(axis=1)[:, :queries]
    places = starts if induction else anywhere
    shuffled = rng.permuted(np.tile(np.arange(SYMBOLS), (sets, 1)), axis=1)
    drawn = rng.integers(0 if alike else queries, SYMBOLS, (sets, before))
    keys = np.take_along_axis(shuffled, drawn, axis=1)
    if not alike:
        np.put_along_axis(keys, places, shuffled[:, :queries], axis=1)
    queried = np.take_along_axis(keys, places, axis=1)
    if task.gap != "fixed":
        near = ALIKE if similar else SYMBOLS
        odds = np.log(near - 1.0)
        theta = odds + np.log(task.strength / (1.0 - task.strength))
        theta *= np.log(n) / np.log(length) if task.gap == "growing" else 1.0
        wrong = rng.random(queried.shape) * (1.0 + np.exp(theta - odds)) < 1.0
        other = rng.integers(1, near, queried.shape)
        queried = np.where(wrong, queried // near * near + (queried + other) % near, queried)
    if induction:
        answer = np.take_along_axis(keys, places + 1, axis=1)
        return Drawn((np.concatenate([keys, queried], axis=1),), answer, places + 1)
    values = rng.integers(1, VALUES + 1, keys.shape)
    pairs = (VALUES + 1) * keys + values
    tokens = np.concatenate([pairs, (VALUES + 1) * queried], axis=1)
    return Drawn((tokens,), np.take_along_axis(values, places, axis=1), places)


@lru_cache
def _quantiles(strength: float, d: int, growth: float) -> tuple[FloatArray, FloatArray]:
    """Return probabilities, and the quantiles there of the cosine of a tilted needle."""
    edges = np.linspace(-1.0, 1.0, 2**14 + 1)
    middle = (edges[1:] + edges[:-1]) / 2.0
    log_density = growth * tilt(strength, d) * middle + (d - 3.0) / 2.0 * np.log1p(-(middle**2))
    below = np.cumsum(np.exp(log_density - log_density.max()))
    return np.append(0.0, below) / below[-1], edges


def _directions(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return vectors of length 1, uniform on the sphere."""
    drawn = rng.standard_normal(shape, dtype=np.float32)
    drawn /= np.linalg.norm(drawn, axis=-1, keepdims=True)
    return drawn
