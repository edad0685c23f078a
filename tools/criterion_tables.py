"""Record the two criteria for the scale that have no closed form, where the calculator needs them.

    python -m tools.criterion_tables

writes results/criterion_tables.json, a quarter of an hour of one core: the typical row's best α, by
simulation, and the α that holds the entropy, from `attnlib.criteria`. `python -m tools.calculator`
fits polynomials to them. What the file already holds is not computed again, and every entry is
written when it is done: start it again after an interruption.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import perf_counter

import click
import numpy as np

from attnlib import criteria, exact, freezing, typical
from attnlib.scores import Cosine, DotProduct, Law, Normal
from tools.files import read_entries, write_json

RESULTS = Path(__file__).parents[1] / "results" / "criterion_tables.json"
COMMAND = "python -m tools.criterion_tables"
SEED = 40

LARGEST_N = 2**24
"""The calculator's."""

TYPICAL_DIMENSIONS = (8, 16, 64)
TYPICAL_KEYS = (2, 3, 4, 6, 10, 20, 50, 150, 500, 2000, 8000, 2**16)
MOST_ROWS = 20_000

ENTROPY_DIMENSIONS = (8, 9, 11, 16, 30, 120)
ENTROPY_NODES = 10
"""Numbers of keys for each law."""


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
@click.option("--budget", default=2**27, show_default=True, help="Scores drawn for each n.")
def main(out: Path, budget: int) -> None:
    """Compute what OUT does not hold yet."""
    settings = {"command": COMMAND, "seed": SEED, "budget": budget}
    entries = read_entries(out, settings)
    points = [*points_of_entropy(), *points_of_the_typical_row()]
    names = [name(*point) for point in points]
    for point, key in zip(points, names, strict=True):
        if key not in entries:
            start = perf_counter()
            entries[key] = record(*point, budget)
            ordered = {key: entries[key] for key in names if key in entries}
            write_json(out, {**settings, "entries": ordered})
            click.echo(f"{key}: {perf_counter() - start:.0f} s")


def points_of_the_typical_row() -> Iterator[tuple[str, Law, int]]:
    """Give each law and number of keys at which the typical row is simulated."""
    for law in laws(TYPICAL_DIMENSIONS):
        for n in TYPICAL_KEYS:
            yield "typical", law, n


def points_of_entropy() -> Iterator[tuple[str, Law, int]]:
    """Give each law and number of keys at which the entropy's α is computed."""
    for law in laws(ENTROPY_DIMENSIONS):
        lowest, highest = held_entropy(law), np.log(LARGEST_N)
        angles = np.pi * np.arange(ENTROPY_NODES) / (ENTROPY_NODES - 1)
        log_n = lowest + (highest - lowest) * (1.0 - np.cos(angles)) / 2.0
        fewest = int(np.exp(lowest)) + 1
        for n in np.maximum(np.round(np.exp(log_n)), fewest):
            yield "entropy", law, int(n)


def laws(dimensions: tuple[int, ...]) -> list[Law]:
    """Return the normal law and the other two in these dimensions."""
    return [Normal(), *map(Cosine, dimensions), *map(DotProduct, dimensions)]


@cache
def held_entropy(law: Law) -> float:
    """Return the entropy that the criterion holds."""
    return float(exact.entropy(law, 1.0 / np.sqrt(law.variance), criteria.REFERENCE_KEYS))


def name(kind: str, law: Law, n: int) -> str:
    """Return the name of an entry."""
    return f"{kind}, {law}, n = {n}"


def record(kind: str, law: Law, n: int, budget: int) -> dict[str, float]:
    """Return an entry: α in units of the α of freezing, and of one standard deviation."""
    if kind == "entropy":
        alpha = criteria.same_entropy(law, n)
        assert alpha is not None, "the points are where there is one"
        return {"alpha": alpha * float(np.sqrt(law.variance)), "held": held_entropy(law)}
    rows = min(MOST_ROWS, budget // n)
    value, error = typical.best_alpha(law, n, rows=rows, seed=SEED)
    unit = float(freezing.critical_alpha(n, law))
    return {"ratio": float(value) / unit, "standard_error": float(error) / unit}


if __name__ == "__main__":
    main()
