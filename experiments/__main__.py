"""The laboratory on the command line: `python -m experiments`."""

from pathlib import Path
from typing import Annotated

import typer

from attnlib.commands import CommandError, application
from experiments.lab import sweep

app = application("Train small models, and compare them.")


@app.callback()
def laboratory() -> None:
    """Train small models, and compare them."""  # so that "sweep" is a command's name


@app.command("sweep")
def sweep_command(
    file: Annotated[Path, typer.Argument(help="A TOML file that describes the runs.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one a core.")
    ] = None,
) -> None:
    """Train the models that a TOML file describes.

    Only what is missing is run. It can be stopped at any moment: the same command goes on where it
    was.
    """
    try:
        found = sweep.run(sweep.read(file), workers=workers, progress=True)
    except sweep.SweepError as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    diverged = sum(outcome.run.diverged_at is not None for outcome in found)
    typer.echo(f"{len(found)} runs finished, {diverged} of them diverged")


if __name__ == "__main__":
    app()
