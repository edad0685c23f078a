"""A Sphinx extension: what depends on where the book is published, set by the environment.

BOOK_PDF=1 links the PDF that `make pdf` prints into the site. A build without it has no such link,
and so none that is dead.
"""

import os
from typing import Any

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx: the tag `pdf` shows what stands under the directive `only`."""
    if os.environ.get("BOOK_PDF"):
        app.tags.add("pdf")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
