"""Fill the page models.md from the records: a table of all heads, three more, and numbers.

`book.placeholders` does so while the site is built.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnlib.rows import softmax
from book.live import heads, tables
from book.live.heads import Columns
from book.values import long_table
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


def page_texts() -> dict[str, str]:
    """Return the texts of the page, by name."""
    tables = {"needles": needle_rows(), "rules": rule_rows(), "faults": fault_rows()}
    rows = {
        name: "\n".join(f"| {' | '.join(cells)} |" for cells in table)
        for name, table in tables.items()
    }
    return {**rows, **page_numbers(), "heads": head_listing(heads.head_columns())}


def page_numbers() -> dict[str, str]:
    """Return the numbers in the page's text, by name."""
    table, record = heads.head_columns(), load("real_heads_atlas")
    share = table["keys"] / table["n"]
    words, logits, target = tables.row_of_head()
    weights = softmax(logits)
    of_model = {model.name: table["model"] == i for i, model in enumerate(heads.MODELS)}
    return {
        "count": str(share.size),
        "command": record.command,
        **{name: package["version"] for name, package in record.settings["packages"].items()},
        **{
            f"of {model.name}": f"{of_model[model.name].sum() // model.heads} × {model.heads} | "
            f"{table['n'][of_model[model.name]][0]:.0f}"
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
        f"<tr>{line.format(**cells_of(table, i))}</tr>".replace(">-", ">−")
        for i in range(len(table["n"]))
    )
    return long_table("heads", "All heads", head, rows)


def cells_of(table: Columns, i: int) -> dict[str, Any]:
    """Return the contents of a head's cells, by column."""
    row = {name: values[i] for name, values in table.items()}
    known = bool(np.isfinite(row["needle"]))
    return {
        **row,
        **{name: three_digits(row[name]) for name in ("alpha", "keys", "random_keys")},
        "model": heads.MODELS[int(row["model"])].name,
        "needle": list(heads.NEEDLES)[int(row["needle"])] if known else "",
        "weight": f"{row['weight']:.2f}" if known else "",
    }


def three_digits(number: float) -> str:
    """Return a positive number with three digits and no exponent."""
    return f"{number:.{max(0, 2 - int(np.floor(np.log10(number))))}f}"


# --- what SmolLM2's heads look for, and what another scale costs ----------------------------------


def needle_rows() -> Rows:
    """Yield a row for each head that finds a known token, at 512 keys."""
    for kind in ("previous", "repeat"):
        table = verdicts.needle(kind, 512)
        for i, head in enumerate(table["head"]):
            numbers = (table[f"{name}_rest"][i] for name in ("gap", "slope", "variance"))
            weight = f"{table['weight'][i]:.2f}"
            yield head_name(head), kind, weight, *(f"{number:.1f}" for number in numbers)


def head_name(head: float) -> str:
    """Return a head of SmolLM2 as layer.head."""
    return "{}.{}".format(*divmod(int(head), heads.MODELS[0].heads))


def rule_rows() -> Rows:
    """Yield the costs of rules in place of the model's own, and the rules of each cost."""
    names: dict[float, list[str]] = {}
    for name, cost in verdicts.costs_of("policies", "policy", **{"as": "scale"}).items():
        names.setdefault(round(float(cost.mean()), 2), []).append(f"`{name}`")
    for nats in sorted(names):
        yield signed_cost(nats), ", ".join(names[nats])


def fault_rows() -> Rows:
    """Yield the known bugs that are a wrong factor, the smallest first, with their costs."""
    factors, costs = verdicts.multipliers_by_bug(), verdicts.costs_of("faults", "bug")
    for name in sorted(costs, key=factors.__getitem__):
        yield f"`{name}`", f"{factors[name]:.3g}", signed_cost(costs[name].mean())


def signed_cost(nats: float) -> str:
    """Return a cost in nats with two digits after the point."""
    return f"{round(nats, 2) + 0.0:.2f}".replace("-", "−")
