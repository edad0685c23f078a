"""Run every benchmark, each in a process of its own, and record the ratios and the page of them.

    python -m tools.bench

writes results/benchmarks.json and performance.md when all are measured. The machine should have
nothing else to do: the page says how busy it was.
"""

import math
import os
import platform
import re
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import click
import psutil
import torch

import benchmarks
from benchmarks import Ratio
from tools.files import replace, write_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks.json"
PAGE = ROOT / "performance.md"

PROSE = """\
# Performance

What the functions of `attnlib` cost beside what one would use instead, measured in turns in one
run. A ratio of 100 means a hundredth of the time, or of the memory. Another machine has other times
and much the same ratios.

Recorded on {date}: {processor}, {cores} cores, PyTorch on {threads} of them; {versions}.
Before it began, other programs kept {busy:.0f} % of the processors busy. `make bench` measures
again and writes this page.

"""

TABLE = """\
```{list-table}
:header-rows: 1
:widths: 20 80

* - ratio
  - attnlib; what stands beside it
"""


def names() -> list[str]:
    """Return the benchmarks: the modules of this package."""
    return sorted(module.name for module in iter_modules(benchmarks.__path__))


def measured(name: str, quick: bool) -> dict[str, Any]:
    """Return what a benchmark says that it is and its ratios, and print them as they come."""
    module = import_module(f"benchmarks.{name}")
    found = []
    for ratio in module.measure(**(module.QUICK if quick else {})):
        click.echo(f"{name}: {ratio}")
        found.append(ratio._asdict())
    return {"what": str(module.__doc__).splitlines()[0], "ratios": found}


def processor() -> str:
    """Return the name of the processor, from Linux where there is one."""
    cpus = Path("/proc/cpuinfo")
    text = cpus.read_text("utf-8") if cpus.exists() else ""
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def page(recorded: dict[str, Any]) -> str:
    """Return the page that shows a recorded run."""
    versions = ", ".join(f"{name} {number}" for name, number in recorded["versions"].items())
    facts = {key: recorded[key] for key in ("processor", "cores", "threads", "date", "busy")}
    lines = [PROSE.format(versions=versions, **facts)]
    for benchmark in recorded["benchmarks"].values():
        lines.append(f"\n{benchmark['what']}\n\n" + TABLE)
        lines += [row(Ratio(**entry)) for entry in benchmark["ratios"]]
        lines.append("```\n")
    return "".join(lines)


def row(one: Ratio) -> str:
    """Return a row of the table: the ratio, and whose costs it compares."""
    ratio = f"{one.ratio:.2f}" if one.ratio < 10.0 else shown(one.ratio)
    note = f"; {one.note}" if one.note else ""
    return (
        f"* - {ratio}\n"
        f"  - {one.ours}: {shown(one.our_cost)} {one.unit};\n"
        f"    {one.theirs}: {shown(one.their_cost)} {one.unit}{note}\n"
    )


def shown(number: float) -> str:
    """Return a number with as many digits as another run would repeat."""
    if number < 100.0:
        return f"{number:.2g}" if number < 10.0 else f"{number:.0f}"
    exponent = math.floor(math.log10(number))
    if exponent >= 5:
        return rf"${number / 10.0**exponent:.1f} \cdot 10^{{{exponent}}}$"
    return f"{int(round(number, 1 - exponent)):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


@click.command()
@click.option("--quick", is_flag=True, help="Only look whether everything runs; record nothing.")
@click.argument("chosen", nargs=-1, metavar="[NAME]...")
def main(quick: bool, chosen: tuple[str, ...]) -> None:
    """Measure every benchmark and record the ratios; with NAMEs only print theirs."""
    for name in set(chosen) - set(names()):
        raise click.BadParameter(f"{name!r} is no benchmark; there are {', '.join(names())}")
    busy = psutil.cpu_percent(interval=3.0)
    recorded: dict[str, Any] = {
        "command": "make bench",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "busy": busy,
        "versions": {
            "Python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy", "torch")},
        },
    }
    found = {}
    for name in chosen or names():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            found[name] = alone.submit(measured, name, quick).result()
    if not quick and not chosen:
        recorded["benchmarks"] = found
        write_json(RESULTS, recorded)
        replace(PAGE, page(recorded).encode("utf-8"))


if __name__ == "__main__":
    main()
