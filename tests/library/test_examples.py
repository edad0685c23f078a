"""The examples on the library's pages run as they stand."""

import torch

from tests.paths import examples


def test_the_examples_run(capsys):
    in_models, _, in_a_test = examples("models")  # the second needs a model
    exec(in_a_test, {"torch": torch})
    exec(in_models, {})
    assert capsys.readouterr().out == "torch.Size([1, 16, 64])\n"
    (code,) = examples("laws")
    exec(code, {})
    gradient, entropy, mean, best, typical, estimate = capsys.readouterr().out.splitlines()
    assert 0.98 < float(gradient) < 1.0
    assert 5.6 < float(entropy.split()[0]) < float(entropy.split()[2])
    assert abs(float(gradient) - float(mean)) < 1e-3
    assert typical.startswith("Estimate(value=np.float64(3")
    assert 20.0 < float(best) < 25.0
    assert estimate.startswith("Estimate(value=np.float64(0.99")
