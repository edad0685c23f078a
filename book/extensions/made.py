"""A Sphinx extension: what the records and the commands say is put into their pages, when read."""

from typing import Any

import typer
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click

from attnlib.cli import app as commands
from book import census, models


def command_line() -> dict[str, str]:
    """Return what each command of `attnlib` is and takes."""
    group: Any = typer.main.get_command(commands)
    context = group.context_class(group, info_name="attnlib")
    text = get_docs_for_click(obj=group, ctx=context, name="attnlib")
    return {"commands": text[text.index("\n## ") :]}


MADE = {
    "chapters/census": census.made,
    "chapters/models": models.made,
    "chapters/api/command_line": command_line,
}
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
