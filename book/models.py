"""The table of all heads of the trained models: `python -m book.models` renews it in models.md.

Its numbers are those of the atlas, `book.live.heads`, and so of the records. A test compares the
words around it with them.
"""

import re
from pathlib import Path

import numpy as np

from attnlib.files import replace
from book.live import heads
from book.live.heads import Columns

PAGE = Path(__file__).parent.parent / "models.md"

COLUMNS = {
    "model": "model",
    "layer": "layer",
    "head": "head",
    "n": "n",
    "alpha": "α",
    "keys": "keys",
    "random": "random keys",
    "entropy": "entropy",
    "first": "first key",
    "output": "output",
    "s": "s",
    "needle": "needle",
    "weight": "its weight",
}
"""What a search calls each column, and its heading."""

TABLE = re.compile(r'<div class="listing".*?</div>', re.DOTALL)


def page() -> str:
    """Return the page with its table made anew; the words around it are written there."""
    table = listed(heads.heads())
    return TABLE.sub(lambda _: table, PAGE.read_text(encoding="utf-8"))


def listed(table: Columns) -> str:
    """Return the table as HTML, one line for each head."""
    head = "".join(
        f'<th scope="col" data-name="{name}"{style(name)}>{title}</th>'
        for name, title in COLUMNS.items()
    )
    lines = [
        "".join(f"<td{style(name)}>{text}</td>" for name, text in cells(table, i).items())
        for i in range(len(table["n"]))
    ]
    rows = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return (
        '<div class="listing" role="region" aria-label="All heads" tabindex="0">'
        f'<table id="heads"><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'
    )


def style(name: str) -> str:
    """Return the class of a cell."""
    return ' class="word"' if name == "needle" else ""


def cells(table: Columns, i: int) -> dict[str, str]:
    """Return the cells of a head by column."""
    number = table["needle"][i]
    known = bool(np.isfinite(number))
    found = {name: values[i] for name, values in table.items()}
    return {
        "model": heads.MODELS[int(found["model"])].name,
        "layer": f"{found['layer']:.0f}",
        "head": f"{found['head']:.0f}",
        "n": f"{found['n']:.0f}",
        "alpha": digits(found["alpha"]),
        "keys": digits(found["keys"]),
        "random": digits(found["random_keys"]),
        "entropy": f"{found['entropy']:.2f}",
        "first": f"{found['first']:.3f}",
        "output": f"{found['output']:.3f}",
        "s": f"{found['s']:.2f}".replace("-", "−"),
        "needle": list(heads.NEEDLES)[int(number)] if known else "",
        "weight": f"{found['weight']:.2f}" if known else "",
    }


def digits(value: float) -> str:
    """Return a positive number with three digits and no exponent."""
    return f"{value:.{max(0, 2 - int(np.floor(np.log10(value))))}f}"


if __name__ == "__main__":
    replace(PAGE, page().encode("utf-8"))
    print(f"wrote {PAGE.name}")
