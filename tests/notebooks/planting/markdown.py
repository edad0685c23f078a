"""Faults in Markdown: what leads nowhere, or is not read as it was meant."""

import re
from random import Random

from nbformat import NotebookNode

from tests.notebooks.planting.faults import Fault, caught_by, drawn, replaced, texts

ROLES = ("eq", "prf:ref", "numref", "cite", "glue:text", "doc", "ref")
ROLE = re.compile(r"\{(eq|prf:ref|numref|cite|cite:t|glue:text)\}`([^`]+)`")
GLUE = re.compile(r"(?<=\{glue:text\}`)[^`]+")
CITATION = re.compile(r"(?<=\{cite\}`)[^`]+")
LINK = re.compile(r"(?<=\]\()[^():]+(?=\))")
LABEL = re.compile(r"^:label: (\S+)$", re.MULTILINE)
EQUATION = re.compile(r"(?<=\$\$ \()[\w-]+(?=\))")
OPENING = re.compile(r"^`{3,}\{[^\n]*\n", re.MULTILINE)
CLOSING = re.compile(r"^`{3,} *$\n?", re.MULTILINE)
STATEMENT = re.compile(r"(?<=\{prf:)(theorem|proposition|lemma|definition|proof)(?=\})")
PARAGRAPH = re.compile(r"(?<=\n\n)[A-Z][^\n]{80,}(?=\n\n)")
HEADING = re.compile(r"^##(?= )", re.MULTILINE)


@caught_by("pages")
def swapped_role(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Give a role another name: an equation cited, a theorem numbered like a figure."""
    seed = rng.random()

    def other(match: re.Match[str]) -> str:
        family = match[1].removesuffix(":t")
        role = Random(seed).choice([role for role in ROLES if role != family])
        return f"{{{role}}}`{match[2]}`"

    return replaced(rng, texts(notebook), ROLE, other)


@caught_by("pages")
def dead_reference(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Let a role name what is not there."""
    return replaced(rng, texts(notebook), ROLE, lambda match: f"{{{match[1]}}}`{match[2]}-missing`")


@caught_by("pages")
def misnamed_glue(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Ask for a glued value by a name that no cell glues."""
    return replaced(rng, texts(notebook), GLUE, lambda match: match[0].replace("_", "") + "s")


@caught_by("pages")
def misspelt_citation(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Cite by a key that is not in the list of references."""
    return replaced(rng, texts(notebook), CITATION, lambda match: match[0][:-1])


@caught_by("pages")
def dead_link(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Link to a page or a section that is not there."""
    return replaced(rng, texts(notebook), LINK, lambda match: match[0] + "s")


@caught_by("pages")
def renamed_label(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Rename a label to which the chapter refers."""
    used = {match[2] for place in texts(notebook) for match in ROLE.finditer(place.text)}
    pattern = rng.choice([LABEL, EQUATION])

    def rename(match: re.Match[str]) -> str:
        name = match[match.lastindex or 0]
        return match[0].replace(name, f"{name}-renamed") if name in used else match[0]

    return replaced(rng, texts(notebook), pattern, rename)


@caught_by("pages")
def repeated_label(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Give a statement the label of another."""
    labels = [match[1] for place in texts(notebook) for match in LABEL.finditer(place.text)]
    if len(labels) < 2:
        return None
    first, other = rng.sample(labels, 2)
    return replaced(
        rng,
        texts(notebook),
        re.compile(rf"(?<=^:label: ){re.escape(other)}$", re.MULTILINE),
        lambda _: first,
    )


@caught_by("pages")
def lost_label(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Take its label from a statement or an exercise."""
    return replaced(rng, texts(notebook), re.compile(LABEL.pattern + r"\n", re.M), lambda _: "")


@caught_by("pages")
def broken_role(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Lose a mark of a role: a backtick or a brace."""
    lost = rng.choice([(0, "{"), (0, "}"), (0, "`"), (-1, "`")])

    def lose(match: re.Match[str]) -> str:
        text = match[0]
        return text[:-1] if lost[0] else text.replace(lost[1], "", 1)

    return replaced(rng, texts(notebook), ROLE, lose)


@caught_by("pages")
def lost_dollar(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Lose the mark where a formula begins or ends."""
    return replaced(rng, texts(notebook), re.compile(r"(?<![$\\])\$(?!\$)"), lambda _: "")


@caught_by("pages")
def lost_closing_fence(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Lose the line that ends a directive."""
    return replaced(rng, texts(notebook), CLOSING, lambda _: "")


@caught_by("pages")
def lost_opening_fence(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Lose the line that begins a directive."""
    return replaced(rng, texts(notebook), OPENING, lambda _: "")


@caught_by("pages")
def misspelt_directive(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Ask for a directive that does not exist."""
    return replaced(rng, texts(notebook), STATEMENT, lambda match: match[0][:-1])


@caught_by("pages")
def lost_solution_end(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Let a solution run on to the end of the page."""
    return replaced(
        rng, texts(notebook), re.compile(r"^```\{solution-end\}\n```", re.MULTILINE), lambda _: ""
    )


@caught_by("pages")
def swapped_solution(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Give the solution of one exercise to another."""
    solution = re.compile(r"(?<=\{solution-start\} )\S+")
    labels = [match[0] for place in texts(notebook) for match in solution.finditer(place.text)]
    other = drawn(rng, labels)
    return other and replaced(rng, texts(notebook), solution, lambda _: other)


@caught_by("pages")
def skipped_heading(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Make a section a part of a part of what is above it."""
    return replaced(rng, texts(notebook), HEADING, lambda _: "######")


@caught_by("pages")
def second_title(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Make a section a second title."""
    return replaced(rng, texts(notebook), HEADING, lambda _: "#")


@caught_by("pages")
def repeated_paragraph(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Paste a paragraph twice."""
    return replaced(rng, texts(notebook), PARAGRAPH, lambda match: f"{match[0]}\n\n{match[0]}")


@caught_by("pages")
def lost_still(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Ask for a drawing that is not there."""
    return replaced(
        rng, texts(notebook), re.compile(r"(?<=\{figure\} )\S+"), lambda match: f"{match[0]}z"
    )


@caught_by("pages")
def lost_still_text(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Take its alternative text from a drawing."""
    return replaced(
        rng, texts(notebook), re.compile(r"^:alt: [^\n]*\n", re.MULTILINE), lambda _: ""
    )


@caught_by("pages")
def unused_glue(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Type a glued value in the text in place of its role."""
    return replaced(
        rng,
        [place for place in texts(notebook) if place.text.count("{glue:") == 1 == total(notebook)],
        re.compile(r"\{glue:text\}`[^`]+`"),
        lambda _: "0.5",
    )


def total(notebook: NotebookNode) -> int:
    """Return the number of glue roles in a chapter."""
    return sum(place.text.count("{glue:") for place in texts(notebook))


@caught_by("pages")
def commented_paragraph(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Hide a paragraph in a comment."""
    before, after = rng.choice([("% ", ""), ("<!-- ", " -->")])
    return replaced(rng, texts(notebook), PARAGRAPH, lambda match: f"{before}{match[0]}{after}")


@caught_by("pages")
def hidden_directive(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Hide a statement or an exercise by a class."""
    name = rng.choice(["d-none", "dropdown"])
    return replaced(rng, texts(notebook), LABEL, lambda match: f"{match[0]}\n:class: {name}")


@caught_by("pages")
def pasted_style(notebook: NotebookNode, rng: Random) -> Fault | None:
    """Hide what the style sheet of the page names."""
    place = rng.choice(texts(notebook))
    return place.put(place.text + "\n\n```{raw} html\n<style>table { display: none }</style>\n```")
