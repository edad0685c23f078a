"""A sweep: every variant, at every point of a grid, with every seed, each run once.

A sweep is a TOML file::

    results = "recorded/training/learning_rate.jsonl"   # paths are seen from this file
    corpus = "tiny-shakespeare"           # or "embedded", or the path of a text
    seeds = [0, 1, 2]

    [model]                               # fields of model.Config
    width = 128

    [training]                            # fields of train.Training
    batch = 8

    [grid]                                # every combination of these
    learning_rate = [0.001, 0.002]

    [variants.baseline]                   # each of these, with what it changes
    [variants.note]
    post_scale = "constant"

A sweep of heads that learn to find has no corpus, and [task], with fields of recall.Task, in place
of [training].

Each finished run is a line that is added to the file of results (`results`), whose configuration
says which run it is. What is there is not run again, so a sweep that was stopped, in whatever way,
goes on where it was. One sweep at a time may write to a file of results; anyone may read it.

Source 002. Chapter: training.
"""

import multiprocessing
import os
import platform
import signal
import textwrap
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from attnlib.sampling import cores
from experiments import provenance
from experiments.lab import data, fields, results
from experiments.lab.data import Text
from experiments.lab.model import Config
from experiments.lab.recall import Found, Task, check, find
from experiments.lab.results import Setting
from experiments.lab.train import Run, Training, train

Table = dict[str, Any]

KEYS = ("results", "seeds", "model", "grid", "variants")
"""What a file may have at its top, beside "task", or "corpus" and "training"."""


class SweepError(ValueError):
    """A sweep that cannot be run as it is written; the message is one line."""


class UnfinishedError(RuntimeError):
    """A sweep that could not end: a full disk, too little memory, a worker that died.

    What was finished is kept, and running the sweep again goes on from there. The message is one
    line.
    """


@dataclass(frozen=True)
class Sweep:
    """What a file says: where results go, and the runs. Chapter: training."""

    file: Path
    """What was read."""
    results: Path
    """The file of the results."""
    text: Path | None
    """Where the corpus lies, if it is a file."""
    settings: tuple[Setting, ...]
    """The runs, those of the first seed first."""


class Outcome(NamedTuple):
    """A finished run: its `setting`, and the `run` that it gave. Chapter: training."""

    setting: Setting
    run: Run | Found


# --- the file of a sweep -------------------------------------------------------------------------


def read(path: str | Path, text: str | Path | None = None) -> Sweep:
    """Return the sweep that the file at `path` describes.

    `text` is where a copy of its corpus lies, for tiny-shakespeare without a network. Raises
    SweepError, whose message is one line that begins with the path, for a file that cannot be read,
    is not TOML, or says what cannot be. Chapter: training.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text("utf-8"))
        return _sweep(path, table, None if text is None else Path(text))
    except (ValueError, TypeError, OSError, RecursionError) as error:
        raise SweepError(f"{path}: {_line(error)}") from error


def _sweep(path: Path, table: Table, text: Path | None) -> Sweep:
    kind: type[Training | Task] = Task if "task" in table else Training
    part = "task" if kind is Task else "training"
    _check_keys("the file", table, (*KEYS, *(("task",) if kind is Task else ("corpus", part))))
    results, corpus, digest = _word(table, "results"), "", ""
    if kind is Training:
        corpus = _word(table, "corpus")
        text, digest = _corpus(path, corpus, text)
    common = {**_table(table, "model", Config), **_table(table, part, kind)}
    grid, seeds = _table(table, "grid", Config, kind), table.get("seeds", [0])
    for name, values in {**grid, "seeds": seeds}.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{name} must be a list that is not empty, got {values!r}")
    named = _table(table, "variants") or {"baseline": {}}
    variants = {name: _table(named, name, Config, kind) for name in named}
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    settings = tuple(
        _setting(name, kind, {**common, **point, **changed, "seed": seed}, corpus, digest)
        for seed in seeds
        for point in points
        for name, changed in variants.items()
    )
    _check_distinct(settings)
    return Sweep(path, path.parent / results, text, settings)


def _corpus(path: Path, corpus: str, text: Path | None) -> tuple[Path | None, str]:
    """Return where a corpus lies, if it is a file, and its sha256."""
    if corpus == data.SHAKESPEARE:
        return text, data.SHAKESPEARE_SHA256
    if corpus == data.EMBEDDED:
        return text, data.digest(data.embedded())
    return text or path.parent / corpus, data.digest(data.load(str(path.parent / corpus)))


def _setting(
    variant: str, kind: type[Training | Task], values: Table, corpus: str, digest: str
) -> Setting:
    model = fields.names(Config)
    try:
        config = Config(**{key: value for key, value in values.items() if key in model})
        training = kind(**{key: value for key, value in values.items() if key not in model})
        if isinstance(training, Task):
            check(config, training)
        return Setting(variant, config, training, Path(corpus).name, digest)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{error} (variant {variant!r})") from None


def _check_distinct(settings: Sequence[Setting]) -> None:
    first: dict[str, Setting] = {}
    for setting in settings:
        other = first.setdefault(setting.key, setting)
        if other is not setting:
            raise ValueError(
                f"no run may be there twice, got variant {setting.variant!r} with "
                f"seed={setting.training.seed}, which is as variant {other.variant!r}"
            )


def _table(table: Table, key: str, *configurations: type[fields.Checked]) -> Table:
    """Return a table of the file, whose keys are fields of these configurations, if there are."""
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be a table, got {key}={value!r}")
    allowed = [name for one in configurations for name in fields.names(one) if name != "seed"]
    if allowed:
        _check_keys(f"[{key}]", value, allowed)
    return value


def _word(table: Table, key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} must be a string that is not empty, got {key}={value!r}")
    return value


def _check_keys(where: str, table: Table, allowed: Sequence[str]) -> None:
    for key in table:
        if key not in allowed:
            raise ValueError(f"{where} has {key!r}, and may have the keys {', '.join(allowed)}")


def _line(error: BaseException) -> str:
    return textwrap.shorten(str(error), 400, placeholder=" …")


# --- running it ----------------------------------------------------------------------------------


def run(
    sweep: Sweep,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> list[Outcome]:
    """Run what has no result yet, write each result when it is there, and return all outcomes.

    Without an executor, `workers` processes of this machine do it, by default one for each core.
    Any executor will do, for example Dask's `client.get_executor()`, if its workers find a text
    that is a file at the same path. A run keeps its process to one thread, so that its numbers do
    not depend on the executor. `progress` shows a bar with the time left.

    Raises SweepError when the text is not the sweep's or too short, when another sweep is writing
    to its file, and when a file cannot be read or is damaged; UnfinishedError when a run fails,
    after those that were begun have ended. Chapter: training.
    """
    _check_text(sweep)
    with ExitStack() as stack:
        _lock(sweep, stack)
        finished = _read(sweep)
        pending = [one for one in sweep.settings if one.key not in finished]
        pool = executor or stack.enter_context(_processes(workers or cores()))
        # Without smoothing the time left comes from the mean over all runs of this call.
        options: Table = {"unit": "run", "smoothing": 0.0, "disable": not progress}
        done = len(sweep.settings) - len(pending)
        bar = stack.enter_context(tqdm(total=len(sweep.settings), initial=done, **options))
        _run(sweep, pending, pool, bar.update)
    return outcomes(sweep)


def _lock(sweep: Sweep, stack: ExitStack) -> None:
    """Keep the file of results to this sweep until the stack ends, or the process."""
    try:
        sweep.results.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(sweep.results.with_name(f".{sweep.results.name}.lock"))
        stack.enter_context(lock.acquire(blocking=False))
        sweep.results.touch()
    except Timeout:
        raise SweepError(f"{sweep.file}: another sweep is writing {sweep.results}") from None
    except (OSError, ValueError) as error:
        raise SweepError(f"{sweep.file}: results cannot be written: {_line(error)}") from error


def _run(
    sweep: Sweep,
    pending: Sequence[Setting],
    pool: Executor,
    count: Callable[[], object],
) -> None:
    """Run what is pending, and write each result when it is there.

    After a failure no other run is begun; those that were are waited for, and kept.
    """
    futures = {pool.submit(_work, one, sweep.text): one for one in pending}
    waiting, failed = set(futures), []
    try:
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                if reason := future.exception():
                    failed.append((futures[future], reason))
                else:
                    results.append(sweep.results, future.result())
                    count()
            if failed:
                waiting = {future for future in waiting if not future.cancel()}
    except OSError as error:
        raise UnfinishedError(f"{_line(error)}; {_kept(sweep)}") from error
    finally:
        for future in waiting:
            future.cancel()
    if failed:
        (setting, reason), *_ = failed
        raise UnfinishedError(
            f"the run of variant {setting.variant!r} with seed={setting.training.seed} failed: "
            f"{type(reason).__name__}: {_line(reason)}; {_kept(sweep)}"
        ) from reason


def _kept(sweep: Sweep) -> str:
    return (
        f"what was finished is in {sweep.results}, and running the sweep again goes on from there"
    )


def outcomes(sweep: Sweep) -> list[Outcome]:
    """Return the finished runs of a sweep, in its order.

    Raises SweepError, whose message is one line, when the file of results is damaged or cannot be
    read. Chapter: training.
    """
    lines = _read(sweep)
    try:
        return [
            Outcome(one, results.decoded(lines[one.key], one))
            for one in sweep.settings
            if one.key in lines
        ]
    except ValueError as error:
        raise SweepError(f"{sweep.results}: {_line(error)}") from error


def made(sweep: Sweep) -> list[Table]:
    """Return what the finished runs of a sweep were made with, in its order; errors as `outcomes`.

    `experiments.provenance.made`, or of runs of 1.0.0 and before the versions of packages alone.
    """
    lines = _read(sweep)
    return [lines[one.key]["made"] for one in sweep.settings if one.key in lines]


def _read(sweep: Sweep) -> dict[str, Table]:
    try:
        return results.read(sweep.results)
    except (OSError, ValueError) as error:
        raise SweepError(_line(error)) from error


def _work(setting: Setting, path: Path | None) -> Table:
    """Train one run with one thread; return its line."""
    torch.set_num_threads(1)
    training, config = setting.training, setting.config
    kernels = torch.backends.cpu.get_cpu_capability()
    text = None if isinstance(training, Task) else _loaded(setting.corpus, setting.sha256, path)
    start, processor_start = time.perf_counter(), time.process_time()
    run: Run | Found
    if isinstance(training, Task):
        run = find(config, training)
    else:
        assert text is not None
        run = train(config, training, text)
    timing = {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - processor_start,
        "processor": f"{platform.machine()}, {kernels}",
    }
    processor = f"{provenance.processor()}, {kernels}"
    made_with = provenance.made("numpy", "torch", threads=1, on=processor)
    return results.encoded(setting, run, made_with, timing)


def _processes(workers: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker)


def _begin_worker() -> None:
    # Ctrl-C ends a worker at once, and when the parent is killed, nobody else does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@lru_cache(maxsize=4)
def _loaded(corpus: str, sha256: str, path: Path | None) -> Text:
    text = data.load(corpus) if path is None else data.read(path)
    if data.digest(text) != sha256:
        raise ValueError(f"{path} is not {corpus}: its sha256 is {data.digest(text)}, not {sha256}")
    return text


def _check_text(sweep: Sweep) -> None:
    first = sweep.settings[0]
    if isinstance(first.training, Task):
        return
    try:
        validation = data.split(_loaded(first.corpus, first.sha256, sweep.text)).validation.size
        longest = max(setting.config.sequence for setting in sweep.settings)
        if longest >= validation:
            raise ValueError(
                f"sequence must be below {validation}, the bytes of the validation text, "
                f"got sequence={longest}"
            )
    except (ValueError, OSError) as error:
        raise SweepError(f"{sweep.file}: {_line(error)}") from error
