"""The page of ratios: what is recorded, of every benchmark, and nothing older."""

from experiments.benchmarks import __main__ as bench
from experiments.records import load


def test_every_benchmark_is_recorded_and_the_page_shows_it():
    record = load("benchmarks")
    assert [entry.key["benchmark"] for entry in record.entries] == list(bench.BENCHMARKS)
    assert all(entry.result["ratios"] for entry in record.entries)
    assert bench.PAGE.read_text("utf-8") == bench.page(record)
