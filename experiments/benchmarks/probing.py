"""The probe against a plain forward pass, and against weights kept in memory.

A model of the size of GPT-2 small with random parameters, in float32 on one core. Times are taken
in turns; each peak of memory is that of a process of its own.
"""

from collections.abc import Iterator

import torch

from attnlib.probing import probe
from experiments.benchmarks import Ratio, Ways, least_seconds, memory_growth, run_in_process

ROWS = 64
PROBED, SOME = "GPT-2 small under the probe", f"GPT-2 small under the probe, rows={ROWS}"
PLAIN, WEIGHTS = "GPT-2 small", "GPT-2 small, output_attentions"
QUICK = {"repeats": 1, "tokens": 128}


def runs(tokens: int) -> Ways:
    """Return ways to run the model on one text of random tokens."""
    from transformers import GPT2Config, GPT2Model

    torch.set_num_threads(1)
    torch.manual_seed(0)
    fused, written_out = (
        GPT2Model(GPT2Config(attn_implementation=kind)).eval() for kind in ("sdpa", "eager")
    )
    text = torch.randint(0, 50257, (1, tokens))

    def run(rows: int | None = None) -> None:
        with torch.no_grad(), probe(fused, theory=False, rows=rows):
            fused(text)

    return {
        PROBED: run,
        SOME: lambda: run(ROWS),
        PLAIN: torch.no_grad()(lambda: fused(text)),
        WEIGHTS: torch.no_grad()(lambda: written_out(text, output_attentions=True)),
    }


def measure(tokens: int = 1024, repeats: int = 6) -> Iterator[Ratio]:
    """Yield time and memory."""
    least = run_in_process(least_seconds, runs, tokens, repeats)
    for ours, theirs in ((PROBED, PLAIN), (SOME, PLAIN), (PROBED, WEIGHTS)):
        yield Ratio(f"{ours}, n = {tokens}", theirs, least[ours], least[theirs], "s")
    memory = [run_in_process(memory_growth, runs, way, tokens) for way in (PROBED, WEIGHTS)]
    yield Ratio(f"{PROBED}, n = {tokens}", WEIGHTS, *memory, "MiB")
