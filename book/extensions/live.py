"""A Sphinx extension: makes the script of the live figures with the site; some seconds."""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from attnlib.files import replace
from book.live.script import write


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("build-finished", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_script(app: Sphinx, error: Exception | None) -> None:
    """Write the script into the site, and its modules beside the site, where tests load them."""
    if error is None and app.builder.name == "html":
        modules = Path(app.outdir).parent / "live"
        replace(Path(app.outdir, "_static", "live.js"), write(modules).encode())
