"""A Sphinx extension: old addresses, which book/moved.toml lists, lead to the pages of today.

Each is a page with a refresh that needs no script. A script takes the part after the # along, to
another page if the list says so; it does so on pages of today, too, from which a part has moved.
"""

import json
import tomllib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LIST = Path(__file__).parents[1] / "moved.toml"

PAGE = (
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title}: moved</title>'
    '<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
    '<meta name="color-scheme" content="light dark">'
    "<script>const moved = {anchors}; "
    'location.replace(moved[location.hash] ?? "{page}" + location.hash);</script>'
    '<meta http-equiv="refresh" content="0; url={page}">'
    '<main><p>This page is now <a href="{page}">{title}</a>.</p></main></html>\n'
)

SCRIPT = "<script>{{const to = {anchors}[location.hash]; if (to) location.replace(to);}}</script>"
"""On a page of today."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def addresses() -> dict[str, str]:
    """Return where each old address is now."""
    return tomllib.loads(LIST.read_text(encoding="utf-8"))


def add_script(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Lead on from the anchors that a page no longer has."""
    found = anchors(page, addresses())
    if found and "body" in context:
        context["body"] += SCRIPT.format(anchors=json.dumps(found))


def write_pages(app: Sphinx, error: Exception | None) -> None:
    """Write a page at each old address.

    Raises ExtensionError where a page of today has the old address, or none has the new one.
    """
    if error is not None or app.builder.name != "html":
        return
    moved, pages = addresses(), set(app.env.found_docs)
    for old, new in moved.items():
        if old in pages or new.partition("#")[0] not in pages:
            raise ExtensionError(f"book/moved.toml: {old!r} cannot lead to {new!r}")
        if "#" not in old:
            target = Path(app.outdir, f"{old}.html")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(page(old, moved, app.env.titles[new].astext()), encoding="utf-8")


def page(old: str, moved: Mapping[str, str], title: str) -> str:
    """Return the page at an old address, `title` the title of the new one."""
    found = json.dumps(anchors(old, moved))
    return PAGE.format(page=link(old, moved[old]), title=escape(title), anchors=found)


def anchors(page: str, moved: Mapping[str, str]) -> dict[str, str]:
    """Return where the anchors of a page lead that have moved."""
    return {
        address.removeprefix(page): link(page, new)
        for address, new in moved.items()
        if address.startswith(f"{page}#")
    }


def link(old: str, new: str) -> str:
    """Return the link from an old address to a new one."""
    name, _, anchor = new.partition("#")
    return relpath(f"{name}.html", dirname(old) or ".") + (f"#{anchor}" if anchor else "")
