"""What fresh layers start with: the record, and the predictions as the library makes them."""

import tomllib

import numpy as np
import pytest
import torch

from attnlib import exact
from attnlib.initialisation import alpha_at_start, self_attention_variance
from attnlib.probing import probe
from attnlib.probing.measure import Call
from attnlib.scores import DotProduct
from experiments import starts
from experiments.records import HERE, load

PREDICTED = tomllib.loads((HERE / "predictions" / "starts.toml").read_text("utf-8"))
FACTORS = {"Gemma 2 27B": (128 / 144) ** 0.5, "Granite 2B": 1 / 8}
"""Scales that are not 1/√d, times √d."""

BLOCKS = {
    "nn.TransformerEncoderLayer": (0.5, 512, 64, None),
    "T5 small": (1.0, 512, 64, None),
    "GPT-2": (0.3072, 768, 64, None),
    "Qwen3 0.6B": (1.0, 1024, 128, 1e6),
    "Llama 7B": (1.6384, 4096, 128, 1e4),
}


def test_everything_is_recorded_and_was_predicted():
    assert [entry.at for entry in load("starts").entries] == [at for at, _ in starts.work()]
    assert list(PREDICTED["alpha"]) == list(starts.FAMILIES)
    assert list(PREDICTED["output"]) == list(BLOCKS) == list(starts.OUTPUTS)


def test_the_numbers_are_those_of_the_text_that_predicted_them():
    text = (HERE / "predictions" / "starts.md").read_text("utf-8")
    table = [line.strip("| ").split(" | ") for line in text.splitlines()]
    alphas = {}
    for row in table:
        if len(row) == 8 and row[2].isdigit():
            family, _, width, _, _, random, own, _ = row
            alphas[family] = {"width": int(width), "random": float(random)}
            if own != "–":
                alphas[family]["own_below" if "below" in own else "own"] = float(own.split()[-1])
    assert alphas == {
        family: {name: number for name, number in row.items() if name != "law"}
        for family, row in PREDICTED["alpha"].items()
    }
    ends = [row[-4:] for row in table if len(row) in (4, 6) and row[-4].isdigit()]
    numbers = [row for rows in PREDICTED["output"].values() for row in rows]
    assert [[float(cell) for cell in row if cell != "–"] for row in ends] == [
        list(row.values()) for row in numbers
    ]


@pytest.mark.parametrize("family", [name for name, at in PREDICTED["alpha"].items() if "law" in at])
def test_what_was_written_is_what_the_library_says(family):
    numbers = PREDICTED["alpha"][family]
    alpha = alpha_at_start(numbers["width"], numbers["law"]) * FACTORS.get(family, 1.0)
    assert numbers["random"] == pytest.approx(alpha, abs=6e-4)


@pytest.mark.parametrize("family", BLOCKS)
def test_outputs_are_those_of_the_library(family):
    alpha, width, d, base = BLOCKS[family]
    for row in PREDICTED["output"][family]:
        n = row["n"]
        of_self = float(self_attention_variance(alpha, n, width, d))
        assert row["plain"] == pytest.approx(of_self, rel=0.015)
        assert ("turned" in row) == (base is not None)
        if base is not None:
            # Positions turn u: what keys and values share is as much as its mean is long.
            angles = base ** (-np.arange(0, d, 2) / d)
            kept = np.abs(np.exp(1j * np.arange(n)[:, None] * angles).mean(axis=0)) ** 2
            along = float(exact.mean_score(DotProduct(d), alpha, n)) ** 2 / width
            turned = of_self - (1.0 - kept.mean()) * along
            assert row["turned"] == pytest.approx(turned, rel=0.015)


def test_a_layer_is_measured_as_the_probe_measures_it():
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(1, starts.ROWS, 32)
    with torch.no_grad(), probe(layer, theory=False) as report:
        layer(x, x, x)
    q, k = (x @ weight.T for weight in layer.in_proj_weight.detach().split(32)[:2])
    q, k, v = (t.view(1, -1, 4, 8).transpose(1, 2) for t in (q, k, x))
    weights = torch.softmax(q @ k.mT / 8**0.5, dim=-1)
    found = starts.squares(Call(q, k, v), weights @ v)
    assert found["alpha"] == pytest.approx((report.table().alpha ** 2).mean(), rel=1e-4)
    square = v.square().mean()
    assert found["output"] == pytest.approx(float((weights @ v).square().mean() / square), rel=1e-4)
    assert found["mean"] == pytest.approx(float(v.mean(dim=2).square().mean() / square), rel=1e-4)


def test_a_fresh_model_reads_random_tokens_or_its_own_and_the_same_twice(monkeypatch):
    sizes = {"hidden_size": 64, "num_attention_heads": 4}
    monkeypatch.setitem(starts.FAMILIES, "BERT", ["Bert", sizes])
    monkeypatch.setitem(starts.FAMILIES, "Gemma 2 2B", ["Gemma2", {**sizes, "head_dim": 16}])
    for family in ("BERT", "Gemma 2 2B"):
        [random], [own] = (starts.measured(family, 128, own, 1, 0) for own in (False, True))
        assert starts.measured(family, 128, False, 1, 0) == [random]
        assert random != own
    [random], [own] = (starts.layers_of("BERT", 128, own) for own in (False, True))
    assert random["alpha"]["value"] == pytest.approx(alpha_at_start(64, "normal"), rel=0.1)
    assert own["alpha"]["value"] < 0.9 * random["alpha"]["value"]
    assert own["mean"]["value"] ** 2 == pytest.approx(1 / 3, rel=0.1)
