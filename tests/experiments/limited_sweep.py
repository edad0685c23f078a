"""Run `python -m experiments sweep FILE` in a process that gets 16 GiB of addresses and no more.

    python -m tests.experiments.limited_sweep FILE

It trains in its own process, which saves the time to load torch in another.
"""

import resource
import sys
from concurrent.futures import ThreadPoolExecutor

from experiments.__main__ import app
from experiments.lab import sweep

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))
    sweep._processes = ThreadPoolExecutor
    app(["sweep", sys.argv[1], "--workers", "1"])
