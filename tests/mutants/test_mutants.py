"""The machine that plants faults: a toy library with a test that sees some of them."""

import subprocess
import sys

import pytest

from tests.books import ROOT
from tests.mutants import faults

TOY = '''"""A toy."""

LIMIT = 3


def clipped(x: int, low: int = 1) -> int:
    """Not less than 1: here nothing is a fault."""
    if x < 0:
        raise ValueError(f"x is {x - 1}, below {0}")
    return min(max(x, low), LIMIT)
'''
TEST = """
import pytest
from toy.clip import clipped

def test_clipped():
    assert [clipped(x) for x in (1, 2, 5)] == [1, 2, 3]
    with pytest.raises(ValueError, match="x is"):
        clipped(-2)
"""


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


def test_it_tells_what_no_test_sees(tmp_path):
    toy = {"toy/__init__.py": "", "toy/clip.py": TOY}
    toy |= {"toy_tests/__init__.py": "", "toy_tests/test_clip.py": TEST}
    for name, text in toy.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    command = [sys.executable, "-m", "tests.mutants", "--packages", "toy", "--tests", "toy_tests"]
    environment = {"PYTHONPATH": str(ROOT)}
    finished = subprocess.run(
        [*command, "--sample", "3", "--seed", "17", "--check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment,
    )
    *lines, total = finished.stdout.splitlines()
    # No test has x = 0. What is planted before the import, here the limit, is seen too.
    assert [line for line in lines if line.startswith("  → ")] == ["  → if x <= 0:"], lines
    assert total == "all: 2 killed, 1 survived", finished.stderr
    assert finished.returncode == 0
