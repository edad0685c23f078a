"""Summaries of both commands' records: the table of the checks, the runs, and the predictions."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from attnlib._checking import FloatArray
from experiments.gpu.runs import HERE, planned_runs
from experiments.judges.judging import Part, between, number
from experiments.lab import results

Table = dict[str, Any]


def facts(lines: list[Table]) -> dict[str, Any]:
    """Return the texts on a GPU of the page `performance`, by name."""
    checks = [line for line in lines if "dtype" in line and not line["compiled"]]
    compiled = [line for line in lines if line.get("compiled")]
    dtypes = list(dict.fromkeys(line["dtype"] for line in checks))
    rows = [["tool", *dtypes], ["---"] * (1 + len(dtypes))]
    for tool in dict.fromkeys(line["tool"] for line in checks):
        of_tool = [line for line in checks if line["tool"] == tool]
        cells = ([line for line in of_tool if line["dtype"] == dtype] for dtype in dtypes)
        rows.append([f"`{tool}`", *map(_cell, cells)])
    table = ["| " + " | ".join(row) + " |" for row in rows]
    refused = sum("failure" in line for line in compiled)
    costs = [
        f"- {line['cost']}: {line['ours']:.3g} against {line['theirs']:.3g} ms"
        for line in lines
        if "ours" in line
    ]
    return {
        "device": lines[0]["device"],
        "compiled": len(compiled),
        "refused": refused,
        "table": "\n".join(table),
        "costs": "\n".join(costs),
    }


def _cell(lines: list[Table]) -> str:
    """Return the largest error over its limit, and the number of checks, as text."""
    errors = [line["error"] / line["limit"] for line in lines if "error" in line]
    if any("failure" in line for line in lines):
        return "×"
    return f"{max(errors):.2g} ({len(errors)})" if errors else "–"


# --- the runs -------------------------------------------------------------------------------------


class Runs:
    """The recorded runs, by file, variant, rate and seed."""

    def __init__(self) -> None:
        files = {
            name: results.read(HERE / "recorded" / f"{name}.jsonl") for name in ("gain", "length")
        }
        self.lines = {
            (name, s.variant, s.training.learning_rate, s.training.seed): files[name][s.key]
            for name, s in planned_runs()
            if s.key in files[name]
        }

    def starts(self, seed: int = 0) -> dict[float, dict[int, float]]:
        """Return the validation losses of a seed, by rate and by the α at which the gain begins."""
        losses: dict[float, dict[int, float]] = {}
        for (name, variant, rate, of_seed), line in self.lines.items():
            if (name, of_seed) == ("gain", seed):
                losses.setdefault(rate, {})[int(variant.removeprefix("begun_"))] = _loss(line)
        return dict(sorted(losses.items()))

    def lengths(self) -> tuple[list[Table], list[Table]]:
        """Return the runs without a rule and those with log n, of the seeds that have both."""
        lines = {
            (key[1], key[3]): line
            for key, line in self.lines.items()
            if key[0] == "length" and "extended" in line  # it has not diverged
        }
        seeds = [seed for variant, seed in lines if variant == "none" and ("log", seed) in lines]
        return [lines["none", seed] for seed in seeds], [lines["log", seed] for seed in seeds]

    def ways(self) -> dict[str, FloatArray]:
        """Return the mean readings at n₀, 4 n₀ and 16 n₀, by rule and training."""
        none, log = self.lengths()
        plain = np.mean([line["readings"] for line in none], axis=0)

        def after(lines: list[Table], rule: str) -> FloatArray:
            readings: FloatArray = np.mean([line["extended"][rule] for line in lines], axis=0)
            return readings

        return {
            "no rule": plain[:, 0],
            "√log n applied after training": plain[:, 1],
            "log n applied after training": plain[:, 2],
            "log n trained in": np.mean([line["readings"] for line in log], axis=0)[:, 0],
            "no rule, extended": after(none, "none"),
            "no rule, extended under log n": after(none, "ssmax"),
            "log n trained in, extended": after(log, "own"),
        }


def _loss(line: Table) -> float:
    """Return the validation loss of a line, ∞ if it diverged."""
    loss = line["validation_loss"]
    return np.inf if loss is None else float(loss)


def _gradient_sum(lines: list[Table], which: int) -> float:
    """Return the sum over heads of the mean scale gradient at one of the lengths."""
    gradients = [list(line["scale_gradients"].values())[which] for line in lines]
    return float(np.mean([np.sum(np.mean(of_run, axis=0)) for of_run in gradients]))


@cache
def recorded() -> Runs:
    """Return the recorded runs."""
    return Runs()


def judge_gain() -> Iterator[Part]:
    """Yield the verdict on the prediction of QK-norm: A1 alone.

    Of the three rates from 4 two were run; another one could only lower the best from 4, and so A1
    is judged by these. A2, A3 and C3 of gain.toml want all of them.
    """
    starts = recorded().starts().values()
    best_of = {start: [losses[start] for losses in starts if start in losses] for start in (1, 4)}
    less = min(best_of[4]) - min(best_of[1])
    yield number("A1", f"from 4, {len(best_of[4])} rates, less from 1", less, "at least 0.01")


def judge_length() -> Iterator[Part]:
    """Yield the verdicts on the predictions beyond the training length."""
    runs = recorded()
    none, _ = runs.lengths()
    plain, _, after, trained, extended, under, _ = runs.ways().values()
    cost, apart = trained - plain, "log n trained in less none"
    yield between("B1", f"{apart}, n₀", cost[0], -0.01, 0.01)
    yield number("B2", "none at 16 n₀ less at n₀", plain[2] - plain[0], "at least 0.1")
    fall = plain[2] - after[2]
    yield number("B3", "none less log n applied after, 16 n₀", fall, "below 0.02")
    yield between("B4", f"{apart}, 16 n₀", cost[2], -0.1, 0.1)
    lost = plain[1] - plain[0]
    share = float((plain[1] - extended[1]) / lost) if lost > 0.0 else np.nan
    yield number("B5", "share of the loss at 4 n₀ that 30 steps mend", share, "at least 0.5")
    ruled = under[2] - extended[2]
    yield between("B6", "extended, log n less none, 16 n₀", ruled, -0.02, 0.02)
    yield between("C1", "none, sum of scale gradients at n₀", _gradient_sum(none, 0), -0.02, 0.02)
    yield number("C2", "the same at 16 n₀", _gradient_sum(none, 2), "above 0")
