"""The command line of the GPU: checks, runs, and the pack of the corpus."""

import argparse
import faulthandler
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

OUT = Path(__file__).parent / "recorded"
LONGEST = 9.5
"""Minutes after which the process ends, whatever it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments gpu", description=__doc__)
    parser.add_argument("command", choices=["checks", "runs", "pack"])
    parser.add_argument("--out", type=Path, default=OUT, help="the folder of the results")
    parser.add_argument(
        "--device",
        default="cuda",
        choices=["cuda", "cpu"],
        help='"cpu": a look at it, at tiny sizes',
    )
    parser.add_argument("--minutes", type=float, help="of new work; by default 2 and 6")
    options = parser.parse_args(arguments)
    if options.minutes is not None and not 0.0 < options.minutes < math.inf:
        parser.error(f"--minutes must be above 0, got {options.minutes}")
    if options.command == "pack":
        from experiments.lab import python_corpus

        path = python_corpus.pack()
        print_line(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
        return 0
    import torch

    if options.device != "cpu" and not torch.cuda.is_available():
        print_line("there is no CUDA device; --device cpu has a look at it, at tiny sizes")
        return 1
    if options.device == "cpu":
        torch.set_num_threads(1)  # several wait for one another at tiny sizes
    start = time.monotonic()
    faulthandler.dump_traceback_later(60.0 * LONGEST, exit=True, file=sys.__stderr__ or 2)
    try:
        work, usual = (run_checks, 2.0) if options.command == "checks" else (run_trainings, 6.0)
        minutes = min(usual if options.minutes is None else options.minutes, LONGEST - 1.0)
        options.out.mkdir(parents=True, exist_ok=True)
        with FileLock(options.out / ".lock", timeout=0):
            status = work(options.out, options.device, start + 60.0 * minutes)
    except Timeout:
        print_line(f"another command is writing to {options.out}")
        status = 1
    except (OSError, ValueError) as error:
        print_line(f"Error: {error}")
        status = 1
    finally:
        faulthandler.cancel_dump_traceback_later()
    return status


def print_line(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def run_checks(out: Path, device: str, end: float) -> int:
    """Check the tools; return 1 where one failed."""
    from experiments.gpu.checks import latest_lines, run_missing

    file = out / "checks.jsonl"
    run_missing(file, device, end, print_line)
    lines = [line for line in latest_lines(file).values() if line["on"] == device]
    failed = sum("failure" in line or line.get("passed") is False for line in lines)
    print_line(f"{len(lines)} checks and costs, {failed} failed")
    return int(failed > 0)


def run_trainings(out: Path, device: str, end: float) -> int:
    """Train while there is time; return 0."""
    from experiments.gpu.runs import planned_runs, train_missing

    train_missing(planned_runs(tiny=device == "cpu"), out, end, print_line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
