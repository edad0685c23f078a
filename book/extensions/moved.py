"""A Sphinx extension: old addresses, which book/moved.toml lists, lead to the pages of today.

Each is a page with a refresh that needs no script. A script takes the part after the # along.
"""

import tomllib
from html import escape
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

from sphinx.application import Sphinx

LIST = Path(__file__).parents[1] / "moved.toml"

PAGE = (
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title}: moved</title>'
    '<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
    '<meta name="color-scheme" content="light dark">'
    '<script>location.replace("{page}" + location.hash);</script>'
    '<meta http-equiv="refresh" content="0; url={page}">'
    '<main><p>This page is now <a href="{page}">{title}</a>.</p></main></html>\n'
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(app: Sphinx, error: Exception | None) -> None:
    """Write a page at each old address; KeyError where no page of today has the new one."""
    if error is not None or app.builder.name != "html":
        return
    for old, new in tomllib.loads(LIST.read_text("utf-8")).items():
        title = escape(app.env.titles[new].astext())
        link = relpath(f"{new}.html", dirname(old) or ".")
        Path(app.outdir, f"{old}.html").write_text(PAGE.format(page=link, title=title), "utf-8")
