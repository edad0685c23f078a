"""Record the best α of typical rows against n, in units of √(2 log n), with standard errors.

    python -m experiments.typical_optima

takes some minutes of one core, and goes on where it was stopped. An entry for each n.
"""

from functools import partial
from typing import Any

from attnlib import freezing, typical
from attnlib.sampling import cores
from attnlib.scores import Normal
from experiments.records import Work, compute_missing

LENGTHS = (16, 64, 256, 1024, 4096, 16384, 65536)
SEED = 20
BUDGET = 2**29
"""Scores drawn for each n."""


def entries_to_compute(budget: int) -> Work:
    """Yield each n and a function that computes its best α."""
    for n in LENGTHS:
        yield {"n": n}, partial(scaled_best_alpha, n, budget)


def scaled_best_alpha(n: int, budget: int) -> dict[str, Any]:
    """Return the best α at n over √(2 log n), with its error and the number of rows."""
    rows, unit = min(10**6, max(budget // n, 2**14)), float(freezing.critical_alpha(n))
    value, error = typical.best_alpha(Normal(), n, rows=rows, seed=SEED)
    return {"rows": rows, "value": float(value) / unit, "standard_error": float(error) / unit}


if __name__ == "__main__":
    settings = {"law": "Normal()", "seed": SEED, "budget": BUDGET}
    compute_missing("typical_optima", entries_to_compute(BUDGET), settings, threads=cores())
