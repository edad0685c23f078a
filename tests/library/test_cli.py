"""The command line."""

import json
import subprocess
import sys

from click.testing import CliRunner

from attnlib import __version__, claims
from attnlib.cli import main


def run(*arguments):
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "120"})


def test_claims_prints_a_table_of_all():
    result = run("claims")
    assert result.exit_code == 0
    for identifier in claims.CLAIMS:
        assert identifier in result.output
    assert "E[q·k] = 0" in result.output  # brackets are text, not markup


def test_claims_as_json():
    result = run("claims", "--json", "jacobian.multiply", "variance.linear")
    first, second = json.loads(result.output)
    assert list(first) == ["id", "source", "statement", "verdict", "evidence", "chapter"]
    assert (first["id"], first["verdict"]) == ("jacobian.multiply", "wrong")
    assert (second["id"], second["source"]) == ("variance.linear", "001")


def test_an_unknown_claim_is_named():
    result = run("claims", "variance.nothing")
    assert result.exit_code == 2
    assert "variance.nothing" in result.output


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "attnlib", "--version"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout.strip().endswith(__version__)
