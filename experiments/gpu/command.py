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
"""Minutes after which the process is ended, whatever it does."""


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
    given = parser.parse_args(arguments)
    if given.minutes is not None and not 0.0 < given.minutes < math.inf:
        parser.error(f"--minutes must be above 0, got {given.minutes}")
    if given.command == "pack":
        from experiments.lab import python_corpus

        path = python_corpus.pack()
        say(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
        return 0
    import torch

    if given.device != "cpu" and not torch.cuda.is_available():
        say("there is no CUDA device; --device cpu has a look at it, at tiny sizes")
        return 1
    if given.device == "cpu":
        torch.set_num_threads(1)  # several wait for one another at tiny sizes
    start = time.monotonic()
    faulthandler.dump_traceback_later(60.0 * LONGEST, exit=True, file=sys.__stderr__ or 2)
    try:
        work, usual = (checks, 2.0) if given.command == "checks" else (runs, 6.0)
        minutes = min(usual if given.minutes is None else given.minutes, LONGEST - 1.0)
        given.out.mkdir(parents=True, exist_ok=True)
        with FileLock(given.out / ".lock", timeout=0):
            status = work(given.out, given.device, start + 60.0 * minutes)
    except Timeout:
        say(f"another command is writing to {given.out}")
        status = 1
    except (OSError, ValueError) as error:
        say(f"Error: {error}")
        status = 1
    finally:
        faulthandler.cancel_dump_traceback_later()
    return status


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def checks(out: Path, device: str, end: float) -> int:
    """Check the tools; return 1 where one failed."""
    from experiments.gpu.checks import go, latest

    file = out / "checks.jsonl"
    go(file, device, end, say)
    lines = [line for line in latest(file).values() if line["on"] == device]
    failed = sum("failure" in line or line.get("passed") is False for line in lines)
    say(f"{len(lines)} checks and costs, {failed} failed")
    return int(failed > 0)


def runs(out: Path, device: str, end: float) -> int:
    """Train what there is time for; return 0."""
    from experiments.gpu.runs import go, planned

    go(planned(tiny=device == "cpu"), out, end, say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
