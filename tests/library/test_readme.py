"""The README's example runs as it stands."""

import re

from tests.books import ROOT


def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    exec(code, {})
    gradient, entropy, best = capsys.readouterr().out.splitlines()
    assert 0.98 < float(gradient) < 1.0
    assert 5.6 < float(entropy.split()[0]) < float(entropy.split()[2])
    assert 20.0 < float(best) < 25.0
