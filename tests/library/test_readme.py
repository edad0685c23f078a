"""The README's example runs as it stands."""

import re

from tests.books import ROOT


def test_the_example_runs(capsys):
    text = (ROOT / "README.md").read_text("utf-8")
    code, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)  # test_sampling runs the other
    exec(code, {})
    gradient, entropy, mean, best, typical, estimate = capsys.readouterr().out.splitlines()
    assert 0.98 < float(gradient) < 1.0
    assert 5.6 < float(entropy.split()[0]) < float(entropy.split()[2])
    assert abs(float(gradient) - float(mean)) < 1e-3
    assert typical.startswith("Estimate(value=np.float64(3")
    assert 20.0 < float(best) < 25.0
    assert estimate.startswith("Estimate(value=np.float64(0.99")
