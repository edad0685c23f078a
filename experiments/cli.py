"""The commands of the laboratory: `python -m experiments`."""

from pathlib import Path
from typing import Annotated

import typer

from attnlib.cli.application import CommandError, make_application
from experiments.gpu import command

app = make_application("Train small models, and compare them.")


@app.callback()
def laboratory() -> None:
    """Train small models, and compare them."""


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
    from experiments.lab import sweep  # with torch, which takes seconds to load

    try:
        outcomes = sweep.run_file(file, workers=workers, progress=True)
    except sweep.SweepError as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    diverged = sum(outcome.run.diverged_at is not None for outcome in outcomes)
    typer.echo(f"{len(outcomes)} runs finished, {diverged} of them diverged")


@app.command("gpu", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def gpu_command(context: typer.Context) -> None:
    """Check the library on a GPU, train decoders there, or pack the corpus: `gpu --help`."""
    raise typer.Exit(command.main(context.args))
