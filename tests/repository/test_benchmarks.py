"""The page of ratios: what is recorded, of every benchmark, and nothing older."""

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import Ratio
from benchmarks import __main__ as bench
from experiments.records import load
from tests.books import ROOT

COMMAND = typer.Typer()
COMMAND.command()(bench.main)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in the place of the book's, and one benchmark."""
    monkeypatch.setattr(bench, "RECORD", tmp_path / "recorded" / "benchmarks.json")
    monkeypatch.setattr(bench, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(bench, "names", lambda: ["rows"])
    return tmp_path


def test_every_benchmark_is_recorded():
    entries = load("benchmarks").entries
    assert [entry.at["benchmark"] for entry in entries] == bench.names()
    assert all(entry.found["ratios"] for entry in entries)


def test_the_page_shows_what_is_recorded():
    assert bench.PAGE.read_text("utf-8") == bench.page(load("benchmarks"))
    assert (ROOT / "_toc.yml").read_text("utf-8").count("- file: performance\n") == 1


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0123, "0.012"),
        (99.9, "100"),
        (1234.0, "1\N{NARROW NO-BREAK SPACE}200"),
        (99999.0, "100\N{NARROW NO-BREAK SPACE}000"),
        (1.79e8, r"$1.8 \cdot 10^{8}$"),
    ],
)
def test_numbers_have_the_digits_that_another_run_repeats(number, text):
    assert bench.shown(number) == text


def test_the_page_says_how_busy_the_machine_was():
    record = load("benchmarks")
    busier = record._replace(made={**record.made, "busy": 12.4})
    assert "kept 12 % of the processors busy" in bench.page(busier)


def test_a_full_run_writes_both_files(folder, monkeypatch):
    monkeypatch.setattr(bench, "ProcessPoolExecutor", Here)
    for option in (["--quick"], []):
        assert list(folder.iterdir()) == []  # a quick look records nothing
        CliRunner().invoke(COMMAND, option, catch_exceptions=False)
    record = load(bench.RECORD)
    assert record.find(benchmark="rows")["ratios"][0]["their_cost"] == 2.0
    assert bench.PAGE.read_text("utf-8") == bench.page(record)


class Here:
    """Stands for the pool of processes and does nothing but answer."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *_):
        return self

    def result(self):
        return {"what": "One thing.", "ratios": [Ratio("a", "b", 1.0, 2.0, "s")._asdict()]}


def test_another_name_is_refused(folder):
    finished = CliRunner().invoke(COMMAND, ["row"])
    assert finished.exit_code == 2
    assert "'row' is no benchmark; there are rows" in finished.output
