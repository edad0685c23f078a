"""The sweeps that share a GPU, here with processes of the CPU."""

import time

from experiments.gpu import sweeps
from experiments.lab import results

COMMON = """
corpus = "embedded"
[model]
width = 8
depth = 1
head_size = 4
sequence = 16
[training]
steps = 20
validation_windows = 2
"""
RATES = 'results = "rates.jsonl"\nseeds = [1]\nwiden = "final_loss"\n'
JUDGED = 'results = "judged.jsonl"\nseeds = [2]\nrates = "rates.toml"\n'
GRID = "[grid]\nlearning_rate = [0.002, 0.004]\n"


def test_a_sweep_waits_for_its_rates_and_a_failure_is_counted(tmp_path, capsys):
    texts = {"rates": RATES + COMMON + GRID, "judged": JUDGED + COMMON, "wrong": "seeds = []\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text + "[variants.one]\nalpha = 2.0\n")
    files = [tmp_path / f"{name}.toml" for name in ("judged", "wrong", "rates")]
    assert sweeps.go(files, 1, time.monotonic() + 300.0, print) == 1
    assert "wrong.toml: there must be a key" in capsys.readouterr().out
    (run,) = results.read(tmp_path / "judged.jsonl").values()
    rates = results.read(tmp_path / "rates.jsonl").values()
    best = min(rates, key=lambda line: line["final_loss"])
    assert run["training"]["learning_rate"] == best["training"]["learning_rate"]
