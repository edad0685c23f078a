"""The laboratory's command line."""

import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.lab import data


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_data_writes_a_text(tmp_path):
    file = tmp_path / "text"
    assert run("data", "embedded", "--out", str(file)).exit_code == 0
    assert file.read_bytes() == data.embedded().tobytes()
    assert run("data", "embedded", "--out", str(tmp_path)).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data", "nothing"), "NAME must be embedded or tiny-shakespeare, got 'nothing'"),
        (("sweep", "nothing.toml"), "nothing.toml: [Errno 2] No such file"),
        (("sweep", "nothing.toml", "--device", "tpu"), "'cpu', 'cuda'"),
        (("sweep", "x", "--scheduler", "y", "--workers", "2"), "not with --scheduler"),
    ],
)
def test_wrong_input_gets_one_line_and_status_two(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
