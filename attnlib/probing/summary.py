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
"""What random scores have too: heading, name, format and width; an empty format is that of keys."""

TARGET_COLUMNS = (
    ("weight", "target_weight", ".3f"),
    ("gap g", "target_gap", ".2f"),
    ("κ", "target_kappa", ".2f"),
    ("ratio", "target_ratio", ".2f"),
)
"""Columns for the target key: heading, name and format."""

MEANT = 12
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
    """Return the report in words: each layer's means, and the heads that stand out."""
    layers: dict[str, list[Line]] = {}
    for line in lines:
        layers.setdefault(layer_name(line), []).append(line)
    with_theory = any(math.isfinite(line["random_entropy"]) for line in lines)
    wide = min(WIDTH, max([*map(len, layers), len("layer")]))
    headings = "".join(f"{heading:>{width}}" for heading, *_, width in COLUMNS)
    shown = [f"{'layer':{wide}}{'α':>6}{'α_c':>6}{headings}"]
    for name, heads in layers.items():
        cells = [f"{short(name, wide):{wide}}"]
        cells += [f"{_mean(heads, column, '.2f'):>6}" for column in ("alpha", "critical_alpha")]
        for _, column, spec, width in COLUMNS:
            cell = _mean(heads, column, spec)
            if with_theory:
                cell += f" ({_mean(heads, f'random_{column}', spec)})"
            cells.append(f"{cell:>{width}}")
        shown.append("".join(cells))
    beside = "; in brackets those of random scores that spread as much" if with_theory else ""
    sinks, wides = (sum(map(which, lines)) for which in (has_sink, is_wide))
    count = (
        f"Of {len(lines)} heads {sinks or 'none'} {'have' if sinks > 1 else 'has'} an attention "
        f"sink ({SINK:.0%} of the weight or more on the first key), and {wides or 'none'} "
        f"{'are' if wides > 1 else 'is'} wide ({WIDE:.0%} of the rows or more)."
    )
    parts = [fill(f"Means over the heads of a layer{beside}.", PAGE), "\n".join(shown)]
    parts.append(fill(count, PAGE))
    notable = [
        fill(f"- {layer_name(line)} head {line['head']}: {why}", PAGE, subsequent_indent="  ")
        for line, why in unusual(lines)
    ]
    if notable:
        parts.append("\n".join(["What stands out:", *notable]))
    aimed = [line for line in lines if line.get("targets")]
    if aimed:
        parts.append("\n".join(_meant(aimed)))
    legend = fill(LEGEND, PAGE)
    return "\n\n".join([*parts, f"{legend}\n{fill(RANDOM, PAGE)}" if with_theory else legend])


def _meant(lines: list[Line]) -> Iterator[str]:
    """Yield the lines of a table: the heads that give the target key most weight, and a legend."""
    heads = f"in the {MEANT} heads that give it most" if len(lines) > MEANT else "by head"
    yield f"The key that is meant, {heads}:"
    headings = ("rows", *(heading for heading, *_ in TARGET_COLUMNS))
    yield f"{'layer':{WIDTH}}{'head':>6}" + "".join(f"{heading:>9}" for heading in headings)
    for row in sorted(lines, key=lambda line: -float(line["target_weight"]))[:MEANT]:
        cells = "".join(f"{number(row[name], spec):>9}" for _, name, spec in TARGET_COLUMNS)
        yield f"{short(layer_name(row), WIDTH):{WIDTH}}{row['head']:>6}{row['targets']:>9}{cells}"
    yield fill(TARGET_LEGEND, PAGE)


def unusual(lines: list[Line], count: int = 5) -> list[tuple[Line, str]]:
    """Return at most `count` heads that differ most from random scores of their spread, and why.

    Heads with numbers that are not finite come first. The others are ordered by how far 1/Y is from
    that of random scores, or from n where there is no theory. A head without a reason is left out.
    """
    ranked = []
    for line in lines:
        keys, random = line["effective_keys"], line["random_effective_keys"]
        reasons = "; ".join(_reasons(line, math.isfinite(random)))
        if reasons:
            ratio = keys / (random if math.isfinite(random) else line["keys"])
            far = abs(math.log(ratio)) if math.isfinite(keys) else math.inf
            ranked.append((far, line, reasons))
    ranked.sort(key=lambda entry: -entry[0])
    return [(line, why) for _, line, why in ranked[:count]]


def has_sink(line: Line) -> bool:
    """Return whether the first of more than 2/`SINK` keys has the weight `SINK` or more."""
    return bool(line["first_weight"] >= SINK and line["keys"] > 2.0 / SINK)


def is_wide(line: Line) -> bool:
    """Return whether the share of rows with a spread of √(2 log n) or more is at least `WIDE`."""
    return bool(line["wide"] >= WIDE)


def layer_name(line: Line) -> str:
    """Return the layer, with the number of its call from the second on."""
    return f"{line['layer']} {line['call']}" if line["call"] else str(line["layer"])


def short(name: str, width: int) -> str:
    """Return the name; if it is longer than `width`, its end after an ellipsis."""
    return name if len(name) <= width else "…" + name[1 - width :]


def _reasons(line: Line, known: bool) -> Iterator[str]:
    keys, n = line["effective_keys"], line["keys"]
    if not line["rows"]:
        return
    if not math.isfinite(keys):
        yield "its numbers are NaN or infinite"
        return
    if has_sink(line):
        yield f"the first key has {line['first_weight']:.0%} of the weight, an attention sink"
    ratio = keys / line["random_effective_keys"] if known else 1.0
    if not 1.0 / FAR <= ratio <= FAR:
        why = "a few logits stand out" if ratio < 1.0 else "many keys tie near the top"
        yield (
            f"{keys:.1f} keys share the weight, where random scores that spread as much "
            f"have {line['random_effective_keys']:.1f}: {why}"
        )
    if is_wide(line):
        yield f"{line['wide']:.0%} of its rows spread beyond √(2 log n)"
    if keys > EVENLY * n and n > 2.0:
        yield f"it spreads its weight evenly, over {keys:.1f} of {n:.1f} keys"


def number(value: float, spec: str = "") -> str:
    """Return a number as it is shown: by default a number of keys; a dash if it is not finite."""
    spec = spec or (".1f" if value < 100.0 else ".0f")
    return f"{value:{spec}}" if math.isfinite(value) else "–"


def _mean(heads: list[Line], column: str, spec: str) -> str:
    return number(float(np.mean([line[column] for line in heads])), spec)
