"""What fills the place of each «name» in a page: the library, the records and the commands."""

import re
from typing import Any

import typer
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click

from attnlib.cli import app as commands
from book import census, models
from book.live import prose_numbers


def command_reference() -> dict[str, str]:
    """Return the reference of all commands of `attnlib`, as Markdown."""
    group: Any = typer.main.get_command(commands)
    context = group.context_class(group, info_name="attnlib")
    text = get_docs_for_click(obj=group, ctx=context, name="attnlib")
    return {"commands": text[text.index("\n## ") :]}


PARTS = {
    "chapters/census": census.made,
    "chapters/models": models.page_texts,
    "chapters/calculator": prose_numbers.calculator_numbers,
    "intro": prose_numbers.front_page_numbers,
    "chapters/api/command_line": command_reference,
}
"""By page, the function that returns the texts for its places, by name."""


def fill(_: Sphinx, page: str, source: list[str]) -> None:
    """Fill the places of a page that has some."""
    if page in PARTS:
        texts = PARTS[page]()
        source[0] = re.sub("«([^»]+)»", lambda place: texts[place[1]], source[0])
