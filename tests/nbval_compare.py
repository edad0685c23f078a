"""A pytest plug-in: nbval runs the notebooks, and numbers in their outputs are compared as numbers.

The last digits of a float depend on the processor. So words, integers, signs, lines, metadata and
the number of outputs must be the same, and other numbers agree to a relative 1e-5. Inside the tags
of an SVG the coordinates also agree within a hundredth of a pixel, to which drawings are rounded.
"""

import math
import os
import re
import sys
from collections.abc import Iterator
from itertools import takewhile, zip_longest
from typing import Any

import pytest

RELATIVE, PIXEL = 1e-5, 0.0101

NUMBER = re.compile(
    r"(?<![\w#])(?<!\d\.)((?:(?<![\w.)\]])[-+−])?(?:\d+\.?\d*|\.\d+)(?:[eE][-+−]?\d+)?)(?!\w)"
)
SVG = re.compile(r"(<svg\b.*?</svg>)", re.DOTALL)
TAG = re.compile(r"(<[^!?][^>]*>)")
NO_PIXELS = re.compile(r"scale\([^)]*\)|opacity[:=][^;>]*|stroke-width[:=][^;>]*")
ADDRESS = re.compile(r"https?://[^\s\"<]+")
HASHED_ID = re.compile(r"\b(?:[pmh]|image|C[0-9a-f]+_[0-9a-f]+_)[0-9a-f]{10}\b")

# In every process jsonschema builds its grammar of addresses for two seconds; nothing here has one.
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
        if before[0] == after[0] and isinstance(before[1], str) and isinstance(after[1], str):
            difference = text_difference(before[1], after[1])
        else:
            difference = None if before == after else (str(before), str(after))
        if difference is not None:
            same = zip(*difference, strict=False)
            start = max(0, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], same)) - 80)
            return "{}\n  old: {:.200}\n  new: {:.200}".format(
                before[0], *(text[start:] for text in difference)
            )
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
    """Split a text at the tags of its drawings; yield each part, and whether it has pixels."""
    names: dict[str, str] = {}  # by order of appearance: hashes of rounded numbers are not rounded
    text = HASHED_ID.sub(lambda match: names.setdefault(match[0], f"id_{len(names)}_"), text)
    for index, piece in enumerate(SVG.split(text)):
        for position, part in enumerate(TAG.split(piece) if index % 2 else [piece]):
            if position % 2:
                yield " ".join(NO_PIXELS.findall(part)), False
            yield NO_PIXELS.sub("", part) if position % 2 else part, position % 2 == 1


def agree(old: str, new: str, *, pixels: bool) -> bool:
    """Return whether two lines have the same words, and the same numbers up to rounding."""
    words, others = NUMBER.split(old), NUMBER.split(new)
    if [word.split() for word in words[::2]] != [word.split() for word in others[::2]]:
        return False
    return ADDRESS.findall(old) == ADDRESS.findall(new) and all(
        was == now or close(was, now, pixels=pixels)
        for was, now in zip(words[1::2], others[1::2], strict=True)
    )


def close(old: str, new: str, *, pixels: bool) -> bool:
    """Return whether two numbers agree up to rounding; an integer agrees with itself only."""
    was, now = (float(number.replace("−", "-")) for number in (old, new))
    if pixels:
        return math.isclose(was, now, rel_tol=RELATIVE, abs_tol=PIXEL)
    whole = any(number.strip("-+−.").isdigit() for number in (old, new))
    signs = [(number[0] == "+", number[0] in "-−") for number in (old, new)]
    return not whole and signs[0] == signs[1] and math.isclose(was, now, rel_tol=RELATIVE)
