"""Run every benchmark, each in a process of its own, and record the ratios and the page of them.

    python -m experiments.benchmarks

writes the record and the page `performance` when all are measured. The machine should have nothing
else to do: the page says how busy it was.
"""

import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psutil
import torch
import typer

from attnlib import _files
from experiments import provenance
from experiments.benchmarks import Ratio, mathematics, measure_ratios, models, run_in_process
from experiments.gpu import summary
from experiments.records import Entry, Record, path_of, save

ROOT = Path(__file__).parents[2]
RECORD = path_of("benchmarks")
PAGE = ROOT / "chapters" / "performance.md"
ON_GPU = ROOT / "experiments" / "gpu" / "recorded" / "checks.jsonl"

TABLE = """\
```{list-table}
:header-rows: 1
:widths: 20 80

* - ratio
  - attnlib; what stands beside it
"""


BENCHMARKS = {
    "annealed": (
        "best_alpha for cosine scores against SciPy's quad and minimize_scalar, point by point.",
        mathematics.best_alphas,
        {"every": 100},
    ),
    "attention": (
        "Attention with a policy or a post-scale against bare scaled_dot_product_attention.",
        models.attention_costs,
        {"repeats": 1},
    ),
    "calibration": (
        "The gradient of every head's scale against plain passes of the model, and a grid of "
        "factors.",
        models.calibration_costs,
        {"repeats": 1, "tokens": 64},
    ),
    "exact": (
        "One exact expectation against Monte Carlo, at the same error.",
        mathematics.expectations,
        {"count": 1000},
    ),
    "monitor": (
        "Training under a monitor against the same training without.",
        models.monitor_costs,
        {"pairs": 2, "calls": 100},
    ),
    "probing": (
        "The probe against a plain forward pass, and against weights kept in memory.",
        models.probe_costs,
        {"repeats": 1, "tokens": 128},
    ),
    "rows": (
        "Measures of one row's gradient against the same from torch's Jacobian.",
        mathematics.row_measures,
        {"length": 512},
    ),
    "training": (
        "A training step of the laboratory against a plain loop with attention written out.",
        models.training_steps,
        {"steps": 1, "repeats": 1},
    ),
}
"""Each in words, the function that measures it, and its arguments for `--quick`."""


def page(record: Record) -> str:
    """Return the page that shows a recorded run."""
    facts = dict(record.made)
    shown = {name: facts.pop(name) for name in ("processor", "cores", "threads", "date", "busy")}
    facts = {"Python": facts.pop("python"), **facts, "commit": facts.get("commit", "")[:12]}
    versions = ", ".join(f"{name} {number}" for name, number in facts.items() if number)
    lines: list[str] = []
    for entry in record.entries:
        lines.append(f"\n{entry.result['what']}\n\n" + TABLE)
        lines += [table_row(Ratio(**ratio)) for ratio in entry.result["ratios"]]
        lines.append("```\n")
    template = Path(__file__).with_name("page.md").read_text("utf-8")
    on_gpu = summary.facts(_files.lines(ON_GPU))
    return template.format(versions=versions, benchmarks="".join(lines), **shown, **on_gpu)


def table_row(line: Ratio) -> str:
    """Return a row of the table: the ratio, and both costs."""
    ratio = f"{line.ratio:.2f}" if line.ratio < 10.0 else rounded(line.ratio)
    note = f"; {line.note}" if line.note else ""
    return (
        f"* - {ratio}\n"
        f"  - {line.ours}: {rounded(line.our_cost)} {line.unit};\n"
        f"    {line.theirs}: {rounded(line.their_cost)} {line.unit}{note}\n"
    )


def rounded(number: float) -> str:
    """Return a number with the digits that another run would repeat."""
    if number < 100.0:
        return f"{number:.2g}" if number < 10.0 else f"{number:.0f}"
    exponent = math.floor(math.log10(number))
    if exponent >= 5:
        return rf"${number / 10.0**exponent:.1f} \cdot 10^{{{exponent}}}$"
    return f"{int(round(number, 1 - exponent)):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def main(
    chosen: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only print their ratios.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only look whether everything runs; record nothing.")
    ] = False,
) -> None:
    """Measure every benchmark and record the ratios."""
    for name in set(chosen or ()) - set(BENCHMARKS):
        raise typer.BadParameter(f"{name!r} is no benchmark; there are {', '.join(BENCHMARKS)}")
    made = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": os.cpu_count(),
        "busy": psutil.cpu_percent(interval=3.0),
        **provenance.made("numpy", "scipy", "torch", threads=torch.get_num_threads()),
    }
    entries = []
    for name in chosen or BENCHMARKS:
        what, function, options = BENCHMARKS[name]
        ratios = run_in_process(measure_ratios, name, function, options if quick else {})
        entries.append(Entry({"benchmark": name}, {"what": what, "ratios": ratios}))
    if not quick and not chosen:
        record = Record("python -m experiments.benchmarks", {}, made, tuple(entries))
        save(RECORD, record)
        _files.replace(PAGE, page(record).encode("utf-8"))


if __name__ == "__main__":
    typer.run(main)
