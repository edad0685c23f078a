"""The census: the number that multiplies q·k in every family of transformers."""

import multiprocessing
import resource
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

MEMORY = 10 << 30
"""Bytes for each family."""


def run_limited(seconds: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in a process of its own, of one thread and without warnings.

    Return its result, or if it takes more than so many seconds of the processor, or MEMORY, a line
    that says so.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), _limit, (seconds,)) as process:
        try:
            return process.submit(function, *arguments).result()
        except BrokenProcessPool:
            return f"not done in {seconds} s and 10 GB"


def _limit(seconds: int) -> None:
    """Limit this process in time, memory and threads, and silence warnings."""
    import torch

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def error_line(name: str, error: BaseException, most: int = 100) -> str:
    """Return a name and the text of an error as one line of at most `most` letters."""
    return " ".join(f"{name}: {error}".split())[:most]
