"""What laws of others speak of, row by row and head by head.

Dispersion (arXiv 2410.01104): range of the logits and largest weight. Gap counting (2605.12697):
with N(t) the keys whose logit is within t of the largest, Λ is the least number with N(t) ≤ e^{Λt}
for every t. Vanishing variance (2504.02827): outputs for one query, of text after text.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from attnlib._checking import FloatArray
from attnlib.probing.tokens import Places
from experiments.real_heads import rows
from experiments.real_heads.rows import Table, short
from experiments.records import Fields

COMPONENTS = 8
"""Components of an output that are looked at: every eighth of 64."""
HALVINGS = 24
"""Steps of the search for the multiplier at which the largest weight is a half."""


def tails(logits: Tensor) -> Table:
    """Return for each row, −∞ for hidden keys: n, range, largest weight, Λ, half.

    Half is the multiplier of the logits at which the largest weight is ½. By the law it is at most
    2Λ.
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


def measure(
    model: nn.Module, ids: Sequence[int], places: Sequence[Places], ends: Places
) -> tuple[list[Fields], FloatArray]:
    """Run the model on a text; return its heads by the rows at the places of each length.

    And some components of the outputs at the ends, (ends, heads, components).
    """
    asked = np.concatenate([*places, ends])
    count = len(asked) - len(ends)

    def see(logits: Tensor, _: Tensor, outs: Tensor) -> dict[str, Table]:
        chosen, step = logits[:, :count], outs.shape[-1] // COMPONENTS
        outputs = outs[:, count:, ::step].numpy()
        return {
            "whole": tails(chosen),
            "rest": tails(chosen[..., 1:]),
            "outputs": {"some": outputs},
        }

    tables = rows.measure(model, ids, asked, see)
    all_keys, rest = (rows.split_by_length(tables[name], places) for name in ("whole", "rest"))
    return list(map(heads, all_keys, rest)), tables["outputs"]["some"].swapaxes(0, 1)


def heads(all_keys: Table, rest: Table) -> Fields:
    """Return of each head the mean rows of a text, and Λ and t½ (rest) of every row."""
    return {
        "n": float(all_keys["n"].mean()),
        "range": short(all_keys["range"].mean(1)),
        "largest": short(all_keys["largest"].mean(1)),
        "largest_rest": short(rest["largest"].mean(1)),
        "tail": short(rest["tail"]),
        "half": short(rest["half"]),
    }
