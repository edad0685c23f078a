"""Training: one run, or several at once as one program, with what is recorded on the way.

Adam with a constant learning rate and PyTorch's other defaults, as in source 002. A run is a value:
a configuration, a seed and a text give the same numbers, on a CPU to the last bit. A run whose loss
grows without bound ends early and says so.

Source 002. Chapter: training.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from attnlib import checking
from attnlib.checking import FloatArray
from attnlib.lab import data
from attnlib.lab.data import Batch, Text
from attnlib.lab.model import Config, Transformer, loss

LAST_STEPS = 20
"""The final loss is the mean over so many last steps, as in source 002."""

PRECISIONS = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.float32,  # of the parameters; the matrix products are in bfloat16
}


@dataclass(frozen=True)
class Training:
    """How a model is trained. The defaults are source 002's, at one of its learning rates.

    Raises ValueError or TypeError that names a field, its value and what is allowed.
    """

    learning_rate: float = 2.0**-10
    steps: int = 5000
    batch: int = 16
    seed: int = 0
    """Of the initial parameters, of the batches and of the masks."""
    precision: str = "float32"
    """"float32", "float64" or "bfloat16" (matrix products only)."""
    record_every: int = 50
    """Steps between two records of gradient norm and branch-to-skip ratios."""
    loss_limit: float = 1000.0
    """A loss above it, or one that is not a number, ends the run: it has diverged."""
    validation_windows: int = 256
    """At most so many windows of the validation text give the validation loss."""
    masked: float = 0.15
    """The share of bytes that an encoder has to fill in."""

    def __post_init__(self) -> None:
        checked = {
            **{
                name: checking.integer(name, getattr(self, name), minimum=1, maximum=2**31)
                for name in ("steps", "batch", "record_every", "validation_windows")
            },
            **{
                name: checking.positive(name, getattr(self, name))
                for name in ("learning_rate", "loss_limit", "masked")
            },
            "seed": checking.integer("seed", self.seed, minimum=0),
            "precision": checking.choice("precision", self.precision, tuple(PRECISIONS)),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.masked > 1.0:
            raise ValueError(f"masked must be at most 1, got masked={self.masked:g}")


@dataclass(frozen=True)
class Run:
    """What a run gave. If it diverged, everything ends before that step."""

    losses: FloatArray  # (steps,): of the batch of each step, before its update; nats a byte
    diverged_at: int | None  # the first step whose loss was not a number or above the limit
    final_loss: float | None  # mean of the last 20; None if diverged
    validation_loss: float | None  # after the last step; None if diverged
    recorded_at: NDArray[np.int64]  # (records,): steps, the first and the last among them
    gradient_norms: FloatArray  # (records,): of all parameters together
    branch_ratios: FloatArray  # (records, depth): rms(attention branch)/rms(skip)


def train(config: Config, training: Training, text: Text, *, device: str = "cpu") -> Run:
    """Train one model on the first nine tenths of `text`; the rest gives the validation loss.

    On a CPU the result depends on the arguments, the number of threads, the processor and
    PyTorch's version only. Raises ValueError for a text too short for a window.

    >>> size = dict(width=8, head_size=4, depth=1, sequence=16)
    >>> run = train(Config(**size), Training(steps=30, learning_rate=2**-5), data.embedded(10_000))
    >>> len(run.losses), run.diverged_at, bool(run.final_loss < run.losses[0])
    (30, None, True)
    """
    return train_model(config, training, text, device=device)[1]


def train_model(
    config: Config, training: Training, text: Text, *, device: str = "cpu"
) -> tuple[Transformer, Run]:
    """Train as `train` does, and return the model too."""
    objective = _Single(config, training).to(device)
    optimiser = torch.optim.Adam(objective.parameters(), lr=training.learning_rate, fused=True)
    run = _run(objective, optimiser, [training], text)[0]
    return objective.model, run


def train_many(
    config: Config, trainings: Sequence[Training], text: Text, *, device: str = "cpu"
) -> list[Run]:
    """Train one model for each of `trainings` at once, as `train` does one after another.

    They may differ in learning rate and seed. The parameters of all models are one array and a
    step of all is one program, which keeps a GPU busy where one small model cannot; on a CPU
    `train` is faster. The losses are those of `train` up to rounding. Raises ValueError for
    trainings that differ in anything else.
    """
    if not trainings:
        return []
    first = trainings[0]
    for other in trainings[1:]:
        if replace(other, learning_rate=first.learning_rate, seed=first.seed) != first:
            raise ValueError(
                f"trainings may differ in learning_rate and seed only, got {first} and {other}"
            )
    objective = _Stack(config, trainings).to(device)
    optimiser = _StackedAdam(objective.stacked, [t.learning_rate for t in trainings])
    return _run(objective, optimiser, trainings, text)


Model = Callable[..., Tensor]


class _Objective(nn.Module):
    """The losses of R models, one for each run. Tokens have shape (R, batch, sequence)."""

    def __init__(self, config: Config, training: Training) -> None:
        super().__init__()
        self.config = config
        self.mixed = training.precision == "bfloat16"

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        # Apart from `losses` because a CUDA graph takes its place, for one shape of tokens.
        return self.losses(inputs, targets)

    def losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the losses, shape (R,)."""
        # A cache of weights cast to bfloat16 would be stale inside a CUDA graph.
        with torch.autocast(
            inputs.device.type, torch.bfloat16, enabled=self.mixed, cache_enabled=False
        ):
            return self.each(lambda model, x, y: loss(model(x), y), inputs, targets)

    @torch.no_grad()
    def branch_ratios(self, inputs: Tensor) -> Tensor:
        """Return rms(attention branch)/rms(skip), shape (R, depth)."""
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.mixed):
            return self.each(_branch_ratios, inputs)

    def each(self, measure: Callable[..., Tensor], *tokens: Tensor) -> Tensor:
        """Return measure(model, tokens of the run) for each run, stacked."""
        raise NotImplementedError

    def gradient_norms(self) -> Tensor:
        """Return the norm of each model's gradient, shape (R,)."""
        raise NotImplementedError


def _branch_ratios(model: Model, inputs: Tensor) -> Tensor:
    ratios: list[Tensor] = []
    model(inputs, ratios)
    return torch.stack(ratios)


class _Single(_Objective):
    """One model."""

    def __init__(self, config: Config, training: Training) -> None:
        super().__init__(config, training)
        self.model = Transformer(config, training.seed, PRECISIONS[training.precision])

    def each(self, measure: Callable[..., Tensor], *tokens: Tensor) -> Tensor:
        return measure(self.model, *(of_runs[0] for of_runs in tokens))[None]

    def gradient_norms(self) -> Tensor:
        gradients = [cast(Tensor, parameter.grad) for parameter in self.parameters()]
        return nn.utils.get_total_norm(gradients)[None]


class _Stack(_Objective):
    """Several models of one configuration: the rows of `stacked` are their parameters."""

    def __init__(self, config: Config, trainings: Sequence[Training]) -> None:
        super().__init__(config, trainings[0])
        models = [Transformer(config, t.seed, PRECISIONS[t.precision]) for t in trainings]
        vectors = [nn.utils.parameters_to_vector(model.parameters()) for model in models]
        self.stacked = nn.Parameter(torch.stack(vectors).detach())
        self.template = models[0].requires_grad_(False)  # lends its code and buffers
        self.shapes = {name: p.shape for name, p in self.template.named_parameters()}
        self.sizes = [shape.numel() for shape in self.shapes.values()]

    def each(self, measure: Callable[..., Tensor], *tokens: Tensor) -> Tensor:
        def one(row: Tensor, *tokens: Tensor) -> Tensor:
            parts = zip(self.shapes.items(), torch.split(row, self.sizes), strict=True)
            named = {name: part.view(shape) for (name, shape), part in parts}
            return measure(lambda *given: functional_call(self.template, named, given), *tokens)

        with warnings.catch_warnings():
            # On a CPU, where `train` is the way, the fused attention is called model by model.
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            return torch.vmap(one)(self.stacked, *tokens)

    def gradient_norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(cast(Tensor, self.stacked.grad), dim=1)
        return norms


class _StackedAdam:
    """PyTorch's Adam with a learning rate for each row of one parameter."""

    def __init__(self, parameter: nn.Parameter, learning_rates: Sequence[float]) -> None:
        self.parameter = parameter
        self.learning_rates = parameter.new_tensor(learning_rates)[:, None]
        self.mean, self.square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self.count = 0

    def zero_grad(self) -> None:
        self.parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        gradient = cast(Tensor, self.parameter.grad)
        self.count += 1
        self.mean.lerp_(gradient, 1.0 - 0.9)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=1.0 - 0.999)
        root = self.square.sqrt().div_(math.sqrt(1.0 - 0.999**self.count)).add_(1e-8)
        change = self.mean.div(root).mul_(self.learning_rates)
        self.parameter.add_(change, alpha=-1.0 / (1.0 - 0.9**self.count))


Optimiser = torch.optim.Adam | _StackedAdam


def _run(
    objective: _Objective, optimiser: Optimiser, trainings: Sequence[Training], text: Text
) -> list[Run]:
    """Train the models of `objective` step by step and return what was recorded of each."""
    config, training = objective.config, trainings[0]
    parts = data.split(text)
    masked = None if config.causal else training.masked
    streams = [
        data.batches(
            parts.training,
            sequence=config.sequence,
            batch=training.batch,
            steps=training.steps,
            seed=one.seed,
            masked=masked,
        )
        for one in trainings
    ]
    validation = data.validation_batch(
        parts.validation,
        sequence=config.sequence,
        windows=training.validation_windows,
        masked=masked,
    )
    device = next(objective.parameters()).device
    step_losses: Callable[[Tensor, Tensor], Tensor] = objective
    if device.type == "cuda":
        # One launch for all kernels of a pass: these models are too small to hide hundreds.
        shape = len(trainings), training.batch, config.sequence
        sample = torch.zeros(shape, dtype=torch.int64, device=device)
        graphed = torch.cuda.make_graphed_callables(objective, (sample, sample.clone()))
        step_losses = cast(_Objective, graphed)
    # Losses stay on the device: reading each one would make a GPU wait.
    losses = torch.full((training.steps, len(trainings)), math.nan, device=device)
    losses = losses.to(PRECISIONS[training.precision])
    recorded_at: list[int] = []
    norms: list[Tensor] = []
    ratios: list[Tensor] = []
    for step, batches in enumerate(zip(*streams, strict=True)):
        inputs, targets = _tokens(batches, device)
        optimiser.zero_grad()
        of_runs = step_losses(inputs, targets)
        of_runs.sum().backward()  # type: ignore[no-untyped-call]
        losses[step] = of_runs.detach()
        if step % training.record_every == 0 or step == training.steps - 1:
            recorded_at.append(step)
            norms.append(objective.gradient_norms())
            ratios.append(objective.branch_ratios(inputs))
            ended = ~(losses[: step + 1] <= training.loss_limit)
            if bool(ended.any(dim=0).all()):
                break
        optimiser.step()
    finals = _validation(objective, validation, training.batch, len(trainings))
    recorded = (losses, torch.stack(norms), torch.stack(ratios), finals[None])
    arrays = [values.double().cpu().numpy() for values in recorded]
    return [
        _finished(training, recorded_at, *(array[:, run] for array in arrays))
        for run in range(len(trainings))
    ]


def _tokens(batches: Sequence[Batch], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of all runs, each of shape (R, batch, sequence)."""
    inputs, targets = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*batches, strict=True))
    if device.type == "cuda":  # from pinned memory the copy does not wait for the GPU
        inputs, targets = inputs.pin_memory(), targets.pin_memory()
    return inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)


@torch.no_grad()
def _validation(objective: _Objective, windows: Batch, size: int, runs: int) -> Tensor:
    """Return the mean loss over all windows, shape (R,), taken in batches of `size`."""
    device = next(objective.parameters()).device
    total = torch.zeros(runs, dtype=torch.float64, device=device)
    for start in range(0, len(windows.inputs), size):
        part = Batch(*(tokens[start : start + size] for tokens in windows))
        inputs, targets = _tokens([part] * runs, device)
        total += len(part.inputs) * objective.losses(inputs, targets).double()
    return total / len(windows.inputs)


def _finished(
    training: Training,
    recorded_at: Sequence[int],
    losses: FloatArray,
    norms: FloatArray,
    ratios: FloatArray,
    validation: FloatArray,
) -> Run:
    """Return a run, cut off where it diverged."""
    bad = np.flatnonzero(~(losses <= training.loss_limit))
    diverged_at = int(bad[0]) if bad.size else None
    records = [step for step in recorded_at if diverged_at is None or step < diverged_at]
    return Run(
        losses=losses[:diverged_at],
        diverged_at=diverged_at,
        final_loss=None if bad.size else float(losses[-LAST_STEPS:].mean()),
        validation_loss=None if bad.size else float(validation[0]),
        recorded_at=np.array(records, dtype=np.int64),
        gradient_norms=norms[: len(records)],
        branch_ratios=ratios[: len(records)],
    )
