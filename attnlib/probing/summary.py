"""A report in words: its layers beside random scores, and the heads that stand out."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attnlib.probing.random_scores import RANDOM

WIDTH = 24
"""What is shown of a layer's name."""

COLUMNS = (
    ("keys 1/Y", "effective_keys", ".1f"),
    ("entropy", "entropy", ".2f"),
    ("gradient", "gradient", ".2f"),
    ("wide", "wide", ".2f"),
    ("output std", "output_std", ".3f"),
)
"""The columns that random scores have too: heading, name and format."""

LEGEND = """\
α is the spread of a row's logits, α_c = √(2 log n) that at which a row of n random scores freezes:
a few keys hold its weight. 1/Y, with Y = Σp², is the number of keys that share the weight, the
entropy is −Σ p log p in nats, the gradient α(1 − Y), wide the share of rows that spread beyond α_c,
output std the standard deviation of the outputs."""

SINK = 0.3
"""A head whose first key has this share of the weight has an attention sink there."""

EVENLY = 0.9
"""A head that spreads its weight over this share of the keys tells none of them apart."""


def text(lines: list[dict[str, Any]]) -> str:
    """Return the means over the heads of each layer, and the heads that stand out."""
    layers: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        layers.setdefault(_layer(line), []).append(line)
    with_theory = any(math.isfinite(line["random_entropy"]) for line in lines)
    above = [f"{'':{WIDTH + 12}}"]
    headings = [f"{'layer':{WIDTH}}{'α':>6}{'α_c':>6}"]
    for heading, *_ in COLUMNS:
        above.append(f"{heading:>18}" if with_theory else "")
        headings.append(f"{'model':>10}{'random':>8}" if with_theory else f"{heading:>12}")
    shown = ["".join(above)] if with_theory else []
    shown.append("".join(headings))
    for name, heads in layers.items():
        cells = [f"{name if len(name) < WIDTH else '…' + name[2 - WIDTH :]:{WIDTH}}"]
        cells += [f"{_mean(heads, column, '.2f'):>6}" for column in ("alpha", "critical_alpha")]
        for _, column, spec in COLUMNS:
            cells.append(f"{_mean(heads, column, spec):>{10 if with_theory else 12}}")
            if with_theory:
                cells.append(f"{_mean(heads, f'random_{column}', spec):>8}")
        shown.append("".join(cells))
    parts = ["Means over the heads of a layer.", "\n".join(shown)]
    notable = [f"{_layer(line)} head {line['head']}: {why}" for line, why in unusual(lines)]
    if notable:
        parts.append("\n".join(["What stands out:", *(f"- {line}" for line in notable)]))
    return "\n\n".join([*parts, f"{LEGEND}\n{RANDOM}" if with_theory else LEGEND])


def unusual(lines: list[dict[str, Any]], count: int = 5) -> list[tuple[dict[str, Any], str]]:
    """Return the heads that differ most from random scores of their spread, and why.

    First those whose numbers are not finite, then by how far 1/Y is from that of random scores, or
    from n where there is no theory. A head without any of the reasons is usual.
    """
    found = []
    for line in lines:
        if not line["rows"]:
            continue
        if not math.isfinite(line["effective_keys"]):
            found.append((math.inf, line, "its numbers are NaN or infinite"))
            continue
        expected = line["random_effective_keys"]
        known = math.isfinite(expected)
        far = abs(math.log(line["effective_keys"] / (expected if known else line["keys"])))
        reasons = list(_reasons(line, known))
        if reasons:
            found.append((far, line, "; ".join(reasons)))
    found.sort(key=lambda one: -one[0])
    return [(line, why) for _, line, why in found[:count]]


def _reasons(line: dict[str, Any], known: bool) -> Iterator[str]:
    keys, n = line["effective_keys"], line["keys"]
    if line["first_weight"] >= SINK and n > 2.0 / SINK:
        yield f"the first key has {line['first_weight']:.0%} of the weight, an attention sink"
    ratio = keys / line["random_effective_keys"] if known else 1.0
    if ratio < 1.0 / 1.5:
        yield (
            f"{keys:.1f} keys share the weight, where random scores that spread as much "
            f"have {line['random_effective_keys']:.1f}: a few logits stand out"
        )
    elif ratio > 1.5:
        yield (
            f"{keys:.1f} keys share the weight, where random scores that spread as much "
            f"have {line['random_effective_keys']:.1f}: many keys tie near the top"
        )
    if line["wide"] >= 0.5:
        yield f"{line['wide']:.0%} of its rows spread beyond √(2 log n)"
    if keys > EVENLY * n and n > 2.0:
        yield f"it spreads its weight evenly, over {keys:.1f} of {n:.1f} keys"


def _layer(line: dict[str, Any]) -> str:
    return f"{line['layer']} {line['call']}" if line["call"] else str(line["layer"])


def _mean(heads: list[dict[str, Any]], column: str, spec: str) -> str:
    number = float(np.mean([line[column] for line in heads]))
    return f"{number:{spec}}" if math.isfinite(number) else "–"
