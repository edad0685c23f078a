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

Each finished run is one whole JSON file in the folder, named by a hash of its configuration. What
is there is not run again, so a sweep that was stopped, in whatever way, goes on where it was and
ends with the same bytes. How long a run took is in the subfolder `timings`, apart from its result.

Source 002. Chapter: training.
"""

import json
import multiprocessing
import os
import platform
import signal
import textwrap
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from hashlib import sha256
from itertools import product
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

import attnlib
from attnlib import checking
from attnlib.checking import FloatArray
from attnlib.files import write_json
from attnlib.lab import data
from attnlib.lab.data import Text
from attnlib.lab.model import Config
from attnlib.lab.train import Run, Training, train
from attnlib.provenance import versions

Table = dict[str, Any]

KEYS = ("results", "corpus", "seeds", "model", "training", "grid", "variants")
"""What a file may have at its top."""
MODEL_KEYS = tuple(field.name for field in fields(Config))
"""What [model] may have, and [grid] and a variant."""
TRAINING_KEYS = tuple(field.name for field in fields(Training) if field.name != "seed")
"""What [training] may have, and [grid] and a variant."""


class SweepError(ValueError):
    """A sweep that cannot be run as it is written; the message is one line."""


class WorkerError(RuntimeError):
    """A worker died. What was finished is kept, and running the sweep again goes on from there."""


@dataclass(frozen=True)
class Setting:
    """One run of a sweep. Chapter: training."""

    variant: str
    """What the file calls it."""
    config: Config
    """The model."""
    training: Training
    """How it is trained, the seed included."""
    corpus: str
    """The name of the text."""
    sha256: str
    """Of the text."""

    def identity(self) -> Table:
        """Return the whole configuration, as it stands in the file of the result.

        A JSON object with the keys "model", "training" and "corpus". A word, such as
        alpha = "typical", stands there as the word.
        """
        return _plain(asdict(self.config), asdict(self.training), self)

    @property
    def name(self) -> str:
        """A hash of what differs from the defaults: a field that is added later changes none."""
        identity = _plain(_changed(self.config), _changed(self.training), self)
        return sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _plain(model: Table, training: Table, setting: Setting) -> Table:
    text = {"name": setting.corpus, "sha256": setting.sha256}
    plain: Table = json.loads(json.dumps({"model": model, "training": training, "corpus": text}))
    return plain


def _changed(given: Config | Training) -> Table:
    defaults = asdict(type(given)())
    return {name: value for name, value in asdict(given).items() if value != defaults[name]}


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
    run: Run


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
    except OSError as error:
        raise SweepError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SweepError(f"{path}: not a TOML file: {_line(error)}") from None
    try:
        return _sweep(path, table, None if text is None else Path(text))
    except (ValueError, TypeError, OSError) as error:
        raise SweepError(f"{path}: {_line(error)}") from error


def _sweep(path: Path, table: Table, text: Path | None) -> Sweep:
    _known("the file", table, KEYS)
    results, corpus = _word(table, "results"), _word(table, "corpus")
    if corpus == data.SHAKESPEARE:
        digest = data.SHAKESPEARE_SHA256
    elif corpus == data.EMBEDDED:
        digest = data.digest(data.embedded())
    else:
        text = text or path.parent / corpus
        digest = data.digest(data.load(str(path.parent / corpus)))
    model, training, grid = (_table(table, key) for key in ("model", "training", "grid"))
    _known("[model]", model, MODEL_KEYS)
    _known("[training]", training, TRAINING_KEYS)
    _known("[grid]", grid, MODEL_KEYS + TRAINING_KEYS)
    for key, values in grid.items():
        _list(f"{key} in [grid]", values)
    variants = _table(table, "variants") or {"baseline": {}}
    for name in variants:
        _known(f"[variants.{name}]", _table(variants, name), MODEL_KEYS + TRAINING_KEYS)
        _once(f"[variants.{name}] and [grid]", variants[name], grid)
    _once("[model] and [grid]", model, grid)
    _once("[training] and [grid]", training, grid)
    settings = tuple(
        _setting(
            name, {**model, **training, **variants[name], **point, "seed": seed}, corpus, digest
        )
        for seed in _list("seeds", table.get("seeds", [0]))
        for point in (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
        for name in variants
    )
    _distinct(settings)
    return Sweep(path, path.parent / results, text, settings)


def _setting(variant: str, values: Table, corpus: str, digest: str) -> Setting:
    try:
        return Setting(
            variant,
            Config(**{key: value for key, value in values.items() if key in MODEL_KEYS}),
            Training(**{key: value for key, value in values.items() if key not in MODEL_KEYS}),
            Path(corpus).name,
            digest,
        )
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
            raise ValueError(f"{where} may have the keys {', '.join(allowed)}, got {key!r}")


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
    so that its bytes do not depend on the executor.

    `progress` shows a bar with the time left. Raises SweepError when the text is not the sweep's or
    too short, when a file of another configuration is in a result's place, and when there is no
    GPU; WorkerError when a worker dies. Chapter: training.
    """
    checking.choice("device", device, ("cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise SweepError("device must be 'cpu' where PyTorch finds no GPU, got device='cuda'")
    _check_text(sweep)
    try:
        (sweep.results / "timings").mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SweepError(f"{sweep.file}: results cannot be written: {_line(error)}") from error
    pending = [setting for setting in sweep.settings if stored(sweep, setting) is None]
    for setting in pending:
        for left_over in sweep.results.rglob(f".{setting.name}.json.*.part"):  # by a kill
            left_over.unlink(missing_ok=True)
    # Without smoothing the time left comes from the mean over all runs of this call.
    with tqdm(
        total=len(sweep.settings),
        initial=len(sweep.settings) - len(pending),
        unit="run",
        smoothing=0.0,
        disable=not progress,
    ) as bar:
        for setting, result, timing in _finished(sweep, pending, device, executor, workers):
            write_json(sweep.results / "timings" / f"{setting.name}.json", timing)
            write_json(sweep.path(setting), encoded(setting, result))
            bar.update()
    return outcomes(sweep)


def outcomes(sweep: Sweep) -> list[Outcome]:
    """Return the finished runs of a sweep, in its order.

    Raises SweepError when the file in a result's place is none, or of another configuration.
    Chapter: training.
    """
    found = [(setting, stored(sweep, setting)) for setting in sweep.settings]
    return [Outcome(setting, run) for setting, run in found if run is not None]


def _finished(
    sweep: Sweep,
    pending: Sequence[Setting],
    device: str,
    executor: Executor | None,
    workers: int | None,
) -> Iterator[tuple[Setting, Run, Table]]:
    """Yield the runs as an executor finishes them."""
    if not pending:
        return
    pool = executor or _processes(workers or (1 if device == "cuda" else _cores()))
    futures: dict[Future[tuple[Run, Table]], Setting] = {}
    complete = False
    try:
        for setting in pending:
            futures[pool.submit(_work, setting, sweep.text, device)] = setting
        for future in as_completed(futures):
            yield futures[future], *future.result()
        complete = True
    except BrokenExecutor as error:
        raise WorkerError(
            f"a worker process died; what was finished is in {sweep.results}, and running the "
            "sweep again goes on from there"
        ) from error
    finally:
        for future in futures:
            future.cancel()
        if executor is None:
            pool.shutdown(wait=complete)


def _work(setting: Setting, path: Path | None, device: str) -> tuple[Run, Table]:
    """Train one run with one thread; return it and how long it took."""
    torch.set_num_threads(1)
    text = _loaded(setting.corpus, setting.sha256, path)
    start, processor_start = time.perf_counter(), time.process_time()
    result = train(setting.config, setting.training, text, device=device)
    processor = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return result, {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - processor_start,
        "processor": torch.cuda.get_device_name() if device == "cuda" else processor,
    }


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processes(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        checking.integer("workers", workers, minimum=1),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
    )


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


# --- the file of a result ------------------------------------------------------------------------


def encoded(setting: Setting, run: Run) -> Table:
    """Return a run with its whole configuration, as it is written.

    Numbers of float32 precision have the digits that tell them apart; what is not finite is null.
    Chapter: training.
    """
    type_ = _number_type(setting)

    def plain(values: FloatArray) -> list[Any]:
        if values.ndim > 1:
            return [plain(row) for row in values]
        return [float(str(x)) if np.isfinite(x) else None for x in values.astype(type_)]

    return {
        **setting.identity(),
        "versions": {"attnlib": attnlib.__version__, **versions("numpy", "torch")},
        "diverged_at": run.diverged_at,
        "final_loss": run.final_loss,
        "validation_loss": run.validation_loss,
        "losses": plain(run.losses),
        "recorded_at": run.recorded_at.tolist(),
        "gradient_norms": plain(run.gradient_norms),
        "branch_ratios": plain(run.branch_ratios),
    }


def stored(sweep: Sweep, setting: Setting) -> Run | None:
    """Return the run whose result is in its place, or None.

    The file may lack a field of the configuration that is younger. Raises SweepError when the file
    is not a result, or is one of another configuration. Chapter: training.
    """
    path = sweep.path(setting)
    try:
        table = json.loads(path.read_bytes())
        for part, wanted in setting.identity().items():
            for key, value in table[part].items():
                if wanted[key] != value:
                    raise SweepError(
                        f"{path} is of another run: {key}={value!r}, not {wanted[key]!r}"
                    )
        return _decoded(table, setting)
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise SweepError(
            f"{path} is not the result of a run ({type(error).__name__}: {_line(error)}); "
            "move it away"
        ) from error


def _decoded(table: Table, setting: Setting) -> Run:
    def numbers(name: str) -> FloatArray:
        return np.array(table[name], dtype=_number_type(setting)).astype(np.float64)

    return Run(
        losses=numbers("losses"),
        diverged_at=table["diverged_at"],
        final_loss=table["final_loss"],
        validation_loss=table["validation_loss"],
        recorded_at=np.array(table["recorded_at"], dtype=np.int64),
        gradient_norms=numbers("gradient_norms"),
        branch_ratios=numbers("branch_ratios").reshape(-1, setting.config.depth),
    )


def _number_type(setting: Setting) -> type[np.floating[Any]]:
    return np.float64 if setting.training.precision == "float64" else np.float32
