"""Record how one head comes to its scale: its size and its direction on the way.

    python -m experiments.one_head

takes a few minutes of one core, and goes on where it was stopped. What was predicted is in
predictions/one_head.md, and `experiments.judges.scale_learned` judges it.

The head is `lab.train_task.Head`, two matrices of w × w, and its task `nearest`: among 64 random
directions the one whose noisy copy the query is. Its matrices begin at a factor times their usual
size; where they are *aligned*, both are the same multiple of the identity.
"""

from functools import partial
from itertools import product, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.lab.descent import descend
from experiments.lab.head_measures import measure_rows
from experiments.lab.model import Config
from experiments.lab.results import to_json
from experiments.lab.tasks import Task
from experiments.lab.train_task import Head, batch_loss, draw_batches
from experiments.records import Work, compute_missing

KEYS = 64
WIDTH, STRENGTH = 32, 0.5
"""Of the heads whose way is recorded."""
SEEDS = 5
FACTORS = (1.0, 2.0**-4, 2.0**-8, 2.0**-16)
"""On the logits at the start."""
RATES = {"sgd": 2.0**-2, "adam": 2.0**-9}
STEPS = {"sgd": 800, "adam": 400}
SETS = 64
"""Sets of keys in a batch, each with eight queries."""
RECORDED = (*range(0, 400, 4), *range(400, 801, 20))
"""Steps that are recorded, before the update; the last one follows the last update."""

DECAYED_WIDTH, DECAYED_STRENGTH = 16, 0.7
"""Of the heads that are trained with weight decay."""
DECAYED_SEEDS = 3
L2 = (0.003, 0.01, 0.03, 0.1, 0.3)
ADAMW = (0.3, 1.0)
L2_STEPS, L2_RATE, L2_SETS = 3000, 1.0, 256
ADAMW_STEPS, ADAMW_RATE = 4000, 2.0**-8
LAST = 1000
"""Steps of AdamW over which means are taken."""


def entries_to_compute() -> Work:
    """Yield the key of each head and a function that trains it."""
    starts = [*product(RATES, [False], FACTORS), ("sgd", True, 2.0**-4)]
    for seed, (optimizer, aligned, factor) in product(range(SEEDS), starts):
        at = {"optimizer": optimizer, "aligned": aligned, "factor": factor, "seed": seed}
        yield at, partial(train_way, optimizer, aligned, factor, seed)
    for seed in range(DECAYED_SEEDS):
        for decay in L2:
            yield {"decay": decay, "with": "L2", "seed": seed}, partial(train_to_rest, decay, seed)
        for decay in ADAMW:
            yield (
                {"decay": decay, "with": "AdamW", "seed": seed},
                partial(train_with_adamw, decay, seed),
            )


def train_way(optimizer: str, aligned: bool, factor: float, seed: int) -> dict[str, list[float]]:
    """Train a head, and return its numbers at each of `RECORDED`.

    `loss`, the mean over the batches since the record before; `query` and `key`, the squares
    ‖W_q‖² and ‖W_k‖²; `trace`, ⟨W_q, W_k⟩; `product`, ‖W_qᵀ W_k‖; `slope` and `slope_of_keys`,
    ∂L/∂log t by the weights and their gradients; `gained`, the rise of ‖W_q‖² by the sum of the
    slopes so far.
    """
    config = Config(width=WIDTH, head_size=WIDTH, sequence=KEYS)
    rate, steps = RATES[optimizer], STEPS[optimizer]
    task = Task(
        strength=STRENGTH, optimizer=optimizer, learning_rate=rate, decay="none",
        steps=steps + 1,
batch=SETS, seed=seed,
    )  # fmt: skip
    head = initial_head(config, seed, factor, aligned)
    records: list[dict[str, float]] = []
    losses: list[float] = []
    gained = 0.0
    for step, _, loss in descend(head, task, draw_batches(config, task), batch_loss):
        now = state(head)
        losses.append(loss.item())
        if step in RECORDED:
            records.append({"loss": float(np.mean(losses)), **now, "gained": gained})
            losses.clear()
        gained -= 2.0 * rate * now["slope"]
    return {name: to_json([record[name] for record in records], 6) for name in records[0]}


def initial_head(config: Config, seed: int, factor: float = 1.0, aligned: bool = False) -> Head:
    """Return a new head with matrices times the root of `factor`; `aligned`, of the identity."""
    head = Head(config, seed)
    with torch.no_grad():
        for matrix in head.parameters():
            if aligned:
                matrix.copy_(torch.eye(config.width))
            matrix.mul_(factor**0.5)
    return head


def state(head: Head) -> dict[str, float]:
    """Return the numbers of `train_way` of a head whose gradients are set."""
    (query, d_query), (key, d_key) = map(with_gradient, (head.query, head.key))
    return {
        "query": float(query.square().sum()),
        "key": float(key.square().sum()),
        "trace": float((query * key).sum()),
        "product": float(torch.linalg.matrix_norm(query.mT @ key)),
        "slope": float((query * d_query).sum()),
        "slope_of_keys": float((key * d_key).sum()),
    }


def with_gradient(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix and its gradient, in float64."""
    assert matrix.grad is not None
    return matrix.detach().double(), matrix.grad.double()


def decay_task(seed: int, **training: Any) -> tuple[Config, Task]:
    """Return the configuration and the task of a head that is trained with decay."""
    config = Config(width=DECAYED_WIDTH, head_size=DECAYED_WIDTH, sequence=KEYS)
    return config, Task(strength=DECAYED_STRENGTH, decay="none", seed=seed, **training)


def train_to_rest(decay: float, seed: int) -> dict[str, float]:
    """Train a head by gradient descent with L2 on one batch, the same at every step.

    Returns the loss, `state`, the norm `left` of the gradient of loss and penalty together, and t*
    on the batch, `best`.
    """
    config, task = decay_task(
        seed, optimizer="sgd", learning_rate=L2_RATE, weight_decay=decay, steps=L2_STEPS,
        batch=L2_SETS,
    )  # fmt: skip
    first = next(draw_batches(config, task))
    batch = [tensor.double() if tensor.is_floating_point() else tensor for tensor in first]
    head = initial_head(config, seed).double()
    final: dict[str, float] = {}
    for step, _, loss in descend(head, task, repeat(batch), batch_loss):
        if step == L2_STEPS - 1:
            pairs = map(with_gradient, head.parameters())
            left = sum(float((slope + decay * weights).square().sum()) for weights, slope in pairs)
            queries, keys, _, needle = batch
            logits = head(queries, keys).detach().flatten(0, 1).numpy()
            best = measure_rows(logits, needle.flatten().numpy())["best"]
            final = {"loss": loss.item(), **state(head), "left": left**0.5, "best": best}
    return final


def train_with_adamw(decay: float, seed: int) -> dict[str, float]:
    """Train a head by AdamW; return means over its last steps: loss, `state` and the gradient.

    `gradient` is the root of the mean square of an entry of ∂L/∂W_q.
    """
    config, task = decay_task(
        seed, optimizer="adam", learning_rate=ADAMW_RATE, weight_decay=decay, steps=ADAMW_STEPS,
        batch=SETS,
    )  # fmt: skip
    head = initial_head(config, seed)
    records: list[dict[str, float]] = []
    for step, _, loss in descend(head, task, draw_batches(config, task), batch_loss):
        if step >= ADAMW_STEPS - LAST:
            square = float(with_gradient(head.query)[1].square().mean())
            records.append({"loss": loss.item(), **state(head), "gradient": square})
    means = {name: float(np.mean([record[name] for record in records])) for name in records[0]}
    return {**means, "gradient": means["gradient"] ** 0.5, "decayed": task.total_decay}


if __name__ == "__main__":
    torch.set_num_threads(1)
    settings = {
        "keys": KEYS, "width": WIDTH, "strength": STRENGTH, "rates": RATES, "steps": STEPS,
        "sets": SETS, "recorded": RECORDED, "decayed": [DECAYED_WIDTH, DECAYED_STRENGTH],
        "l2": [L2_STEPS, L2_RATE, L2_SETS], "adamw": [ADAMW_STEPS, ADAMW_RATE, LAST],
    }  # fmt: skip
    compute_missing("one_head", entries_to_compute(), settings, "torch")
