"""Record what claims need of the recorded runs and of the recorded heads, as files of the library.

    python -m experiments.claim_records

writes ledger/training_runs.json from the recorded runs, which must be complete, and
heads.json from the records of `experiments.real_heads`: with them the claims have the same verdicts
wherever attnlib is installed.
"""

import json
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import ledger
from attnlib.files import replace
from experiments.lab import sweep
from experiments.lab.train import Run, Training
from experiments.real_heads import parts, verdicts
from experiments.real_heads import rows as head_rows
from experiments.records import HERE, Record, load, runs, together
from ledger.heads import HEADS
from ledger.training import RUNS

OUT = Path(ledger.__path__[0]) / RUNS
OUT_HEADS = OUT.with_name(HEADS)
NAMES = ("source_start", "learning_rate", "cause", "encoder", "encoder_longer", "residual")
FURTHER = {"cause": ("cause_seeds", "cause_rates")}
"""Experiments with more seeds or learning rates for another one."""
MODELS = ("SmolLM2", "MiniLM", "AntiBERTy", "RXNMapper", "rxnfp")
LONGEST = parts.LONG_LENGTHS[-1]
STEP_BY_STEP = ("residual",)
"""The experiments of which a check compares the losses of every step."""


def main() -> None:
    """Write the files."""
    replace(OUT, content().encode("utf-8"))
    replace(OUT_HEADS, heads_content().encode("utf-8"))


def content() -> str:
    """Return the whole file, one run a line."""
    parts = ",\n".join(f"{json.dumps(name)}: {experiment(name)}" for name in NAMES)
    command = json.dumps("python -m experiments.claim_records")
    made = ",\n".join(makings())
    return f'{{"command": {command},\n"made": [\n{made}\n],\n"recorded": {{\n{parts}\n}}}}\n'


def makings() -> list[str]:
    """Return what the runs were made with, each of it once."""
    names = chain.from_iterable((name, *FURTHER.get(name, ())) for name in NAMES)
    described = [sweep.read(HERE / f"{name}.toml") for name in names]
    found = chain.from_iterable(map(sweep.made, described))
    return list(dict.fromkeys(map(json.dumps, found)))


def experiment(name: str) -> str:
    """Return the entry of an experiment: what its runs share, and the runs."""
    found = together(name, *FURTHER[name]) if name in FURTHER else runs(name)
    first = found[0].setting
    shared = {key: getattr(first.config, key) for key in ("depth", "width", "sequence")}
    lines = ",\n".join(
        json.dumps(run(one) | (apart(one, found) if name in STEP_BY_STEP else {})) for one in found
    )
    return f'{json.dumps({**shared, "steps": first.training.steps})[:-1]}, "runs": [\n{lines}\n]}}'


def run(outcome: sweep.Outcome) -> dict[str, Any]:
    """Return the entry of a run."""
    setting, training = outcome.setting, cast(Training, outcome.setting.training)
    return {
        "variant": setting.variant,
        "learning_rate": training.learning_rate,
        "seed": training.seed,
        "precision": training.precision,
        "final_loss": cast(Run, outcome.run).final_loss,
    }


def apart(outcome: sweep.Outcome, found: Sequence[sweep.Outcome]) -> dict[str, list[float]]:
    """Return how far each loss is from the baseline's of the same precision, with four digits."""
    precision = cast(Training, outcome.setting.training).precision
    (base,) = (
        cast(Run, one.run).losses
        for one in found
        if one.setting.variant == "baseline"
        and cast(Training, one.setting.training).precision == precision
    )
    gaps = abs(cast(Run, outcome.run).losses - base)
    return {"apart": [float(f"{gap:.4g}") for gap in gaps]}


def heads_content() -> str:
    """Return the whole file on heads, one list a line."""
    record, repeats, price = (load(f"real_heads_{name}") for name in ("laws", "repeats", "price"))
    made = {json.dumps(one.made): one.made for one in (record, repeats, price)}
    table = {
        "command": "python -m experiments.claim_records",
        "made": list(made.values()),
        "recorded": {
            "models": {name: of_model(record, name) for name in MODELS},
            "longest": LONGEST,
            "bounds": record.find(broken="bounds"),
            "needles": needles(),
            "price": of_all_logits(),
        },
    }
    return re.sub(r"\[\s+([^\[\]{}]+?)\s+\]", _one_line, json.dumps(table, indent=0)) + "\n"


def _one_line(found: re.Match[str]) -> str:
    return "[" + " ".join(found[1].split()) + "]"


def of_model(record: Record, name: str) -> dict[str, Any]:
    """Return what the claims need of a model's heads: exponents, and Λ and t½/Λ at one length."""
    up_to = {"tokens": parts.LENGTHS[-1]} if name == "SmolLM2" else {}
    growth = record.find(model=name, growth="laws", **up_to)
    tables = [e for e in record.select(model=name, **up_to) if "length" in e.at]
    middle = next((e for e in tables if e.at["length"] == verdicts.SEEN), tables[-1]).found
    found = {
        "lengths": [entry.at["length"] for entry in tables],
        "weight_exponent": growth["largest_rest"][0],
        "half": middle["half"],
    }
    if name == "SmolLM2":
        found["range"] = record.find(model=name, tokens=LONGEST, length=LONGEST)["range"]
        found["range_growth"] = growth["range"][0]
        found["tail"] = middle["tail"]
        found |= zip(("law", "law_low", "law_high"), growth["tail"], strict=True)
    brown = record.select(model=name, growth="output")
    for texts, table in (("", growth), ("brown", brown[0].found if brown else {})):
        for end, numbers in zip(("", "_low", "_high"), table.get("output", ()), strict=False):
            found[f"output{texts}{end}"] = numbers
    return {key: digits(value) for key, value in found.items()}


def needles() -> dict[str, Any]:
    """Return the heads that find the needle of a text said twice, at SHORT tokens."""
    table = verdicts.needle("repeat", parts.SHORT)
    names = {"gap": "gap_rest", "variance": "variance_rest", "slope": "slope_rest"}
    names |= {f"{time:.3g}": f"loss {time:.3g}" for time in head_rows.TIMES}
    found = {name: digits(table[column].tolist()) for name, column in names.items()}
    return {"n": parts.SHORT, "heads": [int(one) for one in table["head"]], **found}


def of_all_logits() -> dict[str, Any]:
    """Return the best multiplier of all logits at each length."""
    best = verdicts.best_at_lengths().tolist()
    return {"lengths": list(parts.PRICE_LENGTHS), "best": digits(best)}


def digits(value: Any) -> Any:
    """Return numbers with four digits."""
    if isinstance(value, list):
        return [digits(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
