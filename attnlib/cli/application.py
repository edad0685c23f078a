"""Share parts of the project's command lines: errors in one line, JSON on request."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from attnlib.extras import MissingExtraError

ParsingError: Any = typer.BadParameter.__mro__[2]
"""The base class of the errors of typer and click, without a name in newer versions of typer."""


class CommandError(Exception):
    """Signal an error of a command, with a message of one line and an exit status."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


@contextmanager
def as_command_error(*errors: type[Exception], status: int = 2, prefix: str = "") -> Iterator[None]:
    """Turn `errors` inside the context into a `CommandError` that starts with `prefix`."""
    try:
        yield
    except errors as error:
        raise CommandError(f"{prefix}{error}", status) from error


class OneLineErrors:
    """Make a command of typer print each error in one line, without its usage: a mixin."""

    def main(self, *arguments: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Run a command with errors in one line; exit with its status, or return it."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A pipe on Windows cannot encode √ and α, and some file names are not Unicode.
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        try:
            run = super().main  # type: ignore[misc]
            status = run(*arguments, **{**options, "standalone_mode": False})
        except (CommandError, MissingExtraError) as error:
            typer.echo(f"Error: {error}", err=True)
            status = getattr(error, "status", 2)
        except ParsingError as error:
            typer.echo(f"Error: {' '.join(error.format_message().split())}", err=True)
            status = error.exit_code
        if standalone_mode:
            sys.exit(status if isinstance(status, int) else 0)
        return status


class OneLineGroup(OneLineErrors, TyperGroup):
    """Group commands whose errors are printed in one line."""


class OneLineCommand(OneLineErrors, TyperCommand):
    """Run a command whose errors are printed in one line."""


def make_application(help_text: str) -> typer.Typer:
    """Return a typer application without commands, with the help text `help_text`."""
    return typer.Typer(
        cls=OneLineGroup,
        help=help_text,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


WIDTH = 80
"""Columns of a terminal."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
