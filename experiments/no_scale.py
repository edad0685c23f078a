"""Decoders that do not divide, with and without QK-norm: what is read off their runs.

The sweeps no_scale*.toml describe them. Chapters: unscaled, qk_norm.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.records import runs

SIZES = (16, 64, 256)
"""Dimensions of a head; the width is 256 each time."""

WITH_NORM = ("no_scale_norm", "no_scale_norm_wider")


def outcomes(*sweeps: str) -> list[Any]:
    """Return the runs of several sweeps."""
    return [outcome for sweep in sweeps for outcome in runs(sweep)]


def curve(variant: str, *sweeps: str) -> NDArray[np.float64]:
    """Return the learning rates at which a variant was run, and its losses: shape (2, rates)."""
    recorded = outcomes(*sweeps)
    of_variant = {outcome.setting.variant: outcome.setting.config for outcome in recorded}
    losses = sorted(
        (outcome.setting.training.learning_rate, outcome.run.final_loss)
        for outcome in recorded
        if outcome.setting.config == of_variant[variant]
    )
    return np.transpose(losses)


def at_best(scale: str, d: int) -> list[Any]:
    """Return the runs of a scale at its best rate, one a seed."""
    return [one for one in runs("no_scale_seeds") if one.setting.variant == f"{scale}_{d}"]


def rise(scale: str, d: int, measure: str = "final_loss") -> NDArray[np.float64]:
    """Return the loss of a scale minus that of 1/√d, one a seed, each at its best rate."""
    ends, others = (
        [getattr(outcome.run, measure) for outcome in at_best(name, d)] for name in (scale, "root")
    )
    return np.subtract(ends, others)


def best_with_norm(scale: str, d: int) -> Any:
    """Return the run with QK-norm that ends lowest, of those of a scale; one seed."""
    own = (one for one in outcomes(*WITH_NORM) if one.setting.variant == f"norm_{scale}_{d}")
    return min(own, key=lambda one: float(one.run.final_loss))


def rise_with_norm(scale: str, d: int, measure: str = "final_loss") -> float:
    """Return the loss of a scale with QK-norm minus that of 1/√d, each at its best rate."""
    ends = (getattr(best_with_norm(name, d).run, measure) for name in (scale, "root"))
    return float(np.subtract(*ends))


def unseen(variant: str, d: int) -> NDArray[np.float64]:
    """Return the loss with QK-norm minus that of 1/√d, of the two seeds that chose no rate."""
    ends = {
        (one.setting.variant, one.setting.training.seed): one.run.final_loss
        for one in outcomes("no_scale_norm_seeds")
    }
    return np.array(
        [ends[f"norm_{variant}_{d}", seed] - ends[f"norm_root_{d}", seed] for seed in (1, 2)]
    )


def over_unseen(measure: str = "final_loss") -> NDArray[np.float64]:
    """Return by how much 1/d ends above 1/√d in heads of 256, of the five seeds 1 to 5.

    None of them chose the rate; the last three were run to test it.
    """
    ends = {
        (one.setting.variant, one.setting.training.seed): getattr(one.run, measure)
        for one in outcomes("no_scale_seeds", "no_scale_unseen")
    }
    return np.array([ends["over_256", seed] - ends["root_256", seed] for seed in range(1, 6)])


def as_people_train(d: int, measure: str = "final_loss") -> NDArray[np.float64]:
    """Return the loss of scale 1 minus that of 1/√d with warm-up and decay, one a seed."""
    ends, others = (
        [getattr(one.run, measure) for one in _people(name, d)] for name in ("one", "root")
    )
    return np.subtract(ends, others)


def _people(scale: str, d: int) -> list[Any]:
    return [one for one in runs("people_undivided") if one.setting.variant == f"{scale}_{d}"]


def spreads(scale: str, d: int) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """Return the recorded steps, and the spread of the logits over both layers there, by seed."""
    recorded = [outcome.run for outcome in at_best(scale, d)]
    squares = [np.square(run.spreads).mean(axis=1) for run in recorded]
    return recorded[0].recorded_at, np.sqrt(squares)
