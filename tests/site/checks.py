"""What a page must be, in its HTML and in a browser; findings are empty where all is well."""

import os
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup
from lxml import html
from playwright.sync_api import Page

from tests.paths import page_names

PAGES = page_names()

RAW_MARKUP = re.compile(r"\{[a-z]{2}|[a-z]{2}\}|(?<!\w)\$|\$(?!\w)|`|\\[a-z]{2}|:::|\?\?\?")
"""What only a broken role, directive or formula leaves in the text of a page."""

DESCRIPTION = re.compile(r"(?!.*\.(?:svg|png|jpe?g)\s*$)\s*\S.*", re.DOTALL)
LINKS = ("href", "src", "data", "poster")
FILLED = ["img", "svg", "canvas", "video", "iframe"]


@cache
def soup(page: Path) -> BeautifulSoup:
    """Return the parsed page, to be asked by selectors."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def tree(page: Path) -> html.HtmlElement:
    """Return the parsed page, to be asked by paths: thirty times as fast."""
    return html.document_fromstring(page.read_text(encoding="utf-8"))


def of_class(*names: str) -> str:
    """Return the condition of a path that an element has one of these classes."""
    classes = "concat(' ', normalize-space(@class), ' ')"
    return " or ".join(f"contains({classes}, ' {name} ')" for name in names)


@cache
def anchors(page: Path) -> set[str]:
    """Return what a link into the page may name after the #."""
    return set(tree(page).xpath("//@id"))


def unresolved_markup(site: Path, page: Path) -> list[str]:
    """Find roles, directives and references that reached the page as they were written."""
    raw = [f"{text[:80]!r}" for text in prose(page) if RAW_MARKUP.search(text)]
    marks = f"//*[{of_class('problematic', 'system-message')}] | //pending_xref"
    return raw + [f"{mark.tag}: {mark.text_content()[:80]!r}" for mark in tree(page).xpath(marks)]


def prose(page: Path) -> list[str]:
    """Return the pieces of text of a page that are neither code nor formulas."""
    code = "ancestor::script or ancestor::style or ancestor::pre or ancestor::code"
    return tree(page).xpath(f"//text()[not({code} or ancestor::*[{of_class('math')}])]")


def dead_links(site: Path, page: Path) -> list[str]:
    """Find links, images and files of this site that lead nowhere."""
    targets = set(tree(page).xpath(" | ".join(f"//@{attribute}" for attribute in LINKS)))
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
    filled = " or ".join(f".//{name}" for name in FILLED)
    empty = f"//div[{of_class('cell_output')}][not(normalize-space() or {filled})]"
    return [f"empty output: {html.tostring(output)[:200]}" for output in tree(page).xpath(empty)]


def missing_descriptions(site: Path, page: Path) -> list[str]:
    """Find images without alternative text, or with a file name in its place."""
    images = tree(page).xpath("//img")
    return [
        f"no description: {html.tostring(image)[:200]}"
        for image in images
        if not DESCRIPTION.fullmatch(image.get("alt", ""))
    ]


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
  const scrollers = new Map([[document.body, false]]);
  const insideScroller = (box) => {
    if (!scrollers.has(box)) {
      const scrolls = ["auto", "scroll"].includes(getComputedStyle(box).overflowX);
      scrollers.set(box, scrolls || insideScroller(box.parentElement));
    }
    return scrollers.get(box);
  };
  const report = (box, element, name) => {
    if (!sticksOut(box)) return;
    if (element.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
      findings.push(`${name} sticks out: from ${box.left} to ${box.right} of ${edge}`);
  };
  const range = document.createRange();
  // What is drawn in an SVG is cut at its edge; the boxes of signs are larger than what they show.
  const reader = ":not(svg *, math *)";
  for (const element of document.body.querySelectorAll(`*${reader}`)) {
    const name = [element.localName, ...element.classList].join(".");
    if (element.parentElement !== document.body && insideScroller(element.parentElement)) continue;
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


WIDTHS = (320, 1280)
"""CSS pixels: the narrowest telephone, or a laptop's window at four times its size; a laptop."""

PATIENCE = 120_000
"""Milliseconds that a condition may take to come true, on a machine with much else to do."""

SETTLED = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  for (const motion of document.getAnimations())
    if (motion instanceof CSSTransition) motion.finish();
  await frame();
  await frame();
}"""
"""JavaScript that ends when the page has answered to another size, and nothing is on its way."""

ALL_THERE = f"""async () => {{
  await document.fonts.ready;
  await ({SETTLED})();
}}"""
"""JavaScript that ends when a page has its fonts, and is drawn with them."""


def findings(page: Page, address: str, widths: tuple[int, ...]) -> list[str]:
    """Open a page in a window of the first width, then widen it, and return what is wrong."""
    page.goto("about:blank")  # which is soon laid out again
    page.set_viewport_size({"width": widths[0], "height": 800})
    page.goto(address)
    page.evaluate(ALL_THERE)
    problems = page.evaluate(FORMULAS) + page.evaluate(OVERFLOW)
    for width in widths[1:]:
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate(SETTLED)
        problems += page.evaluate(OVERFLOW)
    return problems


def watch(page: Page, problems: list[str]) -> None:
    """Note errors and requests of a page that fail or go to another host, as they happen."""

    def note(condition: bool, finding: str) -> None:
        if condition:
            problems.append(finding)

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
