"""A Sphinx extension: what a page of the site has beside its text.

What the library, the records and the commands say stands in the place of each «name».

Each code cell shows its output, and above it a line that opens its code: a `details`, which needs
no script. Where there are scripts its code is no part of the page, in a `noscript`, until it is
opened: the colours of the code are half of a page's elements. `book/static/reading.js` adds a
switch for all of them, which the browser remembers, marks formulas that are wider than their place,
and shows what a link refers to.

Search engines show how a page begins. Drawings have their sizes before they are loaded, when they
come near: otherwise the text below them would move while one reads. The foot of a page of the short
path says where it goes on; book/static/book.css marks these pages in the contents with a dot.
"""

import posixpath
import re
from bisect import bisect_left
from html import escape
from itertools import chain, repeat
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import typer
from docutils import nodes
from lxml import html
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxTranslator
from typer.cli import get_docs_for_click

from attnlib import annealed, criteria, exact, freezing, rows
from attnlib.cli import app as commands
from attnlib.scores import Cosine, Normal
from book import census, models
from book.live import tables

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


class FoldedCode(nodes.General, nodes.Element):  # type: ignore[misc]
    """The code of a cell; one that the notebook hides has the class `above-input`."""


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", fill)
    app.add_node(FoldedCode, html=(open_details, close_details))
    app.connect("doctree-resolved", fold)
    app.add_js_file("reading.js", loading_method="defer")
    app.connect("html-page-context", complete)


# --- made parts -----------------------------------------------------------------------------------


def command_line() -> dict[str, str]:
    """Return what each command of `attnlib` is and takes."""
    group: Any = typer.main.get_command(commands)
    context = group.context_class(group, info_name="attnlib")
    text = get_docs_for_click(obj=group, ctx=context, name="attnlib")
    return {"commands": text[text.index("\n## ") :]}


def calculator() -> dict[str, str]:
    """Return the numbers on the calculator's page, by name."""
    n, law = 4096, Normal()
    critical = float(freezing.critical_alpha(n, law))
    counts = range(2, n)
    few = counts[bisect_left(counts, True, key=lambda k: criteria.same_entropy(law, k) is not None)]
    least, most = tables.KEYS
    return {
        "n": str(n),
        "annealed": f"{float(annealed.best_alpha(law, n)):.2f}",
        "entropy": f"{criteria.same_entropy(law, n):.2f}",
        "freezing": f"{critical:.2f}",
        "cosines": f"{float(freezing.critical_alpha(n, Cosine(64))) / 8:.2f}",
        "level": f"{float(exact.gradient(law, 2.2 * critical, n)):.1f}",
        "reference": str(criteria.REFERENCE_KEYS),
        "few": str(few),
        "least": str(least),
        "most": f"{log2(most):.0f}",
    }


def front_page() -> dict[str, str]:
    """Return on how many keys the weight of the front page's row is, by the head's size."""
    row = np.array(tables.sixteen()[0])
    shares = {d: rows.collision_probability(rows.softmax(row, d**0.5)) for d in (1, 4, 64, 1024)}
    return {f"keys_{d}": f"{1 / float(share):.1f}" for d, share in shares.items()}


MADE = {
    "chapters/census": census.made,
    "chapters/models": models.made,
    "chapters/calculator": calculator,
    "intro": front_page,
    "chapters/api/command_line": command_line,
}
"""What is put in the place of each «name», by page."""


def fill(_: Sphinx, page: str, source: list[str]) -> None:
    """Fill a page that has such places."""
    if page in MADE:
        parts = MADE[page]()
        source[0] = re.sub("«([^»]+)»", lambda place: parts[place[1]], source[0])


# --- the code of cells ----------------------------------------------------------------------------


def fold(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Put the code of each cell into a node that is shown folded."""
    if app.builder.format != "html":
        return
    for source in list(tree.findall(nodes.container)):
        if source.get("nb_element") != "cell_code_source":
            continue
        folded = FoldedCode(lines=len(source.astext().strip().splitlines()))
        place = source
        if isinstance(source.parent, HideCodeCellNode):
            place = source.parent
            folded["classes"] = ["above-input"]
        place.parent.replace(place, folded)
        folded += source


def open_details(translator: SphinxTranslator, node: FoldedCode) -> None:
    """Write the line that opens the code."""
    classes = " ".join(["code", *node["classes"]])
    lines = f"{node['lines']} line{'' if node['lines'] == 1 else 's'}"
    translator.body.append(
        f'<details class="{classes}">\n<summary>Code, {lines}</summary>\n<noscript>'
    )


def close_details(translator: SphinxTranslator, node: FoldedCode) -> None:
    """Write its end."""
    translator.body.append("</noscript></details>\n")


# --- around the text ------------------------------------------------------------------------------


def complete(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Give a page its description, the sizes of its drawings, and the foot of the short path."""
    if app.builder.format != "html" or "body" not in context:
        return
    if opening := OPENING.search(context["body"]):
        context["metatags"] = (
            f'<meta name="description" content="{escape(beginning(opening[0]))}" />'
        )
    # Pictures are copied into the site when the build ends.
    files = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
    context["body"] = sized(context["body"], files)
    if page in SHORT_PATH:
        context["body"] += foot(app, page, context)


def beginning(paragraph: str) -> str:
    """Return the first sentence of a paragraph in HTML, or two where that is short."""
    text = " ".join(plain(html.fragment_fromstring(paragraph)).split())
    sentences = SENTENCES.match(text)
    return sentences[0] if sentences else text


def plain(element: html.HtmlElement) -> str:
    """Return the text of an element, formulas in one line."""
    parts = [element.text or "", *(plain(part) + (part.tail or "") for part in element)]
    text = BETWEEN.get(element.tag, "").join(part for part in parts if part)
    if element.tag == "msqrt":
        return f"√({text})" if len(element) > 1 else f"√{text}"
    return text if element.tag != "mspace" else " "


def sized(body: str, files: dict[str, Path]) -> str:
    """Return a page with the sizes of its drawings; all but the first are loaded late."""
    late = chain([""], repeat(' loading="lazy"'))

    def with_size(image: re.Match[str]) -> str:
        attributes, file = image[1], files.get(posixpath.basename(image[2]))
        sides = SIDES.search(file.read_text("utf-8")) if file and file.suffix == ".svg" else None
        if sides and not re.search(r"\b(?:width|height)=", attributes):
            width, height = (PIXELS_A_POINT * float(side) for side in sides.groups())
            attributes += f' width="{width:.0f}" height="{height:.0f}"'
        return f"<img{attributes}{next(late)}{image[3]}>"

    return IMAGE.sub(with_size, body)


def foot(app: Sphinx, page: str, context: dict[str, Any]) -> str:
    """Return where the short path goes on behind a page."""
    place, following = SHORT_PATH.index(page) + 1, "it ends here."
    for name in SHORT_PATH[place : place + 1]:
        title = escape(app.env.titles[name].astext())
        following = f'next <a href="{context["pathto"](name)}">{title}</a>'
    text = f"Short path, {place} of {len(SHORT_PATH)}: {following}"
    return f'<nav class="short-path" aria-label="Short path"><p>{text}</p></nav>'
