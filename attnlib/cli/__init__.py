"""Run the command line `attnlib`, or `python -m attnlib`: one module for each command."""

from typing import Annotated

import typer

import attnlib
from attnlib.cli import audit, calibrate, policies, probe, scale
from attnlib.cli.application import make_application

app = make_application("What attention scores should be divided by.")


def _print_version(wanted: bool) -> None:
    """Print the version and exit, if it is `wanted`."""
    if wanted:
        typer.echo(f"attnlib {attnlib.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Print the help if no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("scale")(scale.scale)
app.command("policies")(policies.policies)
app.command("probe")(probe.probe)
app.command("audit")(audit.audit)
app.command("calibrate")(calibrate.calibrate)
