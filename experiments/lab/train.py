"""Train a model on a text, and record numbers on the way.

Adam with a constant learning rate, as in source 002, unless told otherwise. The same
configuration, seed and text give the same numbers, on one kind of CPU to the last bit, on a GPU to
rounding. A run whose loss grows without bound ends early.

Source 002. Chapter: almost_scaled_training.
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.attention import rescale
from attnlib.calibration import scale_gradient
from attnlib.probing import probe
from experiments.lab import texts
from experiments.lab.batches import (
    IGNORED,
    Batch,
    training_batches,
    validation_batch,
    window_starts,
)
from experiments.lab.descent import Descent, descend
from experiments.lab.fields import checked, checked_lengths
from experiments.lab.model import Attention, Config, Transformer, loss, named_law
from experiments.lab.texts import Text

LAST_STEPS = 20
"""The final loss is the mean of so many, as in source 002."""

PRECISIONS = {"float32": 9, "float64": 17}
"""Precisions of all numbers of a model, and the digits that each needs in a file."""
LOSS_LIMIT = 1000.0
"""A loss above it, or one that is not a number, ends the run: it has diverged."""
AT_ONCE = {"cpu": 2**11, "cuda": 2**16}
"""Bytes that are read at a time at other lengths, by device."""
READING_LAWS = ("root_log", "ssmax")
"""The laws under which a model without one is read at other lengths."""
MASKED = 0.15
"""The share of bytes that an encoder has to fill in."""
TEXTS = 16
"""Batches of training and of validation text on which a trained model's gradients are taken."""


def _device(name: str, value: str) -> str:
    """Return the value, a CPU or a GPU in PyTorch's words; ValueError for others."""
    _checking.choice(name, str(value).partition(":")[0], ("cpu", "cuda"))
    return str(value)


@dataclass(frozen=True)
class Training(Descent):
    """How a model is trained on a text. The defaults are source 002's, at one learning rate.

    Raises ValueError or TypeError that names a field, its value and what is allowed. Source 002.
    Chapter: almost_scaled_training.
    """

    precision: str = checked("float32", _checking.choice, allowed=tuple(PRECISIONS))
    """One of `PRECISIONS`."""
    record_every: int = checked(50, _checking.integer, minimum=1)
    """Steps between two records of branch-to-skip ratios."""
    validation_windows: int = checked(256, _checking.integer, minimum=1)
    """At most so many windows of the validation text give the validation loss."""
    losses_every: int = checked(1, _checking.integer, minimum=1)
    """Steps of each mean in `Run.losses`: a divisor or a multiple of 20, for a smaller file."""
    record_attention: bool = checked(False, _checking.flag)
    """Record the spread of the logits and the effective keys too."""
    record_gains: bool = checked(False, _checking.flag)
    """Record the learned factors of the heads' logits."""
    record_scale: bool = checked(False, _checking.flag)
    """Record the sizes of W_q and W_k and ∂L/∂log t of each head: see `Run.norms`."""
    lengths: tuple[int, ...] = checked((), checked_lengths)
    """Even lengths of window at which the trained decoder is read too, divisors of the largest: see
    `Run.readings`."""
    read_bytes: int = checked(2**14, _checking.integer, minimum=1)
    """At most so many bytes are read at those lengths, the same at each."""
    device: str = checked("cpu", _device)
    """The device in PyTorch's words: "cuda", say."""
    autocast: bool = checked(False, _checking.flag)
    """Multiply matrices in bfloat16; parameters, sums and the optimiser stay as they are."""
    graphs: bool = checked(False, _checking.flag)
    """Replay each step on the GPU as CUDA graphs: `descent.Graphs`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        every = self.losses_every
        if self.graphs and self.device == "cpu":
            raise ValueError("graphs=True is for device='cuda', got device='cpu'")
        if (LAST_STEPS % every and every % LAST_STEPS) or self.steps % every:
            raise ValueError(
                f"losses_every must divide {LAST_STEPS}, or be a multiple of it, and divide "
                f"steps={self.steps}, got losses_every={every}"
            )
        if any(n % 2 or max(self.lengths) % n for n in self.lengths):
            raise ValueError(
                f"lengths must be even divisors of the largest, got lengths={self.lengths}"
            )

    def recorded_steps(self, kept: int) -> list[int]:
        """Return the recorded ones of the first `kept` steps."""
        return [step for step in range(kept) if self.is_recorded(step)]

    def is_recorded(self, step: int) -> bool:
        """Return whether a step is recorded: each `record_every`-th is, and the last."""
        return step % self.record_every == 0 or step == self.steps - 1

    def mean_starts(self, steps: int) -> range:
        """Return the first step of each mean in `Run.losses`, in a run of so many steps."""
        return range(0, steps, self.losses_every)


@dataclass(frozen=True)
class Run:
    """The results of a run. If it diverged, they end before that step.

    Chapter: almost_scaled_training.
    """

    losses: FloatArray
    """Shape (steps,): the loss of each step's batch before its update, in nats a byte; or the means
    of `Training.losses_every` steps."""
    diverged_at: int | None
    """The first step whose loss was not a number or above the limit; None if there is none."""
    final_loss: float | None
    """The mean of the last 20 losses; None if the run diverged."""
    validation_loss: float | None
    """After the last step, in nats a byte; None if the run diverged, be it in its last step."""
    recorded_at: NDArray[np.int64]
    """Shape (records,): the steps of the records below, the first and the last among them."""
    branch_ratios: FloatArray
    """Shape (records, depth): rms(attention branch)/rms(skip) of each block."""
    spreads: FloatArray | None = None
    """Shape (records, depth): α, the standard deviation of the logits over the keys of a row, root
    of the mean square over the rows and heads of a block; None if it was not to be recorded."""
    effective_keys: FloatArray | None = None
    """Shape (records, depth): 1/Y, for the mean Y of the same rows; None as for `spreads`."""
    gains: FloatArray | None = None
    """Shape (records, depth, 1 or 2, heads): learned `descent.GAINS` before the step; None if they
    were not to be recorded, or nothing is learned."""
    norms: FloatArray | None = None
    """Shape (records, depth, 2, heads): ‖W_q‖² and ‖W_k‖² of each head, biases counted, before the
    step; None if it was not to be recorded."""
    slopes: FloatArray | None = None
    """Shape (records, depth, heads): the mean of ∂L/∂log t of each head, by its weights, over the
    steps from a record to the one before the next."""
    scale_samples: FloatArray | None = None
    """Shape (2, 16, depth, heads): ∂L/∂log t of the trained model on batches of training text and
    of validation text; NaN beyond a short text; None if the run diverged."""
    readings: FloatArray | None = None
    """Shape (lengths, 1 or 3): the loss in windows of each of `Training.lengths`, over the second
    half of the window, the same bytes of the validation text at each length. Then the same under
    each of `READING_LAWS`, 1 at n₀ = `Config.sequence`, where the model has no law of its own."""


def train(config: Config, training: Training, text: Text) -> Run:
    """Train one model on the first nine tenths of `text`; the rest gives the validation loss.

    The result depends on the arguments, the number of threads, the processor and PyTorch's version
    only. Raises ValueError for a text too short for a window. Source 002.
    Chapter: almost_scaled_training.

    >>> size = dict(width=8, head_size=4, depth=1, sequence=16)
    >>> run = train(Config(**size), Training(steps=30, learning_rate=2**-5), texts.embedded(10_000))
    >>> len(run.losses), run.diverged_at, bool(run.final_loss < run.losses[0])
    (30, None, True)
    """
    return train_model(config, training, text)[1]


def train_model(
    config: Config,
    training: Training,
    text: Text,
    after_step: Callable[[int], object] = lambda step: None,
) -> tuple[Transformer, Run]:
    """Train as `train` does, and return the model too; `after_step` is called with each step.

    Chapter: almost_scaled_training.
    """
    dtype, device = getattr(torch, training.precision), torch.device(training.device)
    model = Transformer(config, training.seed, dtype).to(device)
    parts, masked = texts.split(text), None if config.causal else MASKED
    if training.lengths and (config.positions == "learned" or not config.causal):
        raise ValueError("lengths are for a decoder whose positions are not learned")
    if training.record_scale and (config.cosine or not config.causal):
        raise ValueError("record_scale is for a decoder whose queries have no norm of their own")
    if max(training.lengths, default=0) >= parts.validation.size:
        raise ValueError(f"lengths must be below the {parts.validation.size} bytes of validation")
    validation = validation_batch(
        parts.validation,
        sequence=config.sequence,
        windows=training.validation_windows,
        masked=masked,
    )
    losses = torch.full((training.steps,), math.nan, dtype=dtype, device=device)
    records = []
    size_recorder = SizeRecorder(model)
    batches = device_batches(parts.training, config, training, masked)
    loss_of = partial(batch_loss, autocast=training.autocast)
    for step, batch, value in descend(model, training, batches, loss_of, graphs=training.graphs):
        losses[step] = value
        if training.record_scale:
            size_recorder(training.is_recorded(step))
        if training.is_recorded(step):
            with training_precision(model, training):
                records.append(_record(model, batch[0], training))
            if not bool((losses[: step + 1] <= LOSS_LIMIT).all()):
                break
        after_step(step)
    every = losses.double().cpu().numpy()
    bad = np.flatnonzero(~(every <= LOSS_LIMIT))
    diverged_at = int(bad[0]) if bad.size else None
    kept = every[:diverged_at]
    at = training.recorded_steps(kept.size)
    tensors = {name: torch.stack([record[name] for record in records]) for name in records[0]}
    if training.record_scale:
        tensors |= size_recorder.records()
    recorded: dict[str, FloatArray] = {
        name: values[: len(at)].to(dtype).double().cpu().numpy() for name, values in tensors.items()
    }
    with training_precision(model, training):
        validation_loss = _batched_mean_loss(model, validation, training.batch)
        if training.lengths:
            recorded["readings"] = _readings(model, parts.validation, training)
        if training.record_scale and not bad.size:
            slopes = scale_samples(model, parts, training.batch)
            recorded["scale_samples"] = slopes.astype(training.precision).astype(np.float64)
    return model, Run(
        losses=_block_means(kept, training),
        diverged_at=diverged_at,
        final_loss=None if bad.size else float(kept[-LAST_STEPS:].mean()),
        validation_loss=None if bad.size or not math.isfinite(validation_loss) else validation_loss,
        recorded_at=np.array(at, dtype=np.int64),
        **recorded,
    )


def device_batches(
    text: Text, config: Config, training: Training, masked: float | None
) -> Iterator[Any]:
    """Yield each of `training_batches` as tensors on the device.

    Where nothing is masked, windows are gathered there from the text.
    """
    device, shape = training.device, {"sequence": config.sequence, "batch": training.batch}
    shape |= {"steps": training.steps, "seed": training.seed}
    if masked is not None:
        for arrays in training_batches(text, **shape, masked=masked):
            yield [torch.from_numpy(t).to(device) for t in arrays]
        return
    tokens = torch.tensor(text, device=device)
    window = torch.arange(config.sequence + 1, device=device)
    for starts in window_starts(text, **shape):
        begin = torch.from_numpy(starts).to(device)
        windows = tokens[begin[:, None] + window].long()
        yield windows[:, :-1], windows[:, 1:]


def batch_loss(model: nn.Module, batch: Batch, autocast: bool = False) -> Tensor:
    """Return the mean loss of a model on a batch of windows, which need not be on its device."""
    device = next(model.parameters()).device
    inputs, targets = (torch.as_tensor(tokens, device=device) for tokens in batch)
    with _precision(device, autocast):
        logits = model(inputs)
    return loss(logits.to(torch.promote_types(logits.dtype, torch.float32)), targets)


def _precision(device: torch.device, autocast: bool) -> AbstractContextManager[Any]:
    """Return the context of matrix products in bfloat16, or one that does nothing."""
    return torch.autocast(device.type, torch.bfloat16) if autocast else nullcontext()


def training_precision(model: Transformer, training: Training) -> AbstractContextManager[Any]:
    """Return the context in which a model computes in the precision of its training."""
    return _precision(model.token.weight.device, training.autocast)


@torch.no_grad()
def _record(model: Transformer, inputs: Tensor, training: Training) -> dict[str, Tensor]:
    """Return a record of the model on a batch: ratios, and what else `training` records."""
    ratios: list[Tensor] = []
    model(inputs, ratios)
    readings = {"branch_ratios": torch.stack(ratios)}
    if training.record_attention:
        readings |= _measure_attention(model, inputs)
    if training.record_gains and all(model.gains()):
        readings["gains"] = torch.stack([torch.stack(block) for block in model.gains()])
    return readings


@torch.no_grad()
def _readings(model: Transformer, text: Text, training: Training) -> FloatArray:
    """Return `Run.readings`."""
    own, length = model.config.law != "none" or model.config.policy, model.config.sequence
    rows = []
    for batch in reading_windows(text, training):
        row = [mean_loss(model, batch)]
        for law in () if own else READING_LAWS:
            with rescale(factor=named_law(law, length), train_length=length):
                row.append(mean_loss(model, batch))
        rows.append(row)
    return np.array(rows)


def reading_windows(text: Text, training: Training) -> Iterator[Batch]:
    """Yield for each of `Training.lengths` the windows whose second halves are read.

    They go on by half of their length, so that halves tile the same bytes.
    """
    part = max(training.lengths, default=2) // 2
    count = min(training.read_bytes, text.size - 1 - part) // part * part
    for n in training.lengths:
        starts = np.arange(part - n // 2, part - n // 2 + count, n // 2)
        windows = text[starts[:, None] + np.arange(n + 1)].astype(np.int64)
        inputs, targets = windows[:, :-1], windows[:, 1:].copy()
        targets[:, : n // 2] = IGNORED
        yield Batch(inputs, targets)


def mean_loss(model: Transformer, windows: Batch) -> float:
    """Return the mean loss over windows, in nats a byte."""
    at_once = AT_ONCE[model.token.weight.device.type]
    return _batched_mean_loss(model, windows, max(1, at_once // windows.inputs.shape[1]))


def _measure_attention(model: Transformer, inputs: Tensor) -> dict[str, Tensor]:
    """Return the spread of the logits and the effective keys of each block, each (depth,)."""
    with probe(model, theory=False) as report:
        model(inputs)
    heads = json.loads(report.to_json())["heads"]
    shape = len(model.blocks), model.config.heads
    names = "alpha", "collision_probability"
    numbers = [[math.nan if h[name] is None else h[name] for h in heads] for name in names]
    spreads, shared = torch.tensor(numbers, dtype=torch.float64).reshape(2, *shape)
    return {"spreads": spreads.square().mean(-1).sqrt(), "effective_keys": 1.0 / shared.mean(-1)}


def _block_means(losses: FloatArray, training: Training) -> FloatArray:
    """Return the mean of each block of `training.losses_every` losses, the last perhaps shorter.

    Means are rounded to the training's precision; blocks of one loss are the losses themselves.
    """
    if training.losses_every == 1 or not losses.size:
        return losses
    starts = list(training.mean_starts(losses.size))
    means = np.add.reduceat(losses, starts) / np.diff([*starts, losses.size])
    rounded: FloatArray = means.astype(training.precision).astype(np.float64)
    return rounded


@torch.no_grad()
def _batched_mean_loss(model: Transformer, windows: Batch, size: int) -> float:
    """Return the mean loss over all windows, taken in batches of `size`."""
    total = torch.zeros((), dtype=torch.float64, device=model.token.weight.device)
    for start in range(0, len(windows.inputs), size):
        part = Batch(*(tokens[start : start + size] for tokens in windows))
        total += len(part.inputs) * batch_loss(model, part).double()
    return float(total / len(windows.inputs))


# --- how heads come to their scale ----------------------------------------------------------------


class SizeRecorder:
    """Records the sizes of W_q and W_k and the scale gradients: call it after each backward pass.

    Multiplying the logits of a head by t is multiplying its W_q and its bias by t. So ∂L/∂log t =
    ⟨W_q, ∂L/∂W_q⟩ + ⟨b_q, ∂L/∂b_q⟩, and the same of W_k. Under gradient flow ‖W_q‖² and ‖W_k‖²,
    biases counted, both change by −2 times it.

    A record has `norms`, (depth, 2, heads), ‖W_q‖² and ‖W_k‖² of each head before the update of its
    step, and `slopes`, (depth, heads), the mean of ∂L/∂log t over the steps from its own to the one
    before the next record.
    """

    def __init__(self, model: Transformer) -> None:
        self.layers = [part for part in model.modules() if isinstance(part, Attention)]
        self.norms: list[Tensor] = []
        self.slopes: list[list[Tensor]] = []

    @torch.no_grad()
    def __call__(self, records: bool) -> None:
        """Take a step into account; with `records` it begins a record."""
        if records:
            norms = [_products(layer, gradient=False)[:2] for layer in self.layers]
            self.norms.append(torch.stack(norms))
            self.slopes.append([])
        slopes = [_products(layer, gradient=True)[0] for layer in self.layers]
        self.slopes[-1].append(torch.stack(slopes))

    def records(self) -> dict[str, Tensor]:
        """Return `norms` and `slopes`, with a first axis of records."""
        means = [reduce(torch.add, slopes) / len(slopes) for slopes in self.slopes]
        return {"norms": torch.stack(self.norms), "slopes": torch.stack(means)}


def _products(layer: Attention, *, gradient: bool) -> Tensor:
    """Return ⟨W, W⟩ or ⟨W, ∂L/∂W⟩ of each head's W_q, W_k and W_v, biases counted, (3, heads)."""
    products = []
    for parameter in layer.input.weight, layer.input.bias:
        other = cast(Tensor, parameter.grad) if gradient else parameter
        products.append((parameter * other).reshape(3, layer.config.heads, -1).sum(dim=-1))
    return products[0] + products[1]


def scale_samples(model: Transformer, parts: texts.Split, windows: int) -> FloatArray:
    """Return ∂L/∂log t of a trained decoder, (2, texts, depth, heads): its training text first.

    Each text is a batch of so many windows, evenly spaced over its part. A short part has fewer
    texts, and NaN for the others.
    """
    shape = 2, TEXTS, model.config.depth, model.config.heads
    gradients = np.full(shape, np.nan)
    for row, part in zip(gradients, parts, strict=True):
        sequence = model.config.sequence
        whole = validation_batch(part, sequence=sequence, windows=TEXTS * windows)
        starts = range(0, len(whole.inputs) - windows + 1, windows)
        batches = [Batch(*(tokens[i : i + windows] for tokens in whole)) for i in starts]
        row[: len(batches)] = scale_gradient(model, batches, batch_loss).samples
    return gradients
