"""The laboratory's command line."""

import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.lab import data


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_data_lists_the_texts_and_writes_one(tmp_path):
    listed = run("data").output
    assert all(name in listed for name in data.NAMES)
    file = tmp_path / "text"
    assert run("data", "embedded", "--out", str(file)).exit_code == 0
    assert file.read_bytes() == data.embedded().tobytes()
    assert "cannot" in run("data", "embedded", "--out", str(tmp_path)).stderr


def test_data_that_cannot_be_fetched_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    monkeypatch.setattr(data, "SHAKESPEARE_URL", "http://127.0.0.1:9/nothing.txt")
    result = run("data", "tiny-shakespeare")
    assert result.exit_code == 2
    assert "tiny-shakespeare.txt could not be fetched" in result.stderr


def test_a_worker_that_dies_ends_a_sweep_in_one_line(monkeypatch, tmp_path):
    from experiments.lab import sweep

    def dies(*_, **__):
        raise sweep.WorkerError("a worker process died")

    monkeypatch.setattr(sweep, "read", lambda *_: None)
    monkeypatch.setattr(sweep, "run", dies)
    result = run("sweep", str(tmp_path / "sweep.toml"))
    assert result.exit_code == 1
    assert "a worker process died" in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data", "nothing"), "NAME must be embedded or tiny-shakespeare, got 'nothing'"),
        (("data", "--out", "x"), "--out needs the NAME of a text"),
        (("sweep", "nothing.toml"), "nothing.toml: cannot be read"),
        (("sweep", "nothing.toml", "--device", "tpu"), "'cpu', 'cuda'"),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_wrong_input_gets_one_line_and_status_two(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
