"""Benchmarks of attention, and of models, against the same without attnlib."""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from attnlib.attention import attend
from attnlib.calibration import scale_gradient
from attnlib.probing import Monitor, probe
from experiments.benchmarks import Ratio, peak_growth, run_in_process, seconds
from experiments.lab import texts
from experiments.lab.batches import training_batches
from experiments.lab.model import Config, Transformer, loss, written_out
from experiments.lab.train import Training, train

# --- attention ------------------------------------------------------------------------------------

LENGTH, HEADS, D = 4096, 8, 64

OURS: dict[str, Callable[..., Tensor]] = {
    "a policy": partial(attend, policy="ssmax"),
    "a post-scale": partial(attend, post_scale="exact"),
    "both": partial(attend, policy="ssmax", post_scale="exact"),
}
BARE = "bare scaled_dot_product_attention"
VARIANTS = {BARE: scaled_dot_product_attention, **OURS}


def call_seconds(function: Callable[..., Tensor], causal: bool, backward: bool) -> float:
    """Return the processor time of one call, in seconds."""
    generator = torch.Generator().manual_seed(0)
    shape = 1, HEADS, LENGTH, D
    q, k, v = (torch.randn(shape, generator=generator, requires_grad=backward) for _ in range(3))

    def call() -> None:
        output = function(q, k, v, is_causal=causal)
        if backward:
            output.backward(torch.ones_like(output))

    return seconds(call)


def backward_growth(name: str, causal: bool) -> float:
    """Return by how many MiB a call with its backward pass raises the peak of the memory."""
    function = VARIANTS.get(name, written_out)
    small = torch.ones(1, 2, 4)
    if name in VARIANTS:
        function(small, small, small, is_causal=causal)  # what a first call loads
    return peak_growth(partial(call_seconds, function, causal, backward=True))


def attention_costs(repeats: int = 7) -> Iterator[Ratio]:
    """Yield time and memory of each variant: n = 4096, one text, 8 heads, d = 64, float32.

    Time in turns in one process, medians of `repeats` calls, and the growth of the peak memory,
    each in a process of its own.
    """
    for causal in (False, True):
        where = f"n = {LENGTH}, {HEADS} heads, " + ("causal" if causal else "all keys")
        for backward in (False, True):
            times = np.array(
                [
                    [call_seconds(function, causal, backward) for function in VARIANTS.values()]
                    for _ in range(1 + repeats)
                ]
            )[1:]  # without what first calls load and cache
            # Each call against the bare one of its own round: the machine's pace drifts.
            relative = np.median(times / times[:, :1], axis=0)
            bare = 1e3 * float(np.median(times[:, 0]))
            passes = ", with gradients" if backward else ""
            for name, share in zip(OURS, relative[1:], strict=True):
                label = f"attend with {name}, {where}{passes}"
                yield Ratio(label, BARE, bare * float(share), bare, "ms")
        memory = {
            name: run_in_process(backward_growth, name, causal)
            for name in (*VARIANTS, "written out")
        }
        for name in OURS:
            yield Ratio(
                f"attend with {name}, {where}, with gradients",
                "attention written out",
                memory[name],
                memory["written out"],
                "MiB",
                f"{BARE} {memory[BARE]:.0f} MiB",
            )


# --- GPT-2 small, of random parameters, in float32 on one core ------------------------------------

Ways = dict[str, Callable[[], object]]
"""Ways to run the model on one text of random tokens."""

ROWS = 64
PLAIN, WEIGHTS = "GPT-2 small", "GPT-2 small, output_attentions"
PROBED, SOME = "GPT-2 small under the probe", f"GPT-2 small under the probe, rows={ROWS}"

FACTORS = 5
"""Factors that a user would try for each head without gradients."""
GRADIENT, TRAINED = "scale_gradient, GPT-2 small", "forward and backward"
ACTIVATIONS = "forward and backward without gradients of weights"
FORWARD = "forward"


def random_text(tokens: int) -> Tensor:
    """Return a text of random tokens, (1, tokens), and seed the models that are made after it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.randint(0, 50257, (1, tokens))


def probed_ways(tokens: int) -> Ways:
    """Return ways to run the model: under the probe, as it is, and with its weights in memory."""
    from transformers import GPT2Config, GPT2Model

    text = random_text(tokens)
    fused, written = (
        GPT2Model(GPT2Config(attn_implementation=kind)).eval() for kind in ("sdpa", "eager")
    )

    def under_probe(rows: int | None = None) -> None:
        with torch.no_grad(), probe(fused, theory=False, rows=rows):
            fused(text)

    return {
        PROBED: under_probe,
        SOME: lambda: under_probe(ROWS),
        PLAIN: torch.no_grad()(lambda: fused(text)),
        WEIGHTS: torch.no_grad()(lambda: written(text, output_attentions=True)),
    }


def gradient_ways(tokens: int) -> Ways:
    """Return ways to run the model: the gradient of every head's scale, and plain passes."""
    from transformers import GPT2Config, GPT2LMHeadModel

    text = random_text(tokens)
    model = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")).eval()
    weights = list(model.parameters())

    def activations() -> None:
        embedded = model.get_input_embeddings()(text).detach().requires_grad_()
        model.requires_grad_(False)
        torch.autograd.grad(model(inputs_embeds=embedded, labels=text).loss, embedded)
        model.requires_grad_(True)

    return {
        GRADIENT: lambda: scale_gradient(model, [text]),
        TRAINED: lambda: torch.autograd.grad(model(text, labels=text).loss, weights),
        ACTIVATIONS: activations,
        FORWARD: torch.no_grad()(lambda: model(text, labels=text)),
    }


def least_seconds(ways: Callable[[int], Ways], tokens: int, repeats: int) -> dict[str, float]:
    """Return the least time of each way on so many tokens, in turns, without the first run."""
    runs = ways(tokens)
    times = [[seconds(run) for run in runs.values()] for _ in range(1 + repeats)][1:]
    return dict(zip(runs, map(min, zip(*times, strict=True)), strict=True))


def memory_growth(ways: Callable[[int], Ways], way: str, tokens: int) -> float:
    """Return the MiB by which a way on so many tokens raises the peak of this process's memory."""
    ways(32)[way]()
    return peak_growth(ways(tokens)[way])


def probe_costs(tokens: int = 1024, repeats: int = 6) -> Iterator[Ratio]:
    """Yield time, taken in turns, and memory, each peak that of a process of its own."""
    least = run_in_process(least_seconds, probed_ways, tokens, repeats)
    for ours, theirs in ((PROBED, PLAIN), (SOME, PLAIN), (PROBED, WEIGHTS)):
        yield Ratio(f"{ours}, n = {tokens}", theirs, least[ours], least[theirs], "s")
    memory = [run_in_process(memory_growth, probed_ways, way, tokens) for way in (PROBED, WEIGHTS)]
    yield Ratio(f"{PROBED}, n = {tokens}", WEIGHTS, *memory, "MiB")


def calibration_costs(tokens: int = 512, repeats: int = 6) -> Iterator[Ratio]:
    """Yield time, taken in turns, and memory, each peak that of a process of its own."""
    least = run_in_process(least_seconds, gradient_ways, tokens, repeats)
    ours, one = f"{GRADIENT}, n = {tokens}", least[GRADIENT]
    for theirs in (TRAINED, ACTIVATIONS):
        yield Ratio(ours, theirs, one, least[theirs], "s")
    grid = FACTORS * 144 * least[FORWARD]
    note = "one pass was timed"
    yield Ratio(ours, f"{FACTORS} factors × 144 heads forward", one, grid, "s", note)
    pair = (GRADIENT, ACTIVATIONS)
    memory = [run_in_process(memory_growth, gradient_ways, way, tokens) for way in pair]
    yield Ratio(ours, ACTIVATIONS, *memory, "MiB")


# --- training -------------------------------------------------------------------------------------

EVERY = (100, 50)
NEVER = 10**9

Step = Callable[[], None]
Run = Callable[[Config, Training, texts.Text], list[float]]


def book_model() -> tuple[nn.Module, Step]:
    """Return the model that the book trains, and a step on 1024 bytes."""
    model = Transformer(Config(width=128, depth=4, head_size=64, sequence=128))
    tokens = torch.randint(0, 256, (8, 129))
    return model, make_step(model, lambda: loss(model(tokens[:, :-1]), tokens[:, 1:]))


def gpt2() -> tuple[nn.Module, Step]:
    """Return the smallest GPT-2 of transformers, and a step on 1024 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).train()
    tokens = torch.randint(0, 50257, (1, 1025))

    def value() -> Tensor:
        return loss(model(tokens[:, :-1], use_cache=False).logits, tokens[:, 1:])

    return model, make_step(model, value)


def make_step(model: nn.Module, loss_value: Callable[[], Tensor]) -> Step:
    """Return a step of training: forward, backward, and Adam."""
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        adam.zero_grad()
        loss_value().backward()
        adam.step()

    return step


def hook_seconds(calls: int) -> float:
    """Return the processor time that a monitor's hooks add to one call of a module, in seconds.

    In a step that is not measured: the least of five means over `calls` calls, less the same
    without a monitor.
    """
    nothing = nn.Identity().train()
    call = partial(nothing, torch.zeros(1))
    without, under = [], []
    for _ in range(5):
        without.append(seconds(call, calls))
        with Monitor(nothing, every=NEVER) as monitor:
            monitor.step = 1
            under.append(seconds(call, calls))
    return min(under) - min(without)


def monitor_costs(pairs: int = 30, calls: int = 20_000) -> Iterator[Ratio]:
    """Yield the mean time of a step for each model, with medians, and the quartiles of pairs.

    Steps in turns in one process, on one core, in processor time: a step that is watched beside one
    that is not, and what the monitor's hooks do in a step that is not due. The cost at `every` is
    put together from the two: in a loop it would be below the noise.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    idle = hook_seconds(calls)
    for name, made, counted in (
        ("the book's model", book_model, pairs),
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


def laboratory_losses(config: Config, training: Training, text: texts.Text) -> list[float]:
    """Return the losses of a run of the laboratory."""
    return train(config, training, text).losses.tolist()


@mock.patch.object(functional, "scaled_dot_product_attention", written_out)
def plain_losses(config: Config, training: Training, text: texts.Text) -> list[float]:
    """Return the losses of the same run, as a user would write it."""
    model = Transformer(config, training.seed)
    adam = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    losses = []
    for batch in training_batches(
        texts.split(text).training,
        sequence=config.sequence,
        batch=training.batch,
        steps=training.steps,
        seed=training.seed,
    ):
        inputs, targets = (torch.from_numpy(tokens.copy()) for tokens in batch)
        batch_loss = loss(model(inputs), targets)
        adam.zero_grad()
        batch_loss.backward()
        adam.step()
        losses.append(batch_loss.item())
    return losses


def training_steps(steps: int = 6, repeats: int = 3) -> Iterator[Ratio]:
    """Yield the time of a step, without what a run of one step takes; the best of several.

    Source 002's size: sequence 256, batch 16, width 256, head size 64, depth 4. The plain loop is
    the same model, its attention softmax(QKᵀ/√d)V with the matrix of scores, and PyTorch's Adam as
    is.
    """
    text = texts.embedded()
    config = Config()
    training = Training(validation_windows=1, record_every=100)
    times: dict[Run, list[float]] = {laboratory_losses: [], plain_losses: []}
    losses = {}
    for _ in range(repeats):
        for run, of_run in times.items():
            start = perf_counter()
            run(config, replace(training, steps=1), text)
            middle = perf_counter()
            losses[run] = run(config, replace(training, steps=1 + steps), text)
            of_run.append((perf_counter() - middle - (middle - start)) / steps)
    difference = np.abs(np.subtract(*losses.values())).max()
    yield Ratio(
        "experiments.lab, a training step at source 002's size, float32",
        "the same model with attention written out",
        *(1e3 * min(of_run) for of_run in times.values()),
        "ms",
        f"largest difference of the losses {difference:.0e}",
    )
