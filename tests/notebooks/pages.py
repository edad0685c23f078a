"""What the Markdown of the pages must be: each role and link leads to a thing of its kind.

A reference of the right kind to the wrong place, or a wrong word, no machine can see. Building the
book with `-W -n` shows half of what is found here: targets that are missing, directives that do not
exist, headings that skip a level, solutions without a beginning or an end. It passes a role that
lost a brace, a lost dollar, a second title, a paragraph pasted twice, a figure without words.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import nbformat
import yaml
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser
from nbformat import NotebookNode

from book.contents import page_names
from tests.books import ROOT, bibliography_keys
from tests.notebooks.rules import glued

LANGUAGES = {"python", "sh"}
DIRECTIVE = re.compile(r"\{([\w:.-]+)\}\s*(.*)")
OPTION = re.compile(r":([\w-]+):\s*(.*)")
FENCE = re.compile(r"\s*(`{3,}|~{3,}|:{3,})\{?")
RAW = re.compile(r"[{}$`]|\\[a-z]{2,}")
"""What only a broken role, directive or formula leaves in the text of a page."""

SPAN = re.compile(r'<span lang="\w\w">|</span>|</?sup>')
CLASSES = {"figure": ("drawn", "drawn door"), "div": ("doors",)} | dict.fromkeys(
    ("solution", "solution-start", "admonition"), ("dropdown",)
)
RAW_HTML = (
    *(
        f'<script defer src="{folder}_static/{name}.js">'
        for folder in ("", "../")
        for name in ("live", "heads", "attend")
    ),
    *('<p class="site-only">', "<noscript>", '<div class="listing" '),
    '<div class="live ledger-filters"></div>',
)
"""How the HTML that stands on a page of its own may begin. Classes and HTML could hide the rest."""

STATEMENTS = {f"prf:{kind}" for kind in ("theorem", "proposition", "lemma", "definition")}
NESTED = STATEMENTS | {"prf:proof", "admonition", "exercise", "solution", "figure"}
NESTED |= {"glossary", "only", "div"}
"""Directives that contain Markdown."""

OTHERS = {
    *("solution-start", "solution-end", "raw", "bibliography", "list-table"),
    *("command-line", "eval-rst"),
}

KIND_OF_TARGET = {"eq": "equation", "prf:ref": "statement", "numref": "figure", "ref": "section"}
CITATIONS = {"cite", "cite:t"}
SHORTEST_REPEATED = 60


class Directive(NamedTuple):
    """A directive: its name, what follows on its first line, its options and its text."""

    name: str
    argument: str
    options: dict[str, str]
    text: str


class Content(NamedTuple):
    """What a text in Markdown contains, in order."""

    headings: list[int]
    labels: list[tuple[str, str]]
    roles: list[tuple[str, str]]
    links: list[str]
    directives: list[Directive]
    paragraphs: list[str]
    broken: list[str]


class Page(NamedTuple):
    """A page of the book: its Markdown, and what the code cells of a notebook bring."""

    texts: list[str]
    figures: list[str]
    glued: list[str]
    stated: set[str]


def book_pages(root: Path = ROOT) -> dict[str, Page]:
    """Return the pages of the table of contents by name."""
    pages = {}
    for name in page_names(root):
        notebook = root / f"{name}.ipynb"
        if notebook.exists():
            pages[name] = page(nbformat.read(notebook, as_version=4))
        else:
            text = (root / f"{name}.md").read_text(encoding="utf-8")
            pages[name] = Page([text], [], [], set())
    return pages


def page(notebook: NotebookNode) -> Page:
    """Return the page that a notebook makes."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    figures = [cell.metadata.get("mystnb", {}).get("figure", {}).get("name") for cell in code]
    return Page(
        texts=[cell.source for cell in notebook.cells if cell.cell_type == "markdown"],
        figures=[name for name in figures if name],
        glued=[name for cell in code for name, _ in glued(cell)],
        stated={name for cell in notebook.cells for name in cell.metadata.get("states", {})},
    )


@cache
def parser() -> MarkdownIt:
    """Return the parser that builds the book."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    extensions = set(config["parse"]["myst_enable_extensions"])
    return create_md_parser(MdParserConfig(enable_extensions=extensions), RendererHTML)


@cache
def content(text: str) -> Content:
    """Return what a text in Markdown contains, also inside its directives."""
    found = Content([], [], [], [], [], [], [])
    lines = text.splitlines()
    for token in parser().parse(text):
        if token.type == "heading_open":
            found.headings.append(int(token.tag[1]))
        elif token.type == "math_block_label":
            found.labels.append(("equation", token.info))
        elif token.type == "myst_target":
            found.labels.append(("section", token.content))
        elif token.type == "inline":
            add_inline(found, token)
        elif token.type in ("html_block", "myst_line_comment"):
            found.broken.append(f"hidden from the page, or HTML: {token.content[:60]!r}")
        elif token.type in ("fence", "colon_fence"):
            add_fence(found, token, lines)
    return found


def add_inline(found: Content, token: Token) -> None:
    """Add a paragraph, with its roles and links."""
    found.paragraphs.append(token.content)
    for child in token.children or []:
        if child.type == "myst_role":
            found.roles.append((child.meta["name"], child.content))
        elif child.type == "link_open":
            found.links.append(str(child.attrs["href"]))
        elif child.type == "html_inline" and not SPAN.fullmatch(child.content):
            found.broken.append(f"HTML in a paragraph: {child.content[:60]!r}")
        elif child.type == "text" and RAW.search(child.content):
            found.broken.append(f"raw markup in {child.content[:60]!r}")


def add_fence(found: Content, token: Token, lines: list[str]) -> None:
    """Add a directive and what it contains, or listed code."""
    begin, end = token.map or [0, 0]
    opening = lines[begin].strip()
    if end - 1 == begin or set(lines[end - 1].strip()) != {token.markup[0]}:
        found.broken.append(f"{opening!r} is not closed")
    for line in token.content.splitlines():
        inner = FENCE.match(line)
        if inner and inner[1].startswith(token.markup):
            found.broken.append(f"{opening!r} holds a fence as long as its own: {line!r}")
    named = DIRECTIVE.fullmatch(token.info.strip())
    if named is None:
        if token.info.strip() not in LANGUAGES:
            found.broken.append(
                f"{opening!r} is neither a directive nor one of {sorted(LANGUAGES)}"
            )
        return
    options, body = split_options(token.content)
    found.directives.append(Directive(named[1], named[2], options, body))
    if named[1] in STATEMENTS:
        found.labels.append(("statement", options.get("label", "")))
    elif named[1] == "exercise":
        found.labels.append(("exercise", options.get("label", "")))
    elif named[1] == "figure":
        found.labels.append(("figure", options.get("name", "")))
    if named[1] in NESTED:
        for mine, inner_ones in zip(found, content(body), strict=True):
            mine.extend(inner_ones)


def split_options(text: str) -> tuple[dict[str, str], str]:
    """Return the options of a directive and the rest of it."""
    options, lines = {}, text.splitlines()
    while lines and (option := OPTION.fullmatch(lines[0].strip())):
        options[option[1]] = option[2]
        del lines[0]
    return options, "\n".join(lines)


def violations(pages: Mapping[str, Page]) -> list[str]:
    """Return what is wrong in the pages of a book, each named by its page."""
    labels = [
        label
        for page in pages.values()
        for label in [*(("figure", name) for name in page.figures), *page_labels(page)]
    ]
    found = [
        f"the label {name!r} stands {count} times"
        for name, count in Counter(name for _, name in labels).items()
        if count > 1 and name
    ]
    names = Counter(name for page in pages.values() for name in page.glued)
    found += [f"{name!r} is glued {count} times" for name, count in names.items() if count > 1]
    targets = {"glued": {f"/{page}.ipynb::{one}" for page in pages for one in pages[page].glued}}
    for kind, name in labels:
        targets.setdefault(kind, set()).add(name)
    for name, page in pages.items():
        found += [f"{name}: {message}" for message in page_violations(name, page, pages, targets)]
    return found


def page_labels(page: Page) -> Iterator[tuple[str, str]]:
    """Return the labels in the Markdown of a page, each with its kind."""
    for text in page.texts:
        yield from content(text).labels


def page_violations(
    name: str, page: Page, pages: Iterable[str], targets: Mapping[str, set[str]]
) -> Iterator[str]:
    """Return what is wrong in one page, of those with these names and labels."""
    contents = [content(text) for text in page.texts]
    for part in contents:
        yield from part.broken
        for kind, label in part.labels:
            if not label:
                yield f"a {kind} has no label"
        for role, target in part.roles:
            if not leads_somewhere(role, target, name, page, targets):
                yield f"{{{role}}}`{target}` leads nowhere"
        for link in part.links:
            inside = relative(name, link) in pages or link in targets["section"]
            if not inside and "://" not in link:
                yield f"the link to {link!r} leads nowhere"
        for directive in part.directives:
            yield from directive_violations(name, directive)
    directives = [directive for part in contents for directive in part.directives]
    yield from solution_violations(directives)
    yield from heading_violations([level for part in contents for level in part.headings])
    used = {target for part in contents for role, target in part.roles if role == "glue:text"}
    for unused in sorted(set(page.glued) - used - page.stated):
        yield f"{unused!r} is glued and used nowhere"
    paragraphs = Counter(paragraph for part in contents for paragraph in part.paragraphs)
    for paragraph, count in paragraphs.items():
        if count > 1 and len(paragraph) >= SHORTEST_REPEATED:
            yield f"a paragraph stands {count} times: {paragraph[:60]!r}"


def leads_somewhere(
    role: str, target: str, name: str, page: Page, targets: Mapping[str, set[str]]
) -> bool:
    """Return whether what a role names is there, and of the kind that the role is for."""
    if role in KIND_OF_TARGET:
        return target in targets.get(KIND_OF_TARGET[role], set())
    if role in CITATIONS:
        return set(target.split(",")) <= bibliography_keys()
    if role == "glue:text":
        plain = re.sub(r":[^:]*$", "", target) if "::" in target else target  # its format
        return plain in page.glued or plain in targets["glued"]
    if role == "download":
        path = target.partition("<")[2].rstrip(">")
        return bool(path) and (ROOT / relative(name, path)).is_file()
    return False


def relative(page: str, link: str) -> str:
    """Return where a link leads from a page, from the root of the book."""
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / link).parts:
        if part == "..":
            del parts[-1:]
        else:
            parts.append(part)
    return "/".join(parts)


def directive_violations(page: str, directive: Directive) -> Iterator[str]:
    """Report a directive that is not known, and a figure without its file or its words."""
    if directive.name not in NESTED | OTHERS:
        yield f"{{{directive.name}}} is no directive that the book uses"
    if directive.options.get("class", "") not in ("", *CLASSES.get(directive.name, ())):
        yield f"{{{directive.name}}} has the class {directive.options['class']!r}"
    if directive.name == "raw" and not directive.text.startswith(RAW_HTML):
        yield f"HTML that begins with {directive.text[:40]!r}"
    if directive.name == "figure":
        if not (ROOT / relative(page, directive.argument)).is_file():
            yield f"the figure {directive.argument!r} is not there"
        if not directive.options.get("alt") or not directive.text.strip():
            yield f"the figure {directive.argument!r} lacks its alt text or its caption"


def solution_violations(directives: list[Directive]) -> Iterator[str]:
    """Report exercises without one solution after them, and solutions that do not end."""
    unsolved: list[str] = []
    started = ""
    for directive in directives:
        if directive.name == "exercise":
            unsolved.append(directive.options.get("label", ""))
        if directive.name in ("solution", "solution-start"):
            if directive.argument not in unsolved:
                yield f"the solution of {directive.argument!r} has no exercise before it"
            else:
                unsolved.remove(directive.argument)
        if directive.name in ("exercise", "solution", "solution-start") and started:
            yield f"the solution of {started!r} does not end"
            started = ""
        if directive.name == "solution-start":
            started = directive.argument
        if directive.name == "solution-end":
            if not started:
                yield "a solution ends that did not start"
            started = ""
    if started:
        yield f"the solution of {started!r} does not end"
    for label in unsolved:
        yield f"the exercise {label!r} has no solution"


def heading_violations(levels: list[int]) -> Iterator[str]:
    """Report a page that does not begin with its one title, and headings that skip a level."""
    if levels.count(1) != 1 or levels[0] != 1:
        yield "the title is not the first heading, or not the only one of its level"
    for above, below in pairwise(levels):
        if below > above + 1:
            yield f"a heading of level {below} follows one of level {above}"
