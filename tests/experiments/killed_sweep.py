"""Start a sweep again and again and kill it with -9 at random, and then let one go to its end.

    python -m tests.experiments.killed_sweep FILE KILLS SECONDS

SECONDS are the longest that the first start gets. The processes that are killed are forks, so that
torch is loaded and warm in all. The first is killed when it has written half of a line. Prints how
many starts were killed before their end, and how many runs were finished after the last kill.
"""

import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from experiments.lab import results, sweep
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


def killed_in_the_second_line():
    whole = results.append

    def half(path, table):
        if path.read_bytes():
            with path.open("ab") as file:
                file.write(b'{"model": {"width": 8, "de')
            os.kill(os.getpid(), signal.SIGKILL)
        whole(path, table)

    results.append = half


def main(file, kills, seconds):
    warm_up()
    path = sweep.read(file).results
    os.waitpid(start(file, killed_in_the_second_line), 0)
    assert len(results.read(path)) == 1
    assert not path.read_bytes().endswith(b"\n")
    clock, killed = random.Random(0), 0
    for _ in range(kills):
        before = results.read(path)
        process = start(file)
        time.sleep(clock.uniform(0.0, seconds))
        os.kill(process, signal.SIGKILL)
        killed += os.waitpid(process, 0)[1] == signal.SIGKILL
        after = results.read(path)
        assert before.items() <= after.items()
        # However busy the machine is, a start should finish about one run.
        seconds *= {0: 1.3, 1: 1.0, 2: 1.0}.get(len(after) - len(before), 0.5)
    kept = len(results.read(path))
    assert os.waitpid(start(file), 0)[1] == 0
    print(killed, kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
