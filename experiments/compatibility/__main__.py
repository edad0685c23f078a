"""Record what attnlib does with the models of transformers, and write the page that shows it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import ascii_lowercase

import torch

from attnlib._files import replace
from experiments import packages
from experiments.compatibility import FAMILIES, MORE, SEED, cells
from experiments.records import Record, compute_missing, load

PAGE = Path(__file__).parents[2] / "chapters" / "compatibility.md"

Cells = dict[tuple[str, str, str], dict[str, str]]


def answers_by_cell(record: Record) -> Cells:
    """Return the answer of each cell: of a family, a column and a tool."""
    return {
        (entry.key["family"], *place.rsplit(" ", 1)): {
            key: answer[key] for key in answer if key != "of"
        }
        for entry in record.entries
        for answer in entry.result
        for place in answer["of"]
    }


def page(record: Record) -> str:
    """Return the page that shows a record."""
    answers = answers_by_cell(record)
    letters: dict[str, str] = {}
    tables = {
        "plain": (FAMILIES, cells.IMPLEMENTATIONS),
        "others": (FAMILIES, cells.SITUATIONS),
        "fewer": (MORE, cells.FEWER),
    }
    shown = {name: "".join(table_lines(answers, letters, *of)) for name, of in tables.items()}
    kinds = Counter(answer["is"] for answer in answers.values())
    template = Path(__file__).with_name("page.md").read_text("utf-8")
    return template.format(
        **record.made,
        **shown,
        **{name: kinds[name] for name in (cells.RIGHT, cells.REFUSED, cells.WRONG)},
        families=len(FAMILIES),
        all=len(FAMILIES) + len(MORE),
        tries=len(answers) - kinds[cells.NONE],
        packages="".join(packages.table_lines(load("packages"))),
        notes="".join(f"- {letter}: {line}\n" for line, letter in letters.items()),
    )


def table_lines(
    answers: Cells, letters: dict[str, str], families: Iterable[str], columns: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of a table, and add its refusals to the letters."""
    yield f"| family | {' | '.join(columns)} |\n"
    yield f"|---|{'---|' * len(columns)}\n"
    for family in families:
        marks = [
            "\u00a0".join(mark(answers[family, column, tool], letters) for tool in cells.TOOLS)
            for column in columns
        ]
        yield f"| {family} | {' | '.join(marks)} |\n"


def mark(answer: dict[str, str], letters: dict[str, str]) -> str:
    """Return the mark of a cell; a new line of refusal gets a letter."""
    if answer["is"] != cells.REFUSED:
        return {cells.RIGHT: "✓", cells.NONE: "–", cells.WRONG: "✗"}[answer["is"]]
    return letters.setdefault(general_line(answer["line"]), ascii_lowercase[len(letters)])


def general_line(line: str) -> str:
    """Return a line of refusal with … for the model's own names."""
    line = re.sub(r"(attention in )\w+\. (\S+ \(\w+\).*? ran)", r"\1…. … ran", line)
    line = re.sub(r"(attention in )\w+\.", r"\1….", line)
    line = re.sub(r"\w+(?= writes its softmax out)", "…", line)
    line = re.sub(r"(attention in ….) \S+: ([^;]*)(; \S+: \2)*$", r"\1 …: \2", line)
    line = re.sub(r"\b\w+(Model|Stack|For\w+)\b(?= (refuses|has|does))", "…", line)
    return re.sub(r" \(see https.*?\)", "", line)


def main() -> None:
    """Record what is not recorded yet, and write the page."""
    torch.set_num_threads(1)
    settings = {"seed": SEED}
    record = compute_missing(
        "compatibility", cells.entries_to_compute(), settings, "torch", "transformers"
    )
    replace(PAGE, page(record).encode("utf-8"))


if __name__ == "__main__":
    main()
