"""What was predicted of the recorded runs, and what became of it, in one form for all.

A group is what one file predicted before its runs; predictions/groups.toml has them. Its parts are
single numbers or signs, each with what was expected, what was found, and a verdict.
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
    """Predictions that were written into one file."""

    title: str
    chapter: str
    """The chapter that uses the runs."""
    file: str
    """Where they were written, in experiments/."""
    parts: Callable[[], Iterable[Part]]
    words: dict[int | str, str]
    """Predictions in a few words, by number or name, where the parts alone do not say them."""


def _read(file: str) -> Any:
    return tomllib.loads((HERE / file).read_text("utf-8"))


def _group(judge: str, words: Any = None, words_in: str = "", **fields: str) -> Group:
    """Return a group; its words are its own, or those that another file of predictions has."""
    module, _, function = judge.rpartition(".")
    parts = getattr(import_module(f"experiments.{module}"), function)
    if words_in:
        words = {name: table["words"] for name, table in _read(words_in).items()}
    numbered = {int(at) if at.isdigit() else at: text for at, text in (words or {}).items()}
    return Group(**fields, parts=parts, words=numbered)


GROUPS = tuple(_group(**table) for table in _read("predictions/groups.toml")["groups"])
"""All predictions whose runs are there, in the order of the appendix."""


def tally(chapter: str) -> str:
    """Return how many parts of the predictions of a chapter held, failed and are open, in words."""
    parts = (part for group in GROUPS if group.chapter == chapter for part in group.parts())
    counts = Counter(part.verdict for part in parts)
    verb = "is" if counts[OPEN] == 1 else "are"
    undecided = f" and {counts[OPEN]} {verb} open" if counts[OPEN] else ""
    joint = "," if undecided else " and"
    return f"{counts[HOLDS]} parts held{joint} {counts[REFUTED]} failed{undecided}"
