"""A Sphinx extension: the directive `command-line`, a section for each command of `attnlib`.

What stands there is what `attnlib COMMAND --help` says.
"""

from typing import Any

import typer
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from attnlib.cli import app as commands


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class CommandLine(Directive):  # type: ignore[misc]
    """Describe every command: how it is called, what it does, its arguments and options."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        group: Any = typer.main.get_command(commands)
        return [section(name, command) for name, command in group.commands.items()]


def section(name: str, command: Any) -> nodes.section:
    """Return what a command does, and a list of its arguments and options."""
    full = f"attnlib {name}"
    context = command.context_class(command, info_name=full)
    found = nodes.section(ids=[full.replace(" ", "-")], names=[full])
    found += nodes.title("", full)
    usage = command.get_usage(context).removeprefix("Usage: ")
    found += nodes.literal_block("", usage, language="text")
    for paragraph in command.help.split("\n\n"):
        found += told(" ".join(paragraph.split()))
    entries = nodes.definition_list()
    for written, meaning in (one.get_help_record(context) for one in command.params):
        term = nodes.term("", "", nodes.literal("", written))
        said = nodes.definition("", told(meaning))
        entries += nodes.definition_list_item("", term, said)
    found += entries
    return found


def told(words: str) -> nodes.paragraph:
    """Return a paragraph whose hyphens stay: --head is an option, and no dash."""
    return nodes.paragraph("", words, support_smartquotes=False)
