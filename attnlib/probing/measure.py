"""Measure the rows of one call of attention, with memory linear in the number of keys.

The scores are computed once more from q and k, a block of queries at a time, in float32 or wider.
Of each row a few sums over its keys are kept. Weights are relative to that of the second largest
logit, and the largest is left out of the sums: so 1 − Σp² keeps its digits where attention is
nearly one-hot.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlib._checking import FloatArray
from attnlib.models.attention_call import HIDDEN, causal_bias
from attnlib.models.torch_internals import hidden_from_modes

BLOCK = {"cpu": 2**18}
"""Scores computed at a time, as many as fit the cache."""
BLOCK_ON_GPU = 2**24

CAUSAL_ROWS = 64
"""Rows of a causal mask computed at a time: with more of them more scores are hidden ones."""

FAR = 1e30
"""Subtracted from hidden logits, and the largest is set to −FAR: their weights are 0."""

LOG2_E = 1.0 / math.log(2.0)


class Queries(NamedTuple):
    """Hold properties of the queries of a call: arrays (sequences, queries), None if unknown."""

    real: Tensor | None = None  # False where the query is padding
    target: Tensor | None = None  # position of the intended key, −1 for none


class Call(NamedTuple):
    """Hold the arguments of a call of scaled_dot_product_attention, and properties of its queries.

    Where attention writes its softmax out, `mask` holds the logits less scale · q·k. Where no
    single number multiplies q·k, `scale` is NaN, and `mask` holds the logits.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    queries: Queries | None = None


class Rows(NamedTuple):
    """Hold statistics of rows, arrays (sequences, heads, queries).

    `target_gap`, `target_weight` and `target_kappa` are NaN in rows without a target.
    """

    keys: FloatArray
    score_variance: FloatArray
    variance: FloatArray  # of the logits
    collision_probability: FloatArray
    entropy: FloatArray
    log_complement: FloatArray  # log(1 − Y)
    largest_logit: FloatArray
    log_sum_exp: FloatArray
    largest_weight: FloatArray
    first_weight: FloatArray  # of the first key that any query of the sequence sees
    output_square: FloatArray
    target_gap: FloatArray
    target_weight: FloatArray
    target_kappa: FloatArray


class Measured(NamedTuple):
    """Hold the statistics of a call: of its rows and its values, d and the scale."""

    rows: Rows
    value_variance: FloatArray  # (sequences, heads)
    dimension: int
    scale: float


@torch.no_grad()
def measure(call: Call, output: Tensor | None) -> Measured:
    """Return the statistics of a call; without `output` the `output_square` of its rows is NaN."""
    device = call.query.device.type
    # Autocast rounds all but double precision before the call.
    rounded = call.query.dtype
    if torch.is_autocast_enabled(device) and rounded != torch.float64:
        rounded = torch.get_autocast_dtype(device)
    with hidden_from_modes(), torch.autocast(device, enabled=False):
        wide = torch.promote_types(rounded, torch.float32)
        q, k, v = (t.to(rounded).to(wide) for t in call[:3])
        if call.enable_gqa:
            k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
        leading = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        heads, dimension = leading[-1] if leading else 1, q.shape[-1]
        scale = 1.0 / math.sqrt(dimension) if call.scale is None else float(call.scale)
        factor = 0.0 if math.isnan(scale) else scale  # NaN: the mask has the logits
        z = q.new_full((q.shape[-2], v.shape[-1]), math.nan) if output is None else output.to(wide)
        queries = call.queries or Queries()

        masks: list[Tensor | None] = [None]
        past = 0 if call.is_causal else causal_bias(call.mask, q.shape[-2], k.shape[-2])
        if call.mask is not None and past is None and _is_causal(call.mask, q, k):
            past = 0
        if call.mask is not None and past is None:
            full = call.mask.expand(*leading[:-1], heads, q.shape[-2], k.shape[-2])
            masks = [full[index] for index in np.ndindex(*leading[:-1])]
            if full.numel() <= 2 * BLOCK["cpu"]:
                masks = [full.reshape(-1, *full.shape[-2:])]

        # Without a mask sequences need not be told apart: all become heads of one.
        tensors = [t.expand(*leading, *t.shape[-2:]) for t in (q, k, v, z)]
        q, k, v, z = (t.reshape(len(masks), -1, *t.shape[-2:]) for t in tensors)
        by_head = [None if t is None else t.repeat_interleave(heads, 0) for t in queries]
        real, target = (
            [None] * len(masks) if t is None else t.reshape(len(masks), -1, t.shape[-1])
            for t in by_head
        )
        blocks = [
            _measure_rows(q[i], k[i], v[i], z[i], mask, heads, past, factor, real[i], target[i])
            for i, mask in enumerate(masks)
        ]
        rows, variances = (torch.cat(parts, dim=-2) for parts in zip(*blocks, strict=True))
    arrays = rows.reshape(rows.shape[0], -1, heads, rows.shape[-1]).float().cpu().numpy()
    return Measured(Rows(*arrays), variances.reshape(-1, heads).cpu().numpy(), dimension, scale)


class Batch:
    """Measure small calls of one shape together: alone each takes a millisecond for any size.

    `on_measured` is called with the layer, number and statistics of each call, in their order.
    """

    def __init__(self, on_measured: Callable[[str, int, Measured], None]) -> None:
        self.on_measured = on_measured
        self._waiting: list[tuple[str, int, tuple[Any, ...]]] = []  # with copies of tensors
        self._form: Any = None  # their shapes and the other arguments

    @torch.no_grad()
    def take(self, layer: str, number: int, call: Call, output: Tensor) -> None:
        """Measure call `number` of a layer: a large one now, a small one with later ones."""
        q, k, v, mask = call[:4]
        alike = all(t.shape[:-3] == q.shape[:-3] for t in (k, v, output)) and q.ndim > 2
        alike = alike and q.shape[-3] >= k.shape[-3] and causal_bias(mask, 1, 1) is None
        size = max(math.prod(q.shape[:-1]) * k.shape[-2], *(t.numel() for t in (q, k, v, output)))
        if not alike or size > BLOCK["cpu"] or torch.is_autocast_enabled(q.device.type):
            self.finish()
            self.on_measured(layer, number, measure(call, output))
            return
        with hidden_from_modes():
            if mask is not None and _is_causal(mask, q, k):
                call, mask = call._replace(is_causal=True), None
            elif mask is not None:
                mask = mask.expand(*q.shape[:-1], k.shape[-2])
            tensors = q, k, v, output, mask, *(call.queries or Queries())
            shapes = [None if t is None else (t.shape, t.dtype, t.device) for t in tensors]
            form = shapes, dict(zip(Call._fields[4:7], call[4:7], strict=True))
            if form != self._form or size * (len(self._waiting) + 1) > 2 * BLOCK["cpu"]:
                self.finish()
            self._form = form
            copies = tuple(None if t is None else t.detach().clone() for t in tensors)
            self._waiting.append((layer, number, copies))

    def finish(self) -> None:
        """Measure the calls that wait, and give them to `on_measured`."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        layers, numbers, calls = zip(*waiting, strict=True)
        with hidden_from_modes(), torch.autocast(calls[0][0].device.type, enabled=False):
            columns: Any = zip(*calls, strict=True)
            stacked: list[Any] = [
                None if column[0] is None else torch.stack(column) for column in columns
            ]
            q, k, v, output, mask, *query_tensors = stacked
            queries = Queries(*(None if t is None else t.flatten(0, 1) for t in query_tensors))
            measured = measure(Call(q, k, v, mask, **self._form[1], queries=queries), output)
        variances = np.split(measured.value_variance, len(calls))
        rows = np.split(np.array(measured.rows), len(calls), axis=1)
        for layer, number, part, variance in zip(layers, numbers, rows, variances, strict=True):
            self.on_measured(layer, number, Measured(Rows(*part), variance, *measured[2:]))


@torch.no_grad()
def logits(call: Call) -> Tensor:
    """Return all logits of a call, (…, heads, queries, keys), −∞ where a key is hidden.

    They are in double precision and all in memory: for a long call use `sample.restrict_call`
    first.
    """
    with hidden_from_modes():
        q, k = (t.double() for t in call[:2])
        if call.enable_gqa:
            k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        scale = q.shape[-1] ** -0.5 if call.scale is None else call.scale
        scores = (0.0 if math.isnan(scale) else scale) * (q @ k.mT)
        past = 0 if call.is_causal else causal_bias(call.mask, *scores.shape[-2:])
        mask = call.mask
        if past is not None:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(past)
        if mask is None:
            return scores
        if mask.dtype != torch.bool:
            scores, mask = scores + mask.clamp(min=HIDDEN), mask > HIDDEN
        return scores.masked_fill(~mask, -math.inf)


def _is_causal(mask: Tensor, q: Tensor, k: Tensor) -> bool:
    """Return whether a mask, one for all heads, does nothing but hide keys after i from query i."""
    if mask.numel() != q.shape[-2] * k.shape[-2] or q.shape[-2] != k.shape[-2]:
        return False
    visible = mask if mask.dtype == torch.bool else mask > HIDDEN
    causal = torch.equal(visible, torch.ones_like(visible).tril_())
    return causal and (mask.dtype == torch.bool or not mask.tril().any())


def _measure_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    z: Tensor,
    mask: Tensor | None,
    sequence_heads: int,
    past: int | None,
    scale: float,
    real: Tensor | None,
    target: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the fields of `Rows`, (fields, heads, queries), and the values' variance, (heads, 1).

    q, k, v and outputs z: (heads, queries or keys, size); mask: (heads, queries, keys); real,
    target: (heads, queries). With `past`, query i sees the keys up to past + i. The heads are those
    of one or more sequences, `sequence_heads` of each.
    """
    real = None if real is None or real.all() else real
    dimension = q.shape[-1]
    # A shift of all keys shifts all logits of a row: weights keep more digits without it.
    centre = k.mean(dim=-2, keepdim=True)
    factor = scale * math.sqrt(dimension)
    unit = LOG2_E * (factor or 1.0)  # logits are computed for exp2: exp is slow where it underflows
    k = (k - centre).mul_(unit / math.sqrt(dimension)).mT
    shift = torch.matmul(q, centre.mT).squeeze(-1)
    sums, seen = _sum_in_blocks(q, k, mask, sequence_heads, past, factor != 0.0, real, target)

    seen_weight = seen.to(v.dtype).unsqueeze(-2)
    count = seen_weight.sum(dim=-1, keepdim=True)
    mean = seen_weight @ v / count
    squares = (seen_weight @ (v - mean).square_()).mean(dim=-1).double()
    value_variance = squares / (count[..., 0] - 1.0).clamp(min=1.0)
    lengths = torch.linalg.vector_norm(z - mean, dim=-1)
    output_square = lengths**2 / v.shape[-1] + value_variance / count[..., 0]
    count, *statistics = _row_statistics(sums, factor or 1.0, scale * shift.double())
    if real is not None:
        count = count.where(real, 0.0)
    unknown = (torch.full_like(count, math.nan),) * 3
    of_target = unknown if target is None else _target_statistics(sums, count)
    return torch.stack([count, *statistics, output_square.double(), *of_target]), value_variance


@np.errstate(over="ignore", invalid="ignore")
def _sum_in_blocks(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    sequence_heads: int,
    past: int | None,
    scaled: bool,
    real: Tensor | None,
    target: Tensor | None,
) -> tuple["_Sums", Tensor]:
    """Return the sums of all rows, and True for each key that some query sees, (heads, keys).

    Arguments as in `_measure_rows`, k centred and scaled; `scaled` is False for a factor 0.
    """
    heads, queries, _ = q.shape
    keys = k.shape[-1]
    first_key = torch.zeros(heads, dtype=torch.long, device=q.device)
    if mask is None:
        last = torch.arange(queries, device=q.device).expand(heads, -1)
        last = (last if real is None else last.where(real, -1)).amax(dim=-1, keepdim=True)
        reach = last + (keys if past is None else past)
        seen = (torch.arange(keys, device=q.device) <= reach) & (last >= 0)
    else:
        first_key = _first_seen_key(mask, sequence_heads, real).expand(heads)
        seen = torch.zeros((heads, keys), dtype=torch.bool, device=q.device)
    sums = q.new_empty((len(_Sums._fields), heads, queries))
    budget = BLOCK.get(q.device.type, BLOCK_ON_GPU)
    row_step = min(queries, max(1, budget // keys), queries if past is None else CAUSAL_ROWS)
    buffer = q.new_empty((2, max(budget, row_step * keys)))  # faster than memory for each block
    for row in range(0, queries, row_step):
        stop = keys if past is None else max(1, min(keys, row + row_step + past))
        head_step = max(1, budget // (row_step * stop))
        for head in range(0, heads, head_step):
            block = slice(head, head + head_step), slice(row, row + row_step)
            visible, bias = _visible_keys(mask, past, block, stop, q)
            if bias is not None and visible is not None and real is None and visible.all():
                visible, seen[block[0]] = None, True  # a bias that hides nothing
            if mask is not None and visible is not None:
                counted = visible if real is None else visible & real[block].unsqueeze(-1)
                seen[block[0]] |= counted.any(dim=-2)
            shape = *q[block].shape[:-1], stop
            scores, weights = buffer[:, : math.prod(shape)].view(2, *shape)
            torch.matmul(q[block], k[block[0], :, :stop], out=scores)
            aims = None if target is None else target[block]
            sums[:, *block] = torch.stack(
                _sum_keys(scores, weights, scaled, visible, bias, first_key[block[0], None], aims)
            )
    sums = sums.double()
    sums[_Sums._fields.index("weighted") :] /= LOG2_E
    sums[_Sums._fields.index("logit_square") :] /= LOG2_E
    return _Sums(*sums), seen


def _first_seen_key(mask: Tensor, sequence_heads: int, real: Tensor | None) -> Tensor:
    """Return the position of the first key that some query sees, padding left out, (heads,).

    `real` is False at queries of padding, bool (heads, queries). The `sequence_heads` heads of one
    sequence share the result. A mask that is the same for all heads gives an array (1,).
    """
    hidden = _shared_mask(mask)
    if hidden.stride(-2) == 0:  # the same for all queries
        hidden = hidden[:, :1]
    elif real is not None:
        unseen = False if hidden.dtype == torch.bool else -math.inf
        hidden = hidden.masked_fill(~real[: len(hidden)].unsqueeze(-1), unseen)
    visible = hidden.any(dim=-2) if hidden.dtype == torch.bool else hidden.amax(dim=-2) > HIDDEN
    sequence_heads = min(sequence_heads, len(hidden))
    visible = visible.reshape(-1, sequence_heads, visible.shape[-1]).any(dim=1)
    return visible.to(torch.uint8).argmax(dim=-1).repeat_interleave(sequence_heads)


def _shared_mask(mask: Tensor) -> Tensor:
    """Return a mask with one head if it is expanded over all heads, else unchanged."""
    return mask[:1] if mask.stride(0) == 0 else mask


def _visible_keys(
    mask: Tensor | None,
    past: int | None,
    block: tuple[slice, slice],
    stop: int,
    q: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Return which keys the queries of a block see, and the bias that the mask adds to logits.

    `block` slices heads and queries; its keys end before `stop`. The first result, (1 or heads,
    queries, keys), may hold the last keys only: all queries see those before. None if all see all.
    """
    if mask is not None:
        shown = _shared_mask(mask[block])
        if shown.dtype == torch.bool:
            return shown, None
        bias = shown.to(q.dtype)
        return bias > HIDDEN, bias.clamp(min=HIDDEN)
    if past is None:
        return None, None
    last = past + torch.arange(q.shape[-2], device=q.device)[block[1], None]
    keys = torch.arange(max(0, min(block[1].start + past + 1, stop - 1)), stop, device=q.device)
    return (keys <= last)[None], None


class _Sums(NamedTuple):
    """Hold sums over the keys of each row.

    Weights are in units of the second largest, and the largest is left out of them. Fields from
    `weighted` on are in bits in `_sum_keys`, and in nats in `_row_statistics`.
    """

    number: Tensor  # of the keys that are seen
    weight: Tensor  # of all keys but that of the largest logit
    squares: Tensor  # of those weights
    first: Tensor  # weight of the first key among them
    first_is_largest: Tensor
    weighted: Tensor  # Σ weight · (logit − second)
    largest: Tensor
    second: Tensor
    target: Tensor  # logit of the target, −FAR where the row has none or does not see it
    logit_total: Tensor
    score_total: Tensor  # scores are times the `factor` of `_row_statistics`
    logit_square: Tensor  # in bits²
    score_square: Tensor


def _sum_keys(
    scores: Tensor,
    weights: Tensor,
    scaled: bool,
    visible: Tensor | None,
    bias: Tensor | None,
    first_key: Tensor,
    target: Tensor | None,
) -> _Sums:
    """Return the sums over keys of scores (…, rows, keys); `scores` and `weights` are overwritten.

    Logits are the scores plus the bias, or the bias alone if not `scaled`.
    """
    number = scores.new_full((1,), scores.shape[-1])
    visible_weight = None if visible is None else visible.to(scores.dtype)
    if visible_weight is not None:
        number = scores.shape[-1] - visible_weight.shape[-1] + visible_weight.sum(dim=-1)
        scores[..., -visible_weight.shape[-1] :] *= visible_weight
    total, square = scores.sum(dim=-1), _dot(scores, scores)
    logits = scores if scaled else scores.zero_()
    logit_total, logit_square = total, square
    if bias is not None:
        logits.add_(bias if visible_weight is None else bias * visible_weight, alpha=LOG2_E)
        logit_total, logit_square = logits.sum(dim=-1), _dot(logits, logits)
    if visible_weight is not None:
        logits[..., -visible_weight.shape[-1] :] += (visible_weight - 1.0) * FAR

    target_logit = torch.full_like(total, -FAR)
    if target is not None:
        place = target.clamp(0, logits.shape[-1] - 1)  # where no row sees as far, another key
        target_logit = (
            logits.gather(-1, place.unsqueeze(-1)).squeeze(-1).where(place == target, -FAR)
        )
    place_of_largest = _argmax(logits).unsqueeze(-1)
    largest = logits.gather(-1, place_of_largest).squeeze(-1)
    logits.scatter_(-1, place_of_largest, -FAR)
    second = logits.amax(dim=-1, keepdim=True)
    logits -= second  # what all have in common would cost digits
    torch.exp2(logits, out=weights)
    return _Sums(
        number.expand(total.shape),
        weights.sum(dim=-1),
        _dot(weights, weights),
        weights.gather(-1, first_key.expand(total.shape).unsqueeze(-1)).squeeze(-1),
        (place_of_largest.squeeze(-1) == first_key).to(total.dtype),
        _dot(weights, logits),
        largest,
        second.squeeze(-1),
        target_logit,
        logit_total,
        total,
        logit_square,
        square,
    )


def _argmax(numbers: Tensor) -> Tensor:
    """Return the argmax along the last axis; on a CPU by NumPy, in a tenth of the time."""
    if numbers.device.type == "cpu":
        return torch.from_numpy(np.argmax(numbers.numpy(), axis=-1))
    return numbers.argmax(dim=-1)


def _dot(first: Tensor, second: Tensor) -> Tensor:
    """Return dot products along the last axis; on a CPU by NumPy, which makes no new array."""
    if first.device.type == "cpu":
        return torch.from_numpy(np.vecdot(first.numpy(), second.numpy()))
    products: Tensor = torch.linalg.vecdot(first, second)
    return products


def _row_statistics(sums: _Sums, factor: float, shift: Tensor) -> tuple[Tensor, ...]:
    """Return the fields of `Rows` before `output_square`, from sums in double precision.

    With ε = e^{s₂ − s₁} for the two largest logits s₁, s₂, the other keys have the weights ε f_i in
    units of the largest, and Σ f is `weight`. `shift` is what centring the keys took from logits.
    """
    gap = sums.largest - sums.second
    epsilon = torch.exp(-gap)
    normaliser = 1.0 + epsilon * sums.weight
    collision_probability = (1.0 + epsilon**2 * sums.squares) / normaliser**2
    weighted_gap = sums.weight * gap - sums.weighted  # Σ f (s₁ − s_i)
    entropy = torch.log(normaliser) + epsilon * weighted_gap / normaliser
    pairs = 2.0 * sums.weight + epsilon * (sums.weight**2 - sums.squares)
    log_complement = torch.log(pairs) - gap - 2.0 * torch.log(normaliser)
    largest_logit = sums.largest + shift
    return (
        sums.number,
        _variance(sums.score_total, sums.score_square, sums.number) / factor**2,
        _variance(sums.logit_total, sums.logit_square, sums.number),
        collision_probability,
        entropy,
        log_complement,
        largest_logit,
        largest_logit + torch.log(normaliser),
        1.0 / normaliser,
        torch.where(sums.first_is_largest > 0.5, 1.0, epsilon * sums.first) / normaliser,
    )


def _target_statistics(sums: _Sums, counted: Tensor) -> tuple[Tensor, ...]:
    """Return gap, weight and κ of the target; `counted` is the number of keys, 0 for padding.

    For the target's logit t and the n − 1 other logits ℓ of mean m, the gap is t − m, and
    κ = log(Σ e^ℓ / (n − 1)) − m. The weight is 1/(1 + (n − 1) e^{κ − gap}). NaN without a target.
    """
    log_rest = sums.second + torch.log(sums.weight)  # log Σ e^ℓ of all but the largest
    log_sum_exp = torch.logaddexp(sums.largest, log_rest)
    is_largest = sums.target == sums.largest
    weight = torch.where(
        is_largest, torch.sigmoid(sums.largest - log_rest), torch.exp(sums.target - log_sum_exp)
    )
    log_others = torch.where(is_largest, log_rest, log_sum_exp + torch.log1p(-weight))
    mean = (sums.logit_total - sums.target) / (sums.number - 1.0)
    kappa = log_others - mean - torch.log(sums.number - 1.0)
    known = (sums.target > -FAR / 2.0) & (counted >= 2.0)
    return tuple(value.where(known, math.nan) for value in (sums.target - mean, weight, kappa))


def _variance(total: Tensor, square: Tensor, number: Tensor) -> Tensor:
    """Return the unbiased variance of numbers from their sum and the sum of their squares."""
    deviations = square - total**2 / number.clamp(min=1.0)
    return deviations.clamp(min=0.0) / (number - 1.0).clamp(min=1.0)
