"""The commands of the laboratory: `python -m experiments`."""

from pathlib import Path
from typing import Annotated

import typer

from attnlib.cli.application import CommandError, application
from experiments import work_queue
from experiments.gpu import command

app = application("Train small models, and compare them.")


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


@app.command("queue")
def queue_command(
    status: Annotated[bool, typer.Option("--status", help="Say what is done and left.")] = False,
    pause: Annotated[bool, typer.Option("--pause", help="Free the core at once.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after a pause.")] = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Bring finished lines into experiments/recorded.")
    ] = False,
    at: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Move the worktree to this commit first.")
    ] = None,
) -> None:
    """Run what experiments/planned/queue.toml lists, in a worktree of its own.

    It can be stopped at any moment: the same command goes on where it was.
    """
    if status + pause + resume + collect + (at is not None) > 1:
        raise CommandError("give one of --status, --pause, --resume, --collect, --at")
    try:
        if status:
            typer.echo(work_queue.status())
        elif pause or resume:
            process = work_queue.pause(resume=resume)
            typer.echo(f"process {process.pid} {'goes on' if resume else 'is paused'}")
        elif collect:
            added = work_queue.collect()
            typer.echo("\n".join(f"{file}: {n} lines more" for file, n in added.items()))
        else:
            work_queue.start(at=at)
    except work_queue.QueueError as error:
        raise CommandError(str(error)) from error


@app.command("gpu", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def gpu_command(context: typer.Context) -> None:
    """Check the library on a GPU, train decoders there, or pack the corpus: `gpu --help`."""
    raise typer.Exit(command.main(context.args))
