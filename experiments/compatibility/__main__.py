"""Record what attnlib does with the models of transformers, and write the page that shows it."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_lowercase

import torch

from attnlib import provenance
from attnlib.files import replace
from experiments.compatibility.cells import (
    IMPLEMENTATIONS,
    NONE,
    REFUSED,
    RIGHT,
    SITUATIONS,
    TOOLS,
    WRONG,
    work,
)
from experiments.compatibility.models import FAMILIES, SEED
from experiments.records import Record, complete, path_of

COMMAND = "python -m experiments.compatibility"
RECORD = path_of("compatibility")
PAGE = Path(__file__).parents[2] / "compatibility.md"

Cells = dict[tuple[str, str, str], dict[str, str]]


def read(record: Record) -> Cells:
    """Return the answer for each family, column and tool."""
    return {
        (entry.at["family"], *place.split()): {key: answer[key] for key in answer if key != "of"}
        for entry in record.entries
        for answer in entry.found
        for place in answer["of"]
    }


PROSE = """\
# Compatibility

`probe`, `rescale` and `register` were each run on {families} families of models of transformers
{transformers}, under each implementation of attention, and in six situations under the one that
transformers takes: {tries} tries. In {right} the tool does what it says, in {refused} it refuses in
a line that says why, in {wrong} it is wrong. Of the refusals, {elsewhere} are of eager or flex
attention where the same tool does what it says with `attn_implementation="sdpa"`.

Three marks stand in each cell: for `probe`, `rescale` and `register`, in this order. ✓ means right,
a letter that the tool refuses, with the line below the tables, and – that there is no such thing:
an implementation that the family lacks, a cache in an encoder.

Right means the same as attention that is written out in double precision, key by key, and put in
the place of the model's own: the same numbers in the report, or the same output (gradients,
generated text) at the changed scale. Each family is a small model of two layers with random
weights, named as its configuration. Recorded with PyTorch {torch} on a CPU;
`python -m experiments.compatibility` records it again and writes this page.

"""


COUNTED = {"right": RIGHT, "refused": REFUSED, "wrong": WRONG}


def page(record: Record) -> str:
    """Return the page that shows a record."""
    found = read(record)
    letters: dict[str, str] = {}
    plain = list(table(found, letters, IMPLEMENTATIONS))
    others = list(table(found, letters, SITUATIONS))
    notes = [f"- {letter}: {line}\n" for line, letter in letters.items()]
    kinds = Counter(answer["is"] for answer in found.values())
    counts = {name: kinds[kind] for name, kind in COUNTED.items()}
    elsewhere = sum(
        found[family, implementation, tool]["is"] == REFUSED
        and found[family, "sdpa", tool]["is"] == RIGHT
        for family in FAMILIES
        for implementation in IMPLEMENTATIONS[1:]
        for tool in TOOLS
    )
    return "".join(
        [
            PROSE.format(
                **record.made,
                **counts,
                families=len(FAMILIES),
                tries=sum(counts.values()),
                elsewhere=elsewhere,
            ),
            "## By implementation of attention\n\n",
            *plain,
            "\n## By what the model is doing\n\n",
            "With the implementation that transformers takes for the family: sdpa, or eager where\n"
            "the model refuses that.\n\n",
            *others,
            "\n## What is refused, and in which words\n\n",
            *notes,
        ]
    )


def table(found: Cells, letters: dict[str, str], columns: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table, and put its refusals among the letters."""
    yield f"| family | {' | '.join(columns)} |\n"
    yield f"|---|{'---|' * len(columns)}\n"
    for family in FAMILIES:
        marks = [
            "\u00a0".join(mark(found[family, column, tool], letters) for tool in TOOLS)
            for column in columns
        ]
        yield f"| {family} | {' | '.join(marks)} |\n"


def mark(found: dict[str, str], letters: dict[str, str]) -> str:
    """Return the mark of a cell; a line that is new gets a letter."""
    if found["is"] != REFUSED:
        return {RIGHT: "✓", NONE: "–", WRONG: "✗"}[found["is"]]
    return letters.setdefault(shown(found["line"]), ascii_lowercase[len(letters)])


def shown(line: str) -> str:
    """Return a line with … for what is the model's in it."""
    line = re.sub(r"(attention in )\w+\. (\S+ \(\w+\).*? ran)", r"\1…. … ran", line)
    line = re.sub(r"(attention in )\w+\.", r"\1….", line)
    line = re.sub(r"\b\w+(Model|Stack|For\w+)\b(?= (refuses|has|does))", "…", line)
    return re.sub(r" \(see https.*?\)", "", line)


def main() -> None:
    """Record what is not recorded yet, and write the page."""
    torch.set_num_threads(1)
    made_with = provenance.made("numpy", "scipy", "torch", "transformers", threads=1)
    record = complete(RECORD, work(), command=COMMAND, settings={"seed": SEED}, made=made_with)
    replace(PAGE, page(record).encode("utf-8"))


if __name__ == "__main__":
    main()
