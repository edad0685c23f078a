"""Ask which keys a query sees: by itself, under a window, and with a mask as an argument."""

import math
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlib._checking import FloatArray
from attnlib.auditing.response import (
    NO_WEIGHT,
    Interval,
    Subject,
    equal_keys,
    interval_over_heads,
    keys_of_product,
    round_binary,
)


def visible_keys(subject: Subject, queries: int, keys: int) -> np.ndarray:
    """Return booleans (queries, keys): whether a query gives weight to a key, in any head.

    All keys are equal, so that only position decides.
    """
    weights = weights_by_key(subject, *equal_keys(subject, queries, keys))
    return np.asarray((weights > NO_WEIGHT).any(axis=0))


def weights_by_key(subject: Subject, q: Tensor, k: Tensor) -> FloatArray:
    """Return the weight of each key, (heads, queries, keys), in as few calls as v's size allows."""
    length, at_once = k.shape[1], subject.value_size - 1
    batches = []
    for first in range(0, length, at_once):
        groups = (torch.arange(length) - first).clamp(-1, at_once) % (at_once + 1)
        weights = subject.weights(q, k, groups)
        batches.append(weights[..., : min(at_once, length - first)])
    return np.concatenate(batches, axis=-1)


class Span(NamedTuple):
    """Hold how many keys a query sees at the beginning, and in the window that ends at its own.

    (0, all keys up to its own) where none of these is hidden.
    """

    first_keys: int
    window: int


def visible_span(subject: Subject, length: int, own: int, queries: int, *, even: bool) -> Span:
    """Measure the window of the query whose own key is number `own` of `length` keys.

    `queries` are asked, the last ones. `even`: equal keys that are seen have equal weights; without
    it no first keys are looked for.
    """
    find = partial(first_key, subject, length, own - length + queries, queries)
    hidden = find(hidden_from=own) if even else 0
    if hidden > own:
        return Span(0, own + 1)
    return Span(hidden, max(0, own + 1 - find(start=hidden)))


def first_key(
    subject: Subject,
    length: int,
    row: int,
    queries: int,
    *,
    start: int = 0,
    hidden_from: int | None = None,
    from_end: bool = False,
) -> int:
    """Return the number of the first key, from `start` on, that a row of the queries sees.

    With `hidden_from`, a key that it sees, the first key of less weight than that one is returned.
    The result is `length` if there is none. `from_end` counts keys from the last to the first.
    """
    q, k = equal_keys(subject, queries, length)
    first, size, keys = start, length - start, np.arange(length)
    own_weight = np.zeros((1, 1))
    if hidden_from is not None:
        groups = torch.from_numpy(keys == hidden_from).long()
        own_weight = subject.weights(q, k, groups)[:, row, 1:]
    while True:  # the range is divided into parts, and then the first part in question
        parts = min(subject.size.dimension - 1, size)
        edges = first + np.arange(parts + 1) * size // parts
        part_of_key = np.searchsorted(edges, keys, side="right") - 1
        in_range = np.minimum(part_of_key, parts)
        groups = torch.from_numpy(np.where(part_of_key < 0, parts, in_range))
        weights = subject.weights(q, k, groups.flip(0) if from_end else groups)[:, row, :parts]
        wanted = (weights > NO_WEIGHT).any(axis=0)
        if hidden_from is not None:
            sizes = np.diff(edges)
            hidden = sizes - weights / np.maximum(own_weight, NO_WEIGHT)
            wanted = (hidden > 0.5 + 8.0 * subject.eps * sizes).any(axis=0)
        if not wanted.any():
            return length
        part = int(np.flatnonzero(wanted)[0])
        if parts == size:
            return int(edges[part])
        # A few hidden keys of the part before may be lost in rounding.
        before = part if hidden_from is None else max(part - 1, 0)
        first, size = int(edges[before]), int(edges[part + 1] - edges[before])


class MaskEffect(NamedTuple):
    """Hold the effect of an argument that hides keys."""

    true_means: str
    """What True says of a key: "seen", "hidden", "1" where it is added as that number, "nothing"
    where it is not heeded, "not taken"."""
    multiplier: Interval | None
    """What multiplies a number in the mask before it is added to a logit; None if it takes none, or
    takes it as True or False."""
    sum_ratio: float
    """The sum of a row's weights under a mask that hides no key, over that without a mask, 1 at
    most."""
    hidden_row: str
    """What a row gives that a mask hides whole: "NaN", "0", or "numbers"; "unknown"."""
    keeps_shares: bool
    """Whether all keys keep their shares where a mask hides none."""
    true_dtype: torch.dtype
    """What True and False are given as: bool, or as 1 and 0 where it takes none."""


@np.errstate(invalid="ignore", divide="ignore")  # rows that are hidden whole
def measure_mask(subject: Subject, length: int, unit: float) -> MaskEffect:
    """Measure what a mask does: hide the first key, add 2 to another's logit, hide a whole row.

    Logits are about 2, so that a number in place of one differs from a number that is added. `unit`
    is the scale.
    """
    q, k = equal_keys(subject, length, length, _component_of(subject, unit, 2.0))
    groups = torch.arange(length).clamp(max=2)
    booleans = torch.ones(1, 1, length, length, dtype=torch.bool, device=subject.device)
    numbers = torch.zeros_like(booleans, dtype=subject.mask_dtype)

    def weights_under(mask: Tensor, row: int = -1) -> FloatArray | None:
        with suppress(ValueError):  # it may not take a mask of this kind
            return subject.with_mask(mask).weights(q, k, groups)[:, row]
        return None

    unmasked = subject.weights(q, k, groups)[:, -1]
    unmasked_sum = unmasked.sum(axis=-1)
    zeros = weights_under(numbers)
    answers = [answer for answer in (weights_under(booleans), zeros) if answer is not None]
    sum_ratios = [float((answer.sum(axis=-1) / unmasked_sum).min()) for answer in answers]
    changes = [answer / unmasked for answer in answers if (answer.sum(axis=-1) > 0.0).all()]
    keeps_shares = all((np.nanmin(x, -1) > 0.99 * np.nanmax(x, -1)).all() for x in changes)
    # 0 where True hides
    sum_ratio = min((ratio for ratio in sum_ratios if ratio > 0.0), default=1.0)
    booleans[..., 0], numbers[..., 1] = False, 2.0
    first_false, two_added = weights_under(booleans), weights_under(numbers)
    if first_false is None:  # it may compute with 0 and 1
        booleans = booleans.to(subject.mask_dtype)
        first_false = weights_under(booleans)
    true_means, whole_row = "not taken", None
    if first_false is not None:
        change = first_false / unmasked
        adds_as_is = np.abs(np.log(change[:, 1] / change[:, 0]) - 1.0) < 0.02 + 16.0 * subject.eps
        true_means = "1" if adds_as_is.all() else "nothing"
        if (change[:, 1:] < 1e-30).all():
            true_means = "hidden"
        if (change[:, 0] < 1e-30).all():
            true_means = "seen"
        if true_means in ("seen", "hidden"):
            booleans[:] = true_means != "hidden"
            booleans[..., length // 2, :] = true_means == "hidden"
            whole_row = weights_under(booleans, length // 2)
    hidden_row = "unknown"
    if whole_row is not None:
        hidden_row = "0" if not whole_row.any() else "numbers"
        hidden_row = hidden_row if np.isfinite(whole_row).all() else "NaN"
    multiplier = None
    if zeros is not None and two_added is not None:
        gain = np.log(two_added[:, 1] / two_added[:, 0]) - np.log(zeros[:, 1] / zeros[:, 0])
        if np.isfinite(gain).all():  # else 0 hides keys, or another number does
            multiplier = interval_over_heads(gain / 2.0, 4.0 * subject.eps)
    sum_ratio = min(sum_ratio, 1.0)
    return MaskEffect(true_means, multiplier, sum_ratio, hidden_row, keeps_shares, booleans.dtype)


def _component_of(subject: Subject, unit: float, logit: float) -> float:
    """Return the component of a key along q that gives about this logit, as far as one can."""
    root = math.sqrt(subject.size.dimension)
    most = root / 2.0 if subject.normalises else math.inf
    return float(round_binary(min(logit / (abs(unit) * root), most)))


def sum_beside_hidden(subject: Subject, hidden: Tensor, row: int, unit: float) -> float | None:
    """Return a row's sum of weights while hidden keys have logits of 4, over that while 0 as all.

    It is 1 if hidden keys do not count. `hidden`, (keys,), is True for them. None if all keys or
    none are hidden, or no weight is left.
    """
    if not hidden.any() or hidden.all():
        return None
    length, one_group = len(hidden), torch.zeros(len(hidden), dtype=torch.long)
    large = math.copysign(_component_of(subject, unit, 4.0), unit)
    sums = []
    for x in (0.0, large):
        q, k, _ = keys_of_product(subject, length, length, hidden.nonzero()[:, 0], x)
        sums.append(subject.weights(q, k, one_group)[:, row, 0])
    return float(np.min(sums[1] / sums[0])) if (sums[0] > 0.0).all() else None
