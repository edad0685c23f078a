"""Compute the scale by each criterion: the α at which a row of random scores has a given property.

The criteria disagree, because they ask for different properties; none of them is *the* scale.

Chapter: scaling_rules.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import digamma

from attnlib import _checking, annealed, exact, freezing
from attnlib._roots import root
from attnlib.scores import Law, check_law

REFERENCE_KEYS = 512
"""Number of keys at which the entropy criterion takes the entropy of the scale 1/√d."""


class Criterion(NamedTuple):
    """Hold the α of one criterion, its name, and its meaning in words.

    α multiplies the law's score; it is None where no α has the property.
    """

    name: str
    alpha: float | None  # multiplies the law's score; None where the criterion asks for nothing
    meaning: str


def effective_keys(n: int, *, causal: bool) -> float:
    """Return the number of keys that stands for all rows of a sequence in a choice of one α.

    - `n`: the number of keys of the longest row, an integer from 2 to 2⁴⁰.
    - `causal`: True gives the harmonic mean of 1, …, n, for a causal mask; False n itself.

    The constant α that maximises the approximate gradient, averaged over the positions of a causal
    mask, is the best one for so many keys. Raises ValueError or TypeError for other arguments.
    Chapter: normal.

    >>> effective_keys(2048, causal=True)
    249.7...
    """
    keys = _checking.integer("n", n, minimum=2, maximum=2**40)
    if not _checking.flag("causal", causal):
        return float(keys)
    return keys / float(digamma(keys + 1.0) + np.euler_gamma)


def all_criteria(
    law: Law, n: int, *, causal: bool = False, entropy: bool = True
) -> list[Criterion]:
    """Return the α of each criterion for rows of n keys, a list of `Criterion`.

    - `law`: the distribution of the scores, a `Law`.
    - `n`: the number of keys, an integer from 2 to 2⁴⁰.
    - `causal`: True gives one α for 1 to n keys, that of `effective_keys`. By default False.
    - `entropy`: False leaves out "entropy", which takes a second. By default True.

    The criteria are

    - variance: the logits have variance 1.
    - annealed: `annealed.best_alpha`.
    - freezing: `freezing.critical_alpha`, where the random energy model freezes.
    - entropy: the mean entropy is that of 512 keys whose logits have variance 1. None where the
      keys are too few for that, or where no α up to 9000/σ suffices (d = 3, 10⁸ keys).

    α multiplies the law's score, which is q·k/√d for `Normal` and `DotProduct` and the cosine for
    `Cosine`, where α is the scale itself. Times the standard deviation σ of a score, α is that of
    the logits. `typical.best_alpha` simulates the α of typical rows. Where one key of n is the
    intended one, use `retrieval.best_alpha` and `retrieval.least_alpha`.

    Raises ValueError or TypeError for other arguments. Chapter: scaling_rules.

    >>> from attnlib.scores import Normal
    >>> for criterion in all_criteria(Normal(), 4096):
    ...     print(f"{criterion.name:9} {criterion.alpha:.1f}")
    variance  1.0
    annealed  2.4
    freezing  4.1
    entropy   2.3
    """
    check_law(law)
    keys, entropy = effective_keys(n, causal=causal), _checking.flag("entropy", entropy)
    criteria = {
        "variance": (1.0 / np.sqrt(law.variance), "Logits of variance 1: 1/√d, on cosines √d."),
        "annealed": (
            annealed.best_alpha(law, keys),
            "Largest gradient, by the approximation in the literature.",
        ),
        "freezing": (
            freezing.critical_alpha(keys, law),
            "From here on a few keys hold the weight, however many there are.",
        ),
    }
    if entropy:
        says = f"As spread out as {REFERENCE_KEYS} keys are under 1/√d: the same mean entropy."
        criteria["entropy"] = same_entropy(law, max(2, round(keys))), says
    return [
        Criterion(name, None if alpha is None else float(alpha), says)
        for name, (alpha, says) in criteria.items()
    ]


def same_entropy(law: Law, n: int) -> float | None:
    """Return the α whose mean entropy over n keys is that of 512 keys at logits of variance 1.

    - `law`: the distribution of the scores, a `Law`.
    - `n`: the number of keys, an integer from 2 to 2⁴⁰.

    None where n keys cannot have that entropy, or need an α above 9000 over the standard deviation.
    The relative error is below 1e-9. Brent's method on `exact.entropy` starts where log n − α²/2,
    the approximation for normal scores, has that value; it takes about eight entropies.

    Raises ValueError or TypeError for other arguments. Chapters: freezing, scaling_rules.

    >>> from attnlib.scores import Normal
    >>> same_entropy(Normal(), 512), same_entropy(Normal(), 311)
    (1.0, None)
    """
    check_law(law)
    keys = _checking.integer("n", n, minimum=2, maximum=2**40)
    unit = 1.0 / float(np.sqrt(law.variance))
    wanted = float(exact.entropy(law, unit, REFERENCE_KEYS))
    if np.log(keys) <= wanted:
        return None

    def missing(log_alpha: float) -> float:
        return wanted - float(exact.entropy(law, np.exp(log_alpha), keys))

    low, high = map(float, np.log(unit) + np.log([1e-3, 9e3]))  # of what `exact` has
    first = np.log(unit) + np.log(2.0 * (np.log(keys) - wanted)) / 2.0
    start = float(np.clip(first, low, high))
    best = root(missing, start, low, high, step=0.1, xtol=1e-10)
    return float(np.exp(best)) if low < best < high else None
