"""A pytest plug-in: nbval runs the notebooks, and numbers in their outputs are compared as numbers.

The last digits of a float depend on the processor. So words, integers, signs, lines, metadata and
the number of outputs must be the same, and other numbers agree to a relative 1e-5. Inside the tags
of an SVG every number is a pixel, and also agrees within a hundredth of one, to which drawings are
rounded.
"""

import math
import os
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest

RELATIVE = 1e-5
PIXEL = 0.0101

NUMBER = re.compile(
    r"(?<![\w#])(?<!\d\.)((?:(?<![\w.)\]])[-+−])?(?:\d+\.?\d*|\.\d+)(?:[eE][-+−]?\d+)?)(?!\w)"
)
SVG = re.compile(r"(<svg\b.*?</svg>)", re.DOTALL)
TAG = re.compile(r"(<[^!?][^>]*>)")
HASHED_ID = re.compile(r"\b(?:[pmh]|image|C[0-9a-f]+_[0-9a-f]+_)[0-9a-f]{10}\b")
"""Matplotlib names clip paths, markers, hatches and images by a hash of their coordinates."""

# jsonschema, which nbformat imports, looks for this package, and builds its grammar of addresses
# for two seconds in every process. Nothing here checks addresses.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    """Compute with one thread, as the committed outputs were; compare outputs as told above."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if getattr(config.option, "nbval", False):
        from nbval.plugin import IPyNbCell

        IPyNbCell.compare_outputs = compare_outputs


def compare_outputs(cell: Any, new: list[dict[str, Any]], old: list[dict[str, Any]]) -> bool:
    """Return whether the outputs of a cell agree, and leave the first difference in its report."""
    difference = first_difference(contents(old), contents(new))
    path = os.path.relpath(cell.path, cell.config.rootpath)
    cell.comparison_traceback = [f"{path}, Cell {cell.cell_num}, {difference}"]
    return difference is None


def contents(outputs: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return pairs of a kind (stream, MIME type, metadata) and what is shown, in order."""
    from nbval.plugin import transform_streams_for_comparison

    pairs: list[tuple[str, Any]] = []
    for output in transform_streams_for_comparison(outputs):
        if "data" in output:
            # The name of a glued value is in the metadata.
            pairs += [*sorted(output["data"].items()), ("metadata", output["metadata"])]
        else:
            pairs += [item for item in sorted(output.items()) if item[0] != "output_type"]
    return pairs


def first_difference(old: list[tuple[str, Any]], new: list[tuple[str, Any]]) -> str | None:
    """Describe the first place where outputs differ; None where they agree."""
    for before, after in zip_longest(old, new, fillvalue=("nothing", "")):
        texts = isinstance(before[1], str) and isinstance(after[1], str)
        if before[0] != after[0] or not texts:
            difference = None if before == after else (str(before), str(after))
        else:
            difference = text_difference(before[1], after[1])
        if difference is not None:
            return "{}\n  old: {:.200}\n  new: {:.200}".format(before[0], *difference)
    return None


def text_difference(old: str, new: str) -> tuple[str, str] | None:
    """Return the first lines of two texts that differ by more than rounding; None without one."""
    if old == new:
        return None
    for (was, pixels), (now, _) in zip_longest(parts(old), parts(new), fillvalue=("", False)):
        for line, other in zip_longest(was.splitlines(), now.splitlines(), fillvalue=""):
            if not agree(line, other, pixels=pixels):
                return line, other
    return None


def parts(text: str) -> Iterator[tuple[str, bool]]:
    """Split a text at the tags of its drawings; yield each part, and whether it is such a tag."""
    for index, piece in enumerate(SVG.split(text)):
        drawing = TAG.split(renamed(piece)) if index % 2 else [piece]
        yield from ((part, position % 2 == 1) for position, part in enumerate(drawing))


def renamed(svg: str) -> str:
    """Name hashed ids by their order of appearance: the hash of rounded numbers is not rounded."""
    names: dict[str, str] = {}
    return HASHED_ID.sub(lambda match: names.setdefault(match[0], f"id_{len(names)}_"), svg)


def agree(old: str, new: str, *, pixels: bool) -> bool:
    """Return whether two lines have the same words, and the same numbers up to rounding."""
    words, others = NUMBER.split(old), NUMBER.split(new)
    if [word.split() for word in words[::2]] != [word.split() for word in others[::2]]:
        return False
    return all(
        was == now or close(was, now, pixels=pixels)
        for was, now in zip(words[1::2], others[1::2], strict=True)
    )


def close(old: str, new: str, *, pixels: bool) -> bool:
    """Return whether two numbers agree up to rounding; an integer agrees with itself only."""
    was, now = (float(number.replace("−", "-")) for number in (old, new))
    if pixels:
        return math.isclose(was, now, rel_tol=RELATIVE, abs_tol=PIXEL)
    integers = any(number.strip("-+−.").isdigit() for number in (old, new))
    same_sign = math.copysign(1, was) == math.copysign(1, now)
    return not integers and same_sign and math.isclose(was, now, rel_tol=RELATIVE)
