"""What the page models.md shows of the records: a table of all heads, three more, and numbers.

The extension `book.extensions.pages` puts it there while the site is built.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnlib.rows import softmax
from book.live import heads, tables
from book.live.heads import Columns
from book.values import listing
from experiments.real_heads import verdicts
from experiments.real_heads.summary import FINDS, LISTED
from experiments.records import load

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

Rows = Iterator[tuple[str, ...]]


def made() -> dict[str, str]:
    """Return what is put into the page, by name."""
    tables = {"needles": needles(), "rules": rules(), "faults": faults()}
    rows = {
        name: "\n".join(f"| {' | '.join(cells)} |" for cells in table)
        for name, table in tables.items()
    }
    return {**rows, **numbers(), "heads": head_listing(heads.heads())}


def numbers() -> dict[str, str]:
    """Return the numbers in the page's text, by name."""
    table, record = heads.heads(), load("real_heads_atlas")
    share = table["keys"] / table["n"]
    words, logits, target = tables.row_of_head()
    weights = softmax(logits)
    own = {model.name: table["model"] == i for i, model in enumerate(heads.MODELS)}
    return {
        "count": str(share.size),
        "command": record.command,
        **{name: package["version"] for name, package in record.settings["packages"].items()},
        **{
            f"of {model.name}": f"{own[model.name].sum() // model.heads} × {model.heads} | "
            f"{table['n'][own[model.name]][0]:.0f}"
            for model in heads.MODELS
        },
        "least_alpha": f"{table['alpha'].min():.2f}",
        "most_alpha": f"{table['alpha'].max():.1f}",
        "least_share": f"{share.min():.4f}",
        "most_share": f"{share.max():.2f}",
        "fewer": f"{100 * np.mean(table['keys'] < table['random_keys']):.0f}",
        "length": str(heads.NEEDLE_LENGTH),
        "listed": str(LISTED),
        "finds": str(FINDS),
        "finders": str((table["weight"] >= FINDS).sum()),
        "tokens": str(weights.size),
        "weight": f"{weights[target]:.2f}",
        "word": words[target],
        "first": f"{weights[0]:.2f}",
    }


# --- all heads ------------------------------------------------------------------------------------


def head_listing(table: Columns) -> str:
    """Return the table as HTML, one line for each head."""
    head = "".join(
        f'<th scope="col" data-name="{name}">{title}</th>' for name, (title, _) in COLUMNS.items()
    )
    line = "".join(f"<td>{cell}</td>" for _, cell in COLUMNS.values())
    rows = "\n".join(
        f"<tr>{line.format(**shown(table, i))}</tr>".replace(">-", ">−")
        for i in range(len(table["n"]))
    )
    return listing("heads", "All heads", head, rows)


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
        table = verdicts.needle(kind, 512)
        for i, head in enumerate(table["head"]):
            numbers = (table[f"{name}_rest"][i] for name in ("gap", "slope", "variance"))
            weight = f"{table['weight'][i]:.2f}"
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
    """Yield the known bugs that are a wrong factor, from the smallest, with costs."""
    factors, costs = verdicts.factors_of_faults(), verdicts.costs_of("faults", "bug")
    for name in sorted(costs, key=factors.__getitem__):
        yield f"`{name}`", f"{factors[name]:.3g}", signed(costs[name].mean())


def signed(nats: float) -> str:
    """Return a cost with two digits after the point."""
    return f"{round(nats, 2) + 0.0:.2f}".replace("-", "−")
