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

from attnlib.auditing.response import Subject, keys_of_product

STEP = 0.25
"""The step of a value; of a parameter, as a share of its largest entry; of a cosine, at most."""


class Gradient(NamedTuple):
    """Hold a derivative by the backward pass, and by differences of the forward pass."""

    of: str
    """With respect to what: "q", "k", "v", or the name of a parameter."""
    backward: float
    forward: float
    error: float
    """The error of `forward` by rounding."""


def gradients(subject: Subject, length: int, unit: float, shift: float = 0.0) -> list[Gradient]:
    """Return derivatives with respect to q, k and v, and to the parameters of a module.

    With respect to q, k and v they are those of the log-odds of the last key in the last row,
    summed over the heads that read the first head of keys; with respect to parameters, and to q
    again, those of the logarithm of its weight, which depends on a sink too. `unit` is about the
    scale, `shift` a component of all keys along the query. The list is empty where the output has
    no derivative.
    """
    root = math.sqrt(subject.size.dimension)
    step = min(root / abs(unit), STEP * root) if subject.normalises else 1.0 / (abs(unit) * root)
    step /= max(1.0, 2.0 * abs(shift) / root)  # keys are longer then
    q, k, v = (t.requires_grad_() for t in _inputs(subject, length, step, shift))
    heads = subject.size.heads // subject.size.key_heads

    def log_weight(channel: int = -1) -> Tensor:
        return torch.log(subject.call([q, k, v])[0, :heads, -1, channel].double()).sum()

    def log_odds() -> Tensor:
        return log_weight(-1) - log_weight(-2)

    # What a step changes, a number or a whole parameter, and the function that is differentiated.
    cases: list[tuple[str, Tensor, tuple[int, ...], float, Callable[[], Tensor]]] = [
        ("q", q, (0, 0, -1, 1), step, log_odds),
        ("k", k, (0, 0, -1, 0), step, log_odds),
        ("v", v, (0, 0, -1, -1), STEP, log_odds),
        ("q through one weight", q, (0, 0, -1, 1), step, log_weight),
    ]
    module = subject.function
    learned = module.named_parameters() if isinstance(module, torch.nn.Module) else ()
    for name, parameter in learned:
        if parameter.requires_grad:
            largest = float(parameter.detach().abs().max())
            cases.append((name, parameter, (), STEP * (largest or 1.0), log_weight))
    gradients = []
    for name, tensor, index, step, function in cases:
        with torch.enable_grad():
            try:
                (gradient,) = torch.autograd.grad(function(), tensor, allow_unused=True)
            except RuntimeError:  # it has no derivative
                return []
        backward = 0.0 if gradient is None else float(gradient[index].double().sum())
        whole, half = (
            _central_difference(function, tensor, index, step / part) for part in (1.0, 2.0)
        )
        error = 12.0 * heads * subject.eps / step
        gradients.append(Gradient(name, backward, (4.0 * half - whole) / 3.0, error))
    return gradients


def _inputs(subject: Subject, length: int, x: float, shift: float) -> list[Tensor]:
    """Return q, k and v: the last key lies at a right angle to the others, and x along q.

    The last channel of v shows the weight of the last key, the one before that of the others.
    """
    x = min(x, math.sqrt(subject.size.dimension) / 2.0)
    q, k, _ = keys_of_product(subject, length, length, torch.tensor([length - 1]), x, shift=shift)
    k[:, -1, 1], k[:, -1, 3] = k[:, -1, 3], 0.0
    v = torch.zeros(len(k), length, subject.value_size, dtype=torch.float64)
    v[:, -1, -1] = v[:, :-1, -2] = 1.0
    return subject.to_arguments(q, k, v)


@torch.no_grad()
def _central_difference(
    function: Callable[[], Tensor], tensor: Tensor, index: tuple[int, ...], step: float
) -> float:
    """Return the quotient of differences over a step of tensor[index], as the type rounds it."""
    before, outputs, steps = tensor.clone(), [], []
    for sign in (1.0, -1.0):
        tensor[index] = before[index] + sign * step
        steps.append(float((tensor - before)[index].double().mean()))
        outputs.append(float(function()))
        tensor.copy_(before)
    return (outputs[0] - outputs[1]) / (steps[0] - steps[1])
