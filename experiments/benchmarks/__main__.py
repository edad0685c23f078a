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
from experiments.benchmarks import Ratio, mathematics, measured, models, run_in_process
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
        mathematics.optima,
        {"every": 100},
    ),
    "attention": (
        "Attention with a policy or a post-scale against bare scaled_dot_product_attention.",
        models.attention,
        {"repeats": 1},
    ),
    "calibration": (
        "The gradient of every head's scale against plain passes of the model, and a grid of "
        "factors.",
        models.calibration,
        {"repeats": 1, "tokens": 64},
    ),
    "exact": (
        "One exact expectation against Monte Carlo, at the same error.",
        mathematics.expectations,
        {"count": 1000},
    ),
    "monitor": (
        "Training under a monitor against the same training without.",
        models.monitored,
        {"pairs": 2, "calls": 100},
    ),
    "probing": (
        "The probe against a plain forward pass, and against weights kept in memory.",
        models.probing,
        {"repeats": 1, "tokens": 128},
    ),
    "rows": (
        "Measures of one row's gradient against the same from torch's Jacobian.",
        mathematics.measures,
        {"length": 512},
    ),
    "training": (
        "A training step of the laboratory against a plain loop with attention written out.",
        models.steps_of_training,
        {"steps": 1, "repeats": 1},
    ),
}
"""What each is, the function that measures it, and what that is told for a look at it."""


def page(record: Record) -> str:
    """Return the page that shows a recorded run."""
    facts = dict(record.made)
    shown = {name: facts.pop(name) for name in ("processor", "cores", "threads", "date", "busy")}
    facts = {"Python": facts.pop("python"), **facts, "commit": facts.get("commit", "")[:12]}
    listed = ", ".join(f"{name} {number}" for name, number in facts.items() if number)
    lines: list[str] = []
    for entry in record.entries:
        lines.append(f"\n{entry.result['what']}\n\n" + TABLE)
        lines += [row(Ratio(**ratio)) for ratio in entry.result["ratios"]]
        lines.append("```\n")
    template = Path(__file__).with_name("page.md").read_text("utf-8")
    on_gpu = summary.facts(_files.lines(ON_GPU))
    return template.format(versions=listed, benchmarks="".join(lines), **shown, **on_gpu)


def row(line: Ratio) -> str:
    """Return a row of the table: the ratio, and whose costs it compares."""
    ratio = f"{line.ratio:.2f}" if line.ratio < 10.0 else shown(line.ratio)
    note = f"; {line.note}" if line.note else ""
    return (
        f"* - {ratio}\n"
        f"  - {line.ours}: {shown(line.our_cost)} {line.unit};\n"
        f"    {line.theirs}: {shown(line.their_cost)} {line.unit}{note}\n"
    )


def shown(number: float) -> str:
    """Return a number with as many digits as another run would repeat."""
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
        ratios = run_in_process(measured, name, function, options if quick else {})
        entries.append(Entry({"benchmark": name}, {"what": what, "ratios": ratios}))
    if not quick and not chosen:
        record = Record("python -m experiments.benchmarks", {}, made, tuple(entries))
        save(RECORD, record)
        _files.replace(PAGE, page(record).encode("utf-8"))


if __name__ == "__main__":
    typer.run(main)
