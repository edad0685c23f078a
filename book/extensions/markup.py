"""A Sphinx extension: mends the HTML of pages where Sphinx leaves something to be desired.

Each page gets a description for search engines: the first sentences of its first paragraph, which
in a chapter is its answer. The number of a source is a link to its claims in the ledger. The
bibliography loses roles that browsers no longer take.
"""

import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from book.plain import plain

LENGTH = 200
"""Characters of a description, about what search engines show."""

SOURCES = re.compile(r"\b[Ss]ources? 00\d(?:(?:, | and |, and )00\d)*")
NUMBER = re.compile(r"(00\d)")

WITHOUT_LINKS = (nodes.reference, nodes.title, nodes.Inline, nodes.FixedTextElement)
"""Text in these stays as it is: links, headings, code, formulas, what is emphasised."""

BIBLIOGRAPHY_ROLES = re.compile(r' role="(?:doc-biblioentry|list)"')


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-read", link_sources)
    app.connect("html-page-context", describe)
    app.connect("html-page-context", drop_roles)
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
        end = 0
        for found in SOURCES.finditer(text):
            pieces.append(nodes.Text(text[end : found.start()]))
            words = NUMBER.split(found[0])
            pieces += [
                link_to_source(word, page) if NUMBER.fullmatch(word) else nodes.Text(word)
                for word in words
            ]
            end = found.end()
        text.parent.replace(text, [*pieces, nodes.Text(text[end:])])


LEDGER = "chapters/claims"


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


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Add the page's description to its head."""
    text = description(tree) if tree else ""
    if text:
        context["metatags"] += f'\n<meta name="description" content="{escape(text)}">'


def description(tree: nodes.document) -> str:
    """Return the whole sentences of the first paragraph that fit; at least one, shortened."""
    paragraph = next((node for node in tree.findall(nodes.paragraph) if node.astext()), None)
    if paragraph is None:
        return ""
    text = " ".join("".join(map(in_words, paragraph.findall(nodes.Text))).split())
    ends = [match.end() for match in re.finditer(r"[.?!](?= [A-Z])|[.?!]$", text[: LENGTH + 1])]
    return text[: ends[-1]] if ends else text[:LENGTH].rsplit(" ", 1)[0] + " …"


def in_words(piece: nodes.Text) -> str:
    """Return a piece of text as it is, and a formula in characters."""
    return plain(str(piece)) if isinstance(piece.parent, nodes.math) else str(piece)


def drop_roles(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Take from the bibliography the roles of lists and entries, which axe calls wrong."""
    if 'class="citation' in context.get("body", ""):
        context["body"] = BIBLIOGRAPHY_ROLES.sub("", context["body"])
