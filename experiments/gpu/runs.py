"""Decoders of 25 million parameters: gain.toml and length.toml, as far as the time goes.

A run is a line, as of every sweep, with two more fields: `extended`, the readings after a short
continuation in longer windows, and `scale_gradients`, ∂L/∂log t of each text, layer and head at
each length. A run that does not end in time has no line: the same command goes on.
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
from experiments.lab import results, sweep, texts
from experiments.lab.batches import Batch
from experiments.lab.descent import descend
from experiments.lab.model import Transformer, named_law
from experiments.lab.results import Setting
from experiments.lab.texts import Text
from experiments.lab.train import (
    Training,
    batch_loss,
    device_batches,
    mean_loss,
    reading_windows,
    train_model,
    training_precision,
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

Table = dict[str, Any]
Planned = tuple[str, Setting]
"""The name of a file, and a run of it."""


class OutOfTimeError(Exception):
    """A run does not end in the given time."""


def planned_runs(tiny: bool = False) -> list[Planned]:
    """Return the runs, each with the name of its file; `tiny` ones for the CPU."""
    sweeps = {name: sweep.read(HERE / f"{name}.toml") for name, _ in ORDER}
    runs = [
        (name, setting)
        for name, seed in ORDER
        for setting in sweeps[name].settings
        if setting.training.seed == seed
    ]
    return [(name, _tiny_setting(setting)) for name, setting in runs] if tiny else runs


def _tiny_setting(setting: Setting) -> Setting:
    """Return a setting so small that a CPU trains it in seconds."""
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
        corpus=texts.EMBEDDED,
        sha256=texts.sha256(texts.EMBEDDED),
    )


def _training(setting: Setting) -> Training:
    """Return how a setting trains: by the class of texts."""
    assert isinstance(setting.training, Training)
    return setting.training


def train_missing(runs: list[Planned], out: Path, end: float, say: Callable[[str], None]) -> None:
    """Train what has no line in the folder `out` yet, until time.monotonic() is `end`."""
    for name, setting in runs:
        file = out / f"{name}.jsonl"
        label = f"{name} {setting.variant}, rate {setting.training.learning_rate:.2g}"
        label += f", seed {setting.training.seed}"
        if setting.key in results.read(file):
            continue
        start = time.monotonic()
        if start > end:
            say(f"not begun, no time is left: {label}")
            return
        try:
            line = train_run(setting, end)
        except OutOfTimeError:
            say(f"given up, the time is over: {label}")
            return
        _files.append(file, line)
        seconds = time.monotonic() - start
        loss = line["validation_loss"]
        shown = "diverged" if loss is None else f"loss {loss:.4f}"
        say(f"{label}: {shown}, {seconds:.0f} s")


load_text = cache(texts.load)


def train_run(setting: Setting, end: float) -> Table:
    """Train a run and return its line; OutOfTimeError if it does not end in time."""
    config, training = setting.config, _training(setting)
    start, text = time.monotonic(), load_text(setting.corpus)

    def after_step(step: int) -> None:
        """Raise OutOfTimeError once the time is over."""
        if time.monotonic() > end:
            raise OutOfTimeError

    model, run = train_model(config, training, text, after_step)
    measured: Table = {}
    if run.final_loss is not None:
        parts = texts.split(text)
        measured["scale_gradients"] = scale_gradients(model, training, parts.validation)
        if training.lengths:
            measured["extended"] = {
                rule: extended_readings(model, training, parts, rule, after_step)
                for rule in (("none", "ssmax") if config.law == "none" else ("own",))
            }
    timing = {"seconds": time.monotonic() - start}
    made = sweep.made_on_device(training.device)
    line = results.encode(setting, run, made, timing)
    return {**line, **results.to_json(measured, 9)}


def scale_gradients(model: Transformer, training: Training, text: Text) -> dict[str, Any]:
    """Return ∂L/∂log t at each length, (texts, layers, heads), of the second halves of windows."""
    if not training.lengths:
        training = replace(training, lengths=(model.config.sequence,), read_bytes=2**15)
    by_length = {}
    for windows in reading_windows(text, training):
        count, length = windows.inputs.shape
        rows = np.linspace(0, count - 1, min(TEXTS, count)).astype(int)
        texts = [Batch(*(tokens[i : i + 1] for tokens in windows)) for i in rows]
        with training_precision(model, training):
            by_length[str(length)] = scale_gradient(model, texts, batch_loss).samples
    return by_length


def extended_readings(
    model: Transformer,
    training: Training,
    parts: texts.Split,
    rule: str,
    after_step: Callable[[int], object],
) -> list[float]:
    """Return the readings after a continuation in longer windows, with a rule of n or without."""
    model, length = copy.deepcopy(model), model.config.sequence
    shape = replace(model.config, sequence=LONGER * length)
    continuation = replace(
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
        batches = device_batches(parts.training, shape, continuation, None)

        def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
            return batch_loss(model, batch, continuation.autocast)

        for step, *_ in descend(model, continuation, batches, loss):
            after_step(step + 1)
        with training_precision(model, training):
            return [
                mean_loss(model, windows) for windows in reading_windows(parts.validation, training)
            ]
