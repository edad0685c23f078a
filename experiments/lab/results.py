"""The results of an experiment in one file: a line for each run, with its configuration.

A line is a JSON object with a run's configuration (all that differs from the defaults), the
versions and the processor, the time that it took, and its result. It is written when the run is
finished. A last line that was interrupted counts as not there.

Source 002. Chapter: almost_scaled_training.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from filelock import FileLock

from attnlib import _files
from experiments.lab.model import Config
from experiments.lab.tasks import Task
from experiments.lab.train import PRECISIONS, Run, Training
from experiments.lab.train_task import TaskRun

Table = dict[str, Any]

SCALARS = ("diverged_at", "final_loss", "validation_loss")
"""The numbers of a run that are no arrays, each null where it diverged or where it did not."""


@dataclass(frozen=True)
class Setting:
    """One run of a sweep. Chapter: almost_scaled_training."""

    variant: str
    """Its name in the file."""
    config: Config
    """The model."""
    training: Training | Task
    """How it is trained, the seed included: on a text, or to find."""
    corpus: str = ""
    """The name of the text."""
    sha256: str = ""
    """Of the text."""

    def identity(self) -> Table:
        """Return all that differs from the defaults, and the text: no two runs have the same."""
        model, training = self.config.changes(), self.training.changes()
        if isinstance(self.training, Task):
            return {"model": model, "task": training}
        text = {"name": self.corpus, "sha256": self.sha256}
        return {"model": model, "training": training, "corpus": text}

    @property
    def key(self) -> str:
        """The identity as a string."""
        return run_key(self.identity())


def run_key(table: Table) -> str:
    """Return the identity in a line as a string."""
    parts = ("model", "training", "task", "corpus")
    return json.dumps({part: table[part] for part in parts if part in table}, sort_keys=True)


def write_lock(path: Path) -> FileLock:
    """Return the lock of a file of results; entering raises Timeout where another holds it."""
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=0)


def read(path: Path) -> dict[str, Table]:
    """Return the lines of a file by `Setting.key`; raises as `_files.lines`."""
    return {run_key(table): table for table in _files.lines(path)}


def encode(setting: Setting, run: Run | TaskRun, made: Table, timing: Table) -> Table:
    """Return the line of a run; an array has the digits of its precision, a task's numbers eight.

    A run on a text lacks `recorded_at`, which follows from its configuration, and all that it was
    not to record. A number that is not finite is null.
    """
    line = {**setting.identity(), "made": made, "timing": timing}
    if isinstance(run, TaskRun):
        return line | {name: to_json(value, 8) for name, value in run._asdict().items()}
    digits = PRECISIONS[cast(Training, setting.training).precision]
    arrays = {name: value for name, value in vars(run).items() if isinstance(value, np.ndarray)}
    del arrays["recorded_at"]
    line |= {name: to_json(getattr(run, name), 17) for name in SCALARS}
    return line | {name: to_json(values, digits) for name, values in arrays.items()}


def to_json(value: Any, digits: int = 5) -> Any:
    """Return numbers, arrays or tables as JSON has them: `digits` each, None if not finite."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: to_json(entry, digits) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry, digits) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def decode(table: Table, setting: Setting) -> Run | TaskRun:
    """Return the run of a line; KeyError, ValueError or TypeError where it is damaged."""
    training = setting.training
    if isinstance(training, Task):
        return TaskRun(**{name: table[name] for name in TaskRun._fields if name in table})
    kept = training.steps if table["diverged_at"] is None else table["diverged_at"]
    at, depth, heads = training.recorded_steps(kept), setting.config.depth, setting.config.heads
    shapes: dict[str, tuple[int, ...]] = {
        "losses": (len(training.mean_starts(kept)),),
        "branch_ratios": (len(at), depth),
        "spreads": (len(at), depth),
        "effective_keys": (len(at), depth),
        "gains": (len(at), depth, -1, heads),
        "norms": (len(at), depth, 2, heads),
        "slopes": (len(at), depth, heads),
        "scale_samples": (2, -1, depth, heads),
        "readings": (len(training.lengths), -1),
    }
    arrays: Table = {}
    for name in shapes.keys() & table.keys():
        if table[name] is not None:
            values = np.array(table[name], dtype=np.float64).astype(training.precision)
            arrays[name] = values.astype(float).reshape(shapes[name])
    scalars = {name: table[name] for name in SCALARS}
    return Run(**scalars, **arrays, recorded_at=np.array(at, dtype=np.int64))
