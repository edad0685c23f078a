"""All predictions of recorded runs, in groups; predictions/groups.toml lists them.

A group is the predictions that one file made before its runs. Its judge gives their parts.
Chapter: predictions.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple

from experiments.judges.judging import HOLDS, OPEN, REFUTED, Part
from experiments.records import HERE


class Group(NamedTuple):
    """The predictions of one file."""

    title: str
    chapter: str
    """The chapter that uses the runs."""
    file: str
    """The path of the file, from experiments/."""
    parts: Callable[[], Iterable[Part]]
    """The judge, which computes the parts."""
    words: dict[int | str, str]
    """Predictions in a few words, by number or name, where the parts alone do not say them."""


def _read(file: str) -> Any:
    """Return a TOML file of experiments/ as a table."""
    return tomllib.loads((HERE / file).read_text("utf-8"))


def _group(judge: str, words: Any = None, words_in: str = "", **fields: str) -> Group:
    """Return a group of groups.toml; its words may be in another file, `words_in`."""
    module, _, function = judge.rpartition(".")
    parts = getattr(import_module(f"experiments.{module}"), function)
    if words_in:
        words = {name: table["words"] for name, table in _read(words_in).items()}
    numbered = {int(at) if at.isdigit() else at: text for at, text in (words or {}).items()}
    return Group(**fields, parts=parts, words=numbered)


GROUPS = tuple(_group(**table) for table in _read("predictions/groups.toml")["groups"])
"""All groups, in the order of the appendix."""


def tally(chapter: str) -> str:
    """Return the numbers of parts of a chapter that held, failed and are open, as a sentence."""
    parts = (part for group in GROUPS if group.chapter == chapter for part in group.parts())
    counts = Counter(part.verdict for part in parts)
    verb = "is" if counts[OPEN] == 1 else "are"
    undecided = f" and {counts[OPEN]} {verb} open" if counts[OPEN] else ""
    joint = "," if undecided else " and"
    return f"{counts[HOLDS]} parts held{joint} {counts[REFUTED]} failed{undecided}"
