"""The machine that plants faults: a toy library with a test that sees some of them."""

import subprocess
import sys
from collections import Counter

import pytest

from tests.books import ROOT
from tests.mutants import __main__ as machine
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
        ("a is not None", {"a is None"}),
        ("a + b * c  # a*b", {"a - b * c  # a*b", "a + b / c  # a*b"}),
        ("x = 0.5", {"x = 0.55"}),
        ("x = 1e-9", {"x = 2e-09"}),
        ("x += y", {"pass", "x -= y"}),
        ("not (a and b)", {" (a and b)", "not (a or b)"}),
        (
            "y = np.min(x, axis=0)",
            {"y = np.max(x, axis=0)", "y = np.min(x)", "y = np.min(x, axis=1)"},
        ),
        ("f(k=True)", {"pass", "f(k=False)", "f()"}),
        ("y[0] = -x", {"pass", "y[1] = -x", "y[0] = x"}),
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
    lines = finished.stdout.splitlines()
    # No test has x = 0. What is planted before the import, here the limit, is seen too.
    assert [line for line in lines if line.startswith("  → ")] == ["  → if x <= 0:"], lines
    assert lines[-1].split() == ["all", "2", "0", "1", "0"], finished.stderr
    assert finished.returncode == 0


def test_a_sample_may_be_worse_than_the_aim_by_chance():
    assert machine.enough({"toy": Counter(killed=36, timeout=1, survived=3, equivalent=9)})
    assert not machine.enough({"toy": Counter(killed=34, survived=6)})


def test_every_fault_that_is_called_equivalent_has_a_reason():
    assert all(len(why) >= 20 for _, why, _ in machine.entries())


def test_what_is_no_fault_any_more_is_pruned(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text("x = 3", "utf-8")
    entry = '[[equivalent]]\nmodule = "toy"\nwithin = ""\nbefore = "x = {}"\n'
    entry += 'after = ["x = 4"]\nwhy = ""\n'
    monkeypatch.setattr(machine, "EQUIVALENT", tmp_path / "equivalent.toml")
    machine.EQUIVALENT.write_text("# Head.\n" + entry.format(2) + "\n" + entry.format(3), "utf-8")
    machine.prune(faults.of(tmp_path / "toy.py", "toy"))
    assert machine.EQUIVALENT.read_text("utf-8") == "# Head.\n" + entry.format(3)
