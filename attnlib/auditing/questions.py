"""Ask a callable: each question measures one property from its answers, with an interval."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlib._checking import FloatArray
from attnlib.auditing.response import (
    NONE,
    Interval,
    Subject,
    contents,
    equal_keys,
    log_odds,
    near,
    of_heads,
    row_sums,
    spread,
)

SHORT = 16
"""Rows that are looked at key by key."""


def visible_keys(subject: Subject, queries: int, keys: int) -> np.ndarray:
    """Return which of equal keys each query sees: (queries, keys), True where one has weight."""
    weights = each_weight(subject, *equal_keys(subject, queries, keys))
    return np.asarray((weights > NONE).any(axis=0))


def each_weight(subject: Subject, q: Tensor, k: Tensor) -> FloatArray:
    """Return the weight of each key, (heads, queries, keys), by as many calls as that takes."""
    length, several = k.shape[1], subject.value_size - 1
    parts = []
    for first in range(0, length, several):
        groups = (torch.arange(length) - first).clamp(-1, several) % (several + 1)
        weights = subject.weights(q, k, groups)
        parts.append(weights[..., : min(several, length - first)])
    return np.concatenate(parts, axis=-1)


class Slope(NamedTuple):
    """Hold the number that multiplies q·k, or the cosine, in each row asked: (heads, rows)."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    keys: FloatArray
    """(rows,), the number of keys that each row sees."""
    position: FloatArray
    straight: bool
    """Whether it is the same for products above and below those of the other keys."""

    def over_heads(self, row: int) -> Interval:
        """Return the scale of a row over its heads: their median, in an interval of all."""
        value, low, high = (part[:, row] for part in (self.value, self.low, self.high))
        return Interval(float(np.median(value)), float(low.min()), float(high.max()))


def joined(slopes: list[Slope]) -> Slope:
    """Return several slopes as one, with the rows of all."""
    parts = zip(*(slope[:5] for slope in slopes), strict=True)
    every = (np.concatenate(part, axis=-1) for part in parts)
    return Slope._make([*every, all(slope.straight for slope in slopes)])


@np.errstate(invalid="ignore", divide="ignore")  # keys that are not seen weigh nothing
def slope(
    subject: Subject,
    length: int,
    rows: list[int] | None = None,
    *,
    places: list[int] | None = None,
    queries: int | None = None,
    **shape: Any,
) -> Slope:
    """Measure by how much a key's log-odds grow per unit of its product with the query.

    Without `rows` it is that of the last query; without `places` the key is that at the place of
    the query: a rotation by position leaves their product alone. `queries` are the last ones only,
    as where the other keys are in a cache; the other arguments are those of `contents`.
    """
    rows = [length - 1] if rows is None else rows
    asks = length if queries is None else queries
    chosen = torch.tensor(rows) - (length - asks)
    special = torch.tensor(rows if places is None else places)

    def asked(x: float) -> tuple[FloatArray, FloatArray]:
        q, k, product = contents(subject, asks, length, special, x, even=True, **shape)
        return log_odds(subject, q, k, chosen, special), product

    eps = subject.eps
    nothing, _ = asked(0.0)
    # A difference of logits that is not lost in rounding, which takes a larger one in coarse types,
    # and that a soft cap hardly bends.
    goal = 4.0 if eps > 1e-4 else 1.0
    most = max(math.sqrt(subject.size.dimension), abs(shape.get("shift", 0.0)) / 4.0)
    x = _moving(lambda x: asked(x)[0] - nothing, goal, most)
    estimates, products = [], []
    for part in (x, -x):
        (whole, product), (half, half_product) = asked(part), asked(part / 2.0)
        ratio, half_ratio = (whole - nothing) / product, (half - nothing) / half_product
        estimates.append((4.0 * half_ratio - ratio) / 3.0)  # a soft cap bends by x³
        products.append(np.abs(half_product))
    above, below = estimates
    value = (above + below) / 2.0
    position = np.asarray(rows, dtype=np.float64)
    # A weight and its output are rounded, each by half of a unit in the last place. It is the same
    # where logits do not move: a law that is flat on one side has no wider interval.
    biases = np.abs(np.reshape(subject.slopes, (-1, 1))) * position  # logits of that size
    error = 6.0 * eps + 1.5 * subject.weights_error + eps * biases
    margin = error / np.min(products, axis=0) + subject.stored_error * np.abs(value)
    apart = np.abs(above - below)  # slopes of one number differ by a fiftieth at most
    return Slope(
        value,
        np.minimum(above, below) - margin,
        np.maximum(above, below) + margin,
        subject.keys_of(rows, length),
        position,
        bool((apart <= np.maximum(2.0 * margin, 0.02 * np.abs(value))).all()),
    )


def _moving(change: Callable[[float], FloatArray], goal: float, most: float) -> float:
    """Return a component of keys that changes logits by about `goal`, or `most` if none does."""
    x = 1.0
    for _ in range(8):
        moved = float(np.median(np.abs(change(x))))
        factor = min(max(goal / moved, 0.125), 8.0) if moved > 0.0 else 8.0
        if 0.4 < factor < 2.5 or (factor > 1.0 and x >= most):
            break
        x = min(x * factor, most)
    return x


@np.errstate(divide="ignore", invalid="ignore")
def digits(subject: Subject, length: int) -> float | None:
    """Measure how many binary digits of keys and weights count; None where that is not visible.

    Keys of one length have components from 1 to 2 along the query, in one order and in the other.
    A polynomial follows their logits through a cap, a sigmoid or another kernel; what it leaves,
    alike in both orders, is rounding.
    """
    q, k = equal_keys(subject, length, length)
    q, k, keys = torch.zeros_like(q), torch.zeros_like(k), torch.arange(length)
    equal = subject.weights(q, k, keys)[:, -1]
    seen = torch.from_numpy((equal > 0.0).all(axis=0))
    if seen.sum() < 8:
        return None
    numbers = spread(int(seen.sum())).to(subject.dtype).double()

    def logits(order: Tensor) -> FloatArray:
        k[:, seen, 0], k[:, seen, 2] = order, (4.25 - order**2).sqrt()
        weights = subject.weights(q, k.to(subject.dtype).double(), keys)[:, -1]
        return np.asarray(np.log(weights / equal)[:, seen.numpy()].T)

    for gain in 2.0 ** np.arange(-6.0, 10.0):
        q[..., 0] = gain
        first, other = logits(numbers), logits(numbers.flip(0))[::-1]
        if not np.isfinite([first, other]).all():
            return None
        if np.ptp(first, axis=0).min() > 1.0:
            break
    else:
        return None
    x = numbers.numpy()
    powers = np.vander(x - 1.5, 6)
    off, again = (y - powers @ np.linalg.lstsq(powers, y, rcond=None)[0] for y in (first, other))
    if np.abs(off - again).max() > 0.5 * np.abs(off).max() > 16.0 * subject.eps:
        return None  # it depends on the place
    share = np.abs(off).max(axis=-1) / (np.ptp(first, axis=0).max() / np.ptp(x) * x)
    return float(-np.log2(max(share.max(), 2.0**-53)))


def digits_of_values(subject: Subject, unit: float, length: int) -> float | None:
    """Measure how many binary digits of values count; None where weights are not finite.

    One key has most of the weight, and values differ from key to key. Weights, measured with
    values of 0 and 1, give the output that exact values would have, up to a factor.
    """
    x = 8.0 / (unit * math.sqrt(subject.size.dimension))
    q, k, _ = contents(subject, length, length, torch.tensor([length - 1]), x)
    weights = subject.weights(q, k, torch.arange(length))[:, -1]
    numbers = spread(subject.value_size).to(subject.dtype).double()
    v = torch.stack([numbers.roll(place) for place in range(length)])
    output = subject.output(q, k, v.expand(subject.size.key_heads, -1, -1))[:, -1]
    times = output / (weights @ v.numpy())
    if not np.isfinite(times).all():
        return None
    share = np.abs(times / times.mean(axis=-1, keepdims=True) - 1.0).max()
    return float(-np.log2(max(share, 2.0**-53)))


def small_weight(subject: Subject, unit: float, length: int) -> float:
    """Measure the weight of a key whose logit is 20 below the others', the least of all heads."""
    x = -20.0 / (unit * math.sqrt(subject.size.dimension))
    q, k, _ = contents(subject, length, length, torch.tensor([length - 1]), x)
    groups = (torch.arange(length) == length - 1).long()
    return float(subject.weights(q, k, groups)[:, -1, 1].min())


def powers(subject: Subject, length: int) -> tuple[float, float]:
    """Measure the factor on logits of q, and of k, twice as long: 2, or 1 if normalised."""
    whole, q, k = (
        float(np.median(slope(subject, length, stretch=by).value))
        for by in ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0))
    )
    return 2.0 * q / whole, 2.0 * k / whole


def centred(subject: Subject, length: int) -> list[str]:
    """Return which of "q" and "k" are centred: adding 1 to all components changes no weight."""
    x = math.sqrt(subject.size.dimension) / 2.0
    q, k, _ = contents(subject, length, length, torch.tensor([length - 1]), x)
    groups = (torch.arange(length) == length - 1).long()
    pairs = (q, k), (q + 1.0, k), (q, k + 1.0)
    before, *after = (subject.weights(*pair, groups)[:, -1] for pair in pairs)
    same = [np.allclose(weights, before, rtol=0.0, atol=16.0 * subject.eps) for weights in after]
    return [name for name, unchanged in zip("qk", same, strict=True) if unchanged]


def cap(subject: Subject, length: int) -> tuple[str, Interval] | None:
    """Measure the bound of the logits; None where they grow in proportion up to 64.

    It is that of a "soft cap", c tanh(x/c), or of a "clamp", where they end. Where all keys have
    the logit T, a difference shows as sech²(T/c) of what it is near 0.
    """
    straight = slope(subject, length).over_heads(0)
    unit = straight.value * math.sqrt(subject.size.dimension)
    if straight.low < 0.0 < straight.high:  # no scale, and so no bend
        return None

    def bend(logit: float) -> tuple[float, float]:
        shift = float(near(logit / unit))
        bent = slope(subject, length, shift=shift).over_heads(0)
        return bent.value / straight.value, shift * unit

    before = 0.0
    for wanted in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        ratio, logit = bend(wanted)
        if ratio < 0.5 and before > 0.9:  # not that of a tanh, which bends earlier
            low, high = wanted / 2.0, wanted
            for _ in range(5):  # as near as keys can be
                share, middle = bend((low + high) / 2.0)
                low, high = (middle, high) if share > 0.5 else (low, middle)
            return "clamp", Interval((low + high) / 2.0, low, high)
        before = ratio
        # Above and below the two bend apart, and their mean by 2e-3 at most; logits are rounded.
        error = 2e-3 + (straight.high - straight.low) / abs(straight.value)
        error += 4.0 * subject.eps * logit + 4.0 * subject.stored_error
        ends = [ratio, ratio * (1.0 - error), ratio * (1.0 + error)]
        if ends[2] < 1.0 and (ends[0] < 0.9 or wanted == 64.0):
            bounds = [logit / math.acosh(max(end, 1e-12) ** -0.5) for end in ends]
            return "soft cap", Interval(bounds[0], min(bounds), max(bounds))
    return None


def total(
    subject: Subject, length: int, unit: float, cap: float, seen: FloatArray
) -> tuple[Interval, FloatArray | None, FloatArray]:
    """Measure the factor on a row's weights, and each head's sink, a key without value, or None.

    Returns the factor, the logit of each head's sink, and the error of each logit.

    Compares rows of equal logits: about −4 (0 where that leaves no weight) and 16 or more, or −¼
    of a cosine's scale and the scale. `unit`: logits per unit of q·k, for q and k of length √d;
    `cap` bounds them; `seen`: how many keys a row counts for in each head, fewer under a bias.
    Large logits leave a sink less; a factor is the same for all.
    """
    eps, off, root = 4.0 * subject.eps, subject.stored_error, math.sqrt(subject.size.dimension)
    most = root if subject.normalises else max(16.0 / abs(unit), 1.0) / root

    def asked(shift: float) -> tuple[float, FloatArray]:
        shift = float(near(shift))
        q, k = equal_keys(subject, length, length, shift)
        logit = unit * (shift * root if subject.normalises else float(q[0, 0] @ k[0, 0]))
        logit = logit if cap == math.inf else cap * math.tanh(logit / cap)
        return logit, row_sums(subject, q, k)[:, -1]

    least, low = asked(-math.copysign(most, unit) / 4.0)
    for _ in range(4):  # until a sink takes little
        largest, high = asked(math.copysign(most, unit))
        if subject.normalises or (np.abs(asked(0.0)[1] / high - 1.0) < 0.5).all():
            break
        most *= 2.0
    if (low <= NONE).any():
        least, low = asked(0.0)
    if (np.abs(low / high - 1.0) < 4.0 * eps).all() or not (low > 0.0).all():
        return of_heads(high, (eps + off) * high), None, eps * high
    # 1/s = (1 + e^{b − t}/n)/c at two logits t gives b and c, in each head.
    by, above = math.exp(-least) - math.exp(-largest), 1.0 / high
    grows = np.maximum(1.0 / low - above, 1e-300) / by
    start = np.maximum(above - grows * math.exp(-largest), 1e-300)
    error = eps * (1.0 / low + above) / by
    factor_error = (eps * above + error * math.exp(-largest)) / start
    sink = np.log(seen * grows / start)
    factor = of_heads(1.0 / start, (factor_error + off) / start)
    return factor, sink, error / grows + factor_error + 2.0 * off * abs(least)


@np.errstate(invalid="ignore", divide="ignore")  # rows of a broken kernel
def sums(
    subject: Subject, length: int, unit: float, factor: float, *, whole: bool
) -> dict[str, float]:
    """Return the sum of the first or last row's weights for some logits, by what a wrong one means.

    The rows between have logits of 0; −1e5 is asked only of a `whole` float, float32 or wider. The
    last is `factor` times the ratio of a random row's sum to that among copies of the row, which is
    1 unless other rows or heads count.
    """
    query, key = equal_keys(subject, length, length)
    rising = torch.linspace(-1.0, 1.0, length, dtype=torch.float64)
    some = torch.where(torch.arange(length) % 64 == 0, 1.0, -1.0).double()
    low = torch.full((length,), -1.0).double()
    values = {}
    for why, order, logit in (
        ("keys in rising order: sums are not rescaled by the largest so far", rising, 8.0),
        ("a few larger keys: the sum has too few digits", some, 0.75),
        ("all logits are -200: the largest is not that of the row", low, 200.0),
        ("all logits are -1e5: the largest is not that of the row", low, 1e5),
    ):
        if order is low and (subject.normalises or (logit > 1e3 and not whole)):
            continue
        q, k = torch.zeros_like(query), key.clone()
        k[..., 0] = order
        q[:, [0, -1], 0] = 1.0 if subject.normalises else float(near(logit / unit))
        answer = row_sums(subject, q, k)[:, [0, -1]].ravel()
        values[why] = float(answer[np.argmax(np.abs(answer - np.median(answer)))])
    if subject.stored is not None:  # small weights may be rounded to 0
        return values
    random = torch.Generator().manual_seed(0)
    q, k = (torch.randn(t.shape, generator=random, dtype=torch.float64) for t in (query, key))
    if not subject.normalises:
        q *= float(near(2.0 / (abs(unit) * math.sqrt(subject.size.dimension))))
    alone = q[-1:, -1:].expand_as(q), k[-1:].expand_as(k)
    together, same = (row_sums(subject, *pair)[-1, -1] for pair in ((q, k), alone))
    why = "the sum or the largest logit is of other rows or heads"
    return values | {why: factor * float(together / same)}


def blocks(subject: Subject, unit: float, cap: float) -> int | None:
    """Measure the block size, 8 to 512, to which zero keys are padded and counted, or None."""
    counted = {}
    for n in (17, 12, 9):  # a sink is none, or other blocks
        seen = np.full(subject.size.heads, float(n))
        _, sink, _ = total(subject, n, unit, cap, seen)
        if sink is None:
            return None
        counted[n] = float(np.exp(np.median(sink)))
    for block in (8, 16, 32, 64, 128, 256, 512):
        if all(math.isclose(m, -n % block, rel_tol=0.02) for n, m in counted.items()):
            return block
    return None


class Mask(NamedTuple):
    """Hold the effect of an argument that hides keys."""

    true_means: str
    """What True says of a key: "seen", "hidden", "1" where it is added as that number, "nothing"
    where it is not heeded, "not taken"."""
    multiplier: Interval | None
    """What multiplies a number in the mask before it is added to a logit; None if it takes none, or
    takes it as True or False."""
    total: float
    """What the weights add up to where a mask hides no key, over that without a mask."""
    hidden_row: str
    """What a row gives that a mask hides whole: "NaN", "0", or "numbers"; "unknown"."""
    even: bool
    """Whether all keys keep their shares where a mask hides none."""
    kind: torch.dtype
    """What True and False are given as: bool, or as 1 and 0 where it takes none."""


@np.errstate(invalid="ignore", divide="ignore")  # rows that are hidden whole
def mask(subject: Subject, length: int, unit: float) -> Mask:
    """Measure what a mask does: hide the first key, add 2 to another's logit, hide a whole row.

    Logits are about 2, so that a number in place of one differs from a number that is added.
    """
    q, k = equal_keys(subject, length, length, _component(subject, unit, 2.0))
    groups = torch.arange(length).clamp(max=2)
    shown = torch.ones(1, 1, length, length, dtype=torch.bool, device=subject.device)
    added = torch.zeros_like(shown, dtype=subject.of_masks)

    def masked(mask: Tensor, row: int = -1) -> FloatArray | None:
        with suppress(ValueError):  # it may not take a mask of this kind
            return subject.masked(mask).weights(q, k, groups)[:, row]
        return None

    each = subject.weights(q, k, groups)[:, -1]
    usual = each.sum(axis=-1)
    before = masked(added)
    answers = [answer for answer in (masked(shown), before) if answer is not None]
    shares = [float((answer.sum(axis=-1) / usual).min()) for answer in answers]
    kept = [answer / each for answer in answers if (answer.sum(axis=-1) > 0.0).all()]
    even = all((np.nanmin(x, -1) > 0.99 * np.nanmax(x, -1)).all() for x in kept)
    total = min((share for share in shares if share > 0.0), default=1.0)  # 0 where True hides
    shown[..., 0], added[..., 1] = False, 2.0
    hidden, after = masked(shown), masked(added)
    if hidden is None:  # it may compute with 0 and 1
        shown = shown.to(subject.of_masks)
        hidden = masked(shown)
    true_means, whole = "not taken", None
    if hidden is not None:
        left = hidden / each
        adds_as_is = np.abs(np.log(left[:, 1] / left[:, 0]) - 1.0) < 0.02 + 16.0 * subject.eps
        true_means = "1" if adds_as_is.all() else "nothing"
        if (left[:, 1:] < 1e-30).all():
            true_means = "hidden"
        if (left[:, 0] < 1e-30).all():
            true_means = "seen"
        if true_means in ("seen", "hidden"):
            shown[:], shown[..., length // 2, :] = true_means != "hidden", true_means == "hidden"
            whole = masked(shown, length // 2)
    row = "unknown"
    if whole is not None:
        row = "0" if not whole.any() else "numbers"
        row = row if np.isfinite(whole).all() else "NaN"
    multiplier = None
    if before is not None and after is not None:
        change = np.log(after[:, 1] / after[:, 0]) - np.log(before[:, 1] / before[:, 0])
        if np.isfinite(change).all():  # else 0 hides keys, or another number does
            multiplier = of_heads(change / 2.0, 4.0 * subject.eps)
    return Mask(true_means, multiplier, min(total, 1.0), row, even, shown.dtype)


def _component(subject: Subject, unit: float, logit: float) -> float:
    """Return which component of a key gives it about that logit, or at most what it can."""
    root = math.sqrt(subject.size.dimension)
    most = root / 2.0 if subject.normalises else math.inf
    return float(near(min(logit / (abs(unit) * root), most)))


def hidden_counts(subject: Subject, hidden: Tensor, row: int, unit: float) -> float | None:
    """Measure the sum of a row's weights if keys hidden from it have a large logit.

    It is over that at logit 0, the others' logit: 1 if hidden keys do not count. `hidden` is True
    for them; the result is None if all or none are hidden, or no weight is left.
    """
    if not hidden.any() or hidden.all():
        return None
    length, groups = len(hidden), torch.zeros(len(hidden), dtype=torch.long)
    x = math.copysign(_component(subject, unit, 4.0), unit)
    sums = []
    for component in (0.0, x):
        q, k, _ = contents(subject, length, length, hidden.nonzero()[:, 0], component)
        sums.append(subject.weights(q, k, groups)[:, row, 0])
    return float(np.min(sums[1] / sums[0])) if (sums[0] > 0.0).all() else None


def _at_random(subject: Subject, length: int, unit: float) -> list[Tensor]:
    """Return random keys and values, and a random query of each head in all rows; logits of 2."""
    random = torch.Generator().manual_seed(0)
    heads, key_heads, d = subject.size
    shapes = (heads, 1, d), (key_heads, length, d), (key_heads, length, subject.value_size)
    q, k, v = (torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes)
    return [q.expand(-1, length, -1) * float(near(2.0 / (abs(unit) * math.sqrt(d)))), k, v]


def chosen(subject: Subject, length: int, unit: float) -> int:
    """Return how many of `length` random keys have weight in the last row of the first head."""
    q, k, _ = _at_random(subject, length, unit)
    return int((each_weight(subject, q, k)[0, -1] > NONE).sum())


def apart(kernel: Subject, other: Subject, length: int, unit: float) -> float:
    """Measure by how much the last rows of two subjects differ, over the spread of the first's."""
    q, k, v = _at_random(kernel, length, unit)
    first, second = (subject.output(q, k, v)[:, -1] for subject in (kernel, other))
    return float(np.abs(second - first).max() / first.std())


def key_head_of(subject: Subject, length: int, places: np.ndarray, unit: float) -> np.ndarray:
    """Return which head of keys, and of values, each head of queries reads: (heads, 2), −1 if none.

    Each head of keys prefers another of the keys at `places`, which the last query sees; each head
    of values has another unit vector. `unit` is the scale.
    """
    heads, key_heads, d = subject.size
    pairs = np.full((heads, 2), -1)
    at_once = min(len(places), d - 1)
    q, plain = equal_keys(subject, length, length)
    size = math.sqrt(d) if subject.stored is None else 2.0
    if subject.stored is not None:
        q[..., 0] = float(near(2.0 / abs(unit)))
    for first in range(0, key_heads, at_once):
        batch = np.arange(first, min(first + at_once, key_heads))
        k = plain.clone()
        groups = torch.full((length,), len(batch))
        v = torch.zeros(key_heads, length, d, dtype=torch.float64)
        for group, (head, place) in enumerate(zip(batch, places[::-1], strict=False)):
            groups[place] = group
            k[head, place, :] = 0.0
            k[head, place, 0] = math.copysign(size, unit)
            v[head, :, group] = 1.0
        before, after = (subject.weights(q, t, groups)[:, -1] for t in (plain, k))
        values = subject.output(q, plain, v)[:, -1, : len(batch)]
        for kind, gain in enumerate((after[:, : len(batch)] - before[:, : len(batch)], values)):
            best = gain.argmax(axis=-1)
            sure = gain.max(axis=-1) > 1e-6 * values.sum(axis=-1)
            pairs[sure, kind] = batch[best[sure]]
    return pairs


def dropout(subject: Subject, length: int) -> float | None:
    """Measure the share of weights dropped, 0 if none; None if calls differ otherwise.

    If both calls drop the same ones, rows' sums differ, and weights are those of fewer keys.
    """
    q, k = equal_keys(subject, length, length)
    first, second = (subject.weights(q, k, torch.arange(length)) for _ in range(2))
    if np.array_equal(first, second, equal_nan=True):
        sums, largest = (each[:, length // 2 :] for each in (first.sum(-1), first.max(-1)))
        for seen in (length, np.arange(length // 2, length) + 1.0):
            times = largest * seen
            if np.ptp(sums) > 0.05 and 1.02 < times.max() < 1.01 * times.min():
                return float(1.0 - 1.0 / times.max())
        return 0.0
    visible = np.maximum(first, second)[:, -1]
    dropped = np.stack([first, second])[:, :, -1] == 0.0
    kept = visible[visible > 0.0]
    if dropped.any() and np.ptp(kept) < 1e-2 * kept.max():
        return float(1.0 - 1.0 / (kept.mean() * length))
    return None


class Run(NamedTuple):
    """Hold how many keys a query sees at the beginning, and up to its own; (0, all) if all."""

    first: int
    last: int


def run(subject: Subject, length: int, place: int, queries: int, *, even: bool) -> Run:
    """Return the keys up to its own that a query sees; `even`: equal keys have equal weights."""
    ask = partial(first_key, subject, length, place - length + queries, queries)
    hidden = ask(place=place) if even else 0
    if hidden > place:
        return Run(0, place + 1)
    return Run(hidden, max(0, place + 1 - ask(start=hidden)))


def first_key(
    subject: Subject,
    length: int,
    row: int,
    queries: int,
    *,
    start: int = 0,
    place: int | None = None,
    back: bool = False,
) -> int:
    """Return the first key that a row sees; given its own `place`, the first that it does not.

    Those before `start` are left out. `length` if there is none; `back` counts from the end.
    """
    q, k = equal_keys(subject, queries, length)
    first, size, keys = start, length - start, np.arange(length)
    own = np.zeros((1, 1))
    if place is not None:
        own = subject.weights(q, k, torch.from_numpy(keys == place).long())[:, row, 1:]
    while True:
        parts = min(subject.size.dimension - 1, size)
        edges = first + np.arange(parts + 1) * size // parts
        at = np.searchsorted(edges, keys, side="right") - 1
        groups = torch.from_numpy(np.where(at < 0, parts, np.minimum(at, parts)))
        weights = subject.weights(q, k, groups.flip(0) if back else groups)[:, row, :parts]
        wanted = (weights > NONE).any(axis=0)
        if place is not None:
            sizes = np.diff(edges)
            missing = sizes - weights / np.maximum(own, NONE)
            wanted = (missing > 0.5 + 8.0 * subject.eps * sizes).any(axis=0)
        if not wanted.any():
            return length
        part = int(np.flatnonzero(wanted)[0])
        if parts == size:
            return int(edges[part])
        before = max(part - 1, 0) if place is not None else part  # a few may be lost in rounding
        first, size = int(edges[before]), int(edges[part + 1] - edges[before])


def precision(subject: Subject, unit: float, length: int, *, apart: bool) -> tuple[float, bool]:
    """Measure how logits up to 1000 are rounded, from two keys whose logits differ by little.

    Returns how many binary digits of a logit are not rounded away, and whether weights are finite.
    A cubic in their product follows any scale and the bend of a cap; what it leaves is rounding.
    `apart` is for keys that are kept in few digits, as in `contents`.
    """
    d, worst, finite = subject.size.dimension, 0.0, True
    places = torch.tensor([length - 1])
    for logit in (100.0, 300.0, 1000.0):
        shift = logit / (unit * math.sqrt(d))
        odds, products = [], []
        for part in np.linspace(-1.2, 1.2, 9):  # by which logits differ
            x = part / (abs(unit) * math.sqrt(d))
            q, k, _ = contents(subject, length, length, places, x, shift=shift, apart=apart)
            odds.append(log_odds(subject, q, k, places, places).ravel())
            every = k[0] @ q[0, 0]  # q·k, also where the scale is that of a cosine
            products.append(float(every[-1] - every[0]))
            if not np.isfinite(odds[-1]).all():  # weights of 0 are none of its faults
                total = subject.weights(q, k, torch.zeros(length, dtype=torch.long))
                finite = finite and bool(np.isfinite(total).all())
        answers, powers = np.array(odds), np.vander(np.array(products) * unit, 4)
        if np.isfinite(answers).all() and np.isfinite(powers).all():
            fit = np.linalg.lstsq(powers, answers, rcond=None)[0]
            worst = max(worst, float(np.abs(answers - powers @ fit).max()) / logit)
    return -math.log2(max(worst, 2.0**-53)), finite
