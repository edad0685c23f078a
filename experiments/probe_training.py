"""Record the probe's measures of the character model before and after training.

    python -m experiments.probe_training

trains the model once, some three minutes of one core, and records the table of the probe at
initialisation and at the end; the collision probability of random scores of each row's own spread;
and of the last query of each window the shape of its logits, and its weight by distance. The text
is that of validation. The loss under other scales is in the record of the known bugs.
"""

import json
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlib._checking import FloatArray
from attnlib.probing import probe
from attnlib.probing.measure import Call, measure
from attnlib.probing.observer import Observer
from experiments.lab import texts
from experiments.lab.batches import validation_batch
from experiments.lab.model import Config, Transformer, loss
from experiments.lab.texts import Text
from experiments.lab.train import Training, train_model
from experiments.lab.train_task import last_logits
from experiments.real_heads.rows import random_collision
from experiments.records import Work, compute_missing

CONFIG = Config(width=128, depth=4, head_size=64, sequence=128)
TRAINING = Training(learning_rate=2.0**-9, steps=1500, batch=8)
WINDOWS = 256

POSITIONS = (2, 4, 8, 16, 32, 64, 128)
"""Numbers of keys at which rows are averaged."""

DISTANCES = 8
"""Keys whose weight is recorded, from the query itself back."""


def entries_to_compute(corpus: Text) -> Work:
    """Yield the keys "before" and "after", and functions that measure the model."""
    validation = texts.split(corpus).validation
    windows = validation_batch(validation, sequence=CONFIG.sequence, windows=WINDOWS)
    inputs, targets = map(torch.from_numpy, windows)

    def after() -> dict[str, Any]:
        model, run = train_model(CONFIG, TRAINING, corpus)
        return {"training_loss": run.final_loss, **measure_model(model, inputs, targets)}

    before = Transformer(CONFIG, TRAINING.seed)
    yield {"model": "before"}, partial(measure_model, before, inputs, targets)
    yield {"model": "after"}, after


@torch.no_grad()
def measure_model(model: Transformer, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
    """Return the loss, the probe's table, and averages over rows and last queries of each head."""
    with probe(model) as report:
        value = loss(model(inputs), targets)
    content = json.loads(report.to_json())
    return {
        "loss": value.item(),
        "heads": content["heads"],
        "rows": average_heads(model, inputs),
        "last_query": measure_last_queries(model, inputs),
    }


def average_heads(model: Transformer, inputs: Tensor) -> list[dict[str, Any]]:
    """Return the averages over each head's rows, in the order of the table."""
    heads: list[dict[str, Any]] = []

    def see(layer: str, number: int, call: Call, output: Tensor) -> None:
        rows = measure(call, output).rows
        columns = rows.keys, np.sqrt(rows.variance), rows.collision_probability
        for head in range(rows.keys.shape[1]):  # the first query sees one key
            heads.append(average_rows(*(x[:, head, 1:].astype(float).ravel() for x in columns)))

    with Observer(model, see).at_work():
        model(inputs)
    return heads


def average_rows(n: FloatArray, alpha: FloatArray, collision: FloatArray) -> dict[str, Any]:
    """Return averages over the rows of a head, from n, α and collision probability of each."""
    masks = [n == position for position in POSITIONS]
    return {
        "row_alpha_quantiles": np.quantile(alpha, (0.1, 0.5, 0.9)).tolist(),
        "collision_probability": [float(collision[mask].mean()) for mask in masks],
        "alpha": [float(np.sqrt((alpha[mask] ** 2).mean())) for mask in masks],
        # Normal scores of each row's own standard deviation
        "collision_probability_of_rows": float(random_collision(n, alpha).mean()),
        "of_rows_by_position": [
            float(random_collision(n[mask], alpha[mask]).mean()) for mask in masks
        ],
    }


def measure_last_queries(model: Transformer, inputs: Tensor) -> list[dict[str, Any]]:
    """Return the shape of each head's logits at the last query, and its weight by distance."""
    heads = []
    for logits in last_logits(model, inputs, 1)[0].squeeze(-2).unbind(dim=1):
        centred = logits - logits.mean(dim=-1, keepdim=True)
        standard = centred / centred.square().mean(dim=-1, keepdim=True).sqrt()
        weights = torch.softmax(logits, dim=-1).mean(dim=0).flip(0)
        heads.append(
            {
                "skewness": float((standard**3).mean()),
                "excess_kurtosis": float((standard**4).mean() - 3.0),
                "weight_by_distance": weights[:DISTANCES].tolist(),
            }
        )
    return heads


if __name__ == "__main__":
    torch.set_num_threads(1)
    sizes = {"config": asdict(CONFIG), "training": asdict(TRAINING)}
    settings = {**sizes, "windows": WINDOWS, "positions": POSITIONS}
    compute_missing(
        "probe_training", entries_to_compute(texts.load(texts.SHAKESPEARE)), settings, "torch"
    )
