"""The runs of an experiment in one file: a line for each, which says what was run and what it gave.

A line is a JSON object with a run's configuration (what differs from the defaults), what it was
made with, how long it took, and what it gave. A line is written at once when its run is finished.
The last line may have been interrupted, and then it is not there.

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
from experiments.lab.train_task import HeadResult

Table = dict[str, Any]

SCALARS = ("diverged_at", "final_loss", "validation_loss")
"""The numbers of a run that are no arrays, each null where it diverged or where it did not."""


@dataclass(frozen=True)
class Setting:
    """One run of a sweep. Chapter: almost_scaled_training."""

    variant: str
    """What the file calls it."""
    config: Config
    """The model."""
    training: Training | Task
    """How it is trained, the seed included: on a text, or to find."""
    corpus: str = ""
    """The name of the text."""
    sha256: str = ""
    """Of the text."""

    def identity(self) -> Table:
        """Return what a run is known by: all that differs from the defaults, and the text."""
        model, training = self.config.changes(), self.training.changes()
        if isinstance(self.training, Task):
            return {"model": model, "task": training}
        text = {"name": self.corpus, "sha256": self.sha256}
        return {"model": model, "training": training, "corpus": text}

    @property
    def key(self) -> str:
        """The identity as a word."""
        return key_of(self.identity())


def key_of(table: Table) -> str:
    """Return what the line of a run is known by: its identity as a word."""
    parts = ("model", "training", "task", "corpus")
    return json.dumps({part: table[part] for part in parts if part in table}, sort_keys=True)


def writing(path: Path) -> FileLock:
    """Return what whoever writes a file of results has to hold; entering raises Timeout at once."""
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=0)


def read(path: Path) -> dict[str, Table]:
    """Return the runs of a file by `Setting.key`; raises as `_files.lines`."""
    return {key_of(table): table for table in _files.lines(path)}


def encoded(setting: Setting, run: Run | HeadResult, made: Table, timing: Table) -> Table:
    """Return the line of a run; an array has the digits of its precision, a head's numbers eight.

    Of a run on a text it lacks `recorded_at`, which its configuration says, and what was not to be
    recorded. A number that was not finite is null.
    """
    line = {**setting.identity(), "made": made, "timing": timing}
    if isinstance(run, HeadResult):
        return line | {name: plain(value, 8) for name, value in run._asdict().items()}
    digits = PRECISIONS[cast(Training, setting.training).precision]
    arrays = {name: value for name, value in vars(run).items() if isinstance(value, np.ndarray)}
    del arrays["recorded_at"]
    line |= {name: plain(getattr(run, name), 17) for name in SCALARS}
    return line | {name: plain(values, digits) for name, values in arrays.items()}


def plain(value: Any, digits: int) -> Any:
    """Return what JSON can hold of numbers: so many digits of each, and null where not finite."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: plain(entry, digits) for name, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry, digits) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def decoded(table: Table, setting: Setting) -> Run | HeadResult:
    """Return the run of a line; KeyError, ValueError or TypeError where it is damaged."""
    training = setting.training
    if isinstance(training, Task):
        return HeadResult(**{name: table[name] for name in HeadResult._fields if name in table})
    kept = training.steps if table["diverged_at"] is None else table["diverged_at"]
    at, depth, heads = training.recorded_at(kept), setting.config.depth, setting.config.heads
    shapes: dict[str, tuple[int, ...]] = {
        "losses": (len(training.means(kept)),),
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
