"""How the heads of decoders come to their scale: sizes, directions, scale gradients, weight decay.

A head's size is s = ‖W_q‖ ‖W_k‖, its direction α/s, with the α of its block; G is the sum over the
heads of ∂L/∂log t. The runs are those of sizes_adam.toml, sizes_descent.toml and decay.toml.

Chapter: learning_scale.
"""

from typing import Any

import numpy as np
from scipy.stats import spearmanr

from experiments.judging import Values
from experiments.records import runs

PLATEAU = 2.3
"""A training loss below it is no longer that of a model of single bytes, in nats a byte."""
DECAYS = {"decay_0": 0.0, "decay_01": 0.1, "decay_03": 0.3, "decay_1": 1.0}


def of_start(sweep: str, start: str) -> list[Any]:
    """Return the runs of a variant, by seed."""
    return [outcome.run for outcome in runs(sweep) if outcome.setting.variant == start]


def steps_of(sweep: str) -> Any:
    """Return how the runs of a sweep are trained: their steps, batches and records."""
    return runs(sweep)[0].setting.training


def left_plateau(sweep: str, start: str) -> Values:
    """Return the step at which each run leaves the plateau; the last step where it does not."""
    training = steps_of(sweep)
    starts = np.append(training.means(training.steps), training.steps)
    below = [np.append(run.losses < PLATEAU, True) for run in of_start(sweep, start)]
    return np.array([float(starts[int(np.argmax(row))]) for row in below])


def log_sizes(run: Any, layer: int = 1) -> Values:
    """Return the mean over a layer's heads of log s, (records,)."""
    sizes: Values = np.log(run.norms[:, layer]).sum(axis=1).mean(axis=-1) / 2.0
    return sizes


def by_direction(sweep: str, start: str, layer: int = 1) -> Values:
    """Return the share of direction in the first doubling of α, of each run whose α doubles."""
    shares = []
    for run in of_start(sweep, start):
        log_alpha = np.log(run.spreads[:, layer])
        doubled = log_alpha >= log_alpha[0] + np.log(2.0)
        if doubled.any():
            at = int(np.argmax(doubled))
            size = log_sizes(run, layer)
            shares.append(1.0 - (size[at] - size[0]) / (log_alpha[at] - log_alpha[0]))
    return np.array(shares)


def rank_of_sizes(run: Any) -> float:
    """Return the rank correlation of what the squared norms gain with −∂L/∂log t, of a run."""
    rises = np.diff(run.norms.sum(axis=2), axis=0)
    return float(spearmanr(rises.ravel(), -run.slopes[:-1].ravel()).statistic)


def rises(run: Any, rate: float) -> tuple[Values, Values]:
    """Return what ‖W_q‖² and ‖W_k‖² gain from record to record, and −2 · rate · Σ ∂L/∂log t."""
    steps = np.diff(run.recorded_at)[:, None, None, None]
    expected = -2.0 * rate * steps * run.slopes[:-1, :, None]
    risen = np.diff(run.norms, axis=0)
    return risen, np.broadcast_to(expected, risen.shape)


def explained(start: str) -> Values:
    """Return 1 − Σ (rise − expected)²/Σ rise² of each run by gradient descent."""
    shares = []
    for outcome in runs("sizes_descent"):
        if outcome.setting.variant == start:
            risen, expected = rises(outcome.run, outcome.setting.training.learning_rate)
            shares.append(1.0 - np.square(risen - expected).sum() / np.square(risen).sum())
    return np.array(shares)


def total_size(variant: str) -> Values:
    """Return Σ ‖W_q‖² + ‖W_k‖² over the heads at the end, by seed."""
    return np.array([run.norms[-1].sum() for run in of_start("decay", variant)])


def slope_on(variant: str, held_back: bool = False) -> Values:
    """Return G on training text, or on text that was held back, by seed."""
    samples = [run.scale_samples[int(held_back)] for run in of_start("decay", variant)]
    return np.array([np.nanmean(sample, axis=0).sum() for sample in samples])
