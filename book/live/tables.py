"""The numbers that the live figures need, from `attnlib` and from the record of the criteria."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.polynomial.polynomial import Polynomial

from attnlib import criteria, exact, freezing, retrieval
from attnlib import typical as typical_rows
from attnlib.checking import FloatArray
from attnlib.initialisation import sample_rows
from attnlib.policies import POLICIES
from attnlib.scores import Cosine, DotProduct, Law, Normal
from attnlib.special import debye_polynomials
from book.catalogue import MODELS, letters
from experiments import criteria as recorder
from experiments.records import Record, load

KEYS = (2, recorder.LARGEST_N)
DIMENSIONS = (8, 2**16)
INVERSE_DIMENSION = (0.0, 1.0 / DIMENSIONS[0])
"""1/d; at 0 both other laws are the normal one."""

REACH = 30.0
"""In units of the α of freezing; beyond it the mean gradient is at its limit."""

GRADIENT_DIMENSIONS = (0, 161, 43, 21, 13, 10, 9, 8)
GRADIENT_KEYS = 12
GRADIENT_SCALES = 22

OUTPUT_KEYS = (16, 2**16)
OUTPUT_TEMPERATURES = (1.0 / 16.0, 16.0)
OUTPUT_NODES = (9, 44)

GUESSED_KEYS = 1024
ONE_HOT_DIMENSIONS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
ONE_HOT_KEYS = 512

PARTING_KEYS = 512
PARTING_ALPHA = 9.0
PARTING_NODES = 16
PARTING_ROWS = 8000

TYPICAL_DEGREES = (2, 4)
TYPICAL_FLOOR = 0.002
"""Relative error that the fitted polynomial may have: no point counts as exact."""

ARRIVALS = 65
"""Of the Poisson process behind the sample row."""

SEED = 7

SIXTEEN = 16
SIXTEEN_SEEDS = range(8)
"""The keys of the front page's figure, and the seeds of their rows."""

LAWS = {"cosine": Cosine, "dot product": DotProduct}


def tables() -> dict[str, Any]:
    """Return all tables by name; some seconds."""
    recorded = load("criteria")
    return {
        "limits": {"n": KEYS, "d": DIMENSIONS},
        "gradient": gradient_table(),
        "output": output_table(),
        "parting": parting_table(),
        "guesses": guesses(),
        "criteria": criteria_tables(recorded),
        "debye": [rounded(u) for u in debye_polynomials()[:7]],
        "arrivals": arrivals(),
        "sixteen": sixteen(),
        "policies": policies(),
    }


def gradient_table() -> dict[str, Any]:
    """Return log[(1 + x) E(1 − Σp²)] by 1/d, √log n and x/(1 + x), x = α over that of freezing.

    For cosines; at 1/d = 0 for normal scores, from which those of dot products follow.
    """
    keys = whole_nodes(GRADIENT_KEYS, *KEYS)
    share = (nodes(GRADIENT_SCALES) + 1.0) / 2.0 * REACH / (1.0 + REACH)
    x = share / (1.0 - share)
    laws: list[Law] = [Cosine(d) if d else Normal() for d in GRADIENT_DIMENSIONS]
    values = np.empty((len(laws), keys.size, x.size))
    for i, law in enumerate(laws):
        for j, n in enumerate(keys):
            alpha = x * freezing.critical_alpha(n, law)
            values[i, j] = np.log(exact.gradient(law, alpha, n) / alpha * (1.0 + x))
    coefficients = fit(
        values,
        at(inverse(GRADIENT_DIMENSIONS), INVERSE_DIMENSION),
        at(np.sqrt(np.log(keys)), root_log(KEYS)),
        nodes(GRADIENT_SCALES),
    )
    ranges = {"inverse_d": INVERSE_DIMENSION, "root_log_n": root_log(KEYS), "reach": REACH}
    return ranges | packed(coefficients, 1e-5)


def output_table() -> dict[str, Any]:
    """Return log √(E Σp²) of normal scores by √log n and log t, with t = 1/α."""
    keys = whole_nodes(OUTPUT_NODES[0], *OUTPUT_KEYS)
    low, high = np.log(OUTPUT_TEMPERATURES)
    t = np.exp(low + (high - low) * (nodes(OUTPUT_NODES[1]) + 1.0) / 2.0)
    values = np.log(exact.output_std(Normal(), 1.0 / t, keys[:, None]))
    places = at(np.sqrt(np.log(keys)), root_log(OUTPUT_KEYS)), nodes(OUTPUT_NODES[1])
    return {"n": OUTPUT_KEYS, "t": OUTPUT_TEMPERATURES} | packed(fit(values, *places), 1e-5)


def parting_table() -> dict[str, Any]:
    """Return log(g/α) of the typical row of normal scores by α, g its geometric mean."""
    alpha = PARTING_ALPHA * (nodes(PARTING_NODES) + 1.0) / 2.0
    found, _ = typical_rows.gradient(Normal(), alpha, PARTING_KEYS, rows=PARTING_ROWS)
    coefficients = fit(np.log(found / alpha), nodes(PARTING_NODES))
    return {"n": PARTING_KEYS, "alpha": PARTING_ALPHA} | packed(coefficients, 1e-5)


def guesses() -> dict[str, Any]:
    """Return what the figures that ask first need: the medians of fig-largest, and a limit."""
    rng = np.random.default_rng(1)  # the chapter's own draws
    found = [
        np.median(sample_rows(rng, d, ONE_HOT_KEYS, exponent=0.0).largest)
        for d in ONE_HOT_DIMENSIONS
    ]
    limit = float(exact.gradient_limit(Normal(), GUESSED_KEYS))
    return {
        "largest": {"d": ONE_HOT_DIMENSIONS, "weight": [round(float(w), 4) for w in found]},
        "share": {"n": GUESSED_KEYS, "limit": round(limit, 8)},
    }


def criteria_tables(recorded: Record) -> dict[str, Any]:
    """Return names and meanings of the criteria, and tables for the two without a closed form."""
    smallest_log = 1.0 / np.log(criteria.LARGEST_SAMPLED), 1.0 / np.log(KEYS[0])
    listed = criteria.alphas(Normal(), KEYS[0], needle=retrieval.Tilted(1.0))
    named = [{"name": entry.name, "meaning": entry.meaning} for entry in listed]
    return {
        "list": named[:-2],
        "needle": named[-2:],
        "held": {kind: packed(held(recorded, law), 1e-7) for kind, law in LAWS.items()},
        "entropy": {kind: packed(entropy(recorded, law), 1e-5) for kind, law in LAWS.items()},
        "typical": {
            "largest": criteria.LARGEST_SAMPLED,
            "inverse_log_n": smallest_log,
            **{
                kind: packed(typical(recorded, law, smallest_log), 1e-4)
                for kind, law in LAWS.items()
            },
        },
    }


def held(recorded: Record, law: Any) -> FloatArray:
    """Return the entropy that the criterion holds, by 1/d."""
    values = [entropies(recorded, entry)[0]["held"] for entry in family(law)]
    return fit(np.array(values), entropy_places())


def entropy(recorded: Record, law: Any) -> FloatArray:
    """Return log[α²/(log n − held)], α in standard deviations, by 1/d and the place of log n."""
    lines = []
    for entry in family(law):
        found = entropies(recorded, entry)
        keys = np.array([n for kept, n in recorder.points_of_entropy() if kept == entry])
        excess = np.log(keys) - found[0]["held"]
        values = np.log(np.array([point["alpha"] for point in found]) ** 2 / excess)
        lines.append(fit(values, at(excess, (0.0, np.log(KEYS[1]) - found[0]["held"]))))
    return fit(np.array(lines), entropy_places(), axes=1)


def entropies(recorded: Record, law: Law) -> list[dict[str, float]]:
    """Return the recorded entries of a law, in the order of n."""
    return [
        recorded.find(**recorder.fields("entropy", kept, n))
        for kept, n in recorder.points_of_entropy()
        if kept == law
    ]


def family(law: Any) -> list[Law]:
    """Return the normal law and then one law in all dimensions of the entropy's record."""
    return [Normal(), *map(law, recorder.ENTROPY_DIMENSIONS)]


def entropy_places() -> FloatArray:
    """Return where the laws of `family` lie."""
    return at(inverse((0, *recorder.ENTROPY_DIMENSIONS)), INVERSE_DIMENSION)


def typical(recorded: Record, law: Any, inverse_log_n: tuple[float, float]) -> FloatArray:
    """Return the typical row's best α over that of freezing, by 1/d and 1/log n.

    A polynomial of low degree through simulated points: it averages over their errors.
    """
    u, v, values, weights = [], [], [], []
    for entry, n in recorder.points_of_the_typical_row():
        if isinstance(entry, Normal | law):
            point = recorded.find(**recorder.fields("typical", entry, n))
            u.append(0.0 if isinstance(entry, Normal) else 1.0 / entry.d)
            v.append(1.0 / np.log(n))
            values.append(point["ratio"])
            weights.append(1.0 / np.hypot(point["standard_error"], TYPICAL_FLOOR * point["ratio"]))
    places = at(np.array(u), INVERSE_DIMENSION), at(np.array(v), inverse_log_n)
    terms = chebyshev.chebvander2d(*places, TYPICAL_DEGREES)
    scale = np.array(weights)
    found, *_ = np.linalg.lstsq(terms * scale[:, None], np.array(values) * scale)
    shape = TYPICAL_DEGREES[0] + 1, TYPICAL_DEGREES[1] + 1
    return np.asarray(found, dtype=np.float64).reshape(shape)


def arrivals() -> list[float]:
    """Return the arrivals of a Poisson process."""
    gaps = np.random.default_rng(SEED).exponential(size=ARRIVALS)
    return [round(float(arrival), 4) for arrival in np.cumsum(gaps)]


def sixteen() -> list[list[float]]:
    """Return rows of sixteen standard normal numbers, one row for each seed.

    They are dot products over √d: with a query of length √d those of random keys are normal with
    standard deviation √d, at every d.
    """
    drawn = (np.random.default_rng(seed).standard_normal(SIXTEEN) for seed in SIXTEEN_SEEDS)
    return [[round(float(score), 4) for score in row] for row in drawn]


def policies() -> list[dict[str, Any]]:
    """Return what the figures say of each policy, and the name and constants of its rule."""
    return [
        {
            "name": policy.name,
            "title": policy.title,
            "applied_to": policy.applied_to,
            "meaning": policy.meaning,
            "family": policy.family,
            "models": MODELS.get(policy.name, ""),
            "rule": policy.rule.__name__,
            "constants": policy.constants,
            "letters": letters(policy),
        }
        for policy in POLICIES.values()
    ]


# --- polynomials in several variables -------------------------------------------------------------


def nodes(count: int) -> FloatArray:
    """Return Chebyshev's points in (−1, 1)."""
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)


def whole_nodes(count: int, low: int, high: int) -> FloatArray:
    """Return whole numbers from `low` to `high` whose √log are near Chebyshev's points."""
    first, last = root_log((low, high))
    root = first + (last - first) * (1.0 - np.cos(np.pi * np.arange(count) / (count - 1))) / 2.0
    order = np.arange(count)
    distinct = np.maximum.accumulate(np.round(np.exp(root**2)) - order) + order
    return np.asarray(distinct, dtype=np.float64)


def root_log(values: Iterable[float]) -> tuple[float, float]:
    """Return √log of two numbers."""
    low, high = np.sqrt(np.log(list(values)))
    return float(low), float(high)


def inverse(dimensions: Iterable[int]) -> FloatArray:
    """Return 1/d, with 0 for the limit of many dimensions, which is written as 0."""
    return np.array([1.0 / d if d else 0.0 for d in dimensions])


def at(values: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """Return where values lie between two ends, from −1 to 1."""
    low, high = ends
    return 2.0 * (values - low) / (high - low) - 1.0


def fit(values: FloatArray, *places: FloatArray, axes: int | None = None) -> FloatArray:
    """Return Chebyshev coefficients of the polynomial through values at the places, axis by axis.

    With `axes` only the first so many axes; the others hold coefficients already.
    """
    for axis, place in enumerate(places[:axes]):
        terms = chebyshev.chebvander(place, place.size - 1)
        ahead = np.moveaxis(values, axis, 0)
        solved = np.linalg.solve(terms, ahead.reshape(place.size, -1)).reshape(ahead.shape)
        values = np.asarray(np.moveaxis(solved, 0, axis), dtype=np.float64)
    return values


def packed(coefficients: FloatArray, unit: float) -> dict[str, Any]:
    """Return coefficients as whole numbers of a unit, as text in which zeros are left out."""
    whole = np.round(coefficients / unit).astype(np.int64).ravel()
    text = ",".join(str(number) if number else "" for number in whole.tolist())
    return {"shape": coefficients.shape, "unit": unit, "values": text}


def rounded(polynomial: Polynomial) -> list[float]:
    """Return the coefficients of a polynomial, the constant first, with fifteen digits."""
    return [float(f"{coefficient:.15g}") for coefficient in polynomial.coef]
