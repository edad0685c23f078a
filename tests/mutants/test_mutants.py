"""The machine that plants faults: a toy library with a test that sees some of them."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.books import ROOT
from tests.mutants import __main__ as machine
from tests.mutants import faults, forks

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


def found(text, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(text, "utf-8")
    return faults.of(path, "module")


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("a <= b", {"a < b"}),
        ("a is not None", {"a is None"}),
        ("a + b * c  # a*b", {"a - b * c  # a*b", "a + b / c  # a*b"}),
        ("x = 3", {"x = 4"}),
        ("x = 0.5", {"x = 0.55"}),
        ("x = 1e-9", {"x = 2e-09"}),
        ("x = 1e8", {"x = 10000.0"}),
        ("x += y", {"pass", "x -= y"}),
        ("not (a and b)", {" (a and b)", "not (a or b)"}),
        ("sum(x, axis=0)", {"pass", "sum(x)", "sum(x, axis=1)"}),
        ("y = np.min(x)", {"y = np.max(x)"}),
        ("f(k=True)", {"pass", "f(k=False)", "f()"}),
        ("y[0] = -x", {"pass", "y[1] = -x", "y[0] = x"}),
        ("if a: b", {"if (not (a)): b"}),
        ("y = [x for x in z if x]", {"y = [x for x in z if (not (x))]"}),
        ("warn('n + 1')", {"pass"}),
        ("raise E(n + 1)", {"pass"}),
        ("x: Literal[1] = y", set()),
        ("@f(1)\ndef g(x: T[2] = 3) -> 4: '5'", {"@f(1)\ndef g(x: T[2] = 4) -> 4: '5'"}),
    ],
)
def test_the_faults_of_a_line(line, after, tmp_path):
    assert {mutant.source for mutant in found(line, tmp_path)} == after


def test_a_module_with_a_fault_is_still_python_and_another_one():
    path = ROOT / "attnlib" / "rules.py"
    mutants = faults.of(path, "attnlib.rules")
    assert len({mutant.source for mutant in mutants}) == len(mutants) > 100
    for mutant in mutants:
        compile(mutant.source, "", "exec")
        assert mutant.before != mutant.after


def run(folder, *options):
    command = [sys.executable, "-m", "tests.mutants", "--package", "toy", "--tests", "toy_tests"]
    finished = subprocess.run(
        [*command, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def results(folder):
    lines = (folder / "_build/mutants/results.jsonl").read_text("utf-8").split("\n")
    return [json.loads(line) for line in lines if line.endswith("}")]


def survivors(output):
    return {line.removeprefix("  → ") for line in output.splitlines() if line.startswith("  → ")}


def test_it_tells_what_no_test_sees_and_goes_on_from_there(tmp_path):
    toy = {"toy/__init__.py": "STEP = 2", "toy/clip.py": TOY, "toy_tests/test_clip.py": TEST}
    toy["toy_tests/test_toy.py"] = "import toy\n\ndef test_step():\n    assert toy.STEP == 2\n"
    for name, text in toy.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    # No test has x = 0. What is planted before the import (the limit, the default) is seen too.
    unseen = {"if x <= 0:", "if x < 1:"}
    assert survivors(run(tmp_path)) == unseen
    first = results(tmp_path)
    assert Counter(one["status"] for one in first) == {"killed": 8, "survived": 2}
    path = tmp_path / "_build/mutants/results.jsonl"
    path.write_text(path.read_text("utf-8")[:-9], "utf-8")  # killed while writing
    with (tmp_path / "toy_tests/test_clip.py").open("a", encoding="utf-8") as file:
        file.write("    assert clipped(0) == 1\n")
    again = 2 + (first[-1]["status"] == "killed")
    assert survivors(run(tmp_path)) == set()
    assert len(results(tmp_path)) == len(first) - 1 + again


def forked(work, seconds=1.0):
    ((name, answer),) = forks.run(iter([("it", work, seconds)]), 1)
    assert name == "it"
    return answer


def test_a_fork_answers_loops_or_dies():
    def loop():
        while True:
            pass

    assert forked(lambda: [1, None]) == [1, None]
    assert forked(loop, 0.1) == "timeout"
    assert forked(lambda: time.sleep(60), 0.05) == "timeout"
    assert forked(lambda: 1 / 0) == "died: ZeroDivisionError('division by zero')"
    assert forked(lambda: os._exit(3)) == "died"


def test_a_sample_is_held_against_what_is_recorded():
    recorded = {"toy": Counter(killed=98, tried=104, survived=2, equivalent=4)}

    def sample(caught, of):
        return {"toy": Counter(killed=caught, survived=of - caught, tried=of)}

    assert not machine.worse(sample(40, 40), recorded)
    assert not machine.worse(sample(37, 40), recorded)
    assert machine.worse(sample(34, 40), recorded)
    assert not machine.worse({"other": Counter(tried=9, survived=9)}, recorded)


def test_what_is_argued_equivalent_is_a_fault_of_the_library_and_has_a_reason():
    argued = machine.equivalents(machine.HERE / "equivalent.toml")
    for module in {name[0] for name in argued}:
        path = ROOT / Path(*module.split(".")).with_suffix(".py")
        names = {mutant.name for mutant in faults.of(path, module)}
        assert {name for name in argued if name[0] == module} <= names
    assert all(len(why) >= 20 for why in argued.values())


def test_what_is_recorded_is_enough():
    recorded = json.loads((machine.HERE / "scores.json").read_text("utf-8"))
    scores = {module: machine.score(Counter(count)) for module, count in recorded.items()}
    caught, of = map(sum, zip(*scores.values(), strict=True))
    assert caught >= 0.97 * of
    for module, (caught, of) in scores.items():
        assert caught >= 0.93 * of > 0, module
