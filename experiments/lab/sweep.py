"""A sweep: every variant, at every point of a grid, with every seed, each run once.

A sweep is a TOML file::

    results = "learning_rate"             # a folder; paths are seen from this file
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

Each finished run is one whole JSON file in the folder, named by a hash of its configuration. What
is there is not run again, so a sweep that was stopped, in whatever way, goes on where it was and
ends with the same bytes. How long a run took is in the subfolder `timings`, apart from its result.

Several sweeps may use one folder at once, also of one file: a lock of the operating system on
`.NAME.lock`, which ends with its process, says whose a run is, and the others leave it alone.

Source 002. Chapter: training.
"""

import math
import multiprocessing
import os
import platform
import signal
import textwrap
import threading
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import product
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from attnlib import checking, provenance
from attnlib.files import set_aside, write_json
from experiments.lab import data, results
from experiments.lab.data import Text
from experiments.lab.model import Config
from experiments.lab.recall import Found, Task, check, find
from experiments.lab.results import ResultError, Setting
from experiments.lab.train import Run, Training, train

Table = dict[str, Any]

KEYS = ("results", "corpus", "seeds", "model", "training", "task", "grid", "variants")
"""What a file may have at its top."""
MODEL_KEYS = tuple(field.name for field in fields(Config))
"""What [model] may have, and [grid] and a variant."""
TRAINING_KEYS = tuple(field.name for field in fields(Training) if field.name != "seed")
"""What [training] may have, and [grid] and a variant."""
TASK_KEYS = tuple(field.name for field in fields(Task) if field.name != "seed")
"""The same of [task]."""

MOST_RUNS = 10**5
"""Of a sweep: more are a slip of the grid."""
POLL = 0.5
"""Seconds between two looks at runs that another sweep is at."""


class SweepError(ValueError):
    """A sweep that cannot be run as it is written; the message is one line."""


class UnfinishedError(RuntimeError):
    """A sweep that could not end: a full disk, too little memory. What was finished is kept.

    Running the sweep again goes on from there. The message is one line.
    """


class WorkerError(UnfinishedError):
    """A worker died."""


@dataclass(frozen=True)
class Sweep:
    """What a file says: where results go, and the runs. Chapter: training."""

    file: Path
    """What was read."""
    results: Path
    """The folder of the results."""
    text: Path | None
    """Where the corpus lies, if it is a file."""
    settings: tuple[Setting, ...]
    """The runs, those of the first seed first."""

    def path(self, setting: Setting) -> Path:
        """Return where the result of a run is, or will be."""
        return self.results / f"{setting.name}.json"


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
    for name, given in (("path", path), ("text", text)):
        if given is not None or name == "path":
            checking.instance(name, given, str | os.PathLike)
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SweepError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SweepError(f"{path}: not a TOML file: {_line(error)}") from None
    try:
        return _sweep(path, table, None if text is None else Path(text))
    except (ValueError, TypeError, OSError) as error:
        raise SweepError(f"{path}: {_line(error)}") from error


def _sweep(path: Path, table: Table, text: Path | None) -> Sweep:
    _known("the file", table, KEYS)
    results, part = _word(table, "results"), "task" if "task" in table else "training"
    allowed = MODEL_KEYS + (TASK_KEYS if part == "task" else TRAINING_KEYS)
    corpus = "" if part == "task" else _word(table, "corpus")
    if not corpus:
        digest = ""
        for key in ("corpus", "training"):
            if key in table:
                raise ValueError(f"a file with [task] may have no {key}, got {table[key]!r:.80}")
    elif corpus == data.SHAKESPEARE:
        digest = data.SHAKESPEARE_SHA256
    elif corpus == data.EMBEDDED:
        digest = data.digest(data.embedded())
    else:
        text = text or path.parent / corpus
        digest = data.digest(data.load(str(path.parent / corpus)))
    model, training, grid = (_table(table, key) for key in ("model", part, "grid"))
    _known("[model]", model, MODEL_KEYS)
    _known(f"[{part}]", training, allowed[len(MODEL_KEYS) :])
    _known("[grid]", grid, allowed)
    for key, values in grid.items():
        _list(f"{key} in [grid]", values)
    variants = _table(table, "variants") or {"baseline": {}}
    for name in variants:
        _known(f"[variants.{name}]", _table(variants, name), allowed)
        _once(f"[variants.{name}] and [grid]", variants[name], grid)
    _once("[model] and [grid]", model, grid)
    _once(f"[{part}] and [grid]", training, grid)
    seeds = _list("seeds", table.get("seeds", [0]))
    runs = math.prod(map(len, (seeds, variants, *grid.values())))
    if runs > MOST_RUNS:
        raise ValueError(f"a sweep may have at most {MOST_RUNS} runs, got {runs}")
    settings = tuple(
        _setting(
            name, {**model, **training, **variants[name], **point, "seed": seed}, corpus, digest
        )
        for seed in seeds
        for point in (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
        for name in variants
    )
    _distinct(settings)
    return Sweep(path, path.parent / results, text, settings)


def _setting(variant: str, values: Table, corpus: str, digest: str) -> Setting:
    try:
        config = Config(**{key: value for key, value in values.items() if key in MODEL_KEYS})
        told = {key: value for key, value in values.items() if key not in MODEL_KEYS}
        training = Training(**told) if corpus else Task(**told)
        if isinstance(training, Task):
            check(config, training)
        return Setting(variant, config, training, Path(corpus).name, digest)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{error} (variant {variant!r})") from None


def _distinct(settings: Sequence[Setting]) -> None:
    first: dict[str, Setting] = {}
    for setting in settings:
        other = first.setdefault(setting.name, setting)
        if other is not setting:
            raise ValueError(
                f"no run may be there twice, got variant {setting.variant!r} with "
                f"seed={setting.training.seed}, which is as variant {other.variant!r}"
            )


def _known(where: str, table: Table, allowed: Sequence[str]) -> None:
    for key in table:
        if key not in allowed:
            raise ValueError(f"{where} has {key!r}, and may have the keys {', '.join(allowed)}")


def _once(where: str, one: Table, other: Table) -> None:
    for key in one.keys() & other.keys():
        raise ValueError(f"a key must be given once, got {key!r} in both {where}")


def _word(table: Table, key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} must be a string that is not empty, got {key}={value!r}")
    return value


def _table(table: Table, key: str) -> Table:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be a table, got {key}={value!r}")
    return value


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} must be a list that is not empty, got {value!r}")
    return value


def _line(error: BaseException) -> str:
    return textwrap.shorten(str(error), 400, placeholder=" …")


# --- running it ----------------------------------------------------------------------------------


def run(
    sweep: Sweep,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    device: str = "cpu",
    progress: bool = False,
) -> list[Outcome]:
    """Run what has no result yet, write each result when it is there, and return all outcomes.

    Without an executor, `workers` processes of this machine do it, by default one for each core, or
    one on the device "cuda". Any executor will do, for example Dask's `client.get_executor()`, if
    its workers find a text that is a file at the same path. A run keeps its process to one thread,
    so that its bytes do not depend on the executor. What another sweep is running is waited for.

    A file in a result's place that `results.stored` refuses is set aside under another name, with a
    warning that says why, and its run is done again. `progress` shows a bar with the time left.

    Raises SweepError when the text is not the sweep's or too short, when a file cannot be read, and
    when there is no GPU; UnfinishedError when the disk is full or memory too small, and WorkerError
    when a worker dies. Chapter: training.
    """
    checking.instance("sweep", sweep, Sweep)
    if executor is not None:
        checking.instance("executor", executor, Executor)
    checking.flag("progress", progress)
    checking.choice("device", device, ("cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise SweepError("device must be 'cpu' where PyTorch finds no GPU, got device='cuda'")
    if workers is None:
        workers = 1 if device == "cuda" else provenance.cores()
    checking.integer("workers", workers, minimum=1)
    _check_text(sweep)
    try:
        (sweep.results / "timings").mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SweepError(f"{sweep.file}: results cannot be written: {_line(error)}") from error
    pending = [setting for setting in sweep.settings if not _is_there(sweep, setting)]
    for setting in set(sweep.settings).difference(pending):
        _remove(_lock(sweep, setting))  # of a sweep that was killed
    # Without smoothing the time left comes from the mean over all runs of this call.
    with tqdm(
        total=len(sweep.settings),
        initial=len(sweep.settings) - len(pending),
        unit="run",
        smoothing=0.0,
        disable=not progress,
    ) as bar:
        try:
            if executor is not None:
                failed = _run(sweep, pending, executor, len(pending), device, bar.update)
            else:
                with _processes(workers) as pool:
                    failed = _run(sweep, pending, pool, workers, device, bar.update)
        except BrokenExecutor as error:
            raise WorkerError(f"a worker process died; {_kept(sweep)}") from error
        except (OSError, ValueError, MemoryError) as error:
            raise UnfinishedError(f"{_line(error) or 'out of memory'}; {_kept(sweep)}") from error
    if failed:
        (first, why), *_ = failed
        raise UnfinishedError(
            f"{len(failed)} of {len(pending)} runs need more memory than there is, the first of "
            f"them variant {first.variant!r} with seed={first.training.seed} "
            f"({_line(why) or 'MemoryError'}); {_kept(sweep)}"
        ) from why
    return outcomes(sweep)


def outcomes(sweep: Sweep) -> list[Outcome]:
    """Return the finished runs of a sweep, in its order.

    Raises SweepError, whose message is one line, when the file in a result's place is none, is
    damaged or of another configuration, or cannot be read. Chapter: training.
    """
    found = [(setting, stored(sweep, setting)) for setting in sweep.settings]
    return [Outcome(setting, run) for setting, run in found if run is not None]


def stored(sweep: Sweep, setting: Setting) -> Run | Found | None:
    """Return the run whose result is in its place, or None; errors as `outcomes`."""
    try:
        return results.stored(sweep.path(setting), setting)
    except (ResultError, OSError) as error:
        raise SweepError(_line(error)) from error


def _is_there(sweep: Sweep, setting: Setting) -> bool:
    try:
        return results.stored(sweep.path(setting), setting) is not None
    except ResultError:
        return False
    except OSError as error:
        raise SweepError(_line(error)) from error


def _run(
    sweep: Sweep,
    pending: Sequence[Setting],
    pool: Executor,
    abreast: int,
    device: str,
    count: Callable[[], object],
) -> list[tuple[Setting, Exception]]:
    """Run what is pending, `abreast` at a time, and write each result when it is there.

    Returns the runs for which memory was too small: they do not keep the others from being done.
    """
    waiting = list(pending)
    failed: list[tuple[Setting, Exception]] = []
    running: dict[Future[tuple[Run | Found, Table, Table]], Setting] = {}
    locks = {setting: FileLock(_lock(sweep, setting)) for setting in pending}
    try:
        while waiting or running:
            for setting in tuple(waiting):
                if len(running) >= abreast:
                    break
                try:
                    locks[setting].acquire(blocking=False)
                except Timeout:  # another sweep is at it
                    continue
                waiting.remove(setting)
                if _is_to_be_run(sweep, setting):
                    running[pool.submit(_work, setting, sweep.text, device)] = setting
                else:
                    _give_back(locks[setting])
                    count()
            if not running:
                time.sleep(POLL if waiting else 0.0)
                continue
            look_again = POLL if waiting and len(running) < abreast else None
            finished = wait(running, timeout=look_again, return_when=FIRST_COMPLETED).done
            # First what has succeeded, so that it is kept whatever has happened to the others.
            for future in sorted(finished, key=lambda one: one.exception() is not None):
                setting = running[future]
                try:
                    run, made, timing = future.result()
                except (MemoryError, RuntimeError) as error:
                    if not _no_memory(error):
                        raise
                    failed.append((setting, error))
                    locks[setting].release()
                else:
                    write_json(sweep.results / "timings" / f"{setting.name}.json", timing)
                    write_json(sweep.path(setting), results.encoded(setting, run, made))
                    _give_back(locks[setting])
                    count()
                del running[future]
    finally:
        for future in running:
            future.cancel()
        for lock in locks.values():
            lock.release()
    return failed


def _is_to_be_run(sweep: Sweep, setting: Setting) -> bool:
    """Return whether a result is missing, in a place that nobody else writes to, made clean."""
    path = sweep.path(setting)
    try:
        if results.stored(path, setting) is not None:
            return False
    except ResultError as error:
        aside = set_aside(path)
        warnings.warn(
            f"{_line(error)}; it is now {aside.name}, and the run is done again", stacklevel=4
        )
    for left_over in sweep.results.rglob(f".{path.name}.*.part"):  # by a kill
        left_over.unlink(missing_ok=True)
    return True


def _lock(sweep: Sweep, setting: Setting) -> Path:
    return sweep.results / f".{setting.name}.lock"


def _give_back(lock: FileLock) -> None:
    """Release a lock whose result is there: whoever takes it now sees that, with or without it."""
    lock.release()
    _remove(Path(lock.lock_file))


def _remove(path: Path) -> None:
    with suppress(OSError):  # a folder that is read only; Windows, where it is open
        path.unlink(missing_ok=True)


def _kept(sweep: Sweep) -> str:
    return (
        f"what was finished is in {sweep.results}, and running the sweep again goes on from there"
    )


def _no_memory(error: Exception) -> bool:
    """Return whether memory is too small, which PyTorch says in words."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in str(error) for words in ("DefaultCPUAllocator", "bad_alloc", "not enough memory")
    )


def _work(setting: Setting, path: Path | None, device: str) -> tuple[Run | Found, Table, Table]:
    """Train one run with one thread; return it, what it was made with, and how long it took."""
    torch.set_num_threads(1)
    training, text = setting.training, None
    if isinstance(training, Training):
        text = _loaded(setting.corpus, setting.sha256, path)
    kernels = torch.backends.cpu.get_cpu_capability()
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    processor = gpu or f"{provenance.processor()}, {kernels}"
    made = provenance.made("numpy", "torch", threads=1, on=processor)
    start, processor_start = time.perf_counter(), time.process_time()
    result: Run | Found
    if isinstance(training, Task):
        result = find(setting.config, training, device=device)
    else:
        result = train(setting.config, training, cast(Text, text), device=device)
    timing = {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - processor_start,
        "processor": gpu or f"{platform.machine()}, {kernels}",
    }
    return result, made, timing


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """Yield so many processes; after an error their runs are not waited for."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
    )
    try:
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown()


def _begin_worker() -> None:
    # Ctrl-C is for the parent, and when that is killed, nobody else ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
    try:
        first = sweep.settings[0]
        if not first.corpus:
            return
        text = _loaded(first.corpus, first.sha256, sweep.text)
        validation = data.split(text).validation.size
        for setting in sweep.settings:
            if setting.config.sequence >= validation:
                raise ValueError(
                    f"sequence must be below {validation}, the bytes of the validation text, "
                    f"got sequence={setting.config.sequence}"
                )
    except (ValueError, OSError) as error:
        raise SweepError(f"{sweep.file}: {_line(error)}") from error
