"""The numbers in the prose of the calculator's page and of the front page, by name."""

from bisect import bisect_left
from math import log2

import numpy as np

from attnlib import annealed, criteria, exact, freezing, rows
from attnlib.scores import Cosine, Normal
from book.live import tables


def calculator_numbers() -> dict[str, str]:
    """Return the numbers on the calculator's page."""
    n, law = 4096, Normal()
    critical = float(freezing.critical_alpha(n, law))
    counts = range(2, n)
    few = counts[bisect_left(counts, True, key=lambda k: criteria.same_entropy(law, k) is not None)]
    least, most = tables.KEYS
    return {
        "n": str(n),
        "annealed": f"{float(annealed.best_alpha(law, n)):.2f}",
        "entropy": f"{criteria.same_entropy(law, n):.2f}",
        "freezing": f"{critical:.2f}",
        "cosines": f"{float(freezing.critical_alpha(n, Cosine(64))) / 8:.2f}",
        "level": f"{float(exact.gradient(law, 2.2 * critical, n)):.1f}",
        "reference": str(criteria.REFERENCE_KEYS),
        "few": str(few),
        "least": str(least),
        "most": f"{log2(most):.0f}",
    }


def front_page_numbers() -> dict[str, str]:
    """Return how many keys share the weight of the front page's row, by the size of the head."""
    row = np.array(tables.rows_of_sixteen()[0])
    shares = {d: rows.collision_probability(rows.softmax(row, d**0.5)) for d in (1, 4, 64, 1024)}
    return {f"keys_{d}": f"{1 / float(share):.1f}" for d, share in shares.items()}
