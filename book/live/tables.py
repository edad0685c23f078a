"""The numbers that the live figures need, from `attnlib` and from records."""

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
    """Return all tables by name; some seconds."""
    return {
        "limits": {"n": KEYS, "d": DIMENSIONS},
        "cosine": cosine_table(),
        "parting": parting_table(),
        "criteria": {
            "list": meanings(),
            "entropy": entropy(),
            "typical": typical(load("typical_optima")),
        },
        "arrivals": arrivals(),
        "sixteen": sixteen(),
        "face": face(),
        "policies": policies(),
    }


def cosine_table() -> dict[str, Any]:
    """Return log of the best α of the approximation for cosines over that for normal scores.

    By 1/d and √log n, both in standard deviations of a score.
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
    inverse = at(np.array([0.0, *(1.0 / d for d in COSINE_DIMENSIONS)]), INVERSE_DIMENSION)
    by_dimension = chebyshev.chebfit(inverse, np.array(values), inverse.size - 1)
    coefficients = chebyshev.chebfit(places, by_dimension.T, COSINE_KEYS - 1).T
    return {"inverse_d": INVERSE_DIMENSION, "root_log_n": roots} | packed(coefficients, 1e-7)


def parting_table() -> dict[str, Any]:
    """Return log(g/α) of the typical row of normal scores by α, g its geometric mean."""
    largest, places = 9.0, chebyshev.chebpts1(16)
    alpha = largest * (places + 1.0) / 2.0
    gradient, _ = typical_rows.gradient(Normal(), alpha, PARTING_KEYS, rows=8000)
    coefficients = chebyshev.chebfit(places, np.log(gradient / alpha), places.size - 1)
    return {"n": PARTING_KEYS, "alpha": largest} | packed(coefficients, 1e-5)


def meanings() -> list[dict[str, str]]:
    """Return names and meanings of the criteria."""
    texts = {
        entry.name: entry.meaning for entry in criteria.all_criteria(Normal(), KEYS[0])
    } | MEANINGS
    order = "variance", "annealed", "typical", "freezing", "entropy", "finding", "least"
    return [{"name": name, "meaning": texts[name]} for name in order]


def entropy() -> dict[str, Any]:
    """Return the entropy that the criterion holds, and log[α²/(log n − held)] by log n − held."""
    held = float(exact.entropy(Normal(), 1.0, criteria.REFERENCE_KEYS))
    ends = 0.0, float(np.log(KEYS[1]) - held)
    angles = np.pi * np.arange(10) / 9
    near = np.exp(held + ends[1] * (1.0 - np.cos(angles)) / 2.0)
    keys = np.maximum(np.round(near), np.ceil(near[0]))  # below there is none
    excess = np.log(keys) - held
    alpha = [criteria.same_entropy(Normal(), int(n)) for n in keys]
    values = np.log(np.array(alpha, dtype=float) ** 2 / excess)
    coefficients = chebyshev.chebfit(at(excess, ends), values, len(keys) - 1)
    return {"held": held, "excess": ends} | packed(coefficients, 1e-5)


def typical(recorded: Record) -> dict[str, Any]:
    """Return the typical row's best α over that of freezing, by 1/log n.

    A polynomial of low degree through simulated points: it averages over their errors.
    """
    points = {key["n"]: [best["value"], best["standard_error"]] for key, best in recorded.entries}
    for n in (2, 3, 4, 6, 10):  # which the record does not have
        best = typical_rows.best_alpha(Normal(), n, rows=20_000)
        points[n] = [float(number / freezing.critical_alpha(n)) for number in best]
    keys = np.array(list(points))
    ratio, error = np.array(list(map(tuple, points.values()))).T
    ends = 1.0 / float(np.log(keys.max())), 1.0 / float(np.log(keys.min()))
    weights = 1.0 / np.hypot(error, 0.002 * ratio)  # no point counts as exact
    places = at(1.0 / np.log(keys), ends)
    coefficients = chebyshev.chebfit(places, ratio, 4, w=weights)
    return {"largest": int(keys[-1]), "inverse_log_n": ends} | packed(coefficients, 1e-4)


def arrivals() -> list[float]:
    """Return the arrivals of a Poisson process."""
    gaps = np.random.default_rng(7).exponential(size=65)
    arrivals: list[float] = np.cumsum(gaps).round(4).tolist()
    return arrivals


def sixteen() -> list[list[float]]:
    """Return rows of sixteen standard normal numbers, one row for each seed.

    They are dot products over √d: with a query of length √d those of random keys are normal with
    standard deviation √d, at every d.
    """
    drawn = (np.random.default_rng(seed).standard_normal(16) for seed in range(8))
    return [row.round(4).tolist() for row in drawn]


def face() -> dict[str, Any]:
    """Return a row of a trained head, and its model's loss against a factor of all logits.

    The head reads a sentence for the second time; `first` words are those of the first time.
    """
    words, logits, target = row_of_head()
    times, losses = verdicts.curve()
    octaves = np.log2(times)
    mean = losses.mean(axis=1)
    fine = np.linspace(octaves[0], octaves[-1], 33)
    rise = CubicSpline(octaves, mean - mean[times == 1.0])(fine)
    lengths = verdicts.LENGTHS_OF_LOSS
    return {
        "words": words,
        "logits": logits.round(3).tolist(),
        "meant": target,
        "first": words.index(words[0], 1),
        "octaves": {"from": octaves[0], "to": octaves[-1]},
        "losses": {n: rise[:, lengths.index(n)].round(3).tolist() for n in (128, 512, 2048)},
    }


def row_of_head() -> tuple[list[str], FloatArray, int]:
    """Return the tokens that a row of a recorded head sees, their logits, and which is meant."""
    head = load("real_heads_shown").find(**shown.SHOWN[0].at)
    query, key = shown.unpacked(head["queries"])[QUERY], shown.unpacked(head["keys"])
    logits = head["scale"] * key[: QUERY + 1] @ query
    return head["tokens"][: QUERY + 1], logits, head["meant"][QUERY]


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


def at(values: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """Return where values lie between two ends, from −1 to 1."""
    low, high = ends
    return 2.0 * (values - low) / (high - low) - 1.0


def packed(coefficients: NDArray[np.floating[Any]], unit: float) -> dict[str, Any]:
    """Return coefficients as whole numbers of a unit, as text in which zeros are left out."""
    whole = np.round(coefficients / unit).astype(np.int64).ravel()
    text = ",".join(str(number) if number else "" for number in whole.tolist())
    return {"shape": coefficients.shape, "unit": unit, "values": text}
