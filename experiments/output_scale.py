"""Record the scale of attention's output and of its gradients at initialisation, by simulation.

    python -m experiments.output_scale

takes a few minutes of one core, and goes on where it was stopped. Next to each measured number
stand its standard error and the exact one.
"""

from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch

from attnlib import exact, rows
from attnlib.checking import FloatArray
from attnlib.sampling import sample
from attnlib.scores import DotProduct, Normal
from experiments.records import Work, recorded

SEED = 30
"""Of the first entry; the others have the next numbers."""

POWERS = tuple(4**k for k in range(1, 9))
"""Numbers of keys of rows of normal scores."""

HEADS = (
    # keys, dimension, α, causal, share of the heads
    (64, 64, 1.0, False, 1.0),
    (256, 64, 1.0, False, 4.0),
    (1024, 64, 1.0, False, 0.125),
    (256, 16, 1.0, False, 0.5),
    (256, 64, 2.0, False, 0.5),
    (256, 64, 0.125, False, 0.5),
    (256, 64, 1.0, True, 1.0),
    (1024, 64, 1.0, True, 0.125),
)
"""Heads of attention whose outputs and gradients are measured; α = ⅛ is the scale 1/d at d = 64."""

MOST_ROWS = 2**20

NOTE_HEADS = 1024
"""In each run of the source's own experiment: 512 sequences, 2 heads."""

HEADS_AT_A_TIME = 16

Measured = dict[str, float]


def work(scores: int, heads: int) -> Work:
    """Yield what each entry is of, and what computes it, from a seed of its own.

    `scores` are drawn at each n, and `heads` of attention, times a share.
    """
    seeds = count(SEED)
    for n in POWERS:
        yield {"of": "lengths", "n": n}, partial(measure, n, scores, next(seeds))
    for n, d, alpha, causal, share in HEADS:
        wanted = max(2, round(heads * share))
        compute = partial(heads_of_attention, n, d, alpha, causal=causal, heads=wanted)
        at = {"of": "heads", "n": n, "d": d, "alpha": alpha, "causal": causal}
        yield at, partial(compute, seed=next(seeds))


def measure(n: int, budget: int, seed: int) -> dict[str, Any]:
    """Return the std of the output at α = 1, measured on the weights of rows, and computed."""

    def statistic(scores: FloatArray) -> FloatArray:
        return rows.collision_probability(rows.softmax(scores, 1.0))

    drawn = min(max(budget // n, 2), MOST_ROWS)
    found = sample(Normal(), n, statistic, rows=drawn, seed=seed).mean()
    computed = float(exact.output_std(Normal(), 1.0, n))
    weights = root(float(found.value), float(found.standard_error))
    return {"rows": drawn, "weights": weights, "exact": computed}


def heads_of_attention(
    n: int, d: int, alpha: float, *, causal: bool, heads: int, seed: int
) -> dict[str, Any]:
    """Return the rms of outputs and gradients of whole heads, measured and computed."""
    generator = torch.Generator().manual_seed(seed)
    starts = range(0, heads, HEADS_AT_A_TIME)
    parts = [
        one_batch(generator, n, d, alpha, causal, min(HEADS_AT_A_TIME, heads - start))
        for start in starts
    ]
    squares = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    seen = np.arange(1, n + 1) if causal else np.array([n])
    stds = {
        "output": exact.output_std(DotProduct(d), alpha, seen),
        **exact.backward_std(d, alpha, seen)._asdict(),
    }
    result: dict[str, Any] = {"heads": heads}
    for name, values in squares.items():
        computed = float(np.sqrt(np.square(stds[name]).mean()))
        result[name] = {"measured": over_heads(values.mean(axis=1)), "exact": computed}
    runs = squares["output"].mean(axis=1)[: heads // NOTE_HEADS * NOTE_HEADS]
    of_runs = runs.reshape(-1, NOTE_HEADS).mean(axis=1)
    return {**result, "std_in_runs_of_1024_heads": np.sqrt(of_runs).tolist()}


def one_batch(
    generator: torch.Generator, n: int, d: int, alpha: float, causal: bool, heads: int
) -> dict[str, FloatArray]:
    """Return the mean squares of outputs and gradients, by PyTorch, shape (heads, n) each."""
    q, k, v, upstream = (torch.randn((heads, n, d), generator=generator) for _ in range(4))
    leaves = {"query": q, "key": k, "value": v}
    for leaf in leaves.values():
        leaf.requires_grad_(True)
    output = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=alpha / float(np.sqrt(d))
    )
    gradients = torch.autograd.grad(output, list(leaves.values()), upstream)
    tensors = {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}
    return {name: t.double().square().mean(dim=-1).numpy() for name, t in tensors.items()}


def over_heads(mean_squares: FloatArray) -> Measured:
    """Return the rms of independent mean squares, with its standard error."""
    return root(mean_squares.mean(), mean_squares.std(ddof=1) / np.sqrt(mean_squares.size))


def root(square: float, standard_error: float) -> Measured:
    """Return the root of an estimate, with its standard error."""
    value = float(np.sqrt(square))
    return {"value": value, "standard_error": float(standard_error) / (2.0 * value)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sizes = {"scores": 2**26, "heads": 4096}
    recorded("output_scale", work(**sizes), {"seed": SEED, **sizes}, "torch")
