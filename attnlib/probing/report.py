"""What a probe has measured, as a table, a figure, JSON and text, beside random scores."""

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlib import checking, exact, freezing
from attnlib.checking import FloatArray
from attnlib.extras import brought_by
from attnlib.probing import summary
from attnlib.probing.measure import Measured, Rows
from attnlib.probing.random_scores import RANDOM, RandomScores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFINITIONS = {
    "layer": "name of the module that attends",
    "call": "0 for its first call in a run of the model, 1 for the second, …",
    "head": "head of the queries, from 0",
    "rows": "rows measured (one for each query), over all calls; those that see fewer than two "
    "keys are left out of everything",
    "keys": "n, the number of keys that a row sees: mean over the rows",
    "dimension": "d, the length of a query",
    "scale": "what multiplies q·k",
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
    "gradient_median": "median of g",
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
    "random_output_std": "value_std · √(E Y) for random scores",
}
"""The columns of `Report.table`."""


class Report:
    """What `probe` has measured: a table, a figure, JSON, and a summary when printed."""

    def __init__(self, *, theory: bool = True) -> None:
        self._theory = theory
        self._measured: dict[tuple[str, int, int, int], list[Measured]] = {}
        self._written: list[dict[str, Any]] = []
        self._not_finite: dict[str, None] = {}

    @property
    def definitions(self) -> dict[str, str]:
        """What each column of the table is, and what random scores are."""
        return {**DEFINITIONS, "random": RANDOM}

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return not self._measured

    @property
    def not_finite(self) -> list[str]:
        """The layers whose numbers are NaN or infinite, in the order of the calls."""
        return list(self._not_finite)

    def add(self, layer: str, call: int, measured: Measured) -> None:
        """Add a call of attention, number `call` of that layer in a run of the model."""
        heads = measured.value_variance.shape[-1]
        key = layer, call, heads, measured.dimension
        self._measured.setdefault(key, []).append(measured)
        self._written = []
        counted = measured.rows.keys >= 2.0
        if not all(np.isfinite(field).all(where=counted) for field in measured.rows):
            self._not_finite[layer] = None

    def table(self) -> Any:
        """Return a pandas DataFrame, one row for each layer and head, in the order of the calls.

        Its columns are those of `DEFINITIONS`. NaN stands for a mean over no rows, and for random
        scores at an α above 10⁴.
        """
        with brought_by("table"):
            import pandas as pd

        return pd.DataFrame(self._lines(), columns=list(DEFINITIONS))

    @np.errstate(invalid="ignore")  # of a model that computes infinity
    def rows(self) -> Any:
        """Return a pandas DataFrame, one row for each row of attention that sees two keys or more.

        Columns: layer, call, head, sequence, query, keys (n), alpha (standard deviation of its own
        logits), collision_probability, entropy, gradient (with the head's α), largest_logit,
        log_sum_exp, largest_weight, first_weight.
        """
        with brought_by("table"):
            import pandas as pd

        parts = [
            pd.DataFrame(
                {
                    "layer": head.layer,
                    "call": head.call,
                    "head": head.head,
                    "sequence": head.sequence,
                    "query": head.query,
                    "keys": head.rows.keys.astype(np.int64),
                    "alpha": np.sqrt(head.rows.variance),
                    "collision_probability": head.rows.collision_probability,
                    "entropy": head.rows.entropy,
                    "gradient": head.alpha * np.exp(head.rows.log_complement),
                    "largest_logit": head.rows.largest_logit,
                    "log_sum_exp": head.rows.log_sum_exp,
                    "largest_weight": head.rows.largest_weight,
                    "first_weight": head.rows.first_weight,
                }
            )
            for head in self._heads()
        ]
        return pd.concat(parts, ignore_index=True)

    def to_json(self) -> str:
        """Return the definitions and the table as JSON; null where a number is not finite."""
        heads = [
            {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in line.items()
            }
            for line in self._lines()
        ]
        content = {"definitions": self.definitions, "heads": heads}
        return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)

    def plot(self) -> "Figure":
        """Return a figure: each head's effective number of keys, beside random scores.

        Across, α in units of the critical one. A head on the curve does what random scores of its
        spread would do; the thin line shows how far from that it is. Rows of random scores freeze
        at the dotted line.
        """
        with brought_by("book"):
            import matplotlib.pyplot as plt
            from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

        table = self.table()
        across = table["alpha"] / table["critical_alpha"]
        layers = table.groupby(["layer", "call"], sort=False).ngroup()
        figure, axes = plt.subplots()
        axes.axvline(1.0, color="0.5", linewidth=0.8, linestyle=":")
        theory, found = table["random_effective_keys"], table["effective_keys"]
        axes.vlines(across, theory, found, color="0.5", linewidth=0.8)
        heads = axes.scatter(across, found, c=layers, cmap="viridis", zorder=2)
        for random, alike in _by_theory(self._heads()).items():
            alphas = [head.alpha for head in alike if 0.0 < head.alpha < exact.LARGEST_SCALE]
            if alphas:
                most = min(1.2 * max(random.critical_alpha, *alphas), exact.LARGEST_SCALE)
                grid = np.geomspace(0.8 * min(alphas), most, 40)
                keys = random.columns(grid)["random_effective_keys"]
                axes.plot(grid / random.critical_alpha, keys, "-", color="0.3")
        axes.set(xscale="log", yscale="log", xlabel="effective α / critical α", ylabel="keys 1/Y")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
        bar = figure.colorbar(heads, label="layer, in the order of the calls")
        bar.locator = MaxNLocator(integer=True)
        bar.update_ticks()
        return figure

    def unusual(self, count: int = 5) -> list[tuple[str, int, int, str]]:
        """Return the `count` heads that stand out most: layer, call, head, and why in words.

        Those whose numbers are not finite; then those far from random scores of their spread in the
        number of keys that share the weight (a factor of 1.5), with a sink (0.3 of the weight on
        the first key), with wide rows (half of them), or with even weights (1/Y above 0.9 n).
        """
        found = summary.unusual(self._lines(), checking.integer("count", count, minimum=1))
        return [(line["layer"], line["call"], line["head"], why) for line, why in found]

    def __repr__(self) -> str:
        return summary.text(self._lines())

    def _heads(self) -> list["_Head"]:
        return [
            _head(layer, call, head, heads, dimension, calls)
            for (layer, call, heads, dimension), calls in self._measured.items()
            for head in range(heads)
        ]

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines of the table; the theory takes a second, so they are kept."""
        if not self._written:
            heads = self._heads()
            lines = {}
            for random, alike in _by_theory(heads).items():
                alphas = np.array([head.alpha for head in alike])
                columns = random.columns(alphas) if self._theory else _without_theory(alphas)
                limit = random.gradient_limit if self._theory else math.nan
                for i, head in enumerate(alike):
                    expected = {name: float(column[i]) for name, column in columns.items()}
                    lines[head.place] = _line(head, random.critical_alpha, limit, expected)
            self._written = [lines[head.place] for head in heads]
        return self._written


def _without_theory(alphas: FloatArray) -> dict[str, FloatArray]:
    return {name: np.full(alphas.shape, math.nan) for name in DEFINITIONS if "random_" in name}


class _Head(NamedTuple):
    """A head, with the rows that see two keys or more: one array for each field of `rows`."""

    layer: str
    call: int
    head: int
    heads: int
    dimension: int
    scale: float
    alpha: float
    value_std: float
    sequence: NDArray[np.int64]
    query: NDArray[np.int64]
    rows: Rows

    @property
    def place(self) -> tuple[str, int, int, int, int]:
        return self.layer, self.call, self.head, self.heads, self.dimension


def _head(
    layer: str, call: int, head: int, heads: int, dimension: int, calls: list[Measured]
) -> _Head:
    fields = [
        np.concatenate([part[:, head].ravel() for part in parts])
        for parts in zip(*(one.rows for one in calls), strict=True)
    ]
    counted = fields[0] >= 2.0
    rows = Rows(*(field[counted].astype(np.float64) for field in fields))
    lengths = [one.rows.keys.shape[-1] for one in calls for _ in one.rows.keys]
    sequence = np.repeat(np.arange(len(lengths)), lengths)[counted]
    query = np.concatenate([np.arange(length) for length in lengths])[counted]
    variances = np.concatenate([one.value_variance[:, head] for one in calls])
    with np.errstate(invalid="ignore"):
        return _Head(
            layer,
            call,
            head,
            heads,
            dimension,
            calls[-1].scale,
            alpha=_root_mean(rows.variance),
            value_std=_root_mean(variances[sequence]),
            sequence=sequence,
            query=query,
            rows=rows,
        )


def _mean(numbers: FloatArray | NDArray[np.bool_]) -> float:
    return float(numbers.mean()) if numbers.size else math.nan


def _root_mean(squares: FloatArray) -> float:
    return math.sqrt(_mean(squares))


@np.errstate(invalid="ignore")
def _line(
    head: _Head, critical_alpha: float, limit: float, expected: dict[str, float]
) -> dict[str, Any]:
    """Return a line of the table; `limit` is that of the gradient of random scores."""
    rows, alpha = head.rows, head.alpha
    relative = np.sqrt(rows.variance) / freezing.critical_alpha(rows.keys)
    complement = np.exp(rows.log_complement)
    collision_probability = _mean(rows.collision_probability)
    line = {
        "layer": head.layer,
        "call": head.call,
        "head": head.head,
        "rows": rows.keys.size,
        "keys": _mean(rows.keys),
        "dimension": head.dimension,
        "scale": head.scale,
        "score_std": _root_mean(rows.score_variance),
        "alpha": alpha,
        "critical_alpha": critical_alpha,
        "alpha_to_critical": _mean(relative),
        "wide": _mean(relative >= 1.0),
        "collision_probability": collision_probability,
        "effective_keys": 1.0 / collision_probability,
        "entropy": _mean(rows.entropy),
        "gradient": alpha * _mean(complement),
        "gradient_median": alpha * float(np.median(complement)) if complement.size else math.nan,
        "gradient_mean_log": _mean(rows.log_complement) + (math.log(alpha) if alpha else -math.inf),
        "gradient_share": alpha * _mean(complement) / limit,
        "largest_logit": float(rows.largest_logit.max()) if rows.keys.size else math.nan,
        "log_sum_exp": _mean(rows.log_sum_exp),
        "largest_weight": _mean(rows.largest_weight),
        "first_weight": _mean(rows.first_weight),
        "value_std": head.value_std,
        "output_std": _root_mean(rows.output_square),
        **expected,
        "random_output_std": head.value_std * math.sqrt(expected["random_collision_probability"]),
    }
    return {name: line[name] for name in DEFINITIONS}


def _by_theory(heads: list[_Head]) -> dict[RandomScores, list[_Head]]:
    """Return the heads by the theory of their rows."""
    theories: dict[RandomScores, list[_Head]] = {}
    for head in heads:
        n, counts = np.unique(head.rows.keys, return_counts=True)
        random = RandomScores(head.dimension, tuple(n.tolist()), tuple(counts.tolist()))
        theories.setdefault(random, []).append(head)
    return theories
