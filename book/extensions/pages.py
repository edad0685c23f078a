"""A Sphinx extension: filled places, code cells, script, description and foot of each page.

`book/static/reading.js` adds a switch for the code of all cells, which the browser remembers, marks
formulas that are wider than their place, and shows the target of a link.

Search engines show the description, the sentence with which a page begins. Drawings have their
sizes before they are loaded, when they come near: otherwise the text below them would move while
one reads. The foot of a page of the short path says where it goes on; book/static/book.css marks
these pages in the contents with a dot.
"""

import posixpath
import re
from html import escape
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from docutils import nodes
from lxml import html
from sphinx.application import Sphinx

from book import code_cells, placeholders

SHORT_PATH = [
    *("chapters/short_answer", "chapters/variance", "chapters/jacobian", "chapters/freezing"),
    *("chapters/retrieval", "chapters/retrieval_range", "chapters/unscaled"),
    "chapters/calibration",
]
"""The pages of the short path, in their order."""

OPENING = re.compile(r"<p>.*?</p>", re.DOTALL)
SENTENCES = re.compile(r".{60,}?[.?!](?= |$)")
BETWEEN = {"mfrac": "/", "msup": "^"}

IMAGE = re.compile(r'<img(?![^>]*\bloading=)([^>]*?\bsrc="([^"]+)"[^>]*?)(\s*/?)>')
SIDES = re.compile(r'<svg[^>]*?\bwidth="([\d.]+)pt"[^>]*?\bheight="([\d.]+)pt"')
PIXELS_A_POINT = 4 / 3


def setup(app: Sphinx) -> None:
    """Connect the extension to Sphinx."""
    app.connect("source-read", placeholders.fill)
    app.add_node(code_cells.FoldedCode, html=(code_cells.open_details, code_cells.close_details))
    app.connect("doctree-resolved", code_cells.fold)
    app.add_js_file("reading.js", loading_method="defer")
    app.connect("html-page-context", complete)


def complete(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Give a page its description, the sizes of its drawings, and the foot of the short path."""
    if app.builder.format != "html" or "body" not in context:
        return
    if opening := OPENING.search(context["body"]):
        context["metatags"] = (
            f'<meta name="description" content="{escape(first_sentence(opening[0]))}" />'
        )
    # Pictures are copied into the site when the build ends.
    files = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
    context["body"] = set_sizes(context["body"], files)
    if page in SHORT_PATH:
        context["body"] += short_path_foot(app, page, context)


def first_sentence(paragraph: str) -> str:
    """Return the first sentence of a paragraph in HTML, or two if the first is short."""
    text = " ".join(text_of(html.fragment_fromstring(paragraph)).split())
    sentences = SENTENCES.match(text)
    return sentences[0] if sentences else text


def text_of(element: html.HtmlElement) -> str:
    """Return the text of an element, with formulas in one line."""
    parts = [element.text or "", *(text_of(part) + (part.tail or "") for part in element)]
    text = BETWEEN.get(element.tag, "").join(part for part in parts if part)
    if element.tag == "msqrt":
        return f"√({text})" if len(element) > 1 else f"√{text}"
    return text if element.tag != "mspace" else " "


def set_sizes(body: str, files: dict[str, Path]) -> str:
    """Return the HTML with the sizes of its drawings; all but the first are loaded late."""
    loading = chain([""], repeat(' loading="lazy"'))

    def with_size(image: re.Match[str]) -> str:
        """Return the tag of an image with its width and height in pixels, if it is a drawing."""
        attributes, file = image[1], files.get(posixpath.basename(image[2]))
        sides = SIDES.search(file.read_text("utf-8")) if file and file.suffix == ".svg" else None
        if sides and not re.search(r"\b(?:width|height)=", attributes):
            width, height = (PIXELS_A_POINT * float(side) for side in sides.groups())
            attributes += f' width="{width:.0f}" height="{height:.0f}"'
        return f"<img{attributes}{next(loading)}{image[3]}>"

    return IMAGE.sub(with_size, body)


def short_path_foot(app: Sphinx, page: str, context: dict[str, Any]) -> str:
    """Return the foot of a page, with a link to the next page of the short path."""
    place, following = SHORT_PATH.index(page) + 1, "it ends here."
    for name in SHORT_PATH[place : place + 1]:
        title = escape(app.env.titles[name].astext())
        following = f'next <a href="{context["pathto"](name)}">{title}</a>'
    text = f"Short path, {place} of {len(SHORT_PATH)}: {following}"
    return f'<nav class="short-path" aria-label="Short path"><p>{text}</p></nav>'
