"""What a page must be, in its HTML and in a browser; findings are empty where all is well."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup, NavigableString
from playwright.sync_api import Browser, Page

from book.browser import WAIT_FOR_PICTURES
from tests.books import page_names

PAGES = page_names()

KINDS = (
    *("intro", "models", "glossary", "bibliography", "notation", "api/models"),
    *("chapters/why", "chapters/freezing", "chapters/heads", "chapters/policies"),
    *("chapters/calculator", "chapters/claims", "chapters/errata", "chapters/training"),
)
"""One page or two of each kind, the widest and longest among them."""

ONE = ("models", "api/models", "chapters/why", "chapters/calculator", "chapters/claims")
"""One page of each kind, for what takes seconds."""


def each_kind(*others: str, of: tuple[str, ...] = KINDS) -> list[object]:
    """Return the pages for parametrize: those of a kind at every push, all others where slow."""
    names = [*PAGES, *others]
    marks = [() if name in (*of, *others) else pytest.mark.slow for name in names]
    return [pytest.param(name, marks=mark) for name, mark in zip(names, marks, strict=True)]


RAW_MARKUP = re.compile(r"\{(?:glue|cite|numref|ref|eq|prf|doc|term)\b[^}\n]*\}|:::|\?\?\?")
DESCRIPTION = re.compile(r"(?!.*\.(?:svg|png|jpe?g)\s*$)\s*\S.*", re.DOTALL)
LINKS = ("href", "src", "data", "poster", "xlink:href")
FILLED = ["img", "svg", "canvas", "video", "iframe"]


@cache
def soup(page: Path) -> BeautifulSoup:
    """Return the parsed page."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(page: Path) -> set[str]:
    """Return what a link into the page may name after the #."""
    return {element["id"] for element in soup(page).find_all(id=True)}


def unresolved_markup(site: Path, page: Path) -> list[str]:
    """Find roles, directives and references that reached the page as they were written."""
    found = [f"{text[:80]!r}" for text in prose(page) if RAW_MARKUP.search(text)]
    for mark in soup(page).select(".problematic, .system-message, pending_xref"):
        found.append(f"{mark.name}: {mark.get_text()[:80]!r}")
    return found


def prose(page: Path) -> Iterator[str]:
    """Return the pieces of text of a page that are neither code nor formulas."""
    for text in soup(page).find_all(string=True):
        in_code = text.find_parent(["script", "style", "pre", "code"])
        if type(text) is NavigableString and not in_code and not text.find_parent(class_="math"):
            yield text.strip()


def dead_links(site: Path, page: Path) -> list[str]:
    """Find links, images and files of this site that lead nowhere."""
    targets = {
        element[attribute]
        for element in soup(page).find_all(True)
        for attribute in LINKS
        if element.has_attr(attribute)
    }
    return [target for target in sorted(targets) if not resolves(site, page, target)]


def resolves(site: Path, page: Path, target: str) -> bool:
    """Return whether a link of a page leads to a file of the site, and to an id if it names one."""
    link = urlsplit(target)
    if link.scheme or link.netloc:
        return True
    file = Path(os.path.normpath(page.parent / unquote(link.path))) if link.path else page
    if not file.is_relative_to(site) or not file.is_file():
        return False
    if not link.fragment or file.suffix != ".html":
        return True
    return unquote(link.fragment) in anchors(file)


def empty_outputs(site: Path, page: Path) -> list[str]:
    """Find outputs of code that show nothing."""
    outputs = soup(page).select("div.cell_output")
    shown = [output.get_text(strip=True) or output.find(FILLED) for output in outputs]
    return [f"output {index}" for index, content in enumerate(shown) if not content]


def missing_descriptions(site: Path, page: Path) -> list[str]:
    """Find images without alternative text, or with a file name in its place."""
    images = soup(page).find_all("img")
    return [str(image)[:200] for image in images if not DESCRIPTION.fullmatch(image.get("alt", ""))]


CHECKS = [unresolved_markup, dead_links, empty_outputs, missing_descriptions]


FORMULAS = r"""() => {
  const findings = [];
  const count = (selector) => document.querySelectorAll(selector).length;
  if (count(".math") !== count(".math > math"))
    findings.push(`${count(".math > math")} of ${count(".math")} formulas are shown`);
  for (const formula of document.querySelectorAll("math")) {
    const box = formula.getBoundingClientRect();
    const empty = formula.checkVisibility() && !(box.width && box.height);
    if (empty || formula.querySelector("merror"))
      findings.push(`broken formula: ${formula.textContent}`);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent;
    if (/\\[(\[]/.test(text) && parent.checkVisibility() && !parent.closest("pre, code, script"))
      findings.push(`raw formula: ${text.trim().slice(0, 80)}`);
  }
  return findings;
}"""

OVERFLOW = r"""() => {
  const root = document.documentElement;
  const edge = root.clientWidth;
  const findings = [];
  if (root.scrollWidth > edge)
    findings.push(`the page scrolls sideways: ${root.scrollWidth} pixels wide, not ${edge}`);
  const sticksOut = ({ left, right }) =>
    right > left && ((left < edge && right > edge + 1) || (left < -1 && right > 0));
  const insideScroller = (element) => {
    for (let box = element; box && box !== document.body; box = box.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return true;
    return false;
  };
  const report = (box, element, name) => {
    const shown = element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    if (shown && sticksOut(box))
      findings.push(`${name} sticks out: from ${box.left} to ${box.right} of ${edge}`);
  };
  const range = document.createRange();
  // What is drawn in an SVG is cut at its edge; the boxes of signs are larger than what they show.
  const reader = ":not(svg *, math *)";
  for (const element of document.body.querySelectorAll(`*${reader}`)) {
    const name = [element.localName, ...element.classList].join(".");
    if (!insideScroller(element.parentElement))
      report(element.getBoundingClientRect(), element, name);
    if (insideScroller(element)) continue;
    for (const text of element.childNodes) {
      if (text.nodeType !== Node.TEXT_NODE) continue;
      range.selectNode(text);
      report(range.getBoundingClientRect(), element, `the text of ${name}`);
    }
  }
  return findings.slice(0, 5);
}"""


FIRST_SCREEN = """() => {
  const findings = [];
  const answer = document.querySelector("article section > p");
  const bottom = answer ? answer.getBoundingClientRect().bottom : 0;
  if (bottom > innerHeight)
    findings.push(`the first paragraph ends below the first screen: at ${bottom}`);
  for (const code of document.querySelectorAll(".cell_input"))
    if (code.checkVisibility({ contentVisibilityAuto: true }))
      findings.push(`code is open: ${code.textContent.trim().slice(0, 80)}`);
  const kinds = "article :is(figure, table, .cell_output, section > [class*=highlight-])";
  const results = [...document.querySelectorAll(kinds)];
  const first = results.find((result) => result.getBoundingClientRect().height > 0);
  const top = first ? first.getBoundingClientRect().top : Infinity;
  const proofs = location.pathname.endsWith("_proofs.html");
  if (innerWidth >= 1280 && document.querySelector("details.code") && !proofs && top > 800)
    findings.push(`no figure or result begins on the first screen, the first at ${top}`);
  return findings;
}"""
"""A chapter's first paragraph is its answer; on a desk's screen a figure, a result or what to type
follows, but in an appendix of proofs."""

WIDTHS = (390, 1280)
"""CSS pixels: a phone held upright, a laptop."""

NARROWEST = 320
"""CSS pixels: the narrowest telephone, and a laptop's window at four times its size."""

MOST_ELEMENTS = 4000
"""A page has fewer of them when it opens; code that is folded and live figures below come later."""

TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""JavaScript that ends when the page has answered to another size."""


def findings(browser: Browser, address: str, width: int) -> list[str]:
    """Open a page in a window of `width` CSS pixels and return what is wrong with it."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    found: list[str] = []
    watch(page, found)
    page.goto(address)
    elements = page.locator("*").count()
    if elements >= MOST_ELEMENTS:
        found.append(f"the page has {elements} elements")
    page.evaluate(WAIT_FOR_PICTURES)
    found += page.evaluate(FORMULAS) + page.evaluate(OVERFLOW) + page.evaluate(FIRST_SCREEN)
    if width < 2 * NARROWEST:
        page.set_viewport_size({"width": NARROWEST, "height": 800})
        page.evaluate(TWO_FRAMES)
        found += page.evaluate(OVERFLOW)
    page.close()
    return found


def watch(page: Page, found: list[str]) -> None:
    """Note errors and requests of a page that fail or go to another host, as they happen."""

    def note(condition: bool, finding: str) -> None:
        if condition:
            found.append(finding)

    page.on("console", lambda message: note(message.type == "error", f"console: {message.text}"))
    page.on("pageerror", lambda error: note(True, f"script error: {error}"))
    # What a page no longer waits for when it is left or closed, the browser aborts.
    page.on(
        "requestfailed",
        lambda request: note(
            request.failure != "net::ERR_ABORTED",
            f"request failed: {request.url}: {request.failure}",
        ),
    )
    page.on("response", lambda response: note(response.status >= 400, f"missing: {response.url}"))
    page.on("request", lambda request: note(leaves(request.url), f"outside: {request.url}"))


def leaves(url: str) -> bool:
    """Return whether a request goes to another host."""
    return urlsplit(url).hostname not in (None, "127.0.0.1")
