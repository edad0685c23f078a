"""Tasks in forks of this process, some at a time, each with a limit that ends it."""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Name = TypeVar("Name")

WAITING = 20.0
"""How much longer than its processor time a task may take by the clock: machines are busy."""


def processor_time() -> float:
    """Return the seconds that this process and those that it waited for have worked."""
    return sum(os.times()[:4])


def run(
    tasks: Iterator[tuple[Name, Callable[[], Any], float]], processes: int
) -> Iterator[tuple[Name, Any]]:
    """Run tasks (a name, the work, seconds of processor time), and yield each name and answer.

    An answer is what JSON can say, "timeout" for a task that was stopped, "died", or that with an
    error.
    """
    gc.freeze()  # a collection would touch, and so copy, every page that the forks share
    running: dict[int, tuple[Name, int, float]] = {}
    try:
        while True:
            while len(running) < processes and (task := next(tasks, None)):
                name, work, seconds = task
                reading, writing = os.pipe()
                child = os.fork()
                if child == 0:
                    _work(work, seconds, writing)
                os.close(writing)
                running[reading] = name, child, time.monotonic() + WAITING * seconds
            if not running:
                return
            ready, _, _ = select.select(list(running), [], [], 1.0)
            late = {pipe for pipe, (_, _, end) in running.items() if time.monotonic() > end}
            for pipe in {*ready} | late:
                name, child, _ = running.pop(pipe)
                if pipe not in ready:
                    _kill(child)
                with open(pipe) as stream:
                    answer = stream.read()
                _, status = os.waitpid(child, 0)
                _kill(child)  # what the task has left running
                stopped = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
                yield name, json.loads(answer) if answer else "timeout" if stopped else "died"
    finally:
        for _, child, _ in running.values():
            _kill(child)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _work(work: Callable[[], Any], seconds: float, writing: int) -> None:
    os.setsid()
    whole = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
    try:
        answer = json.dumps(work())
    except BaseException as error:
        answer = json.dumps(f"died: {error!r:.300}")
    with open(writing, "w") as pipe:
        pipe.write(answer)
    os._exit(0)
