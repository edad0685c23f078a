"""The laboratory on the command line: `python -m experiments`."""

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from attnlib.commands import CommandError, application
from attnlib.extras import brought_by
from experiments.lab import data, sweep


class Device(StrEnum):
    """Where a model trains."""

    CPU = "cpu"
    CUDA = "cuda"


app = application("Train small models, and compare them.")


@app.command("sweep")
def sweep_command(
    file: Annotated[Path, typer.Argument(help="A TOML file that describes the runs.")],
    text: Annotated[Path | None, typer.Option(help="A copy of the sweep's corpus.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one a core.")
    ] = None,
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.CPU,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Dask scheduler, whose workers train instead."),
    ] = None,
) -> None:
    """Train the models that a TOML file describes.

    Only what is missing is run. It can be stopped at any moment: the same command goes on where it
    was.
    """
    if scheduler is not None and workers is not None:
        raise CommandError("--workers are processes of this machine: not with --scheduler")
    try:
        with ExitStack() as stack:
            described = sweep.read(file, text)
            executor = None if scheduler is None else _cluster(scheduler, stack)
            options: dict[str, Any] = {
                "executor": executor,
                "workers": workers,
                "device": str(device),
            }
            found = sweep.run(described, **options, progress=True)
    except sweep.SweepError as error:
        raise CommandError(str(error)) from error
    except sweep.UnfinishedError as error:
        raise CommandError(str(error), 1) from error
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    diverged = sum(outcome.run.diverged_at is not None for outcome in found)
    typer.echo(f"{len(found)} runs finished, {diverged} of them diverged")


def _cluster(address: str, stack: ExitStack) -> Any:
    """Return the executor of a Dask scheduler, connected until the stack ends."""
    with brought_by("cluster"):
        from distributed import Client
    connect: Any = Client  # without types
    try:
        return stack.enter_context(connect(address)).get_executor()
    except (OSError, ValueError) as error:
        raise CommandError(f"no Dask scheduler answers at {address}: {error}") from error


@app.command("data")
def data_command(
    name: Annotated[str, typer.Argument(help=f"A text: {' or '.join(data.NAMES)}.")],
    out: Annotated[Path | None, typer.Option(help="Write the text to this file.")] = None,
) -> None:
    """Fetch or make a text to train on."""
    try:
        if name not in data.NAMES:
            raise ValueError(f"NAME must be {' or '.join(data.NAMES)}, got {name!r}")
        text = data.load(name)
        if out is not None:
            out.write_bytes(text.tobytes())
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    typer.echo(f"{name}: {text.size} bytes" + (f", written to {out}" if out else ""))


if __name__ == "__main__":
    app()
