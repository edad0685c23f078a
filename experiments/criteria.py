"""Record the two criteria for the scale that have no closed form, where the calculator needs them.

    python -m experiments.criteria

takes a quarter of an hour of one core, and goes on where it was stopped: the typical row's best α,
by simulation, and the α that holds the entropy, from `attnlib.criteria`. The live figures have
polynomials fitted to them.
"""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from attnlib import criteria, exact, freezing, typical
from attnlib.sampling import cores
from attnlib.scores import Cosine, DotProduct, Law, Normal
from experiments.provenance import made
from experiments.records import Fields, Work, complete, path_of

COMMAND = "python -m experiments.criteria"
KINDS = {Normal: "normal", Cosine: "cosine", DotProduct: "dot product"}
SEED = 40
BUDGET = 2**27
"""Scores drawn for each n."""

LARGEST_N = 2**24
"""The calculator's."""

TYPICAL_DIMENSIONS = (8, 16, 64)
TYPICAL_KEYS = (2, 3, 4, 6, 10, 20, 50, 150, 500, 2000, 8000, 2**16)
MOST_ROWS = 20_000

ENTROPY_DIMENSIONS = (8, 9, 11, 16, 30, 120)
ENTROPY_NODES = 10
"""Numbers of keys for each law."""


def main() -> None:
    """Compute what the record does not hold yet."""
    settings = {"seed": SEED, "budget": BUDGET}
    made_with = made("numpy", "scipy", threads=cores())
    complete(path_of("criteria"), work(), command=COMMAND, settings=settings, made=made_with)


def work() -> Work:
    """Yield what each entry is of, and what computes it."""
    for law, n in points_of_entropy():
        yield fields("entropy", law, n), partial(same_entropy, law, n)
    for law in laws(TYPICAL_DIMENSIONS):
        for n in TYPICAL_KEYS:
            yield fields("typical", law, n), partial(typical_row, law, n)


def points_of_entropy() -> Iterator[tuple[Law, int]]:
    """Give each law and number of keys at which the entropy's α is computed."""
    for law in laws(ENTROPY_DIMENSIONS):
        lowest, highest = held_entropy(law), np.log(LARGEST_N)
        angles = np.pi * np.arange(ENTROPY_NODES) / (ENTROPY_NODES - 1)
        log_n = lowest + (highest - lowest) * (1.0 - np.cos(angles)) / 2.0
        fewest = int(np.exp(lowest)) + 1
        for n in np.maximum(np.round(np.exp(log_n)), fewest):
            yield law, int(n)


def laws(dimensions: tuple[int, ...]) -> list[Law]:
    """Return the normal law and the other two in these dimensions."""
    return [Normal(), *map(Cosine, dimensions), *map(DotProduct, dimensions)]


@cache
def held_entropy(law: Law) -> float:
    """Return the entropy that the criterion holds."""
    return float(exact.entropy(law, 1.0 / np.sqrt(law.variance), criteria.REFERENCE_KEYS))


def fields(criterion: str, law: Law, n: int) -> Fields:
    """Return what an entry is of; d is null for normal scores."""
    return {"criterion": criterion, "law": KINDS[type(law)], "d": getattr(law, "d", None), "n": n}


def same_entropy(law: Law, n: int) -> dict[str, float]:
    """Return α in standard deviations of a score, and the entropy that it holds."""
    alpha = criteria.same_entropy(law, n)
    assert alpha is not None, "the points are where there is one"
    return {"alpha": alpha * float(np.sqrt(law.variance)), "held": held_entropy(law)}


def typical_row(law: Law, n: int) -> dict[str, float]:
    """Return the best α in units of the α of freezing."""
    rows = min(MOST_ROWS, BUDGET // n)
    value, error = typical.best_alpha(law, n, rows=rows, seed=SEED)
    unit = float(freezing.critical_alpha(n, law))
    return {"ratio": float(value) / unit, "standard_error": float(error) / unit}


if __name__ == "__main__":
    main()
