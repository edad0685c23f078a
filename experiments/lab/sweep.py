"""A sweep: every variant, at every point of a grid, with every seed, each run once.

A sweep is a TOML file::

    results = "recorded/training/learning_rate.jsonl"   # paths are seen from this file
    corpus = "tiny-shakespeare"           # or "embedded"
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

A sweep of heads that learn to find has no corpus, and [task], with fields of tasks.Task, in place
of [training].

Two more keys are for learning rates that are chosen, each variant's by itself. `widen =
"validation_loss"`, in the sweep that chooses: where the best rate of a variant, by the mean loss
over the seeds, is its first or its last, the next one, half or twice as large, is run too, until
the best is inside. `rates = "other.toml"`, in the sweep that judges: each variant has its best rate
of that sweep, all of whose runs have to be there.

Each finished run is a line that is added to the file of results (`results`), whose configuration
says which run it is. What is there is not run again, so a sweep that was stopped, in whatever way,
goes on where it was; a run that was killed begins again from step 0. One sweep at a time may write
to a file of results; anyone may read it.

Source 002. Chapter: almost_scaled_training.
"""

import math
import multiprocessing
import os
import platform
import signal
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from filelock import Timeout
from tqdm import tqdm

from attnlib import _checking, _files
from attnlib.sampling import cores
from experiments import provenance
from experiments.lab import fields, results, texts
from experiments.lab.descent import on_own_stream
from experiments.lab.model import Config
from experiments.lab.results import Setting, write_lock
from experiments.lab.tasks import Task
from experiments.lab.train import Run, Training, train
from experiments.lab.train_task import TaskRun, train_and_test

Table = dict[str, Any]

KEYS = {"results", "corpus", "seeds", "rates", "widen"}
KEYS |= {"model", "training", "task", "grid", "variants"}
"""The keys that a file may have at its top."""

MEASURES = ("final_loss", "validation_loss")
"""The losses by which a sweep may choose learning rates."""

RATES = 2.0**-20, 2.0**0
"""The least and the largest learning rate that a sweep may be widened to."""


class SweepError(Exception):
    """A sweep that cannot be run as it is written, or that could not end; one line says why.

    What was finished is kept, and running the sweep again goes on from there.
    """


@dataclass(frozen=True)
class Sweep:
    """The runs of a file, and the file of their results. Chapter: almost_scaled_training."""

    results: Path
    """The path of the file of results."""
    settings: tuple[Setting, ...]
    """The runs, those of the first seed first; those that widen the sweep come last."""
    widen: str = ""
    """The loss by which it chooses learning rates; "" for a sweep that chooses none."""


class Outcome(NamedTuple):
    """A finished run: its `setting`, and its result, `run`.

    Chapter: almost_scaled_training.
    """

    setting: Setting
    run: Run | TaskRun


# --- the file of a sweep -------------------------------------------------------------------------


def read(path: str | Path) -> Sweep:
    """Return the sweep that the file at `path` describes.

    Raises SweepError, whose message is one line that begins with the path, for a file that cannot
    be read, is not TOML, or says what cannot be. Chapter: almost_scaled_training.
    """
    path = Path(path)
    try:
        return _parse(path, tomllib.loads(path.read_text("utf-8")))
    except KeyError as error:
        raise SweepError(f"{path}: there must be a key {error}") from error
    except (ValueError, TypeError, AttributeError, OSError) as error:
        raise SweepError(f"{path}: {error}") from error


def _parse(path: Path, table: Table) -> Sweep:
    """Return the sweep of a file's table; ValueError, TypeError or KeyError for a wrong one."""
    for key in table.keys() - KEYS:
        raise ValueError(f"the file has {key}, and may have the keys {', '.join(sorted(KEYS))}")
    training_class: type[Training | Task] = Task if "task" in table else Training
    corpus = "" if training_class is Task else table["corpus"]
    digest = texts.sha256(corpus) if corpus else ""
    common = {**table.get("model", {}), **table.get("training", {}), **table.get("task", {})}
    grid, widen = table.get("grid", {}), table.get("widen", "")
    if widen:
        _checking.choice("widen", widen, MEASURES)
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    variants = table.get("variants", {"baseline": {}})
    if "rates" in table:
        rates = best_rates(read(path.parent / table["rates"]))
        variants = {name: {"learning_rate": rates[name], **variants[name]} for name in variants}
    settings = tuple(
        _parse_setting(
            name, training_class, {**common, **point, **changed, "seed": seed}, corpus, digest
        )
        for seed in table.get("seeds", [0])
        for point in points
        for name, changed in variants.items()
    )
    sweep = Sweep(path.parent.joinpath(table["results"]).resolve(), settings, widen)
    return _widen(sweep) if widen else sweep


def _parse_setting(
    variant: str,
    training_class: type[Training | Task],
    values: Table,
    corpus: str,
    digest: str,
) -> Setting:
    """Return a run from its `values`: fields of the model, and of the training or the task."""
    model = fields.field_names(Config)
    try:
        config = Config(**{key: value for key, value in values.items() if key in model})
        training = training_class(
            **{key: value for key, value in values.items() if key not in model}
        )
        return Setting(variant, config, training, corpus, digest)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{error} (variant {variant!r})") from None


# --- learning rates ------------------------------------------------------------------------------


def best_rates(sweep: Sweep) -> dict[str, float]:
    """Return each variant's learning rate of the smallest mean loss over the seeds.

    The loss is `Sweep.widen`. Raises SweepError where a run is missing.
    Chapter: almost_scaled_training.
    """
    means = _mean_losses(sweep)
    missing = sum(math.isnan(mean) for rates in means.values() for mean in rates.values())
    if missing:
        raise SweepError(
            f"the learning rates are chosen by {sweep.results.name}, which comes first and lacks "
            f"runs at {missing} of them"
        )
    return {variant: min(rates, key=rates.__getitem__) for variant, rates in means.items()}


def _mean_losses(sweep: Sweep) -> dict[str, dict[float, float]]:
    """Return the mean loss of each variant at each learning rate, the smallest rate first.

    It is NaN where a run is missing, and infinite where one diverged.
    """
    lines = _read_results(sweep)
    losses: dict[str, dict[float, list[float]]] = {}
    for setting in sweep.settings:
        line = lines.get(setting.key)
        loss = math.nan if line is None else line[sweep.widen]
        rates = losses.setdefault(setting.variant, {})
        of_seeds = rates.setdefault(setting.training.learning_rate, [])
        of_seeds.append(math.inf if loss is None else loss)
    return {
        variant: {rate: fmean(rates[rate]) for rate in sorted(rates)}
        for variant, rates in losses.items()
    }


def _widen(sweep: Sweep) -> Sweep:
    """Return the sweep with further rates, until a run is missing or no best rate is at an end."""
    while True:
        added: list[Setting] = []
        for variant, means in _mean_losses(sweep).items():
            rates, best = list(means), min(means, key=means.__getitem__)
            further = {rates[0]: rates[0] / 2, rates[-1]: rates[-1] * 2}.get(best)
            missing = any(map(math.isnan, means.values()))
            if missing or further is None or not RATES[0] <= further <= RATES[1]:
                continue
            added += [
                replace(setting, training=replace(setting.training, learning_rate=further))
                for setting in sweep.settings
                if (setting.variant, setting.training.learning_rate) == (variant, best)
            ]
        if not added:
            return sweep
        sweep = replace(sweep, settings=(*sweep.settings, *added))


# --- running it ----------------------------------------------------------------------------------


def run_file(path: str | Path, **options: Any) -> list[Outcome]:
    """Run the sweep of a file as `run`, again and again until it is not widened any more."""
    while True:
        sweep = read(path)
        finished = run(sweep, **options)
        if len(read(path).settings) == len(sweep.settings):
            return finished


def run(
    sweep: Sweep,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> list[Outcome]:
    """Run each setting without a result, write each result at once, and return all outcomes.

    Without an executor, `workers` processes of this machine do it, by default one for each core. A
    run keeps its process to one thread, so that its numbers do not depend on the executor.
    `progress` shows a bar with the time left.

    Raises SweepError when a run fails, when another sweep is writing to the same file, and when
    that cannot be read or written. Chapter: almost_scaled_training.
    """
    try:
        with ExitStack() as stack:
            sweep.results.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(write_lock(sweep.results))
            sweep.results.touch()
            finished = _read_results(sweep)
            pending = {
                setting.key: setting for setting in sweep.settings if setting.key not in finished
            }
            pool = executor or stack.enter_context(
                ProcessPoolExecutor(
                    workers or cores(),
                    mp_context=multiprocessing.get_context("spawn"),
                    initializer=_begin_worker,
                )
            )
            # Without smoothing the time left comes from the mean over all runs of this call.
            options: Table = {"unit": "run", "smoothing": 0.0, "disable": not progress}
            done = len(sweep.settings) - len(pending)
            bar = stack.enter_context(tqdm(total=len(sweep.settings), initial=done, **options))
            _run_pending(sweep, list(pending.values()), pool, bar.update)
    except Timeout:
        raise SweepError(f"another sweep is writing {sweep.results}") from None
    except OSError as error:
        raise SweepError(f"{sweep.results} cannot be written: {error}") from error
    return outcomes(sweep)


def _run_pending(
    sweep: Sweep, pending: Sequence[Setting], pool: Executor, count: Callable[[], object]
) -> None:
    """Write each result at once, and `count` it; after a failure no other run is begun."""
    futures = {pool.submit(_train_run, setting): setting for setting in pending}
    waiting = set(futures)
    try:
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda future: future.exception() is not None):
                if reason := future.exception():
                    raise SweepError(
                        f"the run of variant {futures[future].variant!r} failed: "
                        f"{type(reason).__name__}: {reason}; what was finished is in "
                        f"{sweep.results}, and running the sweep again goes on from there"
                    ) from reason
                _files.append(sweep.results, future.result())
                count()
    finally:
        for future in waiting:
            future.cancel()


def outcomes(sweep: Sweep) -> list[Outcome]:
    """Return the finished runs of a sweep, in its order.

    Raises SweepError, whose message is one line, when the file of results is damaged or cannot be
    read. Chapter: almost_scaled_training.
    """
    lines = _read_results(sweep)
    try:
        return [
            Outcome(setting, results.decode(lines[setting.key], setting))
            for setting in sweep.settings
            if setting.key in lines
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise SweepError(f"{sweep.results} has a damaged run: {error}") from error


def _read_results(sweep: Sweep) -> dict[str, Table]:
    """Return the recorded lines by `Setting.key`; SweepError where the file cannot be read."""
    try:
        return results.read(sweep.results)
    except (OSError, ValueError) as error:
        raise SweepError(str(error)) from error


def _train_run(setting: Setting) -> Table:
    """Train one run with one thread, and return its line of results."""
    torch.set_num_threads(1)
    training, config = setting.training, setting.config
    start, processor_start = time.perf_counter(), time.process_time()
    device = "cpu"
    run: Run | TaskRun
    if isinstance(training, Task):
        run = train_and_test(config, training)
    else:
        device = training.device
        with on_own_stream(training.graphs):
            run = train(config, training, _load_text(setting.corpus))
    timing = {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - processor_start,
        "processor": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
    }
    return results.encode(setting, run, made_on_device(device), timing)


def made_on_device(device: str) -> Table:
    """Return the versions and the processor of a run on a device, as `provenance.made`."""
    processor = f"{provenance.processor()}, {torch.backends.cpu.get_cpu_capability()}"
    if device != "cpu":
        processor = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    return provenance.made("numpy", "torch", threads=1, on=processor)


def _begin_worker() -> None:
    """Let a worker end with its parent, and at Ctrl-C."""
    # Ctrl-C ends a worker at once, and when the parent is killed, nobody else does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the parent, and end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_load_text = cache(texts.load)
