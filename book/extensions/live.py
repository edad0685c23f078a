"""A Sphinx extension: makes the scripts of the live figures; some seconds.

A page loads a script right behind its first figure: it runs before what follows is shown, so that
nothing moves.
"""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from attnlib._files import replace
from book.live.script import write


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("build-finished", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_script(app: Sphinx, error: Exception | None) -> None:
    """Write the scripts into the site, and their modules beside it, where tests load them."""
    if error is None and app.builder.name == "html":
        modules = Path(app.outdir).parent / "live"
        for name, text in write(modules).items():
            replace(Path(app.outdir, "_static", f"{name}.js"), text.encode())
