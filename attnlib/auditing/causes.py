"""Ask the first questions: whether the answers are a softmax over keys, else what they are.

The weights of a softmax compete, and the ratio of two does not change with a third key. Queries and
keys at random show along which axis weights add up, and whether a few keys are chosen.
"""

import math
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from attnlib._checking import FloatArray
from attnlib.auditing.response import INTEGERS, NO_WEIGHT, Subject, equal_keys, keys_of_product

DIFFERENT = 0.1
"""The share of the largest weight by which random queries and keys should let weights differ."""
SMALL = 1e-4
"""Weights that are smaller may be 0 by rounding alone."""
FAINT = 0.02
"""A share of the weight of equal keys that a smaller one does not have by chance."""


class Cause(NamedTuple):
    """Hold the reason why the answers are not those of a softmax over all keys."""

    code: str
    expected: str
    found: str
    evidence: str = ""


class RandomAnswer(NamedTuple):
    """Hold random queries and keys, and the weights that answer, (heads, queries, keys)."""

    q: torch.Tensor
    k: torch.Tensor
    weights: FloatArray


def wrong_layout(subject: Subject, equal: FloatArray, *, window: bool) -> Cause | None:
    """Return a cause if queries read only values of their own position, and no window explains it.

    `equal` has the weights of equal keys, (heads, queries, keys), here and below.
    """
    n = equal.shape[-1]
    own_only = (equal > 0.0) == np.eye(n, dtype=bool)
    if n < 2 or not own_only.all():
        return None
    q, k = equal_keys(subject, n, n)
    v = torch.zeros(subject.size.key_heads, n, subject.value_size, dtype=torch.float64)
    for head in range(min(subject.size.key_heads, subject.value_size)):
        v[head, :, head] = 1.0
    over_heads = (subject.output(q, k, v)[0, 0] > 0.0).sum() > 1
    if window and not over_heads:
        return None
    axes = (
        "it attends over heads: its axes are (b, n, h, d)" if over_heads else "its own place only"
    )
    return Cause("layout", "axes (b, h, n, d)", axes, "each query reads values of its own place")


def faint_weights(equal: FloatArray) -> Cause | None:
    """Return a cause if some of equal keys have a small weight: they are not quite hidden."""
    share = equal / np.maximum(equal.max(axis=-1, keepdims=True), NO_WEIGHT)
    faint = (share < FAINT) & (share > NO_WEIGHT)
    small = share[faint]
    if not small.size or not np.isclose(share[~faint & (share > NO_WEIGHT)], 1.0, rtol=0.01).all():
        return None
    exponent = -math.log(small.mean())
    if np.ptp(np.log(small)) > 0.01 * exponent:
        return None
    text = f"e^-{exponent:.4g} of the weight of others"
    why = f"as with a cap of {exponent:.4g} after the mask, or numbers in it that are too small"
    return Cause("hidden", "hidden keys without weight", text, why)


def undivided_weights(equal: FloatArray) -> Cause | None:
    """Return a cause if each of several equal keys has the weight 1."""
    several = (equal > 0.0).sum(axis=-1) > 1
    if not several.any() or not np.allclose(equal[equal > 0.0], 1.0, rtol=0.01):
        return None
    text = "each 1: they are not divided by their sum"
    return Cause("softmax", "weights that add up to 1", text, "equal keys")


def answer_to_random(subject: Subject, n: int, equal: FloatArray) -> RandomAnswer | None:
    """Return the weights of n random keys, at a scale where they differ; None without one."""
    heads, key_heads, d = subject.size
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(heads, n, d, generator=generator, dtype=torch.float64)
    k = torch.randn(key_heads, n, d, generator=generator, dtype=torch.float64)
    if subject.stored is not None:
        k = k.clamp(-2.0, 2.0)
    best = None
    for gain in (1.0, 0.25, 0.0625, 4.0, 16.0, 64.0, 256.0):  # until weights differ, not too much
        weights = subject.weights(gain * q, k, torch.arange(n))
        if not np.isfinite(weights).all():
            continue
        usual = equal[:, -1] if equal[:, -1].any() else np.ones_like(equal[:, -1])
        seen = (usual > 0.0) & (weights[:, -1] != 0.0)
        change = weights[:, -1][seen] / usual[seen]
        if change.size and np.ptp(change) > DIFFERENT * np.abs(change).max():
            best = RandomAnswer(gain * q, k, weights)
            if (np.abs(change) > SMALL).all():
                break
        elif best is not None:
            break
    return best


def other_axis(answer: RandomAnswer) -> Cause | None:
    """Return a cause if weights add up to 1 along another axis than that of keys."""
    weights = answer.weights
    for axis, name in ((-2, "queries"), (0, "heads"), ((-2, -1), "queries and keys")):
        sums, row_sums = weights.sum(axis=axis), weights.sum(axis=-1)
        varies = np.ptp(row_sums) > 0.02 * row_sums.max()
        if (axis or len(weights) > 1) and varies and np.allclose(sums, 1.0, rtol=0.01):
            text = f"weights add up to 1 over {name}"
            return Cause("softmax", "a softmax over keys", f"a softmax over {name}", text)
    return None


def other_rows(subject: Subject, answer: RandomAnswer) -> Cause | None:
    """Return a cause if another last query changes other rows of the output than its own."""
    q = answer.q.clone()
    q[:, -1] *= -1.0
    after = subject.weights(q, answer.k, torch.arange(answer.k.shape[-2]))
    if np.allclose(after[:, :-1], answer.weights[:, :-1], rtol=0.0, atol=64.0 * subject.eps):
        return None
    text = "outputs stand in rows of other queries"
    return Cause("layout", "outputs in the rows of their queries", text, "another last query")


def other_heads(subject: Subject, answer: RandomAnswer) -> Cause | None:
    """Return a cause if longer queries of another head change a head's weights."""
    q = answer.q.clone()
    q[-1] *= 2.0
    after = subject.weights(q, answer.k, torch.arange(answer.k.shape[-2]))
    if len(q) == 1 or np.allclose(after[0], answer.weights[0], rtol=0.0, atol=64.0 * subject.eps):
        return None
    if np.allclose(after[-1], answer.weights[-1], rtol=0.0, atol=64.0 * subject.eps):
        text = "outputs stand in other heads"
        return Cause("layout", "outputs in the heads of their queries", text, "longer queries")
    why = "as a norm over all heads together makes them"
    return Cause("norm", "each head by itself", "weights depend on another head's queries", why)


@np.errstate(invalid="ignore", divide="ignore")  # keys that are not seen weigh nothing
def merged_parts(subject: Subject, n: int, *, rotates: bool) -> Cause | None:
    """Return a cause if larger keys in a range change the ratio of other keys, which are equal.

    Then parts of a softmax are merged with wrong weights. Another cause is that the larger keys,
    equal too, differ in their odds, as under several scales; not if the callable `rotates`.
    """
    count, worst = min(subject.value_size, n), 1.0
    groups = torch.arange(n) * count // n
    middle = (groups >= count * 2 // 7) & (groups < count * 4 // 7)
    for share, raised in product((0.0625, 0.25, 1.0), (middle, ~middle)):
        raised_keys, x = raised.nonzero()[:, 0], share * math.sqrt(subject.size.dimension)
        plain, changed = (
            keys_of_product(subject, n, n, raised_keys, component)[:2] for component in (0.0, x)
        )
        changed[0][1::2] *= -1.0  # by the sums of another head parts are merged otherwise
        before, after = (subject.weights(*pair, groups)[:, -1] for pair in (plain, changed))
        change = np.where(np.minimum(before, after) > SMALL, np.log(after / before), np.nan)
        raised_groups = raised[groups.diff(prepend=groups[:1] - 1) > 0].numpy()
        for others, larger in zip(change[:, ~raised_groups], change[:, raised_groups], strict=True):
            if not (np.isfinite(others).any() and np.isfinite(larger).any()):
                continue
            # parts of a row may change by a fifth more than others, as they are rounded
            if np.nanmax(others) - np.nanmin(others) > math.log(1.2):
                text = "one of several parts, merged with wrong weights"
                why = f"larger keys change the ratio of equal ones, n = {n}"
                return Cause("softmax", "one softmax over all keys", text, why)
            odds = np.abs(larger - np.nanmedian(others))
            if np.nanmin(odds) > 1.0:
                worst = max(worst, float(np.nanmax(odds) / np.nanmin(odds)))
    if rotates or worst < 1.02 + 8.0 * subject.eps + 4.0 * subject.stored_error:
        return None
    text = f"scales that differ by a factor of {worst:.4g}"
    return Cause("law", "one scale", text, f"ranges of {n} keys")


def no_softmax(subject: Subject, answer: RandomAnswer) -> Cause | None:
    """Return a cause if weights do not compete, or the ratio of two depends on a third key."""
    expected = "a softmax over keys"
    weights, n = answer.weights[:, -1], answer.k.shape[-2]
    if (weights < -SMALL * np.abs(weights).max()).any():
        return Cause("softmax", expected, "no softmax: some weights are below 0", "random keys")
    if subject.stored is not None:  # another largest key may round the others otherwise
        return None
    per_key_head = subject.size.heads // subject.size.key_heads
    queries = answer.q[::per_key_head, -1]
    tolerance = 16.0 * subject.eps + 1e-3
    unchanged = True
    for gain in (0.25, 1.0, 4.0, 16.0, 64.0):
        k = answer.k.clone()
        k[:, 0] = gain * queries / queries.norm(dim=-1, keepdim=True)
        k[:, 0] *= subject.size.dimension**0.5
        after = subject.weights(answer.q, k, torch.arange(n))[:, -1]
        if not np.isfinite(after).all():
            break
        both = (weights[:, 1:] > SMALL) & (after[:, 1:] > SMALL)
        if not both.any():
            unchanged = False
            break
        change = np.log(np.where(both, after[:, 1:], 1.0) / np.where(both, weights[:, 1:], 1.0))
        parts = [
            (np.diff(np.sort(row[kept])) > tolerance).sum()
            for row, kept in zip(change, both, strict=True)
        ]
        if max(parts) > 2:  # a softmax merged from parts has other ratios between them only
            text = "the ratio of two weights changes with a third key"
            return Cause("softmax", expected, "no softmax over keys", text)
        unchanged = unchanged and bool(np.abs(change).max() < tolerance)
    if unchanged and not np.allclose(after[:, 0], weights[:, 0], rtol=DIFFERENT):
        text = "a weight does not change with other keys, as a sigmoid's does not"
        return Cause("softmax", expected, "no softmax: each key is weighed by itself", text)
    order = (answer.k @ queries[..., None]).argsort(dim=-2)
    k = torch.take_along_dim(answer.k, order, dim=-2)
    rising = subject.weights(answer.q, k, torch.arange(n))[::per_key_head, -1]
    if (np.ptp(rising, axis=-1) < tolerance * rising.max(axis=-1)).all():
        text = "keys in rising order weigh the same"
        return Cause("softmax", expected, "weights by the largest logit so far", text)
    return None


def not_by_products(subject: Subject, n: int) -> Cause | None:
    """Return a cause if keys of one length and one product with the query weigh differently."""
    d = subject.size.dimension
    if d < 8 or subject.stored in INTEGERS:  # which rounds them otherwise
        return None
    q, k = equal_keys(subject, n, n)
    k = k.clone()
    content = torch.zeros(d, dtype=torch.float64)
    size = (d / 6.0) ** 0.5 if subject.stored is None else 1.0
    content[4:7] = size * torch.tensor([2.0, -1.0, -1.0], dtype=torch.float64)
    groups = (torch.arange(n) == n - 1).long()
    odds = []
    for sign in (1.0, -1.0):
        k[:, -1] = sign * content
        weights = subject.weights(q, k, groups)[:, -1]
        odds.append(weights[:, 1] / np.maximum(weights[:, 0], 1e-300))
    if np.allclose(odds[0], odds[1], rtol=64.0 * subject.eps + 1e-4):
        return None
    text = "keys of one length and one product with the query have other weights"
    return Cause("softmax", "a softmax of q·k", "no softmax of q·k: perhaps linear attention", text)


def range_of_chosen_keys(answer: RandomAnswer, equal: FloatArray) -> tuple[int, int] | None:
    """Return the least and most keys that a row chooses by content; None if it does not choose."""
    weights, seen = answer.weights, equal > 0.0
    chosen = weights != 0.0
    rows = (seen & ~chosen).any(axis=-1)  # of equal keys some may be chosen too, others
    smallest = np.where(chosen, np.abs(weights), np.inf).min(axis=-1)
    sure = rows & (smallest > SMALL)
    if not sure.any():
        return None
    count = chosen.sum(axis=-1)[sure]
    return int(count.min()), int(count.max())


class DistanceBias(NamedTuple):
    """Hold by how much logits grow with each place nearer, by head."""

    slopes: FloatArray
    straight: bool
    """Whether logits are a line in the distance, in every head."""
    error: float
    """The error of the slopes by rounding."""


def distance_bias(equal: FloatArray, eps: float) -> DistanceBias | None:
    """Return the bias by distance that the weights of equal keys show.

    None where these weigh the same, or fewer than three are seen.
    """
    last = equal[:, -1]
    seen = (last > 0.0).all(axis=0)
    if seen.sum() < 3:
        return None
    logits, position = np.log(last[:, seen]), np.flatnonzero(seen).astype(float)
    if np.ptp(logits, axis=-1).max() < 64.0 * eps + 1e-3:
        return None
    slopes, starts = np.polyfit(position, logits.T, 1)
    residual = np.abs(logits - (slopes[:, None] * position + starts[:, None])).max(axis=-1)
    # A bias may be off a line in the distance by a hundredth of its largest.
    straight = residual <= 0.01 * np.ptp(logits, axis=-1) + 64.0 * eps
    off_middle = position - position.mean()  # a weight and its output are rounded
    error = eps * float(np.abs(off_middle).sum() / (off_middle**2).sum())
    return DistanceBias(slopes, bool(straight.all()), error)
