"""How the heads of decoders come to their scale: sizes, directions, scale gradients, weight decay.

A head's size is s = ‖W_q‖ ‖W_k‖, its direction α/s, with the α of its block; G is the sum over the
heads of ∂L/∂log t. A start is a variant, "start_16th", say, whose logits begin at 1/16 of the usual
ones. The sweeps sizes_adam.toml, sizes_descent.toml and decay.toml have the predictions in words.

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
"""AdamW's weight decay λ by variant."""


def variant_runs(sweep: str, variant: str) -> list[Any]:
    """Return the runs of a variant, by seed."""
    return [run for _, run in of_variant(sweep, variant)]


def plateau_steps(sweep: str, start: str) -> Values:
    """Return the step at which each run leaves the plateau, (seeds,); where none does, the last."""
    training: Any = runs(sweep)[0].setting.training
    starts = np.append(training.mean_starts(training.steps), training.steps)
    below = [np.append(run.losses < PLATEAU, True) for run in variant_runs(sweep, start)]
    return np.array([float(starts[int(np.argmax(row))]) for row in below])


def log_sizes(run: Any, layer: int = 1) -> Values:
    """Return the mean of log s over the heads of a layer, (records,)."""
    sizes: Values = np.log(run.norms[:, layer]).sum(axis=1).mean(axis=-1) / 2.0
    return sizes


def direction_shares(sweep: str, start: str, layer: int = 1) -> Values:
    """Return the share of direction, not of size, in the first doubling of a layer's α.

    The share is in log α; one for each run whose α doubles.
    """
    shares = []
    for run in variant_runs(sweep, start):
        log_alpha = np.log(run.spreads[:, layer])
        doubled = log_alpha >= log_alpha[0] + np.log(2.0)
        if doubled.any():
            at = int(np.argmax(doubled))
            size = log_sizes(run, layer)
            shares.append(1.0 - (size[at] - size[0]) / (log_alpha[at] - log_alpha[0]))
    return np.array(shares)


def _doubling_part(at: int, sweep: str, start: str, *, direction: bool) -> Part:
    """Return a part: direction, or size, has more than half of the doubling; open below 3 runs."""
    shares = direction_shares(sweep, start)
    word = "direction" if direction else "size"
    values = shares if direction else 1.0 - shares
    part = number(at, f"from {start[6:]}, share of {word}, {len(shares)} runs", values, "above 0.5")
    return part if len(shares) >= 3 else part._replace(verdict=OPEN)


def judge_sizes_adam() -> Iterator[Part]:
    """Yield the parts of sizes_adam.toml: Adam."""
    name = "sizes_adam"
    yield _doubling_part(1, name, "start_1", direction=True)
    yield _doubling_part(2, name, "start_256th", direction=False)
    left = {start: plateau_steps(name, f"start_{start}") for start in ("256th", "16th", "1", "4")}
    yield number(3, "plateau, from 1/256 over from 1", left["256th"] / left["1"], "at most 2")
    yield number(4, "plateau, from 1/16 over from 1", left["16th"] / left["1"], "at most 1.3")
    yield number(4, "plateau, from 4 less from 1, steps", left["4"] - left["1"], "above 0")
    ends = [
        float(np.mean([run.spreads[-1, 1] for run in variant_runs(name, f"start_{start}")]))
        for start in left
    ]
    yield number(5, "α at the end, largest over smallest", max(ends) / min(ends), "below 3")
    ranks = [size_rank_correlation(run) for run in variant_runs(name, "start_1")]
    yield number(6, "rank correlation, median run", float(np.median(ranks)), "below 0.5")


def size_rank_correlation(run: Any) -> float:
    """Return the rank correlation of the rises of the squared norms with −∂L/∂log t in a run."""
    rises = np.diff(run.norms.sum(axis=2), axis=0)
    return float(spearmanr(rises.ravel(), -run.slopes[:-1].ravel()).statistic)


def rises(run: Any, rate: float) -> tuple[Values, Values]:
    """Return the rises of ‖W_q‖² and ‖W_k‖² from record to record, and −2 · rate · Σ ∂L/∂log t.

    Both have the shape (records − 1, depth, 2, heads).
    """
    steps = np.diff(run.recorded_at)[:, None, None, None]
    expected = -2.0 * rate * steps * run.slopes[:-1, :, None]
    measured = np.diff(run.norms, axis=0)
    return measured, np.broadcast_to(expected, measured.shape)


def explained_shares(start: str) -> Values:
    """Return 1 − Σ (rise − expected)²/Σ rise² of each run by gradient descent, (seeds,)."""
    shares = []
    for setting, run in of_variant("sizes_descent", start):
        measured, expected = rises(run, setting.training.learning_rate)
        shares.append(1.0 - np.square(measured - expected).sum() / np.square(measured).sum())
    return np.array(shares)


def judge_sizes_descent() -> Iterator[Part]:
    """Yield the parts of sizes_descent.toml: gradient descent."""
    name = "sizes_descent"
    for start in ("start_16th", "start_1", "start_4"):
        yield number(1, f"from {start[6:]}, explained", explained_shares(start), "at least 0.8")
    changes = [run.norms[-1] - run.norms[0] for run in variant_runs(name, "start_1")]
    apart = np.array([_rms(np.subtract(*change.swapaxes(0, 1))) for change in changes])
    both = np.array([_rms(change.sum(axis=1)) for change in changes])
    yield number(2, "change of the difference over that of the sum", apart / both, "below 0.2")
    yield _doubling_part(3, name, "start_1", direction=True)
    left = {start: plateau_steps(name, f"start_{start}") for start in ("16th", "1")}
    yield between(4, "plateau, from 1/16 over from 1", left["16th"] / left["1"], 1.2, 5.0)
    sums = []
    for run in [*variant_runs(name, "start_16th"), *variant_runs(name, "start_1")]:
        last = int(np.argmax(run.spreads.mean(axis=1)))  # the record of the largest α
        sums.append(float(run.slopes[: last + 1].sum()))
    what = "largest sum of a run while α rises"
    yield decided(5, what, "below 0", max(sums), max(sums) < 0.0)


def _rms(values: Values) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.square(values).mean()))


def judge_sizes_descent_rates() -> Iterator[Part]:
    """Yield the parts of sizes_descent_rates.toml: its best rates, in powers of 2."""
    for start, rate in best_log2_rates("sizes_descent_rates").items():
        yield between(1, f"from {start[6:]}, log₂ of the best rate", rate, -2.0, -1.0)


def total_size(variant: str) -> Values:
    """Return Σ ‖W_q‖² + ‖W_k‖² over the heads at the end, (seeds,)."""
    return np.array([run.norms[-1].sum() for run in variant_runs("decay", variant)])


def scale_gradient(variant: str, held_back: bool = False) -> Values:
    """Return G of the trained models on training text, or on text held back, (seeds,)."""
    samples = [run.scale_samples[int(held_back)] for run in variant_runs("decay", variant)]
    return np.array([np.nanmean(sample, axis=0).sum() for sample in samples])


def judge_decay() -> Iterator[Part]:
    """Yield the parts of decay.toml: AdamW's weight decay."""
    sizes = {variant: total_size(variant) for variant in DECAYS}
    for before, after in pairwise(DECAYS):
        least = float((sizes[before] - sizes[after]).min())
        what = f"least fall of the sizes from {DECAYS[before]:g} to {DECAYS[after]:g}"
        yield number(1, what, least, "above 0")
    yield number(1, "sizes at .3 over 0", sizes["decay_03"] / sizes["decay_0"], "below 0.6667")
    alphas = {v: [run.spreads[-1].mean() for run in variant_runs("decay", v)] for v in DECAYS}
    ratio = np.divide(alphas["decay_03"], alphas["decay_0"])
    yield number(2, "α at .3 over 0", ratio, "at least 0.7")
    for variant in ("decay_03", "decay_1"):
        yield above(3, f"−G, training text, decay {DECAYS[variant]:g}", -scale_gradient(variant))
    yield above(4, "−G at 1 less −G at 0", scale_gradient("decay_0") - scale_gradient("decay_1"))
    gradient_is_below_0 = limits(-scale_gradient("decay_1"))[0] > 0.0
    pull = np.array([run.norms[-1, :, 0].sum() for run in variant_runs("decay", "decay_1")])
    part = number(5, "−G over λ Σ‖W_q‖² at 1", -scale_gradient("decay_1") / pull, "below 0.5")
    yield (
        part
        if gradient_is_below_0
        else part._replace(expected="not asked where 3 is open", verdict=OPEN)
    )
    apart = {
        v: scale_gradient(v, held_back=True) - scale_gradient(v) for v in ("decay_0", "decay_1")
    }
    yield above(6, "G held back less training, decay 0", apart["decay_0"])
    yield number(6, "the same at 0 less at 1", apart["decay_0"] - apart["decay_1"], "above 0")
    yield between(7, "G on training text, decay 0", scale_gradient("decay_0"), -0.02, 0.02)
