"""The probe against weights kept in memory.

One head of 64 dimensions, and a model of the size of GPT-2 small with random parameters, in float32
on one core. Each peak of memory is that of a process of its own. Times are of the processor, so
that other programs do not count, and those of the model are taken in turns.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.probing import probe
from attnlib.probing.measure import Call
from attnlib.probing.measure import measure as measure_call
from benchmarks import Ratio, peak_growth

LENGTHS = (2048, 8192, 32768)
DIMENSION = 64
LONGEST_STATISTICS = 16384
"""At 32768 keys the matrices of the statistics would take 17 GB."""

TOKENS = 1024
ROWS = 64

QUICK = {"lengths": (512,), "repeats": 1, "tokens": 128}


class Attention(nn.Module):
    """A model that is one call."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return attention."""
        return functional.scaled_dot_product_attention(q, k, v)


def probed(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Measure a call with the probe."""
    model = Attention()
    with probe(model):
        model(q, k, v)


def attended(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Call attention without the probe."""
    functional.scaled_dot_product_attention(q, k, v)


def added(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Do what the probe does after the call."""
    measure_call(Call(q, k, v), output=v)


def weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the matrix of weights, with as little memory as that takes."""
    return torch.softmax(q / math.sqrt(q.shape[-1]) @ k.mT, dim=-1)


def statistics_of_weights(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Compute what the probe does as one would from matrices."""
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    logits.std(dim=-1)
    p = torch.softmax(logits, dim=-1)
    y = p.square().sum(dim=-1)
    torch.special.entr(p).sum(dim=-1)
    torch.log1p(-y).mean()
    (p @ v).std()


WAYS: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "attention": attended,
    "attention under the probe": probed,
    "what the probe adds to it": added,
    "softmax(QKᵀ) kept in memory": weights,
    "its statistics from matrices": statistics_of_weights,
}


def cost(way: str, n: int, repeats: int) -> dict[str, float]:
    """Return seconds and the MiB by which the peak of memory grows, of this process."""
    torch.set_num_threads(1)  # the time of two that wait for one another would be counted twice
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, n, DIMENSION).unbind(0)
    WAYS[way](*(t[:, :, :64] for t in (q, k, v)))  # loads what it needs
    grown = peak_growth(lambda: WAYS[way](q, k, v))
    times = []
    for _ in range(repeats):
        start = process_time()
        WAYS[way](q, k, v)
        times.append(process_time() - start)
    return {"s": min(times), "MiB": grown}


def model_runs(tokens: int) -> dict[str, Callable[[], object]]:
    """Return ways to run a model of the size of GPT-2 small on one text of random tokens."""
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
        "GPT-2 small under the probe": run,
        f"GPT-2 small under the probe, rows={ROWS}": lambda: run(ROWS),
        "GPT-2 small": torch.no_grad()(lambda: fused(text)),
        "GPT-2 small, output_attentions": torch.no_grad()(
            lambda: written_out(text, output_attentions=True)
        ),
    }


def model_times(tokens: int, repeats: int) -> dict[str, float]:
    """Return the least seconds of each way, in turns."""
    runs = model_runs(tokens)
    times: dict[str, list[float]] = {way: [] for way in runs}
    for _ in range(repeats + 1):
        for way, run in runs.items():
            start = process_time()
            run()
            times[way].append(process_time() - start)
    return {way: min(found[1:]) for way, found in times.items()}


def model_growth(way: str, tokens: int) -> float:
    """Return the MiB by which a run raises the peak of memory of this process."""
    model_runs(32)[way]()
    return peak_growth(model_runs(tokens)[way])


def measure_model(tokens: int, repeats: int) -> Iterator[Ratio]:
    """Yield time and memory of a model."""
    context = get_context("spawn")

    def alone(function: Callable[..., Any], *arguments: Any) -> Any:
        with ProcessPoolExecutor(1, mp_context=context) as process:
            return process.submit(function, *arguments).result()

    times = alone(model_times, tokens, repeats)
    probed, some, plain, weights = times
    for ours, theirs in [(probed, plain), (some, plain), (probed, weights)]:
        yield Ratio(f"{ours}, n = {tokens}", theirs, times[ours], times[theirs], "s")
    grown = [alone(model_growth, way, tokens) for way in (probed, weights)]
    yield Ratio(f"{probed}, n = {tokens}", weights, *grown, "MiB")


def measure(
    lengths: Sequence[int] = LENGTHS, repeats: int = 3, tokens: int = TOKENS
) -> Iterator[Ratio]:
    """Yield time and memory at each length: the best of `repeats` calls, of more where short."""
    context = get_context("spawn")
    for n in lengths:
        costs = {}
        for way in WAYS:
            if n <= LONGEST_STATISTICS or WAYS[way] is not statistics_of_weights:
                with ProcessPoolExecutor(1, mp_context=context) as alone:
                    more = repeats if n > LONGEST_STATISTICS else 4 * repeats
                    costs[way] = alone.submit(cost, way, n, more).result()
        bare, under, adds, matrix, *statistics = costs
        pairs = [
            (adds, matrix, "s"),
            (adds, matrix, "MiB"),
            (under, matrix, "s"),
            (under, bare, "s"),
        ]
        pairs += [(adds, other, "s") for other in statistics]
        for ours, theirs, unit in pairs:
            at = f"{ours}, n = {n}"
            yield Ratio(at, theirs, costs[ours][unit], costs[theirs][unit], unit)
    yield from measure_model(tokens, 2 * repeats)
