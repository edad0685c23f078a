"""The probe against weights kept in memory. Run with `make bench`.

One head of 64 dimensions in float32 on a CPU. Each measurement is a process of its own, so that
its peak of memory is its own. Compared are a call of attention; the same under the probe, and what
the probe adds to it; softmax(QKᵀ/√d) alone; and that with what the probe measures computed from it.
Times are of the processor, so that other work on the machine counts little. The last column is the
time in units of what the probe adds.
"""

import math
import resource
import subprocess
import sys
from collections.abc import Callable
from time import process_time

import click
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.probing import measure, probe

LENGTHS = (2048, 8192, 32768)
DIMENSION = 64
LONGEST_STATISTICS = 16384
"""At 32768 keys the matrices of the last way would take 17 GB."""


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


def measured(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Do what the probe does after the call."""
    measure.measure(measure.Call(q, k, v), output=v)


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
    "under the probe": probed,
    "measuring": measured,
    "softmax(QKᵀ)": weights,
    "its statistics": statistics_of_weights,
}


def cost(way: str, n: int, repeats: int) -> tuple[float, float]:
    """Return seconds and the MiB by which the peak of memory grows, of this process."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, n, DIMENSION).unbind(0)
    WAYS[way](*(t[:, :, :64] for t in (q, k, v)))  # loads what it needs
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(repeats):
        start = process_time()
        WAYS[way](q, k, v)
        times.append(process_time() - start)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return min(times), (after - before) / 1024


@click.command()
@click.option("--way", type=click.Choice(list(WAYS)), hidden=True)
@click.option("--n", "lengths", type=int, multiple=True, default=LENGTHS, show_default=True)
@click.option("--repeats", default=3, show_default=True, help="Measurements; the best counts.")
def main(way: str | None, lengths: tuple[int, ...], repeats: int) -> None:
    """Print time and memory of each way, and the ratios."""
    if way is not None:
        print(*cost(way, lengths[0], repeats))
        return
    print(f"{torch.get_num_threads()} threads; seconds of processor time, MiB of memory")
    for n in lengths:
        print(f"n = {n}")
        costs = {}
        for name in WAYS:
            if name == "its statistics" and n > LONGEST_STATISTICS:
                continue
            command = [sys.executable, "-m", "benchmarks.probing", "--way", name, "--n", str(n)]
            answer = subprocess.run(
                [*command, "--repeats", str(repeats)], capture_output=True, text=True, check=True
            )
            costs[name] = tuple(map(float, answer.stdout.split()))
        for name, (seconds, mib) in costs.items():
            ratio = seconds / costs["measuring"][0]
            print(f"  {name:15} {seconds:8.3f} s {mib:7.0f} MiB {ratio:7.2f}", flush=True)


if __name__ == "__main__":
    main()
