"""Gradient descent: the one loop that every model here is trained by.

Chapters: almost_scaled_training, length_extrapolation.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attnlib import _checking
from experiments.lab.fields import Checked, checked, not_negative

Batch = TypeVar("Batch")

OPTIMIZERS = ("adam", "sgd")
DECAYS = ("none", "linear", "cosine")
GAINS = ("scale", "slope")
"""The names of the parameters that multiply logits, which may have a learning rate of their own."""


@dataclass(frozen=True)
class Descent(Checked):
    """How a model is trained, on a text or a task, with PyTorch's other defaults.

    With `warmup`, `decay`, `weight_decay` and `clip` it is trained as most people do.
    """

    optimizer: str = checked("adam", _checking.choice, allowed=OPTIMIZERS)
    """"adam", or "sgd": gradient descent on each batch, without momentum."""
    learning_rate: float = checked(2.0**-10, _checking.positive)
    """In the first step after the warm-up."""
    decay: str = checked("none", _checking.choice, allowed=DECAYS)
    """"none", or "linear" or "cosine": the learning rate falls to 0 in a line, or as a cosine."""
    warmup: int = checked(0, _checking.integer, minimum=0)
    """Steps in which the learning rate rises in a line; less than `steps`."""
    weight_decay: float = checked(0.0, not_negative)
    """AdamW's, of matrices: not of biases, of LayerNorm's gains and of `GAINS`; L2 with "sgd"."""
    clip: float = checked(0.0, not_negative)
    """Gradients are shortened to this norm, all together; 0 for never."""
    gain_rate: float = checked(1.0, _checking.positive)
    """The learning rate of `GAINS`, over that of all else."""
    steps: int = checked(5000, _checking.integer, minimum=1)
    """Batches, each seen once."""
    batch: int = checked(16, _checking.integer, minimum=1)
    """How many are in a batch: windows, sequences, or sets of keys."""
    seed: int = checked(0, _checking.integer, minimum=0)
    """Of the initial parameters and of everything that is drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup must be less than steps={self.steps}, got warmup={self.warmup}"
            )

    @property
    def total_decay(self) -> float:
        """Σ ηλ over the run: AdamW's decay alone divides matrices by the exponential of it."""
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
    graphs: bool = False,
) -> Iterator[tuple[int, Batch, Tensor]]:
    """Train `model` in place; yield each step, its batch and its loss.

    `rate` is a schedule in place of `descent.rate`. When a step is yielded the gradients are there,
    and the update is still to come. With `graphs` a step is replayed as two CUDA graphs (Graphs).
    """
    steps = Graphs(model, descent, loss) if graphs else Steps(model, descent, loss)
    for step, batch in zip(range(descent.steps), batches, strict=False):
        steps.set_rate((rate or descent.rate)(step))
        yield step, batch, steps.backward(batch)
        steps.update()


def on_own_stream(graphs: bool = True) -> AbstractContextManager[Any]:
    """Return the context in which `Graphs` can be used; with False one that does nothing."""
    if not graphs:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]


class Steps:
    """The two halves of a step: the gradients, and the update."""

    def __init__(
        self, model: nn.Module, descent: Descent, loss: Callable[[nn.Module, Any], Tensor]
    ) -> None:
        self.model, self.descent, self.loss = model, descent, loss
        groups = _parameter_groups(model, descent)
        self.rates = [group["lr"] for group in groups]
        self.optimizer = self.make_optimizer(groups)

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimiser of groups of parameters."""
        if self.descent.optimizer == "sgd":
            return torch.optim.SGD(groups)
        return torch.optim.AdamW(groups, fused=True)

    def set_rate(self, share: float) -> None:
        """Set the learning rates to a share of the largest."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * share

    def backward(self, batch: Any) -> Tensor:
        """Return the loss of a batch, and set the gradients of the parameters."""
        self.optimizer.zero_grad()
        value = self.loss(self.model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        return value.detach()

    def update(self) -> None:
        """Change the parameters by their gradients."""
        if self.descent.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.descent.clip)
        self.optimizer.step()


class Graphs(Steps):
    """Steps that are captured once and replayed: small models wait for Python otherwise.

    The first three steps run as usual, so that all that is made once is there. A whole run must be
    within one `on_own_stream()`. Batches are tuples of tensors of one shape. A graph holds
    addresses: the learning rates are tensors, and gradients stay in place.
    """

    WARM_UP_STEPS = 3
    """Steps before the capture."""

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return the optimiser, its learning rates on the device."""
        device = next(self.model.parameters()).device
        self.seen, self.halves = 0, (torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph())
        groups = [{**group, "lr": torch.tensor(group["lr"], device=device)} for group in groups]
        if self.descent.optimizer == "sgd":
            return torch.optim.SGD(groups, fused=True)
        return torch.optim.AdamW(groups, fused=True, capturable=True)

    def set_rate(self, share: float) -> None:
        """Set the learning rates, in place."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"].fill_(rate * share)

    def backward(self, batch: Any) -> Tensor:
        """Return the loss of a batch, and set the gradients of the parameters."""
        self.seen += 1
        if self.seen <= self.WARM_UP_STEPS:
            return super().backward(batch)
        if self.seen == self.WARM_UP_STEPS + 1:
            self.batch = [part.clone() for part in batch]
            self.optimizer.zero_grad()
            with self._capture(0):
                self.value = self.loss(self.model, self.batch)
                self.value.backward()  # type: ignore[no-untyped-call]
            with self._capture(1):
                super().update()
        for place, part in zip(self.batch, batch, strict=True):
            place.copy_(part)
        self.halves[0].replay()
        return self.value.detach()

    def update(self) -> None:
        """Change the parameters by their gradients."""
        if self.seen <= self.WARM_UP_STEPS:
            super().update()
        else:
            self.halves[1].replay()

    def _capture(self, half: int) -> AbstractContextManager[Any]:
        """Return the context that captures a half of a step."""
        return torch.cuda.graph(self.halves[half], stream=torch.cuda.current_stream())


def _parameter_groups(model: nn.Module, descent: Descent) -> list[dict[str, Any]]:
    """Return groups of parameters for PyTorch, each with its learning rate and its decay."""
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
