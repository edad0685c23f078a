"""Measure heads whose target is known: the target's logit beside those of the other keys.

For a row with the weight P on its target, the target's logit ℓ_* and the mean m of the other logits
under their own softmax, the loss L(t) = E[−log P_t] of all logits times t has the derivative
−E[(1 − P_t)(ℓ_* − m_t)]. It increases with t, so t = 1 is best if and only if
E[(1 − P)(ℓ_* − m)] = 0. Rows with P near 1 have no influence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.models import torch_internals
from attnlib.probing.measure import Call, logits
from attnlib.probing.observer import Observer
from attnlib.probing.sample import restrict_call
from attnlib.probing.tokens import Targets, TokenTracker

GRID = np.geomspace(1 / 8, 8, 37)
"""Factors t at which the derivative of a head's loss is computed; t* is interpolated."""

ROWS = 256
"""The largest number of rows of a text, spread evenly over those with a target."""


@dataclass(frozen=True)
class Needles:
    """Hold statistics of each head's rows with a target, as `needles` measures them.

    Arrays are sums over rows, (texts, layers, heads). P is the weight of the target, ℓ_* its logit,
    and m the mean of the others under their own softmax; P_t and L(t) = E[−log P_t] belong to all
    logits times t, and t* makes L least. GRID is 37 factors t from ⅛ to 8. Chapter: retrieval.
    """

    layers: list[str]
    rows: FloatArray
    """The number of rows."""
    weight: FloatArray
    """Σ P, with the weight P of the target."""
    gap: FloatArray
    """Σ (1 − P)(ℓ_* − mean of the others)."""
    slope: FloatArray
    """Σ (1 − P) κ′(1), κ′(1) = m − mean of the others."""
    reach: FloatArray
    """Σ (ℓ_* − log of the mean of e^ℓ over the others): log of the keys that it outweighs."""
    derivatives: FloatArray
    """L′(t) times the rows, at each t of GRID: (texts, layers, heads, len(GRID))."""
    weights: FloatArray
    """Σ P_t, at each t of GRID: (texts, layers, heads, len(GRID))."""

    def table(self) -> list[dict[str, Any]]:
        """Return a dictionary for each head that has rows.

        - "layer", "head", "rows": its place and its number of rows.
        - "weight": the mean P.
        - "ratio": Σ(1 − P)gap/Σ(1 − P)κ′(1), 1 for a calibrated head.
        - "best_factor", "low", "high": t* and its 95 % interval over texts (NaN for one), 0 or
          infinity beyond ⅛ to 8.
        - "least_factor": the smallest t at which the mean weight is ½.
        - "reach": the number of keys, of the kind in the rows, that the target's logit still
          outweighs.
        """
        rows, layers_heads = self.rows.sum(axis=0), np.ndindex(*self.rows.shape[1:])
        best, low, high = self.best_factor()
        weight, gap, noise, reach = (
            x.sum(axis=0) for x in (self.weight, self.gap, self.slope, self.reach)
        )
        at_half = zero_of(0.5 - self.weights.sum(axis=0) / np.maximum(rows, 1)[..., None])
        return [
            {
                "layer": self.layers[place[0]],
                "head": place[1],
                "rows": int(rows[place]),
                "weight": float(weight[place] / rows[place]),
                "ratio": float(gap[place] / noise[place]),
                "best_factor": float(best[place]),
                "low": float(low[place]),
                "high": float(high[place]),
                "least_factor": float(at_half[place]),
                "reach": float(np.exp(reach[place] / rows[place])),
            }
            for place in layers_heads
            if rows[place]
        ]

    def best_factor(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return t* of each head and the ends of its 95 % interval, a bootstrap over texts.

        Three arrays (layers, heads): 0 or ∞ beyond ⅛ to 8, and 0 for a head without rows. The ends
        are NaN for one text.
        """
        best = zero_of(-self.derivatives.sum(axis=0))
        texts = self.rows.shape[0]
        if texts < 2:
            return best, np.full(best.shape, np.nan), np.full(best.shape, np.nan)
        rng = np.random.default_rng(0)
        draws = (self.derivatives[rng.integers(texts, size=texts)] for _ in range(400))
        bootstrap = [zero_of(-derivatives.sum(axis=0)) for derivatives in draws]
        low, high = np.quantile(bootstrap, [0.025, 0.975], axis=0, method="nearest")
        return best, low, high


def zero_of(falling: FloatArray) -> FloatArray:
    """Return t at which a function that falls on GRID, the last axis, is 0; 0 or ∞ if beyond."""
    above = (falling > 0.0).sum(axis=-1)
    i = np.clip(above - 1, 0, GRID.size - 2)[..., None]
    left, right = (np.take_along_axis(falling, i + k, axis=-1)[..., 0] for k in (0, 1))
    logs = np.log(GRID)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = left / (left - right)
    crossing = np.exp(logs[i[..., 0]] + share * (logs[i[..., 0] + 1] - logs[i[..., 0]]))
    return np.where(above == 0, 0.0, np.where(above == GRID.size, np.inf, crossing))


def repeated_tokens(vocabulary: int, length: int, texts: int, seed: int = 0) -> list[Tensor]:
    """Return texts of random tokens, each a sequence that is repeated once.

    - `vocabulary`: the number of token ids, 1 or more.
    - `length`: the number of tokens of each text, 2 or more; an odd one is reduced by 1.
    - `texts`: the number of texts.
    - `seed`: the seed of the random numbers, by default 0.

    Returns a list of integer tensors (1, length). They are for the target "repeat": in the second
    half the intended key is the token after the same place in the first.
    """
    rng = np.random.default_rng(seed)
    once = [rng.integers(0, vocabulary, length // 2) for _ in range(texts)]
    return [torch.from_numpy(np.tile(tokens, 2))[None] for tokens in once]


def needles(model: nn.Module, texts: Iterable[Tensor], targets: Targets) -> Needles:
    """Measure the rows of every head at the key that each query is intended to find.

    - `model`: an nn.Module that is called with token ids.
    - `texts`: token ids, each an integer tensor (1, tokens). Intervals are over texts.
    - `targets`: the intended keys, as in `attnlib.probing.probe`, or "repeat" for
      `repeated_tokens`. Which rows count depends on targets alone, not on what the model does with
      them; at most 256 of a text, spread evenly.

    Returns a `Needles`. Warns and raises as `probe` where attention cannot be observed. Raises
    ValueError or TypeError for targets and texts that are not as above, and ValueError where a
    text has no target. Chapter: retrieval.
    """
    if isinstance(targets, str) and targets == "repeat":
        targets = _repeat_targets
    per_text: list[dict[str, FloatArray]] = []
    for ids in _checking.batches("texts", texts):
        if ids.ndim != 2 or ids.shape[0] != 1:
            raise ValueError(f"texts must be of shape (1, tokens), got {tuple(ids.shape)}")
        sums: dict[str, FloatArray] = {}

        def collect(layer: str, number: int, call: Call, output: Tensor, sums: Any = sums) -> None:
            target = None if call.queries is None else call.queries.target
            if target is not None and bool((target >= 0).any()):
                sums[layer] = _row_sums(call, output)

        observer = Observer(model, collect, TokenTracker(targets=targets))
        with torch.no_grad(), observer.at_work():
            model(ids)
        observer.finish()
        if not sums:
            raise ValueError("targets must give some query of each text a key, got none")
        per_text.append(sums)
    if not per_text:
        raise ValueError("texts must hold one or more, got none")
    layers = list(per_text[0])
    # (statistic, texts, layers, heads): five sums, and two for each t
    statistics = np.stack(
        [np.stack([sums[layer] for layer in layers], axis=1) for sums in per_text], 1
    )
    curves = np.split(np.moveaxis(statistics[5:], 0, -1), 2, axis=-1)
    return Needles(layers, *[*statistics[:5], *curves])


def _repeat_targets(ids: Tensor) -> NDArray[np.int64]:
    """Return the target positions for "repeat", −1 for none, (1, tokens)."""
    length = ids.shape[1]
    places = np.arange(length) - length // 2 + 1
    return np.where(places > length % 2, places, -1)[None]


@torch.no_grad()
def _row_sums(call: Call, output: Tensor) -> FloatArray:
    """Return the sums of `Needles` over the rows of a call, (5 + 2 · len(GRID), heads)."""
    with torch_internals.hidden_from_modes():
        properties: Any = call.queries
        queries = np.flatnonzero(properties.target[0].cpu().numpy() >= 0)
        if queries.size > ROWS:
            queries = queries[np.linspace(0, queries.size - 1, ROWS).astype(int)]
        selected, _ = restrict_call(call, output, [0], queries)
        all_logits = logits(selected)[0]
        target = properties.target[0][queries][:, None].expand(*all_logits.shape[:-1], 1)
        visible = ~torch.isneginf(all_logits)
        n_others = visible.sum(-1) - 1
        # A window may hide the target.
        counted = visible.gather(-1, target)[..., 0] & (n_others > 0)
        centred = torch.where(visible, all_logits, 0.0)
        gap = centred.gather(-1, target)[..., 0]
        centre = (centred.sum(-1) - gap) / n_others.clamp(min=1)
        gap, centred = gap - centre, torch.where(visible, centred - centre[..., None], 0.0)
        centred_logits = torch.where(visible, centred, -torch.inf)
        other_logits = centred_logits.scatter(-1, target, -torch.inf)
        log_others = other_logits.logsumexp(-1)
        missing = torch.sigmoid(log_others - gap)  # 1 − P
        noise = (other_logits.softmax(-1) * centred).sum(-1)
        reach = gap - log_others + n_others.clamp(min=1).log()
        scalars = [torch.ones_like(gap), 1.0 - missing, missing * gap, missing * noise, reach]
        weighted = [(t * centred_logits).softmax(-1) for t in GRID]
        derivatives = [(p * centred).sum(-1) - gap for p in weighted]
        weights = [p.gather(-1, target)[..., 0] for p in weighted]
        stacked = torch.stack([*scalars, *derivatives, *weights])
        sums: FloatArray = torch.where(counted, stacked, 0.0).sum(-1).cpu().numpy()
    return sums
