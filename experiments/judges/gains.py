"""The gain at which QK-norm begins: losses of models, and verdicts on predictions.

The sweeps gain_*.toml have one learning rate for all gains, norm_*.toml the best of each α, chosen
on seeds that are not judged. A gain is given by its α, the factor of the cosine over √d: 1 is √d on
the cosine.

Chapters: qk_norm, predictions.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.judges.judging import Part, Values, above, between, decided, graded, limits, number
from experiments.judges.length import FAR, START, MeasuredRuns
from experiments.judges.rates import best_log2_rates, count_best, losses_by_rate
from experiments.records import runs

KINDS = ("learned", "fixed")
ALPHAS = (0.5, 1.0, 2.25, 4.0, 8.0)
"""At which the gain of the norm_* runs begins, or stays."""
BRIEF, LONG = 500, 2000
"""Steps of training."""


class GainRuns(MeasuredRuns):
    """Runs whose gain begins at an α; a kind is "learned", "fixed" or "noise_fixed", say."""

    def alphas(self, kind: str, steps: int) -> list[float]:
        """Return the α at which runs of a kind begin, the smallest first."""
        names = [name.rpartition("_") for name, trained_for in self.runs if trained_for == steps]
        return sorted(int(alpha) / 100 for kind_of_run, _, alpha in names if kind_of_run == kind)

    def of(self, kind: str, alpha: float, steps: int) -> list[Any]:
        """Return the runs of a kind that begin at α, by seed."""
        return self.runs[variant(kind, alpha), steps]

    def loss(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the validation losses of a text model, (seeds,), in nats a byte."""
        return np.array([run.validation_loss for run in self.of(kind, alpha, steps)])

    def ends(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the α at which the learned gains end, (seeds, blocks, heads)."""
        return alpha * np.array([run.gains[-1][:, 0] for run in self.of(kind, alpha, steps)])

    def moved(self, kind: str, alpha: float, steps: int) -> Values:
        """Return a recall model's mean learned gain at the end over that at its start, (seeds,)."""
        return np.array([np.mean(run.learned[0][0]) for run in self.of(kind, alpha, steps)])

    def best_alpha(self, kind: str, steps: int, among: Iterable[float]) -> float:
        """Return the α of the least mean loss, of those in `among`."""
        return min(among, key=lambda alpha: float(self.loss(kind, alpha, steps).mean()))

    def excess(self, kind: str, alpha: float, steps: int) -> Values:
        """Return the loss from α less that from the best α of all, (seeds,)."""
        best = self.best_alpha(kind, steps, self.alphas(kind, steps))
        return self.loss(kind, alpha, steps) - self.loss(kind, best, steps)


def variant(kind: str, alpha: float) -> str:
    """Return the name in a sweep of runs of a kind that begin at α."""
    return f"{kind}_{round(100 * alpha):03d}"


def text_runs() -> GainRuns:
    """Return the runs of text models at one learning rate for all gains."""
    return GainRuns([*runs("gain_text"), *runs("gain_text_longer"), *runs("gain_text_faster")])


def judge_gain_text() -> Iterator[Part]:
    """Yield the parts of gain_text.toml: models of text after 500 steps."""
    gains = GainRuns(runs("gain_text"))
    yield from _judge_ends(gains, BRIEF)
    gain = gains.loss("learned", 1.0, BRIEF) - gains.loss("learned", 2.25, BRIEF)
    yield graded(2, "learned, α = 1 less 2.25, 500 steps", gain, 0.01, 0.0)


def _judge_ends(gains: GainRuns, steps: int) -> Iterator[Part]:
    """Yield a part for the smallest α and one for the largest: the loss above the best."""
    for end in (0.5, 8.0):
        excess = max((gains.excess(kind, end, steps) for kind in KINDS), key=np.mean)
        yield number(1, f"{steps} steps, α = {end:g} less the best", excess, "at least 0.02")


def judge_gain_text_longer() -> Iterator[Part]:
    """Yield the parts of gain_text_longer.toml: after 2000 steps, beside 500."""
    gains = text_runs()
    yield from _judge_ends(gains, LONG)
    common = gains.alphas("learned", LONG)
    for kind in KINDS:
        first, last = (gains.best_alpha(kind, steps, common) for steps in (BRIEF, LONG))
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


def judge_gain_text_faster() -> Iterator[Part]:
    """Yield the parts of gain_text_faster.toml: gains that learn ten times as fast."""
    gains = text_runs()
    ends = {a: gains.ends("faster", a, LONG).mean(axis=(1, 2)) for a in (1.0, 4.0)}
    yield graded(1, "−|α from 4 less from 1|", -np.abs(ends[4.0] - ends[1.0]), -0.5, -1.0)
    gain = gains.loss("learned", 1.0, LONG) - gains.loss("faster", 1.0, LONG)
    yield between(2, "from α = 1, slow less fast", gain, 0.0, 0.03)


def judge_gain_recall() -> Iterator[Part]:
    """Yield the parts of gain_recall.toml: associative recall, where the needle is known."""
    gains = GainRuns(runs("gain_recall"))

    def loss(kind: str, alpha: float, n: int) -> Values:
        """Return the loss of the answer at n tokens, by seed."""
        return gains("none", variant(kind, alpha), LONG, n)

    for alpha in (4.0, 8.0):
        cost = loss("noise_fixed", alpha, START) - loss("noise_fixed", 1.0, START)
        yield above(1, f"noise, fixed, α = {alpha:g} less 1, at 64", cost)
    fall = 8.0 * (1.0 - gains.moved("noise_learned", 8.0, LONG))
    yield above(2, "noise, learned, 8 less its end", fall)
    rise = 0.5 * (gains.moved("noise_learned", 0.5, LONG) - 1.0)
    yield above(2, "noise, learned, the end less 0.5", rise)
    for alpha in (4.0, 8.0):
        gain = loss("fixed_fixed", 1.0, FAR) - loss("fixed_fixed", alpha, FAR)
        yield number(3, f"once, fixed, α = 1 less {alpha:g}, at 1024", gain, "at least 0.1")
    ends = {a: loss("fixed_fixed", a, FAR).mean() for a in gains.alphas("fixed_fixed", LONG)}
    worst = max(ends, key=lambda a: float(ends[a]))
    yield between(3, "once, fixed, the worst α at 1024", worst, 0.5, 0.5, "0.5")
    cost = loss("noise_fixed", 8.0, FAR) - loss("noise_fixed", 1.0, FAR)
    yield above(4, "noise, fixed, α = 8 less 1, at 1024", cost)
    names = [variant("noise_fixed", alpha) for alpha in gains.alphas("noise_fixed", LONG)]
    wanted = [gains("best", name, LONG, START).mean() for name in names]
    rises = sum(after > before for before, after in pairwise(wanted))
    yield number(5, "noise, fixed, steps at which t* rises", rises, "at most 1")


def judge_gain_text_rates() -> Iterator[Part]:
    """Yield the parts of gain_text_rates.toml: the best rates of text models."""
    losses = losses_by_rate("gain_text_rates")
    yield number(
        1, "of 7, best at 2⁻⁷ or 2⁻⁸", count_best(losses, (2.0**-7, 2.0**-8)), "at least 7"
    )


def judge_gain_recall_rates() -> Iterator[Part]:
    """Yield the parts of gain_recall_rates.toml: the best rates of recall models."""
    losses = losses_by_rate("gain_recall_rates")
    yield number(
        1, "of 12, best at .003 or .006", count_best(losses, (0.003, 0.006)), "at least 10"
    )


# --- each α at its own best learning rate --------------------------------------------------------


def norm_runs(steps: int) -> GainRuns:
    """Return the runs of QK-norm after 500 or 2000 steps, each at its own best rate."""
    return GainRuns(runs(f"norm_{steps}"))


def norm_loss(kind: str, alpha: float, steps: int) -> Values:
    """Return the validation losses of runs whose gain begins at α, (seeds,), in nats a byte."""
    return norm_runs(steps).loss(kind, alpha, steps)


def best_alpha(kind: str, steps: int) -> float:
    """Return the α of `ALPHAS` with the least mean loss."""
    return norm_runs(steps).best_alpha(kind, steps, ALPHAS)


def excess_over_best(kind: str, alpha: float, steps: int) -> Values:
    """Return the loss from α less that from the best α, (seeds,)."""
    return norm_runs(steps).excess(kind, alpha, steps)


def best_alphas(kind: str, steps: int) -> list[float]:
    """Return each α whose excess over the best is not surely above 0, by its 95 % interval."""
    return [alpha for alpha in ALPHAS if limits(excess_over_best(kind, alpha, steps))[0] <= 0.0]


def fixed_less_learned(alpha: float, steps: int) -> Values:
    """Return the loss of a fixed gain less that of a learned one, both from α, (seeds,)."""
    return norm_loss("fixed", alpha, steps) - norm_loss("learned", alpha, steps)


def judge_norm_500() -> Iterator[Part]:
    """Yield the parts of norm_500.toml: after 500 steps."""
    for at, kind in enumerate(KINDS, 1):
        kept = best_alphas(kind, 500)
        verdict = bool({0.5, 1.0} & set(kept)) and not {4.0, 8.0} & set(kept)
        yield decided(at, f"{kind}, best α", "½ or 1, not 4, not 8", best_alpha(kind, 500), verdict)
    yield above(3, "fixed less learned, α = 8", fixed_less_learned(8.0, 500))
    yield number(3, "fixed less learned, α = 1", fixed_less_learned(1.0, 500), "below 0.03")
    cost = excess_over_best("fixed", 4.0, 500)
    yield number(4, "fixed, α = 4 less the best", cost, "at least 0.12")


def judge_norm_2000() -> Iterator[Part]:
    """Yield the parts of norm_2000.toml: after 2000 steps."""
    kept = {kind: set(best_alphas(kind, 2000)) for kind in KINDS}
    learned = kept["learned"]
    verdict = 1.0 in learned and bool({0.5, 2.25} & learned) and 8.0 not in learned
    best = best_alpha("learned", 2000)
    yield decided(5, "learned, best α", "1 and ½ or 2.25, not 8", best, verdict)
    yield decided(6, "fixed, best α", "not 4", best_alpha("fixed", 2000), 4.0 not in kept["fixed"])
    for kind in KINDS:
        first, last = (ALPHAS.index(best_alpha(kind, steps)) for steps in (500, 2000))
        yield number(7, f"{kind}, places moved", abs(last - first), "at most 1")
    yield between(8, "fixed, α = 4 less the best", excess_over_best("fixed", 4.0, 2000), 0.05, 0.25)
    spread = {
        kind: np.ptp([norm_loss(kind, alpha, 2000).mean() for alpha in ALPHAS[:4]])
        for kind in KINDS
    }
    yield number(9, "spread, fixed less learned", spread["fixed"] - spread["learned"], "above 0")
    yield number(9, "spread, learned", spread["learned"], "below 0.08")


def judge_norm_500_rates() -> Iterator[Part]:
    """Yield the parts of norm_500_rates.toml: the best rates."""
    best = best_log2_rates("norm_500_rates")
    differ = sum(best[f"fixed_{a}"] != best[f"learned_{a}"] for a in ("400", "800"))
    yield number(1, "of α = 4 and 8, best rates that differ", differ, "at least 1")
    learned = [best[f"learned_{round(100 * alpha):03d}"] for alpha in ALPHAS]
    falls = sum(after < before for before, after in pairwise(learned))
    yield number(2, "learned, steps at which the best rate falls", falls, "at most 0")


def judge_norm_2000_rates() -> Iterator[Part]:
    """Yield the parts of norm_2000_rates.toml: the best rates, beside those of 500 steps."""
    brief, long = best_log2_rates("norm_500_rates"), best_log2_rates("norm_2000_rates")
    same = sum(brief[cell] - long[cell] in (0.0, 1.0) for cell in brief)
    yield number(1, "of 10, the rate of 500 steps or half of it", same, "at least 6")
