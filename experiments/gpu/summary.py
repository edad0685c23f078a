"""What the two commands found, on a screen: the checks, the runs, and which predictions held."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from attnlib.checking import FloatArray
from experiments.lab import results
from experiments.lab.results import Setting

Table = dict[str, Any]
PAGE = """
## On a GPU

{device}, by `python -m experiments gpu checks`: the largest error against the CPU's float64 over
its limit, with the number of kernels (PyTorch's default, flash, memory-efficient, and its own
mathematics). Above 1 a limit set before is passed; × is an error. In float16 `attend` gave numbers
that are not finite by the memory-efficient kernel in one of two tries and by PyTorch's mathematics
in the only one, beside 14 other processes; why is not known. `rescale` and `scale_gradient` pass
their limit in float16 by a factor of 2 at most. `register` has no memory-efficient kernel there for
grouped keys.

{table}

Of {compiled} compiled checks PyTorch 2.11 refused {refused}, with an error of its compiler; on
PyTorch 2.13 they pass on a CPU. What ours takes, and what stands beside it:

{costs}
"""
"""The section of the page `performance`."""

Kept = bool | None
"""Whether a prediction held; None where its runs are missing."""


def of_checks(lines: Iterable[Table]) -> Iterator[str]:
    """Yield what the checks found: of each tool and type the largest error over its limit."""
    lines = list(lines)
    checks = [line for line in lines if "dtype" in line]
    dtypes = list(dict.fromkeys(line["dtype"] for line in checks))
    yield "largest error / limit, over kernels; × a failure, – not to be had"
    yield f"{'':16}" + "".join(f"{dtype:>16}" for dtype in dtypes)
    for tool in dict.fromkeys(line["tool"] for line in checks):
        cells = [
            _cell([line for line in checks if (line["tool"], line["dtype"]) == (tool, dtype)])
            for dtype in dtypes
        ]
        yield f"{tool:16}" + "".join(f"{cell:>16}" for cell in cells)
    wrong = [line for line in checks if not line.get("passed") and "missing" not in line]
    passed = sum(line.get("passed", False) for line in checks)
    yield f"{len(checks)} checks, {passed} passed, {len(wrong)} failed"
    for line in wrong[:8]:
        compiled = ", compiled" if line["compiled"] else ""
        why = line.get("failure", f"error {line.get('error', np.nan):.2g}")
        yield f"× {line['tool']}, {line['dtype']}, {line['kernel']}{compiled}: {why}"[:160]
    for name in sorted({line["missing"] for line in checks if "missing" in line}):
        yield f"– {name}"
    for line in lines:
        if "ours" in line:
            beside = f", on a CPU {line['on_cpu']:.2f}" if line.get("on_cpu") else ""
            yield (
                f"{line['cost']}: {line['ours']:.3g} | {line['theirs']:.3g} ms, "
                f"ratio {line['theirs'] / line['ours']:.2f}{beside}"
            )
        elif "cost" in line:
            yield f"× {line['cost']}: {line['failure']}"[:160]


def page(lines: list[Table]) -> str:
    """Return the section of the page `performance` on a GPU."""
    checks = [line for line in lines if "dtype" in line and not line["compiled"]]
    compiled = [line for line in lines if line.get("compiled")]
    dtypes = list(dict.fromkeys(line["dtype"] for line in checks))
    rows = [["tool", *dtypes]]
    for tool in dict.fromkeys(line["tool"] for line in checks):
        cells = [
            _cell([line for line in checks if (line["tool"], line["dtype"]) == (tool, dtype)])
            for dtype in dtypes
        ]
        rows.append([f"`{tool}`", *cells])
    table = ["| " + " | ".join(row) + " |" for row in rows]
    table.insert(1, "| " + " | ".join(["---"] * len(rows[0])) + " |")
    refused = sum("failure" in line for line in compiled)
    costs = [
        f"- {line['cost']}: {line['ours']:.3g} against {line['theirs']:.3g} ms"
        for line in lines
        if "ours" in line
    ]
    facts = {"device": lines[0]["device"], "compiled": len(compiled), "refused": refused}
    return PAGE.format(table="\n".join(table), costs="\n".join(costs), **facts)


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
            (name, one.variant, one.training.learning_rate, one.training.seed): files[name][one.key]
            for name, one in planned
            if one.key in files[name]
        }

    def gains(self, variant: str) -> dict[float, list[Table]]:
        """Return the runs of a start by rate, of the seeds that all six runs of gain.toml have."""
        found = {key[1:]: line for key, line in self.lines.items() if key[0] == "gain"}
        seeds = sorted({seed for *_, seed in found})
        whole = [seed for seed in seeds if sum(key[2] == seed for key in found) == 6]
        rates = sorted({rate for _, rate, _ in found})
        return {rate: [found[variant, rate, seed] for seed in whole] for rate in rates if whole}

    def lengths(self) -> tuple[list[Table], list[Table]]:
        """Return the runs without a rule and with log n, of the seeds that have both."""
        found = {
            (key[1], key[3]): line
            for key, line in self.lines.items()
            if key[0] == "length" and "extended" in line  # it has not diverged
        }
        seeds = [seed for variant, seed in found if variant == "none" and ("log", seed) in found]
        return [found["none", seed] for seed in seeds], [found["log", seed] for seed in seeds]

    def shown(self) -> Iterator[str]:
        """Yield a line for each model and rate."""
        groups: dict[tuple[str, str, float], list[Table]] = {}
        for key, line in self.lines.items():
            groups.setdefault(key[:3], []).append(line)
        for (name, variant, rate), lines in groups.items():
            mean, pace = np.mean([*map(_loss, lines)]), lines[-1]["timing"]["tokens_per_second"]
            size = f"{lines[0]['tokens_per_parameter']:.2f} tokens per parameter"
            yield (
                f"{name:6} {variant:7} rate {rate:.2g}: {mean:.4f} nats per byte, "
                f"{len(lines)} seeds, {size}, {pace or 0:,.0f} tokens a second"
            )


def _loss(line: Table) -> float:
    loss = line["validation_loss"]
    return np.inf if loss is None else float(loss)


def _gradient(lines: list[Table], which: int) -> float:
    """Return the sum over heads of the mean scale gradient at one of the lengths."""
    found = [list(line["scale_gradients"].values())[which] for line in lines]
    return float(np.mean([np.sum(np.mean(one, axis=0)) for one in found]))


def of_runs(out: Path, planned: Iterable[tuple[str, Setting]]) -> Iterator[str]:
    """Yield the losses, the readings, and which predictions held."""
    runs = Runs(out, planned)
    yield from runs.shown()
    none, log = runs.lengths()
    if none:
        yield f"read at n₀, 4 n₀ and 16 n₀, means of {len(none)} seeds:"
        for way, three in _ways(none, log).items():
            yield f"  {way:34}" + "".join(f"{loss:9.4f}" for loss in three)
    for name, value, kept in (*_of_gains(runs), *_of_lengths(none, log)):
        verdict = {None: "not run", True: "kept", False: "refuted"}[kept]
        yield f"{name} {verdict}: {value}".removesuffix(": ")


def _ways(none: list[Table], log: list[Table]) -> dict[str, FloatArray]:
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


def _of_gains(runs: Runs) -> Iterator[tuple[str, str, Kept]]:
    by_rate = [runs.gains(f"begun_{start}") for start in (1, 4)]
    means = [{rate: np.mean([*map(_loss, of)]) for rate, of in one.items()} for one in by_rate]
    if not all(np.isfinite([*mean.values()]).any() for mean in means):
        yield from ((name, "", None) for name in ("A1", "A2", "A3", "C3"))
        return
    best = [min(mean, key=lambda rate, mean=mean: mean[rate]) for mean in means]  # type: ignore[misc]
    edges = [rate in (min(mean), max(mean)) for rate, mean in zip(best, means, strict=True)]
    chosen = [of[rate] for of, rate in zip(by_rate, best, strict=True)]
    above = means[1][best[1]] - means[0][best[0]]
    end = "; the best rate of one is an end of the three" if any(edges) else ""
    yield "A1", f"begun at 4 less begun at 1 {above:+.4f}{end}", bool(above >= 0.01)
    one, four = (float(np.mean([np.mean(x["gains"][-1]) for x in of])) for of in chosen)
    yield "A2", f"multipliers {one:.2f} and {four:.2f}", 0.8 <= one <= 1.4 and four < 0.8
    yield "A3", f"best rates {best[0]:.2g} and {best[1]:.2g}", best[1] >= best[0]
    sums = [_gradient(of, 0) for of in chosen]
    yield "C3", f"sums {sums[0]:+.4f} and {sums[1]:+.4f}", sums[1] > max(0.0, sums[0])


def _of_lengths(none: list[Table], log: list[Table]) -> Iterator[tuple[str, str, Kept]]:
    if not none:
        names = ("B1", "B2", "B3", "B4", "B5", "B6", "C1", "C2")
        yield from ((name, "", None) for name in names)
        return
    plain, _, after, trained, extended, under, _ = _ways(none, log).values()
    cost, rise = trained[0] - plain[0], plain[2] - plain[0]
    yield "B1", f"log n trained in less none at n₀ {cost:+.4f}", bool(abs(cost) <= 0.01)
    yield "B2", f"none at 16 n₀ less at n₀ {rise:+.4f}", bool(rise >= 0.1)
    fall = plain[2] - after[2]
    yield "B3", f"log n after training takes off {fall:+.4f} at 16 n₀", bool(fall < 0.02)
    apart = trained[2] - plain[2]
    yield "B4", f"log n trained in less none at 16 n₀ {apart:+.4f}", bool(abs(apart) <= 0.1)
    lost = plain[1] - plain[0]
    share = (plain[1] - extended[1]) / lost if lost > 0.0 else np.nan
    yield "B5", f"30 steps take off {share:.0%} of {lost:+.4f} at 4 n₀", bool(share >= 0.5)
    ruled = under[2] - extended[2]
    yield "B6", f"extended under log n less without at 16 n₀ {ruled:+.4f}", bool(abs(ruled) <= 0.02)
    short, long = _gradient(none, 0), _gradient(none, 2)
    yield "C1", f"sum of scale gradients at n₀ {short:+.4f}", abs(short) <= 0.02
    yield "C2", f"the same at 16 n₀ {long:+.4f}", long > 0.0
