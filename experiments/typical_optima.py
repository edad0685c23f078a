"""Record the best α of typical rows against n, in units of √(2 log n), with standard errors.

    python -m experiments.typical_optima

takes about a quarter of an hour of one core, and goes on where it was stopped. An entry for each n,
and one for the limit: n → ∞ comes from the frozen phase of the random energy model, where the
weights p of a row have a Poisson–Dirichlet law.
"""

from functools import partial
from typing import Any, cast

import numpy as np

from attnlib import typical
from attnlib.checking import FloatArray
from attnlib.sampling import cores
from attnlib.scores import Normal
from experiments.provenance import made
from experiments.records import Work, complete, path_of

COMMAND = "python -m experiments.typical_optima"
LENGTHS = (16, 64, 256, 1024, 4096, 16384, 65536)
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
SEED = 20
BUDGET = 2**29
"""Scores drawn for each n."""

POINTS = 300
"""Largest weights kept in the limit; the sum of the others is replaced by its mean."""


def main() -> None:
    """Compute what the record does not hold yet."""
    path, settings = path_of("typical_optima"), {"law": "Normal()", "seed": SEED, "budget": BUDGET}
    made_with = made("numpy", "scipy", threads=cores())
    complete(path, work(BUDGET), command=COMMAND, settings=settings, made=made_with)


def work(budget: int) -> Work:
    """Yield what each entry is of, and what computes it."""
    for n in LENGTHS:
        yield {"n": n}, partial(at_length, n, budget)
    yield {"n": "limit"}, partial(in_the_limit, budget // 2**9)


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


def in_the_limit(rows: int) -> dict[str, Any]:
    """Return the optima in the frozen phase, where α is in units of the critical α.

    The geometric mean needs no simulation. At α = 1 its logarithm has the slope 1 from the left,
    where g = α, and 1 − 2 log 2 < 0 from the right: there E Yᵏ is (α − 1)/(2k − 1) to first
    order in α − 1, log(1 − Y) is −Σ Yᵏ/k, and Σ 1/(k(2k − 1)) = 2 log 2. The kink is the maximum.
    """
    rng = np.random.default_rng(SEED)
    log_alpha = np.log(1.5) + np.linspace(-0.4, 0.4, 13)
    excess = np.geomspace(5e-4, 80.0, 200)
    curves, optima = [], []
    for start in range(0, rows, 1000):
        points = np.log(np.cumsum(rng.exponential(size=(min(1000, rows - start), POINTS)), axis=1))
        curves.append(frozen_gradients(points, np.exp(log_alpha)))
        if start < rows // 8:
            optima.append(frozen_row_optima(points, excess))
    shift, error = typical.peak_of_medians(log_alpha, np.log(np.concatenate(curves)))
    best = float(np.exp(shift))
    return {
        "rows": rows,
        "single_rows": sum(map(len, optima)),
        "geometric_mean": {"value": 1.0, "standard_error": 0.0},
        "median": {"value": best, "standard_error": best * float(error)},
        "row": quantiles(np.concatenate(optima)),
    }


def frozen_gradients(points: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return α(1 − Σp²), p_i ∝ Γ_i^{−α}, for a Poisson process Γ given by its logarithms; α > 1.

    The mean of the sum beyond the last point G is G^{1−α}/(α − 1), and its noise G^{½−α}.
    """
    columns = []
    for a in alpha:
        weights = np.exp(-a * (points - points[:, :1]))
        tail = weights[:, -1] * np.exp(points[:, -1]) / (a - 1.0)
        squares = (weights**2).sum(axis=1)
        columns.append(a * (1.0 - squares / (weights.sum(axis=1) + tail) ** 2))
    return np.stack(columns, axis=1)


def frozen_row_optima(points: FloatArray, excess: FloatArray) -> FloatArray:
    """Return each row's best α of a geometric table of α − 1, refined by a parabola."""
    heights = frozen_gradients(points, 1.0 + excess)
    place = np.clip(heights.argmax(axis=1), 1, excess.size - 2)
    left, middle, right = (heights[np.arange(len(heights)), place + step] for step in (-1, 0, 1))
    bend = np.minimum(left - 2.0 * middle + right, -1e-300)
    shift = np.clip((left - right) / (2.0 * bend), -1.0, 1.0)
    return cast(FloatArray, 1.0 + excess[place] * (excess[1] / excess[0]) ** shift)


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
    main()
