"""What the HTML of a page must be; each check returns its findings, empty where all is well."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, NavigableString, Tag

RAW_MARKUP = re.compile(r"\{(?:glue|cite|numref|ref|eq|prf|doc|term)\b[^}\n]*\}|:::|\?\?\?")
OUTSIDE = re.compile(r"(?:https?:)?//")
STYLE_URL = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
IMAGE_NAME = re.compile(r"\.(?:svg|png|jpe?g|gif|webp)$", re.IGNORECASE)
LINKS = ("href", "src", "data", "poster", "xlink:href")
LOADED = ("src", "data", "poster")
LOADED_RELATIONS = {"stylesheet", "preload", "modulepreload", "preconnect", "icon", "manifest"}
FILLED = ["img", "svg", "canvas", "video", "iframe"]


@cache
def soup(page: Path) -> BeautifulSoup:
    """Return the parsed page."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(page: Path) -> set[str]:
    """Return what a link into the page may name after the #."""
    return {element["id"] for element in soup(page).find_all(id=True)}


def missing_pages(site: Path, names: list[str]) -> list[str]:
    """Find pages of the table of contents that were not built."""
    return [name for name in names if not (site / f"{name}.html").is_file()]


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
    return [str(image)[:200] for image in images if not is_description(image.get("alt", ""))]


def is_description(text: str) -> bool:
    """Return whether an alternative text may describe an image."""
    return bool(text.strip()) and not IMAGE_NAME.search(text.strip())


def outside_requests(site: Path, page: Path) -> list[str]:
    """Find what a browser would fetch from another host to show the page."""
    found = [target for element in soup(page).find_all(True) for target in loaded(element)]
    return [target for target in found if OUTSIDE.match(target)] + outside_styles(page)


def loaded(element: Tag) -> Iterator[str]:
    """Return the addresses that an element loads by itself."""
    yield from (element[attribute] for attribute in LOADED if element.has_attr(attribute))
    yield from (part.strip() for part in element.get("srcset", "").split(","))
    if element.name == "link" and LOADED_RELATIONS & set(element.get("rel", [])):
        yield element.get("href", "")
    if element.name in ("image", "use"):
        yield element.get("href") or element.get("xlink:href", "")


def outside_styles(page: Path) -> list[str]:
    """Find other hosts in the styles of a page: its style sheets, elements and attributes."""
    styles = [element["style"] for element in soup(page).find_all(style=True)]
    styles += [element.get_text() for element in soup(page).find_all("style")]
    for element in soup(page).find_all("link", rel="stylesheet", href=True):
        file = page.parent / urlsplit(element["href"]).path
        if not OUTSIDE.match(element["href"]) and file.is_file():
            styles.append(file.read_text(encoding="utf-8"))
    return [url for style in styles for url in STYLE_URL.findall(style)]


CHECKS = [
    unresolved_markup,
    dead_links,
    empty_outputs,
    missing_descriptions,
    outside_requests,
]
