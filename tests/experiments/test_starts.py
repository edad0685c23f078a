"""What fresh layers start with is measured as the probe measures it."""

import pytest
import torch

from attnlib.probing import probe
from attnlib.probing.measure import Call
from experiments import starts


def test_a_layer_is_measured_as_the_probe_measures_it():
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(1, starts.ROWS, 32)
    with torch.no_grad(), probe(layer, theory=False) as report:
        layer(x, x, x)
    q, k = (x @ weight.T for weight in layer.in_proj_weight.detach().split(32)[:2])
    q, k, v = (t.view(1, -1, 4, 8).transpose(1, 2) for t in (q, k, x))
    weights = torch.softmax(q @ k.mT / 8**0.5, dim=-1)
    parts = starts.squares(Call(q, k, v), weights @ v)
    assert parts["alpha"] == pytest.approx((report.table().alpha ** 2).mean(), rel=1e-4)
    square = v.square().mean()
    assert parts["output"] == pytest.approx(float((weights @ v).square().mean() / square), rel=1e-4)
    assert parts["mean"] == pytest.approx(float(v.mean(dim=2).square().mean() / square), rel=1e-4)
