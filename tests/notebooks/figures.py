"""What the figures of a chapter must have: a name, a caption and an alternative text of their own.

No machine sees whether a text describes its figure. But of the figures of one chapter, the texts
of each share as many words with what is written in it, its axes, its legend, as those of another
would. So most texts that were exchanged are found.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from nbformat import NotebookNode

WRITTEN = re.compile(r"<!-- (.*?) -->", re.DOTALL)
"""Matplotlib draws letters as curves, and notes before each text what it says."""

WORD = re.compile(r"[a-zα-ωδ]+|\d+(?:\.\d+)?")
TYPESETTING = re.compile(r"[{}$\\]|\\?mathdefault")
SPELLED = {"α": "alpha", "entropies": "entropy"}
COMMON = {
    *("a", "all", "and", "are", "as", "at", "both", "but", "by", "e", "for", "from", "in", "is"),
    *("it", "its", "no", "not", "of", "on", "once", "one", "only", "or", "than", "that", "the"),
    *("them", "then", "there", "they", "to", "up", "where", "which", "while", "with"),
}
"""Words that say nothing of a figure; e is a number, an expectation or an exponent."""

PANELS = {"panel", "above", "below"}
LOGARITHMIC = {"log", "logarithmic"}

EXCHANGED = (["alt"], ["caption"], ["alt", "caption"], ["name", "alt", "caption"])
MARGIN = 0.1
"""How much worse texts must fit when exchanged: far more than rounding, less than one rare word."""


class Figure(NamedTuple):
    """A figure: its label, and the words in it, in its label and in its two texts."""

    label: str
    written: set[str]
    name: set[str]
    alt: set[str]
    caption: set[str]


def violations(notebook: NotebookNode) -> list[str]:
    """Return what is wrong with the figures that a notebook draws."""
    figures, found = [], []
    for cell in notebook.cells:
        drawings = [
            output.data["image/svg+xml"]
            for output in cell.get("outputs", [])
            if "image/svg+xml" in output.get("data", {})
        ]
        if not drawings and "mystnb" not in cell.metadata:
            continue
        settings = cell.metadata.get("mystnb", {})
        texts = {**settings.get("figure", {}), **settings.get("image", {})}
        lacking = [key for key in ("name", "caption", "alt") if not texts.get(key, "").strip()]
        if len(drawings) != 1 or lacking:
            found.append(f"the cell {cell.id!r} draws {len(drawings)} figures, without {lacking}")
            continue
        if texts["alt"] == texts["caption"]:
            found.append(f"the caption of {texts['name']} is its alt text")
        parts = {key: words(texts[key]) for key in ("name", "alt", "caption")}
        figures.append(Figure(texts["name"], written(drawings[0]), **parts))
    return found + list(exchanged(figures))


def exchanged(figures: list[Figure]) -> Iterator[str]:
    """Report pairs of figures whose texts agree no worse when they are exchanged."""
    now = agreement(figures)
    for one, other in combinations(range(len(figures)), 2):
        for fields in EXCHANGED:
            swapped = list(figures)
            for here, there in ((one, other), (other, one)):
                taken = {field: getattr(figures[there], field) for field in fields}
                swapped[here] = figures[here]._replace(**taken)
            if now < agreement(swapped) + MARGIN:
                labels = f"{figures[one].label} and {figures[other].label}"
                yield f"the {' and '.join(fields)} of {labels} fit as well, or better, exchanged"


def agreement(figures: list[Figure]) -> float:
    """Return the weight of the words that figures and their texts share, pair by pair.

    A word weighs the more, the fewer figures have it, in themselves or in their texts.
    """
    parts = [(figure.written, figure.name, figure.alt, figure.caption) for figure in figures]
    count = Counter(word for own in parts for word in set().union(*own))
    return sum(
        math.log(len(figures) / count[word])
        for own in parts
        for one, other in combinations(own, 2)
        for word in one & other
    )


def written(drawing: str) -> set[str]:
    """Return the words in a drawing, and those for what its texts will mention of its axes."""
    found = words(" ".join(WRITTEN.findall(drawing)))
    if drawing.count('id="axes_') > 1:
        found |= PANELS
    if "mathdefault{10^" in drawing:
        found |= LOGARITHMIC
    return found


def words(text: str) -> set[str]:
    """Return the words of a text, in the singular, and its numbers, without trailing zeros."""
    found = WORD.findall(TYPESETTING.sub("", text.replace("\\alpha", "α").lower()))
    return {simple(word) for word in found} - COMMON


def simple(word: str) -> str:
    """Return a word in its simplest form."""
    if word[0].isdigit():
        return f"{float(word):g}"
    word = SPELLED.get(word, word)
    return word[:-1] if len(word) > 3 and word.endswith("s") else word
