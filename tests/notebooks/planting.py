"""Kinds of faults, planted in a copy of a chapter, each with the check that must catch it.

A kind changes a notebook somewhere, drawn at random, and returns the id of the cell. Where the
chapter has no place for it, nothing changes. The checks are

comparison    the comparison of outputs with those of a fresh run (`numeric`)
rules         what a committed chapter must be (`rules`)
figures       what its figures must have (`figures`)
pages         what the Markdown of the pages must be (`pages`)
execution     the comparison, once the changed code has run

Other tests plant a digit of each number in the text (`test_prose`) and a sign, a number or a
fraction of each formula that a check reads (`tests/book/test_theorems.py`). What leads nowhere in
the Markdown ends the build of the site.

No machine catches a wrong word in prose, a reference to the wrong theorem, a paragraph that is gone
or in another place, two glued values exchanged in a sentence, or changed code of which the page
shows nothing. These are not among the kinds.
"""

import ast
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple

from nbformat import NotebookNode
from nbformat.v4 import new_output, new_raw_cell

from tests.notebooks.rules import GLUED, code_cells

Plant = Callable[[NotebookNode, Random], str]
Change = str | Callable[[re.Match[str], Random], str]


class Kind(NamedTuple):
    """The name of the check that must catch a fault, and what plants it."""

    check: str
    plant: Plant


class Place(NamedTuple):
    """A text in a cell: what has it, and under which key."""

    cell: NotebookNode
    holder: NotebookNode
    key: str

    @property
    def text(self) -> str:
        return str(self.holder[self.key])


Places = Callable[[NotebookNode], list[Place]]


def markdown(notebook: NotebookNode) -> list[Place]:
    """Return the texts of the Markdown cells."""
    return [Place(cell, cell, "source") for cell in notebook.cells if cell.cell_type == "markdown"]


def sources(notebook: NotebookNode) -> list[Place]:
    """Return the code of the cells."""
    return [Place(cell, cell, "source") for cell in code_cells(notebook)]


def outputs(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    """Return each output, after its cell."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            yield cell, output


def shown(*kinds: str) -> Places:
    """Find what is shown of these MIME types; of `stdout`, what is printed."""

    def places(notebook: NotebookNode) -> list[Place]:
        found = [
            Place(cell, output.get("data", output), "text" if kind == "stdout" else kind)
            for cell, output in outputs(notebook)
            for kind in kinds
        ]
        return [place for place in found if place.key in place.holder]

    return places


def figure_texts(key: str) -> Places:
    """Find the names, captions or alternative texts of the figures that a notebook draws."""
    field = "image" if key == "alt" else "figure"
    return lambda notebook: [
        Place(cell, cell.metadata.mystnb[field], key)
        for cell in code_cells(notebook)
        if "mystnb" in cell.metadata
    ]


PLAIN = shown("stdout", "text/plain")
PRINTED = shown("stdout", "text/plain", "text/html")
HTML = shown("text/html")
SVG = shown("image/svg+xml")

OUTSIDE_TAGS = r"(?![^<]*>)"
NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])" + OUTSIDE_TAGS
ROW = r"<tr><td.*?</tr>\n"
CURVE = r'<path d="([^"]*)"[^>]*clip-path=[^>]*>'
LABEL = r"(?<=<!-- )[^<>]*[A-Za-zα-ω]{2}[^<>]*(?= -->)"
PARAGRAPH = r"(?<=\n\n)[A-Z][^\n]{80,}(?=\n\n)"
STATEMENT = r"(?m)^:label: (\S+)$"
ROLE = r"\{(eq|prf:ref|numref|cite|cite:t|glue:text)\}`([^`]+)`"


def text(places: Places, pattern: str, change: Change) -> Plant:
    """Change one match of a pattern to a template, as in `re.sub`, or to what a function says."""

    def plant(notebook: NotebookNode, rng: Random) -> str:
        seed = rng.random()

        def changed(match: re.Match[str]) -> str:
            return match.expand(change) if isinstance(change, str) else change(match, Random(seed))

        place, match = rng.choice(
            [
                (place, match)
                for place in places(notebook)
                for match in re.finditer(pattern, place.text)
                if changed(match) != match[0]
            ]
        )
        before, after = place.text[: match.start()], place.text[match.end() :]
        place.holder[place.key] = before + changed(match) + after
        return str(place.cell.id)

    return plant


def exchanged(places: Places) -> Plant:
    """Exchange two texts that differ."""

    def plant(notebook: NotebookNode, rng: Random) -> str:
        one = rng.choice(places(notebook))
        other = rng.choice([place for place in places(notebook) if place.text != one.text])
        one.holder[one.key], other.holder[other.key] = other.text, one.text
        return str(one.cell.id)

    return plant


def cell(change: Callable[[NotebookNode, Random], Any]) -> Plant:
    """Change one code cell, of those for which the change does not return False."""

    def plant(notebook: NotebookNode, rng: Random) -> str:
        cells = code_cells(notebook)
        for one in rng.sample(cells, len(cells)):
            if change(one, rng) is not False:
                return str(one.id)
        raise IndexError

    return plant


def output(change: Callable[[NotebookNode, NotebookNode, Random], Any]) -> Plant:
    """Change one output, of those for which the change does not return False."""

    def plant(notebook: NotebookNode, rng: Random) -> str:
        pairs = list(outputs(notebook))
        for one, its in rng.sample(pairs, len(pairs)):
            if change(one, its, rng) is not False:
                return str(one.id)
        raise IndexError

    return plant


def tagged(*tags: str) -> Plant:
    """Give a cell one of these tags."""

    def change(one: NotebookNode, rng: Random) -> Any:
        tag, present = rng.choice(tags), one.metadata.get("tags", [])
        if tag in present:
            return False
        one.metadata["tags"] = [*present, tag]
        return True

    return cell(change)


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


def swapped_outputs(one: NotebookNode, _: Random) -> Any:
    if len(one.outputs) < 2 or one.outputs[0] == one.outputs[-1]:
        return False
    one.outputs[0], one.outputs[-1] = one.outputs[-1], one.outputs[0]
    return True


def lost_type(_: NotebookNode, its: NotebookNode, rng: Random) -> Any:
    """Remove one of the forms in which an output is shown: HTML, a drawing, plain text."""
    return len(its.get("data", {})) > 1 and bool(its.data.pop(rng.choice(sorted(its.data))))


def lost_metadata(_: NotebookNode, its: NotebookNode, __: Random) -> Any:
    return bool(its.get("metadata")) and its.update(metadata=NotebookNode())


def glued_names(notebook: NotebookNode) -> list[Place]:
    """Return the names of the glued values."""
    return [
        Place(one, its.metadata.scrapbook, "name")
        for one, its in outputs(notebook)
        if GLUED in its.get("data", {}) and "scrapbook" in its.metadata
    ]


def hidden_by_setting(notebook: NotebookNode, rng: Random) -> str:
    """Hide what a cell, or the notebook, shows by a setting of myst-nb."""
    one = rng.choice(code_cells(notebook))
    holder = rng.choice([one, notebook])
    holder.metadata.setdefault("mystnb", NotebookNode())["remove_code_outputs"] = True
    return str(one.id)


def repeated_id(notebook: NotebookNode, rng: Random) -> str:
    one, other = rng.sample(notebook.cells, 2)
    one.id = other.id
    return str(one.id)


def changed_opening(notebook: NotebookNode, rng: Random) -> str:
    """Change a number in the opening that a cell glues."""
    opening = notebook.cells[0]
    stated = rng.choice(sorted(opening.metadata.get("states", {}).values()))
    planted = ("9" if stated[0] != "9" else "8") + stated[1:]
    opening.source = opening.source.replace(stated, planted)
    return str(opening.id)


def swapped_figure_metadata(notebook: NotebookNode, rng: Random) -> str:
    one, other = (place.cell for place in rng.sample(figure_texts("name")(notebook), 2))
    one.metadata.mystnb, other.metadata.mystnb = other.metadata.mystnb, one.metadata.mystnb
    return str(one.id)


def copied_caption(notebook: NotebookNode, rng: Random) -> str:
    place = rng.choice(figure_texts("alt")(notebook))
    place.holder["alt"] = place.cell.metadata.mystnb.figure.caption
    return str(place.cell.id)


def swapped_cells(notebook: NotebookNode, rng: Random) -> str:
    places = [i for i, one in enumerate(notebook.cells) if one.cell_type == "code"]
    one, other = rng.sample(places, 2)
    cells = notebook.cells
    cells[one], cells[other] = cells[other], cells[one]
    return str(cells[one].id)


def missing_cell(notebook: NotebookNode, rng: Random) -> str:
    one = rng.choice(code_cells(notebook)[:-1])
    notebook.cells.remove(one)
    return str(one.id)


def repeated_cell(kind: str) -> Plant:
    """Paste a cell of more than a few words twice, under an id of its own."""

    def plant(notebook: NotebookNode, rng: Random) -> str:
        cells = [one for one in notebook.cells if one.cell_type == kind and len(one.source) > 99]
        one = deepcopy(rng.choice(cells))
        place = [other.id for other in notebook.cells].index(one.id)
        one.id = f"{one.id}-2"
        notebook.cells.insert(place, one)
        return str(one.id)

    return plant


def raw_cell(notebook: NotebookNode, rng: Random) -> str:
    """Make a cell raw: neither run nor shown."""
    place = rng.randrange(1, len(notebook.cells))
    one = notebook.cells[place]
    notebook.cells[place] = new_raw_cell(one.source, id=one.id)
    return str(one.id)


def repeated_label(notebook: NotebookNode, rng: Random) -> str:
    """Give a statement the label of another."""
    labels = [one for place in markdown(notebook) for one in re.findall(STATEMENT, place.text)]
    first, other = rng.sample(labels, 2)
    pattern = rf"(?m)(?<=^:label: ){re.escape(other)}$"
    return text(markdown, pattern, first)(notebook, rng)


def swapped_solution(notebook: NotebookNode, rng: Random) -> str:
    """Give the solution of one exercise to another."""
    pattern = r"(?<=\{solution-start\} )\S+"
    labels = [one for place in markdown(notebook) for one in re.findall(pattern, place.text)]
    return text(markdown, pattern, rng.choice(labels))(notebook, rng)


def typed_glue(notebook: NotebookNode, rng: Random) -> str:
    """Type the only glued value of a chapter in the text in place of its role."""
    role = r"\{glue:text\}`[^`]+`"
    [place] = [p for p in markdown(notebook) for _ in re.finditer(role, p.text)]
    place.holder[place.key] = re.sub(role, "0.5", place.text)
    return str(place.cell.id)


def measured(notebook: NotebookNode) -> list[Place]:
    """Return the code whose random numbers show: beside a standard error, or as points."""
    cells = {place.cell.id for place in PRINTED(notebook) if "±" in place.text}
    cells |= {place.cell.id for place in SVG(notebook)}
    return [place for place in sources(notebook) if place.cell.id in cells]


def lost_assignment(notebook: NotebookNode, rng: Random) -> str:
    """Remove a line that gives a name its value."""
    place, line = rng.choice(
        [
            (place, node.lineno)
            for place in sources(notebook)
            for node in ast.parse(place.text).body
            if isinstance(node, ast.Assign) and node.lineno == node.end_lineno
        ]
    )
    lines = place.text.splitlines()
    place.holder[place.key] = "\n".join(lines[: line - 1] + lines[line:])
    return str(place.cell.id)


OTHER_OPERATOR = {"+": "-", "-": "+", "*": "/", "/": "*"}
ERROR = new_output("error", ename="ValueError", evalue="x", traceback=[])
WARNING = new_output("stream", name="stderr", text="UserWarning: careful\n")

PLANTS: dict[str, dict[str, Plant]] = {
    "comparison": {
        "changed_digit": text(PRINTED, NUMBER, other_digit),
        "changed_last_digit": text(
            PRINTED,
            r"(?<![\w.])(\d{0,2}\.\d?)(\d)(?![\w.])" + OUTSIDE_TAGS,
            lambda match, _: match[1] + str((int(match[2]) + 1) % 10),
        ),
        "lost_sign": text(PRINTED, r"(?<![\w.)\]])[-−](?=" + NUMBER[10:] + ")", ""),
        "changed_exponent": text(
            PRINTED,
            r"(?<=\de)([-+]?)(\d+)\b" + OUTSIDE_TAGS,
            lambda match, _: match[1] + str(int(match[2]) + 1).zfill(len(match[2])),
        ),
        "changed_word": text(PRINTED, r"\b[A-Za-z]{4,}\b" + OUTSIDE_TAGS, r"x\g<0>"),
        "lost_unit": text(PRINTED, "[%±√²×≈≤·]" + OUTSIDE_TAGS, ""),
        "changed_verdict": text(PRINTED, r"\bneeds a condition\b", "holds"),
        "changed_formula": text(shown("text/latex"), r"\+", "-"),
        "joined_lines": text(PLAIN, r"\n(?=\S)", " "),
        "lost_line": text(PLAIN, r"\n[^\n]+(?=\n?\Z)", ""),
        "moved_column": text(PLAIN, r"(?<=\S) {2,}(?=\S)", r"\g<0> "),
        # tables
        "lost_row": text(HTML, ROW, ""),
        "swapped_rows": text(HTML, f"({ROW})({ROW})", r"\2\1"),
        # outputs
        "missing_output": output(lambda one, its, _: one.outputs.remove(its)),
        "repeated_output": output(lambda one, its, _: "data" in its and one.outputs.append(its)),
        "swapped_outputs": cell(swapped_outputs),
        "lost_type": output(lost_type),
        "lost_metadata": output(lost_metadata),
        "swapped_glue": exchanged(glued_names),
        "changed_glue": text(shown(GLUED), NUMBER, other_digit),
        # drawings
        "swapped_figures": exchanged(SVG),
        "moved_curve": text(SVG, CURVE, moved),
        "lost_curve": text(SVG, CURVE, ""),
        "changed_label": text(SVG, LABEL, r"not \g<0>"),
        "changed_letter": text(SVG, r'(?<=href="#DejaVuSans-)(?!41")[0-9a-f]+', "41"),
        "changed_colour": text(SVG, "(?<=: )#(?!152c88)[0-9a-f]{6}", "#152c88"),
    },
    "rules": {
        # what hides something, or was not run as it stands
        "hidden_output": tagged("remove-output", "hide-output"),
        "hidden_cell": tagged("remove-cell", "hide-cell"),
        "hidden_code": tagged("remove-input", "hide-input"),
        "skipped_cell": tagged("nbval-skip", "nbval-ignore-output"),
        "allowed_error": tagged("raises-exception"),
        "lost_tag": cell(lambda one, _: bool(one.metadata.pop("tags", False))),
        "ignored_by_comment": text(sources, r"\A", "# NBVAL_IGNORE_OUTPUT\n"),
        "hidden_in_jupyter": cell(
            lambda one, _: one.metadata.update(jupyter={"source_hidden": True})
        ),
        "hidden_by_setting": hidden_by_setting,
        "unexecuted_cell": cell(
            lambda one, _: bool(one.outputs) and one.update(execution_count=None, outputs=[])
        ),
        "wrong_count": cell(lambda one, _: one.update(execution_count=99)),
        "repeated_id": repeated_id,
        "committed_error": cell(lambda one, _: one.outputs.append(ERROR)),
        "warning_on_stderr": cell(lambda one, _: one.outputs.append(WARNING)),
        "changed_opening": changed_opening,
        "swapped_cells": swapped_cells,
        "missing_cell": missing_cell,
        "repeated_code_cell": repeated_cell("code"),
        "raw_cell": raw_cell,
        "shell_line": text(sources, r"(?m)^(?=\w)", "!"),
    },
    "figures": {
        "lost_alternative_text": text(figure_texts("alt"), r"(?s)\A.+\Z", ""),
        "lost_caption": text(figure_texts("caption"), r"(?s)\A.+\Z", " "),
        "lost_figure_metadata": cell(lambda one, _: bool(one.metadata.pop("mystnb", False))),
        "swapped_alternative_texts": exchanged(figure_texts("alt")),
        "swapped_captions": exchanged(figure_texts("caption")),
        "swapped_figure_metadata": swapped_figure_metadata,
        "copied_caption": copied_caption,
    },
    "pages": {
        "repeated_label": repeated_label,
        "lost_label": text(markdown, STATEMENT + r"\n", ""),
        "broken_role": text(markdown, ROLE, without_a_mark),
        "lost_dollar": text(markdown, r"(?<![$\\])\$(?!\$)", ""),
        "lost_closing_fence": text(markdown, r"(?m)^`{3,} *$\n?", ""),
        "lost_opening_fence": text(markdown, r"(?m)^`{3,}\{[^\n]*\n", ""),
        "swapped_solution": swapped_solution,
        "lost_solution": text(markdown, r"(?m)^```\{solution-start\}.*(?s:.*?)\n```\n", ""),
        "second_title": text(markdown, r"(?m)^##(?= )", "#"),
        "repeated_paragraph": text(markdown, PARAGRAPH, r"\g<0>\n\n\g<0>"),
        "commented_paragraph": text(markdown, PARAGRAPH, r"% \g<0>"),
        "paragraph_in_html": text(markdown, PARAGRAPH, r"<!-- \g<0> -->"),
        "hidden_directive": text(markdown, STATEMENT, r"\g<0>\n:class: d-none"),
        "pasted_style": text(
            markdown, r"\Z", "\n\n```{raw} html\n<style>table { display: none }</style>\n```"
        ),
        "lost_still_text": text(markdown, r"(?m)^:alt: [^\n]*\n", ""),
        "typed_glue": typed_glue,
        "repeated_text_cell": repeated_cell("markdown"),
    },
    "execution": {
        "changed_seed": text(
            measured, r"(?<=default_rng\()\d+(?=\))", lambda match, _: f"{match[0]}1"
        ),
        "changed_count": text(
            sources,
            r"(?<![\w.\"'])\d[\d_]{2,}(?![\w.\"'])",
            lambda match, _: str(int(match[0]) // 2),
        ),
        "changed_operator": text(
            sources, "(?<= )[-+*/](?= )", lambda match, _: OTHER_OPERATOR[match[0]]
        ),
        "lost_assignment": lost_assignment,
    },
}

KINDS = {
    name: Kind(check, plant) for check, plants in PLANTS.items() for name, plant in plants.items()
}
