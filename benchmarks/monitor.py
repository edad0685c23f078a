"""Training under a monitor against the same training without.

Steps in turns in one process, on one core, in processor time. Three things are measured: a step
that is watched beside one that is not, what the monitor's hooks do in a step that is not due, and,
as a control, whole loops with and without. The cost at `every` is put together from the first two:
in a loop it would be below the noise.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from time import process_time

import numpy as np
import torch
from torch import Tensor, nn

from attnlib.checking import FloatArray
from attnlib.probing import Monitor
from benchmarks import Ratio
from experiments.lab.model import Config, Transformer, loss

QUICK = {"pairs": 2, "loops": 1, "calls": 100}
EVERY = (100, 50)
NEVER = 10**9

Step = Callable[[], None]


def laboratory() -> tuple[nn.Module, Step]:
    """Return the model that the book trains, 1024 bytes a step, and a step."""
    model = Transformer(Config(width=128, depth=4, head_size=64, sequence=128))
    tokens = torch.randint(0, 256, (8, 129))
    return model, trained(model, lambda: loss(model(tokens[:, :-1]), tokens[:, 1:]))


def gpt2() -> tuple[nn.Module, Step]:
    """Return a GPT-2 of transformers, of moderate size and with a small vocabulary, and a step."""
    from transformers import GPT2Config, GPT2LMHeadModel

    vocabulary = 1024
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(
        n_layer=6, n_head=6, n_embd=384, n_positions=256, vocab_size=vocabulary, **ends
    )
    model = GPT2LMHeadModel(config).train()
    tokens = torch.randint(0, vocabulary, (4, 257))

    def value() -> Tensor:
        return loss(model(tokens[:, :-1], use_cache=False).logits, tokens[:, 1:])

    return model, trained(model, value)


MODELS = {"the book's model": laboratory, "a GPT-2 of 6 layers, n = 256": gpt2}


def trained(model: nn.Module, value: Callable[[], Tensor]) -> Step:
    """Return a step of training: forwards, backwards and Adam."""
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        adam.zero_grad()
        value().backward()
        adam.step()

    return step


def seconds(call: Step, repeats: int = 1) -> float:
    """Return the processor time of a call."""
    start = process_time()
    for _ in range(repeats):
        call()
    return (process_time() - start) / repeats


def in_turns(model: nn.Module, step: Step, every: int, steps: int, pairs: int) -> FloatArray:
    """Return the times of a step without and with a monitor, shape (pairs, 2)."""
    found = np.empty((pairs, 2))
    for pair in range(pairs):
        order = (0, 1) if pair % 2 else (1, 0)
        for watched in order:
            with Monitor(model, every=every) if watched else nullcontext():
                found[pair, watched] = seconds(step, steps)
    return found


def hooks(calls: int) -> float:
    """Return the time that a monitor takes in a step that is not due: the best of five."""
    nothing = nn.Identity().train()
    x = torch.zeros(1)
    times = np.empty((5, 2))
    for turn in range(5):
        times[turn, 0] = seconds(lambda: nothing(x), calls)
        with Monitor(nothing, every=NEVER) as monitor:
            monitor.step = 1
            times[turn, 1] = seconds(lambda: nothing(x), calls)
    without, under = times.min(axis=0)
    return float(under - without)


def measure(pairs: int = 30, loops: int = 6, calls: int = 20_000) -> Iterator[Ratio]:
    """Yield the time of a step on average, for each model; medians, and the quartiles of pairs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    idle = hooks(calls)
    for name, made in MODELS.items():
        model, step = made()
        in_turns(model, step, every=1, steps=1, pairs=1)  # what first steps load
        times = in_turns(model, step, every=1, steps=1, pairs=pairs)
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
    model, step = laboratory()
    every = min(EVERY)
    times = in_turns(model, step, every=every, steps=every, pairs=loops)
    low, middle, high = np.quantile(times[:, 1] / times[:, 0] - 1.0, (0.25, 0.5, 0.75))
    plain = float(np.median(times[:, 0]))
    yield Ratio(
        f"whole loops of {every} steps of the book's model under Monitor(every={every})",
        "without",
        1e3 * plain * float(1.0 + middle),
        1e3 * plain,
        "ms a step",
        f"{middle:+.2%}, quartiles {low:+.2%} and {high:+.2%}",
    )
    torch.set_num_threads(threads)
