"""The faults that are planted: of a line, and of a module."""

import pytest

from tests.books import ROOT
from tests.mutants import faults


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("a + b * c  # a*b", {"a - b * c  # a*b", "a + b / c  # a*b"}),
        ("x = 1e-9", {"x = 2e-09"}),
        ("x += y", {"pass", "x -= y"}),
        (
            "y = np.min(x, axis=0)",
            {"y = np.max(x, axis=0)", "y = np.min(x)", "y = np.min(x, axis=1)"},
        ),
        ("f(k=True)", {"pass", "f(k=False)", "f()"}),
        ("if a <= 3: b", {"if a < 3: b", "if a <= 4: b", "if (not (a <= 3)): b"}),
        ("warn('n + 1')", {"pass"}),
        ("raise E(n + 1)", {"pass"}),
        ("@f(1)\ndef g(x: T[2] = 3) -> 4: '5'", {"@f(1)\ndef g(x: T[2] = 4) -> 4: '5'"}),
    ],
)
def test_the_faults_of_a_line(line, after, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(line, "utf-8")
    assert {mutant.source for mutant in faults.of(path, "module")} == after


def test_a_module_with_a_fault_is_still_python_and_another_one():
    mutants = faults.of(ROOT / "attnlib" / "rules.py", "attnlib.rules")
    assert len({mutant.source for mutant in mutants}) == len(mutants) > 50
    for mutant in mutants:
        compile(mutant.source, "", "exec")
        assert mutant.before != mutant.after
