"""Training under a monitor against the same training without.

Steps in turns in one process, on one core, in processor time: a step that is watched beside one
that is not, and what the monitor's hooks do in a step that is not due. The cost at `every` is put
together from the two: in a loop it would be below the noise.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from attnlib.probing import Monitor
from experiments.benchmarks import Ratio, seconds
from experiments.lab.model import Config, Transformer, loss

QUICK = {"pairs": 2, "calls": 100}
EVERY = (100, 50)
NEVER = 10**9

Step = Callable[[], None]


def laboratory() -> tuple[nn.Module, Step]:
    """Return the model that the book trains, 1024 bytes a step, and a step."""
    model = Transformer(Config(width=128, depth=4, head_size=64, sequence=128))
    tokens = torch.randint(0, 256, (8, 129))
    return model, trained(model, lambda: loss(model(tokens[:, :-1]), tokens[:, 1:]))


def gpt2() -> tuple[nn.Module, Step]:
    """Return the smallest GPT-2 of transformers, and a step on 1024 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).train()
    tokens = torch.randint(0, 50257, (1, 1025))

    def value() -> Tensor:
        return loss(model(tokens[:, :-1], use_cache=False).logits, tokens[:, 1:])

    return model, trained(model, value)


def trained(model: nn.Module, value: Callable[[], Tensor]) -> Step:
    """Return a step of training: forwards, backwards and Adam."""
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        adam.zero_grad()
        value().backward()
        adam.step()

    return step


def hooks(calls: int) -> float:
    """Return the time that a monitor takes in a step that is not due: the best of five."""
    nothing = nn.Identity().train()
    call = partial(nothing, torch.zeros(1))
    without, under = [], []
    for _ in range(5):
        without.append(seconds(call, calls))
        with Monitor(nothing, every=NEVER) as monitor:
            monitor.step = 1
            under.append(seconds(call, calls))
    return min(under) - min(without)


def measure(pairs: int = 30, calls: int = 20_000) -> Iterator[Ratio]:
    """Yield the time of a step on average, for each model; medians, and the quartiles of pairs."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    idle = hooks(calls)
    for name, made, counted in (
        ("the book's model", laboratory, pairs),
        ("GPT-2 of 124 million parameters, n = 1024", gpt2, math.ceil(pairs / 3)),
    ):
        model, step = made()
        times = np.empty((1 + counted, 2))
        for pair in range(1 + counted):
            for watched in (0, 1) if pair % 2 else (1, 0):
                with Monitor(model, every=1) if watched else nullcontext():
                    times[pair, watched] = seconds(step)
        times = times[1:]  # without what first steps load
        plain = float(np.median(times[:, 0]))
        # Each watched step against the plain one beside it: the machine's pace drifts.
        low, extra, high = np.quantile(times[:, 1] - times[:, 0], (0.25, 0.5, 0.75))
        for every in EVERY:
            added = (extra + (every - 1) * idle) / every
            yield Ratio(
                f"{name} under Monitor(every={every})",
                "without",
                1e3 * (plain + added),
                1e3 * plain,
                "ms a step",
                f"{added / plain:.2%} more: a watched step adds {extra / plain:.2f} of a step "
                f"(quartiles {low / plain:.2f}, {high / plain:.2f}), any other {1e6 * idle:.1f} µs",
            )
