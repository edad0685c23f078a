"""Attention with a policy or a post-scale against bare scaled_dot_product_attention.

Time in turns in one process, and the growth of the peak memory, each in a process of its own.
n = 4096, one text, 8 heads, d = 64, float32.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlib.attention import attend
from experiments.benchmarks import Ratio, peak_growth, run_in_process, seconds
from experiments.lab.model import written_out

LENGTH, HEADS, D = 4096, 8, 64
QUICK = {"repeats": 1}


OURS: dict[str, Callable[..., Tensor]] = {
    "a policy": partial(attend, policy="ssmax"),
    "a post-scale": partial(attend, post_scale="exact"),
    "both": partial(attend, policy="ssmax", post_scale="exact"),
}
BARE = "bare scaled_dot_product_attention"
VARIANTS = {BARE: scaled_dot_product_attention, **OURS}


def run(function: Callable[..., Tensor], causal: bool, backward: bool) -> float:
    """Return the processor time of one call, in seconds."""
    generator = torch.Generator().manual_seed(0)
    shape = 1, HEADS, LENGTH, D
    q, k, v = (torch.randn(shape, generator=generator, requires_grad=backward) for _ in range(3))

    def call() -> None:
        output = function(q, k, v, is_causal=causal)
        if backward:
            output.backward(torch.ones_like(output))

    return seconds(call)


def growth(name: str, causal: bool) -> float:
    """Return by how many MiB a call with its backward pass raises the peak of the memory."""
    function = VARIANTS.get(name, written_out)
    small = torch.ones(1, 2, 4)
    if name in VARIANTS:
        function(small, small, small, is_causal=causal)  # what a first call loads
    return peak_growth(partial(run, function, causal, backward=True))


def measure(repeats: int = 7) -> Iterator[Ratio]:
    """Yield time and memory of each variant, `repeats` calls of each: their medians."""
    for causal in (False, True):
        where = f"n = {LENGTH}, {HEADS} heads, " + ("causal" if causal else "all keys")
        for backward in (False, True):
            times = np.array(
                [
                    [run(function, causal, backward) for function in VARIANTS.values()]
                    for _ in range(1 + repeats)
                ]
            )[1:]  # without what first calls load and cache
            # Each call against the bare one of its own round: the machine's pace drifts.
            relative = np.median(times / times[:, :1], axis=0)
            bare = 1e3 * float(np.median(times[:, 0]))
            passes = ", with gradients" if backward else ""
            for name, share in zip(OURS, relative[1:], strict=True):
                shown = f"attend with {name}, {where}{passes}"
                yield Ratio(shown, BARE, bare * float(share), bare, "ms")
        memory = {name: run_in_process(growth, name, causal) for name in (*VARIANTS, "written out")}
        for name in OURS:
            yield Ratio(
                f"attend with {name}, {where}, with gradients",
                "attention written out",
                memory[name],
                memory["written out"],
                "MiB",
                f"{BARE} {memory[BARE]:.0f} MiB",
            )
