"""A Sphinx extension: says at the foot of each page how the short path goes on.

The whole book is the path of "previous" and "next". The pages of the short one are listed in
book/contents.py; static/book.css marks them in the contents with a dot.
"""

from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from book.contents import SHORT_PATH, page_names


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("html-page-context", add_foot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_foot(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Say at the foot of a page where the short path goes on from here."""
    if tree is not None and "body" in context:
        context["body"] += foot(app.env, page, context["pathto"])


def foot(env: BuildEnvironment, page: str, pathto: Any) -> str:
    """Return the line at the foot of a page."""
    on_it = page in SHORT_PATH
    place = f", {SHORT_PATH.index(page) + 1} of {len(SHORT_PATH)}" if on_it else ""
    pages = page_names(Path(env.srcdir))
    following = after(page, pages)
    only = (page, following) in list(pairwise(pages))
    name = "short-path only" if only else "short-path"
    if following is None:
        goes_on = "it ends here."
    else:
        title = escape(env.titles[following].astext())
        goes_on = f'next <a href="{pathto(following)}">{title}</a>'
    return f'<nav class="{name}" aria-label="Short path"><p>Short path{place}: {goes_on}</p></nav>'


def after(page: str, pages: list[str]) -> str | None:
    """Return the page of the path that follows a page; its first, where none follows in the book.

    At the end of the path it is None.
    """
    if page == SHORT_PATH[-1]:
        return None
    later = pages[pages.index(page) + 1 :] if page in pages else []
    return next((name for name in later if name in SHORT_PATH), SHORT_PATH[0])
