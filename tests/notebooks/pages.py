"""What the Markdown of the pages must be, beyond what the build of the site warns of.

Building the book with `-W -n` finds roles, links and figures that lead nowhere, directives that do
not exist, headings that skip a level and solutions that do not end. It passes a role that lost a
brace, a lost dollar, a lost fence, a second title, a paragraph that stands twice or is hidden, two
statements with one label, a solution of another exercise, a figure without words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import nbformat
import yaml
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser
from nbformat import NotebookNode

from tests.books import ROOT, page_names
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
    *('<script src="_static/', '<script src="../_static/', '<script defer src="../_static/'),
    *('<p class="site-only">', "<noscript>", "«heads»"),
    '<div class="live ledger-filters"></div>',
)
"""How the HTML that stands on a page of its own may begin. Classes and HTML could hide the rest."""

STATEMENTS = {f"prf:{kind}" for kind in ("theorem", "proposition", "lemma", "definition")}
LABELLED = dict.fromkeys(STATEMENTS | {"exercise"}, "label") | {"figure": "name"}
NESTED = LABELLED.keys() | {"prf:proof", "admonition", "solution", "glossary", "only", "div"}
"""Directives that contain Markdown."""

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
    labels: list[str]
    glue: list[str]
    directives: list[Directive]
    paragraphs: list[str]
    broken: list[str]


class Page(NamedTuple):
    """A page of the book: its Markdown, and what the code cells of a notebook bring."""

    texts: list[str]
    figures: list[str]
    glued: list[str]
    stated: set[str]


def book_pages() -> dict[str, Page]:
    """Return the pages of the table of contents by name."""
    pages = {}
    for name in page_names():
        notebook = ROOT / f"{name}.ipynb"
        if notebook.exists():
            pages[name] = page(nbformat.read(notebook, as_version=4))
        else:
            text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
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
    found = Content([], [], [], [], [], [])
    lines = text.splitlines()
    for token in parser().parse(text):
        if token.type == "heading_open":
            found.headings.append(int(token.tag[1]))
        elif token.type == "math_block_label":
            found.labels.append(token.info)
        elif token.type == "myst_target":
            found.labels.append(token.content)
        elif token.type == "inline":
            add_inline(found, token)
        elif token.type in ("html_block", "myst_line_comment"):
            found.broken.append(f"hidden from the page, or HTML: {token.content[:60]!r}")
        elif token.type in ("fence", "colon_fence"):
            add_fence(found, token, lines)
    return found


def add_inline(found: Content, token: Token) -> None:
    """Add a paragraph, and the values that it takes from cells."""
    found.paragraphs.append(token.content)
    for child in token.children or []:
        if child.type == "myst_role" and child.meta["name"] == "glue:text":
            found.glue.append(child.content)
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
            found.broken.append(f"{opening!r} is no directive, and not in {sorted(LANGUAGES)}")
        return
    options, body = split_options(token.content)
    found.directives.append(Directive(named[1], named[2], options, body))
    if named[1] in LABELLED:
        found.labels.append(options.get(LABELLED[named[1]], ""))
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
    labels: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for page in pages.values():
        labels.update(page.figures)
        names.update(page.glued)
        for text in page.texts:
            labels.update(content(text).labels)
    found = [
        f"the label {name!r} stands {count} times" for name, count in labels.items() if count > 1
    ]
    found += [f"{name!r} is glued {count} times" for name, count in names.items() if count > 1]
    for name, page in pages.items():
        found += [f"{name}: {message}" for message in page_violations(page)]
    return found


def page_violations(page: Page) -> Iterator[str]:
    """Return what is wrong in one page."""
    contents = [content(text) for text in page.texts]
    directives = [directive for part in contents for directive in part.directives]
    for part in contents:
        yield from part.broken
        if "" in part.labels:
            yield "a statement, an exercise or a figure has no label"
    for directive in directives:
        yield from directive_violations(directive)
    yield from solution_violations(directives)
    levels = [level for part in contents for level in part.headings]
    if levels.count(1) != 1 or levels[0] != 1:
        yield "the title is not the first heading, or not the only one of its level"
    used = {name for part in contents for name in part.glue}
    for unused in sorted(set(page.glued) - used - page.stated):
        yield f"{unused!r} is glued and used nowhere"
    paragraphs = Counter(paragraph for part in contents for paragraph in part.paragraphs)
    for paragraph, count in paragraphs.items():
        if count > 1 and len(paragraph) >= SHORTEST_REPEATED:
            yield f"a paragraph stands {count} times: {paragraph[:60]!r}"


def directive_violations(directive: Directive) -> Iterator[str]:
    """Report what could hide a part of the page, and a figure without its words."""
    if directive.options.get("class", "") not in ("", *CLASSES.get(directive.name, ())):
        yield f"{{{directive.name}}} has the class {directive.options['class']!r}"
    if directive.name == "raw" and not directive.text.startswith(RAW_HTML):
        yield f"HTML that begins with {directive.text[:40]!r}"
    if directive.name == "figure" and not (directive.options.get("alt") and directive.text.strip()):
        yield f"the figure {directive.argument!r} lacks its alt text or its caption"


def solution_violations(directives: list[Directive]) -> Iterator[str]:
    """Report exercises without one solution after them."""
    unsolved: list[str] = []
    for directive in directives:
        if directive.name == "exercise":
            unsolved.append(directive.options.get("label", ""))
        elif directive.name in ("solution", "solution-start"):
            if directive.argument in unsolved:
                unsolved.remove(directive.argument)
            else:
                yield f"the solution of {directive.argument!r} has no exercise before it"
    for label in unsolved:
        yield f"the exercise {label!r} has no solution"
