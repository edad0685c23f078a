"""The tables and the list in models.md: `python -m book.models` renews them from the records.

Captions, headings and the words around are written in the page. A test compares with the records
what is said there of all heads.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from attnlib.files import replace
from book.live import heads
from book.live.heads import Columns
from experiments.real_heads import verdicts

PAGE = Path(__file__).parent.parent / "models.md"

COLUMNS = {
    "model": ("model", "{model}"),
    "layer": ("layer", "{layer:.0f}"),
    "head": ("head", "{head:.0f}"),
    "n": ("n", "{n:.0f}"),
    "alpha": ("α", "{alpha}"),
    "keys": ("keys", "{keys}"),
    "random": ("random keys", "{random_keys}"),
    "entropy": ("entropy", "{entropy:.2f}"),
    "first": ("first key", "{first:.3f}"),
    "output": ("output", "{output:.3f}"),
    "s": ("s", "{s:.2f}"),
    "needle": ("needle", "{needle}"),
    "weight": ("its weight", "{weight}"),
}
"""What a search calls each column, its heading, and its cells."""

HEADS = re.compile(r'<div class="listing".*?</div>', re.DOTALL)
ROWS = re.compile(r"(:name: models-(\w+)\n\n\|.*\n\|[-: |]+\|\n)(?:\|.*\n)*")
"""The rows of a table in Markdown, after its label, its headings and the line below them."""

JUDGED = re.compile(r"(\(models-predictions\)=\n## .*\n\n(?:.+\n)+\n)(?:- .*\n)*")
"""The list of predictions, after its heading and what is said of it."""

Rows = Iterator[tuple[str, ...]]


def page() -> str:
    """Return the page with its tables made anew; KeyError for the label of an unknown one."""
    text = HEADS.sub(lambda _: listed(heads.heads()), PAGE.read_text(encoding="utf-8"))
    text = JUDGED.sub(lambda found: found[1] + predictions(), text)

    def table(found: re.Match[str]) -> str:
        return found[1] + "".join(f"| {' | '.join(cells)} |\n" for cells in TABLES[found[2]]())

    return ROWS.sub(table, text)


# --- all heads ------------------------------------------------------------------------------------


def listed(table: Columns) -> str:
    """Return the table as HTML, one line for each head."""
    head = "".join(
        f'<th scope="col" data-name="{name}">{title}</th>' for name, (title, _) in COLUMNS.items()
    )
    line = "".join(f"<td>{cell}</td>" for _, cell in COLUMNS.values())
    rows = "\n".join(
        f"<tr>{line.format(**shown(table, i))}</tr>".replace(">-", ">−")
        for i in range(len(table["n"]))
    )
    return (
        '<div class="listing" role="region" aria-label="All heads" tabindex="0">'
        f'<table id="heads"><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'
    )


def shown(table: Columns, i: int) -> dict[str, Any]:
    """Return what the cells of a head show."""
    numbers = {name: values[i] for name, values in table.items()}
    known = bool(np.isfinite(numbers["needle"]))
    return {
        **numbers,
        **{name: digits(numbers[name]) for name in ("alpha", "keys", "random_keys")},
        "model": heads.MODELS[int(numbers["model"])].name,
        "needle": list(heads.NEEDLES)[int(numbers["needle"])] if known else "",
        "weight": f"{numbers['weight']:.2f}" if known else "",
    }


def digits(value: float) -> str:
    """Return a positive number with three digits and no exponent."""
    return f"{value:.{max(0, 2 - int(np.floor(np.log10(value))))}f}"


# --- what SmolLM2's heads look for, and what another scale costs ----------------------------------


def needles() -> Rows:
    """Yield the heads that find a known token, at 512 keys."""
    for kind in ("previous", "repeat"):
        found = verdicts.needle(kind, 512)
        for i, head in enumerate(found["head"]):
            numbers = (found[f"{name}_rest"][i] for name in ("gap", "slope", "variance"))
            weight = f"{found['weight'][i]:.2f}"
            yield place(head), kind, weight, *(f"{number:.1f}" for number in numbers)


def place(head: float) -> str:
    """Return a head of SmolLM2 by its layer and its place there."""
    return "{}.{}".format(*divmod(int(head), heads.MODELS[0].heads))


def rules() -> Rows:
    """Yield the costs of rules in the place of the model's own, and the rules of each cost."""
    names: dict[float, list[str]] = {}
    for name, cost in verdicts.costs_of("policies", "policy", **{"as": "scale"}).items():
        names.setdefault(round(float(cost.mean()), 2), []).append(f"`{name}`")
    for nats in sorted(names):
        yield signed(nats), ", ".join(names[nats])


def faults() -> Rows:
    """Yield the faults of the museum that are a wrong factor, from the smallest, with costs."""
    factors, costs = verdicts.factors_of_faults(), verdicts.costs_of("faults", "exhibit")
    for name in sorted(costs, key=factors.__getitem__):
        yield f"`{name}`", f"{factors[name]:.3g}", signed(costs[name].mean())


def predictions() -> str:
    """Return the list of the predictions: whether each is kept, and the numbers that decide it."""
    return "".join(
        f"- **{verdict.name}**, {'kept' if verdict.kept else '*not kept*'}: {verdict.words} "
        f"Found: {verdict.found.replace(' -', ' −')}.\n"
        for verdict in verdicts.all_of_them()
    )


def signed(nats: float) -> str:
    """Return a cost with two digits after the point."""
    return f"{round(nats, 2) + 0.0:.2f}".replace("-", "−")


TABLES: dict[str, Callable[[], Rows]] = {
    "needles": needles,
    "rules": rules,
    "faults": faults,
}
"""The tables in Markdown, by their labels in the page."""


if __name__ == "__main__":
    replace(PAGE, page().encode("utf-8"))
    print(f"wrote {PAGE.name}")
