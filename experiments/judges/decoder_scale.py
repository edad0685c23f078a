"""How the heads of decoders come to their scale: sizes, directions, scale gradients, weight decay.

A head's size is s = ‖W_q‖ ‖W_k‖, its direction α/s, with the α of its block; G is the sum over the
heads of ∂L/∂log t. The sweeps sizes_adam.toml, sizes_descent.toml and decay.toml have the
predictions in words and with what refutes them; `experiments.judges.judging` says what a part is.

Chapters: learning_scale, predictions.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from experiments.judges.judging import OPEN, Part, Values, above, between, decided, limits, number
from experiments.judges.rates import best_log2_rates
from experiments.records import of_variant, runs

PLATEAU = 2.3
"""A training loss below it is no longer that of a model of single bytes, in nats a byte."""
DECAYS = {"decay_0": 0.0, "decay_01": 0.1, "decay_03": 0.3, "decay_1": 1.0}


def of_start(sweep: str, start: str) -> list[Any]:
    """Return the runs of a variant, by seed."""
    return [run for _, run in of_variant(sweep, start)]


def left_plateau(sweep: str, start: str) -> Values:
    """Return the step at which each run leaves the plateau; the last step where it does not."""
    training: Any = runs(sweep)[0].setting.training
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


def _doubling_part(at: int, sweep: str, start: str, *, direction: bool) -> Part:
    shares = by_direction(sweep, start)
    word = "direction" if direction else "size"
    values = shares if direction else 1.0 - shares
    part = number(at, f"from {start[6:]}, share of {word}, {len(shares)} runs", values, "above 0.5")
    return part if len(shares) >= 3 else part._replace(verdict=OPEN)


def judge_sizes_adam() -> Iterator[Part]:
    """Yield what was predicted of Adam."""
    name = "sizes_adam"
    yield _doubling_part(1, name, "start_1", direction=True)
    yield _doubling_part(2, name, "start_256th", direction=False)
    left = {start: left_plateau(name, f"start_{start}") for start in ("256th", "16th", "1", "4")}
    yield number(3, "plateau, from 1/256 over from 1", left["256th"] / left["1"], "at most 2")
    yield number(4, "plateau, from 1/16 over from 1", left["16th"] / left["1"], "at most 1.3")
    yield number(4, "plateau, from 4 less from 1, steps", left["4"] - left["1"], "above 0")
    ends = [
        float(np.mean([run.spreads[-1, 1] for run in of_start(name, f"start_{start}")]))
        for start in left
    ]
    yield number(5, "α at the end, largest over smallest", max(ends) / min(ends), "below 3")
    ranks = [rank_of_sizes(run) for run in of_start(name, "start_1")]
    yield number(6, "rank correlation, median run", float(np.median(ranks)), "below 0.5")


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
    for setting, run in of_variant("sizes_descent", start):
        risen, expected = rises(run, setting.training.learning_rate)
        shares.append(1.0 - np.square(risen - expected).sum() / np.square(risen).sum())
    return np.array(shares)


def judge_sizes_descent() -> Iterator[Part]:
    """Yield what was predicted of gradient descent."""
    name = "sizes_descent"
    for start in ("start_16th", "start_1", "start_4"):
        yield number(1, f"from {start[6:]}, explained", explained(start), "at least 0.8")
    changes = [run.norms[-1] - run.norms[0] for run in of_start(name, "start_1")]
    apart = np.array([_rms(np.subtract(*change.swapaxes(0, 1))) for change in changes])
    both = np.array([_rms(change.sum(axis=1)) for change in changes])
    yield number(2, "change of the difference over that of the sum", apart / both, "below 0.2")
    yield _doubling_part(3, name, "start_1", direction=True)
    left = {start: left_plateau(name, f"start_{start}") for start in ("16th", "1")}
    yield between(4, "plateau, from 1/16 over from 1", left["16th"] / left["1"], 1.2, 5.0)
    sums = []
    for run in [*of_start(name, "start_16th"), *of_start(name, "start_1")]:
        last = int(np.argmax(run.spreads.mean(axis=1)))  # the record of the largest α
        sums.append(float(run.slopes[: last + 1].sum()))
    what = "largest sum of a run while α rises"
    yield decided(5, what, "below 0", max(sums), max(sums) < 0.0)


def _rms(values: Values) -> float:
    return float(np.sqrt(np.square(values).mean()))


def judge_sizes_descent_rates() -> Iterator[Part]:
    """Yield what was predicted of its rates, in powers of 2."""
    for start, rate in best_log2_rates("sizes_descent_rates").items():
        yield between(1, f"from {start[6:]}, log₂ of the best rate", rate, -2.0, -1.0)


def total_size(variant: str) -> Values:
    """Return Σ ‖W_q‖² + ‖W_k‖² over the heads at the end, by seed."""
    return np.array([run.norms[-1].sum() for run in of_start("decay", variant)])


def slope_on(variant: str, held_back: bool = False) -> Values:
    """Return G on training text, or on text that was held back, by seed."""
    samples = [run.scale_samples[int(held_back)] for run in of_start("decay", variant)]
    return np.array([np.nanmean(sample, axis=0).sum() for sample in samples])


def judge_decay() -> Iterator[Part]:
    """Yield what was predicted of AdamW's weight decay."""
    sizes = {variant: total_size(variant) for variant in DECAYS}
    for before, after in pairwise(DECAYS):
        least = float((sizes[before] - sizes[after]).min())
        what = f"least fall of the sizes from {DECAYS[before]:g} to {DECAYS[after]:g}"
        yield number(1, what, least, "above 0")
    yield number(1, "sizes at .3 over 0", sizes["decay_03"] / sizes["decay_0"], "below 0.6667")
    alphas = {v: [run.spreads[-1].mean() for run in of_start("decay", v)] for v in DECAYS}
    ratio = np.divide(alphas["decay_03"], alphas["decay_0"])
    yield number(2, "α at .3 over 0", ratio, "at least 0.7")
    for variant in ("decay_03", "decay_1"):
        yield above(3, f"−G, training text, decay {DECAYS[variant]:g}", -slope_on(variant))
    yield above(4, "−G at 1 less −G at 0", slope_on("decay_0") - slope_on("decay_1"))
    asked = limits(-slope_on("decay_1"))[0] > 0.0
    pull = np.array([run.norms[-1, :, 0].sum() for run in of_start("decay", "decay_1")])
    part = number(5, "−G over λ Σ‖W_q‖² at 1", -slope_on("decay_1") / pull, "below 0.5")
    yield part if asked else part._replace(expected="not asked where 3 is open", verdict=OPEN)
    apart = {v: slope_on(v, held_back=True) - slope_on(v) for v in ("decay_0", "decay_1")}
    yield above(6, "G held back less training, decay 0", apart["decay_0"])
    yield number(6, "the same at 0 less at 1", apart["decay_0"] - apart["decay_1"], "above 0")
    yield between(7, "G on training text, decay 0", slope_on("decay_0"), -0.02, 0.02)
