"""The texts that models are trained on, as bytes.

Three texts: "embedded", which this module writes itself; "tiny-shakespeare", 1,115,394 bytes that
character models are often trained on, fetched once; and "python", 105 MB of the installed packages
(`python_corpus`). A text is an array of uint8, and a byte is a token.

Source 002. Chapter: almost_scaled_training.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlib import _checking
from experiments.lab import python_corpus

Text = NDArray[np.uint8]
"""The bytes of a text."""
SHAKESPEARE = "tiny-shakespeare"
EMBEDDED = "embedded"
PYTHON = "python"
NAMES = (EMBEDDED, SHAKESPEARE, PYTHON)
"""The texts that have a name."""

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def load(name: str) -> Text:
    """Return the text called "embedded", "tiny-shakespeare" or "python".

    tiny-shakespeare is fetched once, into tiny-shakespeare.txt in the user's cache (`ATTNLIB_CACHE`
    names another folder); a copy that lies there is not fetched. Raises ValueError for another
    name and as `python_corpus.load`, OSError when it cannot be fetched.
    Chapter: almost_scaled_training.
    """
    if _checking.choice("name", name, NAMES) == EMBEDDED:
        return embedded()
    if name == PYTHON:
        return np.frombuffer(python_corpus.load(), dtype=np.uint8)
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
        return python_corpus.sha256()
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
    """Return a line of `embedded` from 14 random numbers."""

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
