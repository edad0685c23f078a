"""Compute scales by rules: the arithmetic that the policies in use share.

Each is a function of `ScaleInputs` and of constants by name. It returns what multiplies q·k or the
cosine, a number or an array of the shape of the inputs, for n keys, dimension d and position i.
`policies` says which policy has which rule, with which constants; the calculator in the book has
the rules under the same names.

Chapter: scaling_rules.
"""

from typing import Any, NamedTuple

import numpy as np

from attnlib import annealed
from attnlib._checking import FloatArray
from attnlib.scores import Cosine, Normal


class ScaleInputs(NamedTuple):
    """Hold the keys n that a query sees, the dimension d, and the query's position from 0."""

    n: FloatArray  # keys that the query sees
    d: FloatArray  # dimension of q and k
    position: FloatArray  # of the query, from 0


def over_root(case: ScaleInputs, multiplier: float = 1.0) -> Any:
    """Return the scale m/√d for head dimension d, with m = `multiplier`."""
    return multiplier / np.sqrt(case.d)


def times_root(case: ScaleInputs, multiplier: float = 1.0) -> Any:
    """Return the scale m √d for head dimension d, with m = `multiplier`."""
    return multiplier * np.sqrt(case.d)


def times_dimension(case: ScaleInputs, multiplier: float = 1.0) -> Any:
    """Return the scale m d for head dimension d, with m = `multiplier`."""
    return multiplier * case.d


def over_layer(case: ScaleInputs, layer: float) -> Any:
    """Return the scale 1/(m √d) of layer m = `layer` = 1, 2, …, for head dimension d."""
    return 1.0 / (layer * np.sqrt(case.d))


def over_dimension(case: ScaleInputs, multiplier: float) -> Any:
    """Return the scale m/d for head dimension d, with m = `multiplier`."""
    return multiplier / case.d


def constant_scale(case: ScaleInputs, scale: float) -> Any:
    """Return the constant scale `scale`, whatever n, d and the position are."""
    return scale


def clipped(case: ScaleInputs, initial: float, largest: float) -> Any:
    """Return the scale min(`initial`, `largest`): a learned scale at its start, under its limit."""
    return min(initial, largest)


def fixed_root(case: ScaleInputs, scalar: float) -> Any:
    """Return the scale 1/√`scalar`, whatever the head dimension is."""
    return scalar**-0.5


def pairs(case: ScaleInputs) -> Any:
    """Return the scale log₂(n² − n) for n keys: their ordered pairs in bits; n < 2 counts as 2."""
    keys = np.maximum(case.n, 2.0)
    return np.log2(keys) + np.log2(keys - 1.0)


def other_classes(case: ScaleInputs) -> Any:
    """Return the scale √2 log(n − 1) for n classes or keys; n below 2 counts as 2."""
    return np.sqrt(2.0) * np.log(np.maximum(case.n, 2.0) - 1.0)


def entropy_invariance(case: ScaleInputs, reference: float, floor: float) -> Any:
    """Return the scale log max(n, f)/(√d log r) for n keys, f = `floor` and r = `reference`."""
    return np.log(np.maximum(case.n, floor)) / np.log(reference) / np.sqrt(case.d)


def log_position(case: ScaleInputs, train_length: float) -> Any:
    """Return the scale max(1, log(i + 1)/log L)/√d at position i from 0, L = `train_length`."""
    growth = np.log(case.position + 1.0) / np.log(train_length)
    return np.maximum(growth, 1.0) / np.sqrt(case.d)


def log_place(case: ScaleInputs, start: float) -> Any:
    """Return the scale max(1, log i/log L)/√d at position i from 0, with L = `start`."""
    growth = np.log(np.maximum(case.position, 1.0)) / np.log(start)
    return np.maximum(growth, 1.0) / np.sqrt(case.d)


def best_normal(case: ScaleInputs) -> Any:
    """Return the scale α*(n)/√d: α* is `annealed.best_alpha` of n standard normal scores."""
    return annealed.best_alpha(Normal(), case.n) / np.sqrt(case.d)


def best_cosine(case: ScaleInputs) -> Any:
    """Return the scale α*(n), `annealed.best_alpha` of n cosines; ValueError unless d = 3, 4, …."""
    best = np.empty(case.n.shape)
    for d in np.unique(case.d):
        if d < 3.0 or d % 1.0 > 0.0:
            raise ValueError(f"d must be a whole number from 3 on for cosines, got d={d:g}")
        chosen = case.d == d
        best[chosen] = annealed.best_alpha(Cosine(int(d)), case.n[chosen])
    return best


def log_length(case: ScaleInputs, s: float = 1.0) -> Any:
    """Return the scale s log n/√d for n keys, with the learned factor `s`."""
    return s * np.log(case.n) / np.sqrt(case.d)


def root_log_length(case: ScaleInputs, train_length: float) -> Any:
    """Return the scale √(log n/log L)/√d for n keys, with L = `train_length`."""
    return np.sqrt(np.log(case.n) / np.log(train_length) / case.d)


def log_beyond(case: ScaleInputs, coefficient: float, floor: float) -> Any:
    """Return the scale 1 + c log max(1, (i + 1)/f) at position i; c: `coefficient`, f: `floor`."""
    return 1.0 + coefficient * np.log(np.maximum((case.position + 1.0) / floor, 1.0))


def power_position(case: ScaleInputs, exponent: float, length: float) -> Any:
    """Return the scale (1 + (i + 1)/L)^a √d at position i, with a = `exponent` and L = `length`."""
    return (1.0 + (case.position + 1.0) / length) ** exponent * np.sqrt(case.d)


def yarn(case: ScaleInputs, coefficient: float, train_length: float) -> Any:
    """Return the scale (c log max(1, n/L) + 1)²/√d, with c = `coefficient`, L = `train_length`."""
    factor = coefficient * np.log(_extension(case, train_length)) + 1.0
    return factor**2 / np.sqrt(case.d)


def deepseek(case: ScaleInputs, coefficient: float, factor: float) -> Any:
    """Return the scale (c log r + 1)²/√d, c = `coefficient`, r = `factor` of context extension."""
    return (coefficient * np.log(factor) + 1.0) ** 2 / np.sqrt(case.d)


def longrope(case: ScaleInputs, train_length: float) -> Any:
    """Return the scale (1 + log max(1, n/L)/log L)/√d for n keys, with L = `train_length`."""
    growth = 1.0 + np.log(_extension(case, train_length)) / np.log(train_length)
    return growth / np.sqrt(case.d)


def _extension(case: ScaleInputs, train_length: float) -> FloatArray:
    return np.maximum(case.n / train_length, 1.0)


def llama_4(case: ScaleInputs, coefficient: float, floor: float) -> Any:
    """Return (1 + c log(1 + ⌊(i + 1)/f⌋))/√d at position i; c: `coefficient`, f: `floor`."""
    chunks = np.floor((case.position + 1.0) / floor)
    return (1.0 + coefficient * np.log1p(chunks)) / np.sqrt(case.d)


def ministral_3(case: ScaleInputs, coefficient: float, floor: float) -> Any:
    """Return the scale (1 + c log(1 + ⌊i/f⌋))/√d at position i; c: `coefficient`, f: `floor`."""
    return (1.0 + coefficient * np.log1p(np.floor(case.position / floor))) / np.sqrt(case.d)


def infoscale(case: ScaleInputs, train_length: float) -> Any:
    """Return the scale √[(1 − n^{−2/d})/(1 − L^{−2/d})]/√d for n keys, with L = `train_length`."""
    # 1 − n^{−2/d}, also where n^{−2/d} is nearly 1
    share = -np.expm1(-2.0 * np.log(case.n) / case.d)
    trained = -np.expm1(-2.0 * np.log(train_length) / case.d)
    return np.sqrt(share / trained) / np.sqrt(case.d)


OF_DIMENSION = (
    *(over_root, times_root, times_dimension, over_layer, over_dimension),
    *(constant_scale, clipped, fixed_root, deepseek),
)
"""The rules that depend on the dimension at most: on neither n nor the position."""
