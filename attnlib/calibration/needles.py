"""Heads whose target is known: how their logits stand to those of the other keys.

For a row with the weight P on its target, the target's logit ℓ_* and the mean m of the other logits
under their own softmax, the loss L(t) = E[−log P_t] of all logits times t has the derivative
−E[(1 − P_t)(ℓ_* − m_t)]. It increases with t, so t = 1 is best if and only if
E[(1 − P)(ℓ_* − m)] = 0: rows that are won count for nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from attnlib import checking, interception
from attnlib.calibration.multiplied import Call, multiplied
from attnlib.calibration.passes import frozen
from attnlib.checking import FloatArray
from attnlib.probing.tokens import NONE, earlier

GRID = np.geomspace(1 / 8, 8, 37)
"""Factors at which the derivative of a head's loss is taken; t* is interpolated between them."""

ROWS = 256
"""So many rows of a text are taken at most, spread evenly over those with a target."""

Targets = str | ArrayLike | Callable[[Tensor], ArrayLike]

WORDS = ("previous", "duplicate", "induction", "repeat")


@dataclass(frozen=True)
class Needles:
    """Statistics of each head's rows with a target, as `needles` measures them; sums over rows.

    Arrays over (texts, layers, heads). Chapter: needle.
    """

    layers: list[str]
    rows: FloatArray
    weight: FloatArray
    """Σ P."""
    gap: FloatArray
    """Σ (1 − P)(ℓ_* − mean of the others)."""
    slope: FloatArray
    """Σ (1 − P) κ′(1), κ′(1) = m − mean of the others."""
    reach: FloatArray
    """Σ (ℓ_* − log of the mean of e^ℓ over the others): the logarithm of the keys it can beat."""
    derivatives: FloatArray
    """L′(t) times the rows, at each t of GRID: (texts, layers, heads, len(GRID))."""
    weights: FloatArray
    """Σ P_t likewise."""

    def table(self) -> list[dict[str, Any]]:
        """Return a dictionary for each head.

        "weight" is the mean P, "ratio" Σ(1 − P)gap/Σ(1 − P)κ′(1), 1 for a calibrated head,
        "best_factor" t* and its 95 % interval over texts (0 or infinity beyond GRID),
        "least_factor" the smallest t at which the mean weight is ½, "reach" the number of keys,
        alike to those of the rows, among which the target's logit outweighs the others.
        """
        rows, layers_heads = self.rows.sum(axis=0), np.ndindex(*self.rows.shape[1:])
        best, low, high = self.best_factor()
        weight, gap, slope, reach = (
            x.sum(axis=0) for x in (self.weight, self.gap, self.slope, self.reach)
        )
        at_half = root(0.5 - self.weights.sum(axis=0) / np.maximum(rows, 1)[..., None])
        return [
            {
                "layer": self.layers[at[0]],
                "head": at[1],
                "rows": int(rows[at]),
                "weight": float(weight[at] / rows[at]),
                "ratio": float(gap[at] / slope[at]),
                "best_factor": float(best[at]),
                "low": float(low[at]),
                "high": float(high[at]),
                "least_factor": float(at_half[at]),
                "reach": float(np.exp(reach[at] / rows[at])),
            }
            for at in layers_heads
            if rows[at]
        ]

    def best_factor(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return t* of each head and the ends of its 95 % interval, a bootstrap over texts."""
        best = root(-self.derivatives.sum(axis=0))
        texts = self.rows.shape[0]
        if texts < 2:
            return best, np.full(best.shape, np.nan), np.full(best.shape, np.nan)

        def of_texts(chosen: Any) -> FloatArray:
            return root(-self.derivatives[chosen].sum(axis=0))

        rng = np.random.default_rng(0)
        drawn = np.stack([of_texts(rng.integers(texts, size=texts)) for _ in range(400)])
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0, method="nearest")
        return best, low, high


def root(falling: FloatArray) -> FloatArray:
    """Return where a falling function on GRID is 0, along the last axis; 0 or ∞ beyond its ends."""
    above = (falling > 0.0).sum(axis=-1)
    i = np.clip(above - 1, 0, GRID.size - 2)[..., None]
    left, right = (np.take_along_axis(falling, i + k, axis=-1)[..., 0] for k in (0, 1))
    logs = np.log(GRID)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = left / (left - right)
    inside = np.exp(logs[i[..., 0]] + share * (logs[i[..., 0] + 1] - logs[i[..., 0]]))
    return np.where(above == 0, 0.0, np.where(above == GRID.size, np.inf, inside))


def repeated_tokens(
    vocabulary: int, length: int, texts: int, seed: int = 0, first: int | None = None
) -> list[Tensor]:
    """Return texts of random tokens said twice, each (1, length), with `first` before them.

    For the target "repeat": in the second half the key that is meant is the token after the same
    place in the first.
    """
    rng = np.random.default_rng(seed)
    start = [] if first is None else [first]
    half = (length - len(start)) // 2
    found = []
    for _ in range(texts):
        once = rng.integers(0, vocabulary, half).tolist()
        found.append(torch.tensor([[*start, *once, *once]]))
    return found


def needles(
    model: nn.Module,
    texts: Iterable[Tensor],
    targets: Targets,
    *,
    rows: int = ROWS,
    run: Callable[[nn.Module, Tensor], Any] | None = None,
) -> Needles:
    """Measure the rows of every head at the key that each query is meant to find.

    `targets` is "previous" (the key before), "duplicate" (the last earlier one of the same token),
    "induction" (the one after that), "repeat" (for `repeated_tokens`), a function from token ids
    (1, tokens) to the position of each query's key, −1 for none, or such an array. Which rows count
    depends on targets alone, not on what the model does with them; at most `rows` of a text, spread
    evenly. Texts are token ids, (1, tokens); intervals are over texts. The model is called as
    `run(model, ids)`, by default `model(ids)`.

    Raises ValueError for targets and texts that are not so, RuntimeError for attention that cannot
    be reached or changes its logits after the scale (a soft cap, a sink, a bias). Chapter:
    needle.
    """
    rows = checking.integer("rows", rows, minimum=1)
    found: list[dict[str, FloatArray]] = []
    for ids in texts:
        if ids.ndim != 2 or ids.shape[0] != 1:
            raise ValueError(f"texts must be of shape (1, tokens), got {tuple(ids.shape)}")
        places = target_places(targets, ids)
        chosen = np.flatnonzero(places != NONE)
        if not chosen.size:
            raise ValueError("targets must give some query of each text a key, got none")
        if chosen.size > rows:
            chosen = chosen[np.linspace(0, chosen.size - 1, rows).astype(int)]
        sums: dict[str, FloatArray] = {}

        def factor(call: Call) -> Tensor:
            sums[call.place.layer] = _sums(call, chosen, places[chosen])  # noqa: B023
            return call.query.new_ones(())

        with frozen(model), torch.no_grad(), multiplied(model, factor):
            (run or (lambda model, ids: model(ids)))(model, ids)
        if not sums:
            raise RuntimeError(f"{type(model).__name__} has run no attention that can be reached")
        found.append(sums)
    if not found:
        raise ValueError("texts must hold one or more, got none")
    layers = list(found[0])
    # (texts, layers, what, heads), where what is five sums and two for each t
    all_sums = np.stack([np.stack([sums[layer] for layer in layers]) for sums in found])
    by_kind = np.moveaxis(all_sums, 2, 0)
    rows_, weight, gap, slope, reach = by_kind[:5]
    curves = np.moveaxis(by_kind[5:], 0, -1)
    derivatives, weights = curves[..., : GRID.size], curves[..., GRID.size :]
    return Needles(layers, rows_, weight, gap, slope, reach, derivatives, weights)


def target_places(targets: Targets, ids: Tensor) -> NDArray[np.int64]:
    """Return the position that each query is meant to find, −1 for none, (tokens,)."""
    length = ids.shape[1]
    if isinstance(targets, str):
        checking.choice("targets", targets, WORDS)
        if targets == "previous":
            return np.arange(-1, length - 1)
        if targets == "repeat":
            half = length // 2
            places = np.arange(length) - half + 1
            return np.where(places > length - 2 * half, places, NONE)
        places = earlier(ids.cpu().numpy(), None)[0]
        return np.where(places >= 0, places + 1, NONE) if targets == "induction" else places
    given = targets(ids) if callable(targets) else targets
    places = np.asarray(given).reshape(-1)
    if places.shape != (length,) or places.dtype.kind not in "iu":
        raise ValueError(
            f"targets must be integers for each of the {length} tokens, got {given!r:.80}"
        )
    return places


def _sums(call: Call, queries: Any, targets: Any) -> FloatArray:
    """Return the sums of `Needles` over these queries of a call, (5 + 2 · len(GRID), heads)."""
    if any(value is not None for value in call.more.values()):
        names = ", ".join(name for name, value in call.more.items() if value is not None)
        raise RuntimeError(f"{call.place.layer} changes its logits after the scale: {names}")
    with interception.hidden_from_modes():
        logits = _logits(call, torch.from_numpy(queries))
        target = torch.from_numpy(targets)[None, :, None].expand(logits.shape[0], -1, 1)
        hidden = torch.isneginf(logits)
        meant = logits.gather(-1, target)
        counted = ~torch.isneginf(meant[..., 0])  # a window may hide the target
        centre = logits.masked_fill(hidden, 0.0).sum(-1, keepdim=True) - meant
        others = (~hidden).sum(-1, keepdim=True) - 1
        centre = centre / others.clamp(min=1)
        counted &= others[..., 0] > 0
        logits, meant = logits - centre, (meant - centre)[..., 0]
        rest = logits.scatter(-1, target, -torch.inf)
        log_rest = rest.logsumexp(-1)
        log_p = meant - torch.logaddexp(meant, log_rest)
        weight, lost = log_p.exp(), 1.0 - log_p.exp()
        slope = (rest - log_rest[..., None]).exp().mul(rest.masked_fill(hidden, 0.0).clamp(-1e30))
        slope = slope.nan_to_num(0.0).sum(-1)
        log_mean = log_rest - others[..., 0].clamp(min=1).log()
        five = [torch.ones_like(meant), weight, lost * meant, lost * slope, meant - log_mean]
        derivatives, weights = [], []
        for t in GRID:
            p = torch.log_softmax(t * logits, dim=-1).exp()
            mean = (p * logits.masked_fill(hidden, 0.0)).sum(-1)
            derivatives.append(mean - meant)
            weights.append(p.gather(-1, target)[..., 0])
        stacked = torch.stack([*five, *derivatives, *weights])
        found: FloatArray = torch.where(counted, stacked, 0.0).sum(-1).double().cpu().numpy()
    return found


def _logits(call: Call, queries: Tensor) -> Tensor:
    """Return the logits of some queries, (heads, queries, keys), −∞ for hidden keys."""
    query, key = call.query, call.key
    q = query[0].index_select(-2, queries.to(query.device)).float()
    k = key[0].repeat_interleave(query.shape[1] // key.shape[1], 0).float()
    scale = query.shape[-1] ** -0.5 if call.scale is None else call.scale
    logits = scale * (q @ k.mT)
    if call.is_causal:
        seen = torch.arange(k.shape[-2], device=q.device) <= queries.to(q.device)[:, None]
        logits = logits.masked_fill(~seen, -torch.inf)
    elif isinstance(call.mask, Tensor):
        mask = call.mask.expand(1, *call.mask.shape[1:-2], query.shape[-2], call.mask.shape[-1])
        mask = mask[0].index_select(-2, queries.to(mask.device))[..., : k.shape[-2]]
        if mask.dtype == torch.bool:
            logits = logits.masked_fill(~mask, -torch.inf)
        else:
            logits = (logits + mask).masked_fill(mask <= interception.HIDDEN, -torch.inf)
    return logits
