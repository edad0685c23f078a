"""A Sphinx extension: what depends on where the book is published, set by the environment.

BOOK_SITE is the site's address. It brings canonical addresses and a sitemap. BOOK_REPOSITORY, the
https address of a repository, brings the buttons that lead there and to Binder. BOOK_PDF=1 links
the PDF that `make pdf` prints into the site. A build without them has no such thing, and so no link
that is dead.
"""

import os
from typing import Any
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx: the tag `pdf` shows what stands under the directive `only`."""
    if os.environ.get("BOOK_PDF"):
        app.tags.add("pdf")
    if os.environ.get("BOOK_SITE"):
        app.setup_extension("sphinx_sitemap")
        app.connect("config-inited", set_address, priority=100)
    if os.environ.get("BOOK_REPOSITORY"):
        app.connect("config-inited", add_buttons)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def set_address(app: Sphinx, config: Config) -> None:
    """Tell Sphinx and its extensions where the site is."""
    config.html_baseurl = os.environ["BOOK_SITE"].rstrip("/") + "/"
    config.sitemap_url_scheme = "{link}"
    config.sitemap_excludes = ["search.html", "genindex.html", "prf-prf.html"]


def add_buttons(app: Sphinx, config: Config) -> None:
    """Add the buttons to the options of the theme in _config.yml."""
    config.html_theme_options = {
        **config.html_theme_options,
        "repository_url": repository(os.environ["BOOK_REPOSITORY"]),
        "repository_branch": "main",
        "use_repository_button": True,
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "notebook_interface": "jupyterlab",
        },
    }


def repository(said: str) -> str:
    """Return the repository's address; ValueError for one that no button can be made of."""
    found = said.strip().rstrip("/")
    address = urlsplit(found)
    if address.scheme != "https" or len(address.path.split("/")) != 3:
        raise ValueError(
            "BOOK_REPOSITORY must be the https address of a repository, such as "
            f"https://github.com/owner/name, got {found!r}"
        )
    return found
