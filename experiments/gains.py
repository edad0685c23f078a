"""What became of the predictions about the gain at which QK-norm begins.

Those of gain_text.toml, gain_text_longer.toml, gain_text_faster.toml and gain_recall.toml, which
have them in words and with what refutes them; `experiments.length` says what a part is. A gain is
given by its α, what multiplies the cosine over √d: 1 is √d on the cosine.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from experiments.lab.sweep import Outcome
from experiments.length import FAR, HOLDS, OPEN, REFUTED, START, Part, Values, above, number

KINDS = ("learned", "fixed")
BRIEF, LONG = 500, 2000


class Gains:
    """Runs by the name of their variant and their steps, each in the order of its seeds."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.runs: dict[tuple[str, int], list[Outcome]] = {}
        for run in outcomes:
            key = run.setting.variant, run.setting.training.steps
            self.runs.setdefault(key, []).append(run)

    def alphas(self, kind: str, steps: int) -> list[float]:
        """Return the α at which runs of a kind begin, "learned" or "noise_fixed", say, in order."""
        names = [variant.rpartition("_") for variant, at in self.runs if at == steps]
        return sorted(int(alpha) / 100 for before, _, alpha in names if before == kind)

    def of(self, kind: str, alpha: float, steps: int) -> list[Outcome]:
        """Return the runs of a kind that begin at α, one a seed."""
        return self.runs[f"{kind}_{round(100 * alpha):03d}", steps]

    def loss(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the validation loss of each seed, in nats a byte."""
        return np.array([run.run.validation_loss for run in self.of(kind, alpha, steps)])  # type: ignore[union-attr]

    def ends(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the α at which the learned gains end, (seeds, blocks, heads)."""
        gains = [run.run.gains[-1] for run in self.of(kind, alpha, steps)]  # type: ignore[union-attr, index]
        ends: Values = alpha * np.array(gains)[:, :, 0]
        return ends

    def answer(
        self, kind: str, alpha: float, steps: int, n: int, name: str = "answer_loss"
    ) -> Values:
        """Return of each seed the loss of the answer at n tokens, in nats, or another number."""
        found = (run.run.measured for run in self.of(kind, alpha, steps))  # type: ignore[union-attr]
        return np.array([one[name] for run in found for one in run if one["n"] == n])

    def moved(self, kind: str, alpha: float, steps: int) -> Values:
        """Return what a recall model's learned gain has become of its start, of each seed."""
        learned = [run.run.learned for run in self.of(kind, alpha, steps)]  # type: ignore[union-attr]
        moved: Values = np.array(learned)[:, 0, 0].mean(axis=1)
        return moved

    def best(self, kind: str, steps: int, among: Iterable[float]) -> float:
        """Return the α of the least mean loss."""
        return min(among, key=lambda alpha: float(self.loss(kind, alpha, steps).mean()))


def brief(gains: Gains) -> Iterator[Part]:
    """Language models of bytes, 500 steps."""
    yield from _ends_of_the_range(gains, BRIEF)
    gain = gains.loss("learned", 1.0, BRIEF) - gains.loss("learned", 2.25, BRIEF)
    yield _graded(2, "learned, α = 1 less 2.25, 500 steps", gain, 0.01, 0.0)


def _ends_of_the_range(gains: Gains, steps: int) -> Iterator[Part]:
    for end in (0.5, 8.0):
        excess = max((_excess(gains, kind, end, steps) for kind in KINDS), key=np.mean)
        what = f"{steps} steps, α = {end:g} less the best"
        yield number(1, what, excess, 0.02, np.inf, "at least 0.02")


def longer(gains: Gains) -> Iterator[Part]:
    """The same of 500 and of 2000 steps."""
    yield from _ends_of_the_range(gains, LONG)
    common = gains.alphas("learned", LONG)
    for kind in KINDS:
        first, last = (gains.best(kind, steps, common) for steps in (BRIEF, LONG))
        what = f"{kind}, best α after 2000 steps less after 500"
        yield _single(3, what, last - first, 0.0, np.inf, "at least 0")
    spreads = {}
    for kind in KINDS:
        losses = [gains.loss(kind, alpha, LONG) for alpha in common if 1.0 <= alpha <= 4.0]
        spreads[kind] = np.ptp(np.mean(losses, axis=1))
    wider = spreads["fixed"] - spreads["learned"]
    yield _single(4, "spread of losses, fixed less learned", wider, 0.0, np.inf, "above 0")
    yield _single(4, "spread of losses, learned", spreads["learned"], 0.0, 0.03, "below 0.03")
    high, low = (gains.ends("learned", alpha, LONG).mean(axis=(1, 2)) for alpha in (4.0, 1.0))
    yield _graded(5, "from α = 4 less from α = 1, at the end", high - low, 1.5, 1.0)
    by_layer = gains.ends("learned", 1.0, LONG).mean(axis=(0, 2))
    least = by_layer.min()
    yield _single(6, "from α = 1, the smallest layer's", least, 1.0, np.inf, "above 1")
    falls = (gains.ends("learned", 8.0, LONG).mean(axis=(0, 2)) < 8.0).sum()
    yield _single(6, "from α = 8, layers whose gain falls", falls, 3, 4, "at least 3")
    above_first = (by_layer > by_layer[0]).sum()
    yield _graded(7, "from α = 1, layers above the first", np.full(2, above_first), 2.0, 1.0)


def _excess(gains: Gains, kind: str, alpha: float, steps: int) -> Values:
    best = gains.best(kind, steps, gains.alphas(kind, steps))
    return gains.loss(kind, alpha, steps) - gains.loss(kind, best, steps)


def _single(at: int, what: str, value: float, low: float, high: float, expected: str) -> Part:
    """Return a part about one number that all seeds have together."""
    return number(at, what, np.full(2, value), low, high, expected)


def _graded(at: int, what: str, values: Values, holds: float, refuted: float) -> Part:
    """Return a part that is open where its mean lies between two numbers."""
    part = number(at, what, values, holds, np.inf, f"at least {holds:g}; refuted below {refuted:g}")
    verdict = HOLDS if part.mean >= holds else REFUTED if part.mean < refuted else OPEN
    return part._replace(verdict=verdict)


def faster(gains: Gains) -> Iterator[Part]:
    """Gains that learn ten times as fast, beside those of `longer`."""
    ends = {a: gains.ends("faster", a, LONG).mean(axis=(1, 2)) for a in (1.0, 4.0)}
    yield _graded(1, "−|α from 4 less from 1|", -np.abs(ends[4.0] - ends[1.0]), -0.5, -1.0)
    gain = gains.loss("learned", 1.0, LONG) - gains.loss("faster", 1.0, LONG)
    yield number(2, "from α = 1, slow less fast", gain, 0.0, 0.03, "0 to 0.03")


def recall(gains: Gains) -> Iterator[Part]:
    """Associative recall, where the needle is known."""

    def of(kind: str, alpha: float, n: int) -> Values:
        return gains.answer(kind, alpha, LONG, n)

    for alpha in (4.0, 8.0):
        cost = of("noise_fixed", alpha, START) - of("noise_fixed", 1.0, START)
        yield above(1, f"noise, fixed, α = {alpha:g} less 1, at 64", cost)
    yield above(
        2, "noise, learned, 8 less its end", 8.0 * (1.0 - gains.moved("noise_learned", 8.0, LONG))
    )
    rise = 0.5 * (gains.moved("noise_learned", 0.5, LONG) - 1.0)
    yield above(2, "noise, learned, the end less 0.5", rise)
    for alpha in (4.0, 8.0):
        gain = of("fixed_fixed", 1.0, FAR) - of("fixed_fixed", alpha, FAR)
        what = f"once, fixed, α = 1 less {alpha:g}, at 1024"
        yield number(3, what, gain, 0.1, np.inf, "at least 0.1")
    ends = {a: of("fixed_fixed", a, FAR).mean() for a in gains.alphas("fixed_fixed", LONG)}
    worst = max(ends, key=lambda a: float(ends[a]))
    yield _single(3, "once, fixed, the worst α at 1024", worst, 0.5, 0.5, "0.5")
    cost = of("noise_fixed", 8.0, FAR) - of("noise_fixed", 1.0, FAR)
    yield above(4, "noise, fixed, α = 8 less 1, at 1024", cost)
    wanted = [
        gains.answer("noise_fixed", a, LONG, START, "best").mean()
        for a in gains.alphas("noise_fixed", LONG)
    ]
    rises = sum(after > before for before, after in pairwise(wanted))
    yield _single(5, "noise, fixed, steps at which t* rises", rises, 0, 1, "at most 1")
