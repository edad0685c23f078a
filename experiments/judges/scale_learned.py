"""How one head comes to its scale: theory, and what became of predictions/one_head.md.

`experiments.one_head` recorded the heads. The theory is of the mean loss over random directions,
and of gradient flow: τ is the rate times the steps.

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
HALF = np.log(KEYS) / 2.0
"""The loss at which a head has left its plateau: half of the loss without attention."""


# --- theory ---------------------------------------------------------------------------------------


def gamma(width: int = WIDTH, strength: float = STRENGTH) -> float:
    """Return γ = ϱ(1 − 1/n)/√w: 2γ is the rate of growth while logits are small."""
    return strength * (1.0 - 1.0 / KEYS) / float(np.sqrt(width))


@cache
def mean_loss(width: int = WIDTH, strength: float = STRENGTH) -> CubicSpline:
    """Return the mean loss L(α) of a head that is α/√w times the identity, for 0 ≤ α ≤ 1.2 θ."""
    theta = tilt(strength, width)
    alpha = np.linspace(0.0, 1.2 * theta, 49)
    return CubicSpline(alpha, retrieval.loss(Cosine(width), Tilted(theta), alpha, KEYS))


def model_alpha(tau: Values, first: float) -> Values:
    """Return α(τ) by dα/dτ = −(2/√w) α L′(α) from α(0) = `first`: directions do not change."""
    slope = mean_loss().derivative()

    def rise(_: float, log_alpha: Values) -> Values:
        change: Values = -2.0 / np.sqrt(WIDTH) * slope(np.exp(log_alpha))
        return change

    ends = 0.0, float(np.max(tau))
    path = solve_ivp(rise, ends, [np.log(first)], t_eval=tau, rtol=1e-8, atol=1e-10)
    alpha: Values = np.exp(path.y[0])
    return alpha


def model_delay(factor: float, *, aligned: bool = False) -> float:
    """Return the τ at which the model_alpha's loss has halved, for a start of that factor.

    A random start goes on like an aligned one of half its size.
    """
    slope, curve = mean_loss().derivative(), mean_loss()
    end = brentq(lambda alpha: float(curve(alpha)) - HALF, 0.1, 20.0)
    first = factor * np.sqrt(WIDTH) / (1.0 if aligned else 2.0)
    time, _ = quad(lambda x: -np.sqrt(WIDTH) / 2.0 / slope(np.exp(x)), np.log(first), np.log(end))
    return float(time)


def at_rest(decay: float) -> float:
    """Return the α of least mean loss with L2: L′(α) = −λ√w; 0 where there is none."""
    slope = mean_loss(DECAYED_WIDTH, DECAYED_STRENGTH).derivative()
    pull = decay * np.sqrt(DECAYED_WIDTH)
    if slope(0.0) + pull >= 0.0:
        return 0.0
    theta = tilt(DECAYED_STRENGTH, DECAYED_WIDTH)
    return float(brentq(lambda alpha: slope(alpha) + pull, 0.0, theta))


# --- the recorded heads ---------------------------------------------------------------------------


class Ways:
    """Heads of one optimiser and one start; each number has a row for each seed."""

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
        """‖W_q‖ ‖W_k‖."""
        product: Values = np.sqrt(self["query"] * self["key"])
        return product

    @property
    def growth(self) -> Values:
        """The size, over that at the start."""
        return self.size / self.size[:, :1]

    @property
    def direction(self) -> Values:
        """The cosine of the two matrices."""
        return self["trace"] / self.size

    @property
    def alpha(self) -> Values:
        """Of the part that finds: ⟨W_q, W_k⟩/√w."""
        alpha: Values = self["trace"] / np.sqrt(WIDTH)
        return alpha

    def first(self, values: Values, level: float, *, below: bool = False) -> Values:
        """Return of each seed the step at which its values come to a level first."""
        sign = -1.0 if below else 1.0
        steps = []
        for row in sign * values:
            at = int(np.argmax(row >= sign * level))
            low, high = row[at - 1], row[at]
            if at == 0 or high < sign * level:
                raise ValueError(f"values do not come to {level}")
            share = (sign * level - low) / (high - low)
            steps.append(self.steps[at - 1] + share * (self.steps[at] - self.steps[at - 1]))
        return np.array(steps)

    def at(self, values: Values, steps: Values) -> Values:
        """Return of each seed its value at a step."""
        pairs = zip(values, steps, strict=True)
        return np.array([np.interp(step, self.steps, row) for row, step in pairs])

    def delay(self) -> Values:
        """Return of each seed the step at which the loss has halved."""
        return self.first(self["loss"], HALF, below=True)

    def closed_form(self) -> Values:
        """Return the direction that linear gradient flow has, from the one at the start."""
        start = np.arctanh(self.direction[:, :1])
        return np.tanh(2.0 * gamma() * self.rate * self.steps + start)


def decayed_values(decay: float, name: str, kind: str = "L2") -> Values:
    """Return a number of the heads that were trained with a decay, one for each seed."""
    entries = records.load("one_head").select(decay=decay, **{"with": kind})
    return np.array([entry.result[name] for entry in entries])


def share(decay: float, of: str = "query", kind: str = "L2") -> Values:
    """Return −∂L/∂log t over λ‖W‖², by the weights of queries or of keys."""
    slope = "slope" if of == "query" else "slope_of_keys"
    return -decayed_values(decay, slope, kind) / (decay * decayed_values(decay, of, kind))


def over_theta(decay: float) -> Values:
    """Return α/θ of the heads that were trained with L2."""
    theta = tilt(DECAYED_STRENGTH, DECAYED_WIDTH)
    ratio: Values = decayed_values(decay, "trace") / np.sqrt(DECAYED_WIDTH) / theta
    return ratio


# --- what became of the predictions ---------------------------------------------------------------


def judge_one_head() -> Iterator[Part]:
    """Yield all parts of the predictions, in their order."""
    sgd = {factor: Ways("sgd", factor) for factor in one_head.FACTORS}
    aligned = Ways("sgd", SMALL[0], aligned=True)
    yield from judge_sizes(sgd, aligned)
    yield from judge_order(sgd)
    yield from judge_delays(sgd, aligned)
    yield from judge_adam()
    yield from judge_decay()


def named(factor: float) -> str:
    """Return a factor as the pages write it."""
    return "1" if factor == 1.0 else power_of_two(factor)


def judge_sizes(sgd: dict[float, Ways], aligned: Ways) -> Iterator[Part]:
    """Yield whether sizes follow the scale gradient."""
    all_of_them = {**{named(f): ways for f, ways in sgd.items()}, "aligned": aligned}
    for name, ways in all_of_them.items():
        for of in ("query", "key"):
            what = f"from {name}, rise of the {of} matrix over its prediction"
            yield between("H1", what, rise(ways, of) / ways["gained"][:, -1], 0.9, 1.1)
    for name, ways in all_of_them.items():
        query, key = rise(ways, "query"), rise(ways, "key")
        apart = np.abs(query - key) / (query + key)
        yield number("H2", f"from {name}, change of the difference", apart, "below 0.05")


def rise(ways: Ways, name: str) -> Values:
    """Return by how much a number rises in the whole run."""
    return ways[name][:, -1] - ways[name][:, 0]


def judge_order(sgd: dict[float, Ways]) -> Iterator[Part]:
    """Yield which comes first, direction or size."""
    for factor, ways in sgd.items():
        cosine = ways.at(ways.direction, ways.first(ways.growth, 2.0))
        low, high = (0.846, 0.886) if factor in SMALL else (0.75, 0.95)
        yield between("H3", f"from {named(factor)}", cosine, low, high)
    for factor, ways in sgd.items():
        ratio = ways.first(ways.growth, 2.0) / ways.first(ways.direction, 0.5)
        if factor in SMALL:
            yield between("H4", f"from {named(factor)}", ratio, 2.1, 2.7)
        else:
            yield number("H4", f"from {named(factor)}", ratio, "above 1.5")
    for factor in SMALL:
        ways = sgd[factor]
        linear = STRENGTH * ways.alpha <= 1.0
        apart = np.where(linear, np.abs(ways.direction - ways.closed_form()), 0.0).max(axis=1)
        yield number("H5", f"from {named(factor)}, largest difference", apart, "below 0.05")


def judge_delays(sgd: dict[float, Ways], aligned: Ways) -> Iterator[Part]:
    """Yield how late the plateau is left, and where a head ends."""
    for before, after, low, high in ((SMALL[0], SMALL[1], 58, 70), (SMALL[1], SMALL[2], 120, 136)):
        later = sgd[after].delay() - sgd[before].delay()
        yield between("H6", f"from {named(before)} to {named(after)}", later, low, high)
    for factor, ways in sgd.items():
        ratio = ways.delay() * ways.rate / model_delay(factor)
        top = 1.12 if factor in SMALL else 2.0
        yield between("H7", f"from {named(factor)}", ratio, 1.0, top)
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
    """Yield what is different under Adam."""
    adam = {factor: Ways("adam", factor) for factor in one_head.FACTORS}
    late = adam[SMALL[2]].delay() / adam[SMALL[1]].delay()
    yield between("H11", f"from {named(SMALL[2])}, over {named(SMALL[1])}", late, 0.9, 1.5)
    yield between("H11", f"from {named(SMALL[1])}, steps", adam[SMALL[1]].delay(), 80, 130)
    ways = adam[1.0]
    cosine = ways.at(ways.direction, ways.first(ways.growth, 2.0))
    yield between("H12", "cosine at the doubled size", cosine, 0.7, 0.9)
    growth = ways.at(ways.growth, ways.delay())
    yield number("H12", "growth at the loss's half", growth, "below 2")
    for factor, ways in adam.items():
        ratio = rise(ways, "query") / ways["gained"][:, -1]
        yield number("H13", f"from {named(factor)}", ratio, "at least 5")


def judge_decay() -> Iterator[Part]:
    """Yield what weight decay takes away."""
    alive = one_head.L2[:-1]
    for decay in alive:
        for of in ("query", "key"):
            what = f"{decay}, by the {of} matrix"
            yield between("H14", what, share(decay, of), 0.999, 1.001)
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
        yield number("H18", what, share(decay, kind="AdamW"), "below 0.05")
    yield above("H18", "1, its sign", share(1.0, kind="AdamW"))
