"""What fresh layers start with: the record, and the predictions as the library makes them."""

import tomllib

import pytest
import torch

from attnlib.initialisation import alpha_at_start
from attnlib.probing import probe
from attnlib.probing.measure import Call
from experiments import starts
from experiments.records import HERE, load

PREDICTED = tomllib.loads((HERE / "predictions" / "starts.toml").read_text("utf-8"))


def test_everything_is_recorded_and_was_predicted():
    assert [entry.at for entry in load("starts").entries] == [at for at, _ in starts.work()]
    assert list(PREDICTED["alpha"]) == list(starts.FAMILIES)
    assert list(PREDICTED["output"]) == list(starts.OUTPUTS)


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
