"""All sweeps of `experiments/planned` at once: many small runs share one GPU, each in its process.

A sweep whose learning rates another one chooses begins when that one has ended. Each finished run
is a line in the file of results of its sweep, as everywhere, and the same command goes on.
"""

import os
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from experiments.lab import sweep

PLANNED = Path(__file__).parents[1] / "planned"


def planned() -> list[Path]:
    """Return the files of the plan that say `device = "cuda"`, those that choose rates first."""
    files = [path for path in sorted(PLANNED.glob("*.toml")) if path.stem != "queue"]
    on_gpu = [path for path in files if _table(path).get("training", {}).get("device") == "cuda"]
    return sorted(on_gpu, key=lambda path: "rates" in _table(path))


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


def go(files: Sequence[Path], workers: int, end: float, say: Callable[[str], None]) -> int:
    """Run sweeps by so many processes until time.monotonic() is `end`; return how many failed.

    What has not ended by then is given up with its processes.
    """
    ended = {path: threading.Event() for path in files}
    problems: dict[Path, str] = {}
    start = time.monotonic()

    def run(path: Path, pool: Executor) -> None:
        try:
            chosen_by = path.parent / _table(path).get("rates", "")
            if chosen_by in ended:
                ended[chosen_by].wait()
            count = len(sweep.run_file(path, executor=pool))
            say(f"{path.stem}: {count} runs, {time.monotonic() - start:.0f} s")
        except (sweep.SweepError, OSError) as error:
            problems[path] = str(error)
            say(f"{path.stem}: {error}")
        finally:
            ended[path].set()

    pool = sweep.processes(workers)
    for path in files:
        threading.Thread(target=run, args=(path, pool), daemon=True).start()
    for event in ended.values():
        event.wait(max(0.0, end - time.monotonic()))
    left = [path.stem for path, event in ended.items() if not event.is_set()]
    if left:
        say(f"given up, the time is over: {', '.join(left)}")
        for process in list((pool._processes or {}).values()):
            process.kill()
        os._exit(1)
    pool.shutdown()
    return len(problems)
