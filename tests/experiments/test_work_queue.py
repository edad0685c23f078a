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

from experiments import work_queue
from experiments.lab import results, sweep
from experiments.work_queue import PLAN, QueueError

HERE = work_queue.ROOT

SWEEP = """\
results = "../recorded/training/{name}.jsonl"
corpus = "embedded"
{more}

[model]
width = 8
head_size = 4
depth = 1
sequence = 16

[training]
batch = 2
steps = {steps}
validation_windows = 10
losses_every = 20
"""
RATES = 'seeds = [5]\nwiden = "final_loss"\n[grid]\nlearning_rate = [0.02, 0.01]'
PIECES = """\
[[pieces]]
sweep = "rates.toml"
hours = 0.5

[[pieces]]
recorder = "experiments.squares"
results = "../recorded/squares.jsonl"
lines = 3
hours = 0.25

[[pieces]]
sweep = "broken.toml"
hours = 0.0

[[pieces]]
sweep = "judged.toml"
hours = 1.0
"""
RECORDER = """\
from pathlib import Path
from attnlib import files
OUT = Path(__file__).parent / "recorded/squares.jsonl"
def main():
    known = [line["at"] for line in files.lines(OUT)]
    for n in (1, 2, 3):
        if {"n": n} not in known:
            files.append(OUT, {"at": {"n": n}, "square": n * n})
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to pause")


def git(root, *arguments):
    command = ["git", "-C", root, "-c", "user.name=x", "-c", "user.email=x@y.example", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a checkout of this code, with a plan of small pieces."""
    root = tmp_path_factory.mktemp("checkout")
    no = shutil.ignore_patterns("__pycache__", "recorded", "*.toml")
    pycache = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE / "attnlib", root / "attnlib", ignore=pycache)
    shutil.copytree(HERE / "experiments", root / "experiments", ignore=no)
    plan = root / PLAN
    plan.parent.mkdir(exist_ok=True)
    plan.write_text(PIECES)
    plan.with_name("rates.toml").write_text(SWEEP.format(name="rates", more=RATES, steps=20))
    plan.with_name("broken.toml").write_text('results = "../recorded/training/broken.jsonl"')
    more = 'seeds = [0, 1, 2, 3]\nrates = "rates.toml"'
    plan.with_name("judged.toml").write_text(SWEEP.format(name="judged", more=more, steps=200))
    (root / "experiments" / "squares.py").write_text(RECORDER)
    (root / ".gitignore").write_text("__pycache__\n*.lock\n")
    (root / "experiments" / "lab" / "__init__.py").touch()
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


def lines(root, name):
    return results.read(root / "experiments/recorded" / name)


def test_it_runs_in_order_survives_kills_and_collects_every_line(checkout):
    tree = work_queue.home(checkout)
    assert "not running" in work_queue.status(checkout)  # without a worktree
    judged = "training/judged.jsonl"
    with queue(checkout) as first:
        wait_until(lambda: lines(tree, judged) or first.poll() is not None)
        assert work_queue.process(checkout).pid == first.pid
        assert psutil.Process(first.pid).nice() == 19
        work_queue.pause(checkout)
        assert "paused" in work_queue.status(checkout)
        with pytest.raises(QueueError, match="is running"):
            work_queue.prepare(checkout, at="HEAD")
        before = lines(tree, judged)
        spent = psutil.Process(first.pid).cpu_times().user
        time.sleep(0.3)
        assert psutil.Process(first.pid).cpu_times().user - spent <= 0.02
        assert lines(tree, judged) == before
        work_queue.pause(checkout, resume=True)
        wait_until(lambda: len(lines(tree, judged)) > len(before) or first.poll() is not None)
    assert first.returncode == -signal.SIGKILL
    assert work_queue.process(checkout) is None

    # What was killed in the middle of a line, and a checkout with a line that the worktree lacks.
    path = tree / "experiments/recorded" / judged
    whole = path.read_bytes()
    kept = json.loads(whole.splitlines()[0])
    copy = checkout / "experiments/recorded" / judged
    copy.parent.mkdir(parents=True)
    copy.write_bytes(whole.splitlines(keepends=True)[0] + whole[:20])
    path.write_bytes(whole[len(whole.splitlines(keepends=True)[0]) :] + b'{"model": {"wid')
    (checkout / "experiments/lab/sweep.py").write_text("raise SystemError")  # moved, renamed …
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "second")
    git(checkout, "checkout", "--quiet", "HEAD~1", "--", "experiments/lab/sweep.py")

    with queue(checkout) as second:
        shown = second.communicate()[0]
    assert second.returncode == 1
    assert "broken.toml failed: SweepError" in shown
    names = [line.split()[-1] for line in shown.splitlines() if line[:2].isdigit()]
    assert names == ["rates.toml", "experiments.squares", "broken.toml", "judged.toml"]
    rates = sweep.read(tree / PLAN.parent / "rates.toml")
    judging = sweep.read(tree / PLAN.parent / "judged.toml")
    [best] = sweep.best_rates(rates).values()
    assert {one.training.learning_rate for one in judging.settings} == {best}
    assert len(lines(tree, judged)) == 4
    assert kept in lines(tree, judged).values()
    commit = git(checkout, "rev-parse", "HEAD~1")
    assert {line["made"]["commit"] for line in lines(tree, judged).values()} == {commit}

    assert work_queue.collect(checkout)["experiments/recorded/squares.jsonl"] == 3
    assert work_queue.collect(checkout) == {}
    assert lines(checkout, judged) == lines(tree, judged)
    assert copy.read_bytes().endswith(b"\n")

    # Another commit: nothing is lost, wherever it lay.
    (tree / "experiments/recorded/squares.jsonl").write_text('{"at": {"n": 4}}\n')
    work_queue.prepare(checkout, at="HEAD")
    assert git(tree, "rev-parse", "HEAD") == git(checkout, "rev-parse", "HEAD")
    assert len(lines(tree, "squares.jsonl")) == 4
    assert lines(checkout, judged) == lines(tree, judged)
    shutil.rmtree(tree)  # a new machine has the checkout only
    work_queue.prepare(checkout)
    assert lines(checkout, judged) == lines(tree, judged)
    last = work_queue.status(checkout).splitlines()
    count = str(len(rates.settings))
    assert last[1].split()[:4] == ["rates.toml", count, "of", count]
    assert last[3].split()[:5] == ["next", "broken.toml", "0", "of", "?"]
    assert last[-1] == "0.0 hours of one core are left."
