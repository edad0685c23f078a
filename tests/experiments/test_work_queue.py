"""The queue: its order, kills, pauses, what it collects, and where its code comes from."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from attnlib import _files
from experiments import work_queue
from experiments.work_queue import PLAN, QueueError

HERE = work_queue.ROOT

PIECES = """\
[[pieces]]
recorder = "experiments.squares"
results = "../recorded/squares.jsonl"
lines = 30
hours = 0.25

[[pieces]]
recorder = "experiments.missing"
results = "../recorded/missing.jsonl"
lines = 1
hours = 0.5

[[pieces]]
recorder = "experiments.cubes"
results = "../recorded/cubes.jsonl"
lines = 1
hours = 1.0

[[cut]]
what = "fourth powers"
hours = 2.0
"""
RECORDER = """\
import time
from pathlib import Path
from attnlib import _files
OUT = Path(__file__).parent / "recorded/squares.jsonl"
def main():
    known = [line["at"] for line in _files.lines(OUT)]
    for n in range(30):
        if {"n": n} not in known:
            time.sleep(0.1)
            _files.append(OUT, {"at": {"n": n}, "square": n * n})
"""
SHORTER = RECORDER.replace("squares", "cubes").replace("30", "1")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to pause")


def git(root, *arguments):
    command = ["git", "-C", root, "-c", "user.name=x", "-c", "user.email=x@y.example", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a checkout of this code, with a plan of small pieces."""
    root = tmp_path_factory.mktemp("checkout")
    no = shutil.ignore_patterns("__pycache__", "recorded", "*.toml")
    shutil.copytree(
        HERE / "attnlib", root / "attnlib", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(HERE / "experiments", root / "experiments", ignore=no)
    plan = root / PLAN
    plan.parent.mkdir(exist_ok=True)
    plan.write_text(PIECES)
    (root / "experiments" / "squares.py").write_text(RECORDER)
    (root / "experiments" / "cubes.py").write_text(SHORTER)
    (root / ".gitignore").write_text("__pycache__\n*.lock\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    return root


@contextlib.contextmanager
def queue(root):
    """Begin the command in a checkout, and kill it at the end."""
    command = [sys.executable, "-m", "experiments", "queue"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(condition):
    end = time.monotonic() + 900.0  # a guard against waiting for ever
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def lines(root, name="squares"):
    return _files.lines(root / "experiments/recorded" / f"{name}.jsonl")


@pytest.mark.slow
def test_it_runs_in_order_survives_kills_and_collects_every_line(checkout):
    tree = work_queue.home(checkout)
    assert "not running" in work_queue.status(checkout)  # without a worktree
    with queue(checkout) as first:
        wait_until(lambda: lines(tree) or first.poll() is not None)
        assert work_queue.process(checkout).pid == first.pid
        assert psutil.Process(first.pid).nice() == 19
        work_queue.pause(checkout)
        assert "paused" in work_queue.status(checkout)
        with pytest.raises(QueueError, match="is running"):
            work_queue.prepare(checkout, at="HEAD")
        before = lines(tree)
        time.sleep(0.3)
        assert lines(tree) == before
        work_queue.pause(checkout, resume=True)
        wait_until(lambda: len(lines(tree)) > len(before) or first.poll() is not None)
    assert first.returncode == -signal.SIGKILL
    assert work_queue.process(checkout) is None

    # What was killed in the middle of a line, and a checkout with a line that the worktree lacks.
    path = tree / "experiments/recorded/squares.jsonl"
    kept, *rest = path.read_bytes().splitlines(keepends=True)
    copy = checkout / "experiments/recorded/squares.jsonl"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(kept.replace(b"0}", b"7}") + b'{"at": {"n"')
    path.write_bytes(b"".join(rest) + b'{"at": {"n": 2')
    (checkout / "experiments/cubes.py").write_text("raise SystemError")  # moved, renamed …
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "second")
    git(checkout, "checkout", "--quiet", "HEAD~1", "--", "experiments/cubes.py")

    with queue(checkout) as second:
        shown = second.communicate()[0]
    assert second.returncode == 1
    assert "experiments.missing failed: ModuleNotFoundError" in shown
    names = [line.split()[-1] for line in shown.splitlines() if line[:2].isdigit()]
    assert names == ["experiments.squares", "experiments.missing", "experiments.cubes"]
    assert sorted(line["at"]["n"] for line in lines(tree)) == list(range(30))
    assert json.loads(kept.replace(b"0}", b"7}")) in lines(tree)  # it was not made again

    assert work_queue.collect(checkout)["experiments/recorded/cubes.jsonl"] == 1
    assert work_queue.collect(checkout) == {}
    assert sorted(map(str, lines(checkout))) == sorted(map(str, lines(tree)))
    assert copy.read_bytes().endswith(b"\n")

    # Another commit: nothing is lost, wherever it lay.
    (tree / "experiments/recorded/cubes.jsonl").write_text('{"at": {"n": 4}}\n')
    work_queue.prepare(checkout, at="HEAD")
    assert git(tree, "rev-parse", "HEAD") == git(checkout, "rev-parse", "HEAD")
    assert len(lines(tree, "cubes")) == 2
    shutil.rmtree(tree)  # a new machine has the checkout only
    work_queue.prepare(checkout)
    assert lines(checkout) == lines(tree)
    last = work_queue.status(checkout).splitlines()
    assert last[1].split()[:4] == ["experiments.squares", "30", "of", "30"]
    assert last[2].split()[:5] == ["next", "experiments.missing", "0", "of", "1"]
    assert last[-2:] == ["0.5 hours of one core are left.", "cut    2.0 hours: fourth powers"]
