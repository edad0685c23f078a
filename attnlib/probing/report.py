"""What a probe has measured, as a table, a figure, JSON and text, beside random scores."""

import copy
import json
import math
import warnings
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from attnlib import checking, files
from attnlib.checking import FloatArray
from attnlib.extras import brought_by
from attnlib.probing import figures, summary
from attnlib.probing.measure import Measured, TargetRows
from attnlib.probing.one_head import OneHead
from attnlib.probing.random_scores import RANDOM, RandomScores
from attnlib.probing.tally import FIELDS, SUMMED, Tally

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
    "gradient_median": "median of g, over the rows that are kept",
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

TARGET_DEFINITIONS = {
    "targets": "rows whose target is known and not hidden from them",
    "target_gap": "g, the target's logit less the mean of the other logits of its row: mean over "
    "those rows",
    "target_weight": "weight of the target, 1/(1 + (n − 1) e^(κ − g)): mean over those rows",
    "target_kappa": "κ, the log of the mean of e^ℓ over the other logits ℓ of a row, less their "
    "mean: mean over those rows. The target has half of the weight where g = log(n − 1) + κ",
}
"""The columns that it has beside them where targets are given."""

FORMAT = "attnlib probe 1"
ARRAYS = ("sums", "largest_logit", "lengths", "values", "place")
"""What a file says it is, and what it holds of each module."""

UNREADABLE = (BadZipFile, zlib.error, EOFError, LookupError, RuntimeError, TypeError, ValueError)
"""What reading a damaged file can raise."""

KEPT = 2**22
"""So many rows are kept, of all heads together, at 56 bytes; of more a random sample."""


class Report:
    """What `probe` has measured: a table, a figure, JSON, a file, and a summary when printed."""

    def __init__(self, *, theory: bool = True, targets: bool = False) -> None:
        self._theory = theory
        self._targets = targets
        self._tallies: dict[tuple[str, int, int, int], Tally] = {}
        self._written: list[dict[str, Any]] = []
        self._not_finite: dict[str, None] = {}
        self._share = 1.0  # of the rows, that are kept
        self._rng = np.random.default_rng(0)
        self._kept = 0  # how many rows that is, of all heads

    @property
    def definitions(self) -> dict[str, str]:
        """What each column of the table is, and what random scores are."""
        return {**self._columns, "random": RANDOM}

    @property
    def _columns(self) -> dict[str, str]:
        return {**DEFINITIONS, **TARGET_DEFINITIONS} if self._targets else DEFINITIONS

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return not self._tallies

    @property
    def not_finite(self) -> list[str]:
        """The layers whose numbers are NaN or infinite, in the order of the calls."""
        return list(self._not_finite)

    @property
    def padding(self) -> int:
        """How many rows, of all heads, are left out because their query is padding."""
        return sum(tally.padding for tally in self._tallies.values())

    @property
    def share_kept(self) -> float:
        """Which share of the rows `rows` has: 1, or a power of a half where there were many."""
        return self._share

    def add(self, layer: str, call: int, measured: Measured) -> None:
        """Add a call of attention, number `call` of that layer in a run of the model."""
        heads = measured.value_variance.shape[-1]
        tally = self._tallies.setdefault(
            (layer, call, heads, measured.dimension), Tally.empty(heads)
        )
        tally.add(measured)
        if self._share < 1.0:
            tally.thin(self._share, self._rng, slice(-1, None))
        self._kept += heads * tally.parts[-1][1].shape[1]
        self._fit()
        self._written = []
        counted = measured.rows.keys >= 2.0
        if not all(np.isfinite(field).all(where=counted) for field in measured.rows):
            self._not_finite[layer] = None

    def _fit(self) -> None:
        """Keep half of the rows until they are few enough."""
        while self._kept > KEPT:
            self._share /= 2.0
            for tally in self._tallies.values():
                tally.thin(0.5, self._rng)
            self._kept = sum(map(len, self._tallies.values()))

    def merge(self, other: "Report") -> None:
        """Add all that another report has measured, as if it had been measured here.

        Its sequences get numbers after those here. Sums stay exact; where either report has a
        sample of its rows, so has the sum, of the smaller share. TypeError if `other` is no
        report, ValueError if one of both has targets and the other has none.
        """
        checking.instance("other", other, Report)
        if other._targets != self._targets:
            raise ValueError("other must have targets as this report has, or neither must")
        other = copy.deepcopy(other)
        share = min(self._share, other._share)
        for report in (self, other):
            for tally in report._tallies.values():
                if share < report._share:
                    tally.thin(share / report._share, self._rng)
        self._share = share
        for key, tally in other._tallies.items():
            self._tallies.setdefault(key, Tally.empty(key[2])).merge(tally)
        self._not_finite |= other._not_finite
        self._theory |= other._theory
        self._kept = sum(map(len, self._tallies.values()))
        self._fit()
        self._written = []

    def save(self, path: str | Path) -> None:
        """Write all that was measured to a file of NumPy's format npz, whole or not at all.

        Raises OSError where the file cannot be written.
        """
        head = {
            "report": FORMAT,
            "theory": self._theory,
            "targets": self._targets,
            "share": self._share,
            "not_finite": self.not_finite,
            "places": [
                [*key, tally.scale, tally.sequences, tally.before, tally.padding]
                for key, tally in self._tallies.items()
            ],
        }
        arrays: dict[str, NDArray[Any]] = {"head": np.array(json.dumps(head))}
        for i, tally in enumerate(self._tallies.values()):
            parts: Any = (tally.sums, tally.largest_logit, tally.lengths, *tally.kept())
            for name, part in zip(ARRAYS, parts, strict=True):
                arrays[f"{i}.{name}"] = part
        content = BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        files.replace(path, content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Return the report that `save` has written; it can be added to and merged.

        Raises OSError where the file cannot be read, and ValueError, in one line, where it is not
        such a report or damaged.
        """
        content = Path(path).read_bytes()
        try:
            with np.load(BytesIO(content)) as arrays:
                head = json.loads(str(arrays["head"]))
                if head["report"] != FORMAT:
                    raise ValueError(f"its format is {head['report']!r:.20}, not {FORMAT}")
                report = cls(theory=head["theory"], targets=head["targets"])
                report._share = head["share"]
                report._not_finite = dict.fromkeys(head["not_finite"])
                for i, (layer, call, heads, dimension, scale, *counts) in enumerate(head["places"]):
                    sums, largest, lengths, values, place = (
                        arrays[f"{i}.{name}"] for name in ARRAYS
                    )
                    if sums.shape[0] != len(SUMMED) or values.shape[0] != len(FIELDS):
                        raise ValueError("its arrays are of other shapes")
                    tally = Tally(scale, sums, largest, lengths, *counts)
                    tally.parts = [(values, place)]
                    report._tallies[layer, call, heads, dimension] = tally
                    report._kept += len(tally)
        except UNREADABLE as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path} is not a report that can be read: {reason:.100}") from None
        return report

    def table(self) -> Any:
        """Return a pandas DataFrame, one row for each layer and head, in the order of the calls.

        Its columns are those of `definitions`. NaN stands for a mean over no rows, and for random
        scores at an α above 10⁴.
        """
        with brought_by("table"):
            import pandas as pd

        return pd.DataFrame(self._lines(), columns=list(self._columns))

    @np.errstate(invalid="ignore")  # of a model that computes infinity
    def rows(self) -> Any:
        """Return a pandas DataFrame, one row for each row of attention that sees two keys or more.

        Columns: layer, call, head, sequence, query (its position in the sequence, from 0, those of
        a cache and padding before it included), keys (n), alpha (standard deviation of its own
        logits), collision_probability, entropy, gradient (with the head's α), largest_logit,
        log_sum_exp, largest_weight, first_weight; with targets target_gap, target_weight and
        target_kappa, NaN where there is none. The steps of a generation are of one sequence, if
        the model is called with `past_key_values`.

        All rows are here up to 2²², of all heads together. Of more each has been kept with the
        probability `share_kept`, independently, a UserWarning says so, and the table, of which
        only the median is of the rows kept, knows more. With k rows of a head, the rank of their
        median is off by 1/(2√k) on average.
        """
        with brought_by("table"):
            import pandas as pd

        if self._share < 1.0:
            warnings.warn(
                f"rows has a random sample, {self._share:g} of all rows; the table has all",
                stacklevel=3,
            )
        parts = []
        for head in self._heads():
            numbers = head.kept
            columns = {
                "layer": head.layer,
                "call": head.call,
                "head": head.head,
                "sequence": head.place[0],
                "query": head.place[1],
                "keys": numbers["keys"].astype(np.int64),
                "alpha": np.sqrt(numbers["variance"]),
                "collision_probability": numbers["collision_probability"],
                "entropy": numbers["entropy"],
                "gradient": head.alpha * np.exp(numbers["log_complement"]),
            }
            names = ["largest_logit", "log_sum_exp", "largest_weight", "first_weight"]
            if self._targets:
                names += TargetRows._fields
            parts.append(pd.DataFrame(columns | {name: numbers[name] for name in names}))
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

    def plot(self, kind: str = "spread") -> "Figure":
        """Return a figure of all heads beside random scores.

        "spread": the effective number of keys against α in units of the critical one. A head on the
        curve does what random scores of its spread would do; the thin line shows how far from that
        it is. Rows of random scores freeze at the dotted line.

        "heads": a picture, layers down and heads across. The colour is 1/Y over that of random
        scores of the head's spread, without theory over the number of keys; marks are sinks and
        wide heads, as in `unusual`. ValueError for another kind.
        """
        if checking.choice("kind", kind, ("spread", "heads")) == "heads":
            return figures.heads(self._lines())
        theories = _by_theory(self._heads()).items()
        alike = [(random, [head.alpha for head in heads]) for random, heads in theories]
        return figures.spread(self._lines(), alike)

    def head(self, layer: str | int, head: int, call: int = 0) -> OneHead:
        """Return one head: print it, or draw it with its `plot`.

        `layer` is its name, or its number in the order of the calls. ValueError for a head that was
        not measured.
        """
        lines = self._lines()
        names = list(dict.fromkeys(line["layer"] for line in lines))
        if not isinstance(layer, str):
            layer = names[checking.integer("layer", layer, minimum=0, maximum=len(names) - 1)]
        for line, one in zip(lines, self._heads(), strict=True):
            if (line["layer"], line["call"], line["head"]) == (layer, call, head):
                kept = one.kept
                rows = {
                    "keys": kept["keys"],
                    "query": one.place[1],
                    "alpha": np.sqrt(kept["variance"]),
                    "entropy": kept["entropy"],
                }
                return OneHead(line, rows)
        raise ValueError(
            f"layer, head and call must be those of a head that was measured, such as {names[0]!r} "
            f"0 0, got layer={layer!r:.80}, head={head!r:.80}, call={call!r:.80}"
        )

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
            _Head(*key[:2], head, *key[2:], tally)
            for key, tally in self._tallies.items()
            for head in range(key[2])
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
                    line = _line(head, random.critical_alpha, limit, expected)
                    lines[id(head)] = {name: line[name] for name in self._columns}
            self._written = [lines[id(head)] for head in heads]
        return self._written


def _without_theory(alphas: FloatArray) -> dict[str, FloatArray]:
    return {name: np.full(alphas.shape, math.nan) for name in DEFINITIONS if "random_" in name}


@dataclass(frozen=True, eq=False)
class _Head:
    """A head of a place."""

    layer: str
    call: int
    head: int
    heads: int
    dimension: int
    tally: Tally

    def mean(self, name: str) -> float:
        """Return the mean over the rows, or over those with a target."""
        number = self.total("targets" if name.startswith("target") else "rows")
        return self.total(name) / number if number else math.nan

    def total(self, name: str) -> float:
        """Return the sum over the rows."""
        return float(self.tally.sums[SUMMED.index(name), self.head])

    @property
    def alpha(self) -> float:
        """The root of the mean variance of the logits."""
        return math.sqrt(self.mean("variance"))

    @property
    def random(self) -> RandomScores:
        """The theory of its rows."""
        counts = self.tally.lengths[self.head if len(self.tally.lengths) > 1 else 0]
        n = np.flatnonzero(counts[2:]) + 2
        return RandomScores(
            self.dimension, tuple(n.astype(float).tolist()), tuple(counts[n].tolist())
        )

    @property
    def _seen(self) -> NDArray[np.bool_]:
        keys: NDArray[np.float32] = self.tally.kept()[0][0, self.head]
        return keys >= 2.0

    @property
    def kept(self) -> dict[str, FloatArray]:
        """Its rows that are kept, by field."""
        values = self.tally.kept()[0][:, self.head, self._seen].astype(np.float64)
        return dict(zip(FIELDS, values, strict=True))

    @property
    def place(self) -> NDArray[np.int64]:
        """Their sequences and positions."""
        return self.tally.kept()[1][:, self._seen]


@np.errstate(invalid="ignore")
def _line(
    head: _Head, critical_alpha: float, limit: float, expected: dict[str, float]
) -> dict[str, Any]:
    """Return a line of the table; `limit` is that of the gradient of random scores."""
    alpha, rows = head.alpha, int(head.total("rows"))
    collision_probability, value_std = (
        head.mean("collision_probability"),
        math.sqrt(head.mean("value_variance")),
    )
    complement = np.exp(head.kept["log_complement"])
    gradient = alpha * head.mean("complement")
    return {
        "layer": head.layer,
        "call": head.call,
        "head": head.head,
        "rows": rows,
        "dimension": head.dimension,
        "scale": head.tally.scale,
        "score_std": math.sqrt(head.mean("score_variance")),
        "alpha": alpha,
        "critical_alpha": critical_alpha,
        "effective_keys": 1.0 / collision_probability,
        "gradient": gradient,
        "gradient_median": alpha * float(np.median(complement)) if complement.size else math.nan,
        "gradient_mean_log": head.mean("log_complement")
        + (math.log(alpha) if alpha else -math.inf),
        "gradient_share": gradient / limit,
        "largest_logit": float(head.tally.largest_logit[head.head]) if rows else math.nan,
        "value_std": value_std,
        "output_std": math.sqrt(head.mean("output_square")),
        "targets": int(head.total("targets")),
        **{name: head.mean(name) for name in AS_THEY_ARE},
        **expected,
        "random_output_std": value_std * math.sqrt(expected["random_collision_probability"]),
    }


AS_THEY_ARE = (
    *("keys", "alpha_to_critical", "wide", "collision_probability", "entropy", "log_sum_exp"),
    *("largest_weight", "first_weight", *TargetRows._fields),
)
"""The columns that are means over the rows."""


def _by_theory(heads: list[_Head]) -> dict[RandomScores, list[_Head]]:
    """Return the heads by the theory of their rows."""
    theories: dict[RandomScores, list[_Head]] = {}
    for head in heads:
        theories.setdefault(head.random, []).append(head)
    return theories
