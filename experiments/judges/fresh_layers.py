"""Verdicts on the predictions about fresh layers: predictions/starts.md and starts.toml.

`experiments.starts` measured the layers.

Chapters: almost_scaled, predictions.
"""

import tomllib
from collections.abc import Iterator
from typing import Any

from experiments import records
from experiments.judges.judging import Part, between, number

TOKENS = 512
"""Of the input of the fresh GPT-2 that is measured by depth."""


def judge_starts() -> Iterator[Part]:
    """Yield the parts of starts.md, in its order."""
    text = (records.HERE / "predictions" / "starts.toml").read_text("utf-8")
    predicted, record = tomllib.loads(text), records.load("starts")
    for at, name, own in ((1, "random", False), (2, "own", True)):
        for family, numbers in predicted["alpha"].items():
            entries = record.select(of="alpha", family=family, own=own)
            if name in numbers:
                yield near_relative(
                    at, f"{family}, α", entries[0].result[0]["alpha"], numbers[name], 0.02
                )
            elif f"{name}_below" in numbers:
                alpha = entries[0].result[0]["alpha"]["value"]
                yield number(at, f"{family}, α", alpha, f"below {numbers[f'{name}_below']}")
    outputs = [(family, row) for family, rows in predicted["output"].items() for row in rows]
    for family, row in outputs:
        what = f"{family}, {row['n']} keys (E Y is {row['independent']:.3g})"
        square = squared(record.find(of="output", family=family, n=row["n"])[0]["output"])
        yield near_relative(3, what, square, row.get("turned", row["plain"]), 0.05)
    for family, row in outputs:
        if "turned" in row and row["n"] == 4096:
            square = squared(record.find(of="output", family=family, n=4096)[0]["output"])
            apart = abs(square["value"] / row["plain"] - 1.0)
            margin = 0.05 + 2.0 * square["standard_error"] / row["plain"]
            what = f"{family}, apart from {row['plain']:.3g}"
            yield number(4, what, apart, f"above {margin:.2g}")
    yield from judge_depth(record.find(of="depth"))


def judge_depth(layers: list[dict[str, Any]]) -> Iterator[Part]:
    """Yield the parts of prediction 5: the layers of a fresh GPT-2."""
    outputs, shares = (
        [squared(layer["output"]) for layer in layers],
        list(map(common_share, layers)),
    )
    first = outputs[0]["value"]
    yield near_relative(5, "layer 1, output", outputs[0], 0.00227, 0.05)
    yield near_relative(5, "layer 1, α", layers[0]["alpha"], 0.303, 0.02)
    least = min(output["value"] for output in outputs[1:]) / first
    yield number(5, "the least output from layer 2 on, over layer 1", least, "above 10")
    yield between(5, "layer 2, ϱ", shares[1], 0.05, 0.2)
    yield number(5, "ϱ of layer 12 less that of layer 2", shares[11] - shares[1], "above 0")
    for at, (output, share) in enumerate(zip(outputs, shares, strict=True), 1):
        if at > 1:
            yield near_relative(
                5, f"layer {at}, output", output, share + (1.0 - share) * first, 0.1
            )
    alpha = 0.307 * (1.0 - shares[1]) ** 0.5
    yield near_relative(5, "layer 2, α", layers[1]["alpha"], alpha, 0.05)


def common_share(layer: dict[str, Any]) -> float:
    """Return ϱ: the share of the values' mean square that a layer's tokens have in common."""
    return max(TOKENS * float(layer["mean"]["value"]) ** 2 - 1.0, 0.0) / (TOKENS - 1)


def squared(root: dict[str, float]) -> dict[str, float]:
    """Return the square of a number with a standard error, as such a number."""
    value = root["value"]
    return {"value": value**2, "standard_error": 2.0 * value * root["standard_error"]}


def near_relative(
    at: int, what: str, measured: dict[str, float], middle: float, tolerance: float
) -> Part:
    """Return a part that holds up to a share of `middle` and two standard errors from it."""
    error = 2.0 * measured["standard_error"]
    margin = tolerance * middle + error
    expected = f"{middle:.4g} ± {100.0 * tolerance:g} %"
    part = between(at, what, measured["value"], middle - margin, middle + margin, expected)
    return part._replace(half_width=error)
