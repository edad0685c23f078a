"""A training step of the laboratory against a plain loop with attention written out.

Source 002's size: sequence 256, batch 16, width 256, head size 64, depth 4. The plain loop is the
same model, its attention softmax(QKᵀ/√d)V with the matrix of scores, and PyTorch's Adam as is.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from unittest import mock

import numpy as np
import torch
from torch.nn import functional

from experiments.benchmarks import Ratio
from experiments.lab import data
from experiments.lab.model import Config, Transformer, loss, written_out
from experiments.lab.train import Training, train

QUICK = {"steps": 1, "repeats": 1}

Run = Callable[[Config, Training, data.Text], list[float]]


def laboratory(config: Config, training: Training, text: data.Text) -> list[float]:
    """Return the losses of a run of the laboratory."""
    return train(config, training, text).losses.tolist()


@mock.patch.object(functional, "scaled_dot_product_attention", written_out)
def plain(config: Config, training: Training, text: data.Text) -> list[float]:
    """Return the losses of the same run as a user would write it."""
    model = Transformer(config, training.seed)
    adam = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    losses = []
    for batch in data.batches(
        data.split(text).training,
        sequence=config.sequence,
        batch=training.batch,
        steps=training.steps,
        seed=training.seed,
    ):
        inputs, targets = (torch.from_numpy(tokens.copy()) for tokens in batch)
        value = loss(model(inputs), targets)
        adam.zero_grad()
        value.backward()
        adam.step()
        losses.append(value.item())
    return losses


def measure(steps: int = 6, repeats: int = 3) -> Iterator[Ratio]:
    """Yield the time of a step, without what a run of one step takes; the best of several."""
    text = data.embedded()
    config = Config()
    training = Training(validation_windows=1, record_every=100)
    seconds: dict[Run, list[float]] = {laboratory: [], plain: []}
    losses = {}
    for _ in range(repeats):
        for run, times in seconds.items():
            start = perf_counter()
            run(config, replace(training, steps=1), text)
            middle = perf_counter()
            losses[run] = run(config, replace(training, steps=1 + steps), text)
            times.append((perf_counter() - middle - (middle - start)) / steps)
    difference = np.abs(np.subtract(*losses.values())).max()
    yield Ratio(
        "experiments.lab, a training step at source 002's size, float32",
        "the same model with attention written out",
        *(1e3 * min(times) for times in seconds.values()),
        "ms",
        f"largest difference of the losses {difference:.0e}",
    )
