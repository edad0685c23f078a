"""What the library is tested against: the plain formulas, evaluated in mpmath.

The formulas are typed as the chapters state them, with their cancellations: the working precision
is high enough that a difference of 1e-310 between numbers near 1 keeps 60 digits and more.
"""

import mpmath as mp
import numpy as np

DIGITS = 700
"""Rows here are one-hot down to 1e-308, and squares of that enter: 2 × 308 digits and 84 more."""


def softmax(s, alpha=1.0):
    """Return p as a list of mpf; a score of −∞ gets exactly 0. Call it within `mp.workdps`."""
    largest = max(s)
    weights = [
        mp.mpf(0) if np.isneginf(x) else mp.exp(mp.mpf(alpha) * (mp.mpf(x) - mp.mpf(largest)))
        for x in map(float, s)
    ]
    total = mp.fsum(weights)
    return [w / total for w in weights]


def gradient(p, alpha):
    return mp.mpf(alpha) * (1 - mp.fsum(x**2 for x in p))


def frobenius_norm(p, alpha):
    squares = mp.fsum(x**2 for x in p)
    return mp.mpf(alpha) * mp.sqrt(squares - 2 * mp.fsum(x**3 for x in p) + squares**2)


def jacobian(p, alpha):
    return [
        [mp.mpf(alpha) * ((x if i == j else 0) - x * y) for j, y in enumerate(p)]
        for i, x in enumerate(p)
    ]


def largest_entry(p, alpha):
    return max(abs(entry) for row in jacobian(p, alpha) for entry in row)


def shannon_entropy(p):
    kept = [mp.mpf(x) for x in p if x > 0]
    return -mp.fsum(x * mp.log(x) for x in kept)


def relative_error(value, exact):
    """Return |value − exact| / |exact| as a float, and 0 if both are 0."""
    value, exact = mp.mpf(float(value)), mp.mpf(exact)
    if exact == 0:
        return 0.0 if value == 0 else float("inf")
    return float(abs(value - exact) / abs(exact))
