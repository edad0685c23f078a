"""The ledger's command line."""

import json

import pytest
from typer.testing import CliRunner

from ledger.__main__ import app


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_claims_as_json():
    result = run("--json", "jacobian.multiply", "variance.linear")
    first, second = json.loads(result.output)
    words = ["id", "source", "chapter", "place", "statement", "quote", "translation"]
    assert list(first) == [*words, "verdict", "evidence"]
    assert (first["id"], first["verdict"]) == ("jacobian.multiply", "wrong")
    assert (second["id"], second["source"]) == ("variance.linear", "001")


def test_one_claim_is_a_table_and_json_with_its_signs():
    result = run("jacobian.multiply")
    assert "jacobian.multiply" in result.output
    assert "wrong" in result.output
    assert "source" in result.output
    written = run("--json", "jacobian.multiply").output
    assert written == json.dumps(json.loads(written), ensure_ascii=False, indent=2) + "\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("variance.nothing",), "'variance.nothing' is not a claim; the ledger has "),
        (("--nothing",), "No such option"),
    ],
)
def test_wrong_input_gets_one_line_and_status_two(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
