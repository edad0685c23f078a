"""Batches of windows that training and validation take from a text.

Source 002. Chapter: almost_scaled_training.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.lab.texts import Text

Tokens = NDArray[np.int64]
"""Bytes as a model reads them, with 256 for a hidden one."""

MASK = 256
"""The token that hides a byte from the encoder."""
IGNORED = -100
"""The target of a byte that the encoder need not predict; torch's cross-entropy skips it."""

# Of one seed: for the initial weights, for the windows, and for masks and tests.
WEIGHT_STREAM, START_STREAM, MASK_STREAM = range(3)


class Batch(NamedTuple):
    """Windows of a text, and the token to predict at each position.

    Chapter: almost_scaled_training.
    """

    inputs: Tokens
    """Shape (batch, sequence)."""
    targets: Tokens
    """Shape (batch, sequence); −100 where there is nothing to predict."""


def training_batches(
    text: Text, *, sequence: int, batch: int, steps: int, seed: int, masked: float | None = None
) -> Iterator[Batch]:
    """Yield `steps` batches of windows that start anywhere in the text, drawn with `seed`.

    For a decoder the target at each position is the next byte. With `masked`, for an encoder, that
    share of the bytes of each window, rounded, at least one, is hidden by the token 256 and is
    the target; the other targets are −100, to be ignored. The windows depend on nothing but the
    text, `sequence`, `batch` and `seed`, so runs that differ in the model see the same ones.

    Raises ValueError for a text that is shorter than a window. Chapter: almost_scaled_training.

    >>> from experiments.lab.texts import embedded
    >>> first, _ = training_batches(embedded(1000), sequence=16, batch=2, steps=2, seed=0)
    >>> first.inputs.shape, bool((first.inputs[:, 1:] == first.targets[:, :-1]).all())
    ((2, 16), True)
    """
    masks = np.random.default_rng([seed, MASK_STREAM])
    for begin in window_starts(text, sequence=sequence, batch=batch, steps=steps, seed=seed):
        yield _batch(text, begin, sequence, masked, masks)


def window_starts(
    text: Text, *, sequence: int, batch: int, steps: int, seed: int
) -> Iterator[Tokens]:
    """Yield the starts of the windows of each batch of `training_batches`, (batch,).

    Raises as `training_batches`.
    """
    windows, rng = _window_count(text, sequence), np.random.default_rng([seed, START_STREAM])
    for _ in range(steps):
        yield rng.integers(0, windows, batch)


def validation_batch(
    text: Text, *, sequence: int, windows: int, masked: float | None = None
) -> Batch:
    """Return up to `windows` windows, evenly spaced over the text, as one batch.

    They do not overlap unless there is no room for that. The same for every seed. `masked` and the
    error as in `training_batches`. Chapter: almost_scaled_training.

    >>> from experiments.lab.texts import embedded
    >>> validation_batch(embedded(1000), sequence=16, windows=9).inputs.shape
    (9, 16)
    """
    last = _window_count(text, sequence) - 1
    count = min(windows, 1 + last // sequence)
    starts = np.linspace(0, last, count).astype(np.int64)
    return _batch(text, starts, sequence, masked, np.random.default_rng([0, MASK_STREAM]))


def _window_count(text: Text, sequence: int) -> int:
    """Return the number of windows of `sequence` bytes and a next one; ValueError for none."""
    if text.size <= sequence:
        raise ValueError(
            f"the text must be longer than sequence={sequence}, got a text of {text.size} bytes"
        )
    return text.size - sequence


def _batch(
    text: Text, starts: Tokens, sequence: int, masked: float | None, rng: np.random.Generator
) -> Batch:
    """Return the batch of windows that begin at `starts`; `rng` draws the hidden bytes."""
    windows = text[starts[:, None] + np.arange(sequence + 1)].astype(np.int64)
    if masked is None:
        return Batch(windows[:, :-1], windows[:, 1:])
    inputs = windows[:, :-1]
    count = max(1, round(masked * sequence))
    # The smallest of independent numbers fall anywhere: as many hidden bytes in each window.
    order = rng.random(inputs.shape).argsort(axis=1)
    hidden = np.zeros(inputs.shape, dtype=bool)
    np.put_along_axis(hidden, order[:, :count], True, axis=1)
    return Batch(np.where(hidden, MASK, inputs), np.where(hidden, inputs, IGNORED))
