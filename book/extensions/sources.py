"""A Sphinx extension: the number of a source is a link to its claims in the ledger."""

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

LEDGER = "chapters/claims"

SOURCES = re.compile(r"\b[Ss]ources? 00\d(?:(?:, | and |, and )00\d)*")
NUMBER = re.compile(r"(00\d)")

WITHOUT_LINKS = (nodes.reference, nodes.title, nodes.Inline, nodes.FixedTextElement)
"""Text in these stays as it is: links, headings, code, formulas, what is emphasised."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-read", link_sources)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def link_sources(app: Sphinx, tree: nodes.document) -> None:
    """Make the number in "source 003" a link to that source's claims, except among these."""
    page = app.env.docname
    if page == LEDGER:
        return
    for text in list(tree.findall(nodes.Text)):
        if isinstance(text.parent, WITHOUT_LINKS) or not SOURCES.search(text):
            continue
        pieces: list[nodes.Node] = []
        for piece in re.split(f"({SOURCES.pattern})", text):
            words = NUMBER.split(piece) if SOURCES.fullmatch(piece) else [piece]
            pieces += [
                link_to_source(word, page) if NUMBER.fullmatch(word) else nodes.Text(word)
                for word in words
            ]
        text.parent.replace(text, pieces)


def link_to_source(number: str, page: str) -> addnodes.pending_xref:
    """Return a link to the claims of a source, to be resolved by Sphinx."""
    return addnodes.pending_xref(
        "",
        nodes.inline("", number),
        refdomain="std",
        reftype="ref",
        reftarget=f"source-{number}",
        refdoc=page,
        refexplicit=True,
        refwarn=True,
    )
