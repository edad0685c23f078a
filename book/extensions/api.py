"""A Sphinx extension: the library's pages from its docstrings, tied to the chapters both ways.

The docstrings of attnlib are plain text with `names` in backticks. Here they become what autodoc
reads: names of documented objects become links, others code, formulas are kept as they stand, and
in "Chapter: exact." the names of chapters become links. Each chapter in turn ends with the
functions whose docstrings name it.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby
from pkgutil import iter_modules
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

PAGES: dict[str, tuple[str, ...]] = {
    "api/laws": ("attnlib.scores", "attnlib.rows"),
    "api/gradients": ("attnlib.annealed", "attnlib.exact", "attnlib.freezing", "attnlib.typical"),
    "api/finding": ("attnlib.retrieval",),
    "api/simulation": ("attnlib.sampling", "attnlib.initialisation"),
    "api/scales": ("attnlib.policies", "attnlib.rules", "attnlib.criteria"),
    "api/models": (
        *("attnlib.attention", "attnlib.probing", "attnlib.auditing"),
        "attnlib.calibration",
    ),
    "api/proofs": ("ledger.symbolic",),
}
"""The modules of each page."""

CHAPTERS_NAMED = re.compile(r"\b[Cc]hapters?:\s+((?:[^.]|\.(?=\S))+)")
NAME = re.compile(r"`([^`\n]+)`")
SPECIAL = re.compile(r"([\\*|_`])")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-skip-member", skip)
    app.connect("doctree-read", add_functions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


@cache
def documented() -> dict[str, str]:
    """Return the docstring of every object on the pages by its full name, modules among them."""
    found = {}
    for name in (name for names in PAGES.values() for name in names):
        module = importlib.import_module(name)
        found[name] = inspect.getdoc(module) or ""
        for owner, member, value in members(module):
            found[f"{owner}.{member}"] = inspect.getdoc(value) or ""
    return found


def members(module: Any) -> Iterator[tuple[str, str, Any]]:
    """Return the public functions and classes of a module, and the latter's own methods."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]
    for name in getattr(module, "__all__", own):
        value = getattr(module, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            yield module.__name__, name, value
        if inspect.isclass(value):
            for member, method in vars(value).items():
                described = inspect.isfunction(method) or isinstance(method, property | classmethod)
                if described and not member.startswith("_") and inspect.getdoc(method):
                    yield f"{module.__name__}.{name}", member, method


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place, as autodoc wants it."""
    chapters = {page for page in app.env.found_docs if page.startswith("chapters/")}
    lines[:] = restructured("\n".join(lines), name, chapters).split("\n")


def skip(app: Sphinx, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out constants of methods, names for types, and what Python says of named tuples."""
    shown = inspect.isroutine(obj) or inspect.isclass(obj) or isinstance(obj, Mapping)
    field = (inspect.getdoc(obj) or "").startswith("Alias for field number")
    return True if field or (what == "module" and not shown) else None


def restructured(text: str, name: str, chapters: set[str]) -> str:
    """Return a docstring in reStructuredText; `name` is that of its object."""
    blocks, literal = [], False
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        indented = block.startswith(" ")
        if block.startswith(">>>") or (indented and literal):
            blocks.append(block)
        elif indented:
            blocks.append(f"::\n\n{block}")
        else:
            blocks.append(in_line(block, name, chapters))
        literal = block.endswith("::") or (indented and literal)
    return "\n\n".join([*blocks, ""])


def in_line(block: str, name: str, chapters: set[str]) -> str:
    """Return a paragraph or a list with its names as links or code, and nothing else marked up."""
    pieces = NAME.split(block)
    pieces[::2] = [with_chapters(piece, chapters) for piece in pieces[::2]]
    pieces[1::2] = [reference(piece, name) for piece in pieces[1::2]]
    return "".join(pieces)


def escaped(text: str) -> str:
    """Return text in which reStructuredText sees no mark-up."""
    return SPECIAL.sub(r"\\\1", text)


def with_chapters(text: str, chapters: set[str]) -> str:
    """Return escaped text with a link from the name of each chapter that "Chapter:" names."""
    found = CHAPTERS_NAMED.search(text)
    if found is None:
        return escaped(text)

    def link(word: re.Match[str]) -> str:
        page = f"chapters/{word[0]}"
        return f"\\ :doc:`{word[0]} </{page}>`\\ " if page in chapters else escaped(word[0])

    linked = re.sub(r"\w+", link, found[1])
    rest = with_chapters(text[found.end() :], chapters)
    return f"{escaped(text[: found.start(1)])}{linked}{rest}"


def reference(text: str, name: str) -> str:
    """Return a link to what `text` names, seen from the object `name`, or code.

    A method comes before a function of its module, and that before one of another module.
    """
    called = text.partition("(")[0]
    if called in arguments(name) or called in inmates(name):
        return f"\\ ``{text}``\\ "
    parts = name.split(".")
    modules = {module for names in PAGES.values() for module in names}
    targets = [".".join([*parts[:end], called]) for end in range(len(parts), 0, -1)]
    elsewhere = [target for target in documented() if target.endswith(f".{called}")]
    # The method of a class that is not at hand has the name of its class before its own.
    targets += [one for one in elsewhere if "." in called or one.rpartition(".")[0] in modules]
    known = [target for target in targets if target in documented()]
    return f"\\ :py:obj:`{text} <{known[0]}>`\\ " if known else f"\\ ``{text}``\\ "


@cache
def inmates(name: str) -> frozenset[str]:
    """Return the names of a package's own modules, none where `name` is no package."""
    path = getattr(sys.modules.get(name), "__path__", ())
    return frozenset(module.name for module in iter_modules(path))


@cache
def arguments(name: str) -> frozenset[str]:
    """Return the names of the arguments of a documented object, none where it takes none."""
    module = module_of(name)
    value: Any = importlib.import_module(module)
    for part in name.removeprefix(module).split(".")[1:]:
        value = getattr(value, part, None)  # an object's own attribute is not the class's
    return frozenset(inspect.signature(value).parameters) if callable(value) else frozenset()


def add_functions(app: Sphinx, tree: nodes.document) -> None:
    """End a chapter with the functions whose docstrings name it."""
    page = app.env.docname
    names = functions_of(page.removeprefix("chapters/"))
    if not page.startswith("chapters/") or not names:
        return
    paragraph = nodes.paragraph(
        "", "", nodes.strong("", "In the library. "), classes=["in-library"]
    )
    for index, (module, group) in enumerate(groupby(names, key=module_of)):
        paragraph += nodes.Text("; " if index else "")
        paragraph += link_to(module, module.removeprefix("attnlib."), page)
        for place, name in enumerate(group):
            paragraph += nodes.Text(", " if place else ": ")
            paragraph += link_to(name, name.removeprefix(f"{module}."), page)
    paragraph += nodes.Text(".")
    next(tree.findall(nodes.section)).append(paragraph)


def functions_of(chapter: str) -> list[str]:
    """Return the functions and classes whose docstrings name a chapter, in the pages' order."""
    return [
        name
        for name, text in documented().items()
        if name != module_of(name)
        and any(chapter in re.findall(r"\w+", named) for named in CHAPTERS_NAMED.findall(text))
    ]


def module_of(name: str) -> str:
    """Return the module in which a documented object stands."""
    modules = (module for names in PAGES.values() for module in names)
    return next(module for module in modules if f"{name}.".startswith(f"{module}."))


def link_to(target: str, text: str, page: str) -> addnodes.pending_xref:
    """Return a link to a documented object, to be resolved by Sphinx's Python domain."""
    return addnodes.pending_xref(
        "",
        nodes.literal("", text),
        refdomain="py",
        reftype="obj",
        reftarget=target,
        refdoc=page,
        refwarn=True,
    )
