"""The ledger on the command line: `python -m claims`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

import claims
from attnlib.cli.application import AsJson, CommandError, OneLineCommand, make_application

app = make_application("The claims of the book's sources, each with its check.")


@app.command(cls=OneLineCommand)
def claims_command(
    identifiers: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Claims; without one, all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the claims of the book's sources."""
    for identifier in identifiers or []:
        if identifier not in claims.CLAIMS:
            raise CommandError(
                f"{identifier!r} is not a claim; the ledger has {', '.join(sorted(claims.CLAIMS))}"
            )
    outcomes = [claims.check(i) for i in identifiers] if identifiers else claims.check_all()
    if as_json:
        typer.echo(
            json.dumps([asdict(outcome) for outcome in outcomes], ensure_ascii=False, indent=2)
        )
        return
    for outcome in outcomes:
        translation = f" ({outcome.translation})" if outcome.translation else ""
        words = f"“{outcome.quote}”{translation}" if outcome.quote else ""
        lines = (
            f"{outcome.id}: {outcome.verdict}",
            f"{outcome.source}, {outcome.place}",
            outcome.statement,
            words,
        )
        typer.echo("\n  ".join(line for line in (*lines, outcome.evidence) if line) + "\n")


if __name__ == "__main__":
    app()
