"""A Sphinx extension: the search, by section.

While the site is built, each section gives its title, its place and its text without marks,
formulas in characters; so does each claim of the ledger, each function of the library and each word
of the glossary. All of it, and what book/live/search.js does with it, is `_static/search.js`, which
a page loads when somebody is about to search. It takes the place of Sphinx's own index.
"""

import re
import tomllib
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

from book.live.script import HERE, compact, joined
from book.plain import plain
from experiments.files import replace

SYNONYMS = Path(__file__).parents[1] / "synonyms.toml"
MODULES = ("drawing", "search", "main_search")

LEFT_OUT = (
    *(nodes.FixedTextElement, nodes.Invisible, nodes.raw, nodes.image, nodes.footnote_reference),
    *(addnodes.index, addnodes.toctree, nodes.field_list, addnodes.desc, addnodes.glossary),
)
LEFT_OUT_CLASSES = {"cell_input", "cell_output", "in-library"}
"""What is no prose, or has an entry of its own: code, what the book computed, pictures, lists."""

WORTH = {
    **{"chapters/": 1.0, "intro": 1.0, "glossary": 0.8, "about": 0.8, "notation": 0.8},
    **{"chapters/claims": 0.6, "chapters/errata": 0.7, "api/": 0.6, "": 0.5},
}
"""What a page's sections count in the order of results; the longest that fits."""

LONG = 90
"""Characters from which a formula on its own line is no part of a sentence."""

BOX = re.compile(
    r'id="(claim-[^"]+)".*?<strong>(.*?)</strong> <code>(.*?)</code></p>(.*?)</div>', re.DOTALL
)
"""A claim, as book.claim_boxes writes it."""

CHAPTERS_NAMED = re.compile(r" ?Chapters?: [\w, ]+\.")
"""In a docstring, and no part of what it says."""

logger = logging.getLogger(__name__)

Entry = tuple[str, str, str]
"""Anchor, title and text."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    found: dict[str, list[Entry]] = {}

    def note(app: Sphinx, tree: nodes.document, page: str) -> None:
        found[page] = list(entries(tree))

    def finish(app: Sphinx, error: Exception | None) -> None:
        if error is None and app.builder.name == "html":
            for page in set(app.env.found_docs) - set(found):  # not written in this build
                app.env.get_and_resolve_doctree(page, app.builder)
            write(app, found)

    app.add_css_file("find.css")
    app.add_js_file("find.js")
    app.connect("builder-inited", without_index)
    app.connect("html-collect-pages", page_of_search)
    app.connect("doctree-resolved", note, priority=900)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def without_index(app: Sphinx) -> None:
    """Keep Sphinx from making its own index and page."""
    app.builder.search = False  # type: ignore[attr-defined]


def page_of_search(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Return the page of the search."""
    if app.builder.name == "html":
        yield "search", {}, "search.html"


def write(app: Sphinx, found: dict[str, list[Entry]]) -> None:
    """Write the script into the site, and its modules beside it, where tests load them."""
    modules = {"index": f"export const INDEX = {compact(index(app, found))};\n"}
    modules |= {name: (HERE / f"{name}.js").read_text("utf-8") for name in MODULES}
    script = joined(Path(app.outdir).parent / "live", modules)
    replace(Path(app.outdir, "_static", "search.js"), script.encode())


def index(app: Sphinx, found: dict[str, list[Entry]]) -> dict[str, Any]:
    """Return the index: pages, their entries, and the synonyms with the numbers of these."""
    pages: list[Any] = []
    sections: list[Any] = []
    places: dict[str, int] = {}
    for number, page in enumerate(sorted(app.env.found_docs)):
        worth = WORTH[max((start for start in WORTH if page.startswith(start)), key=len)]
        pages.append([app.builder.get_target_uri(page), found[page][0][1], worth])
        for anchor, title, text in found[page]:
            places[f"{page}#{anchor}" if anchor else page] = len(sections)
            sections.append([number, anchor, "" if title == anchor else title, text])
    named = []
    for phrase, targets in synonyms().items():
        for target in set(targets) - set(places):
            logger.warning("the synonym %r leads to %s, which no page has", phrase, target)
        named.append([phrase, [places[target] for target in targets if target in places]])
    return {"pages": pages, "sections": sections, "synonyms": named}


def synonyms() -> dict[str, list[str]]:
    """Return what readers search for, and the sections that answer it: a page, or page#anchor."""
    table = tomllib.loads(SYNONYMS.read_text("utf-8"))
    return {
        phrase: [targets] if isinstance(targets, str) else targets
        for phrase, targets in table.items()
    }


def entries(tree: nodes.document) -> Iterator[Entry]:
    """Return the entries of a page; the first is the page itself, up to its second heading."""
    for number, section in enumerate(filter(titled, tree.findall(nodes.section))):
        title = section.next_node(nodes.title)
        anchor = section["ids"][0] if number else ""
        yield anchor, spaced("".join(map(text_of, title.children))), prose(section)
    for item in tree.findall(nodes.definition_list_item):
        term = item[0]
        if isinstance(item.parent.parent, addnodes.glossary) and term["ids"]:
            yield term["ids"][0], spaced(text_of(term)), spaced(text_of(item[-1]))
    for described in tree.findall(addnodes.desc):
        for anchor in described[0].get("ids", [])[:1]:
            yield anchor, anchor, spaced(text_of(described[-1]))
    for output in tree.findall(nodes.raw):
        if "In chapter" in output.astext():
            for anchor, verdict, name, rest in BOX.findall(output.astext()):
                text = unescape(re.sub(r"<a .*?</a>|<[^>]+>", " ", rest))
                yield anchor, f"{name}: {verdict}", spaced(text)


def titled(node: nodes.Node) -> bool:
    """Return whether a node is a section with a heading, and not the inside of a proof."""
    first = next((child for child in node.children if not isinstance(child, nodes.Invisible)), None)
    return isinstance(node, nodes.section) and isinstance(first, nodes.title)


def prose(section: nodes.section) -> str:
    """Return the text of a section down to its next heading, without its own."""
    parts = (child for child in section if not isinstance(child, nodes.title))
    return spaced(" ".join(map(text_of, parts)))


def spaced(text: str) -> str:
    """Return text with single spaces, and none before a full stop."""
    return CHAPTERS_NAMED.sub("", re.sub(r" (?=[,;.:)?!])", "", " ".join(text.split())))


def text_of(node: nodes.Node) -> str:
    """Return the prose within a node, formulas in characters; sections and the like aside."""
    if not isinstance(node, nodes.Element):
        return str(node.astext())  # which has not the escapes of docstrings
    if isinstance(node, nodes.math):
        return plain(node.astext())
    if isinstance(node, nodes.math_block):
        formula = plain(node.astext())
        return f" {formula} " if len(formula) <= LONG and "; " not in formula else " … "
    if isinstance(node, LEFT_OUT) or set(node["classes"]) & LEFT_OUT_CLASSES or titled(node):
        return ""
    within = "".join if isinstance(node, nodes.TextElement) else " ".join
    ends = {nodes.entry: " · ", nodes.title: ". "}
    end = "" if isinstance(node, nodes.Inline) else ends.get(type(node), " ")
    return within(map(text_of, node.children)) + end
