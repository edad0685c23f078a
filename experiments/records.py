"""Records: one schema, one loader.

experiments/recorded/NAME.json holds the results of the recorder NAME:

    command    the command that makes it again
    settings   all that the numbers depend on, by name
    made       version and commit of attnlib, other versions, processor, threads
    entries    a list; each has "at", its key, and "found", its result

`load` reads one. The training runs of experiments/sweeps/NAME.toml are in one file of
`experiments.lab.sweep`, and `runs` reads them.
"""

import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from attnlib._checking import FloatArray
from attnlib._files import replace
from experiments import provenance

if TYPE_CHECKING:  # training runs load torch, and the other records need none
    from experiments.lab.sweep import Outcome

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
SWEEPS = HERE / "sweeps"

Fields = dict[str, Any]
Work = Iterable[tuple[Fields, Callable[[], Any]]]
"""Entries to compute: of each its key, and a function without arguments for its result."""


class Entry(NamedTuple):
    """A result under its key."""

    key: Fields
    result: Any


class Record(NamedTuple):
    """The results of a recorder, and all that they depend on."""

    command: str
    settings: Fields
    made: Fields
    entries: tuple[Entry, ...]

    def select(self, **fields: Any) -> tuple[Entry, ...]:
        """Return the entries whose keys have these fields, in their order."""
        return tuple(entry for entry in self.entries if fields.items() <= entry.key.items())

    def find(self, **fields: Any) -> Any:
        """Return the result whose key has these fields; KeyError unless just one has them."""
        chosen = self.select(**fields)
        if len(chosen) != 1:
            raise KeyError(f"{self.command} recorded {len(chosen)} entries with {fields}")
        return chosen[0].result


def path_of(name: str) -> Path:
    """Return the path of the record of that name, which need not be there."""
    return RECORDED / f"{name}.json"


def load(name: str | Path) -> Record:
    """Return the record of that name, or the one in the file at a path.

    Raises ValueError, in one line, for a file that is not a record, OSError where it cannot be
    read.
    """
    path = name if isinstance(name, Path) else path_of(name)
    try:
        table = json.loads(path.read_text("utf-8"))
        entries = tuple(Entry(entry["at"], entry["found"]) for entry in table["entries"])
        if len({json.dumps(entry.key) for entry in entries}) < len(entries):
            raise ValueError("two entries are of the same")
        return Record(**{**table, "entries": entries})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not a record: {error}") from error


def save(path: Path, record: Record) -> None:
    """Write a record, whole or not at all: a line for each field, and for each entry.

    Raises as `replace`, TypeError for what JSON cannot hold, and ValueError for what is not finite.
    """
    fields = [
        f'"{name}": {_line(getattr(record, name))}' for name in ("command", "settings", "made")
    ]
    entries = ",\n".join(_line({"at": key, "found": result}) for key, result in record.entries)
    lines = ",\n".join([*fields, f'"entries": [\n{entries}\n]'])
    replace(path, f"{{\n{lines}\n}}\n".encode())


def _line(value: Any) -> str:
    """Return a value as JSON in one line; ValueError for what is not finite."""
    return json.dumps(value, allow_nan=False)


def compute_missing_at(
    path: Path, work: Work, *, command: str, settings: Fields, made: Fields
) -> Record:
    """Compute the entries of `work` that the file lacks, with a bar, and return the record.

    Every entry is written when it is done, so a recorder that was stopped goes on where it was.
    Entries of other settings, versions or code are computed again. Raises as `load` for
    a damaged file.
    """
    wanted = {json.dumps(key): (key, compute) for key, compute in work}
    record = Record(command, settings, made, ())
    before = load(path) if path.exists() else record
    same = json.loads(_line(before._replace(entries=()))) == json.loads(_line(record))
    entries = {json.dumps(entry.key): entry for entry in before.entries if same}
    for line, (key, compute) in tqdm(wanted.items(), unit="entry"):
        if line not in entries:
            entries[line] = Entry(key, compute())
            record = record._replace(entries=tuple(entries[k] for k in wanted if k in entries))
            save(path, record)
    return load(path)


def compute_missing(
    name: str, work: Work, settings: Fields, *packages: str, threads: int = 1
) -> Record:
    """Compute the entries that experiments/recorded/NAME.json lacks, and return the record.

    `experiments.NAME` is the recorder. `packages` are those whose versions count, beside NumPy and
    SciPy. As `compute_missing_at`.
    """
    made = provenance.made("numpy", "scipy", *packages, threads=threads)
    command = f"python -m experiments.{name}"
    return compute_missing_at(path_of(name), work, command=command, settings=settings, made=made)


@cache
def runs(experiment: str) -> "tuple[Outcome, ...]":
    """Return the recorded runs of sweeps/`experiment`.toml, in the order of the sweep.

    Raises FileNotFoundError where some are missing.
    """
    from experiments.lab import sweep

    described = sweep.read(SWEEPS / f"{experiment}.toml")
    outcomes = sweep.outcomes(described)
    if len(outcomes) < len(described.settings):
        raise FileNotFoundError(
            f"of the {len(described.settings)} runs of {experiment}.toml {len(outcomes)} are"
            f" recorded; python -m experiments sweep "
            f"experiments/sweeps/{experiment}.toml runs the others"
        )
    return tuple(outcomes)


def of_variant(experiment: str, variant: str) -> "list[Outcome]":
    """Return the recorded runs of one variant, in the order of the sweep: as `runs`."""
    return [outcome for outcome in runs(experiment) if outcome.setting.variant == variant]


def losses(experiment: str, variant: str, measure: str = "final_loss") -> FloatArray:
    """Return the losses of a variant that has one learning rate, (seeds,), in nats a byte."""
    return np.array([getattr(run, measure) for _, run in of_variant(experiment, variant)])


def merge_runs(*experiments: str) -> "tuple[Outcome, ...]":
    """Return the runs of several experiments, sorted by learning rate, the largest first, and seed.

    Raises FileNotFoundError as `runs`.
    """

    def rate_and_seed(outcome: "Outcome") -> tuple[float, int]:
        return -outcome.setting.training.learning_rate, outcome.setting.training.seed

    return tuple(sorted(chain.from_iterable(map(runs, experiments)), key=rate_and_seed))


def training_runs() -> list[Fields]:
    """Return the line of each recorded training run on a text, once each."""
    from experiments.lab import results

    files = sorted((RECORDED / "training").glob("*.jsonl"))
    lines = chain.from_iterable(results.read(file).items() for file in files)
    return list(dict(lines).values())
