"""Decoders of 25 million parameters: gain.toml and length.toml, as far as the time goes.

A run is a line, as of every sweep, with what was found after training beside it: `extended`, the
readings after a short continuation in longer windows, and `scale_gradients`, ∂L/∂log t of each
text, layer and head at each length. A run that would not end in time is not begun, and one that
does not end is not there: the same command goes on.
"""

import copy
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from attnlib import _files
from attnlib.attention import rescale
from attnlib.calibration import scale_gradient
from experiments.lab import data, results, sweep
from experiments.lab.data import Batch, Text
from experiments.lab.descent import descend
from experiments.lab.model import Config, Transformer, named_law
from experiments.lab.results import Setting
from experiments.lab.train import (
    Clock,
    Training,
    as_written,
    batch_loss,
    batches_of,
    read,
    train_model,
    windows_of,
)

HERE = Path(__file__).parent
ORDER = [("length", 0), ("gain", 0), ("length", 1), ("length", 2), ("gain", 1), ("gain", 2)]
"""Files and seeds, most important first."""

EXTENSION = 30
"""Steps of the continuation."""
LONGER = 4
"""Its windows, over those of training."""
TEXTS = 8
"""Windows whose scale gradient is taken at each length."""

PEAK = 989e12
"""What an H100 can do in bfloat16, operations a second."""
SHARE = 0.12
"""The share of that which is expected before a run was timed: a careful guess."""

Table = dict[str, Any]
Planned = tuple[str, Setting]
"""The name of a file, and a run of it."""


class OutOfTimeError(Exception):
    """The time is over."""


def planned(tiny: bool = False) -> list[Planned]:
    """Return the runs, each with the name of its file; small ones for the CPU."""
    sweeps = {name: sweep.read(HERE / f"{name}.toml") for name, _ in ORDER}
    found = [
        (name, setting)
        for name, seed in ORDER
        for setting in sweeps[name].settings
        if setting.training.seed == seed
    ]
    return [(name, _tiny(setting)) for name, setting in found] if tiny else found


def _tiny(setting: Setting) -> Setting:
    config, training = setting.config, _training(setting)
    shorter = config.sequence // 32
    return replace(
        setting,
        config=replace(config, width=16, head_size=8, depth=2, sequence=32),
        training=replace(
            training,
            device="cpu",
            batch=8,
            steps=40,
            warmup=4,
            validation_windows=8,
            lengths=tuple(n // shorter for n in training.lengths),
            read_bytes=1024,
        ),
        corpus=data.EMBEDDED,
        sha256=data.sha256(data.EMBEDDED),
    )


def _training(setting: Setting) -> Training:
    assert isinstance(setting.training, Training)
    return setting.training


def parameters(config: Config) -> int:
    """Return how many numbers a decoder learns in its matrices."""
    return 12 * config.depth * config.width**2 + 2 * 256 * config.width


def operations(setting: Setting) -> float:
    """Return about how many operations a run takes: six a parameter and token, and attention."""
    config, training = setting.config, _training(setting)

    def forward(n: int) -> float:  # of a token among n; half of the keys are hidden
        return 2.0 * parameters(config) + 2.0 * config.depth * config.width * n

    tokens = training.batch * config.sequence
    total = 3.0 * training.steps * tokens * forward(config.sequence)
    if training.lengths:
        longer = LONGER * config.sequence
        ways = 2 if config.law == "none" else 1
        total += 3.0 * ways * EXTENSION * tokens * forward(longer)
        once = sum(forward(n) for n in training.lengths)
        total += (2 * ways - 1 + ways) * 2.0 * training.read_bytes * once  # three laws, or one
    total += sum(5.0 * TEXTS * n * forward(n) for n in training.lengths or [config.sequence])
    return total


def go(runs: list[Planned], out: Path, end: float, say: Callable[[str], None]) -> None:
    """Train what has no line in the folder `out` yet, until time.monotonic() is `end`."""
    pace = SHARE * PEAK
    total = sum(operations(setting) for _, setting in runs) / pace / 60.0
    say(f"{len(runs)} runs, estimated {total:.1f} minutes at {SHARE:.0%} of an H100's peak")
    for name, setting in runs:
        file, work = out / f"{name}.jsonl", operations(setting)
        label = f"{name} {setting.variant}, rate {setting.training.learning_rate:.2g}"
        label += f", seed {setting.training.seed}"
        if setting.key in results.read(file):
            continue
        start = time.monotonic()
        if start + work / pace > end:
            say(f"not begun, no time is left: {label}")
            return
        try:
            line = trained(setting, end)
        except OutOfTimeError:
            say(f"given up, the time is over: {label}")
            return
        _files.append(file, line)
        seconds = time.monotonic() - start
        pace = 0.9 * work / seconds
        tokens = line["timing"]["tokens_per_second"]
        loss = line["validation_loss"]
        shown = "diverged" if loss is None else f"loss {loss:.4f}"
        say(f"{label}: {shown}, {seconds:.0f} s, {tokens or 0:,.0f} tokens a second")


loaded = cache(data.load)


def trained(setting: Setting, end: float) -> Table:
    """Return the line of a run; raise OutOfTimeError where it does not end in time."""
    config, training = setting.config, _training(setting)
    start, text = time.monotonic(), loaded(setting.corpus)
    clock = Clock(config, training)

    def after_step(step: int) -> None:
        clock(step)
        if time.monotonic() > end:
            raise OutOfTimeError

    model, run = train_model(config, training, text, after_step)
    tokens = training.steps * training.batch * config.sequence
    found: Table = {"tokens_per_parameter": tokens / sum(p.numel() for p in model.parameters())}
    if run.final_loss is not None:
        parts = data.split(text)
        found["scale_gradients"] = gradients(model, training, parts.validation)
        if training.lengths:
            found["extended"] = {
                rule: extended(model, training, parts, rule, after_step)
                for rule in (("none", "ssmax") if config.law == "none" else ("own",))
            }
    seconds = time.monotonic() - start
    timing = {"seconds": seconds, "tokens_per_second": clock.tokens_per_second}
    made = sweep.made_on(training.device)
    line = results.encoded(setting, run, made, timing)
    return {**line, **results.plain(found, 9)}


def gradients(model: Transformer, training: Training, text: Text) -> dict[str, Any]:
    """Return ∂L/∂log t at each length, (texts, layers, heads), of the second halves of windows."""
    if not training.lengths:
        training = replace(training, lengths=(model.config.sequence,), read_bytes=2**15)
    found = {}
    for windows in windows_of(text, training):
        count, length = windows.inputs.shape
        rows = np.linspace(0, count - 1, min(TEXTS, count)).astype(int)
        texts = [Batch(*(tokens[i : i + 1] for tokens in windows)) for i in rows]
        with as_written(model, training):
            found[str(length)] = scale_gradient(model, texts, batch_loss).samples
    return found


def extended(
    model: Transformer,
    training: Training,
    parts: data.Split,
    rule: str,
    after_step: Callable[[int], object],
) -> list[float]:
    """Return the readings after a continuation in longer windows, under a rule of n or as it is."""
    model, length = copy.deepcopy(model), model.config.sequence
    shape = replace(model.config, sequence=LONGER * length)
    more = replace(
        training,
        learning_rate=training.learning_rate / 4.0,
        batch=training.batch // LONGER,
        steps=EXTENSION,
        warmup=3,
        seed=training.seed + 1000,
        losses_every=1,
    )
    law = named_law("ssmax", length)
    with rescale(factor=law, train_length=length) if rule == "ssmax" else nullcontext():
        batches = batches_of(parts.training, shape, more, None)

        def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
            return batch_loss(model, batch, more.autocast)

        for step, *_ in descend(model, more, batches, loss):
            after_step(step + 1)
        with as_written(model, training):
            return [read(model, windows) for windows in windows_of(parts.validation, training)]
