"""The page of ratios: what is recorded, of every benchmark, and nothing older."""

import pytest
import typer
from typer.testing import CliRunner

from experiments.benchmarks import Ratio
from experiments.benchmarks import __main__ as bench
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
    assert {"annealed", "attention", "exact", "rows", "training"} <= set(bench.names())
    assert all(entry.found["ratios"] for entry in entries)


def test_the_page_shows_what_is_recorded():
    assert bench.PAGE.read_text("utf-8") == bench.page(load("benchmarks"))
    assert (ROOT / "_toc.yml").read_text("utf-8").count("- file: chapters/performance\n") == 1


@pytest.mark.slow
def test_a_full_run_writes_both_files(folder, monkeypatch):
    answer = {"what": "One thing.", "ratios": [Ratio("a", "b", 1.0, 2.0, "s")._asdict()]}
    monkeypatch.setattr(bench, "alone", lambda *_: answer)
    finished = CliRunner().invoke(COMMAND, [], catch_exceptions=False)
    assert finished.exit_code == 0
    record = load(bench.RECORD)
    assert record.find(benchmark="rows")["ratios"][0]["their_cost"] == 2.0
    assert bench.PAGE.read_text("utf-8") == bench.page(record)
