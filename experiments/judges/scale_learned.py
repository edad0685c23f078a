"""How one head comes to its scale: theory, and the verdicts on predictions/one_head.md.

`experiments.one_head` recorded the heads. The theory is of the mean loss over random directions and
of gradient flow, in the time τ, the learning rate times the steps.

Chapters: learning_scale, predictions.
"""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad, solve_ivp
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from attnlib import retrieval
from attnlib.retrieval import Tilted
from attnlib.scores import Cosine
from experiments import one_head, records
from experiments.judges.judging import Part, Values, above, between, number
from experiments.lab.comparison import power_of_two
from experiments.lab.tasks import tilt
from experiments.one_head import DECAYED_STRENGTH, DECAYED_WIDTH, KEYS, STRENGTH, WIDTH

SMALL = one_head.FACTORS[1:]
"""The factors of starts with small logits."""
HALF = np.log(KEYS) / 2.0
"""The loss at which a head has left its plateau: half of the loss without attention."""


# --- theory ---------------------------------------------------------------------------------------


def gamma(width: int = WIDTH, strength: float = STRENGTH) -> float:
    """Return γ = ϱ(1 − 1/n)/√w: while logits are small, log α grows by 2γ per unit of τ."""
    return strength * (1.0 - 1.0 / KEYS) / float(np.sqrt(width))


@cache
def mean_loss(width: int = WIDTH, strength: float = STRENGTH) -> CubicSpline:
    """Return the mean loss L(α), in nats, of a head that is α/√w times the identity, α ≤ 1.2 θ."""
    theta = tilt(strength, width)
    alpha = np.linspace(0.0, 1.2 * theta, 49)
    return CubicSpline(alpha, retrieval.loss(Cosine(width), Tilted(theta), alpha, KEYS))


def model_alpha(tau: Values, first: float) -> Values:
    """Return α(τ) of dα/dτ = −(2/√w) α L′(α), α(0) = `first`: directions do not change."""
    slope = mean_loss().derivative()

    def growth(_: float, log_alpha: Values) -> Values:
        change: Values = -2.0 / np.sqrt(WIDTH) * slope(np.exp(log_alpha))
        return change

    ends = 0.0, float(np.max(tau))
    path = solve_ivp(growth, ends, [np.log(first)], t_eval=tau, rtol=1e-8, atol=1e-10)
    alpha: Values = np.exp(path.y[0])
    return alpha


def model_delay(factor: float, *, aligned: bool = False) -> float:
    """Return the τ at which the model's loss has halved, from logits that begin at a factor.

    A random start goes on like an aligned one of half its size.
    """
    slope, curve = mean_loss().derivative(), mean_loss()
    end = brentq(lambda alpha: float(curve(alpha)) - HALF, 0.1, 20.0)
    first = factor * np.sqrt(WIDTH) / (1.0 if aligned else 2.0)
    time, _ = quad(lambda x: -np.sqrt(WIDTH) / 2.0 / slope(np.exp(x)), np.log(first), np.log(end))
    return float(time)


def alpha_at_rest(decay: float) -> float:
    """Return the α of least mean loss with L2: L′(α) = −λ√w; 0 where there is none."""
    slope = mean_loss(DECAYED_WIDTH, DECAYED_STRENGTH).derivative()
    pull = decay * np.sqrt(DECAYED_WIDTH)
    if slope(0.0) + pull >= 0.0:
        return 0.0
    theta = tilt(DECAYED_STRENGTH, DECAYED_WIDTH)
    return float(brentq(lambda alpha: slope(alpha) + pull, 0.0, theta))


# --- the recorded heads ---------------------------------------------------------------------------


class Ways:
    """The recorded ways of heads of one optimiser and one start: numbers of (seeds, records)."""

    def __init__(self, optimizer: str, factor: float, aligned: bool = False) -> None:
        at = {"optimizer": optimizer, "factor": factor, "aligned": aligned}
        entries = records.load("one_head").select(**at)
        self.optimizer, self.rate = optimizer, one_head.RATES[optimizer]
        last = one_head.STEPS[optimizer]
        self.steps = np.array([step for step in one_head.RECORDED if step <= last], dtype=float)
        self.numbers = {
            name: np.array([e.result[name] for e in entries]) for name in entries[0].result
        }

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.numbers[name]

    @property
    def size(self) -> Values:
        """‖W_q‖ ‖W_k‖, (seeds, records)."""
        product: Values = np.sqrt(self["query"] * self["key"])
        return product

    @property
    def growth(self) -> Values:
        """The size, over that at the start."""
        return self.size / self.size[:, :1]

    @property
    def direction(self) -> Values:
        """The cosine of the two matrices, (seeds, records)."""
        return self["trace"] / self.size

    @property
    def alpha(self) -> Values:
        """α of the part of the logits that finds: ⟨W_q, W_k⟩/√w, (seeds, records)."""
        alpha: Values = self["trace"] / np.sqrt(WIDTH)
        return alpha

    def first_step(self, values: Values, level: float, *, below: bool = False) -> Values:
        """Return the step at which each seed's values first reach a level, (seeds,).

        Between records it is interpolated. They come from below the level, or with `below` from
        above it. Raises ValueError where they do not reach it.
        """
        sign = -1.0 if below else 1.0
        steps = []
        for row in sign * values:
            reached = int(np.argmax(row >= sign * level))
            low, high = row[reached - 1], row[reached]
            if reached == 0 or high < sign * level:
                raise ValueError(f"values do not come to {level}")
            share = (sign * level - low) / (high - low)
            before, after = self.steps[reached - 1 : reached + 1]
            steps.append(before + share * (after - before))
        return np.array(steps)

    def at(self, values: Values, steps: Values) -> Values:
        """Return each seed's value at its step, (seeds,)."""
        pairs = zip(values, steps, strict=True)
        return np.array([np.interp(step, self.steps, row) for row, step in pairs])

    def delay(self) -> Values:
        """Return the step at which the loss has halved, (seeds,)."""
        return self.first_step(self["loss"], HALF, below=True)

    def closed_form(self) -> Values:
        """Return the cosine by linear gradient flow from the one at the start, (seeds, records)."""
        start = np.arctanh(self.direction[:, :1])
        return np.tanh(2.0 * gamma() * self.rate * self.steps + start)


def decayed_values(decay: float, name: str, kind: str = "L2") -> Values:
    """Return a number of the heads trained with a decay, "L2" or "AdamW", (seeds,)."""
    entries = records.load("one_head").select(decay=decay, **{"with": kind})
    return np.array([entry.result[name] for entry in entries])


def pull_share(decay: float, of: str = "query", kind: str = "L2") -> Values:
    """Return −∂L/∂log t over λ‖W‖², W that of "query" or "key", (seeds,); 1 at rest under L2."""
    slope = "slope" if of == "query" else "slope_of_keys"
    return -decayed_values(decay, slope, kind) / (decay * decayed_values(decay, of, kind))


def over_theta(decay: float) -> Values:
    """Return α/θ of the heads trained with L2, (seeds,)."""
    theta = tilt(DECAYED_STRENGTH, DECAYED_WIDTH)
    ratio: Values = decayed_values(decay, "trace") / np.sqrt(DECAYED_WIDTH) / theta
    return ratio


# --- what became of the predictions ---------------------------------------------------------------


def judge_one_head() -> Iterator[Part]:
    """Yield the parts of one_head.md, in its order."""
    sgd = {factor: Ways("sgd", factor) for factor in one_head.FACTORS}
    aligned = Ways("sgd", SMALL[0], aligned=True)
    yield from judge_sizes(sgd, aligned)
    yield from judge_order(sgd)
    yield from judge_delays(sgd, aligned)
    yield from judge_adam()
    yield from judge_decay()


def factor_text(factor: float) -> str:
    """Return a factor as the pages write it: 1 or 2⁻⁴, say."""
    return "1" if factor == 1.0 else power_of_two(factor)


def judge_sizes(sgd: dict[float, Ways], aligned: Ways) -> Iterator[Part]:
    """Yield the parts of H1 and H2: sizes follow the scale gradient."""
    all_of_them = {**{factor_text(f): ways for f, ways in sgd.items()}, "aligned": aligned}
    for name, ways in all_of_them.items():
        for of in ("query", "key"):
            what = f"from {name}, rise of the {of} matrix over its prediction"
            yield between("H1", what, total_rise(ways, of) / ways["gained"][:, -1], 0.9, 1.1)
    for name, ways in all_of_them.items():
        query, key = total_rise(ways, "query"), total_rise(ways, "key")
        apart = np.abs(query - key) / (query + key)
        yield number("H2", f"from {name}, change of the difference", apart, "below 0.05")


def total_rise(ways: Ways, name: str) -> Values:
    """Return the rise of a number from the first record to the last, (seeds,)."""
    return ways[name][:, -1] - ways[name][:, 0]


def judge_order(sgd: dict[float, Ways]) -> Iterator[Part]:
    """Yield the parts of H3 to H5: direction comes before size."""
    for factor, ways in sgd.items():
        cosine = ways.at(ways.direction, ways.first_step(ways.growth, 2.0))
        low, high = (0.846, 0.886) if factor in SMALL else (0.75, 0.95)
        yield between("H3", f"from {factor_text(factor)}", cosine, low, high)
    for factor, ways in sgd.items():
        ratio = ways.first_step(ways.growth, 2.0) / ways.first_step(ways.direction, 0.5)
        if factor in SMALL:
            yield between("H4", f"from {factor_text(factor)}", ratio, 2.1, 2.7)
        else:
            yield number("H4", f"from {factor_text(factor)}", ratio, "above 1.5")
    for factor in SMALL:
        ways = sgd[factor]
        linear = STRENGTH * ways.alpha <= 1.0
        apart = np.where(linear, np.abs(ways.direction - ways.closed_form()), 0.0).max(axis=1)
        yield number("H5", f"from {factor_text(factor)}, largest difference", apart, "below 0.05")


def judge_delays(sgd: dict[float, Ways], aligned: Ways) -> Iterator[Part]:
    """Yield the parts of H6 to H10: when the plateau is left, and where a head ends."""
    for before, after, low, high in ((SMALL[0], SMALL[1], 58, 70), (SMALL[1], SMALL[2], 120, 136)):
        later = sgd[after].delay() - sgd[before].delay()
        yield between("H6", f"from {factor_text(before)} to {factor_text(after)}", later, low, high)
    for factor, ways in sgd.items():
        ratio = ways.delay() * ways.rate / model_delay(factor)
        top = 1.12 if factor in SMALL else 2.0
        yield between("H7", f"from {factor_text(factor)}", ratio, 1.0, top)
    expected = model_alpha(aligned.rate * aligned.steps, float(aligned.alpha[0, 0]))
    most = np.abs(aligned.alpha / expected - 1.0).max(axis=1)
    yield number("H8", "largest difference, relative", most, "below 0.07")
    ways = sgd[1.0]
    middle = ways.delay()
    yield number("H9", "cosine", ways.at(ways.direction, middle), "at least 0.75")
    part = (ways.at(ways.growth, middle) - 1.0) / (ways.growth[:, -1] - 1.0)
    yield number("H9", "size, part of its rise", part, "below 0.5")
    theta = tilt(STRENGTH, WIDTH)
    yield between("H10", "α/θ", ways.alpha[:, -1] / theta, 0.85, 1.02)
    even = ways.alpha[:, -1] / ways["product"][:, -1]
    yield number("H10", "evenness", even, "at least 0.93")


def judge_adam() -> Iterator[Part]:
    """Yield the parts of H11 to H13: Adam."""
    adam = {factor: Ways("adam", factor) for factor in one_head.FACTORS}
    late = adam[SMALL[2]].delay() / adam[SMALL[1]].delay()
    yield between(
        "H11", f"from {factor_text(SMALL[2])}, over {factor_text(SMALL[1])}", late, 0.9, 1.5
    )
    yield between("H11", f"from {factor_text(SMALL[1])}, steps", adam[SMALL[1]].delay(), 80, 130)
    ways = adam[1.0]
    cosine = ways.at(ways.direction, ways.first_step(ways.growth, 2.0))
    yield between("H12", "cosine at the doubled size", cosine, 0.7, 0.9)
    growth = ways.at(ways.growth, ways.delay())
    yield number("H12", "growth at the loss's half", growth, "below 2")
    for factor, ways in adam.items():
        ratio = total_rise(ways, "query") / ways["gained"][:, -1]
        yield number("H13", f"from {factor_text(factor)}", ratio, "at least 5")


def judge_decay() -> Iterator[Part]:
    """Yield the parts of H14 to H18: weight decay."""
    alive = one_head.L2[:-1]
    for decay in alive:
        for of in ("query", "key"):
            what = f"{decay}, by the {of} matrix"
            yield between("H14", what, pull_share(decay, of), 0.999, 1.001)
        ratio = decayed_values(decay, "query") / decayed_values(decay, "key")
        yield between("H14", f"{decay}, ratio of the squared norms", ratio, 0.999, 1.001)
    for decay, middle in zip(alive, (0.785, 0.598, 0.415, 0.186), strict=True):
        margin = (0.15 if decay == alive[0] else 0.1) * middle
        low, high = middle - margin, middle + margin
        yield between("H15", f"{decay}, α/θ", over_theta(decay), low, high)
    yield number("H16", "‖W_q‖²", decayed_values(one_head.L2[-1], "query"), "below 1e-6")
    for decay in alive:
        yield number("H17", f"{decay}, t*", decayed_values(decay, "best"), "above 1")
    for before, after in pairwise(alive):
        later = decayed_values(after, "best") - decayed_values(before, "best")
        yield above("H17", f"t* at {after} less at {before}", later)
    for decay in one_head.ADAMW:
        what = f"{decay}, by the query matrix"
        yield number("H18", what, pull_share(decay, kind="AdamW"), "below 0.05")
    yield above("H18", "1, its sign", pull_share(1.0, kind="AdamW"))
