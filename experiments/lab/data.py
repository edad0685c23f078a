"""Texts as bytes, and the batches that training draws from them.

Three texts: "embedded", which this module writes itself; "tiny-shakespeare", 1,115,394 bytes that
character models are often trained on, fetched once; and "python", 105 MB of the installed packages
(`corpus`). A text is an array of uint8, and a byte is a token.

Source 002. Chapter: almost_scaled_training.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlib import _checking
from experiments.lab import corpus

Text = NDArray[np.uint8]
"""A text: its bytes."""
Tokens = NDArray[np.int64]
"""Bytes as a model reads them, or 256 for a hidden one."""

SHAKESPEARE = "tiny-shakespeare"
EMBEDDED = "embedded"
PYTHON = "python"
NAMES = (EMBEDDED, SHAKESPEARE, PYTHON)
"""The texts that have a name."""

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"

MASK = 256
"""The token that hides a byte from the encoder."""
IGNORED = -100
"""The target of a byte that the encoder need not predict; torch's cross-entropy skips it."""

# Streams of random numbers drawn with the same seed.
WEIGHTS, STARTS, MASKS = range(3)


class Batch(NamedTuple):
    """Windows of a text, and what the model should say at each position.

    Chapter: almost_scaled_training.
    """

    inputs: Tokens
    """Shape (batch, sequence)."""
    targets: Tokens
    """Shape (batch, sequence); −100 where there is nothing to say."""


def load(name: str) -> Text:
    """Return the text called "embedded", "tiny-shakespeare" or "python".

    tiny-shakespeare is fetched once, into tiny-shakespeare.txt in the user's cache (`ATTNLIB_CACHE`
    names another folder); a copy that lies there is not fetched. Raises ValueError for another
    name and as `corpus.load`, OSError when it cannot be fetched. Chapter: almost_scaled_training.
    """
    if _checking.choice("name", name, NAMES) == EMBEDDED:
        return embedded()
    if name == PYTHON:
        return np.frombuffer(corpus.load(), dtype=np.uint8)
    import pooch

    known, cache = f"sha256:{SHAKESPEARE_SHA256}", os.environ.get("ATTNLIB_CACHE")
    file, folder = f"{SHAKESPEARE}.txt", cache or pooch.os_cache("attnlib")
    try:
        path = Path(pooch.retrieve(SHAKESPEARE_URL, known, fname=file, path=folder))
        return np.frombuffer(path.read_bytes(), dtype=np.uint8)
    except OSError as error:
        raise OSError(
            f"{file} could not be fetched from {SHAKESPEARE_URL}: {type(error).__name__}; put a "
            f"copy into {folder}"
        ) from error


def sha256(name: str) -> str:
    """Return the sha256 of a text, 64 hexadecimal digits; ValueError as `load`."""
    if _checking.choice("corpus", name, NAMES) == SHAKESPEARE:
        return SHAKESPEARE_SHA256
    if name == PYTHON:
        return corpus.sha256()
    return hashlib.sha256(embedded().tobytes()).hexdigest()


LETTERS = "BCDFGHJK"
DIGITS = "0123"
PREPOSITIONS = ["by", "near", "under", "behind"]
ADJECTIVES = ["old", "cold", "red", "small", "dark", "quiet", "broken", "tall"]
NOUNS = ["mill", "river", "tree", "gate", "tower", "bridge", "garden", "wall"]
VERBS = ["sing", "wait", "work", "dream", "rest", "read", "paint", "listen"]
LINES_A_BLOCK = 1024


def embedded(size: int = 2**18, seed: int = 0) -> Text:
    """Return `size` bytes of lines that attention can complete and a count of n-grams cannot.

    Each line is about one or two people, who are a letter and a digit, and says once or twice where
    they are and what they do::

        C0 under the small garden 's working (C0) by the red bridge 's resting (C0)
        C3 & F1 by the quiet bridge 're waiting (C3 & F1)

    Who it is can only be copied, from at least 31 bytes back, and whether 's or 're comes next
    stands at least 18 bytes back. All words are drawn at random, each as often as the others. A
    longer text of the same seed begins with the shorter one. Chapter: almost_scaled_training.

    >>> print(embedded(75).tobytes().decode())
    C0 under the small garden 's working (C0) by the red bridge 's resting (C0)
    """
    rng = np.random.default_rng(seed)
    blocks: list[bytes] = []
    while sum(map(len, blocks)) < size:
        # All lists of words have a power of two of entries: the remainders are uniform.
        drawn = rng.integers(0, 2**16, (LINES_A_BLOCK, 14)).tolist()
        blocks.append("".join(map(_line, drawn)).encode("ascii"))
    return np.frombuffer(b"".join(blocks)[:size], dtype=np.uint8)


def _line(drawn: list[int]) -> str:
    def word(number: int, words: Sequence[str]) -> str:
        return words[drawn[number] % len(words)]

    names = [word(i, LETTERS) + word(i + 1, DIGITS) for i in (2, 4)]
    plural = drawn[0] % 2
    people, ending = (" & ".join(names), "re") if plural else (names[0], "s")
    clauses = [
        f" {word(i, PREPOSITIONS)} the {word(i + 1, ADJECTIVES)} {word(i + 2, NOUNS)} "
        f"'{ending} {word(i + 3, VERBS)}ing ({people})"
        for i in (6, 10)
    ]
    return people + "".join(clauses[: 1 + drawn[1] % 2]) + "\n"


class Split(NamedTuple):
    """The two parts of a text: its beginning for `training`, its end for `validation`."""

    training: Text
    validation: Text


def split(text: Text) -> Split:
    """Return the text without its last tenth, and that tenth, for validation.

    Chapter: almost_scaled_training.

    >>> [part.size for part in split(embedded(1000))]
    [900, 100]
    """
    cut = text.size - round(0.1 * text.size)
    return Split(text[:cut], text[cut:])


def batches(
    text: Text, *, sequence: int, batch: int, steps: int, seed: int, masked: float | None = None
) -> Iterator[Batch]:
    """Yield `steps` batches of windows that start anywhere in the text, drawn with `seed`.

    For a decoder the target at each position is the next byte. With `masked`, for an encoder, that
    share of the bytes of each window, rounded, at least one, is hidden by the token 256 and is
    the target; the other targets are −100, to be ignored. The windows depend on nothing but the
    text, `sequence`, `batch` and `seed`, so runs that differ in the model see the same ones.

    Raises ValueError for a text that is shorter than a window. Chapter: almost_scaled_training.

    >>> first, _ = batches(embedded(1000), sequence=16, batch=2, steps=2, seed=0)
    >>> first.inputs.shape, bool((first.inputs[:, 1:] == first.targets[:, :-1]).all())
    ((2, 16), True)
    """
    masks = np.random.default_rng([seed, MASKS])
    for begin in starts(text, sequence=sequence, batch=batch, steps=steps, seed=seed):
        yield _batch(text, begin, sequence, masked, masks)


def starts(text: Text, *, sequence: int, batch: int, steps: int, seed: int) -> Iterator[Tokens]:
    """Yield where the windows of each batch of `batches` begin, shape (batch,).

    Raises as `batches`.
    """
    windows, rng = _window_count(text, sequence), np.random.default_rng([seed, STARTS])
    for _ in range(steps):
        yield rng.integers(0, windows, batch)


def validation_batch(
    text: Text, *, sequence: int, windows: int, masked: float | None = None
) -> Batch:
    """Return up to `windows` windows, evenly spaced over the text, as one batch.

    They do not overlap unless there is no room for that. The same for every seed. `masked` and the
    error as in `batches`. Chapter: almost_scaled_training.

    >>> validation_batch(embedded(1000), sequence=16, windows=9).inputs.shape
    (9, 16)
    """
    last = _window_count(text, sequence) - 1
    count = min(windows, 1 + last // sequence)
    starts = np.linspace(0, last, count).astype(np.int64)
    return _batch(text, starts, sequence, masked, np.random.default_rng([0, MASKS]))


def _window_count(text: Text, sequence: int) -> int:
    """Return how many windows of `sequence` bytes and a next one there are."""
    if text.size <= sequence:
        raise ValueError(
            f"the text must be longer than sequence={sequence}, got a text of {text.size} bytes"
        )
    return text.size - sequence


def _batch(
    text: Text, starts: Tokens, sequence: int, masked: float | None, rng: np.random.Generator
) -> Batch:
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
