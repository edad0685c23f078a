"""Chapters that run on Colab and on Binder: the buttons of the site, and the cell that installs.

Both need the address of the repository, which the book does not know. It comes from the
environment, which the publishing workflow fills:

    BOOK_REPOSITORY   such as https://github.com/owner/name; without it there are no buttons
    BOOK_RELEASE      the branch or tag that the buttons name; without it, main

As a Sphinx extension this module sets the buttons. `python -m book.launch` gives each chapter its
cell, for the branch that the buttons name; on main chapters have none.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import nbformat

from attnlib.files import replace

if TYPE_CHECKING:  # the workflow that writes the cells has no Sphinx
    from sphinx.application import Sphinx
    from sphinx.config import Config

CHAPTERS = Path(__file__).parents[1] / "chapters"

CELL_ID = "install"

CELL = """\
# Where attnlib is missing, as on Colab: fetch the book and install it.
import os
import subprocess
import sys
from importlib.util import find_spec

folder = "the-scale-of-attention"
if find_spec("attnlib") is None:
    if not os.path.isdir(folder):
        fetch = ["git", "clone", "--quiet", "--depth", "1", "--branch", "{release}"]
        subprocess.run([*fetch, "{repository}", folder], check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, f"./{{folder}}[chapters]"], check=True)
if os.path.isdir(folder):
    sys.path.insert(0, os.path.abspath(folder))  # book and experiments are not installed"""


class Source(NamedTuple):
    """Where the chapters can be fetched."""

    repository: str
    release: str


def source(environment: Mapping[str, str]) -> Source | None:
    """Return what the environment says, None where it says nothing.

    Raises ValueError for an address that no button can be made of.
    """
    repository = environment.get("BOOK_REPOSITORY", "").strip().rstrip("/")
    if not repository:
        return None
    address = urlsplit(repository)
    if address.scheme != "https" or len(address.path.split("/")) != 3:
        raise ValueError(
            "BOOK_REPOSITORY must be the https address of a repository, such as "
            f"https://github.com/owner/name, got {repository!r}"
        )
    return Source(repository, environment.get("BOOK_RELEASE", "").strip() or "main")


def theme_options(found: Source) -> dict[str, Any]:
    """Return the options of the theme that show the buttons."""
    buttons = {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"}
    if urlsplit(found.repository).hostname == "github.com":  # Colab reads from no other host
        buttons["colab_url"] = "https://colab.research.google.com"
    return {
        "repository_url": found.repository,
        "repository_branch": found.release,
        "use_repository_button": True,
        "launch_buttons": buttons,
    }


def set_theme_options(app: "Sphinx", config: "Config") -> None:
    """Add the buttons to the options of _config.yml."""
    found = source(os.environ)
    if found is not None:
        config.html_theme_options = {**config.html_theme_options, **theme_options(found)}


def setup(app: "Sphinx") -> dict[str, bool]:
    """Register the extension."""
    app.connect("config-inited", set_theme_options)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def with_cell(notebook: nbformat.NotebookNode, found: Source) -> nbformat.NotebookNode:
    """Return the notebook with the cell after its title, hidden in the book; or with it renewed."""
    cell = nbformat.v4.new_code_cell(
        CELL.format(**found._asdict()), id=CELL_ID, metadata={"tags": ["remove-cell"]}
    )
    others = [other for other in notebook.cells if other.id != CELL_ID]
    return nbformat.from_dict({**notebook, "cells": [others[0], cell, *others[1:]]})


def main() -> None:
    """Write the cell into every chapter."""
    found = source(os.environ)
    if found is None:
        raise SystemExit("BOOK_REPOSITORY is not set: there is nothing to install from")
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
        content = nbformat.writes(with_cell(notebook, found)) + "\n"
        replace(path, content.encode("utf-8"))


if __name__ == "__main__":
    main()
