"""A Sphinx extension: the library's pages from its docstrings, tied to the chapters both ways.

The docstrings of attnlib are plain text with `names` in backticks. Here they become what autodoc
reads: names of documented objects become links, others code, formulas are kept as they stand, and
in "Chapter: mean_gradient." the names of chapters become links. Each chapter in turn ends with the
functions whose docstrings name it.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Mapping
from pkgutil import iter_modules
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

CHAPTERS_NAMED = re.compile(r"\b[Cc]hapters?:\s+((?:[^.]|\.(?=\S))+)")
NAME = re.compile(r"`([^`\n]+)`")
SPECIAL = re.compile(r"([\\*|_`])")
SCRIPT = re.compile(r"(\^|\\_)\{([^{}]+)\}(?![^{]*\})")
"""e^{αs}, escaped; one within another stays as it is."""

OF_MODULES = {"module", "function", "class", "exception"}
"""Objects that a docstring anywhere may name without what they are in."""

functions_of: defaultdict[str, list[str]] = defaultdict(list)
"""The objects whose docstrings name a chapter, by its page, for a build."""


def setup(app: Sphinx) -> None:
    """Connect the extension to Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", rewrite)
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", resolve_reference)
    app.connect("doctree-resolved", add_functions)


def rewrite(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place for autodoc, and note the chapters that it names."""
    text = "\n".join(lines)
    chapters = {page for page in app.env.found_docs if page.startswith("chapters/")}
    for word in re.findall(r"\w+", " ".join(CHAPTERS_NAMED.findall(text))):
        if what != "module" and name not in functions_of[f"chapters/{word}"]:
            functions_of[f"chapters/{word}"].append(name)
    lines[:] = to_restructured_text(text, own_names(obj), chapters).split("\n")


def own_names(obj: Any) -> set[str]:
    """Return the names of an object's parameters or inner modules, which are no links."""
    if inspect.ismodule(obj):
        return {module.name for module in iter_modules(getattr(obj, "__path__", ()))}
    return set(inspect.signature(obj).parameters) if callable(obj) else set()


def skip(app: Sphinx, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Return True for a member without entry: a constant, a name for a type, a tuple's field."""
    documented = inspect.isroutine(obj) or inspect.isclass(obj) or isinstance(obj, Mapping)
    field = (inspect.getdoc(obj) or "").startswith("Alias for field number")
    return True if field or (what == "module" and not documented) else None


def to_restructured_text(text: str, own: set[str], chapters: set[str]) -> str:
    """Return a docstring as reStructuredText, in which `own` names are no links."""
    blocks, in_literal = [], False
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        indented = block.startswith(" ")
        if block.startswith(">>>") or (indented and in_literal):
            blocks.append(block)
        elif indented:
            blocks.append(f"::\n\n{block}")
        else:
            blocks.append(mark_up(block, own, chapters))
        in_literal = block.endswith("::") or (indented and in_literal)
    return "\n\n".join([*blocks, ""])


def mark_up(block: str, own: set[str], chapters: set[str]) -> str:
    """Return a paragraph or list whose names in backticks are links or code, the rest escaped."""
    pieces = NAME.split(block)
    pieces[::2] = [link_chapters(piece, chapters) for piece in pieces[::2]]
    pieces[1::2] = [link_or_code(piece, own) for piece in pieces[1::2]]
    return "".join(pieces)


def escape_text(text: str) -> str:
    """Return text in which reStructuredText sees no mark-up but exponents and indices."""

    def script(match: re.Match[str]) -> str:
        """Return an exponent or index, marked up."""
        return f"\\ :{'sup' if match[1] == '^' else 'sub'}:`{match[2]}`\\ "

    return SCRIPT.sub(script, SPECIAL.sub(r"\\\1", text))


def link_chapters(text: str, chapters: set[str]) -> str:
    """Return escaped text in which each chapter that follows "Chapter:" is a link."""
    match = CHAPTERS_NAMED.search(text)
    if match is None:
        return escape_text(text)

    def link(word: re.Match[str]) -> str:
        page = f"chapters/{word[0]}"
        return f"\\ :doc:`{word[0]} </{page}>`\\ " if page in chapters else escape_text(word[0])

    linked = re.sub(r"\w+", link, match[1])
    remainder = link_chapters(text[match.end() :], chapters)
    return f"{escape_text(text[: match.start(1)])}{linked}{remainder}"


def link_or_code(text: str, own: set[str]) -> str:
    """Return a link to an object if the text may be its name, else the text as code."""
    name = text.partition("(")[0]
    if name in own or not re.fullmatch(r"[\w.]+", name):
        return f"\\ ``{text}``\\ "
    return f"\\ :py:obj:`{text} <{name}>`\\ "


def resolve_reference(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, shown: nodes.Element
) -> nodes.Element | None:
    """Return a link to the one object of this name in another module, else the name as code.

    A method of another class is found by its class and name. None if the reference is not to an
    object.
    """
    if node["reftype"] != "obj":
        return None
    target = node["reftarget"]
    entries = [
        entry
        for name, entry in env.domains["py"].objects.items()
        if name.endswith(f".{target}") and ("." in target or entry.objtype in OF_MODULES)
    ]
    if len(entries) != 1:
        return nodes.literal("", shown.astext())
    return make_refnode(app.builder, node["refdoc"], entries[0].docname, entries[0].node_id, shown)


def add_functions(app: Sphinx, tree: nodes.document, page: str) -> None:
    """End a chapter with the functions whose docstrings name it."""
    if not functions_of[page]:
        return
    paragraph = nodes.paragraph("", "", nodes.strong("", "In the library. "))
    paragraph["classes"] = ["in-library"]
    for index, name in enumerate(functions_of[page]):
        entry = app.env.domains["py"].objects[name]
        label = nodes.literal("", name.removeprefix("attnlib."))
        paragraph += nodes.Text(", " if index else "")
        paragraph += make_refnode(app.builder, page, entry.docname, entry.node_id, label)
    next(tree.findall(nodes.section)).append(paragraph)
