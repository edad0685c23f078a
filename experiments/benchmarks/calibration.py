"""The gradient of every head's scale against plain passes of the model, and a grid of factors.

A model of the size of GPT-2 small with random parameters, in float32 on one core. Times are taken
in turns; each peak of memory is that of a process of its own.
"""

from collections.abc import Iterator

import torch

from attnlib.calibration import scale_gradient
from experiments.benchmarks import Ratio, Ways, least_seconds, memory_growth, run_in_process

FACTORS = 5
"""Factors that a user would try for each head without gradients."""
OURS, TRAINED = "scale_gradient, GPT-2 small", "forward and backward"
ACTIVATIONS = "forward and backward without gradients of weights"
FORWARD = "forward"
QUICK = {"repeats": 1, "tokens": 64}


def runs(tokens: int) -> Ways:
    """Return ways to run the model on one text of random tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")).eval()
    text = torch.randint(0, 50257, (1, tokens))
    weights = list(model.parameters())

    def trained() -> None:
        torch.autograd.grad(model(text, labels=text).loss, weights)

    def activations() -> None:
        embedded = model.get_input_embeddings()(text).detach().requires_grad_()
        model.requires_grad_(False)
        torch.autograd.grad(model(inputs_embeds=embedded, labels=text).loss, embedded)
        model.requires_grad_(True)

    def forward() -> None:
        with torch.no_grad():
            model(text, labels=text)

    return {
        OURS: lambda: scale_gradient(model, [text]),
        TRAINED: trained,
        ACTIVATIONS: activations,
        FORWARD: forward,
    }


def measure(tokens: int = 512, repeats: int = 6) -> Iterator[Ratio]:
    """Yield time and memory."""
    least = run_in_process(least_seconds, runs, tokens, repeats)
    ours = f"{OURS}, n = {tokens}"
    for theirs in (TRAINED, ACTIVATIONS):
        yield Ratio(ours, theirs, least[OURS], least[theirs], "s")
    grid = FACTORS * 144 * least[FORWARD]
    note = "one pass was timed"
    yield Ratio(ours, f"{FACTORS} factors × 144 heads forward", least[OURS], grid, "s", note)
    memory = [run_in_process(memory_growth, runs, way, tokens) for way in (OURS, ACTIVATIONS)]
    yield Ratio(ours, ACTIVATIONS, *memory, "MiB")
