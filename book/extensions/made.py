"""A Sphinx extension: puts what the records say into the pages of them while these are read."""

from typing import Any

from sphinx.application import Sphinx

from book import census, models

MADE = {"census": census.made, "models": models.made}
"""What is put in the place of each «name», by page."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def fill(_: Sphinx, page: str, source: list[str]) -> None:
    """Fill a page that has such places."""
    if page in MADE:
        for name, text in MADE[page]().items():
            source[0] = source[0].replace(f"«{name}»", text)
