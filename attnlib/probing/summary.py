"""Write a report in words: its layers beside random scores, and the heads that stand out."""

import math
from collections.abc import Iterator
from textwrap import fill
from typing import Any

import numpy as np

from attnlib.probing.random_scores import RANDOM

Line = dict[str, Any]
"""A head: a line of `Report.table`."""

WIDTH = 18
"""The most characters of a layer's name that are shown, counted from its end."""

PAGE = 78
"""Characters in a line of what is printed."""

COLUMNS = (
    ("keys 1/Y", "effective_keys", "", 12),
    ("entropy", "entropy", ".2f", 12),
    ("gradient", "gradient", ".2f", 12),
    ("wide", "wide", ".0%", 12),
)
"""Columns shown beside random scores: heading, name, format ("" for numbers of keys), width."""

TARGET_COLUMNS = (
    ("weight", "target_weight", ".3f"),
    ("gap g", "target_gap", ".2f"),
    ("κ", "target_kappa", ".2f"),
    ("ratio", "target_ratio", ".2f"),
)
"""Columns for the target key: heading, name and format."""

HEADS = 12
"""The number of heads shown: those that give the target the most weight."""

TARGET_LEGEND = (
    "Means over the rows whose key is known. The weight is half where the gap g of its logit above "
    "the mean of the others is log(n − 1) + κ. The ratio says whether another scale would find it "
    "better: above 1 a larger one, below 1 a smaller one; attnlib.calibration.needles has the best "
    "factor with its interval."
)

LEGEND = (
    "α is the spread of a row's logits, their standard deviation; α_c = √(2 log n) that at which a "
    "row of n random scores freezes: a few keys hold its weight. 1/Y, with Y = Σp², is the number "
    "of keys that share the weight, the entropy is −Σ p log p in nats, the gradient α(1 − Y), wide "
    "the share of rows that spread beyond α_c."
)

SINK = 0.3
"""A head whose first key has this share of the weight has an attention sink there."""

WIDE = 0.5
"""A head is called wide if this share of its rows is."""

EVENLY = 0.9
"""A head that spreads its weight over this share of the keys is called even."""

FAR = 1.5
"""A head is far from random scores if its 1/Y and theirs differ by more than this factor."""


def text(lines: list[Line]) -> str:
    """Return the report in words: a table of the layers' means, and the heads that stand out."""
    layers: dict[str, list[Line]] = {}
    for line in lines:
        layers.setdefault(layer_name(line), []).append(line)
    with_theory = any(math.isfinite(line["random_entropy"]) for line in lines)
    layer_width = min(WIDTH, max([*map(len, layers), len("layer")]))
    headings = "".join(f"{heading:>{width}}" for heading, *_, width in COLUMNS)
    table = [f"{'layer':{layer_width}}{'α':>6}{'α_c':>6}{headings}"]
    for name, heads in layers.items():
        cells = [f"{shorten(name, layer_width):{layer_width}}"]
        cells += [f"{_cell(heads, column, '.2f'):>6}" for column in ("alpha", "critical_alpha")]
        for _, column, spec, width in COLUMNS:
            cell = _cell(heads, column, spec)
            if with_theory:
                cell += f" ({_cell(heads, f'random_{column}', spec)})"
            cells.append(f"{cell:>{width}}")
        table.append("".join(cells))
    beside = "; in brackets those of random scores that spread as much" if with_theory else ""
    sinks, wides = (sum(map(criterion, lines)) for criterion in (has_sink, is_wide))
    count = (
        f"Of {len(lines)} heads {sinks or 'none'} {'have' if sinks > 1 else 'has'} an attention "
        f"sink ({SINK:.0%} of the weight or more on the first key), and {wides or 'none'} "
        f"{'are' if wides > 1 else 'is'} wide ({WIDE:.0%} of the rows or more)."
    )
    parts = [fill(f"Means over the heads of a layer{beside}.", PAGE), "\n".join(table)]
    parts.append(fill(count, PAGE))
    notable = [
        fill(f"- {layer_name(line)} head {line['head']}: {why}", PAGE, subsequent_indent="  ")
        for line, why in unusual(lines)
    ]
    if notable:
        parts.append("\n".join(["What stands out:", *notable]))
    aimed = [line for line in lines if line.get("targets")]
    if aimed:
        parts.append("\n".join(_target_table(aimed)))
    legend = fill(LEGEND, PAGE)
    return "\n\n".join([*parts, f"{legend}\n{fill(RANDOM, PAGE)}" if with_theory else legend])


def _target_table(lines: list[Line]) -> Iterator[str]:
    """Yield a title, a table of the heads that give the target most weight, and a legend."""
    heads = f"in the {HEADS} heads that give it most" if len(lines) > HEADS else "by head"
    yield f"The key that is meant, {heads}:"
    headings = ("rows", *(heading for heading, *_ in TARGET_COLUMNS))
    yield f"{'layer':{WIDTH}}{'head':>6}" + "".join(f"{heading:>9}" for heading in headings)
    for row in sorted(lines, key=lambda line: -float(line["target_weight"]))[:HEADS]:
        cells = "".join(f"{format_number(row[name], spec):>9}" for _, name, spec in TARGET_COLUMNS)
        yield f"{shorten(layer_name(row), WIDTH):{WIDTH}}{row['head']:>6}{row['targets']:>9}{cells}"
    yield fill(TARGET_LEGEND, PAGE)


def unusual(lines: list[Line], count: int = 5) -> list[tuple[Line, str]]:
    """Return at most `count` heads that differ most from random scores of the same α, with reasons.

    Heads with numbers that are not finite come first. The others are ordered by the distance of 1/Y
    from that of random scores, or from n where there is no theory, on a log scale. A head without a
    reason is left out.
    """
    ranked = []
    for line in lines:
        effective_keys, random_keys = line["effective_keys"], line["random_effective_keys"]
        reasons = "; ".join(_unusual_reasons(line, math.isfinite(random_keys)))
        if reasons:
            ratio = effective_keys / (random_keys if math.isfinite(random_keys) else line["keys"])
            distance = abs(math.log(ratio)) if math.isfinite(effective_keys) else math.inf
            ranked.append((distance, line, reasons))
    ranked.sort(key=lambda entry: -entry[0])
    return [(line, why) for _, line, why in ranked[:count]]


def has_sink(line: Line) -> bool:
    """Return whether the first of more than 2/`SINK` keys has the weight `SINK` or more."""
    return bool(line["first_weight"] >= SINK and line["keys"] > 2.0 / SINK)


def is_wide(line: Line) -> bool:
    """Return whether the share of rows with a spread of √(2 log n) or more is at least `WIDE`."""
    return bool(line["wide"] >= WIDE)


def layer_name(line: Line) -> str:
    """Return the layer's name, followed by the number of its call unless that is 0."""
    return f"{line['layer']} {line['call']}" if line["call"] else str(line["layer"])


def shorten(name: str, width: int) -> str:
    """Return the name, or its end after an ellipsis if it is longer than `width`."""
    return name if len(name) <= width else "…" + name[1 - width :]


def _unusual_reasons(line: Line, with_theory: bool) -> Iterator[str]:
    """Yield the reasons, in words, for which a head stands out."""
    effective_keys, n = line["effective_keys"], line["keys"]
    if not line["rows"]:
        return
    if not math.isfinite(effective_keys):
        yield "its numbers are NaN or infinite"
        return
    if has_sink(line):
        yield f"the first key has {line['first_weight']:.0%} of the weight, an attention sink"
    ratio = effective_keys / line["random_effective_keys"] if with_theory else 1.0
    if not 1.0 / FAR <= ratio <= FAR:
        cause = "a few logits stand out" if ratio < 1.0 else "many keys tie near the top"
        yield (
            f"{effective_keys:.1f} keys share the weight, where random scores that spread as much "
            f"have {line['random_effective_keys']:.1f}: {cause}"
        )
    if is_wide(line):
        yield f"{line['wide']:.0%} of its rows spread beyond √(2 log n)"
    if effective_keys > EVENLY * n and n > 2.0:
        yield f"it spreads its weight evenly, over {effective_keys:.1f} of {n:.1f} keys"


def format_number(value: float, spec: str = "") -> str:
    """Return a number as text, by default as a number of keys; a dash unless it is finite."""
    spec = spec or (".1f" if value < 100.0 else ".0f")
    return f"{value:{spec}}" if math.isfinite(value) else "–"


def _cell(heads: list[Line], column: str, spec: str) -> str:
    """Return the mean of a column over heads as text."""
    return format_number(float(np.mean([line[column] for line in heads])), spec)
