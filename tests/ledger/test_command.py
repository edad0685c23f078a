"""The ledger's command line."""

import json

import pytest
from typer.testing import CliRunner

from ledger.__main__ import app


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_claims_as_json_with_their_signs():
    written = run("--json", "jacobian.multiply", "variance.linear").output
    first, second = json.loads(written)
    words = ["id", "source", "chapter", "place", "statement", "quote", "translation"]
    assert list(first) == [*words, "verdict", "evidence"]
    assert (first["id"], first["verdict"]) == ("jacobian.multiply", "wrong")
    assert (second["id"], second["source"]) == ("variance.linear", "001")
    assert written == json.dumps([first, second], ensure_ascii=False, indent=2) + "\n"


def test_claims_as_a_table():
    said = run("variance.mean-zero", "gradient.renyi").output
    assert "variance.mean-zero" in said
    assert "holds" in said
    assert "E[Q·K] = 0" in said  # brackets are text, not markup
    assert "000, Calculating" in said  # a place
    assert "“本质上” (in essence)" in said  # and a quote


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("variance.nothing", "'variance.nothing' is not a claim; the ledger has "),
        ("--nothing", "No such option"),
    ],
)
def test_wrong_input_gets_one_line_and_status_two(argument, said):
    result = run(argument)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
