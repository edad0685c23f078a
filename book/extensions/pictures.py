"""A Sphinx extension: pictures have their place before they are loaded, when they come near.

Without their sizes the text below them would move while one reads.
"""

import posixpath
import re
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

IMAGE = re.compile(r'<img(?![^>]*\bloading=)([^>]*?\bsrc="([^"]+)"[^>]*?)(\s*/?)>')
SIDES = re.compile(r'<svg[^>]*?\bwidth="([\d.]+)pt"[^>]*?\bheight="([\d.]+)pt"')
PIXELS_A_POINT = 4 / 3


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("html-page-context", add_sizes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_sizes(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Give the drawings of a page their sizes; all pictures but the first are loaded late."""
    if app.builder.name != "html" or "body" not in context:
        return
    # Pictures are copied into the site when the build ends.
    files = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
    late = chain([""], repeat(' loading="lazy"'))

    def sized(found: re.Match[str]) -> str:
        attributes, file = found[1], files.get(posixpath.basename(found[2]))
        sides = SIDES.search(file.read_text("utf-8")) if file and file.suffix == ".svg" else None
        if sides and not re.search(r"\b(?:width|height)=", attributes):
            width, height = (PIXELS_A_POINT * float(side) for side in sides.groups())
            attributes += f' width="{width:.0f}" height="{height:.0f}"'
        return f"<img{attributes}{next(late)}{found[3]}>"

    context["body"] = IMAGE.sub(sized, context["body"])
