"""Record the best α of typical rows against n, in units of √(2 log n), with standard errors.

    python -m experiments.typical_optima

takes about a quarter of an hour of one core, and goes on where it was stopped. An entry for each n.
"""

from functools import partial
from typing import Any

import numpy as np

from attnlib import typical
from attnlib.checking import FloatArray
from attnlib.sampling import cores
from attnlib.scores import Normal
from experiments.records import Work, recorded

LENGTHS = (16, 64, 256, 1024, 4096, 16384, 65536)
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
SEED = 20
BUDGET = 2**29
"""Scores drawn for each n."""


def work(budget: int) -> Work:
    """Yield what each entry is of, and what computes it."""
    for n in LENGTHS:
        yield {"n": n}, partial(at_length, n, budget)


def at_length(n: int, budget: int) -> dict[str, Any]:
    """Return the three optima at one n, and quantiles of those of single rows."""
    unit = float(np.sqrt(2.0 * np.log(n)))
    rows = min(10**6, max(budget // n, budget // 2**15))
    result: dict[str, Any] = {"unit": unit, "rows": rows, "single_rows": rows // 4}
    for statistic in ("geometric_mean", "median"):
        found = typical.best_alpha(Normal(), n, statistic, rows=rows, seed=SEED)
        value, error = (float(number) / unit for number in found)
        result[statistic] = {"value": value, "standard_error": error}
    optima = typical.row_optima(Normal(), n, rows=rows // 4, seed=SEED)
    result["row"] = quantiles(optima / unit)
    return result


def quantiles(values: FloatArray) -> dict[str, Any]:
    """Return quantiles, each with half the distance of the values one binomial error away."""
    values = np.sort(values)
    result = {}
    for level in LEVELS:
        spread = np.sqrt(level * (1.0 - level) / values.size)
        below, value, above = np.quantile(values, [level - spread, level, level + spread])
        result[f"{level:g}"] = {"value": value, "standard_error": (above - below) / 2.0}
    return result


if __name__ == "__main__":
    settings = {"law": "Normal()", "seed": SEED, "budget": BUDGET}
    recorded("typical_optima", work(BUDGET), settings, threads=cores())
