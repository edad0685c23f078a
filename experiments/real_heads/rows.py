"""The rows of attention of a model: some rows of each call, with all their measures.

Tests compare them with `attnlib.probing`, whose calls and logits these are. In addition there are
rows without their first key, κ'(1) of the other keys, the loss of a row at other multipliers, and
several targets at once.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from scipy.interpolate import RectBivariateSpline
from torch import Tensor, nn
from torch.nn import functional

from attnlib import exact
from attnlib._checking import FloatArray
from attnlib.probing.measure import Call
from attnlib.probing.measure import logits as measure_logits
from attnlib.probing.observer import Observer
from attnlib.probing.sample import restrict_call
from attnlib.probing.tokens import Places, last_occurrence
from attnlib.scores import Normal

T = TypeVar("T")

Table = dict[str, FloatArray]
"""Arrays over (layers · heads, rows)."""

TIMES = (0.5, 2**-0.5, 2**-0.25, 1.0, 2**0.25, 2**0.5, 2.0)
"""Multipliers of the logits."""

HALVINGS = 24
"""Steps of the search for the multiplier at which the largest weight is a half."""

LARGEST_ALPHA = 60.0
"""Random rows of a larger α count as rows of this one: all are frozen."""


@torch.no_grad()
def map_calls(model: nn.Module, ids: Sequence[int], see: Callable[[Call, Tensor], T]) -> list[T]:
    """Run the model on a text, and return `see` of each call of attention and its output."""
    results: list[T] = []
    inside: Any = model.base_model  # no logits over the vocabulary
    observer = Observer(inside, lambda layer, number, call, out: results.append(see(call, out)))
    with observer.at_work():
        inside(torch.tensor([list(ids)]))
    return results


def measure(
    model: nn.Module,
    ids: Sequence[int],
    places: Places,
    see: Callable[[Tensor, Tensor, Tensor], dict[str, Table]],
) -> dict[str, Table]:
    """Run the model on a text, and return tables of its rows at some places.

    `see` returns those of a call from its logits, (heads, rows, keys), −∞ for hidden keys, the
    values, (heads, keys, d), and the outputs, (heads, rows, d).
    """

    def tables(call: Call, output: Tensor) -> dict[str, Table]:
        chosen, outs = restrict_call(call, output, [0], places)
        logits, values = measure_logits(chosen)[0], chosen.value[0].double()
        values = values.repeat_interleave(len(logits) // len(values), 0)
        return see(logits, values, outs[0].double())

    results = map_calls(model, ids, tables)
    return {
        name: {
            column: np.concatenate([of_call[name][column] for of_call in results])
            for column in table
        }
        for name, table in results[0].items()
    }


def _moments(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and variance (n − 1) of the logits that are seen, and these minus the mean."""
    seen = logits > -math.inf
    number = seen.sum(-1)
    mean = torch.where(seen, logits, 0.0).sum(-1) / number
    centred = torch.where(seen, logits - mean[..., None], -math.inf)
    squares = torch.where(seen, centred, 0.0).square().sum(-1)
    return mean, squares / (number - 1).clamp(min=1), centred


def row_table(logits: Tensor, values: Tensor, outs: Tensor) -> Table:
    """Return the numbers of rows, those named `rest` without the first key."""
    weights, rest = logits.softmax(-1), logits[..., 1:]
    # The values that a row sees: their mean and mean square, by sums over the keys.
    counts = (logits > -math.inf).to(values.dtype)
    number = counts.sum(-1)
    mean = counts @ values / number[..., None]
    square = (counts @ values.square()).sum(-1) / number - mean.square().sum(-1)
    spread = square * number / (number - 1.0).clamp(min=1.0)
    output = (outs - mean).square().sum(-1) + spread / number
    columns = {
        "n": number,
        "variance": _moments(logits)[1],
        "variance_rest": _moments(rest)[1],
        "collision": weights.square().sum(-1),
        "collision_rest": rest.softmax(-1).square().sum(-1),
        "entropy": torch.special.entr(weights).sum(-1),
        "first": weights[..., 0],
        "output_ratio": output / spread.clamp(min=1e-30),
    }
    return {name: column.numpy() for name, column in columns.items()}


def needle_table(logits: Tensor, needles: Places, ahead: Sequence[int] = ()) -> Table:
    """Return the numbers of each row's needle, a key in `needles`; NaN where that is −1.

    With the needle's logit t, m the mean of the others but the first, κ(s) = log of the mean of
    e^{s(ℓ − m)} over them: gap t − m, their variance, slope κ'(1), all named rest, and the loss
    −log P at each of TIMES; sink is the logit of the first key minus m. Ahead at n: the loss with n
    keys, if the others are as in this row, and the first key is counted apart.
    """
    place = torch.from_numpy(np.maximum(needles, 0)).expand(logits.shape[:2])[..., None]
    target = logits.gather(-1, place)
    known = torch.from_numpy(needles > 0) & (target[..., 0] > -math.inf)
    known &= (logits > -math.inf).sum(-1) >= 4
    others = logits.scatter(-1, place, -math.inf)
    mean, variance, centred = _moments(others[..., 1:])
    gap = target[..., 0] - mean
    kappa = centred.logsumexp(-1) - (centred > -math.inf).sum(-1).double().log()
    beside = others - target
    sink, crowd = beside[..., 0], kappa - gap
    columns = {
        "gap_rest": gap,
        "variance_rest": variance,
        "slope_rest": (centred.softmax(-1) * centred.clamp(min=-1e300)).sum(-1),
        "sink": logits[..., 0] - mean,
        **{f"loss {t:.3g}": functional.softplus((t * beside).logsumexp(-1)) for t in TIMES},
        "weight": torch.sigmoid(-beside.logsumexp(-1)),
    }
    for n in ahead:
        columns[f"ahead {n}"] = functional.softplus(torch.logaddexp(sink, crowd + math.log(n - 2)))
    return {name: column.where(known, math.nan).numpy() for name, column in columns.items()}


def tail_table(logits: Tensor) -> Table:
    """Return n, range, largest weight, Λ and half of each row; logits are −∞ for hidden keys.

    With N(t) the keys whose logit is within t of the largest, Λ is the least number with N(t) ≤
    e^{Λt} for every t (arXiv 2605.12697). Half is the multiplier of the logits at which the largest
    weight is ½. By the law it is at most 2Λ.
    """
    n = (logits > -math.inf).sum(-1)
    gaps = logits.amax(-1, keepdim=True) - logits.sort(dim=-1, descending=True).values
    counts = torch.arange(1, gaps.shape[-1] + 1, dtype=gaps.dtype).log()
    slopes = counts[1:] / gaps[..., 1:]
    tail = slopes.amax(-1)
    low, high = tail.log() - HALVINGS * math.log(2.0), (2.0 * tail).log()
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        above = (-middle.exp()[..., None] * gaps).exp().sum(-1) > 2.0
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return {
        "n": n.double().numpy(),
        "range": torch.where(gaps < math.inf, gaps, 0.0).amax(-1).numpy(),
        "largest": 1.0 / (-gaps).exp().sum(-1).numpy(),
        "tail": tail.numpy(),
        "half": ((low + high) / 2.0).exp().numpy(),
    }


# --- random rows ----------------------------------------------------------------------------------


@cache
def _random_spline() -> RectBivariateSpline:
    """Return log E Y of normal rows as a function of log n and log(1 + α)."""
    n = np.unique(np.round(2.0 ** np.arange(1.0, 15.1, 0.5)))
    alpha = np.expm1(np.linspace(0.0, math.log1p(LARGEST_ALPHA), 49))
    table = np.log(exact.collision_probability(Normal(), alpha, n[:, None]))
    return RectBivariateSpline(np.log(n), np.log1p(alpha), table)


def random_collision(n: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return the mean collision probability of normal rows with this n and α.

    Interpolated, with a relative error below 1e-3.
    """
    where = np.log(np.maximum(n, 2.0)), np.log1p(np.minimum(alpha, LARGEST_ALPHA))
    return np.asarray(np.exp(_random_spline().ev(*where)))


# --- needles and places ---------------------------------------------------------------------------


def places_at_lengths(lengths: Sequence[int], rows: int, seed: int) -> list[Places]:
    """Return places for each length n, at random, whose rows have from ¾ n to n keys."""
    rng = np.random.default_rng(seed)
    return [
        np.sort(rng.choice(np.arange((3 * n) // 4, n), min(rows, n - (3 * n) // 4), replace=False))
        for n in lengths
    ]


def split_by_length(table: Table, places: Sequence[Places]) -> list[Table]:
    """Split a table of the places of all lengths into a table for each length."""
    ends = np.cumsum([len(group) for group in places])[:-1]
    columns = {name: np.split(column, ends, axis=1) for name, column in table.items()}
    return [{name: columns[name][i] for name in columns} for i in range(len(places))]


def find_needles(ids: Sequence[int], places: Places) -> dict[str, Places]:
    """Return the needles of a text at some places; −1 where there is none.

    previous: the key before the query; same: the last earlier key of the same token; induction: the
    key after that one, unless it is the query's own.
    """
    same = last_occurrence(np.array([ids]), None)[0, places]
    induction = np.where((same >= 0) & (same + 1 < places), same + 1, -1)
    return {"previous": places - 1, "same": same, "induction": induction}


def find_needles_in_repeat(ids: Sequence[int], places: Places) -> Places:
    """Return the needle of a text said twice: the key after the token's first place, or −1."""
    half = len(ids) // 2
    return np.where(places >= half, places - half + 1, -1)
