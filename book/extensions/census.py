"""A Sphinx extension: puts the record of the census into its page while that is read."""

from typing import Any

from sphinx.application import Sphinx

from book import census


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def fill(_: Sphinx, name: str, source: list[str]) -> None:
    """Fill the page of the census."""
    if name == "census":
        source[0] = census.page(source[0])
