"""The audit of modules that are no models of transformers: fused and written out."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from attnlib.auditing import audit

X = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(0))
MASK = torch.full((9, 9), -torch.inf).triu(1)


class Layer(nn.Module):
    """Attention of four heads of 8, fused or written out in one of several ways."""

    def __init__(self, way="fused", scale=None, before=1.0):
        super().__init__()
        self.qkv, self.way, self.scale, self.before = nn.Linear(32, 96), way, scale, before

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        q, scale = q * self.before, 8**-0.5 if self.scale is None else self.scale
        if self.way == "fused":
            out = functional.scaled_dot_product_attention(q, k, v, scale=self.scale)
        else:
            product = {
                "matmul": lambda: q @ k.mT * scale,
                "masked": lambda: q @ k.mT * scale + MASK,
                "einsum": lambda: torch.einsum("bhid,bhjd->bhij", q, k) * scale,
                "biased": lambda: q @ k.mT * scale + torch.arange(9.0),
            }[self.way]()
            out = product.softmax(-1) @ v
        return x + out.transpose(1, 2).flatten(2)


WAYS = ("fused", "matmul", "masked", "einsum")


@pytest.mark.parametrize("way", WAYS)
def test_the_scale_of_a_module_is_found(way):
    model = nn.Sequential(Layer(way), Layer(way))
    report = audit(model, X, expected="transformer")
    assert report.passed, report
    assert list(report.parts) == ["0", "1"]
    model[1].before = 2.0
    (finding,) = audit(model, X, expected="transformer").findings
    assert finding.code == "scale"
    assert finding.where == "1"
    assert finding.evidence == "2 times what was meant"


@pytest.mark.parametrize("way", WAYS)
def test_layers_are_compared_where_nobody_says_what_is_meant(way):
    model = nn.Sequential(*(Layer(way) for _ in range(3)))
    report = audit(model, X)
    assert report.passed is None
    assert report.unknown[0].startswith("0: found 0.3536 (neither the configuration")
    model[2].scale = 1.0
    (finding,) = audit(model, X).findings
    assert finding.code == "layers"
    assert finding.where == "2"


def test_a_bias_does_not_matter():
    assert audit(Layer("biased"), X, expected="transformer").passed
    (finding,) = audit(Layer("biased", scale=1.0), X, expected="transformer").findings
    assert finding.code == "scale"


def test_pytorchs_own_module_and_one_without_attention():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2)
    report = audit(model.eval(), X, expected="transformer")
    assert report.passed, report
    assert len(report.parts) == 2
    with pytest.raises(RuntimeError, match="audit its attention as a callable"):
        audit(nn.Linear(32, 32), X)
