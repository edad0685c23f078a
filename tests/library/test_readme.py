"""The README's examples run as they stand."""

import re

import torch

from tests.books import ROOT


def test_the_examples_run(capsys):
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code, in_models, *_ = blocks  # test_sampling and test_probing_report run the others
    (in_a_test,) = (block for block in blocks if "assert_scale" in block)
    exec(in_a_test, {"torch": torch})
    exec(in_models, {})
    assert capsys.readouterr().out == "torch.Size([1, 16, 64])\n"
    exec(code, {})
    gradient, entropy, mean, best, typical, estimate = capsys.readouterr().out.splitlines()
    assert 0.98 < float(gradient) < 1.0
    assert 5.6 < float(entropy.split()[0]) < float(entropy.split()[2])
    assert abs(float(gradient) - float(mean)) < 1e-3
    assert typical.startswith("Estimate(value=np.float64(3")
    assert 20.0 < float(best) < 25.0
    assert estimate.startswith("Estimate(value=np.float64(0.99")
