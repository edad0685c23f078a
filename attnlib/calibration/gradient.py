"""Measure ∂L/∂log t of every head: whether larger or smaller logits lower a model's loss."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr
from torch import nn

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.calibration.logit_factors import Place
from attnlib.calibration.passes import Loss, LossGradients, loss_and_gradients, own_loss


@dataclass(frozen=True)
class ScaleGradient:
    """Hold ∂L/∂log t of each head at t = 1, as `scale_gradient` measures it.

    Where the number is negative the loss falls as the head's logits grow. Places of heads that a
    layer lacks are NaN. Chapter: calibration.
    """

    layers: list[str]
    """The modules that attend, in the order in which they run."""
    losses: FloatArray
    """The loss of each text, (texts,)."""
    samples: FloatArray
    """∂L/∂log t of each text, (texts, layers, heads)."""
    summed: tuple[str, ...] = ()
    """Layers whose heads share a gain: head 0 has the sum over all of them, the others NaN."""

    @property
    def value(self) -> FloatArray:
        """Return the mean over the texts, an array (layers, heads)."""
        mean: FloatArray = self.samples.mean(axis=0)
        return mean

    @property
    def standard_error(self) -> FloatArray:
        """Return the standard error of `value` over texts, (layers, heads); NaN for one text."""
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.square(self.samples - self.value).sum(axis=0) / (len(self.samples) - 1.0)
        error: FloatArray = np.sqrt(variance / len(self.samples))
        return error

    def p_values(self) -> FloatArray:
        """Return the p-value of each head for a mean of 0, corrected for the number of heads.

        An array (layers, heads), by Student's t, times the number of heads (Bonferroni), at most 1:
        below .05 a head's mean is significantly different from 0 among all. NaN for one text.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            t_statistic = np.abs(self.value) / self.standard_error
        p_value = 2.0 * stdtr(len(self.samples) - 1.0, -t_statistic)
        corrected: FloatArray = np.minimum(p_value * np.isfinite(self.value).sum(), 1.0)
        return corrected

    def wanting(self, level: float = 0.05) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the heads whose larger logits lower the loss, and those whose smaller logits do.

        - `level`: a head counts if its entry of `p_values` is below this, > 0, by default 0.05.

        Returns two integer arrays with a line of indices (layer, head) for each head. They are
        empty for one text, which has no p-values.
        """
        chosen = np.where(self.p_values() < _checking.positive("level", level), self.value, 0.0)
        return np.argwhere(chosen < 0.0), np.argwhere(chosen > 0.0)

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each head: layer, head, gradient, standard_error, p_value."""
        means, standard_error, p_values = self.value, self.standard_error, self.p_values()
        return [
            {
                "layer": self.layers[layer],
                "head": int(head),
                "gradient": float(means[layer, head]),
                "standard_error": float(standard_error[layer, head]),
                "p_value": float(p_values[layer, head]),
            }
            for layer, head in np.argwhere(np.isfinite(means))
        ]


def scale_gradient(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss | None = None,
    *,
    partial: bool = False,
) -> ScaleGradient:
    """Measure ∂L/∂log t of every layer and head, for logits times t, at t = 1.

    For a head with the logits ℓ_i, the weights p_i, and the outputs z_i = Σ_j p_ij v_j of its
    queries i it is Σ_i ⟨∂L/∂z_i, Cov_p(ℓ_i, v)⟩, the covariance of logits and values under the
    weights. One backward pass of each batch gives it for all heads. Where every head has 0, no
    small change of scale lowers the loss. It is the derivative for one head, or for a common factor
    of several if summed; a larger step needs `fit_scales`.

    - `model`: an nn.Module. It runs as it is, in training or evaluation; compiled parts run as they
      are written.
    - `batches`: a list of what `loss` takes; each batch counts as one text. Standard errors are
      between batches, so give eight or more independent texts.
    - `loss`: a function of (model, batch) that returns a scalar tensor. Where it calls the model
      several times, all calls count. By default a model of transformers computes its own loss, and
      a batch is token ids or a mapping of its arguments.
    - `partial`: True leaves out attention that cannot be reached. By default it is an error.

    Returns a `ScaleGradient`. What is reached: PyTorch's scaled_dot_product_attention, what
    transformers registers, and a softmax over the last axis of a product of three axes or more, of
    queries and keys.

    What is not changed: no weight gets a gradient, and the outputs are bitwise the model's own.
    Memory is that of a training step without gradients of weights. Activations may be computed
    again (torch.utils.checkpoint).

    Warns with a UserWarning of modules that may attend otherwise, and of layers whose heads are in
    doubt. Raises ValueError for no batches, for a layer whose number of heads differs between
    batches, and for a loss that is not a finite number or does not depend on attention; TypeError
    for one batch without a list; RuntimeError for attention that cannot be reached, with its name.
    Chapter: calibration.
    """
    passes = [
        loss_and_gradients(model, result, loss or own_loss, partial=partial)
        for result in _checking.batches("batches", batches)
    ]
    if not passes:
        raise ValueError("batches must hold one or more, got none")
    layers = list(dict.fromkeys(part.place.layer for result in passes for part in result.parts))
    heads: dict[tuple[str, int], int] = {}
    for part in (part for result in passes for part in result.parts):
        check_heads(heads, part.place)
    return ScaleGradient(
        layers,
        np.array([result.loss for result in passes]),
        np.stack([sum_by_head(result, layers) for result in passes]),
    )


def check_heads(known: dict[tuple[str, int], int], place: Place) -> None:
    """Note a call's number of heads in `known`; ValueError if that has another number."""
    expected = known.setdefault(place[:2], place.heads)
    if expected != place.heads:
        raise ValueError(
            f"batches must be of one size: {place.layer} has queries of {expected} heads in one "
            f"and of {place.heads} in another, as where they are of shape (batch · heads, n, d)"
        )


def sum_by_head(result: LossGradients, layers: list[str], power: int = 0) -> FloatArray:
    """Return Σ ∂L/∂log t · (log n)^power over queries, (layers, heads); NaN for missing heads."""
    heads = max(part.place.heads for part in result.parts)
    sums = np.full((len(layers), heads), np.nan)
    for part in result.parts:
        weighted = part.gradient * np.log(part.keys) ** power
        layer_sums = sums[layers.index(part.place.layer), : part.place.heads]
        axes = (*range(weighted.ndim - 2), weighted.ndim - 1)
        layer_sums[:] = np.where(np.isnan(layer_sums), 0.0, layer_sums) + weighted.sum(axis=axes)
    return sums
