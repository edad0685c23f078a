"""Show the measurements of a probe as a table, JSON and text, beside random scores."""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlib._checking import FloatArray
from attnlib.extras import extra_packages
from attnlib.probing import summary
from attnlib.probing.measure import Batch, Measured, TargetRows
from attnlib.probing.random_scores import OUTPUTS, RANDOM, RandomScores
from attnlib.probing.tally import SUMMED, Tally

DEFINITIONS = {
    "layer": "name of the module that attends",
    "call": "0 for its first call in a run of the model, 1 for the second, …",
    "head": "head of the queries, from 0",
    "rows": "rows measured (one for each query), over all calls; those that see fewer than two "
    "keys are left out of everything",
    "keys": "n, the number of keys that a row sees: mean over the rows",
    "dimension": "d, the length of a query",
    "scale": "what multiplies q·k; NaN where attention writes its softmax out and that is not one "
    "number",
    "score_std": "standard deviation of q·k/√d over the keys of a row, n − 1 in its denominator: "
    "root of the mean of its square over the rows",
    "alpha": "effective α, standard deviation of the logits (scale · q·k, plus what a mask adds) "
    "over the keys of a row: root of the mean of its square over the rows",
    "critical_alpha": "√(2 log n), where rows of random scores freeze: mean over the rows",
    "alpha_to_critical": "standard deviation of the row's logits / √(2 log n): mean over the rows",
    "wide": "share of the rows that are wide: their logits have a standard deviation of √(2 log n) "
    "or more. A row can be frozen, which is that a few keys hold the weight, and not wide",
    "random_wide": "the same for random scores",
    "collision_probability": "Y = Σp²: mean over the rows",
    "random_collision_probability": "the same for random scores",
    "effective_keys": "1/Y, of the mean Y",
    "random_effective_keys": "the same for random scores",
    "entropy": "−Σ p log p, in nats: mean over the rows",
    "random_entropy": "the same for random scores",
    "gradient": "g = α(1 − Y), half the sum of |∂p/∂s| for scores in units of their standard "
    "deviation, with the head's α: mean over the rows",
    "random_gradient": "the same for random scores",
    "gradient_mean_log": "mean of log g",
    "gradient_share": "mean g / its limit for random scores as α → ∞",
    "largest_logit": "largest logit of a row: the largest over the rows",
    "log_sum_exp": "log Σ e^logit, the normaliser of a row: mean over the rows",
    "largest_weight": "largest weight of a row: mean over the rows",
    "first_weight": "weight of the first key that any query of the sequence sees, where attention "
    "sinks are: mean over the rows",
    "value_std": "standard deviation of the values: over the keys that are seen, root of the "
    "mean square of the components",
    "output_std": "standard deviation of the outputs z = Σ p v: root of the mean of "
    "(z − v̄)² + s²/N over rows and components, for N values of mean v̄ and variance s²; for "
    "values that are independent of the weights its square is s² · E Y on average",
    "random_output_std": f"value_std · √(E Y) for random scores. {OUTPUTS}",
}
"""The columns of `Report.table`."""

TARGET_DEFINITIONS = {
    "targets": "rows whose target is known and not hidden from them",
    "target_gap": "g, the target's logit less the mean of the other logits of its row: mean over "
    "those rows",
    "target_weight": "weight of the target, 1/(1 + (n − 1) e^(κ − g)): mean over those rows",
    "target_kappa": "κ, the log of the mean of e^ℓ over the other logits ℓ of a row, less their "
    "mean: mean over those rows. The target has half of the weight where g = log(n − 1) + κ",
    "target_slope": "κ′(1), the mean of the other logits of a row under their own softmax, less "
    "their plain mean: mean over those rows, each counted by 1 − P, what the target lacks",
    "target_ratio": "mean of g, each row counted by 1 − P, over target_slope. It is 1 where the "
    "mean of −log P is that of the entropy: then no factor for the logits lowers −log P. Above 1 "
    "larger logits lower it, below 1 smaller ones",
}
"""The columns that it has beside `DEFINITIONS` where targets are given."""


class Report:
    """Hold the measurements of `probe`: a table, JSON, and a summary when printed.

    With theory=False the columns of random scores are NaN; targets=True, by default False, adds the
    columns of `TARGET_DEFINITIONS`.
    """

    def __init__(self, *, theory: bool = True, targets: bool = False) -> None:
        self.not_finite: list[str] = []
        """The layers whose numbers are NaN or infinite, in the order of the calls."""
        self.not_measured: list[str] = []
        """Modules whose attention was not measured, and why."""
        self.notes: list[str] = []
        """What is uncertain of modules that were measured: their heads, padding, parts."""
        self._theory = theory
        self._columns = {**DEFINITIONS, **TARGET_DEFINITIONS} if targets else DEFINITIONS
        self._tallies: dict[tuple[str, int, int, int], Tally] = {}
        self._written: list[dict[str, Any]] = []
        self.batch = Batch(self.add)
        """Measures the calls that it takes, small ones together, and adds them."""

    @property
    def definitions(self) -> dict[str, str]:
        """Return what each column of the table means, by name, and the theory at "random"."""
        return {**self._columns, "random": RANDOM}

    def add(self, layer: str, call: int, measured: Measured) -> None:
        """Add what was `measured` in a call of `layer`, the `call`-th in a run, from 0."""
        heads = measured.value_variance.shape[-1]
        key = layer, call, heads, measured.dimension
        self._tallies.setdefault(key, Tally(heads)).add(measured)
        self._written = []
        counted = measured.rows.keys >= 2.0
        finite = np.isfinite(measured.rows).all(where=counted)
        if not finite and layer not in self.not_finite:
            self.not_finite.append(layer)

    def table(self) -> Any:
        """Return a pandas DataFrame, a row for each layer, call and head, in the calls' order.

        `definitions` says what its columns mean. NaN stands for a mean over no rows; for random
        scores with theory=False or at an α above 10⁴; and with theory=False for `gradient_share`.
        Raises ModuleNotFoundError without pandas.
        """
        with extra_packages("table"):
            import pandas as pd

        return pd.DataFrame(self._lines(), columns=list(self._columns))

    def to_json(self) -> str:
        """Return JSON: definitions, table ("heads"), not_measured and notes; null for NaN and ∞."""
        heads = [
            {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in line.items()
            }
            for line in self._lines()
        ]
        content: dict[str, Any] = {"definitions": self.definitions, "heads": heads}
        if self.not_measured:
            content["not_measured"] = self.not_measured
        if self.notes:
            content["notes"] = self.notes
        return json.dumps(content, ensure_ascii=False, indent=1)

    def __repr__(self) -> str:
        missing = f"\n\nNot measured: {'; '.join(self.not_measured)}" if self.not_measured else ""
        notes = f"\n\nNote: {'; '.join(self.notes)}" if self.notes else ""
        return summary.text(self._lines()) + missing + notes

    def _heads(self) -> list["_Head"]:
        return [
            _Head(*key[:2], head, key[3], tally)
            for key, tally in self._tallies.items()
            for head in range(key[2])
        ]

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines of the table; the theory takes a second, so they are kept."""
        self.batch.finish()
        if not self._written:
            heads = self._heads()
            by_theory: dict[RandomScores, list[int]] = {}
            for i, head in enumerate(heads):
                by_theory.setdefault(head.random, []).append(i)
            lines = {}
            for random, places in by_theory.items():
                alphas = np.array([heads[i].alpha for i in places])
                columns = random.columns(alphas) if self._theory else _without_theory(alphas)
                limit = random.gradient_limit if self._theory else math.nan
                for i, place in enumerate(places):
                    expected = {name: float(column[i]) for name, column in columns.items()}
                    line = heads[place].line(random.critical_alpha, limit, expected)
                    lines[place] = {name: line[name] for name in self._columns}
            self._written = [lines[i] for i in range(len(heads))]
        return self._written


def _without_theory(alphas: FloatArray) -> dict[str, FloatArray]:
    return {name: np.full(alphas.shape, math.nan) for name in DEFINITIONS if "random_" in name}


AS_THEY_ARE = (
    *("keys", "alpha_to_critical", "wide", "collision_probability", "entropy", "log_sum_exp"),
    *("largest_weight", "first_weight", *TargetRows._fields),
)
"""The columns that are means over the rows."""


@dataclass(frozen=True, eq=False)
class _Head:
    """Hold a head of one call in a layer, and the sums over its rows."""

    layer: str
    call: int
    head: int
    dimension: int
    tally: Tally

    def mean(self, name: str) -> float:
        """Return the mean of `name` over the rows ("target…": over those with one), or NaN."""
        number = self.total("targets" if name.startswith("target") else "rows")
        return self.total(name) / number if number else math.nan

    def total(self, name: str) -> float:
        """Return the sum over the rows of `name`, one of SUMMED."""
        return float(self.tally.sums[SUMMED.index(name), self.head])

    @property
    def alpha(self) -> float:
        """The root of the mean variance of the logits."""
        return math.sqrt(self.mean("variance"))

    @property
    def random(self) -> RandomScores:
        """The theory of random scores for the numbers n of keys that its rows see."""
        counts = self.tally.lengths[self.head]
        n = np.flatnonzero(counts[2:]) + 2
        return RandomScores(
            self.dimension, tuple(n.astype(float).tolist()), tuple(counts[n].tolist())
        )

    @np.errstate(invalid="ignore")
    def line(
        self, critical_alpha: float, limit: float, expected: dict[str, float]
    ) -> dict[str, Any]:
        """Return the head's line of the table, with the columns `expected` of random scores.

        `limit` is their gradient's as α → ∞.
        """
        alpha, rows = self.alpha, int(self.total("rows"))
        gradient = alpha * self.mean("complement")
        value_std = math.sqrt(self.mean("value_variance"))
        log_alpha = math.log(alpha) if alpha else -math.inf
        targets, lost_gap = self.total("targets"), self.total("target_lost_gap")
        slope, lost = lost_gap - self.total("target_excess"), targets - self.total("target_weight")
        return {
            "layer": self.layer,
            "call": self.call,
            "head": self.head,
            "rows": rows,
            "dimension": self.dimension,
            "scale": self.tally.scale,
            "score_std": math.sqrt(self.mean("score_variance")),
            "alpha": alpha,
            "critical_alpha": critical_alpha,
            "effective_keys": 1.0 / self.mean("collision_probability"),
            "gradient": gradient,
            "gradient_mean_log": self.mean("log_complement") + log_alpha,
            "gradient_share": gradient / limit,
            "largest_logit": float(self.tally.largest_logit[self.head]) if rows else math.nan,
            "value_std": value_std,
            "output_std": math.sqrt(self.mean("output_square")),
            "targets": int(targets),
            "target_slope": slope / lost if lost else math.nan,
            "target_ratio": lost_gap / slope if slope else math.nan,
            **{name: self.mean(name) for name in AS_THEY_ARE},
            **expected,
            "random_output_std": value_std * math.sqrt(expected["random_collision_probability"]),
        }
