"""Print the built site as one PDF: cover, contents with page numbers, all chapters in order.

The pages are put one after another into a single page, which Chromium prints twice: the first time
tells on which sheet each chapter begins, the second has these numbers in the contents. Sphinx's
builder `singlehtml` would join the pages too, but ids that two chapters share lead its links
astray.
"""

import io
import os
import posixpath
import re
from collections.abc import Set
from html import escape
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import matplotlib as mpl
import pikepdf
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page
from sphinx_external_toc.parsing import parse_toc_yaml

from attnlib._files import replace
from book.browser import WAIT_FOR_PICTURES, chromium, chromium_path, serve

ROOT = Path(__file__).parents[1]
SITE = ROOT / "_build" / "html"
PDF = SITE / "_static" / "the-scale-of-attention.pdf"
TITLE = "The Scale of Attention"
AUTHOR = "The Scale of Attention contributors"

FONTS = Path(mpl.get_data_path()) / "fonts" / "ttf"
"""Every machine with the pins has these, so that the PDF looks the same on all of them."""

LEFT_OUT = (
    "script, a.headerlink, details.above-input, details.code > summary, .site-only, "
    "nav.short-path, .ledger-filters"
)
"""What paper does not need, the code of figures among it."""

LIVE, SCRIPT = ("live", "heads", "attend"), '<script src="_static/{}.js"></script>'
"""Scripts that draw the live figures, as they are when a page is opened."""

SHEET_WIDTH = 627
"""CSS pixels between the margins of a sheet, as book/print.css sets them: 166 mm."""


class Chapter(NamedTuple):
    """A page of the site, prepared to be one among the others."""

    part: str
    anchor: str
    title: str
    body: str


def main() -> None:
    """Print _build/html as a PDF into _build/html/_static."""
    if chromium_path() is None:
        raise SystemExit("no browser to print with: install Debian's package `chromium`")
    with chromium() as browser, serve(SITE) as address:
        page = open_page(browser, address, document(SITE, chapters(SITE)))
        pdf = print_numbered(page)
    replace(PDF, compress(pdf))
    print(f"The book is at {PDF}")


def chapters(site: Path) -> list[Chapter]:
    """Return all pages of the site in the order of its contents."""
    toc = parse_toc_yaml(ROOT / "_toc.yml")
    parts = {str(toc.root.docname): ""}
    parts |= {str(item): tree.caption or "" for tree in toc.root.subtrees for item in tree.items}
    return [prepare_chapter(site, name, part, parts.keys()) for name, part in parts.items()]


def prepare_chapter(site: Path, name: str, part: str, names: Set[str]) -> Chapter:
    """Return a page whose ids, links and pictures are right among the pages `names`."""
    page = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
    article: Any = page.select_one("article")
    for element in article.select(LEFT_OUT):
        element.decompose()
    for folded in article.select("details.code, details.code noscript"):
        folded.unwrap()
    for details in article.select("details"):
        details["open"] = ""
    for element in article.find_all(id=True):
        element["id"] = anchor(name, element["id"])
    for link in article.find_all("a", href=True):
        target = urlsplit(link["href"])
        linked = resolve_target(name, target.path).removesuffix(".html") if target.path else name
        if target.scheme:
            continue
        if linked not in names:
            link.unwrap()
            continue
        link["href"] = "#" + anchor(linked, target.fragment)
    for picture in article.find_all("img", src=True):
        picture["src"] = resolve_target(name, picture["src"])
    return Chapter(part, anchor(name), article.h1.get_text(), article.decode_contents())


def anchor(name: str, fragment: str = "") -> str:
    """Return the id of a place of a page among all pages."""
    return name.replace("/", "-") + (f"-{fragment}" if fragment else "")


def resolve_target(name: str, target: str) -> str:
    """Return the path of `target`, an address in a page, from the site's folder."""
    if urlsplit(target).scheme:
        return target
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def document(site: Path, chapters: list[Chapter]) -> str:
    """Return the whole book as one HTML page."""
    front = BeautifulSoup((site / "intro.html").read_text(encoding="utf-8"), "html.parser")
    head = "".join(map(str, front.select("link[rel=stylesheet]")))
    style = (ROOT / "book" / "print.css").read_text(encoding="utf-8")
    running = "".join(
        f'@page of-{entry.anchor} {{ @top-right {{ content: "{entry.title}"; }} }}'
        for entry in chapters
    )
    bodies = "".join(
        f'<article class="bd-article" id="{entry.anchor}" style="page: of-{entry.anchor}">'
        f"{entry.body}</article>"
        for entry in chapters
    )
    return (
        '<!DOCTYPE html><html lang="en" data-theme="light" data-mode="light"><head>'
        f'<meta charset="utf-8"><title>{TITLE}</title>{head}<style>{style}{running}</style></head>'
        f'<body>{cover()}{contents(chapters)}<main class="bd-content">{bodies}</main>'
        f"{''.join(map(SCRIPT.format, LIVE))}</body></html>"
    )


def cover() -> str:
    """Return the HTML of the first sheet."""
    addresses = [os.environ.get(name, "") for name in ("BOOK_SITE", "BOOK_REPOSITORY")]
    places = "".join(f'<a href="{escape(a)}">{escape(a)}</a><br>' for a in addresses if a)
    return (
        '<header class="cover"><img src="_static/logo.svg" alt="">'
        f"<h1>{TITLE}</h1><p>What attention scores should be divided by,<br>"
        "in proofs, exact numbers and simulations</p>"
        '<img class="figure" src="_static/three-answers-on-white.svg" alt="">'
        f"<p>{AUTHOR}<br>Version {version('attnlib')}<br>{places}</p>"
        "<p><small>Text and figures: CC BY 4.0. Code: MIT. "
        "The code that draws the figures is left out here; the notebooks have it.</small></p>"
        "</header>"
    )


def contents(chapters: list[Chapter]) -> str:
    """Return the table of contents: parts and chapters, with room for the numbers of sheets."""
    lines = []
    for part, entries in groupby(chapters, key=lambda entry: entry.part):
        lines += [f"<h2>{escape(part)}</h2>"] if part else []
        lines += [
            f'<a href="#{entry.anchor}"><span>{escape(entry.title)}</span><i></i><b></b></a>'
            for entry in entries
        ]
    return f'<nav class="parts"><h1>Contents</h1>{"".join(lines)}</nav>'


def open_page(browser: Browser, address: str, html: str) -> Page:
    """Return a page that shows `html` as the site would, laid out as wide as a sheet."""
    page = browser.new_page(viewport={"width": SHEET_WIDTH, "height": 900})
    page.set_default_timeout(120_000)  # thousands of formulas, perhaps on a busy machine
    page.emulate_media(media="print", color_scheme="light")
    page.route(
        "**/fonts/*.ttf",
        lambda route: route.fulfill(path=FONTS / Path(urlsplit(route.request.url).path).name),
    )
    page.route(
        f"{address}/book.html",
        lambda route: route.fulfill(body=html, content_type="text/html; charset=utf-8"),
    )
    page.goto(f"{address}/book.html")
    page.evaluate("for (const a of document.querySelectorAll('.live a')) a.replaceWith(a.text)")
    page.evaluate(WAIT_FOR_PICTURES)
    page.evaluate("document.fonts.ready.then(() => true)")
    return page


NUMBER_THE_CONTENTS = """(sheets) => {
  for (const entry of document.querySelectorAll(".parts a"))
    entry.querySelector("b").textContent = sheets[entry.hash.slice(1)];
}"""


def print_numbered(page: Page) -> bytes:
    """Print the page twice; return the PDF with the numbers of the sheets in its contents."""
    options: Any = {"prefer_css_page_size": True, "print_background": True, "tagged": True}
    page.evaluate(NUMBER_THE_CONTENTS, first_sheets(page.pdf(**options)))
    return page.pdf(outline=True, **options)


def first_sheets(pdf: bytes) -> dict[str, int]:
    """Return the number of the sheet on which each link target lies, counted from 1."""
    with pikepdf.open(io.BytesIO(pdf)) as book:
        numbers = {sheet.obj.objgen: number for number, sheet in enumerate(book.pages, start=1)}
        return {
            str(name).removeprefix("/"): numbers[place[0].objgen]
            for name, place in book.Root.Dests.items()
        }


def compress(pdf: bytes) -> bytes:
    """Return the PDF in fewer bytes, with its author, and each bookmark's title once."""
    buffer = io.BytesIO()
    with pikepdf.open(io.BytesIO(pdf)) as book:
        with book.open_outline() as outline:
            repair_titles(outline.root)
        book.docinfo = book.make_indirect(pikepdf.Dictionary(Title=TITLE, Author=AUTHOR))
        book.save(buffer, object_stream_mode=pikepdf.ObjectStreamMode.generate)
    return buffer.getvalue()


DOUBLED = re.compile(r"^(?:(\d+\. )\1)?(.+)\2$", re.DOTALL)
"""The title of a chapter, of which Chromium writes the number and the words twice."""


def repair_titles(items: list[pikepdf.OutlineItem]) -> None:
    """Remove the repetition from the titles of bookmarks, in place."""
    for item in items:
        item.title = DOUBLED.sub(r"\1\2", item.title)
        repair_titles(item.children)


if __name__ == "__main__":
    main()
