"""The ledger's command line."""

import json

from typer.testing import CliRunner

from claims.__main__ import app


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_claims_are_json_in_the_order_asked_for():
    first, second = json.loads(run("--json", "jacobian.multiply", "variance.linear").output)
    words = ["id", "source", "chapter", "place", "statement", "quote", "translation", "address"]
    assert list(first) == [*words, "verdict", "evidence"]
    assert (first["id"], first["verdict"]) == ("jacobian.multiply", "needs a condition")
    assert (second["id"], second["source"]) == ("variance.linear", "001")


def test_an_unknown_claim_gets_one_line_and_status_two():
    result = run("variance.nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: 'variance.nothing' is not a claim")
    assert result.stderr.count("\n") == 1
