"""How one head comes to its scale: theory, and what is read off the heads of `one_head`.

The theory is of the mean loss over random directions, and of gradient flow: τ is the rate times the
steps. Chapter: learning_scale.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad, solve_ivp
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from attnlib import retrieval
from attnlib.retrieval import Tilted
from attnlib.scores import Cosine
from experiments import one_head, records
from experiments.judging import Values
from experiments.lab.recall import tilt
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


def model(tau: Values, first: float) -> Values:
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
    """Return the τ at which the model's loss has halved, for a start of that factor.

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
        entries = records.load("one_head").select(
            optimizer=optimizer, factor=factor, aligned=aligned
        )
        self.optimizer, self.rate = optimizer, one_head.RATES[optimizer]
        last = one_head.STEPS[optimizer]
        self.steps = np.array([step for step in one_head.RECORDED if step <= last], dtype=float)
        self.numbers = {
            name: np.array([e.found[name] for e in entries]) for name in entries[0].found
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


def rests(decay: float, name: str, kind: str = "L2") -> Values:
    """Return a number of the heads that were trained with a decay, one for each seed."""
    entries = records.load("one_head").select(decay=decay, **{"with": kind})
    return np.array([entry.found[name] for entry in entries])


def share(decay: float, of: str = "query", kind: str = "L2") -> Values:
    """Return −∂L/∂log t over λ‖W‖², by the weights of queries or of keys."""
    slope = "slope" if of == "query" else "slope_of_keys"
    return -rests(decay, slope, kind) / (decay * rests(decay, of, kind))


def over_theta(decay: float) -> Values:
    """Return α/θ of the heads that were trained with L2."""
    theta = tilt(DECAYED_STRENGTH, DECAYED_WIDTH)
    ratio: Values = rests(decay, "trace") / np.sqrt(DECAYED_WIDTH) / theta
    return ratio


# --- what became of the predictions ---------------------------------------------------------------


def named(factor: float) -> str:
    """Return a factor as the pages write it."""
    power = round(np.log2(factor))
    return "1" if power == 0 else "2" + str(power).translate(str.maketrans("-0123456789", SUPER))


SUPER = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"


def rise(ways: Ways, name: str) -> Values:
    """Return by how much a number rises in the whole run."""
    return ways[name][:, -1] - ways[name][:, 0]
