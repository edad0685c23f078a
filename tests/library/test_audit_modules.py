"""The audit of modules that are no models of transformers: fused and written out."""

import pytest
import torch
from torch import nn

from attnlib.auditing import audit
from tests.library.foreign import XCA

X = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(0))
MASK = torch.full((9, 9), -torch.inf).triu(1)


WAYS = [("fused", None), ("matmul", None), ("matmul", MASK), ("einsum", None)]


@pytest.mark.parametrize(("way", "mask"), WAYS)
def test_the_scale_of_a_module_is_found(way, mask):
    model = nn.Sequential(XCA(way, mask=mask), XCA(way, mask=mask))
    report = audit(model, X, expected="transformer")
    assert report.passed, report
    assert list(report.parts) == ["0", "1"]
    model[1].sharper = 2.0
    (finding,) = audit(model, X, expected="transformer").findings
    assert finding.code == "scale"
    assert finding.where == "1"
    assert finding.evidence == "2 times what was meant"


@pytest.mark.parametrize(("way", "mask"), WAYS)
def test_layers_are_compared_where_nobody_says_what_is_meant(way, mask):
    model = nn.Sequential(*(XCA(way, mask=mask) for _ in range(3)))
    report = audit(model, X)
    assert report.passed is None
    assert report.unknown[0].startswith("0: found 0.3536 (neither the configuration")
    model[2].scale = 1.0
    (finding,) = audit(model, X).findings
    assert finding.code == "layers"
    assert finding.where == "2"


def test_a_bias_does_not_matter():
    bias = torch.arange(9.0)
    assert audit(XCA(mask=bias), X, expected="transformer").passed
    (finding,) = audit(XCA(scale=1.0, mask=bias), X, expected="transformer").findings
    assert finding.code == "scale"


def test_pytorchs_own_module_and_one_without_attention():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2)
    report = audit(model.eval(), X, expected="transformer")
    assert report.passed, report
    assert len(report.parts) == 2
    with pytest.raises(RuntimeError, match="audit its attention as a callable"):
        audit(nn.Linear(32, 32), X)
