"""What fresh layers start with: the record, and the predictions as the library makes them."""

import tomllib

import pytest
import torch

from attnlib.probing import probe
from attnlib.probing.measure import Call
from experiments import starts
from experiments.records import HERE, load

PREDICTED = tomllib.loads((HERE / "predictions" / "starts.toml").read_text("utf-8"))


def test_everything_is_recorded_and_was_predicted():
    assert [entry.key for entry in load("starts").entries] == [at for at, _ in starts.work()]
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
