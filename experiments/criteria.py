"""Record the two criteria for the scale that have no closed form, where the calculator needs them.

    python -m experiments.criteria

takes a quarter of an hour of one core, and goes on where it was stopped: the typical row's best α,
by simulation, and the α that holds the entropy, from `attnlib.criteria`, both for normal scores.
The live figures have polynomials fitted to them.
"""

from functools import cache, partial

import numpy as np

from attnlib import criteria, exact, freezing, typical
from attnlib.sampling import cores
from attnlib.scores import Normal
from experiments.records import Work, recorded

SEED = 40
BUDGET = 2**27
"""Scores drawn for each n."""

LARGEST_N = 2**24
"""The calculator's."""

TYPICAL_KEYS = (2, 3, 4, 6, 10, 20, 50, 150, 500, 2000, 8000, 2**16)
MOST_ROWS = 20_000

ENTROPY_NODES = 10
"""Numbers of keys."""


def work() -> Work:
    """Yield what each entry is of, and what computes it."""
    for n in points_of_entropy():
        yield {"criterion": "entropy", "n": n}, partial(same_entropy, n)
    for n in TYPICAL_KEYS:
        yield {"criterion": "typical", "n": n}, partial(typical_row, n)


def points_of_entropy() -> list[int]:
    """Return the numbers of keys at which the entropy's α is computed."""
    lowest, highest = held_entropy(), np.log(LARGEST_N)
    angles = np.pi * np.arange(ENTROPY_NODES) / (ENTROPY_NODES - 1)
    log_n = lowest + (highest - lowest) * (1.0 - np.cos(angles)) / 2.0
    fewest = int(np.exp(lowest)) + 1
    return [int(n) for n in np.maximum(np.round(np.exp(log_n)), fewest)]


@cache
def held_entropy() -> float:
    """Return the entropy that the criterion holds."""
    return float(exact.entropy(Normal(), 1.0, criteria.REFERENCE_KEYS))


def same_entropy(n: int) -> dict[str, float]:
    """Return α, and the entropy that it holds."""
    alpha = criteria.same_entropy(Normal(), n)
    assert alpha is not None, "the points are where there is one"
    return {"alpha": alpha, "held": held_entropy()}


def typical_row(n: int) -> dict[str, float]:
    """Return the best α in units of the α of freezing."""
    rows = min(MOST_ROWS, BUDGET // n)
    value, error = typical.best_alpha(Normal(), n, rows=rows, seed=SEED)
    unit = float(freezing.critical_alpha(n))
    return {"ratio": float(value) / unit, "standard_error": float(error) / unit}


if __name__ == "__main__":
    recorded("criteria", work(), {"seed": SEED, "budget": BUDGET}, threads=cores())
