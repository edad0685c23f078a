"""What the two commands lines: the table of the checks, the runs, and which predictions held."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from attnlib._checking import FloatArray
from experiments.gpu.runs import HERE, planned
from experiments.judging import Part, between, number
from experiments.lab import results
from experiments.lab.results import Setting

Table = dict[str, Any]


def facts(lines: list[Table]) -> dict[str, Any]:
    """Return what the page `performance` says of a GPU, by name."""
    checks = [line for line in lines if "dtype" in line and not line["compiled"]]
    compiled = [line for line in lines if line.get("compiled")]
    header, *rows = _rows(checks)
    rows = [header, ["---"] * len(header), *([f"`{tool}`", *cells] for tool, *cells in rows)]
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


def _rows(checks: list[Table]) -> list[list[str]]:
    """Return the table of tools and types, with its header."""
    dtypes = list(dict.fromkeys(line["dtype"] for line in checks))
    rows = [["tool", *dtypes]]
    for tool in dict.fromkeys(line["tool"] for line in checks):
        of_tool = [line for line in checks if line["tool"] == tool]
        cells = ([line for line in of_tool if line["dtype"] == dtype] for dtype in dtypes)
        rows.append([tool, *map(_cell, cells)])
    return rows


def _cell(lines: list[Table]) -> str:
    errors = [line["error"] / line["limit"] for line in lines if "error" in line]
    if any("failure" in line for line in lines):
        return "×"
    return f"{max(errors):.2g} ({len(errors)})" if errors else "–"


# --- the runs -------------------------------------------------------------------------------------


class Runs:
    """The lines of the runs that are finished, by file, variant, rate and seed."""

    def __init__(self, out: Path, planned: Iterable[tuple[str, Setting]]) -> None:
        files = {name: results.read(out / f"{name}.jsonl") for name in ("gain", "length")}
        self.lines = {
            (name, s.variant, s.training.learning_rate, s.training.seed): files[name][s.key]
            for name, s in planned
            if s.key in files[name]
        }

    def gains(self, variant: str) -> dict[float, list[Table]]:
        """Return the runs of a start by rate, of the seeds that all six runs of gain.toml have."""
        lines = {key[1:]: line for key, line in self.lines.items() if key[0] == "gain"}
        seeds = sorted({seed for *_, seed in lines})
        whole = [seed for seed in seeds if sum(key[2] == seed for key in lines) == 6]
        rates = sorted({rate for _, rate, _ in lines})
        return {rate: [lines[variant, rate, seed] for seed in whole] for rate in rates if whole}

    def starts(self, seed: int = 0) -> dict[float, dict[int, float]]:
        """Return the validation losses of a seed by rate and by the α at which the gain begins."""
        losses: dict[float, dict[int, float]] = {}
        for (name, variant, rate, of), line in self.lines.items():
            if (name, of) == ("gain", seed):
                losses.setdefault(rate, {})[int(variant.removeprefix("begun_"))] = _loss(line)
        return dict(sorted(losses.items()))

    def lengths(self) -> tuple[list[Table], list[Table]]:
        """Return the runs without a rule and with log n, of the seeds that have both."""
        lines = {
            (key[1], key[3]): line
            for key, line in self.lines.items()
            if key[0] == "length" and "extended" in line  # it has not diverged
        }
        seeds = [seed for variant, seed in lines if variant == "none" and ("log", seed) in lines]
        return [lines["none", seed] for seed in seeds], [lines["log", seed] for seed in seeds]

    def ways(self) -> dict[str, FloatArray]:
        """Return the mean readings at n₀, 4 n₀ and 16 n₀ by rule and training."""
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
    loss = line["validation_loss"]
    return np.inf if loss is None else float(loss)


def _gradient(lines: list[Table], which: int) -> float:
    """Return the sum over heads of the mean scale gradient at one of the lengths."""
    gradients = [list(line["scale_gradients"].values())[which] for line in lines]
    return float(np.mean([np.sum(np.mean(of_run, axis=0)) for of_run in gradients]))


@cache
def recorded() -> Runs:
    """Return the runs that are recorded."""
    return Runs(HERE / "recorded", planned())


def of_gains() -> Iterator[Part]:
    """Yield what was predicted of QK-norm.

    Without all rates from 4 only A1 is judged: another rate could only lower the best from 4.
    """
    runs = recorded()
    by_rate = [runs.gains(f"begun_{start}") for start in (1, 4)]
    means = [{rate: np.mean([*map(_loss, of)]) for rate, of in start.items()} for start in by_rate]
    if not all(np.isfinite([*mean.values()]).any() for mean in means):
        starts = runs.starts().values()
        best_of = {start: [of[start] for of in starts if start in of] for start in (1, 4)}
        if best_of[4] and len(best_of[1]) == len(starts):
            less = min(best_of[4]) - min(best_of[1])
            yield number(
                "A1", f"from 4, {len(best_of[4])} rates, less from 1", less, "at least 0.01"
            )
        return
    best = [min(mean, key=lambda rate, mean=mean: mean[rate]) for mean in means]  # type: ignore[misc]
    edges = [rate in (min(mean), max(mean)) for rate, mean in zip(best, means, strict=True)]
    chosen = [of[rate] for of, rate in zip(by_rate, best, strict=True)]
    end = "; a best rate is an end of the three" if any(edges) else ""
    above = float(means[1][best[1]] - means[0][best[0]])
    yield number("A1", f"from 4 less from 1{end}", above, "at least 0.01")
    first, higher = (float(np.mean([np.mean(x["gains"][-1]) for x in of])) for of in chosen)
    yield between("A2", "multiplier from 1", first, 0.8, 1.4)
    yield number("A2", "multiplier from 4", higher, "below 0.8")
    rates = float(np.log2(best[1] / best[0]))
    yield number("A3", "log₂ of the best rate, 4 less 1", rates, "at least 0")
    sums = [_gradient(of, 0) for of in chosen]
    yield number("C3", "sum of scale gradients, from 4", sums[1], "above 0")
    yield number("C3", "the same, from 4 less from 1", sums[1] - sums[0], "above 0")


def of_lengths() -> Iterator[Part]:
    """Yield what was predicted beyond the training length."""
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
    yield between("C1", "none, sum of scale gradients at n₀", _gradient(none, 0), -0.02, 0.02)
    yield number("C2", "the same at 16 n₀", _gradient(none, 2), "above 0")
