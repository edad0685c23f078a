"""A Sphinx extension: says at the foot of the pages of the short path how it goes on.

The whole book is the path of "previous" and "next". The pages of the short one are listed
here; book/static/book.css marks them in the contents with a dot.
"""

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SHORT_PATH = [
    *("chapters/short_answer", "chapters/variance", "chapters/freezing", "chapters/retrieval"),
    *("chapters/retrieval_range", "chapters/length_extrapolation", "chapters/unscaled"),
    *("chapters/calibration", "chapters/scaling_rules", "chapters/questions"),
]
"""The pages of the short path, in their order."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("html-page-context", add_foot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_foot(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Say at the foot of a page of the short path where it goes on."""
    if page not in SHORT_PATH or "body" not in context:
        return
    place, goes_on = SHORT_PATH.index(page) + 1, "it ends here."
    for following in SHORT_PATH[place : place + 1]:
        title = escape(app.env.titles[following].astext())
        goes_on = f'next <a href="{context["pathto"](following)}">{title}</a>'
    said = f"Short path, {place} of {len(SHORT_PATH)}: {goes_on}"
    context["body"] += f'<nav class="short-path" aria-label="Short path"><p>{said}</p></nav>'
