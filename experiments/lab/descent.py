"""Gradient descent: the one loop that every model here is trained by.

Chapters: almost_scaled_training, length_extrapolation.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attnlib import checking
from experiments.lab.fields import Checked, checked, from_zero

Batch = TypeVar("Batch")

OPTIMIZERS = ("adam", "sgd")
DECAYS = ("none", "linear", "cosine")
GAINS = ("scale", "slope")
"""The names of the parameters that multiply logits, which may have a learning rate of their own."""


@dataclass(frozen=True)
class Descent(Checked):
    """How a model is trained, whatever it is trained on, with PyTorch's other defaults.

    With `warmup`, `decay`, `weight_decay` and `clip` it is trained as most people do.
    """

    optimizer: str = checked("adam", checking.choice, allowed=OPTIMIZERS)
    """"adam", or "sgd": gradient descent on each batch, without momentum."""
    learning_rate: float = checked(2.0**-10, checking.positive)
    """In the first step after the warm-up."""
    decay: str = checked("none", checking.choice, allowed=DECAYS)
    """"none", or "linear" or "cosine": the learning rate falls to 0 in a line, or as a cosine."""
    warmup: int = checked(0, checking.integer, minimum=0)
    """Steps in which the learning rate rises in a line; less than `steps`."""
    weight_decay: float = checked(0.0, from_zero)
    """AdamW's, of matrices: not of biases, of LayerNorm's gains and of `GAINS`; L2 with "sgd"."""
    clip: float = checked(0.0, from_zero)
    """Gradients are shortened to this norm, all together; 0 for never."""
    gain_rate: float = checked(1.0, checking.positive)
    """The learning rate of `GAINS`, over that of all else."""
    steps: int = checked(5000, checking.integer, minimum=1)
    """Batches, each seen once."""
    batch: int = checked(16, checking.integer, minimum=1)
    """How many are in a batch: windows, sequences, or sets of keys."""
    seed: int = checked(0, checking.integer, minimum=0)
    """Of the initial parameters and of everything that is drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup must be less than steps={self.steps}, got warmup={self.warmup}"
            )

    @property
    def decayed(self) -> float:
        """Ση λ: by how much, in the log, AdamW's decay alone shrinks matrices in the whole run."""
        rates = sum(map(self.rate, range(self.steps)))
        return self.learning_rate * self.weight_decay * rates

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, over the largest."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        done = (step - self.warmup) / (self.steps - self.warmup)
        if self.decay == "cosine":
            return (1.0 + math.cos(math.pi * done)) / 2.0
        return 1.0 - done if self.decay == "linear" else 1.0


def descend(
    model: nn.Module,
    descent: Descent,
    batches: Iterable[Batch],
    loss: Callable[[nn.Module, Batch], Tensor],
    rate: Callable[[int], float] | None = None,
) -> Iterator[tuple[int, Batch, Tensor]]:
    """Train `model` in place; yield each step, its batch and its loss.

    `rate` is a schedule in place of `descent.rate`. When a step is yielded the gradients are there,
    and the update is still to come.
    """
    groups = _groups(model, descent)
    optimizer: torch.optim.Optimizer
    if descent.optimizer == "sgd":
        optimizer = torch.optim.SGD(groups)
    else:
        optimizer = torch.optim.AdamW(groups, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate or descent.rate)
    for step, batch in zip(range(descent.steps), batches, strict=False):
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        yield step, batch, value.detach()
        if descent.clip:
            nn.utils.clip_grad_norm_(model.parameters(), descent.clip)
        optimizer.step()
        schedule.step()


def _groups(model: nn.Module, descent: Descent) -> list[dict[str, Any]]:
    """Return the parameters with their learning rate and their decay."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        gain = name.rpartition(".")[2] in GAINS
        rate = descent.learning_rate * (descent.gain_rate if gain else 1.0)
        decay = descent.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
