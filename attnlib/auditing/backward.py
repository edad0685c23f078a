"""Measure whether the backward pass is the derivative of the forward pass.

The log-odds of two keys are σ times a difference of products, whatever the row sees, a sink and a
factor are. So their derivatives are as the scale, and a backward pass that takes another scale, or
weights that leave out the sink, shows by the same ratio. Log-odds do not see what the softmax takes
from all keys of a row alike; a weight does.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from attnlib.auditing.response import Subject, contents

STEP = 0.25
"""By how much a value is changed, and by which share a parameter is, or its cosine at most."""


class Gradient(NamedTuple):
    """Hold a derivative by the backward pass, and the same by differences of the forward pass."""

    of: str
    """"q", "k", "v", or the name of a parameter."""
    backward: float
    forward: float
    error: float
    """The error of `forward` by rounding."""


def gradients(subject: Subject, length: int, unit: float, shift: float = 0.0) -> list[Gradient]:
    """Return derivatives with respect to q, k and v, and to the parameters of a module.

    With respect to q, k and v they are those of the log-odds of the last key in the last row,
    summed over the heads that read the first head of keys; with respect to parameters, and to q
    again, those of the logarithm of its weight, which depends on a sink too. `unit` is about what
    multiplies q·k or the cosine, `shift` a component that all keys have. Empty where the output
    has no derivative.
    """
    root = math.sqrt(subject.size.dimension)
    step = min(root / abs(unit), STEP * root) if subject.normalises else 1.0 / (abs(unit) * root)
    step /= max(1.0, 2.0 * abs(shift) / root)  # keys are longer then
    q, k, v = (t.requires_grad_() for t in _inputs(subject, length, step, shift))

    heads = subject.size.heads // subject.size.key_heads

    def log_weight(of: int = 0) -> Tensor:
        return torch.log(subject.answer([q, k, v])[0, :heads, -1, -1 - of].double()).sum()

    def log_odds() -> Tensor:
        return log_weight(0) - log_weight(1)

    # What a step changes, a number or a whole parameter, and the output that is looked at.
    places: list[tuple[str, Tensor, tuple[int, ...], float, Callable[[], Tensor]]] = [
        ("q", q, (0, 0, -1, 1), step, log_odds),
        ("k", k, (0, 0, -1, 0), step, log_odds),
        ("v", v, (0, 0, -1, -1), STEP, log_odds),
        ("q through one weight", q, (0, 0, -1, 1), step, log_weight),
    ]
    function = subject.function
    learned = function.named_parameters() if isinstance(function, torch.nn.Module) else ()
    for name, parameter in learned:
        if parameter.requires_grad:
            largest = float(parameter.detach().abs().max())
            places.append((name, parameter, (), STEP * (largest or 1.0), log_weight))
    gradients = []
    for of, tensor, where, step, looked_at in places:
        with torch.enable_grad():
            try:
                (slope,) = torch.autograd.grad(looked_at(), tensor, allow_unused=True)
            except RuntimeError:  # it has no derivative
                return []
        backward = 0.0 if slope is None else float(slope[where].double().sum())
        whole, half = (
            _by_differences(looked_at, tensor, where, step / part) for part in (1.0, 2.0)
        )
        error = 12.0 * heads * subject.eps / step
        gradients.append(Gradient(of, backward, (4.0 * half - whole) / 3.0, error))
    return gradients


def _inputs(subject: Subject, length: int, x: float, shift: float) -> list[Tensor]:
    """Return q, k and v: the last key is at a right angle to the others, and a little along q."""
    x = min(x, math.sqrt(subject.size.dimension) / 2.0)
    q, k, _ = contents(subject, length, length, torch.tensor([length - 1]), x, shift=shift)
    k[:, -1, 1], k[:, -1, 3] = k[:, -1, 3], 0.0
    v = torch.zeros(len(k), length, subject.value_size, dtype=torch.float64)
    v[:, -1, -1] = v[:, :-1, -2] = 1.0
    return subject.tensors(q, k, v)


@torch.no_grad()
def _by_differences(
    looked_at: Callable[[], Tensor], tensor: Tensor, where: tuple[int, ...], step: float
) -> float:
    """Return the central difference over a step, as the type of the numbers rounds it."""
    before, ends, at = tensor.clone(), [], []
    for sign in (1.0, -1.0):
        tensor[where] = before[where] + sign * step
        at.append(float((tensor - before)[where].double().mean()))
        ends.append(float(looked_at()))
        tensor.copy_(before)
    return (ends[0] - ends[1]) / (at[0] - at[1])
