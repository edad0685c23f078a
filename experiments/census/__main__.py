"""Record the scale of every family of transformers: `python -m experiments.census`."""

import sys
from argparse import ArgumentParser
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.census import audited, error_line, families, run_limited, watched
from experiments.census.families import Change
from experiments.census.watched import Row
from experiments.lab.results import to_json
from experiments.records import Work, compute_missing

SECONDS = 180
"""Of the processor, for each family."""
SAME = 1e-3
MOVED = 0.05
"""Position codes that are learned or convolved change a factor by less."""
Runs = dict[Any, Row]


def entries_to_compute() -> Work:
    """Yield the families, with the function that measures each."""
    for family in families.names():
        yield {"family": family}, partial(measure_in_process, family)


def measure_in_process(family: str) -> dict[str, Any]:
    """Measure a family in a process of its own, in limited time and memory."""
    try:
        measured = run_limited(SECONDS, measure_family, family)
    except Exception as error:
        measured = error_line(family, error)
    return {"rows": [], "not": [measured]} if isinstance(measured, str) else dict(measured)


def measure_family(family: str) -> dict[str, Any]:
    """Return a row for each kind of attention that ran, and a line for each that did not run."""
    rows: dict[str, Row] = {}
    lines = []
    for file in families.files(family):
        classes = {kind.__name__: kind for kind in families.attention_of(file)}
        tried, reason = set(), "did not run"
        for kind in families.models_of(file):
            if kind.config_class in tried or (classes and classes.keys() <= class_names(rows)):
                continue
            try:
                add_new(rows, model_rows(kind))
                tried.add(kind.config_class)
            except Exception as error:
                reason = reason if tried else error_line(kind.__name__, error)
        for name in sorted(classes.keys() - class_names(rows)):
            add_new(rows, layer_rows(classes[name], file))
        lines += [f"{name}: {reason}" for name in sorted(classes.keys() - class_names(rows))]
    return {"rows": list(rows.values()), "not": lines if rows or lines else ["nothing ran"]}


def add_new(rows: dict[str, Row], new: list[Row]) -> None:
    """Add the rows that differ from all others by more than the noise of random numbers."""
    for row in new:
        rough = {k: f"{v:.2g}" if isinstance(v, float) else v for k, v in row.items()}
        rows.setdefault(repr(rough), row)


def class_names(rows: dict[str, Row]) -> set[str]:
    """Return the names of the classes of attention in some rows."""
    return {row["kind"] for row in rows.values()}


def run_parts(model: Any, **options: Any) -> Runs:
    """Run a model, or the parts of it that can be run, and return the measured rows."""
    runs: Runs = {}
    failure: Exception | None = None
    names = {module: name for name, module in model.named_modules()}
    for part in families.model_parts(model):
        before = names[part] + "." if names[part] else ""
        if any(name.startswith(before) for name, _ in runs):
            continue
        for inputs in families.inputs(part):
            try:
                rows = watched.measure(part, partial(part, **inputs), **options)
            except Exception as error:
                failure = failure or error
                continue
            runs |= {(before + name, number): row for (name, number), row in rows.items()}
            break
        if runs and not before:
            break
    if not runs:
        raise failure or RuntimeError("no softmax of a product of q and k")
    return runs


def run_changed(kind: Any, change: Change) -> Runs:
    """Run a model of changed settings; return its rows, none if the change does not apply."""
    with suppress(Exception):
        if families.change_all(change, kind.config_class()):
            return run_parts(families.build_model(kind, change))
    return {}


def model_rows(kind: Any) -> list[Row]:
    """Return the rows of a class of models, one for each of its layers."""
    model = families.build_model(kind)
    base = run_parts(model)
    runs = {
        "other": run_parts(model, other=True),
        "size": run_changed(kind, families.other_size),
        "yarn": run_changed(kind, families.yarn_settings),
        "early": run_changed(kind, families.early_settings),
    }
    if "mscale" in Path(str(sys.modules[kind.__module__].__file__)).read_text("utf-8"):
        with_scale = partial(families.yarn_settings, mscale=1.0, mscale_all_dim=1.0)
        runs["mscale"] = run_changed(kind, with_scale)
    return [
        {**describe_call(row, {name: run.get(place) for name, run in runs.items()}), "by": "model"}
        for place, row in base.items()
        if 0.0 < row["alpha"] < np.inf  # a query that is learned and starts at 0 tells nothing
    ]


def layer_rows(kind: Any, file: Any) -> list[Row]:
    """Return the row of a layer of attention by itself, in a list; an empty one if none runs."""
    for layer, call in families.build_layers(kind, file):
        with suppress(Exception):
            base, other = (watched.measure(layer, call, flag) for flag in (False, True))
            for place, row in base.items():
                return [{**describe_call(row, {"other": other.get(place)}), "by": "layer"}]
    return []


def describe_call(base: Row, runs: dict[str, Row | None]) -> Row:
    """Return the recorded row of a call of attention, from its row in each of the runs."""
    other, size = runs.get("other"), runs.get("size")
    row = {key: base[key] for key in ("kind", "where", "d", "terms", "sink", "parameters")}
    row |= {"v": base.get("v"), "gate": base.get("gate", False)}
    row |= {"alpha": four_digits(base["alpha"]), "scale": four_digits(base["scale"])}
    if other:
        row["norm"] = [norm_axis(base, other, i) for i in (0, 1)]
        if 1.0 < other["largest"] < watched.LARGE * base["factor"] / 10:
            row["cap"] = four_digits(other["largest"])
    if size and 0.0 < size["scale"] < np.inf and size["d"] != base["d"]:
        power = np.log(size["scale"] / base["scale"]) / np.log(size["d"] / base["d"])
        row |= {"power": round(float(power), 3), "other d": size["d"]}
    if values := position_factors(base):
        row["alpha"] = four_digits(base["rows"][0] * base["d"] ** 0.5)
        row["scale"] = four_digits(base["rows"][0])
        row["by position"] = values
    elif values := position_factors(runs.get("early")):
        row["from 4"] = values[-1]
    if size and size["visible"] < base["visible"]:
        row["window of 5"] = size["visible"]
    for name in ("yarn", "mscale"):
        run = runs.get(name)
        if run and abs(run["alpha"] / base["alpha"] - 1.0) > SAME:
            row[name] = four_digits(run["alpha"] / base["alpha"])
    return row


def position_factors(run: Row | None) -> list[float]:
    """Return the factor on q·k at each position over that at the first, if the last one differs."""
    if not run or not run["rows"] or len(run["rows"]) != families.TOKENS or not run["rows"][0]:
        return []  # a row of one key, less its largest logit, has the derivative 0
    values = np.array(run["rows"]) / run["rows"][0]
    return list(map(four_digits, values)) if abs(values[-1] - 1.0) > MOVED else []


def norm_axis(base: Row, other: Row, i: int) -> str:
    """Return where q (0) or k (1) is normalised: no, by head, or over the whole width."""
    if abs(other["lengths"][i] / base["lengths"][i] - 1.0) > 0.1:
        return "no"
    return "width" if other["heads"] and other["heads"][i] > 1.05 else "head"


four_digits = partial(to_json, digits=4)


if __name__ == "__main__":
    families.files("llama")  # what all families import is imported once
    asked = ArgumentParser(prog="python -m experiments.census")
    asked.add_argument("--audit", action="store_true", help="audit each family instead")
    asked.add_argument("--part", default="1/1", help="K/N: every Nth family, from the Kth")
    asked.add_argument("--again", default="", help="families to audit once more, with commas")
    given = asked.parse_args()
    if given.audit:
        audited.record_audits(given.part, given.again)
    else:
        compute_missing(
            "census", entries_to_compute(), {"places": families.PLACES}, "torch", "transformers"
        )
