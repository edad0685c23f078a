"""Record what the claims on training need of the recorded runs, as a file of the library.

    python -m experiments.claim_records

writes attnlib/claims/training_runs.json from the recorded runs, which must be complete: with it the
claims have the same verdicts wherever attnlib is installed.
"""

import json
from pathlib import Path
from typing import Any, cast

import attnlib.claims
from attnlib.claims.training import RUNS
from attnlib.files import read_json, replace
from attnlib.lab import results, sweep
from attnlib.lab.train import Run, Training
from experiments.records import HERE, runs

OUT = Path(attnlib.claims.__path__[0]) / RUNS
NAMES = ("learning_rate", "encoder", "encoder_longer", "residual", "cause")
STEP_BY_STEP = ("residual",)
"""The experiments of which a check compares the losses of every step."""


def main() -> None:
    """Write the file."""
    replace(OUT, content().encode("utf-8"))


def content() -> str:
    """Return the whole file, one run a line."""
    parts = ",\n".join(f"{json.dumps(name)}: {experiment(name)}" for name in NAMES)
    command = json.dumps("python -m experiments.claim_records")
    made = ",\n".join(makings())
    return f'{{"command": {command},\n"made": [\n{made}\n],\n"recorded": {{\n{parts}\n}}}}\n'


def makings() -> list[str]:
    """Return what the runs were made with, each of it once."""
    described = [sweep.read(HERE / f"{name}.toml") for name in NAMES]
    tables = (read_json(one.path(setting)) for one in described for setting in one.settings)
    found = (table.get(results.MADE, table.get(results.VERSIONS)) for table in tables)
    return list(dict.fromkeys(map(json.dumps, found)))


def experiment(name: str) -> str:
    """Return the entry of an experiment: what its runs share, and the runs."""
    found = runs(name)
    first = found[0].setting
    shared = {key: getattr(first.config, key) for key in ("depth", "width", "sequence")}
    lines = ",\n".join(json.dumps(run(outcome, name in STEP_BY_STEP)) for outcome in found)
    return f'{json.dumps({**shared, "steps": first.training.steps})[:-1]}, "runs": [\n{lines}\n]}}'


def run(outcome: sweep.Outcome, step_by_step: bool) -> dict[str, Any]:
    """Return the entry of a run; losses have the digits that tell floats of its precision apart."""
    setting, training = outcome.setting, cast(Training, outcome.setting.training)
    entry = {
        "variant": setting.variant,
        "learning_rate": training.learning_rate,
        "seed": training.seed,
        "precision": training.precision,
        "final_loss": cast(Run, outcome.run).final_loss,
    }
    return {**entry, "losses": results.encoded(*outcome, {})["losses"]} if step_by_step else entry


if __name__ == "__main__":
    main()
