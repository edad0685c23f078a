"""A queue of runs that outlives whatever is moved around it: `python -m experiments queue`.

experiments/planned/queue.toml lists the pieces in their order: sweeps, which lie beside it, and
recorders, with the hours of a core that each is estimated to take; and what was cut. They run one
after the other in a git worktree of its own, `.git/queue`, at a commit that stays the same whatever
happens to the checkout: a module that is moved there does not break a run, and no record is dirty.
All runs are in one process with one thread and the lowest priority (nice 19).

    python -m experiments queue              # start, or go on, after whatever ended it
    python -m experiments queue --status     # what is done, what comes next, hours left, cut
    python -m experiments queue --pause      # free its core at once; --resume goes on
    python -m experiments queue --collect    # finished lines into this checkout, to be committed
    python -m experiments queue --at HEAD    # begin with the worktree at another commit

What is finished is a line of a file in experiments/recorded; the one run, or piece of a recorder,
that was under way begins anew. At the start the worktree takes over the lines that this checkout
has, so on another machine the queue goes on from what was committed. A worktree stays at its commit
until `--at` names another one, which is for a plan that changed: first everything is collected into
the checkout, then the worktree moves and takes it over again, so a sweep that is half done goes on
there under the new commit, which each of its records names. A piece that fails is named, and the
next one begins; the same command tries it again.

A recorder is a module with a function `main()` that adds the lines that its file lacks.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import psutil
from filelock import FileLock, Timeout

import attnlib
from attnlib import _files
from experiments import provenance
from experiments.lab.lines import key_of, writing

ROOT = Path(__file__).parents[1]
"""The checkout, or the worktree, that this code lies in."""
PLAN = Path("experiments/planned/queue.toml")
RECORDED = Path("experiments/recorded")
"""Both seen from the checkout or from the worktree."""


class QueueError(Exception):
    """What was asked for cannot be done; one line says why."""


@dataclass(frozen=True)
class Piece:
    """An entry of the plan: a sweep of `experiments/planned`, or a recorder."""

    hours: float
    """Estimated, of one core."""
    sweep: str = ""
    """The name of its file."""
    recorder: str = ""
    """The name of its module, and then `results` and `lines` are given too."""
    results: str = ""
    """The file of its lines, seen from the plan."""
    lines: int = 0
    """How many there will be."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.sweep or self.recorder


@dataclass(frozen=True)
class Cut:
    """What was not planned, for its hours."""

    what: str
    hours: float


class Plan(NamedTuple):
    """The plan: its pieces in their order, and what was cut."""

    pieces: list[Piece]
    cut: list[Cut]


@dataclass(frozen=True)
class State:
    """How far a piece is."""

    piece: Piece
    done: int
    total: int | None
    """None where it cannot be known."""
    problem: str = ""
    """Why not: learning rates that are not chosen yet, or a sweep that is wrong."""

    @property
    def hours_left(self) -> float:
        """Return the estimate of what is not done yet."""
        share = self.done / self.total if self.total else 0.0
        return self.piece.hours * max(0.0, 1.0 - share)


def plan(root: Path) -> Plan:
    """Return the plan at `root`; QueueError for a wrong one."""
    try:
        table = tomllib.loads((root / PLAN).read_text("utf-8"))
        for key in table.keys() - {"pieces", "cut"}:
            raise ValueError(f"the plan has {key}, and may have pieces and cut")
        pieces = [Piece(**piece) for piece in table["pieces"]]
        return Plan(pieces, [Cut(**cut) for cut in table.get("cut", [])])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise QueueError(f"{root / PLAN}: {error}") from error


def state(root: Path, piece: Piece) -> State:
    """Return how far a piece is by the records at `root`."""
    if piece.recorder:
        lines = keyed(results_of(root, piece))
        return State(piece, len(lines), piece.lines)
    from experiments.lab import sweep  # with torch, which takes seconds to load

    try:
        planned = sweep.read((root / PLAN).with_name(piece.sweep))
    except sweep.SweepError as error:
        return State(piece, 0, None, str(error))
    finished = keyed(planned.results)
    done = sum(setting.key in finished for setting in planned.settings)
    return State(piece, done, len(planned.settings))


def results_of(root: Path, piece: Piece) -> Path:
    """Return the file of a recorder's lines at `root`."""
    return ((root.resolve() / PLAN).parent / piece.results).resolve()


def keyed(path: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of a file by what each is known by; QueueError for a damaged one."""
    try:
        return {key_of(line): line for line in _files.lines(path)}
    except (OSError, ValueError, TypeError) as error:
        raise QueueError(f"{path} has a damaged line: {error}") from error


# --- the worktree ---------------------------------------------------------------------------------


def home(root: Path = ROOT) -> Path:
    """Return where the worktree of a checkout is, or will be."""
    folder = Path(_git(root, "rev-parse", "--git-common-dir"))
    return (root / folder / "queue").resolve()


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
    except OSError as error:
        raise QueueError(f"the queue needs git: {error}") from error
    if done.returncode:
        raise QueueError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def prepare(root: Path = ROOT, at: str | None = None) -> Path:
    """Return the worktree, made where there is none, with all lines that the checkout has.

    `at` is the commit that it moves to; a new one is at HEAD. Raises QueueError while it runs.
    """
    tree = home(root)
    with _alone(tree):
        if not (tree / ".git").exists():
            _git(root, "worktree", "prune")
            _git(root, "worktree", "add", "--force", "--detach", str(tree), at or "HEAD")
        else:
            _git(root, "worktree", "repair", str(tree))  # where the checkout has been moved
        if at:
            target = _git(root, "rev-parse", "--verify", f"{at}^{{commit}}")
            collect(root)  # everything is in the checkout before the worktree loses it
            _git(tree, "checkout", "--quiet", "--force", "--detach", target)
        (tree / RECORDED).mkdir(parents=True, exist_ok=True)
        merge_all(root, tree)
    return tree


@contextlib.contextmanager
def _alone(tree: Path) -> Iterator[None]:
    """Hold the lock of the queue; QueueError where somebody else does."""
    try:
        with FileLock(tree.with_suffix(".lock"), timeout=0):
            yield
    except Timeout:
        raise QueueError("the queue is running; --status says as which process") from None


def collect(root: Path = ROOT) -> dict[str, int]:
    """Add the worktree's finished lines to the records of the checkout.

    Returns how many were added, by file. A line of the checkout is never changed, and the queue may
    run meanwhile. Raises QueueError where a sweep is writing to the checkout's file.
    """
    tree = home(root)
    return merge_all(tree, root) if (tree / ".git").exists() else {}


def merge_all(source: Path, target: Path) -> dict[str, int]:
    """Add to the records at `target` the lines that only those at `source` have.

    Every file of lines counts, whatever the plan says: a plan that is wrong holds nothing back.
    """
    added = {}
    for path in sorted((source / RECORDED).rglob("*.jsonl")):
        file = path.relative_to(source)
        same = (target / file).exists() and (target / file).read_bytes() == path.read_bytes()
        if not same and (count := merge(path, target / file)):
            added[str(file)] = count
    return added


def merge(source: Path, target: Path) -> int:
    """Add the finished lines of `source` that `target` has not; return how many there were."""
    lines = keyed(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with writing(target):
            for key in keyed(target):
                lines.pop(key, None)
            for line in lines.values():
                _files.append(target, line)
    except Timeout:
        raise QueueError(f"a sweep is writing {target}") from None
    return len(lines)


# --- the process ----------------------------------------------------------------------------------


def start(root: Path = ROOT, at: str | None = None) -> NoReturn:
    """Become the process that runs the queue; as `prepare` where it cannot."""
    tree = prepare(root, at)
    os.chdir(tree)
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, "-m", __name__], environment)


def process(root: Path = ROOT) -> psutil.Process | None:
    """Return the process that runs the queue of a checkout; None if there is none."""
    tree = home(root)
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        runner = psutil.Process(int(tree.with_suffix(".pid").read_text()))
        if __name__ in runner.cmdline() and Path(runner.cwd()) == tree:
            return runner
    return None


def pause(root: Path = ROOT, *, resume: bool = False) -> psutil.Process:
    """Stop the queue's process where it is, or let it go on, and wait until it does.

    Raises QueueError where there is none.
    """
    runner = process(root)
    if runner is None:
        raise QueueError("the queue is not running")
    runner.resume() if resume else runner.suspend()
    while (runner.status() == psutil.STATUS_STOPPED) == resume:  # a signal takes its time
        time.sleep(0.01)
    return runner


def status(root: Path = ROOT) -> str:
    """Return what is done, what comes next, how many hours are left, and what is cut, in lines."""
    tree, runner = home(root), process(root)
    where = tree if (tree / ".git").exists() else root
    commit = _git(where, "rev-parse", "--short", "HEAD")
    doing = f"running as process {runner.pid}" if runner else "not running"
    if runner and runner.status() == psutil.STATUS_STOPPED:
        doing = f"paused as process {runner.pid}"
    lines, left, next_ = [f"The queue is {doing}, at commit {commit}."], 0.0, True
    pieces, cut = plan(where)
    for piece in pieces:
        now = state(where, piece)
        open_ = now.total is None or now.done < now.total
        mark, next_ = ("next" if next_ and open_ else ""), next_ and not open_
        left += now.hours_left
        total = "?" if now.total is None else now.total
        lines.append(
            f"{mark:4}  {piece.name:32} {now.done:4} of {total:<4} {now.hours_left:5.1f} hours left"
        )
        if now.problem:
            lines.append(f"      {now.problem}")
    lines.append(f"{left:.1f} hours of one core are left.")
    lines += [f"cut   {entry.hours:4.1f} hours: {entry.what}" for entry in cut]
    return "\n".join(lines)


def main() -> None:
    """Run the pieces of the plan in this worktree, one after the other."""
    tree = Path.cwd()
    for module in (attnlib, provenance):
        if not Path(str(module.__file__)).is_relative_to(tree):
            sys.exit(f"{module.__name__} is imported from {module.__file__}, not from {tree}")
    if "dirty" in (made_at := provenance.commit() or "dirty"):
        sys.exit(f"the code in {tree} is not that of its commit ({made_at}): queue --at COMMIT")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a run ends at once, and is begun anew
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    failed = []
    try:
        with _alone(tree):
            _files.replace(tree.with_suffix(".pid"), str(os.getpid()).encode())
            for piece in plan(tree).pieces:
                print(f"{datetime.now():%d %b %H:%M}  {piece.name}", flush=True)
                try:
                    _run(tree, piece)
                except (
                    Exception,
                    SystemExit,
                ) as error:  # one piece that fails does not hold up the others
                    failed.append(piece.name)
                    print(f"{piece.name} failed: {type(error).__name__}: {error}", flush=True)
    except QueueError as error:
        sys.exit(f"Error: {error}")
    sys.exit(f"These failed: {', '.join(failed)}" if failed else 0)


def _run(tree: Path, piece: Piece) -> None:
    if piece.recorder:
        import_module(piece.recorder).main()
    else:
        from experiments.lab import sweep

        with ThreadPoolExecutor(1) as pool:
            path = (tree / PLAN).with_name(piece.sweep)
            sweep.run_file(path, executor=pool, progress=sys.stderr.isatty())


if __name__ == "__main__":
    main()
