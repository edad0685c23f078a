"""The numbers that the live figures need, of the front page too: from `attnlib` and records."""

from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from attnlib import annealed, criteria, exact, freezing
from attnlib import typical as typical_rows
from attnlib._checking import FloatArray
from attnlib.policies import POLICIES
from attnlib.scores import Cosine, Normal
from book.catalogue import MODELS, letters
from experiments.real_heads import shown, verdicts
from experiments.records import Record, load

KEYS = (2, 2**24)
DIMENSIONS = (8, 2**16)
INVERSE_DIMENSION = (0.0, 1.0 / DIMENSIONS[0])
"""1/d; at 0 cosines are normal."""

COSINE_DIMENSIONS = (600, 161, 70, 43, 28, 21, 16, 13, 11, 10, 9, 8)
COSINE_KEYS = 16

PARTING_KEYS = 512

MEANINGS = {
    "typical": "Largest gradient of a typical row of random scores. Known to about one percent.",
    "finding": "Least mean loss where such a key is meant.",
    "least": "From about here on such a key outweighs all others together.",
}
"""What the calculator says of the typical row, of α = θ, and of `retrieval.least_alpha`."""

QUERY = 36
"""The token whose row is drawn of the first of the recorded heads."""


def tables() -> dict[str, Any]:
    """Return all tables, by name; takes some seconds."""
    return {
        "limits": {"n": KEYS, "d": DIMENSIONS},
        "cosine": cosine_table(),
        "parting": parting_table(),
        "criteria": {
            "list": criteria_list(),
            "entropy": entropy_table(),
            "typical": typical_table(load("typical_optima")),
        },
        "arrivals": poisson_arrivals(),
        "sixteen": rows_of_sixteen(),
        "face": front_page_data(),
        "policies": policy_list(),
    }


def cosine_table() -> dict[str, Any]:
    """Return log of the best α of the approximation for cosines over that for normal scores.

    It is a polynomial in 1/d and √log n; α is in units of 1/σ, σ the standard deviation of a score.
    """
    roots = float(np.sqrt(np.log(KEYS[0]))), float(np.sqrt(np.log(KEYS[1])))
    places = chebyshev.chebpts1(COSINE_KEYS)
    keys = np.exp(((places + 1.0) / 2.0 * (roots[1] - roots[0]) + roots[0]) ** 2)
    normal = annealed.best_alpha(Normal(), keys)
    values = [np.zeros(COSINE_KEYS)]  # d → ∞
    values += [
        np.log(annealed.best_alpha(Cosine(d), keys) / np.sqrt(d) / normal)
        for d in COSINE_DIMENSIONS
    ]
    inverse_d = np.array([0.0, *(1.0 / d for d in COSINE_DIMENSIONS)])
    inverse = to_minus_one_one(inverse_d, INVERSE_DIMENSION)
    by_dimension = chebyshev.chebfit(inverse, np.array(values), inverse.size - 1)
    coefficients = chebyshev.chebfit(places, by_dimension.T, COSINE_KEYS - 1).T
    return {"inverse_d": INVERSE_DIMENSION, "root_log_n": roots} | pack(coefficients, 1e-7)


def parting_table() -> dict[str, Any]:
    """Return log(g/α) of the typical row of normal scores by α, g its geometric mean gradient."""
    largest, places = 9.0, chebyshev.chebpts1(16)
    alpha = largest * (places + 1.0) / 2.0
    gradient, _ = typical_rows.gradient(Normal(), alpha, PARTING_KEYS, rows=8000)
    coefficients = chebyshev.chebfit(places, np.log(gradient / alpha), places.size - 1)
    return {"n": PARTING_KEYS, "alpha": largest} | pack(coefficients, 1e-5)


def criteria_list() -> list[dict[str, str]]:
    """Return the names and meanings of the criteria."""
    texts = {
        entry.name: entry.meaning for entry in criteria.all_criteria(Normal(), KEYS[0])
    } | MEANINGS
    order = "variance", "annealed", "typical", "freezing", "entropy", "finding", "least"
    return [{"name": name, "meaning": texts[name]} for name in order]


def entropy_table() -> dict[str, Any]:
    """Return the held entropy h of the criterion, and log[α²/(log n − h)] by log n − h."""
    held = float(exact.entropy(Normal(), 1.0, criteria.REFERENCE_KEYS))
    ends = 0.0, float(np.log(KEYS[1]) - held)
    angles = np.pi * np.arange(10) / 9
    near = np.exp(held + ends[1] * (1.0 - np.cos(angles)) / 2.0)
    keys = np.maximum(np.round(near), np.ceil(near[0]))  # below there is none
    excess = np.log(keys) - held
    alpha = [criteria.same_entropy(Normal(), int(n)) for n in keys]
    values = np.log(np.array(alpha, dtype=float) ** 2 / excess)
    coefficients = chebyshev.chebfit(to_minus_one_one(excess, ends), values, len(keys) - 1)
    return {"held": held, "excess": ends} | pack(coefficients, 1e-5)


def typical_table(record: Record) -> dict[str, Any]:
    """Return the typical row's best α over that of freezing, by 1/log n.

    A polynomial of low degree through simulated points averages over their errors.
    """
    points = {key["n"]: [best["value"], best["standard_error"]] for key, best in record.entries}
    for n in (2, 3, 4, 6, 10):  # which the record does not have
        best = typical_rows.best_alpha(Normal(), n, rows=20_000)
        points[n] = [float(number / freezing.critical_alpha(n)) for number in best]
    keys = np.array(list(points))
    ratios, errors = np.array(list(map(tuple, points.values()))).T
    ends = 1.0 / float(np.log(keys.max())), 1.0 / float(np.log(keys.min()))
    weights = 1.0 / np.hypot(errors, 0.002 * ratios)  # no point counts as exact
    places = to_minus_one_one(1.0 / np.log(keys), ends)
    coefficients = chebyshev.chebfit(places, ratios, 4, w=weights)
    return {"largest": int(keys[-1]), "inverse_log_n": ends} | pack(coefficients, 1e-4)


def poisson_arrivals() -> list[float]:
    """Return the first 65 arrivals of a Poisson process of rate 1."""
    gaps = np.random.default_rng(7).exponential(size=65)
    arrivals: list[float] = np.cumsum(gaps).round(4).tolist()
    return arrivals


def rows_of_sixteen() -> list[list[float]]:
    """Return rows of sixteen standard normal numbers, one row for each seed.

    They are dot products over √d: with a query of length √d those of random keys are normal with
    standard deviation √d, at every d.
    """
    drawn = (np.random.default_rng(seed).standard_normal(16) for seed in range(8))
    return [row.round(4).tolist() for row in drawn]


def front_page_data() -> dict[str, Any]:
    """Return a row of a trained head, and its model's loss against a factor of all logits.

    The head reads a sentence for the second time; the first `first` words are those of the first
    time.
    """
    words, logits, target = row_of_head()
    times, losses = verdicts.curve()
    octaves = np.log2(times)
    mean = losses.mean(axis=1)
    fine = np.linspace(octaves[0], octaves[-1], 33)
    rises = CubicSpline(octaves, mean - mean[times == 1.0])(fine)
    lengths = verdicts.LENGTHS_OF_LOSS
    return {
        "words": words,
        "logits": logits.round(3).tolist(),
        "meant": target,
        "first": words.index(words[0], 1),
        "octaves": {"from": octaves[0], "to": octaves[-1]},
        "losses": {n: rises[:, lengths.index(n)].round(3).tolist() for n in (128, 512, 2048)},
    }


def row_of_head() -> tuple[list[str], FloatArray, int]:
    """Return the tokens that a recorded head's row sees, their logits, and the target's index."""
    head = load("real_heads_shown").find(**shown.SHOWN[0].record_key)
    query, key = shown.unpack_vectors(head["queries"])[QUERY], shown.unpack_vectors(head["keys"])
    logits = head["scale"] * key[: QUERY + 1] @ query
    return head["tokens"][: QUERY + 1], logits, head["meant"][QUERY]


def policy_list() -> list[dict[str, Any]]:
    """Return the texts of the figures on each policy, and the name and constants of its rule."""
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


def to_minus_one_one(values: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """Return the values mapped linearly, the ends to −1 and 1."""
    low, high = ends
    return 2.0 * (values - low) / (high - low) - 1.0


def pack(coefficients: NDArray[np.floating[Any]], unit: float) -> dict[str, Any]:
    """Return coefficients as whole numbers of a unit, in a text that leaves out zeros."""
    whole = np.round(coefficients / unit).astype(np.int64).ravel()
    text = ",".join(str(number) if number else "" for number in whole.tolist())
    return {"shape": coefficients.shape, "unit": unit, "values": text}
