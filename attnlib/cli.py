"""The command line: `attnlib`, or `python -m attnlib`."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import attnlib


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(attnlib.__version__, prog_name="attnlib")
def main() -> None:
    """What attention scores should be divided by."""


@main.command("claims")
@click.argument("identifiers", nargs=-1, metavar="[ID]...")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
def claims_command(identifiers: tuple[str, ...], as_json: bool) -> None:
    """Check the claims of the sources and print each verdict with its evidence.

    Without an ID, all of them.
    """
    from attnlib import claims  # sympy takes a second to load

    unknown = [identifier for identifier in identifiers if identifier not in claims.CLAIMS]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is not a claim; the ledger has {', '.join(sorted(claims.CLAIMS))}",
            param_hint="ID",
        )
    outcomes = [claims.check(i) for i in identifiers] if identifiers else claims.check_all()
    if as_json:
        click.echo(
            json.dumps([asdict(outcome) for outcome in outcomes], ensure_ascii=False, indent=2)
        )
        return
    table = Table(box=box.SIMPLE_HEAD, show_lines=True)
    for heading in ("source", "claim", "verdict", "evidence"):
        table.add_column(heading, overflow="fold")
    for outcome in outcomes:
        statement = f"{outcome.id}\n{outcome.statement}"
        cells = (outcome.source, statement, outcome.verdict, outcome.evidence)
        table.add_row(*(Text(cell) for cell in cells))
    Console().print(table)


class _WrongInput(click.ClickException):
    """A wrong file: one line, without the usage of the command."""

    exit_code = 2


@main.command("sweep")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--text", type=click.Path(path_type=Path), help="A copy of the sweep's corpus.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes; by default one a core.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
def sweep_command(file: Path, text: Path | None, workers: int | None, device: str) -> None:
    """Run what is missing of the training runs that the TOML file FILE describes.

    It can be stopped at any moment: the same command goes on where it was.
    """
    try:
        from attnlib.lab import sweep  # torch takes seconds to load
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f'{error.name} is missing; pip install "attnlib[lab]" brings what a sweep needs'
        ) from error
    try:
        found = sweep.run(sweep.read(file, text), workers=workers, device=device, progress=True)
    except sweep.SweepError as error:
        raise _WrongInput(str(error)) from error
    except sweep.WorkerError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("Stopped; the same command goes on from here.", err=True)
        os._exit(130)  # a graceful end would wait for the runs under way
    diverged = sum(outcome.run.diverged_at is not None for outcome in found)
    click.echo(f"{len(found)} runs finished, {diverged} of them diverged")
