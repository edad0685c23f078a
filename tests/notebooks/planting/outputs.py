"""Faults in outputs: what is committed is not what the code gives."""

import re
from itertools import pairwise
from math import isclose
from random import Random

from nbformat import NotebookNode
from nbformat.v4 import new_output

from tests.notebooks.planting.faults import (
    Fault,
    caught_by,
    drawn,
    exchanged,
    outputs,
    replaced,
    shown,
)
from tests.notebooks.rules import GLUED, code_cells

PLAIN = ("stdout", "text/plain")
PRINTED = (*PLAIN, "text/html")
SVG = "image/svg+xml"

OUTSIDE_TAGS = r"(?![^<]*>)"
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])" + OUTSIDE_TAGS)
SIGNED = re.compile(r"(?<![\w.)\]])[-−]?" + NUMBER.pattern)
EXPONENT = re.compile(r"(?<=\de)([-+]?)(\d+)\b" + OUTSIDE_TAGS)
WORD = re.compile(r"\b[A-Za-z]{4,}\b" + OUTSIDE_TAGS)
UNIT = re.compile(r"[%±√²×≈≤·]" + OUTSIDE_TAGS)
VERDICT = re.compile(r"\b(?:holds|wrong|needs a condition)\b" + OUTSIDE_TAGS)
GAP = re.compile(r"(?<=\S) {2,}(?=\S)")

TABLE = re.compile(r"<table\b.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr><td.*?</tr>\n")
CELL = re.compile(r"<(t[hd])\b.*?</\1>")

CURVE = re.compile(r'<path d="([^"]*)"[^>]*clip-path=[^>]*>')
Y_COORDINATE = re.compile(r"(?<=\d )\d+\.?\d*(?= [A-Z]|\s*$)")
LABEL = re.compile(r"(?<=<!-- )[^<>]*[A-Za-zα-ω]{2}[^<>]*(?= -->)")
TICK = re.compile(r"(?<=<!-- )\d+(?:\.\d+)?(?= -->)")
GLYPH = re.compile(r'(?<=<use xlink:href="#DejaVuSans-)[0-9a-f]+')
COLOUR = re.compile(r"(?<=: )#[0-9a-f]{6}")
DASHES = re.compile(r"(?<=stroke-dasharray: )[\d.]+")


def other_digit(rng: Random, number: str) -> str:
    """Return a number with another digit in one of its first four that count."""
    digits = [i for i, character in enumerate(number) if character.isdigit()]
    first = next((k for k, i in enumerate(digits) if number[i] != "0"), len(digits) - 1)
    i = rng.choice(digits[first : first + 4])
    digit = rng.choice([digit for digit in "0123456789" if digit != number[i]])
    return number[:i] + digit + number[i + 1 :]


@caught_by("comparison")
def changed_digit(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Change a digit of a number."""
    seed = rng.random()
    return replaced(
        rng, shown(notebook, *PRINTED), NUMBER, lambda match: other_digit(Random(seed), match[0])
    )


@caught_by("comparison")
def changed_last_digit(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Raise the last printed digit by one, where that is more than rounding."""
    return replaced(
        rng,
        shown(notebook, *PRINTED),
        re.compile(r"(?<![\w.])\d{0,2}\.\d{1,2}(?![\w.])" + OUTSIDE_TAGS),
        lambda match: match[0][:-1] + str((int(match[0][-1]) + 1) % 10),
    )


@caught_by("comparison")
def changed_sign(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Give a number a minus, or take it away."""
    return replaced(
        rng,
        shown(notebook, *PRINTED),
        SIGNED,
        lambda match: match[0][1:] if match[0][0] in "-−" else f"-{match[0]}",
    )


@caught_by("comparison")
def changed_exponent(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Change a power of ten."""
    return replaced(
        rng,
        shown(notebook, *PRINTED),
        EXPONENT,
        lambda match: match[1] + str(int(match[2]) + 1).zfill(len(match[2])),
    )


@caught_by("comparison")
def swapped_numbers(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange two neighbouring numbers of an output."""
    pairs = [
        (place, first, other)
        for place in shown(notebook, *PRINTED)
        for first, other in pairwise(NUMBER.finditer(place.text))
        if not isclose(float(first[0]), float(other[0]), rel_tol=1e-3)
    ]
    chosen = drawn(rng, pairs)
    if chosen is None:
        return None
    place, first, other = chosen
    start, middle, end = (
        place.text[: first.start()],
        place.text[first.end() : other.start()],
        place.text[other.end() :],
    )
    place.put(start + other[0] + middle + first[0] + end)
    return Fault(place.cell.id, other[0], first[0])


@caught_by("comparison")
def changed_word(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Change a word that is printed."""
    return replaced(
        rng, shown(notebook, *PRINTED), WORD, lambda match: match[0][::-1].lower() + "x"
    )


@caught_by("comparison")
def lost_unit(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove a sign such as % or ±."""
    return replaced(rng, shown(notebook, *PRINTED), UNIT, lambda _: "")


@caught_by("comparison")
def changed_verdict(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Let a claim box say another verdict."""
    return replaced(
        rng,
        shown(notebook, *PRINTED),
        VERDICT,
        lambda match: "wrong" if match[0] == "holds" else "holds",
    )


@caught_by("comparison")
def changed_formula(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Change a sign in a formula that sympy shows."""
    return replaced(
        rng,
        shown(notebook, "text/latex"),
        re.compile("[-+]"),
        lambda match: "-" if match[0] == "+" else "+",
    )


@caught_by("comparison")
def joined_lines(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Join two lines."""
    return replaced(rng, shown(notebook, *PLAIN), re.compile(r"\n(?=\S)"), lambda _: " ")


@caught_by("comparison")
def split_line(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Break a line between two words."""
    return replaced(rng, shown(notebook, *PLAIN), re.compile(r"(?<=\S) (?=\S)"), lambda _: "\n")


@caught_by("comparison")
def lost_line(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove the last of several lines."""
    return replaced(rng, shown(notebook, *PLAIN), re.compile(r"\n[^\n]+(?=\n?\Z)"), lambda _: "")


@caught_by("comparison")
def shifted_heading(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Move a heading of a table in plain text, and those after it, two columns to the right."""
    return replaced(
        rng,
        shown(notebook, "text/plain"),
        re.compile(r"(?<=\S) {2,}(?=\S)(?<!\n)(?=[^\n]*\n[^\n]* {2})"),
        lambda match: match[0] + "  ",
    )


@caught_by("comparison")
def moved_column(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Move what stands in a column of one line by a blank."""
    return replaced(rng, shown(notebook, *PLAIN), GAP, lambda match: match[0] + " ")


@caught_by("comparison")
def lost_row(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove a row of a table."""
    return replaced(rng, shown(notebook, "text/html"), ROW, lambda _: "")


@caught_by("comparison")
def repeated_row(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Show a row of a table twice."""
    return replaced(rng, shown(notebook, "text/html"), ROW, lambda match: match[0] * 2)


@caught_by("comparison")
def swapped_rows(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange two rows of a table."""
    return replaced(
        rng,
        shown(notebook, "text/html"),
        re.compile(f"({ROW.pattern})({ROW.pattern})"),
        lambda match: match[2] + match[1],
    )


@caught_by("comparison")
def swapped_headings(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange the headings of two columns of a table."""
    return replaced(
        rng,
        shown(notebook, "text/html"),
        re.compile(r">([^<>]+)(</th><th[^>]*>)([^<>]*)(?=</th>)"),
        lambda match: f">{match[3]}{match[2]}{match[1]}",
    )


@caught_by("comparison")
def swapped_columns(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange the first two columns of a table, below their headings."""

    def exchange(match: re.Match[str]) -> str:
        return re.sub(r"<tr>(<td\b.*?</td>)(<td\b.*?</td>)", r"<tr>\2\1", match[0])

    return replaced(rng, shown(notebook, "text/html"), TABLE, exchange)


@caught_by("comparison")
def missing_output(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove an output."""
    chosen = drawn(rng, list(outputs(notebook)))
    if chosen is None:
        return None
    cell, output = chosen
    cell.outputs.remove(output)
    return Fault(cell.id, "(nothing)", output.get("name") or min(output.data))


@caught_by("comparison")
def extra_output(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Add an output."""
    cell = rng.choice(code_cells(notebook))
    output = new_output("display_data", data={"text/plain": "an output too many"})
    cell.outputs.append(output)
    return Fault(cell.id, "text/plain: an output too many", "(nothing)")


@caught_by("comparison")
def repeated_output(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Show what is displayed twice."""
    chosen = drawn(rng, [pair for pair in outputs(notebook) if pair[1].output_type != "stream"])
    if chosen is None:
        return None
    cell, output = chosen
    cell.outputs.append(output)
    return Fault(cell.id, "two", "one")


@caught_by("comparison")
def swapped_outputs(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange two outputs of a cell."""
    cells = [
        cell
        for cell in code_cells(notebook)
        if len(cell.outputs) > 1 and cell.outputs[0] != cell.outputs[-1]
    ]
    cell = drawn(rng, cells)
    if cell is None:
        return None
    cell.outputs[0], cell.outputs[-1] = cell.outputs[-1], cell.outputs[0]
    return Fault(cell.id, "last, first", "first, last")


@caught_by("comparison")
def foreign_outputs(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Give a cell the outputs of another."""
    cells = code_cells(notebook)
    cell = drawn(rng, cells)
    other = drawn(rng, [other for other in cells if cell and other.outputs != cell.outputs])
    if cell is None or other is None:
        return None
    cell.outputs = other.outputs
    return Fault(cell.id, f"outputs of {other.id}", f"outputs of {cell.id}")


@caught_by("comparison")
def swapped_figures(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange two drawings."""
    return exchanged(rng, shown(notebook, SVG))


@caught_by("comparison")
def lost_type(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove one of the forms in which an output is shown: HTML, a drawing, plain text."""
    chosen = drawn(rng, [pair for pair in outputs(notebook) if len(pair[1].get("data", {})) > 1])
    if chosen is None:
        return None
    cell, output = chosen
    kind = rng.choice(sorted(output.data))
    del output.data[kind]
    return Fault(cell.id, "(nothing)", kind)


@caught_by("comparison")
def lost_metadata(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Empty the metadata of an output, such as the name of a glued value."""
    chosen = drawn(rng, [pair for pair in outputs(notebook) if pair[1].get("metadata")])
    if chosen is None:
        return None
    cell, output = chosen
    right, output.metadata = str(output.metadata), NotebookNode()
    return Fault(cell.id, "{}", right)


@caught_by("comparison")
def swapped_glue(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange the names of two glued values."""
    places = [
        place._replace(holder=output.metadata.scrapbook, key="name")
        for place in shown(notebook, GLUED)
        for output in place.cell.outputs
        if output.get("data") is place.holder
    ]
    return exchanged(rng, places)


@caught_by("comparison")
def changed_glue(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Change the value that a page takes."""
    seed = rng.random()
    return replaced(
        rng, shown(notebook, GLUED), NUMBER, lambda match: other_digit(Random(seed), match[0])
    )


@caught_by("comparison")
def moved_curve(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Move three points of a curve by a pixel."""

    def move(match: re.Match[str]) -> str:
        points = Y_COORDINATE.sub(lambda y: f"{float(y[0]) + 1:f}", match[1], count=3)
        return match[0].replace(match[1], points, 1)

    return replaced(rng, shown(notebook, SVG), CURVE, move)


@caught_by("comparison")
def lost_curve(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Remove a curve."""
    return replaced(rng, shown(notebook, SVG), CURVE, lambda _: "")


@caught_by("comparison")
def changed_label(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Change a label of a drawing."""
    return replaced(rng, shown(notebook, SVG), LABEL, lambda match: f"not {match[0]}")


@caught_by("comparison")
def swapped_labels(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Exchange two labels of a drawing, such as those of a legend."""
    place = drawn(rng, [p for p in shown(notebook, SVG) if len(set(LABEL.findall(p.text))) > 1])
    if place is None:
        return None
    one, other = rng.sample(sorted(set(LABEL.findall(place.text))), 2)
    names = {one: other, other: one}
    place.put(LABEL.sub(lambda match: names.get(match[0], match[0]), place.text))
    return Fault(place.cell.id, other, one)


@caught_by("comparison")
def changed_tick(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Change the number at a tick of an axis."""
    seed = rng.random()
    return replaced(
        rng, shown(notebook, SVG), TICK, lambda match: other_digit(Random(seed), match[0])
    )


@caught_by("comparison")
def changed_letter(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Draw another letter than the note before it says."""
    return replaced(
        rng, shown(notebook, SVG), GLYPH, lambda match: "41" if match[0] != "41" else "42"
    )


@caught_by("comparison")
def changed_colour(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Draw something in another colour."""
    return replaced(
        rng,
        shown(notebook, SVG),
        COLOUR,
        lambda match: "#152c88" if match[0] != "#152c88" else "#a03d10",
    )


@caught_by("comparison")
def changed_dashes(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Draw a line with other dashes."""
    return replaced(rng, shown(notebook, SVG), DASHES, lambda match: f"{float(match[0]) + 1:g}")
