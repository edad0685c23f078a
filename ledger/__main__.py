"""The ledger on the command line: `python -m ledger`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import ledger
from attnlib.commands import AsJson, CommandError, OneLineCommand, application

app = application("The claims of the book's sources, each with its check.")


@app.command(cls=OneLineCommand)
def claims_command(
    identifiers: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Claims; without one, all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the claims of the book's sources."""
    for identifier in identifiers or []:
        if identifier not in ledger.CLAIMS:
            raise CommandError(
                f"{identifier!r} is not a claim; the ledger has {', '.join(sorted(ledger.CLAIMS))}"
            )
    outcomes = [ledger.check(i) for i in identifiers] if identifiers else ledger.check_all()
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in outcomes], ensure_ascii=False, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, show_lines=True, expand=True)
    table.add_column("claim", overflow="fold", width=max(len(one.id) for one in outcomes))
    for heading in ("statement", "evidence"):
        table.add_column(heading, overflow="fold", ratio=1)
    for one in outcomes:
        claim = f"{one.id}\n{one.verdict}\n{one.source}, {one.place}"
        translation = f" ({one.translation})" if one.translation else ""
        words = f"\n“{one.quote}”{translation}" if one.quote else ""
        table.add_row(*(Text(cell) for cell in (claim, one.statement + words, one.evidence)))
    Console().print(table)


if __name__ == "__main__":
    app()
