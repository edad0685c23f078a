"""Measure the rows of heads whose needle is known, at one length or at several.

The measures are the gap g, the variance of the other logits and their mean under softmax, the
needle's weight, the loss, the multiplier t* of all logits at which the loss is least, and the loss
under the rules in dispute, each over what it is at the training length n₀.

Chapter: length_extrapolation.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlib._checking import FloatArray
from experiments.lab.model import BYTES, named_law

SLACK = 0.1
"""In nats: `least` is the smallest multiplier whose loss is above the best by no more."""
MAX_MULTIPLIER = 64.0
"""t* is looked for up to it and down to its inverse; beyond an end it is that end."""
LAWS = ("root_log", "ssmax", "qwen", "llama_4", "yarn", "infoscale")
"""The laws in dispute, beside that of no law: log n is "ssmax", and "qwen" from n₀ on."""


def multipliers(n: int, length: int, d: int) -> dict[str, float]:
    """Return each of `LAWS` at n keys over the same at `length`, for heads of d dimensions."""
    rules = {law: named_law(law, length) for law in LAWS}
    return {law: float(rule.scale(n, d) / rule.scale(length, d)) for law, rule in rules.items()}


class Trial(NamedTuple):
    """A test at n keys or tokens."""

    n: int
    logits: FloatArray  # (rows, heads, keys)
    needle: NDArray[np.int64]  # (rows,)
    token: NDArray[np.int64]  # (rows,): of the needle; 0 where there are none
    said: dict[str, Any]  # of a Transformer: `answer_loss` and `accuracy` of what it says, and
    # `answers`, that loss under `LAWS` in all heads, where it has no policy of its own


def measure_trials(trials: Iterable[Trial], length: int, d: int) -> list[dict[str, Any]]:
    """Return the measures of each trial, the first of them at n₀.

    They are those of `measure_rows` and `length_predictor`, and the answers of a Transformer; of
    several heads, in `heads`, the t* of each that has rows, on these. A model with a policy or a
    law of its own is measured at that, and its `laws` are none.
    """
    tests: list[dict[str, Any]] = []
    for n, heads, needle, token, results in trials:
        row = np.arange(len(needle))
        if not tests:
            shifted = heads - heads.max(axis=-1, keepdims=True)
            weights = np.exp(shifted[row, :, needle]) / np.exp(shifted).sum(axis=-1)
            of_token = [np.bincount(token, weight, minlength=BYTES) for weight in weights.T]
            head_of = np.argmax(of_token, axis=0)
        logits = heads[row, head_of[token]]
        if not tests:
            predict = length_predictor(logits, needle)
        own_law = bool(results) and not results["answers"]
        numbers = measure_rows(logits, needle, {} if own_law else multipliers(n, length, d))
        tests.append({**numbers, **predict(logits.shape[1]), **results, "n": n})
        if heads.shape[1] > 1:
            masks = [head_of[token] == head for head in np.unique(head_of[token])]
            best = [measure_rows(logits[mask], needle[mask])["best"] for mask in masks]
            tests[-1]["heads"] = [{"best": multiplier} for multiplier in best]
    return tests


def length_predictor(
    logits: FloatArray, needle: NDArray[np.int64]
) -> Callable[[int], dict[str, float]]:
    """Return a function of n that predicts weight and loss there from rows of one length.

    No parameter is fitted. With the gap g of each row and κ(1) of all others, `annealed_loss` is
    the mean of log(1 + (n − 1)e^{κ − g}), which is too large near freezing. `predicted_weight` and
    `predicted_loss` are the integrals of `attnlib.retrieval`, of the logits themselves in place of
    a law: ∫ A φ^{n−1} du and ∫ φ_*(1 − φ^{n−1}) du. Chapter: length_extrapolation.
    """
    row, gaps = np.arange(len(logits)), _gaps(logits, needle)
    others = np.delete(
        (logits - (logits[row, needle] - gaps)[:, None]).ravel(), row * logits.shape[1] + needle
    )
    top = others.max()
    kappa = float(np.log(np.exp(others - top).mean()) + top)
    # From where no Gumbel variable is below to where none of 2²⁰ is above.
    u = np.arange(min(gaps.min(), others.min()) - 4.0, max(gaps.max(), top) + 40.0, 0.25)
    counts, edges = np.histogram(others, bins=4096)
    middle = (edges[1:] + edges[:-1]) / 2.0
    log_phi = np.log(np.exp(-np.exp(middle - u[:, None])) @ counts + 1e-300) - np.log(others.size)
    chance = np.exp(gaps - u[:, None])
    needle_first, needle_below = (chance * np.exp(-chance)).mean(1), np.exp(-chance).mean(1)

    def predict(n: int) -> dict[str, float]:
        below = np.exp((n - 1.0) * log_phi)
        return {
            "annealed_loss": float(np.logaddexp(0.0, np.log(n - 1.0) + kappa - gaps).mean()),
            "predicted_weight": float((needle_first * below).sum() * 0.25),
            "predicted_loss": float((needle_below * (1.0 - below)).sum() * 0.25),
        }

    return predict


def _gaps(logits: FloatArray, needle: NDArray[np.int64]) -> FloatArray:
    """Return the needle's logit less the mean of the others, (rows,)."""
    n = logits.shape[1]
    target = logits[np.arange(len(logits)), needle].astype(np.float64)
    others: FloatArray = logits.sum(axis=1, dtype=np.float64) - target
    gaps: FloatArray = target - others / (n - 1.0)
    return gaps


def measure_rows(
    logits: FloatArray, needle: NDArray[np.int64], laws: dict[str, float] | None = None
) -> dict[str, Any]:
    """Return measures of rows: `logits`, shape (rows, n), and the places of their `needle`.

    Means over the rows of: `gap`, the needle's logit less the mean of the others; `variance`, of
    these; `weight`, P; `loss`, −log P. `slope` is κ'(1), κ(t) = log E e^{tℓ} of the others of all
    rows together, each about the mean of its row. `best` is the multiplier t* ≥ 0 of all logits
    that makes the loss least, to 1e-6 of it; `least` the smallest one whose loss is above that by
    0.1 at most; `laws` the loss under multipliers with names. Chapter: length_extrapolation.

    >>> row = measure_rows(np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 2.0]]), np.array([0, 1]))
    >>> row["gap"], row["variance"], round(row["weight"], 3)
    (1.5, 1.0, 0.628)
    """
    number, n = logits.shape
    row = np.arange(number)
    below = logits - logits.max(axis=1, keepdims=True)
    target = below[row, needle].astype(np.float64)
    losses = _losses(below, target, 1.0)
    gaps = _gaps(logits, needle)
    mean = logits[row, needle] - gaps
    others = logits - mean[:, None].astype(logits.dtype)
    others[row, needle] = 0.0
    squares = np.square(others).sum(axis=1, dtype=np.float64) / max(1, n - 2)
    weights = np.exp(others - float(others.max()))
    weights[row, needle] = 0.0
    slope = (weights * others).sum(dtype=np.float64) / weights.sum(dtype=np.float64)
    return {
        "n": n,
        "gap": float(gaps.mean()),
        "variance": float(squares.mean()),
        "slope": float(slope),
        "weight": float(np.exp(-losses).mean()),
        "loss": float(losses.mean()),
        **_best_multiplier(below, target),
        "laws": {name: float(_losses(below, target, t).mean()) for name, t in (laws or {}).items()},
    }


def _losses(below: FloatArray, target: FloatArray, t: float) -> FloatArray:
    """Return −log P of each row under a multiplier t, from logits less the row's largest."""
    sums = np.exp(t * below).sum(axis=1, dtype=np.float64)
    losses: FloatArray = np.log(sums) - t * target
    return losses


def _best_multiplier(below: FloatArray, target: FloatArray) -> dict[str, float]:
    """Return t* as `best`, and `least`, the smallest multiplier within `SLACK` of its loss."""
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    def slope(log_t: float) -> float:
        """Return ∂L/∂t of the mean loss."""
        weights = np.exp(np.exp(log_t) * below)
        sums = weights.sum(axis=1, dtype=np.float64)
        weights *= below
        return float((weights.sum(axis=1, dtype=np.float64) / sums - target).mean())

    end, lowest = float(np.log(MAX_MULTIPLIER)), 1.0 / MAX_MULTIPLIER
    if slope(end) <= 0.0:
        best = MAX_MULTIPLIER
    elif slope(-end) >= 0.0:
        best = lowest
    else:
        best = float(np.exp(brentq(slope, -end, end, xtol=1e-6)))
    best_loss = float(_losses(below, target, best).mean())

    def excess(t: float) -> float:
        """Return the loss above the best one, less `SLACK`."""
        return float(_losses(below, target, t).mean()) - best_loss - SLACK

    least = lowest if excess(lowest) <= 0.0 else float(brentq(excess, lowest, best, xtol=1e-6))
    return {"best": best, "least": least}
