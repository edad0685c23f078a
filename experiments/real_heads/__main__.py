"""Measure trained models: their heads, what these look for, and the price of another scale.

    python -m experiments.real_heads

installs what it needs into a folder of its own, goes on where it was stopped, and takes about half
an hour of two cores, most of it SmolLM2's. `--part` does some parts only. With `--model` the heads
of a model of the reader's, a folder or a name of the hub, are measured on English instead.

Predicted before the first recorded run: real_heads_predictions.md, beside this folder.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from experiments.lab import data
from experiments.provenance import made
from experiments.real_heads import inputs, law_summary, parts, rows, summary
from experiments.records import Entry, Record, complete, load, path_of, save

COMMAND = "python -m experiments.real_heads"
LARGE = ("atlas", "repeats", "laws")
"""Parts whose numbers, text by text, stay in the cache; what is recorded are means of them."""

app = typer.Typer(add_completion=False)


@app.command()
def main(
    part: Annotated[list[str] | None, typer.Option(help="Parts to do; all by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the records.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 2,
    text: Annotated[Path | None, typer.Option(help="A copy of tiny-shakespeare.")] = None,
    model: Annotated[str | None, typer.Option(help="A model of yours, by folder or name.")] = None,
) -> None:
    """Measure, and write the records."""
    wrong = set(part or ()) - set(parts.PARTS)
    if wrong:
        raise typer.BadParameter(f"parts are {', '.join(parts.PARTS)}, got {', '.join(wrong)}")
    torch.set_num_threads(threads)
    if text is not None:
        inputs.COPY[data.SHAKESPEARE] = text
    if model is not None:
        print(table_of(model))
        return
    for name in part or parts.PARTS:
        print(name, flush=True)
        measured(name, threads, out)


def record_of(name: str, out: Path | None = None) -> Path:
    """Return where the record of a part is, or will be."""
    usual = path_of(f"real_heads_{name}")
    return usual if out is None else out / usual.name


def measured(name: str, threads: int, out: Path | None = None) -> Record:
    """Do one part, or what is left of it, and return its record."""
    found = complete(
        raw(name) if name in LARGE else record_of(name, out),
        parts.PARTS[name](),
        command=COMMAND,
        settings=parts.settings(),
        made=made("numpy", "scipy", "torch", "transformers", threads=threads),
    )
    if name in LARGE:
        summarise(name, out)
    return found


def raw(name: str) -> Path:
    """Return where the numbers of a large part lie, text by text."""
    return inputs.folder() / "measured" / record_of(name).name


def summarise(name: str, out: Path | None = None) -> None:
    """Write the means of what was measured: what they were made with is what that was made with."""
    found = load(raw(name))
    save(record_of(name, out), found._replace(entries=tuple(summarised(name, found))))


def summarised(name: str, found: Record) -> list[Entry]:
    """Return the entries of a record of means, of that with all texts."""
    seconds = Entry({"seconds": name}, round(sum(one.found["seconds"] for one in found.entries)))
    if name == "laws":
        return [seconds, *law_summary.summarised(found.entries)]
    tables: dict[tuple[str, int, str], list[Any]] = {}
    if name == "repeats":
        for entry in found.entries:
            key = ("repeat", entry.at["tokens"], "repeats")
            tables.setdefault(key, []).append(entry.found["needle"])
        return [seconds, *summary.needles(tables)]
    for entry in found.entries:
        for needle, several in entry.found.get("needles", {}).items():
            for n, one in zip(entry.found["lengths"], several, strict=True):
                tables.setdefault((needle, n, f"{entry.at['tokens']} tokens"), []).append(one)
    return [seconds, *summary.atlas(found.entries), *summary.needles(tables)]


def table_of(name: str) -> str:
    """Return the heads of the reader's model as lines: α, keys, those of random rows, the sink."""
    model = inputs.pretrained(name, name)
    longest = getattr(getattr(model.module, "config", None), "max_position_embeddings", 512)
    n = int(min(longest, parts.SHORT))
    ids = parts.window(model, 0, n)
    found, _ = rows.measure(model.module, ids, rows.at_lengths([n], parts.ROWS, 0)[0])
    table = parts.heads(found)
    columns = ("alpha", "keys", "random_keys", "keys_rest", "first", "output", "largest_logit")
    lines = ["head  " + "  ".join(f"{column:>13}" for column in columns)]
    for i, numbers in enumerate(np.array([table[column] for column in columns]).T):
        lines.append(f"{i:4d}  " + "  ".join(f"{number:13.4g}" for number in numbers))
    return "\n".join(lines)


if __name__ == "__main__":
    app()
