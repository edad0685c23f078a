"""How heads come to their scale: the sizes of W_q and W_k, and ∂L/∂log t, while a model is trained.

Multiplying the logits of a head by t is multiplying its W_q and its bias by t. So
∂L/∂log t = ⟨W_q, ∂L/∂W_q⟩ + ⟨b_q, ∂L/∂b_q⟩, from what is there after every backward pass; the same
of W_k is equal. Under gradient flow ‖W_q‖² and ‖W_k‖², biases counted, both change by −2 times it.
"""

import numpy as np
import torch
from torch import Tensor, nn

from attnlib._checking import FloatArray
from attnlib.calibration import scale_gradient
from experiments.lab import data
from experiments.lab.data import Batch, Text
from experiments.lab.model import Attention, Transformer, loss

TEXTS = 16
"""Batches of training and of validation text on which a trained model's gradients are taken."""


class Sizes:
    """What is recorded on the way: call it with each step, after the backward pass.

    A record has `norms`, (depth, 2, heads), ‖W_q‖² and ‖W_k‖² of each head before the update of its
    step, and `slopes`, (depth, heads), the mean of ∂L/∂log t over the steps from its own to the one
    before the next record.
    """

    def __init__(self, model: Transformer) -> None:
        self.layers = [part for part in model.modules() if isinstance(part, Attention)]
        self.norms: list[Tensor] = []
        self.sums: list[Tensor] = []
        self.counts: list[int] = []

    @torch.no_grad()
    def __call__(self, records: bool) -> None:
        """Take a step into account, and begin a record with it if it is one."""
        if records:
            norms = [_products(layer, gradient=False)[:2] for layer in self.layers]
            self.norms.append(torch.stack(norms))
            self.sums.append(torch.zeros(()))
            self.counts.append(0)
        slopes = [_products(layer, gradient=True)[0] for layer in self.layers]
        self.sums[-1] = self.sums[-1].to(slopes[0].device) + torch.stack(slopes)
        self.counts[-1] += 1

    def records(self) -> dict[str, Tensor]:
        """Return what was recorded, the records first."""
        means = [total / count for total, count in zip(self.sums, self.counts, strict=True)]
        return {"norms": torch.stack(self.norms), "slopes": torch.stack(means)}


def _products(layer: Attention, *, gradient: bool) -> Tensor:
    """Return ⟨W, W⟩ or ⟨W, ∂L/∂W⟩ of each head's W_q, W_k and W_v, biases counted, (3, heads)."""
    heads = (3, layer.config.heads, -1)
    products = torch.zeros(())
    for parameter in layer.input.weight, layer.input.bias:
        other = parameter.grad if gradient else parameter
        if other is None:
            raise ValueError("gradients must be there: call after the backward pass")
        products = products.to(parameter) + (parameter * other).reshape(heads).sum(dim=-1)
    return products


def samples(model: Transformer, parts: data.Split, windows: int) -> FloatArray:
    """Return ∂L/∂log t of a trained decoder, (2, texts, depth, heads): its training text first.

    Each text is a batch of so many windows, evenly spaced over its part; a short part has fewer
    texts, and the rest is NaN.
    """
    shape = 2, TEXTS, model.config.depth, model.config.heads
    gradients = np.full(shape, np.nan)
    for row, part in zip(gradients, parts, strict=True):
        texts = _texts(part, model.config.sequence, windows)
        row[: len(texts)] = scale_gradient(model, texts, _loss).samples
    return gradients


def _texts(part: Text, sequence: int, windows: int) -> list[Batch]:
    windows_of_part = data.validation_batch(part, sequence=sequence, windows=TEXTS * windows)
    full = len(windows_of_part.inputs) // windows * windows
    return [
        Batch(*(tokens[i : i + windows] for tokens in windows_of_part))
        for i in range(0, full, windows)
    ]


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    device = next(model.parameters()).device
    inputs, targets = (torch.as_tensor(tokens, device=device) for tokens in batch)
    return loss(model(inputs), targets)
