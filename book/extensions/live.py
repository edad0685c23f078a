"""A Sphinx extension: draws the stills of the live figures, and makes their scripts; some seconds.

A page asks for a script, and gets it within the first figure that the script knows. There it runs
before what follows the figure is there, and moves nothing. A script that knows no figure stays.
"""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from book import drawings
from book.live.script import figures, write
from experiments.files import replace

ASKED = re.compile(r'<script defer src="([^"]*_static/(\w+)\.js)"></script>\n?')


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", draw)
    app.connect("build-finished", add_script)
    app.connect("html-page-context", move_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def draw(_: Sphinx) -> None:
    """Draw the stills before the pages that show them are read."""
    drawings.write(drawings.built())


def add_script(app: Sphinx, error: Exception | None) -> None:
    """Write the scripts into the site, and their modules beside it, where tests load them."""
    if error is None and app.builder.name == "html":
        modules = Path(app.outdir).parent / "live"
        for name, text in write(modules).items():
            replace(Path(app.outdir, "_static", f"{name}.js"), text.encode())


def move_scripts(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Move the scripts of a page into its figures."""
    if "body" in context and app.builder.name == "html":
        context["body"] = in_figures(context["body"])


def in_figures(body: str) -> str:
    """Return a page in which each script stands behind the still of its first figure."""
    for asked in ASKED.finditer(body):
        address, name = asked.groups()
        known = "|".join(map(re.escape, figures(name)))
        figure = re.search(rf'<figure\b[^>]*\bid="(?:{known})".*?(?=<figcaption)', body, re.DOTALL)
        if known and figure:
            body = body.replace(asked[0], "")
            script = f'<script src="{address}"></script>\n'
            body = body.replace(figure[0], figure[0] + script)
    return body
