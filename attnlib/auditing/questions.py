"""Ask what multiplies q·k, what bounds logits, what a row adds up to, and which heads are read.

Each function measures one property of a `Subject` from its answers. `visible` asks which keys a
query sees, `rounding` how many digits count.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

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
    log_odds,
    round_binary,
    row_sums,
)
from attnlib.auditing.visible import weights_by_key


class ScaleByHead(NamedTuple):
    """Hold the number that multiplies q·k, or the cosine, in each row asked: (heads, rows)."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    keys: FloatArray
    """(rows,), the number of keys that each row sees."""
    position: FloatArray
    straight: bool
    """Whether it is the same for products above and below those of the other keys."""

    def over_heads(self, index: int) -> Interval:
        """Return the median over heads, in an interval of all; `index` is among the rows asked."""
        value, low, high = (ends[:, index] for ends in (self.value, self.low, self.high))
        return Interval(float(np.median(value)), float(low.min()), float(high.max()))


def join_rows(scales: list[ScaleByHead]) -> ScaleByHead:
    """Return the rows of several measurements as those of one."""
    columns = zip(*(scale[:5] for scale in scales), strict=True)
    joined = (np.concatenate(column, axis=-1) for column in columns)
    return ScaleByHead._make([*joined, all(scale.straight for scale in scales)])


@np.errstate(invalid="ignore", divide="ignore")  # keys that are not seen weigh nothing
def measure_scale(
    subject: Subject,
    length: int,
    rows: list[int] | None = None,
    *,
    special: list[int] | None = None,
    queries: int | None = None,
    **contents: Any,
) -> ScaleByHead:
    """Measure by how much a key's log-odds grow per unit of its product with the query.

    `rows` are the numbers of the queries asked among `length` tokens, by default the last; only
    the last `queries` are passed, as where the other keys are in a cache. `special` has the number
    of each row's key, by default that of its own: a rotation by position leaves their product
    alone. The other arguments are those of `keys_of_product`.
    """
    rows = [length - 1] if rows is None else rows
    queries = length if queries is None else queries
    row_numbers = torch.tensor(rows) - (length - queries)
    key_numbers = torch.tensor(rows if special is None else special)

    def odds_and_products(x: float) -> tuple[FloatArray, FloatArray]:
        q, k, product = keys_of_product(subject, queries, length, key_numbers, x, **contents)
        return log_odds(subject, q, k, row_numbers, key_numbers), product

    contents["even"] = True
    eps = subject.eps
    at_zero, _ = odds_and_products(0.0)
    # A difference of logits that is not lost in rounding, which takes a larger one in coarse types,
    # and that a soft cap hardly bends.
    goal = 4.0 if eps > 1e-4 else 1.0
    largest_x = max(math.sqrt(subject.size.dimension), abs(contents.get("shift", 0.0)) / 4.0)
    x = _component_moving(lambda x: odds_and_products(x)[0] - at_zero, goal, largest_x)
    estimates, products = [], []
    for end in (x, -x):
        odds, product = odds_and_products(end)
        half_odds, half_product = odds_and_products(end / 2.0)
        ratio, half_ratio = (odds - at_zero) / product, (half_odds - at_zero) / half_product
        estimates.append((4.0 * half_ratio - ratio) / 3.0)  # a soft cap bends by x³
        products.append(np.abs(half_product))
    above, below = estimates
    value = (above + below) / 2.0
    position = np.asarray(rows, dtype=np.float64)
    # A weight and its output are rounded, each by half of a unit in the last place. It is the same
    # where logits do not move: a law that is flat on one side has no wider interval.
    biases = np.abs(np.reshape(subject.bias_slopes, (-1, 1))) * position  # logits of that size
    error = 6.0 * eps + 1.5 * subject.weights_error + eps * biases
    margin = error / np.min(products, axis=0) + subject.stored_error * np.abs(value)
    difference = np.abs(above - below)  # by a fiftieth at most where the scale is one number
    return ScaleByHead(
        value,
        np.minimum(above, below) - margin,
        np.maximum(above, below) + margin,
        subject.visible_counts(rows, length),
        position,
        bool((difference <= np.maximum(2.0 * margin, 0.02 * np.abs(value))).all()),
    )


def _component_moving(
    change: Callable[[float], FloatArray], goal: float, largest_x: float
) -> float:
    """Return x whose `change` of logits is about `goal`, or `largest_x` if none is as large."""
    x = 1.0
    for _ in range(8):
        moved = float(np.median(np.abs(change(x))))
        factor = min(max(goal / moved, 0.125), 8.0) if moved > 0.0 else 8.0
        if 0.4 < factor < 2.5 or (factor > 1.0 and x >= largest_x):
            break
        x = min(x * factor, largest_x)
    return x


def factors_when_doubled(subject: Subject, length: int) -> tuple[float, float]:
    """Measure the factor on logits of q, and of k, twice as long: 2, or 1 if normalised."""
    plain, q, k = (
        float(np.median(measure_scale(subject, length, stretch=stretch).value))
        for stretch in ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0))
    )
    return 2.0 * q / plain, 2.0 * k / plain


def centred_tensors(subject: Subject, length: int) -> list[str]:
    """Return which of "q" and "k" are centred: adding 1 to all components changes no weight."""
    x = math.sqrt(subject.size.dimension) / 2.0
    q, k, _ = keys_of_product(subject, length, length, torch.tensor([length - 1]), x)
    groups = (torch.arange(length) == length - 1).long()
    pairs = (q, k), (q + 1.0, k), (q, k + 1.0)
    before, *after = (subject.weights(*pair, groups)[:, -1] for pair in pairs)
    same = [np.allclose(weights, before, rtol=0.0, atol=16.0 * subject.eps) for weights in after]
    return [name for name, unchanged in zip("qk", same, strict=True) if unchanged]


def measure_cap(subject: Subject, length: int) -> tuple[str, Interval] | None:
    """Measure the bound of the logits; None where they grow in proportion up to 64.

    It is that of a "soft cap", c tanh(x/c), or of a "clamp", where they end. Where all keys have
    the logit T, a difference shows as sech²(T/c) of what it is near 0.
    """
    at_zero = measure_scale(subject, length).over_heads(0)
    unit = at_zero.value * math.sqrt(subject.size.dimension)
    if at_zero.low < 0.0 < at_zero.high:  # no scale, and so no bend
        return None

    def scale_ratio(level: float) -> tuple[float, float]:
        shift = float(round_binary(level / unit))
        shifted = measure_scale(subject, length, shift=shift).over_heads(0)
        return shifted.value / at_zero.value, shift * unit

    ratio_before = 0.0
    for level in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        ratio, logit = scale_ratio(level)
        if ratio < 0.5 and ratio_before > 0.9:  # not that of a tanh, which bends earlier
            low, high = level / 2.0, level
            for _ in range(5):  # as near as keys can be
                middle_ratio, middle = scale_ratio((low + high) / 2.0)
                low, high = (middle, high) if middle_ratio > 0.5 else (low, middle)
            return "clamp", Interval((low + high) / 2.0, low, high)
        ratio_before = ratio
        # Above and below the two bend apart, and their mean by 2e-3 at most; logits are rounded.
        error = 2e-3 + (at_zero.high - at_zero.low) / abs(at_zero.value)
        error += 4.0 * subject.eps * logit + 4.0 * subject.stored_error
        ends = [ratio, ratio * (1.0 - error), ratio * (1.0 + error)]
        if ends[2] < 1.0 and (ends[0] < 0.9 or level == 64.0):
            bounds = [logit / math.acosh(max(end, 1e-12) ** -0.5) for end in ends]
            return "soft cap", Interval(bounds[0], min(bounds), max(bounds))
    return None


def measure_sink(
    subject: Subject, length: int, unit: float, cap: float, seen: FloatArray
) -> tuple[Interval, FloatArray | None, FloatArray]:
    """Measure the factor on a row's weights, and each head's sink, a key without value, or None.

    Returns the factor, the logit of each head's sink, and the error of each logit.

    Compares rows of equal logits: about −4 (0 where that leaves no weight) and 16 or more, or −¼
    of a cosine's scale and the scale. `unit`: logits per unit of q·k, for q and k of length √d;
    `cap` bounds them; `seen`: how many keys a row counts for in each head, fewer under a bias.
    Large logits leave a sink less; a factor is the same for all.
    """
    eps, stored_error = 4.0 * subject.eps, subject.stored_error
    root = math.sqrt(subject.size.dimension)
    largest_shift = root if subject.normalises else max(16.0 / abs(unit), 1.0) / root

    def logit_and_sums(shift: float) -> tuple[float, FloatArray]:
        shift = float(round_binary(shift))
        q, k = equal_keys(subject, length, length, shift)
        logit = unit * (shift * root if subject.normalises else float(q[0, 0] @ k[0, 0]))
        logit = logit if cap == math.inf else cap * math.tanh(logit / cap)
        return logit, row_sums(subject, q, k)[:, -1]

    low, low_sums = logit_and_sums(-math.copysign(largest_shift, unit) / 4.0)
    for _ in range(4):  # until a sink takes little
        high, high_sums = logit_and_sums(math.copysign(largest_shift, unit))
        if subject.normalises or (np.abs(logit_and_sums(0.0)[1] / high_sums - 1.0) < 0.5).all():
            break
        largest_shift *= 2.0
    if (low_sums <= NO_WEIGHT).any():
        low, low_sums = logit_and_sums(0.0)
    if (np.abs(low_sums / high_sums - 1.0) < 4.0 * eps).all() or not (low_sums > 0.0).all():
        factor_error = (eps + stored_error) * high_sums
        return interval_over_heads(high_sums, factor_error), None, eps * high_sums
    # 1/s = (1 + e^{b − t}/n)/c at two logits t gives b and c, in each head.
    difference, inverse_sums = math.exp(-low) - math.exp(-high), 1.0 / high_sums
    sink_part = np.maximum(1.0 / low_sums - inverse_sums, 1e-300) / difference
    inverse_factor = np.maximum(inverse_sums - sink_part * math.exp(-high), 1e-300)
    error = eps * (1.0 / low_sums + inverse_sums) / difference
    factor_error = (eps * inverse_sums + error * math.exp(-high)) / inverse_factor
    sink = np.log(seen * sink_part / inverse_factor)
    factor = interval_over_heads(
        1.0 / inverse_factor, (factor_error + stored_error) / inverse_factor
    )
    return factor, sink, error / sink_part + factor_error + 2.0 * stored_error * abs(low)


@np.errstate(invalid="ignore", divide="ignore")  # rows of a broken kernel
def sums_by_fault(
    subject: Subject, length: int, unit: float, factor: float, *, wide: bool
) -> dict[str, float]:
    """Return the sum of a row's weights in several cases, by the fault that a wrong sum shows.

    The first and the last row have these logits, those between logits of 0; the sum farther from
    the median counts. Logits of −1e5 are asked of `wide` floats only, float32 or wider. The last
    entry is `factor` times the ratio of a random row's sum to that among copies of the row, 1
    unless other rows or heads count.
    """
    query, key = equal_keys(subject, length, length)
    rising = torch.linspace(-1.0, 1.0, length, dtype=torch.float64)
    few_large = torch.where(torch.arange(length) % 64 == 0, 1.0, -1.0).double()
    low = torch.full((length,), -1.0).double()
    sums = {}
    for fault, components, logit in (
        ("keys in rising order: sums are not rescaled by the largest so far", rising, 8.0),
        ("a few larger keys: the sum has too few digits", few_large, 0.75),
        ("all logits are -200: the largest is not that of the row", low, 200.0),
        ("all logits are -1e5: the largest is not that of the row", low, 1e5),
    ):
        if components is low and (subject.normalises or (logit > 1e3 and not wide)):
            continue
        q, k = torch.zeros_like(query), key.clone()
        k[..., 0] = components
        q[:, [0, -1], 0] = 1.0 if subject.normalises else float(round_binary(logit / unit))
        both = row_sums(subject, q, k)[:, [0, -1]].ravel()
        sums[fault] = float(both[np.argmax(np.abs(both - np.median(both)))])
    if subject.stored is not None:  # small weights may be rounded to 0
        return sums
    random = torch.Generator().manual_seed(0)
    q, k = (torch.randn(t.shape, generator=random, dtype=torch.float64) for t in (query, key))
    if not subject.normalises:
        q *= float(round_binary(2.0 / (abs(unit) * math.sqrt(subject.size.dimension))))
    copies = q[-1:, -1:].expand_as(q), k[-1:].expand_as(k)
    among_others, among_copies = (row_sums(subject, *pair)[-1, -1] for pair in ((q, k), copies))
    fault = "the sum or the largest logit is of other rows or heads"
    return sums | {fault: factor * float(among_others / among_copies)}


def padding_block(subject: Subject, unit: float, cap: float) -> int | None:
    """Measure the block size, 8 to 512, to which zero keys are padded and counted, or None."""
    zero_keys = {}
    for n in (17, 12, 9):  # a sink is none, or other blocks
        seen = np.full(subject.size.heads, float(n))
        _, sink, _ = measure_sink(subject, n, unit, cap, seen)
        if sink is None:
            return None
        zero_keys[n] = float(np.exp(np.median(sink)))
    for block in (8, 16, 32, 64, 128, 256, 512):
        if all(math.isclose(m, -n % block, rel_tol=0.02) for n, m in zero_keys.items()):
            return block
    return None


def _random_inputs(subject: Subject, length: int, unit: float) -> list[Tensor]:
    """Return random keys and values, and a random query of each head in all rows; logits of 2."""
    random = torch.Generator().manual_seed(0)
    heads, key_heads, d = subject.size
    shapes = (heads, 1, d), (key_heads, length, d), (key_heads, length, subject.value_size)
    q, k, v = (torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes)
    q = q.expand(-1, length, -1) * float(round_binary(2.0 / (abs(unit) * math.sqrt(d))))
    return [q, k, v]


def count_chosen_keys(subject: Subject, length: int, unit: float) -> int:
    """Return how many of `length` random keys have weight in the last row of the first head."""
    q, k, _ = _random_inputs(subject, length, unit)
    return int((weights_by_key(subject, q, k)[0, -1] > NO_WEIGHT).sum())


def output_difference(subject: Subject, other: Subject, length: int, unit: float) -> float:
    """Measure the largest difference of two last rows, over the first's standard deviation."""
    q, k, v = _random_inputs(subject, length, unit)
    first, second = (asked.output(q, k, v)[:, -1] for asked in (subject, other))
    return float(np.abs(second - first).max() / first.std())


def key_heads_read(subject: Subject, length: int, keys: np.ndarray, unit: float) -> np.ndarray:
    """Return which head of keys, and of values, each head of queries reads: (heads, 2), −1 if none.

    Each head of keys prefers another of `keys`, numbers of keys that the last query sees; each head
    of values has another unit vector. `unit` is the scale.
    """
    heads, key_heads, d = subject.size
    read = np.full((heads, 2), -1)
    at_once = min(len(keys), d - 1)
    q, equal = equal_keys(subject, length, length)
    component = math.sqrt(d) if subject.stored is None else 2.0
    if subject.stored is not None:
        q[..., 0] = float(round_binary(2.0 / abs(unit)))
    for first in range(0, key_heads, at_once):
        batch = np.arange(first, min(first + at_once, key_heads))
        k = equal.clone()
        groups = torch.full((length,), len(batch))
        v = torch.zeros(key_heads, length, d, dtype=torch.float64)
        for group, (head, key) in enumerate(zip(batch, keys[::-1], strict=False)):
            groups[key] = group
            k[head, key, :] = 0.0
            k[head, key, 0] = math.copysign(component, unit)
            v[head, :, group] = 1.0
        before, after = (subject.weights(q, t, groups)[:, -1] for t in (equal, k))
        values = subject.output(q, equal, v)[:, -1, : len(batch)]
        gains = after[:, : len(batch)] - before[:, : len(batch)]
        for column, response in enumerate((gains, values)):
            best = response.argmax(axis=-1)
            sure = response.max(axis=-1) > 1e-6 * values.sum(axis=-1)
            read[sure, column] = batch[best[sure]]
    return read


def dropout_share(subject: Subject, length: int) -> float | None:
    """Measure the share of weights dropped, 0 if none; None if calls differ otherwise.

    If both calls drop the same ones, rows' sums differ, and weights are those of fewer keys.
    """
    q, k = equal_keys(subject, length, length)
    first, second = (subject.weights(q, k, torch.arange(length)) for _ in range(2))
    if np.array_equal(first, second, equal_nan=True):
        later = first[:, length // 2 :]
        sums, largest = later.sum(-1), later.max(-1)
        for seen in (length, np.arange(length // 2, length) + 1.0):
            factors = largest * seen
            if np.ptp(sums) > 0.05 and 1.02 < factors.max() < 1.01 * factors.min():
                return float(1.0 - 1.0 / factors.max())
        return 0.0
    larger = np.maximum(first, second)[:, -1]
    dropped = np.stack([first, second])[:, :, -1] == 0.0
    kept = larger[larger > 0.0]
    if dropped.any() and np.ptp(kept) < 1e-2 * kept.max():
        return float(1.0 - 1.0 / (kept.mean() * length))
    return None
