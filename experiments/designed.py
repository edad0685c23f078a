"""Designs that were run again as they should have been, and what became of their predictions.

Each cell has its own best learning rate, chosen on seeds that are not judged, the best rate inside
the range that was tried. The sweeps of the same names have the predictions in words and with what
refutes them; `experiments.judging` says what a part is.

Chapters: qk_norm, unscaled, length_extrapolation, almost_scaled_training, predictions.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import log2
from typing import Any

import numpy as np

from experiments.gains import Gains
from experiments.judging import Part, Values, above, between, decided, limits, near, number
from experiments.lab import sweep
from experiments.records import SWEEPS, losses, of_variant, runs

ALPHAS = (0.5, 1.0, 2.25, 4.0, 8.0)
"""At which QK-norm's gain begins, or stays."""
KINDS = ("learned", "fixed")


def best_rates(name: str) -> dict[str, float]:
    """Return log₂ of the best learning rate of each variant of a sweep that chooses them."""
    chosen = sweep.best_rates(sweep.read(SWEEPS / f"{name}.toml"))
    return {variant: log2(rate) for variant, rate in chosen.items()}


# --- QK-norm: where the gain begins ---------------------------------------------------------------


def of_gain(kind: str, alpha: float, steps: int) -> Values:
    """Return the validation losses of QK-norm whose gain begins at α, "learned" or "fixed"."""
    return losses(f"norm_{steps}", f"{kind}_{round(100 * alpha):03d}", "validation_loss")


def best_alpha(kind: str, steps: int) -> float:
    """Return the α of the least mean loss."""
    return min(ALPHAS, key=lambda alpha: float(of_gain(kind, alpha, steps).mean()))


def above_best(kind: str, alpha: float, steps: int) -> Values:
    """Return the loss from an α less that from the best one, by seed."""
    return of_gain(kind, alpha, steps) - of_gain(kind, best_alpha(kind, steps), steps)


def best_alphas(kind: str, steps: int) -> list[float]:
    """Return the α that are not surely above the best one: no paired 95 % interval above 0."""
    return [alpha for alpha in ALPHAS if limits(above_best(kind, alpha, steps))[0] <= 0.0]


def gains(steps: int) -> Gains:
    """Return the runs of QK-norm after 500 or 2000 steps."""
    return Gains(runs(f"norm_{steps}"))


def forgiven(alpha: float, steps: int) -> Values:
    """Return the loss of a fixed gain less that of a learned one which begins there, by seed."""
    return of_gain("fixed", alpha, steps) - of_gain("learned", alpha, steps)


def norm_500() -> Iterator[Part]:
    """Yield what was predicted of QK-norm after 500 steps."""
    for at, kind in enumerate(KINDS, 1):
        kept = best_alphas(kind, 500)
        verdict = bool({0.5, 1.0} & set(kept)) and not {4.0, 8.0} & set(kept)
        yield decided(at, f"{kind}, best α", "½ or 1, not 4, not 8", best_alpha(kind, 500), verdict)
    yield above(3, "fixed less learned, α = 8", forgiven(8.0, 500))
    yield number(3, "fixed less learned, α = 1", forgiven(1.0, 500), "below 0.03")
    cost = above_best("fixed", 4.0, 500)
    yield number(4, "fixed, α = 4 less the best", cost, "at least 0.12")


def norm_2000() -> Iterator[Part]:
    """Yield what was predicted of QK-norm after 2000 steps."""
    kept = {kind: set(best_alphas(kind, 2000)) for kind in KINDS}
    learned = kept["learned"]
    verdict = 1.0 in learned and bool({0.5, 2.25} & learned) and 8.0 not in learned
    best = best_alpha("learned", 2000)
    yield decided(5, "learned, best α", "1 and ½ or 2.25, not 8", best, verdict)
    yield decided(6, "fixed, best α", "not 4", best_alpha("fixed", 2000), 4.0 not in kept["fixed"])
    for kind in KINDS:
        first, last = (ALPHAS.index(best_alpha(kind, steps)) for steps in (500, 2000))
        yield number(7, f"{kind}, places moved", abs(last - first), "at most 1")
    yield between(8, "fixed, α = 4 less the best", above_best("fixed", 4.0, 2000), 0.05, 0.25)
    spread = {
        kind: np.ptp([of_gain(kind, alpha, 2000).mean() for alpha in ALPHAS[:4]]) for kind in KINDS
    }
    yield number(9, "spread, fixed less learned", spread["fixed"] - spread["learned"], "above 0")
    yield number(9, "spread, learned", spread["learned"], "below 0.08")


def norm_500_rates() -> Iterator[Part]:
    """Yield what was predicted of their rates."""
    best = best_rates("norm_500_rates")
    differ = sum(best[f"fixed_{a}"] != best[f"learned_{a}"] for a in ("400", "800"))
    yield number(1, "of α = 4 and 8, best rates that differ", differ, "at least 1")
    learned = [best[f"learned_{round(100 * alpha):03d}"] for alpha in ALPHAS]
    falls = sum(after < before for before, after in pairwise(learned))
    yield number(2, "learned, steps at which the best rate falls", falls, "at most 0")


def norm_2000_rates() -> Iterator[Part]:
    """Yield the same of 2000 steps."""
    brief, long = best_rates("norm_500_rates"), best_rates("norm_2000_rates")
    same = sum(brief[cell] - long[cell] in (0.0, 1.0) for cell in brief)
    yield number(1, "of 10, the rate of 500 steps or half of it", same, "at least 6")


# --- heads of 256 that are not divided ------------------------------------------------------------


def undivided_harm(measure: str = "final_loss") -> Values:
    """Return the loss of undivided heads of 256 as people train less that of 1/√d, by seed."""
    return losses("undivided_low", "one", measure) - losses("undivided_low", "root", measure)


def undivided_low() -> Iterator[Part]:
    """Yield what was predicted of undivided heads of 256 as people train."""
    harm = undivided_harm()
    yield number(1, "undivided less 1/√d", harm, "below 0.45")
    yield number(2, "undivided less 1/√d", harm, "above 0.1")
    yield above(2, "its interval", harm)
    low, high = limits(harm)
    yield decided(3, "undivided less 1/√d", "at least 0.25", harm, low > 0.25, refuted=high < 0.25)


def undivided_low_rates() -> Iterator[Part]:
    """Yield what was predicted of their rates."""
    best = best_rates("undivided_low_rates")
    yield number(1, "undivided, log₂ of the best rate", best["one"], "at most -12")
    yield between(2, "1/√d, log₂ of the best rate", best["root"], -10.0, -9.0)


# --- a rule in n, trained in and applied after training -------------------------------------------

RULES = ("none", "root_log", "log")
LENGTHS = (1, 4, 16, 64)
"""Times n₀."""


def reading(trained: str, times: int, under: str = "") -> Values:
    """Return the losses of models at times · n₀, trained with a rule, or read `under` one."""
    row, column = LENGTHS.index(times), RULES.index(under) if under else 0
    chosen: list[Any] = of_variant("trained_quarter", trained)
    return np.array([run.readings[row, column] for _, run in chosen])


def trained_in(rule: str, times: int = 16) -> Values:
    """Return the loss with a rule trained in less that with it applied after, by seed."""
    return reading(rule, times) - reading("none", times, rule)


def trained_quarter() -> Iterator[Part]:
    """Yield what was predicted of rules in n, trained in against applied after training."""
    root_log, log = trained_in("root_log"), trained_in("log")
    low, high = limits(root_log)
    wrong = low > 0.0 or max(abs(low), abs(high)) < 0.05
    what = "√log n at 16 n₀, trained in less after"
    yield decided(1, what, "below 0", root_log, high < 0.0, refuted=wrong)
    low, high = limits(log)
    yield decided(2, "log n at 16 n₀, trained in less after", "holds 0", log, low <= 0.0 <= high)
    for rule in RULES[1:]:
        cost = reading(rule, 1) - reading("none", 1)
        yield near(3, f"{rule} at n₀, trained in less none", cost, 0.0, 0.02)
    for rule in RULES[1:]:
        for times in LENGTHS[1:]:
            cost = reading("none", times, rule) - reading("none", times)
            yield number(4, f"{rule} applied after, at {times} n₀", cost, "above 0")
    yield above(5, "at 16 n₀, none less √log n", reading("none", 16) - reading("root_log", 16))


def trained_quarter_rates() -> Iterator[Part]:
    """Yield what was predicted of their rates."""
    for rule, rate in best_rates("trained_quarter_rates").items():
        yield between(1, f"{rule}, log₂ of the best rate", rate, -8.0, -7.0)


# --- the factor on the output of attention --------------------------------------------------------


def factor_harm(name: str, way: str, measure: str = "final_loss") -> Values:
    """Return the loss with the factor less without, trained in one way, by seed."""
    return losses(name, f"{way}_note", measure) - losses(name, f"{way}_baseline", measure)


def harm_removed(way: str) -> Values:
    """Return the harm at a constant rate less that of a way of training, by seed."""
    return factor_harm("factor_ingredients", "constant") - factor_harm("factor_ingredients", way)


def share(way: str) -> float:
    """Return the share of the harm at a constant rate that a way of training takes away."""
    whole = factor_harm("factor_ingredients", "constant").mean()
    return float(harm_removed(way).mean() / whole)


def factor_ingredients() -> Iterator[Part]:
    """Yield what was predicted of warm-up, cosine, decay and clipping, one by one."""
    constant = factor_harm("factor_ingredients", "constant")
    yield between(1, "harm at a constant rate", constant, 0.12, 0.28)
    yield above(1, "its interval", constant)
    yield above(2, "harm that all four take away", harm_removed("all"))
    yield number(2, "share that all four take away", share("all"), "at least 0.5")
    yield number(3, "share that warm-up takes away", share("warmup"), "at least 0.3333")
    yield above(3, "half the rate less warm-up", harm_removed("warmup") - harm_removed("lower"))
    yield between(4, "share that decay takes away", share("decay"), -0.2, 0.2)
    yield number(5, "share that clipping takes away", share("clip"), "below 0.3333")
    yield above(6, "harm with all four", factor_harm("factor_ingredients", "all"))


def factor_short() -> Iterator[Part]:
    """Yield what was predicted of 1500 steps, each cell at its own best rate."""
    constant, people = (factor_harm("factor_short", way) for way in ("constant", "people"))
    yield number(1, "harm at a constant rate", constant, "above 0.08")
    yield above(1, "its interval", constant)
    yield number(2, "harm as people train", people, "below 0.06")
    yield above(3, "constant less people's", constant - people)


def factor_short_rates() -> Iterator[Part]:
    """Yield what was predicted of their rates, in powers of 2."""
    best = best_rates("factor_short_rates")
    for model in ("baseline", "note"):
        gain = best[f"people_{model}"] - best[f"constant_{model}"]
        yield number(1, f"{model}, people's over constant", gain, "at least 1")
    for way in ("constant", "people"):
        gain = best[f"{way}_note"] - best[f"{way}_baseline"]
        yield number(2, f"{way}, factor's over baseline's", gain, "at most 0")


def factor_long() -> Iterator[Part]:
    """Yield what was predicted of 6000 steps, each cell at its own best rate."""
    constant, people = (factor_harm("factor_long", way) for way in ("constant", "people"))
    yield above(1, "harm at a constant rate", constant)
    yield between(2, "harm as people train", people, 0.0, 0.04)
    yield number(3, "constant less people's", constant - people, "below 0.1")
    brief = factor_harm("factor_short", "constant").mean()
    yield number(4, "harm over that of 1500 steps", float(constant.mean() / brief), "below 0.5")


def factor_long_rates() -> Iterator[Part]:
    """Yield what was predicted of their rates."""
    for cell, rate in best_rates("factor_long_rates").items():
        low, high = (-10.0, -9.0) if cell.startswith("constant") else (-8.0, -7.0)
        yield between(1, f"{cell}, log₂ of the best rate", rate, low, high)
