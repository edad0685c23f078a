"""Show the measurements of a probe as a table, JSON and text, beside random scores."""

import json
import math
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from attnlib import freezing
from attnlib._checking import FloatArray
from attnlib.extras import extra_packages
from attnlib.probing import summary
from attnlib.probing.measure import Batch, Measured, Rows
from attnlib.probing.random_scores import OUTPUTS, RANDOM, RandomScores

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
        self._table_lines: list[dict[str, Any]] = []
        self.batch = Batch(self.add)
        """Measures the calls that it takes, small ones together, and adds them."""

    @property
    def definitions(self) -> dict[str, str]:
        """Return the meaning of each column of the table, by name, and that of "random" scores."""
        return {**self._columns, "random": RANDOM}

    def add(self, layer: str, call: int, measured: Measured) -> None:
        """Add the statistics of a call of `layer`, number `call` in its run, from 0."""
        heads = measured.value_variance.shape[-1]
        key = layer, call, heads, measured.dimension
        self._tallies.setdefault(key, Tally(heads)).add(measured)
        self._table_lines = []
        counted = measured.rows.keys >= 2.0
        finite = np.isfinite(measured.rows[: Rows._fields.index("target_gap")]).all(where=counted)
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

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines of the table. They are kept, as the theory takes a second."""
        self.batch.finish()
        if not self._table_lines:
            lines: list[dict[str, Any]] = []
            by_theory: dict[RandomScores, list[dict[str, Any]]] = {}
            for (layer, call, heads, dimension), tally in self._tallies.items():
                layer_columns = {
                    "layer": layer,
                    "call": call,
                    "dimension": dimension,
                    "scale": tally.scale,
                }
                columns = {name: column.tolist() for name, column in tally.columns().items()}
                for head in range(heads):
                    numbers = {name: column[head] for name, column in columns.items()}
                    lines.append({**layer_columns, "head": head, **numbers})
                    random = RandomScores(dimension, *tally.counts(head))
                    by_theory.setdefault(random, []).append(lines[-1])
            for random, head_lines in by_theory.items():
                self._add_theory(head_lines, random)
            self._table_lines = [{name: line[name] for name in self._columns} for line in lines]
        return self._table_lines

    def _add_theory(self, lines: list[dict[str, Any]], random: RandomScores) -> None:
        """Add to the lines of heads with the same rows the columns that need their theory."""
        alphas = np.array([line["alpha"] for line in lines])
        columns = random.columns(alphas) if self._theory else _without_theory(alphas)
        limit = random.gradient_limit if self._theory else math.nan
        critical_alpha = random.critical_alpha
        for i, line in enumerate(lines):
            line.update({name: float(column[i]) for name, column in columns.items()})
            line["critical_alpha"] = critical_alpha
            line["gradient_share"] = line["gradient"] / limit
            collision_probability = line["random_collision_probability"]
            line["random_output_std"] = line["value_std"] * math.sqrt(collision_probability)


def _without_theory(alphas: FloatArray) -> dict[str, FloatArray]:
    """Return the columns of random scores, NaN for each of the `alphas`."""
    return {name: np.full(alphas.shape, math.nan) for name in DEFINITIONS if "random_" in name}


ROW_MEANS = (
    *("keys", "alpha_to_critical", "wide", "collision_probability", "entropy", "log_sum_exp"),
    *("largest_weight", "first_weight", "target_gap", "target_weight", "target_kappa"),
)
"""The columns that are means over the rows."""


class Tally:
    """Hold sums over the rows of each head of a module, without rows that see fewer than two keys.

    Sums named target… are over the rows with a target. For a target of weight P in a row of entropy
    H, `target_lost_gap` is Σ (1 − P) gap, and `target_excess` is Σ (H + log P). Their difference is
    Σ (1 − P) κ′(1), so no third sum is kept.
    """

    def __init__(self, heads: int) -> None:
        self.scale = math.nan
        self.sums: dict[str, FloatArray] = defaultdict(lambda: np.zeros(heads))
        self.largest_logit = np.full(heads, -np.inf)
        self.key_counts = np.zeros((heads, 2), np.int64)
        """Number of rows that see n keys, by head and n, (heads, largest n + 1)."""

    @np.errstate(invalid="ignore", over="ignore")  # of a model that computes infinity
    def add(self, measured: Measured) -> None:
        """Add the rows of a call; its scale replaces that of the call before."""
        rows = Rows(*np.array(measured.rows, np.float64))
        counted = rows.keys >= 2.0
        with_target = counted & ~np.isnan(rows.target_weight)
        ratio = np.sqrt(rows.variance) / freezing.critical_alpha(rows.keys.clip(min=2.0))
        columns: dict[str, Any] = {
            **rows._asdict(),
            "rows": 1.0,
            "complement": np.exp(rows.log_complement),
            "alpha_to_critical": ratio,
            "wide": ratio >= 1.0,
            "value_variance": measured.value_variance[..., None],
        }
        of_target = {name: columns.pop(name) for name in rows._fields if "target" in name}
        self._add_columns(columns, counted)
        if with_target.any():
            # the target's log-odds; a weight of single precision would vanish below e⁻¹⁰³
            log_others = np.log((rows.keys - 1.0).clip(min=1.0))
            log_odds = rows.target_gap - rows.target_kappa - log_others
            of_target["targets"] = 1.0
            of_target["target_lost_gap"] = expit(-log_odds) * rows.target_gap
            of_target["target_excess"] = rows.entropy - np.logaddexp(0.0, -log_odds)
            self._add_columns(of_target, with_target)
        logits = np.where(counted, rows.largest_logit, -np.inf)
        self.largest_logit = np.maximum(self.largest_logit, logits.max(axis=(0, 2)))
        keys_by_head = np.where(counted, rows.keys, 0.0).astype(np.int64).swapaxes(0, 1)
        size = max(int(keys_by_head.max()) + 1, self.key_counts.shape[1])
        counts = np.array([np.bincount(head.ravel(), minlength=size) for head in keys_by_head])
        counts[:, : self.key_counts.shape[1]] += self.key_counts
        self.key_counts, self.scale = counts, measured.scale

    def _add_columns(self, columns: dict[str, Any], counted: Any) -> None:
        """Add the totals of columns over the rows `counted`, (sequences, heads, queries)."""
        values = np.empty((len(columns), *counted.shape))
        for i, column in enumerate(columns.values()):
            values[i] = column
        totals = np.where(counted, values, 0.0).sum(axis=(1, 3))
        for name, total in zip(columns, totals, strict=True):
            self.sums[name] += total

    def counts(self, head: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Return the numbers of keys that rows of a head see, and the number of rows for each."""
        counts = self.key_counts[head]
        n = np.flatnonzero(counts[2:]) + 2
        return tuple(n.astype(float).tolist()), tuple(counts[n].tolist())

    @np.errstate(invalid="ignore", divide="ignore")
    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of the table that need no theory, each (heads,)."""
        sums, means = self.sums, {}
        rows, targets = sums["rows"], sums["targets"]
        for name in (*Rows._fields, *ROW_MEANS, "complement", "value_variance"):
            means[name] = sums[name] / (targets if name.startswith("target") else rows)
        alpha, missing_gap = np.sqrt(means["variance"]), sums["target_lost_gap"]
        noise, missing_weight = missing_gap - sums["target_excess"], targets - sums["target_weight"]
        return {
            "rows": rows.astype(int),
            "score_std": np.sqrt(means["score_variance"]),
            "alpha": alpha,
            "effective_keys": 1.0 / means["collision_probability"],
            "gradient": alpha * means["complement"],
            "gradient_mean_log": means["log_complement"] + np.log(alpha),
            "largest_logit": np.where(rows, self.largest_logit, math.nan),
            "value_std": np.sqrt(means["value_variance"]),
            "output_std": np.sqrt(means["output_square"]),
            "targets": targets.astype(int),
            "target_slope": np.where(missing_weight, noise / missing_weight, math.nan),
            "target_ratio": np.where(noise, missing_gap / noise, math.nan),
            **{name: means[name] for name in ROW_MEANS},
        }
