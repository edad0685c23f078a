"""Measure trained models: their heads, the needles of these, and the price of another scale.

    python -m experiments.real_heads [PART]...

installs what it needs into a folder of its own, goes on where it was stopped, and takes about half
an hour of two cores, most of it SmolLM2's, for all parts.

Predicted before the first recorded run: predictions/real_heads.md.
"""

import sys

import torch

from attnlib import _checking
from experiments.provenance import made
from experiments.real_heads import package_files, parts
from experiments.real_heads.summary import SUMMARIES, summarise
from experiments.records import Record, compute_missing_at, load, path_of, save

COMMAND = "python -m experiments.real_heads"
THREADS = 2


def measure_part(name: str) -> Record:
    """Measure one part, or the rest of it, and return its record.

    The numbers of a large part, text by text, stay in the cache; its record has their means.
    """
    path = path_of(f"real_heads_{name}")
    large = name in SUMMARIES
    record = compute_missing_at(
        package_files.folder() / "measured" / path.name if large else path,
        parts.PARTS[name](),
        command=COMMAND,
        settings=parts.SETTINGS,
        made=made("numpy", "scipy", "torch", "transformers", threads=THREADS),
    )
    if large:
        means = tuple(summarise(name, record.entries))
        save(path, record._replace(entries=means))
    return load(path)


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    asked = [_checking.choice("PART", part, tuple(parts.PARTS)) for part in sys.argv[1:]]
    for part in asked or parts.PARTS:
        print(part, flush=True)
        measure_part(part)
