"""A Sphinx extension: marks the short path, in the contents and at the foot of each page.

The whole book is the path of "previous" and "next". The pages of the short one are listed in
book/contents.py; in the contents they have a dot, and each page says at its foot which of them
comes next.
"""

from html import escape
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from book.contents import SHORT_PATH, page_names

DOT = '<span class="short-path-mark" aria-hidden="true">●</span>'
SPOKEN = '<span class="short-path-spoken"> (short path)</span>'


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    # The theme's own handler, which makes the contents, has the usual priority, 500.
    app.connect("html-page-context", mark, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def mark(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Mark the short path in the contents of a page, and say at its foot how it goes on."""
    contents = context.get("generate_toctree_html")
    if contents is None:
        return
    addresses = {"#" if name == page else context["pathto"](name) for name in SHORT_PATH}

    def marked(*arguments: Any, **options: Any) -> BeautifulSoup:
        return with_dots(str(contents(*arguments, **options)), addresses)

    context["generate_toctree_html"] = marked
    if tree is not None and "body" in context:
        context["body"] += foot(app.env, page, context["pathto"])


def with_dots(contents: str, addresses: set[str]) -> BeautifulSoup:
    """Return the contents with a dot at each link to one of the addresses, and the key to it."""
    soup = BeautifulSoup(contents, "html.parser")
    for link in soup.select("a[href]"):
        if link["href"] in addresses:
            link.append(BeautifulSoup(DOT + SPOKEN, "html.parser"))
    key = f'<p class="short-path-key">{DOT} short path: {len(addresses)} chapters</p>'
    soup.insert(0, BeautifulSoup(key, "html.parser"))
    return soup


def foot(env: BuildEnvironment, page: str, pathto: Any) -> str:
    """Return the line at the foot of a page: where the short path goes on from here."""
    on_it = page in SHORT_PATH
    place = f", {SHORT_PATH.index(page) + 1} of {len(SHORT_PATH)}" if on_it else ""
    following = after(page, page_names(Path(env.srcdir)))
    if following is None:
        goes_on = "it ends here."
    else:
        title = escape(env.titles[following].astext())
        goes_on = f'next <a href="{pathto(following)}">{title}</a>'
    return (
        f'<nav class="short-path" aria-label="Short path"><p>{DOT} Short path{place}: '
        f"{goes_on}</p></nav>"
    )


def after(page: str, pages: list[str]) -> str | None:
    """Return the page of the path that follows a page; its first, where none follows in the book.

    At the end of the path it is None.
    """
    if page == SHORT_PATH[-1]:
        return None
    later = pages[pages.index(page) + 1 :] if page in pages else []
    return next((name for name in later if name in SHORT_PATH), SHORT_PATH[0])
