"""Gradient descent: the one loop that every model here is trained by.

Chapters: training, length.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlib import checking
from experiments.lab.fields import Checked, checked


@dataclass(frozen=True)
class Descent(Checked):
    """How a model is trained, whatever it is trained on: Adam, with PyTorch's other defaults."""

    learning_rate: float = checked(2.0**-10, checking.positive)
    """Adam's, in the first step."""
    steps: int = checked(5000, checking.integer, minimum=1)
    """Batches, each seen once."""
    batch: int = checked(16, checking.integer, minimum=1)
    """How many are in a batch: windows, sequences, or sets of keys."""
    seed: int = checked(0, checking.integer, minimum=0)
    """Of the initial parameters and of everything that is drawn."""

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, over that of the first."""
        return 1.0


def descend(
    model: nn.Module,
    descent: Descent,
    loss: Callable[[], Tensor],
    rate: Callable[[int], float] | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Train `model` in place; yield each step and its loss, of a new batch at each call of `loss`.

    `rate` is a schedule in place of `descent.rate`. When a step is yielded the gradients are there,
    and the update is still to come.
    """
    adam = torch.optim.Adam(model.parameters(), lr=descent.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, rate or descent.rate)
    for step in range(descent.steps):
        adam.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        yield step, value.detach()
        adam.step()
        schedule.step()
