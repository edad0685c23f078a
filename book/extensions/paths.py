"""A Sphinx extension: says at the foot of the pages of the short path how it goes on.

The whole book is the path of "previous" and "next". The pages of the short one are listed
here; book/static/book.css marks them in the contents with a dot.
"""

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SHORT_PATH = [
    *("chapters/short_answer", "chapters/variance", "chapters/jacobian", "chapters/freezing"),
    *("chapters/retrieval", "chapters/retrieval_range", "chapters/unscaled"),
    "chapters/calibration",
]
"""The pages of the short path, in their order."""

SECONDS_A_WORD = 60 / 230
SECONDS_A_LINE_OF_CODE = 2
SECONDS = {nodes.math: 2, nodes.math_block: 15, nodes.figure: 25, nodes.table: 25}
NOT_COUNTED = {"exercise", "solution", "dropdown", "tag_hide-input"}
"""Classes of what a first reader may pass over: exercises, and all that is folded."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("html-page-context", add_foot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def reading_time(node: nodes.Node) -> float:
    """Return the seconds it takes to read a part of a page: words, formulas, tables, code."""
    if isinstance(node, nodes.Text):
        return SECONDS_A_WORD * len(node.split())
    if isinstance(node, nodes.literal_block):
        return SECONDS_A_LINE_OF_CODE * len(node.astext().splitlines())
    if isinstance(node, nodes.raw):
        return SECONDS[nodes.table] if "<table" in node.astext() else 0.0
    if isinstance(node, nodes.math | nodes.math_block):
        return SECONDS[type(node)]
    parts = node.children
    if isinstance(node, nodes.Element) and NOT_COUNTED & {*node["classes"]}:
        containers = (part for part in parts if isinstance(part, nodes.Element))
        parts = [part for part in containers if "cell_output" in part["classes"]]
    return SECONDS.get(type(node), 0) + sum(map(reading_time, parts))


def add_foot(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Say at the foot of a page of the short path where it goes on, and how long that takes."""
    if page not in SHORT_PATH or "body" not in context:
        return
    place, next_page = SHORT_PATH.index(page) + 1, "it ends here."
    for following in SHORT_PATH[place : place + 1]:
        title = escape(app.env.titles[following].astext())
        minutes = reading_time(app.env.get_doctree(following)) / 60
        link = f'<a href="{context["pathto"](following)}">{title}</a>'
        next_page = f"next {link} ({minutes:.0f} minutes)"
    foot = f"Short path, {place} of {len(SHORT_PATH)}: {next_page}"
    context["body"] += f'<nav class="short-path" aria-label="Short path"><p>{foot}</p></nav>'
