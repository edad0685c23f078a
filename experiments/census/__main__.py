"""Record the scale of every family of transformers: `python -m experiments.census`."""

import json
import multiprocessing
import resource
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.census import families, watched
from experiments.census.watched import Found
from experiments.records import Work, recorded

SECONDS, MEMORY = 25, 10 << 30
PATIENCE = 1200
"""Seconds of the processor, and of the clock: the machine may be busy."""
SAME = 1e-3
Runs = dict[Any, Found]


def work() -> Work:
    """Yield the families, and what measures one."""
    for family in families.names():
        yield {"family": family}, partial(apart, family)


def apart(family: str) -> dict[str, Any]:
    """Measure a family in a process of its own, in limited time and memory."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send, args=(family, sender))
    process.start()
    sender.close()
    lines: dict[str, Any] = {"rows": [], "not": [f"not done in {SECONDS} s and 10 GB"]}
    if receiver.poll(PATIENCE):
        with suppress(EOFError):
            lines = json.loads(receiver.recv())
    process.kill()
    process.join()
    return lines


def send(family: str, to: Any) -> None:
    """Measure a family and send what was found."""
    used = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime)
    resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS,) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    to.send(json.dumps(measured(family)))


def measured(family: str) -> dict[str, Any]:
    """Return a row for each kind of attention that ran, and a line for each that did not."""
    rows: dict[str, Found] = {}
    failed: dict[str, str] = {}
    for file in families.files(family):
        wanted = {kind.__name__ for kind in families.attention_of(file)}
        done = set()
        for kind in families.models_of(file):
            seen = {row["kind"] for row in rows.values()}
            if kind.config_class in done or (wanted and wanted <= seen):
                continue
            try:
                found = of_model(kind)
            except Exception as error:
                failed[kind.__name__] = one_line(error)
                continue
            done.add(kind.config_class)
            for row in found:
                told = {one: row[one] for one in row if one not in ("layers", "model")}
                rows.setdefault(repr(told), row)
        seen = {row["kind"] for row in rows.values()}
        for kind in families.attention_of(file):
            if kind.__name__ not in seen:
                for row in of_layer(kind, file):
                    rows.setdefault(repr(row), row)
        seen = {row["kind"] for row in rows.values()}
        missed = wanted - seen
        if missed and not seen & wanted:
            failed = {**failed, **{name: failed.get(name, "did not run") for name in missed}}
        elif missed:
            failed = dict.fromkeys(sorted(missed), "did not run")
        else:
            failed = {}
    return {"rows": list(rows.values()), "not": [f"{k}: {v}" for k, v in sorted(failed.items())]}


def one_line(error: BaseException) -> str:
    """Return what an error says, in at most 100 letters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:100]


def ran(model: Any, **options: Any) -> Runs:
    """Run a model, or the parts of it that can be run, and return what was found."""
    found: Runs = {}
    said: Exception | None = None
    names = {module: name for name, module in model.named_modules()}
    for part in families.readers(model):
        if any(name == names[part] or name.startswith(names[part] + ".") for name, _ in found):
            continue
        for given in families.inputs(part):
            try:
                one = watched.run(part, partial(part, **given), **options)
            except Exception as error:
                said = said or error
                continue
            before = names[part] + "." if names[part] else ""
            found |= {(before + name, number): what for (name, number), what in one.items()}
            break
        if names[part] == "" and found:
            break
    if not found:
        raise said or RuntimeError("no softmax of a product of q and k")
    return found


def again(kind: Any, change: Callable[[Any], dict[str, Any]]) -> Runs:
    """Return what a model of changed settings gives; nothing where there is no such change."""
    told = families.everywhere(change)
    try:
        return ran(families.made(kind, told)) if told(kind.config_class()) else {}
    except Exception:
        return {}


def of_model(kind: Any) -> list[Found]:
    """Return what is found of a class of models, once for layers that are alike."""
    model = families.made(kind)
    base = ran(model)
    runs = {
        "other": ran(model, other=True),
        "size": again(kind, lambda one: families.other_size(one) | families.narrow(one)),
        "yarn": again(kind, families.stretched),
    }
    if "mscale" in Path(str(sys.modules[kind.__module__].__file__)).read_text("utf-8"):
        with_scale = partial(families.stretched, mscale=1.0, mscale_all_dim=1.0)
        runs["mscale"] = again(kind, with_scale)
    rows: dict[str, Found] = {}
    for place, what in base.items():
        row = {
            **described(what, {name: run.get(place) for name, run in runs.items()}),
            "model": kind.__name__,
            "by": "model",
        }
        rows.setdefault(repr(row), {**row, "layers": 0})["layers"] += 1
    return list(rows.values())


def of_layer(kind: Any, file: Any) -> list[Found]:
    """Return what is found of a layer of attention by itself, or nothing."""
    configs = []
    for name in {one.config_class for one in families.models_of(file)}:
        config = name()
        configs += [config, *(getattr(config, one, None) for one in config.sub_configs)]
    for layer, call in families.alone(kind, file, [one for one in configs if one is not None]):
        try:
            base, other = (watched.run(layer, call, one) for one in (False, True))
        except Exception:
            continue
        if base:
            place, what = next(iter(base.items()))
            row = described(what, {"other": other.get(place)})
            return [{**row, "model": "", "by": "layer", "layers": 1}]
    return []


def described(what: Found, runs: dict[str, Found | None]) -> Found:
    """Return what the runs say of one call of attention."""
    other, size, yarn, mscale = (runs.get(name) for name in ("other", "size", "yarn", "mscale"))
    row = {key: what[key] for key in ("kind", "where", "d", "terms", "sink", "parameters", "read")}
    row |= {"v": what.get("v"), "gate": what.get("gate", False)}
    row |= {"alpha": digits(what["alpha"]), "scale": digits(what["scale"])}
    if other:
        row["norm"] = [side(what, other, i) for i in (0, 1)]
        if 1.0 < other["largest"] < watched.LARGE * what["factor"] / 10:
            row["cap"] = digits(other["largest"])
    if size and size["d"] != what["d"]:
        row["power"] = round(
            float(np.log(size["scale"] / what["scale"]) / np.log(size["d"] / what["d"])), 3
        )
        row["other d"] = size["d"]
    if what["rows"] and len(what["rows"]) == len(families.PLACES):
        values = np.array(what["rows"]) / what["rows"][0]
        if np.abs(values - 1.0).max() > 10 * SAME:
            row["alpha"] = digits(what["rows"][0] * what["d"] ** 0.5)
            row["scale"] = digits(what["rows"][0])
            row["by position"] = [digits(one) for one in values]
    if size and size["visible"] < what["visible"]:
        row["window of 5"] = size["visible"]
    for name, run in (("yarn", yarn), ("mscale", mscale)):
        if run and abs(run["alpha"] / what["alpha"] - 1.0) > SAME:
            row[name] = digits(run["alpha"] / what["alpha"])
    return row


def side(what: Found, other: Found, i: int) -> str:
    """Return where q (0) or k (1) is normalised: no, by head, or over the whole width."""
    if abs(other["qk"[i]] / what["qk"[i]] - 1.0) > 0.1:
        return "no"
    return "width" if other["heads"] and other["heads"][i] > 1.05 else "head"


def digits(value: float) -> float:
    """Return four digits."""
    return float(f"{value:.4g}")


def main() -> None:
    """Record what is not recorded yet."""
    families.files("llama")  # what all families import is imported once
    settings = {"places": families.PLACES}
    recorded("census", work(), settings, "torch", "transformers")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        families.files("llama")
        for family in sys.argv[1:]:
            print(json.dumps(apart(family), indent=1))
    else:
        main()
