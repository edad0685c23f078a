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


def in_process(seconds: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own, of one thread and without warnings.

    Where it takes more than so many seconds of the processor, or MEMORY: a line that says so.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), _limit, (seconds,)) as process:
        try:
            return process.submit(function, *arguments).result()
        except BrokenProcessPool:
            return f"not done in {seconds} s and 10 GB"


def _limit(seconds: int) -> None:
    import torch

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def error_line(name: str, error: BaseException, most: int = 100) -> str:
    """Return what an error says, after a name, in at most so many letters."""
    return " ".join(f"{name}: {error}".split())[:most]
