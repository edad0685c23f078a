"""The command line: `attnlib`, or `python -m attnlib`."""

import json
from dataclasses import asdict

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
