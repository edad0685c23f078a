"""Start a sweep twice at once, again and again, and kill both with -9 at random, but the last.

    python -m tests.experiments.killed_sweep FILE KILLS SECONDS

SECONDS are the longest that the first start gets. The processes that are killed are forks, so that
torch is loaded and warm in all. Before them, one is killed between writing a result and putting it
in its place. Prints how many starts were killed before their end, and how many results there were
after the last kill.
"""

import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from experiments.lab import sweep
from experiments.lab.model import Config, Transformer


def warm_up():
    """Do what is slow the first time, except a backward pass: a fork could do none after it."""
    model = Transformer(Config(width=8, head_size=4, depth=1, sequence=16))
    torch.optim.Adam(model.parameters(), fused=True)
    with torch.no_grad():
        model(torch.zeros(1, 16, dtype=torch.long))


def start(file, before=lambda: None):
    """Return the process that runs the sweep."""
    process = os.fork()
    if process == 0:
        before()
        with ThreadPoolExecutor(1) as pool:
            sweep.run(sweep.read(file), executor=pool)
        os._exit(0)
    return process


def killed_while_writing():
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def results(file):
    folder = sweep.read(file).results
    return {path.name: path.read_bytes() for path in folder.glob("*.json")}


def main(file, kills, seconds):
    warm_up()
    os.waitpid(start(file, killed_while_writing), 0)
    assert results(file) == {}
    assert list(sweep.read(file).results.rglob(".*.part"))
    clock, killed = random.Random(0), 0
    for _ in range(kills // 2):
        before = results(file)
        processes = [start(file) for _ in range(2)]
        for process in processes:
            time.sleep(clock.uniform(0.0, seconds))
            os.kill(process, signal.SIGKILL)
            killed += os.waitpid(process, 0)[1] == signal.SIGKILL
        after = results(file)
        assert before.items() <= after.items()
        # However busy the machine is, a start should finish about one run.
        seconds *= {0: 1.3, 1: 1.0, 2: 1.0}.get(len(after) - len(before), 0.5)
    kept = len(results(file))
    for process in [start(file) for _ in range(2)]:
        assert os.waitpid(process, 0)[1] == 0
    print(killed, kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
