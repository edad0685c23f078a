"""The rows of attention of a model: some of each call, with all that is asked of them.

It is a small probe of its own. `attnlib.probing` has the same numbers of a row and of its target
(tests compare them); what it has not is asked here: the rows without their first key, κ(t) and
κ'(1) of the other keys, the loss of a row at other multipliers, and several targets at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import RectBivariateSpline
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnlib import exact
from attnlib.checking import FloatArray
from attnlib.scores import Normal

Places = NDArray[np.int64]
Table = dict[str, FloatArray]
"""Arrays over (layers · heads, rows)."""

TIMES = (0.5, 2**-0.5, 2**-0.25, 1.0, 2**0.25, 2**0.5, 2.0)
"""Multipliers of the logits."""

LARGEST_ALPHA = 60.0
"""Random rows of a larger α are taken as of this one: all are frozen."""

HIDDEN = -1e4
"""What a mask adds to hide a key, at least."""


class Attention(TorchFunctionMode):
    """Has a function run each call of attention, which gets its number and its arguments."""

    def __init__(self, run: Callable[..., Tensor]) -> None:
        super().__init__()
        self.run = run
        self.number = 0

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.number += 1
        return self.run(self.number - 1, *args, **(kwargs or {}))


@torch.no_grad()
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
    found: list[Table] = []
    of_needles: list[dict[str, Table]] = []

    def see(number: int, *args: Any, **named: Any) -> Tensor:
        out = functional.scaled_dot_product_attention(*args, **named)
        logits, values, outs = _rows(places, out, *args, **named)
        found.append(_row_table(logits, values, outs))
        of_needles.append(
            {name: _needle_table(logits, at, ahead) for name, at in (needles or {}).items()}
        )
        return out

    inside = getattr(model, "base_model", model)  # no logits over the vocabulary
    with Attention(see):
        inside(torch.tensor([list(ids)]), **_without_cache(model))
    return _joined(found), {
        name: _joined([one[name] for one in of_needles]) for name in needles or ()
    }


def _without_cache(model: nn.Module) -> dict[str, Any]:
    known: Any = getattr(model, "config", None)
    return {"use_cache": False} if getattr(known, "use_cache", False) else {}


def _joined(parts: list[Table]) -> Table:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _rows(
    places: Places,
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of some rows, −∞ for hidden keys, the values, and the outputs."""
    q, k, v, z = query[0], key[0], value[0], out[0]
    k, v = (t.repeat_interleave(len(q) // len(t), 0) for t in (k, v))
    at = torch.from_numpy(places)
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    logits = (q[:, at].double() @ k.double().mT) * factor
    if is_causal:
        logits.masked_fill_(torch.arange(k.shape[1]) > at[:, None], -math.inf)
    elif attn_mask is not None:
        mask = attn_mask.expand(1, len(q), q.shape[1], k.shape[1])[0, :, at]
        if mask.dtype == torch.bool:
            logits.masked_fill_(~mask, -math.inf)
        else:
            logits = (logits + mask).masked_fill(mask <= HIDDEN, -math.inf)
    return logits, v.double(), z[:, at].double()


def _moments(logits: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return number, mean and variance (n − 1) of the logits that are seen."""
    number = seen.sum(-1)
    mean = torch.where(seen, logits, 0.0).sum(-1) / number
    squares = torch.where(seen, logits - mean[..., None], 0.0).square().sum(-1)
    return number.double(), mean, squares / (number - 1).clamp(min=1)


def _row_table(logits: Tensor, values: Tensor, outs: Tensor) -> Table:
    """Return the numbers of rows; those named rest are without the first key."""
    seen = logits > -math.inf
    number, _, variance = _moments(logits, seen)
    weights = logits.softmax(-1)
    rest, seen_rest = logits[..., 1:], seen[..., 1:]
    _, _, variance_rest = _moments(rest, seen_rest)
    among = rest.softmax(-1)
    share = seen[..., None].to(values.dtype)  # (heads, rows, keys, 1)
    # The values that a row sees: their mean and mean square, by sums over the keys.
    counts = share.squeeze(-1)
    mean = counts @ values / number[..., None]
    square = (counts @ values.square()).sum(-1) / number - mean.square().sum(-1)
    spread = square * number / (number - 1.0).clamp(min=1.0)
    output = (outs - mean).square().sum(-1) + spread / number
    found = {
        "n": number,
        "variance": variance,
        "variance_rest": variance_rest,
        "collision": weights.square().sum(-1),
        "collision_rest": among.square().sum(-1),
        "entropy": torch.special.entr(weights).sum(-1),
        "largest_logit": logits.amax(-1),
        "largest_weight": weights.amax(-1),
        "first": weights[..., 0],
        "output_ratio": output / spread.clamp(min=1e-30),
    }
    return {name: one.numpy() for name, one in found.items()}


def _needle_table(logits: Tensor, at: Places, ahead: Sequence[int]) -> Table:
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
        seen = some > -math.inf
        number, mean, variance = _moments(some, seen)
        centred = torch.where(seen, some - mean[..., None], -math.inf)
        kappa = centred.logsumexp(-1) - number.log()
        slope = (centred.softmax(-1) * torch.where(seen, centred, 0.0)).sum(-1)
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


def multiplied(factors: Tensor) -> Attention:
    """Return a context that multiplies the logits of each layer and head, (layers, heads)."""

    def run(number: int, query: Tensor, *others: Any, **named: Any) -> Tensor:
        factor = factors[number % len(factors)]
        return functional.scaled_dot_product_attention(
            query * factor[:, None, None], *others, **named
        )

    return Attention(run)
