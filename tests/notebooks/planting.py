"""Kinds of faults, planted in a copy of a chapter: a pattern, and what stands there instead.

Other tests plant a digit of each number in the text (`test_prose`), a sign, a number or a fraction
of each formula that a check reads (`tests/book/test_theorems.py`), and what hides a cell or was not
run (`test_committed`). What leads nowhere in the Markdown ends the build of the site.

No machine catches a wrong word in prose, a reference to the wrong theorem, a paragraph that is gone
or in another place, two glued values exchanged in a sentence, or the text of another figure.
"""

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from nbformat import NotebookNode

Place = tuple[NotebookNode, NotebookNode, str]
"""A cell, what in it has a text, and under which key."""


class Kind(NamedTuple):
    """Where a fault may be, the pattern that it changes, and to what, as in `re.sub`."""

    places: Callable[[NotebookNode], Iterator[Place]]
    pattern: str
    change: str | Callable[[re.Match[str], Random], str]

    def plant(self, notebook: NotebookNode, rng: Random) -> NotebookNode:
        """Change one match, and return its cell; there is an IndexError where none is."""
        cell, holder, key, match = rng.choice(
            [
                (*place, match)
                for place in self.places(notebook)
                for match in re.finditer(self.pattern, place[1][place[2]])
            ]
        )
        change = self.change
        new = match.expand(change) if isinstance(change, str) else change(match, rng)
        holder[key] = match.string[: match.start()] + new + match.string[match.end() :]
        return cell


def markdown(notebook: NotebookNode) -> Iterator[Place]:
    """Find the texts of the Markdown cells."""
    return ((cell, cell, "source") for cell in notebook.cells if cell.cell_type == "markdown")


def shown(*kinds: str) -> Callable[[NotebookNode], Iterator[Place]]:
    """Find what is shown of these MIME types; of `text`, what is printed."""

    def places(notebook: NotebookNode) -> Iterator[Place]:
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                holder = output.get("data", output)
                yield from ((cell, holder, kind) for kind in kinds if kind in holder)

    return places


def other_digit(match: re.Match[str], rng: Random) -> str:
    """Return a number with another digit in one of its first four that count."""
    number = match[0]
    digits = [i for i, character in enumerate(number) if character.isdigit()]
    first = next((k for k, i in enumerate(digits) if number[i] != "0"), len(digits) - 1)
    i = rng.choice(digits[first : first + 4])
    digit = rng.choice([digit for digit in "0123456789" if digit != number[i]])
    return number[:i] + digit + number[i + 1 :]


def moved(match: re.Match[str], _: Random) -> str:
    """Return a curve with three points lower by a pixel."""
    y = r"(?<=\d )\d+\.?\d*(?= [A-Z]|\s*$)"
    points = re.sub(y, lambda found: f"{float(found[0]) + 1:f}", match[1], count=3)
    return match[0].replace(match[1], points, 1)


def without_a_mark(match: re.Match[str], rng: Random) -> str:
    """Return a role without one of its backticks or braces."""
    lost = rng.choice([match[0].index(mark) for mark in "{}`"] + [len(match[0]) - 1])
    return match[0][:lost] + match[0][lost + 1 :]


PRINTED = shown("text", "text/plain", "text/html")
SVG = shown("image/svg+xml")

OUTSIDE_TAGS = r"(?![^<]*>)"
NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])" + OUTSIDE_TAGS
CURVE = r'<path d="([^"]*\d [^"]*)"[^>]*clip-path=[^>]*>'
PARAGRAPH = r"(?<=\n\n)[A-Z][^\n]{80,}(?=\n\n)"
STATEMENT = r"(?m)^:label: (?!theorem-l1)(\S+)$"

OUTPUTS = {
    "changed_digit": Kind(PRINTED, NUMBER, other_digit),
    "lost_sign": Kind(PRINTED, r"(?<![\w.)\]])[-−](?=\d)" + OUTSIDE_TAGS, ""),
    "changed_word": Kind(PRINTED, r"\b[A-Za-z]{4,}\b" + OUTSIDE_TAGS, r"x\g<0>"),
    "lost_row": Kind(shown("text/html"), r"<tr><td.*?</tr>\n", ""),
    "moved_curve": Kind(SVG, CURVE, moved),
    "lost_curve": Kind(SVG, CURVE, ""),
    "changed_label": Kind(SVG, r"(?<=<!-- )[^<>]*[A-Za-zα-ω]{2}[^<>]*(?= -->)", r"not \g<0>"),
    "changed_colour": Kind(SVG, "(?<=: )#(?!152c88)[0-9a-f]{6}", "#152c88"),
}

MARKDOWN = {
    name: Kind(markdown, pattern, change)
    for name, pattern, change in (
        ("repeated_label", STATEMENT, ":label: theorem-l1"),
        ("lost_label", STATEMENT + r"\n", ""),
        ("broken_role", r"\{(eq|prf:ref|numref|cite|cite:t|glue:text)\}`[^`]+`", without_a_mark),
        ("lost_dollar", r"(?<![$\\])\$(?!\$)", ""),
        ("lost_closing_fence", r"(?m)^`{3,} *$\n?", ""),
        ("lost_opening_fence", r"(?m)^`{3,}\{[^\n]*\n", ""),
        ("swapped_solution", r"(?<=\{solution-start\} )\S+", r"\g<0>x"),
        ("lost_solution", r"(?m)^```\{solution-start\}.*(?s:.*?)\n```\n", ""),
        ("second_title", "(?m)^##(?= )", "#"),
        ("repeated_paragraph", PARAGRAPH, r"\g<0>\n\n\g<0>"),
        ("commented_paragraph", PARAGRAPH, r"% \g<0>"),
        ("hidden_directive", STATEMENT, r"\g<0>\n:class: d-none"),
        ("lost_still_text", r"(?m)^:alt: [^\n]*\n", ""),
    )
}
