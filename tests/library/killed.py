"""Statistics that workers import, one of which kills its own worker half-way."""

import os
import signal
from pathlib import Path

import numpy as np

CALLS = [0]


def three_numbers(s):
    return np.stack([s[:, 0], s.max(axis=-1), np.exp(s).sum(axis=-1)], axis=-1)


def three_numbers_after_a_death(s, folder, call):
    """Return `three_numbers`; the first process to come to its call number `call` dies there."""
    CALLS[0] += 1
    if CALLS[0] == call:
        try:
            with Path(folder, "killed").open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return three_numbers(s)
