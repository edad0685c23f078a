"""What was predicted of the recorded runs, and what became of it, in one form for all.

A group is what one file predicted before its runs. Its parts are single numbers or signs, each with
what was expected, what was found, and a verdict. Runs that are finished do not change, and so
predictions/verdicts.json keeps the verdicts on them, with the commit whose code read them off the
runs. A group whose runs are not all there is judged here. Chapter: predictions.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from experiments import kinds_of_text
from experiments.judging import HOLDS, OPEN, REFUTED, Part

VERDICTS = Path(__file__).parent / "predictions" / "verdicts.json"


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
    beside: list[str]
    """Numbers that nothing was predicted of."""


def judged() -> Iterator[Group]:
    """Yield the groups that are judged once for all."""
    for one in json.loads(VERDICTS.read_text("utf-8"))["groups"]:
        parts = [Part(*part) for part in one["parts"]]
        words = {int(at) if at.isdigit() else at: text for at, text in one.get("words", {}).items()}
        yield Group(
            one["title"], one["chapter"], one["file"], parts.copy, words, one.get("beside", [])
        )


GROUPS = (
    *judged(),
    Group("Kinds of text", "calibration", "predictions/kinds.md", kinds_of_text.parts, {}, []),
)
"""All predictions whose runs are there."""


def group(title: str) -> Group:
    """Return the group of a title; ValueError where there is none."""
    [found] = (one for one in GROUPS if one.title == title)
    return found


def came(chapter: str) -> str:
    """Return how many parts of the predictions of a chapter held, failed and are open, in words."""
    parts = (part for group in GROUPS if group.chapter == chapter for part in group.parts())
    counts = Counter(part.verdict for part in parts)
    verb = "is" if counts[OPEN] == 1 else "are"
    undecided = f" and {counts[OPEN]} {verb} open" if counts[OPEN] else ""
    joint = "," if undecided else " and"
    return f"{counts[HOLDS]} parts held{joint} {counts[REFUTED]} failed{undecided}"
