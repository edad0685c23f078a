"""A Sphinx extension: what readers search for in other words than the book's.

Sphinx's own search finds titles, words and entries of the index. The lines of book/synonyms.toml
become such entries; the general index does not show them.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

SYNONYMS = Path(__file__).parents[1] / "synonyms.toml"


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_css_file("find.css")
    app.connect("doctree-read", add_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def synonyms() -> Iterator[tuple[str, str, str]]:
    """Return each phrase with a page that answers it and the section there, "" for the page."""
    for phrase, targets in tomllib.loads(SYNONYMS.read_text("utf-8")).items():
        for target in [targets] if isinstance(targets, str) else targets:
            page, _, anchor = target.partition("#")
            yield phrase, page, anchor


def add_entries(app: Sphinx, tree: nodes.document) -> None:
    """Add the phrases that a page answers, after Sphinx has read its entries for the index."""
    entries = [
        ("single", phrase, anchor, "main", None)
        for phrase, page, anchor in synonyms()
        if page == app.env.docname
    ]
    tree += addnodes.index(entries=entries)
