"""Measure trained models: their heads, what these look for, and the price of another scale.

    python -m experiments.real_heads

installs what it needs into a folder of its own, goes on where it was stopped, and takes about half
an hour of two cores, most of it SmolLM2's. `--part` does some parts only.

Predicted before the first recorded run: real_heads_predictions.md, beside this folder.
"""

from typing import Annotated

import torch
import typer

from experiments.provenance import made
from experiments.real_heads import inputs, parts
from experiments.real_heads.summary import SUMMARIES, summarised
from experiments.records import Record, complete, load, path_of, save

COMMAND = "python -m experiments.real_heads"

app = typer.Typer(add_completion=False)


@app.command()
def main(
    part: Annotated[list[str] | None, typer.Option(help="Parts to do; all by default.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 2,
) -> None:
    """Measure, and write the records."""
    wrong = set(part or ()) - set(parts.PARTS)
    if wrong:
        raise typer.BadParameter(f"parts are {', '.join(parts.PARTS)}, got {', '.join(wrong)}")
    torch.set_num_threads(threads)
    for name in part or parts.PARTS:
        print(name, flush=True)
        measured(name, threads)


def measured(name: str, threads: int) -> Record:
    """Do one part, or what is left of it, and return its record.

    The numbers of a large part, text by text, stay in the cache; what is recorded are their means.
    """
    kept = path_of(f"real_heads_{name}")
    large = name in SUMMARIES
    found = complete(
        inputs.folder() / "measured" / kept.name if large else kept,
        parts.PARTS[name](),
        command=COMMAND,
        settings=parts.SETTINGS,
        made=made("numpy", "scipy", "torch", "transformers", threads=threads),
    )
    if large:
        means = tuple(summarised(name, found.entries))
        save(kept, found._replace(entries=means))
    return load(kept)


if __name__ == "__main__":
    app()
