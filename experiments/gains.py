"""What became of the predictions about the gain at which QK-norm begins.

Those of gain_text.toml, gain_text_longer.toml, gain_text_faster.toml and gain_recall.toml, which
have them in words and with what refutes them; `experiments.judging` says what a part is. A gain is
given by its α, what multiplies the cosine over √d: 1 is √d on the cosine.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.judging import Part, Values, above, between, graded, number
from experiments.length import FAR, START, Heads
from experiments.records import runs

KINDS = ("learned", "fixed")
BRIEF, LONG = 500, 2000


class Gains(Heads):
    """Runs by the name of their variant and their steps, each in the order of its seeds."""

    def alphas(self, kind: str, steps: int) -> list[float]:
        """Return the α at which runs of a kind begin, "learned" or "noise_fixed", say, in order."""
        names = [variant.rpartition("_") for variant, at in self.runs if at == steps]
        return sorted(int(alpha) / 100 for before, _, alpha in names if before == kind)

    def of(self, kind: str, alpha: float, steps: int) -> list[Any]:
        """Return the runs of a kind that begin at α, one a seed."""
        return self.runs[variant(kind, alpha), steps]

    def loss(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the validation loss of each seed, in nats a byte."""
        return np.array([run.validation_loss for run in self.of(kind, alpha, steps)])

    def ends(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the α at which the learned gains end, (seeds, blocks, heads)."""
        return alpha * np.array([run.gains[-1][:, 0] for run in self.of(kind, alpha, steps)])

    def moved(self, kind: str, alpha: float, steps: int) -> Values:
        """Return what a recall model's learned gain has become of its start, of each seed."""
        return np.array([np.mean(run.learned[0][0]) for run in self.of(kind, alpha, steps)])

    def best(self, kind: str, steps: int, among: Iterable[float]) -> float:
        """Return the α of the least mean loss."""
        return min(among, key=lambda alpha: float(self.loss(kind, alpha, steps).mean()))


def variant(kind: str, alpha: float) -> str:
    """Return what a sweep calls runs of a kind that begin at α."""
    return f"{kind}_{round(100 * alpha):03d}"


def texts() -> Gains:
    """Return all runs of decoders whose QK-norm has a gain."""
    return Gains([*runs("gain_text"), *runs("gain_text_longer"), *runs("gain_text_faster")])


def brief() -> Iterator[Part]:
    """Yield what was predicted of language models of bytes after 500 steps."""
    gains = Gains(runs("gain_text"))
    yield from _ends_of_the_range(gains, BRIEF)
    gain = gains.loss("learned", 1.0, BRIEF) - gains.loss("learned", 2.25, BRIEF)
    yield graded(2, "learned, α = 1 less 2.25, 500 steps", gain, 0.01, 0.0)


def _ends_of_the_range(gains: Gains, steps: int) -> Iterator[Part]:
    for end in (0.5, 8.0):
        excess = max((_excess(gains, kind, end, steps) for kind in KINDS), key=np.mean)
        yield number(1, f"{steps} steps, α = {end:g} less the best", excess, "at least 0.02")


def longer() -> Iterator[Part]:
    """Yield the same of 500 and of 2000 steps."""
    gains = texts()
    yield from _ends_of_the_range(gains, LONG)
    common = gains.alphas("learned", LONG)
    for kind in KINDS:
        first, last = (gains.best(kind, steps, common) for steps in (BRIEF, LONG))
        what = f"{kind}, best α after 2000 steps less after 500"
        yield number(3, what, last - first, "at least 0")
    spreads = {}
    for kind in KINDS:
        losses = [gains.loss(kind, alpha, LONG) for alpha in common if 1.0 <= alpha <= 4.0]
        spreads[kind] = np.ptp(np.mean(losses, axis=1))
    wider = spreads["fixed"] - spreads["learned"]
    yield number(4, "spread of losses, fixed less learned", wider, "above 0")
    yield number(4, "spread of losses, learned", spreads["learned"], "below 0.03")
    high, low = (gains.ends("learned", alpha, LONG).mean(axis=(1, 2)) for alpha in (4.0, 1.0))
    yield graded(5, "from α = 4 less from α = 1, at the end", high - low, 1.5, 1.0)
    by_layer = gains.ends("learned", 1.0, LONG).mean(axis=(0, 2))
    yield number(6, "from α = 1, the smallest layer's", by_layer.min(), "above 1")
    falls = (gains.ends("learned", 8.0, LONG).mean(axis=(0, 2)) < 8.0).sum()
    yield number(6, "from α = 8, layers whose gain falls", falls, "at least 3")
    above_first = (by_layer > by_layer[0]).sum()
    yield graded(7, "from α = 1, layers above the first", above_first, 2.0, 1.0)


def _excess(gains: Gains, kind: str, alpha: float, steps: int) -> Values:
    best = gains.best(kind, steps, gains.alphas(kind, steps))
    return gains.loss(kind, alpha, steps) - gains.loss(kind, best, steps)


def faster() -> Iterator[Part]:
    """Yield the same of gains that learn ten times as fast, beside those of `longer`."""
    gains = texts()
    ends = {a: gains.ends("faster", a, LONG).mean(axis=(1, 2)) for a in (1.0, 4.0)}
    yield graded(1, "−|α from 4 less from 1|", -np.abs(ends[4.0] - ends[1.0]), -0.5, -1.0)
    gain = gains.loss("learned", 1.0, LONG) - gains.loss("faster", 1.0, LONG)
    yield between(2, "from α = 1, slow less fast", gain, 0.0, 0.03)


def recall() -> Iterator[Part]:
    """Yield what was predicted of associative recall, where the needle is known."""
    gains = Gains(runs("gain_recall"))

    def of(kind: str, alpha: float, n: int) -> Values:
        return gains("none", variant(kind, alpha), LONG, n)

    for alpha in (4.0, 8.0):
        cost = of("noise_fixed", alpha, START) - of("noise_fixed", 1.0, START)
        yield above(1, f"noise, fixed, α = {alpha:g} less 1, at 64", cost)
    fall = 8.0 * (1.0 - gains.moved("noise_learned", 8.0, LONG))
    yield above(2, "noise, learned, 8 less its end", fall)
    rise = 0.5 * (gains.moved("noise_learned", 0.5, LONG) - 1.0)
    yield above(2, "noise, learned, the end less 0.5", rise)
    for alpha in (4.0, 8.0):
        gain = of("fixed_fixed", 1.0, FAR) - of("fixed_fixed", alpha, FAR)
        yield number(3, f"once, fixed, α = 1 less {alpha:g}, at 1024", gain, "at least 0.1")
    ends = {a: of("fixed_fixed", a, FAR).mean() for a in gains.alphas("fixed_fixed", LONG)}
    worst = max(ends, key=lambda a: float(ends[a]))
    yield between(3, "once, fixed, the worst α at 1024", worst, 0.5, 0.5, "0.5")
    cost = of("noise_fixed", 8.0, FAR) - of("noise_fixed", 1.0, FAR)
    yield above(4, "noise, fixed, α = 8 less 1, at 1024", cost)
    names = [variant("noise_fixed", alpha) for alpha in gains.alphas("noise_fixed", LONG)]
    wanted = [gains("best", name, LONG, START).mean() for name in names]
    rises = sum(after > before for before, after in pairwise(wanted))
    yield number(5, "noise, fixed, steps at which t* rises", rises, "at most 1")
