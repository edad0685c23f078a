"""A pytest plug-in: nbval compares the numbers in outputs as numbers.

The last digits of a float depend on the processor that ran the notebook. So words, integers, signs,
line breaks, metadata and the number of outputs must be the same, and floats agree to a relative
1e-5. Inside the tags of an SVG, numbers are pixels and also agree within a hundredth of one. The
blanks between words must be the same too, unless a number of the text got longer or shorter: then
columns may be wider.
"""

import os
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import zip_longest
from typing import Any, NamedTuple

import pytest
from nbval.plugin import IPyNbCell, transform_streams_for_comparison

from book.execute import ONE_THREAD

RELATIVE_TOLERANCE = Decimal("1e-5")
PIXELS_TOLERANCE = Decimal("0.0101")
"""Drawings are rounded to a hundredth of a pixel, and rounding noise moves an edge of rounding."""

SVG = re.compile(r"(<svg\b.*?</svg>)", re.DOTALL)
TAG = re.compile(r"(<[^!?][^>]*>)")
TOKEN = re.compile(
    r"""
      \#[0-9a-fA-F]{3,8}\b | 0x[0-9a-fA-F]+        # a colour or an address, not a number
    | [^\W0-9]\w*(?!\.?[0-9])                      # a word, with its digits: x1, pab12e34f
    | (?P<number>
        (?:(?<![\w.)\]])[-+−])?                    # no sign but a minus in 3-5
        (?:[0-9]+\.?[0-9]*|\.[0-9]+)
        (?:[eE][-+−]?[0-9]{1,4}(?!\w))?
      )
    | \S
    """,
    re.VERBOSE,
)
HASHED_ID = re.compile(r"\b(?:[pmh]|image|C[0-9a-f]+_[0-9a-f]+_)[0-9a-f]{10}\b")
"""Matplotlib names clip paths, markers, hatches and images by a hash of their coordinates."""

EXCERPT = 200


class Token(NamedTuple):
    """A word, a number or a sign of punctuation; `pixels` inside the tag of an SVG.

    `space` is what stands before it. The last token of a text is empty.
    """

    text: str
    is_number: bool
    pixels: bool
    space: str


def pytest_configure(config: pytest.Config) -> None:
    """Replace nbval's comparison of outputs, and give the kernels the threads of `make execute`."""
    os.environ.update({**ONE_THREAD, **os.environ})
    IPyNbCell.compare_outputs = compare_outputs


def compare_outputs(
    cell: IPyNbCell, new: list[Mapping[str, Any]], old: list[Mapping[str, Any]]
) -> bool:
    """Compare as nbval does, returning whether they agree; report the first place that differs."""
    difference = first_difference(values(old), values(new))
    path = os.path.relpath(cell.path, cell.config.rootpath)
    cell.comparison_traceback = [f"{path}, Cell {cell.cell_num}, {difference}"]
    return difference is None


def values(outputs: list[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Return what the outputs show, in order: pairs of a stream or MIME type and its content.

    After the content of each output come its metadata, which end it: there is the name of a glued
    value, by which a page takes it.
    """
    found: list[tuple[str, Any]] = []
    for output in transform_streams_for_comparison(outputs):
        kind = output["output_type"]
        if kind in ("display_data", "execute_result"):
            found += sorted(output["data"].items())
            found.append((f"metadata of {kind}", output["metadata"]))
        else:
            found += [item for item in sorted(output.items()) if item[0] != "output_type"]
    return found


def first_difference(old: list[tuple[str, Any]], new: list[tuple[str, Any]]) -> str | None:
    """Describe the first place where the outputs differ; None where they agree."""
    for was, now in zip_longest(old, new):
        if was is None or now is None or was[0] != now[0]:
            return report("an output is missing or new", excerpt(was), excerpt(now))
        kind = was[0]
        if isinstance(was[1], str) and isinstance(now[1], str):
            difference = text_difference(was[1], now[1])
        else:
            difference = None if was == now else report("content", excerpt(was), excerpt(now))
        if difference is not None:
            return f"{kind}: {difference}"
    return None


def text_difference(old: str, new: str) -> str | None:
    """Describe the first place where two texts differ by more than rounding; None where none."""
    if old == new:
        return None
    numbers = 0
    before: list[str] = []
    space: str | None = None
    same_widths = True
    for was, now in zip_longest(tokens(old), tokens(new)):
        both_numbers = was is not None and now is not None and was.is_number and now.is_number
        numbers += both_numbers
        after = f", after {' '.join(before[-6:])!r}" if before else ""
        if was is None or now is None or not agree(was, now):
            what = f"number {numbers}" if both_numbers else "text"
            return report(what + after, was and was.text, now and now.text)
        if lines(was) != lines(now):
            return report(f"lines{after}", repr(was.space), repr(now.space))
        if space is None and was.space != now.space:
            space = report(f"space{after}", repr(was.space), repr(now.space))
        before.append(was.text)
        same_widths = same_widths and len(was.text) == len(now.text)
    return space if same_widths else None


def lines(token: Token) -> int:
    """Return how many lines end before a token."""
    return token.space.count("\n")


def tokens(text: str) -> Iterator[Token]:
    """Split a text into words, numbers and punctuation, each with the space before it."""
    space = ""
    for position, part in enumerate(SVG.split(text)):
        inside = position % 2 == 1
        pieces = TAG.split(renamed(part)) if inside else [part]
        for index, piece in enumerate(pieces):
            end = 0
            for match in TOKEN.finditer(piece):
                space += piece[end : match.start()]
                yield Token(match[0], match["number"] is not None, index % 2 == 1, space)
                space, end = "", match.end()
            space += piece[end:]
    yield Token("", is_number=False, pixels=False, space=space)


def renamed(svg: str) -> str:
    """Name hashed ids by their order of appearance: the hash of rounded numbers is not rounded."""
    names: dict[str, str] = {}
    return HASHED_ID.sub(lambda match: names.setdefault(match[0], f"id_{len(names)}_"), svg)


def agree(old: Token, new: Token) -> bool:
    """Return whether two tokens say the same, floats up to rounding."""
    if old.text == new.text:
        return True
    if not (old.is_number and new.is_number) or old.pixels != new.pixels:
        return False
    was, now = decimal(old.text), decimal(new.text)
    allowed = RELATIVE_TOLERANCE * max(abs(was), abs(now))
    if old.pixels:
        return abs(was - now) <= max(allowed, PIXELS_TOLERANCE)
    if is_exact(old.text, new.text) or was.is_signed() != now.is_signed():
        return False
    return abs(was - now) <= allowed


def is_exact(old: str, new: str) -> bool:
    """Return whether one is an integer, or both are whole (`3.` also ends a sentence)."""
    integers = any(number.lstrip("-+−").isdigit() for number in (old, new))
    return integers or (old.endswith(".") and new.endswith("."))


def decimal(number: str) -> Decimal:
    """Read a number, whose minus may be typographic."""
    return Decimal(number.replace("−", "-"))


def report(place: str, old: str | None, new: str | None) -> str:
    """Return the place, the old and the new value, a line each."""
    return f"{place}\n  old: {old or '(nothing)'}\n  new: {new or '(nothing)'}"


def excerpt(value: tuple[str, Any] | None) -> str | None:
    """Return the beginning of an output."""
    if value is None:
        return None
    text = f"{value[0]}: {value[1]}"
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}… ({len(text)} characters)"
