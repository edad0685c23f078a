"""A Sphinx extension: one small style sheet in place of the theme's dozen, and scripts that wait.

The theme and its extensions bring 600 kB of rules for what a site might have. A rule is kept where
an element of this site may match it. The sheet that encloses the font of the formulas stays apart.
The scripts in the head run when the page has been read, and what the theme tells a screen reader
wrongly is mended.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tinycss2
from lxml import html
from sphinx.application import Sphinx
from tinycss2.ast import Node

from attnlib.files import replace

SHEET = re.compile(
    r'\s*<link\b(?=[^>]*rel="stylesheet")(?![^>]*/formulas\.css)[^>]*href="([^"]+)"[^>]*>'
)
SCRIPT = re.compile(r'<script((?![^>]*\bdefer\b)[^>]*\bsrc="([^"]+)"[^>]*)>')
IMPORT = re.compile(r'@import "([^"]+)";')
QUOTED = r""""[^"]*"|'[^']*'|\((?:"[^"]*"|'[^']*'|\([^()]*\)|[^()])*\)"""
DEFINED = re.compile(rf"""(--[\w-]+)\s*:(?:{QUOTED}|[^;{{}}"'(])*(?:;|(?=\}}))""")
READ = re.compile(r"var\(\s*(--[\w-]+)")

AT_ONCE = "documentation_options.js"
"""A short script that the lines behind it need: it comes with the page."""

OWN = ("book.css", "find.css", "icons.css")
"""Kept whole: live figures make the elements that these dress."""

SEARCH, SIDEBAR = 'button pst-js-only" title="Search"', '<div id="pst-primary-sidebar" '
UNSEEN = '<span class="unseen">row</span>'
MENDED = {
    f'{SEARCH} aria-label="Search"': SEARCH,
    SIDEBAR: f'{SIDEBAR}role="navigation" aria-label="Book" ',
    '<th scope="col"></th>': f'<th scope="col">{UNSEEN}</th>',
    '<th scope="col" class="number"></th>': f'<th scope="col" class="number">{UNSEEN}</th>',
    'role="doc-biblioentry"': 'role="listitem"',
}
"""A name that differs from what is seen, a part outside any region, empty headings, a list
without items."""

ADDED = {
    *("button", "input", "select", "option", "fieldset", "legend", "output", "svg", "label"),
    *("show", "fade", "active", "disabled", "scrolled", "pst-squeeze", "search", "highlighted"),
    *("tooltip", "tooltip-arrow", "tooltip-inner", "bs-tooltip-auto", "context", "search-summary"),
    *("toggle", "toggle-hidden", "toggle-button", "toggle-button-hidden", "tb-icon"),
}
"""Elements and classes that scripts add to a page."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx; after the extensions that write sheets, scripts and pages."""
    app.connect("build-finished", lighten, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def lighten(app: Sphinx, error: Exception | None) -> None:
    """Write the sheet, and let the pages load it in the place of the others."""
    if error is not None or app.builder.name != "html":
        return
    static = Path(app.outdir, "_static")
    pages = {
        path: text
        for path in Path(app.outdir).rglob("*.html")
        if static not in path.parents and SHEET.search(text := path.read_text("utf-8"))
    }
    links = ((path, name) for path, text in pages.items() for name in SHEET.findall(text))
    sheets = list(dict.fromkeys(file(path, name) for path, name in links))
    branches = {branch for page in pages.values() for branch in branches_of(page)}
    theme = "".join(read(sheet) for sheet in sheets if sheet.name not in OWN)
    own = "".join(read(sheet) for sheet in sheets if sheet.name in OWN)
    lines = [*rules(theme, matching(theme, branches)), *rules(own, lambda _: True)]
    sheet = without_unread("\n".join(lines)).encode()
    replace(static / "site.css", sheet)
    version = sha256(sheet).hexdigest()[:8]
    script = Path(static, AT_ONCE).read_text("utf-8")
    for path, page in pages.items():
        replace(path, light(page, version, script).encode())


def file(page: Path, address: str) -> Path:
    """Return the file that a page names."""
    return (page.parent / urlsplit(address).path).resolve()


def read(path: Path) -> str:
    """Return the text of a sheet with those that it imports."""
    return IMPORT.sub(lambda found: read(file(path, found[1])), path.read_text("utf-8"))


def light(page: str, version: str, script: str) -> str:
    """Return a page with one sheet, and scripts in its head that do not hold it up."""
    first = SHEET.search(page)
    assert first is not None
    folder = first[1].partition("_static/")[0]
    link = f'\n    <link rel="stylesheet" href="{folder}_static/site.css?v={version}" />'
    page = page[: first.start()] + link + SHEET.sub("", page[first.start() :])
    head, end, body = page.partition("</head>")
    at_once = f"<script>{script}"
    waits = SCRIPT.sub(
        lambda one: at_once if AT_ONCE in one[2] else f"<script defer{one[1]}>", head
    )
    page = waits + end + body
    for wrong, right in MENDED.items():
        page = page.replace(wrong, right)
    return page


def branches_of(page: str) -> set[frozenset[str]]:
    """Return for each element of a page the names, classes and ids of it and of all around it."""
    found: set[frozenset[str]] = set()

    def walk(element: html.HtmlElement, above: frozenset[str]) -> None:
        if isinstance(element.tag, str):
            own = {element.tag, element.get("id", ""), *element.get("class", "").split()}
            found.add(branch := above | own)
            for child in element:
                walk(child, branch)

    walk(html.document_fromstring(page), frozenset())
    return found


def matching(text: str, branches: Iterable[frozenset[str]]) -> Callable[[list[Node]], bool]:
    """Return whether a selector of a sheet may match an element of one of the branches.

    The order of what is around an element is not looked at.
    """
    names = frozenset(re.findall(r"[\w-]+", text)) - ADDED
    known = {branch & names for branch in branches}
    seen: dict[frozenset[str], bool] = {}

    def matches(selector: list[Node]) -> bool:
        for part in split(selector, "+~"):
            wanted = words(part) - ADDED
            if wanted not in seen:
                seen[wanted] = any(wanted <= branch for branch in known)
            if not seen[wanted]:
                return False
        return True

    return matches


def words(selector: list[Node]) -> frozenset[str]:
    """Return the elements, classes and ids that a selector names, what is in brackets aside."""
    return frozenset(
        node.value
        for before, node in zip([None, *selector], selector, strict=False)
        if node.type == "hash" or (node.type == "ident" and before != ":")
    )


def split(nodes: list[Node], marks: str) -> list[list[Node]]:
    """Return the pieces between these marks."""
    pieces: list[list[Node]] = [[]]
    for node in nodes:
        if node.type == "literal" and node.value in marks:
            pieces.append([])
        else:
            pieces[-1].append(node)
    return pieces


def rules(text: str, matches: Callable[[list[Node]], bool]) -> Iterator[str]:
    """Return the rules of a sheet of which a selector matches, without comments.

    Fonts and animations go: icons.css draws the icons, and nothing here moves without being asked.
    """
    for rule in tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True):
        if rule.type == "qualified-rule":
            selectors = [one for one in split(rule.prelude, ",") if matches(one)]
            if selectors:
                yield f"{','.join(map(written, selectors))}{{{written(rule.content)}}}"
        elif rule.type == "at-rule" and rule.content is not None:
            content = written(rule.content)
            if rule.at_keyword in ("media", "supports"):
                content = "".join(rules(content, matches))
            if content and rule.at_keyword not in ("font-face", "keyframes"):
                yield f"@{rule.at_keyword} {written(rule.prelude)}{{{content}}}"


def written(nodes: list[Node]) -> str:
    """Return a piece of a sheet, each blank once."""
    said = tinycss2.serialize([node for node in nodes if node.type != "comment"])
    return " ".join(said.split())


def without_unread(sheet: str) -> str:
    """Return a sheet without the custom properties that nothing in it reads."""
    found = {*READ.findall(sheet)}
    shorter = DEFINED.sub(lambda one: one[0] if one[1] in found else "", sheet)
    return sheet if shorter == sheet else without_unread(shorter)
