"""The rows of attention of a model: some of each call, with all that is asked of them.

Beside what `attnlib.probing` measures of a row and of its target (tests compare them): the rows
without their first key, κ'(1) of the other keys, the loss of a row at other multipliers, and
several targets at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import RectBivariateSpline
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnlib import exact
from attnlib.checking import FloatArray
from attnlib.probing.measure import Call
from attnlib.probing.measure import logits as measure_logits
from attnlib.probing.observer import Observer
from attnlib.probing.sample import choose
from attnlib.scores import Normal

T = TypeVar("T")

Places = NDArray[np.int64]
Table = dict[str, FloatArray]
"""Arrays over (layers · heads, rows)."""

TIMES = (0.5, 2**-0.5, 2**-0.25, 1.0, 2**0.25, 2**0.5, 2.0)
"""Multipliers of the logits."""

LARGEST_ALPHA = 60.0
"""Random rows of a larger α are taken as of this one: all are frozen."""


@torch.no_grad()
def of_each_call(model: nn.Module, ids: Sequence[int], see: Callable[[Call, Tensor], T]) -> list[T]:
    """Run the model on a text, and return what is seen of each call of attention and its output."""
    found: list[T] = []
    inside = getattr(model, "base_model", model)  # no logits over the vocabulary
    known: Any = getattr(model, "config", None)
    cache = {"use_cache": False} if getattr(known, "use_cache", False) else {}
    observer = Observer(inside, lambda layer, number, call, out: found.append(see(call, out)))
    with observer.at_work():
        inside(torch.tensor([list(ids)]), **cache)
    return found


def measure(
    model: nn.Module,
    ids: Sequence[int],
    places: Places,
    needles: Mapping[str, Places] | None = None,
    ahead: Sequence[int] = (),
) -> tuple[Table, dict[str, Table]]:
    """Run the model on a text, and return what its rows at some places are.

    `needles` has the key that is meant at each of the places, −1 for none; of each a table is
    returned, NaN where there is none. `ahead` are lengths for which its loss is foretold.
    """
    meant = needles or {}

    def see(call: Call, output: Tensor) -> tuple[Table, dict[str, Table]]:
        logits, values, outs = rows_of(call, output, places)
        of_needles = {name: needle_table(logits, at, ahead) for name, at in meant.items()}
        return row_table(logits, values, outs), of_needles

    tables, of_needles = zip(*of_each_call(model, ids, see), strict=True)
    return joined(tables), {name: joined([one[name] for one in of_needles]) for name in meant}


def joined(parts: Sequence[Table]) -> Table:
    """Return the tables of all calls as one."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def rows_of(call: Call, output: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of some rows, −∞ for hidden keys, the values, and the outputs."""
    chosen, outs = choose(call, output, [0], places)
    logits, values = measure_logits(chosen)[0], chosen.value[0].double()
    return logits, values.repeat_interleave(len(logits) // len(values), 0), outs[0].double()


def _moments(logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return number, mean and variance (n − 1) of the logits that are seen, and these less it."""
    seen = logits > -math.inf
    number = seen.sum(-1)
    mean = torch.where(seen, logits, 0.0).sum(-1) / number
    centred = torch.where(seen, logits - mean[..., None], -math.inf)
    squares = torch.where(seen, centred, 0.0).square().sum(-1)
    return number.double(), mean, squares / (number - 1).clamp(min=1), centred


def row_table(logits: Tensor, values: Tensor, outs: Tensor) -> Table:
    """Return the numbers of rows; those named rest are without the first key."""
    number, _, variance, _ = _moments(logits)
    weights, rest = logits.softmax(-1), logits[..., 1:]
    # The values that a row sees: their mean and mean square, by sums over the keys.
    counts = (logits > -math.inf).to(values.dtype)
    mean = counts @ values / number[..., None]
    square = (counts @ values.square()).sum(-1) / number - mean.square().sum(-1)
    spread = square * number / (number - 1.0).clamp(min=1.0)
    output = (outs - mean).square().sum(-1) + spread / number
    found = {
        "n": number,
        "variance": variance,
        "variance_rest": _moments(rest)[2],
        "collision": weights.square().sum(-1),
        "collision_rest": rest.softmax(-1).square().sum(-1),
        "entropy": torch.special.entr(weights).sum(-1),
        "largest_logit": logits.amax(-1),
        "first": weights[..., 0],
        "output_ratio": output / spread.clamp(min=1e-30),
    }
    return {name: one.numpy() for name, one in found.items()}


def needle_table(logits: Tensor, at: Places, ahead: Sequence[int] = ()) -> Table:
    """Return the numbers of a needle; those named rest leave the first key out of the others.

    With the needle's logit t, m the mean of the others, κ(s) = log of the mean of e^{s(ℓ − m)}: gap
    t − m, variance of the others, kappa κ(1), slope κ'(1), and the loss −log P at each of TIMES;
    sink is the logit of the first key, less the mean of the rest.
    Ahead at n: the loss with n keys of which the others are as here, the first key for itself.
    """
    place = torch.from_numpy(np.maximum(at, 0)).expand(logits.shape[:2])[..., None]
    known = torch.from_numpy(at > 0) & (logits.gather(-1, place)[..., 0] > -math.inf)
    known &= (logits > -math.inf).sum(-1) >= 4
    meant = logits.gather(-1, place)
    others = logits.scatter(-1, place, -math.inf)
    found: dict[str, Tensor] = {}
    for name, some in (("", others), ("_rest", others[..., 1:])):
        number, mean, variance, centred = _moments(some)
        kappa = centred.logsumexp(-1) - number.log()
        slope = (centred.softmax(-1) * centred.clamp(min=-1e300)).sum(-1)
        found |= {
            f"gap{name}": meant[..., 0] - mean,
            f"variance{name}": variance,
            f"kappa{name}": kappa,
            f"slope{name}": slope,
        }
    found["sink"] = torch.where(torch.from_numpy(at) > 0, logits[..., 0] - mean, math.nan)
    beside = others - meant
    for time in TIMES:
        found[f"loss {time:.3g}"] = functional.softplus((time * beside).logsumexp(-1))
    found["weight"] = torch.sigmoid(-beside.logsumexp(-1))
    found["first"] = logits.softmax(-1)[..., 0]
    sink = beside[..., 0]
    crowd = found["kappa_rest"] - found["gap_rest"]
    for n in ahead:
        found[f"ahead {n}"] = functional.softplus(torch.logaddexp(sink, crowd + math.log(n - 2)))
    return {name: one.where(known, math.nan).numpy() for name, one in found.items()}


# --- random rows ----------------------------------------------------------------------------------


@cache
def _random() -> dict[str, RectBivariateSpline]:
    """Return log E Y and E H of normal rows as functions of log n and log(1 + α)."""
    n = np.unique(np.round(2.0 ** np.arange(1.0, 15.1, 0.5)))
    alpha = np.expm1(np.linspace(0.0, math.log1p(LARGEST_ALPHA), 49))
    law = Normal()
    tables = {
        "collision": np.log(exact.collision_probability(law, alpha, n[:, None])),
        "entropy": exact.entropy(law, alpha, n[:, None]),
    }
    nodes = np.log(n), np.log1p(alpha)
    return {name: RectBivariateSpline(*nodes, table) for name, table in tables.items()}


def random(n: FloatArray, alpha: FloatArray) -> Table:
    """Return collision probability and entropy of normal rows of the same n and α, in the mean.

    Interpolated; the error is below 1e-3 of either.
    """
    where = np.log(np.maximum(n, 2.0)), np.log1p(np.minimum(alpha, LARGEST_ALPHA))
    log_y, entropy = (_random()[name].ev(*where) for name in ("collision", "entropy"))
    return {"collision": np.exp(log_y), "entropy": entropy}


# --- needles and places ---------------------------------------------------------------------------


def at_lengths(lengths: Sequence[int], rows: int, seed: int) -> tuple[Places, Places]:
    """Return places whose rows have about each of the lengths, from ¾ of it up, and which."""
    rng = np.random.default_rng(seed)
    places, which = [], []
    for i, n in enumerate(lengths):
        low = (3 * n) // 4
        chosen = np.sort(rng.choice(np.arange(low, n), min(rows, n - low), replace=False))
        places.append(chosen)
        which.append(np.full(len(chosen), i))
    return np.concatenate(places), np.concatenate(which)


def meant(ids: Sequence[int], places: Places) -> dict[str, Places]:
    """Return the needles of a text at some places; −1 where there is none.

    previous: the key before; same: the last earlier one of the same token; induction: the one
    after that, if it is not the query's own.
    """
    last: dict[int, int] = {}
    earlier = np.full(len(ids), -1)
    for i, token in enumerate(ids):
        earlier[i] = last.get(token, -1)
        last[token] = i
    same = earlier[places]
    induction = np.where((same >= 0) & (same + 1 < places), same + 1, -1)
    return {"previous": places - 1, "same": same, "induction": induction}


def repeated(ids: Sequence[int], places: Places) -> dict[str, Places]:
    """Return the needle in a text that is said twice: the key after the token's first place."""
    half = len(ids) // 2
    return {"repeat": np.where(places >= half, places - half + 1, -1)}


class Multiplied(TorchFunctionMode):
    """A context that multiplies the logits of each layer and head, by (layers, heads)."""

    def __init__(self, factors: Tensor) -> None:
        super().__init__()
        self.factors, self.number = factors, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is functional.scaled_dot_product_attention:
            factor = self.factors[self.number % len(self.factors)]
            self.number += 1
            args = (args[0] * factor[:, None, None], *args[1:])
        return func(*args, **(kwargs or {}))
