"""What a kind of fault is, and how one is drawn."""

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from nbformat import NotebookNode

from tests.notebooks.rules import code_cells

Thing = TypeVar("Thing")


class Fault(NamedTuple):
    """Where a fault was planted, by the id of its cell, what stands there now and what is right."""

    cell: str
    planted: str
    right: str


Plant = Callable[[NotebookNode, Random], Fault | None]


class Kind(NamedTuple):
    """A kind of fault, and the name of the check that must catch it."""

    plant: Plant
    check: str


KINDS: dict[str, Kind] = {}


def caught_by(check: str) -> Callable[[Plant], Plant]:
    """Add a function to the kinds of faults."""

    def add(plant: Plant) -> Plant:
        KINDS[plant.__name__] = Kind(plant, check)
        return plant

    return add


class Place(NamedTuple):
    """A text in a cell: what has it, and under which key."""

    cell: NotebookNode
    holder: NotebookNode
    key: str

    @property
    def text(self) -> str:
        return str(self.holder[self.key])

    def put(self, text: str) -> Fault:
        """Put another text in its place."""
        right, self.holder[self.key] = self.text, text
        return Fault(self.cell.id, text, right)


def drawn(rng: Random, things: Sequence[Thing]) -> Thing | None:
    """Return one of the things, None if there are none."""
    return rng.choice(things) if things else None


def replaced(
    rng: Random,
    places: Sequence[Place],
    pattern: re.Pattern[str],
    change: Callable[[re.Match[str]], str],
) -> Fault | None:
    """Change one match of a pattern to another text; None if no match has another."""
    found = [
        (place, match)
        for place in places
        for match in pattern.finditer(place.text)
        if change(match) != match[0]
    ]
    chosen = drawn(rng, found)
    if chosen is None:
        return None
    (place, match), planted = chosen, change(chosen[1])
    place.put(place.text[: match.start()] + planted + place.text[match.end() :])
    return Fault(place.cell.id, planted, match[0])


def exchanged(rng: Random, places: Sequence[Place]) -> Fault | None:
    """Exchange two texts that differ."""
    first = drawn(rng, places)
    other = drawn(rng, [place for place in places if first and place.text != first.text])
    if first is None or other is None:
        return None
    right = other.text
    other.put(first.text)
    return first.put(right)


def texts(notebook: NotebookNode) -> list[Place]:
    """Return the Markdown of the cells."""
    return [Place(cell, cell, "source") for cell in notebook.cells if cell.cell_type == "markdown"]


def outputs(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    """Return each output, after its cell."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            yield cell, output


def shown(notebook: NotebookNode, *kinds: str) -> list[Place]:
    """Return what is shown of these MIME types; of `stdout`, what is printed."""
    places = [
        Place(cell, output, "text") for cell, output in outputs(notebook) if "stdout" in kinds
    ]
    places += [
        Place(cell, output.data, kind)
        for cell, output in outputs(notebook)
        for kind in kinds
        if kind in output.get("data", {})
    ]
    return [place for place in places if place.key in place.holder]


def figure_texts(notebook: NotebookNode, key: str) -> list[Place]:
    """Return the names, captions or alternative texts of the figures that a notebook draws."""
    field = "image" if key == "alt" else "figure"
    return [
        Place(cell, cell.metadata.mystnb[field], key)
        for cell in code_cells(notebook)
        if "mystnb" in cell.metadata
    ]
