"""Simulate typical rows: the geometric mean of the gradient, and the best α of single rows.

At large α rare rows, whose two largest scores nearly tie, dominate the mean of g = α(1 − Σp²). The
gradient of a typical row decreases from some α on. `best_alpha` gives that α for all rows together,
by their geometric mean, and `row_optima` for each row. Neither is *the* scale: the scores are
random.

Arguments that the functions share:

- `law`: the distribution of the scores, a `Law`;
- `n`: the number of keys, an integer from 2 on;
- `rows`, `seed`: the number of random rows, and the seed.

They and their errors are those of `attnlib.sampling.sample`. Estimates have standard errors.

Chapter: mean_gradient.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from attnlib import _checking, sampling
from attnlib._checking import FloatArray
from attnlib.sampling import Estimate, make_estimate
from attnlib.scores import Law

PEAK = 0.44
"""Two keys at a gap δ have at best the gradient (x/cosh² x)/δ = 0.4477…/δ, at α = 2x/δ where
x tanh x = ½; with more keys behind the two it is larger."""

NEAR = 0.005
"""Distance in log α of the difference quotient of a slope."""


def gradient(law: Law, alpha: ArrayLike, n: int, *, rows: int = 10_000, seed: int = 0) -> Estimate:
    """Return the geometric mean exp(E log g) of the gradient g over random rows, for each α.

    - `law`, `n`, `seed`: as the module says; the seed is 0 by default.
    - `alpha`: α ≥ 0, a number or an array that is not empty.
    - `rows`: 2 or more, by default 10 000.

    Returns an `Estimate` of the shape of α. The standard error is that of E log g, times the value.
    All α use the same rows, so differences between them are less noisy than the standard errors
    say. Each α takes a few nanoseconds a score. Results below the smallest float are 0. The mean of
    g is in `exact.gradient`; for medians, pass `rows.gradient` to `sampling.sample`.

    Raises ValueError or TypeError for other arguments. Chapter: mean_gradient.

    >>> from attnlib.scores import Normal
    >>> value, error = gradient(Normal(), [1.0, 4.0], n=512, rows=2000)
    >>> [round(float(g), 1) for g in value], bool((error < 0.04).all())
    ([1.0, 2.5], True)
    """
    scale = _checking.alpha(alpha)
    if scale.size == 0:
        raise ValueError("alpha must hold at least one number, got an empty array")
    keys = _checking.integer("n", n, minimum=2)
    measure = partial(_log_gradients, alpha=scale)
    log_mean, error = sampling.sample(law, keys, measure, rows=rows, seed=seed).mean()
    value = np.exp(log_mean)
    return Estimate(value, value * error)


def best_alpha(
    law: Law,
    n: int,
    *,
    rows: int | None = None,
    seed: int = 0,
    report: Callable[[float], None] | None = None,
) -> Estimate:
    """Return the α that maximises the geometric mean exp(E log g) of the gradient g of random rows.

    - `law`, `n`, `seed`: as the module says; the seed is 0 by default.
    - `rows`: 100 or more. By default it is as large as some seconds allow: about 10⁸ scores, but at
      least 4000 rows, and at most 10⁵.
    - `report`: a function that is called with each α before a pass over the rows.

    Returns an `Estimate` of one number. The secant method finds the root of the mean of ∂log g/∂log
    α, over the same rows at every step. The standard error is that of this mean, divided by its
    slope; for `Normal` it is about 0.75/√rows of the value.

    Raises ValueError or TypeError for other arguments and for a law whose two largest scores mostly
    tie, and RuntimeError where these rows show no maximum. Chapter: mean_gradient.

    >>> from attnlib.scores import Normal
    >>> value, error = best_alpha(Normal(), 512, rows=4000)  # in units of √(2 log n), near 1
    >>> round(float(value / np.sqrt(2.0 * np.log(512))), 1), bool(error < 0.1)
    (1.0, True)
    """
    from scipy.optimize import root_scalar  # takes as long to load as all of attnlib

    keys = _checking.integer("n", n, minimum=2)
    count = min(100_000, max(4000, 2**27 // keys))  # rows of 10⁸ scores
    if rows is not None:
        count = _checking.integer("rows", rows, minimum=100)
    pilot = min(count, max(100, 2**20 // keys))  # rows that locate the maximum
    start = _bracket(law, keys, rows=pilot, seed=seed)

    def slope(log_alpha: float) -> Estimate:
        alpha = float(np.exp(log_alpha))
        if report is not None:
            report(alpha)
        statistic = partial(_slopes, alpha=alpha)
        return sampling.sample(law, keys, statistic, rows=count, seed=seed).mean()

    search = root_scalar(lambda x: float(slope(x).value), x0=start, x1=start + NEAR, xtol=1e-4)
    if not search.converged or abs(search.root - start) > 1.0:
        raise RuntimeError(
            f"no maximum of the geometric mean near alpha={np.exp(start):g}; more rows may show one"
        )
    value, (beyond, noise) = np.exp(search.root), slope(search.root + NEAR)
    return make_estimate(value, value * noise / np.abs(beyond / NEAR))


def row_optima(law: Law, n: int, *, rows: int, seed: int = 0) -> FloatArray:
    """Return the α that maximises the gradient g of each random row, an array (rows,).

    - `law`, `n`, `rows`, `seed`: as the module says; 2 rows or more, and the seed is 0 by default.

    With δ the gap of its two largest scores, a row's optimum lies between 0.44/δ and c/δ where 2c(n
    − 1)e^{−c} = 0.44: g reaches 0.44/δ with the two largest keys alone, more keys raise it, and it
    is below α and below 2α(n − 1)e^{−αδ}. Between those ends log g is tabulated at steps of 15 %,
    and every maximum of the table is refined by SciPy's bracketing search; the highest is taken.
    The relative error is below 1e-6. A row whose largest scores tie has no optimum: it gets a
    number above 10⁵⁹. Chapter: mean_gradient.

    >>> from attnlib.scores import Normal
    >>> row_optima(Normal(), 512, rows=3).shape
    (3,)
    """
    keys = _checking.integer("n", n, minimum=2)
    return sampling.sample(law, keys, _row_optima, rows=rows, seed=seed).values


# --- statistics of rows, as sampling wants them ---------------------------------------------------


class _TopTwo(NamedTuple):
    """Hold the score differences of rows to their two largest scores s₁ ≥ s₂.

    With f_i = e^{α(s_i − s₂)} over all keys but the largest, F = Σf and ε = e^{−α(s₁ − s₂)},
    1 − Σp² = ε[2F + ε(F² − Σf²)]/(1 + εF)²: log g has an absolute error below
    1e-14·(30 + α(s₁ − s₂)), also where g is below the smallest float.
    """

    gap: FloatArray  # (m,): s₁ − s₂
    others: FloatArray  # (m, n − 1): s_i − s₂ ≤ 0, without s₁

    @classmethod
    def from_scores(cls, s: FloatArray) -> "_TopTwo":
        """Return the differences for rows of scores of shape (m, n)."""
        ordered = np.partition(s, -2)
        largest, second = ordered[:, -1], ordered[:, -2]
        return cls(largest - second, ordered[:, :-1] - second[:, None])

    def log_gradient(self, alpha: ArrayLike) -> FloatArray:
        """Return log g of each row, shape (m,), for α ≥ 0, one number or an array (m,)."""
        scale = np.broadcast_to(alpha, self.gap.shape)
        with np.errstate(over="ignore", divide="ignore"):
            weights = np.exp(scale[:, None] * self.others)
            total, squares = weights.sum(axis=1), _dot(weights, weights)
            scaled = scale * self.gap
            second = np.exp(-scaled)
            pairs = 2.0 * total + second * (total**2 - squares)
            logs = np.log(scale) - scaled + np.log(pairs) - 2.0 * np.log1p(second * total)
        return cast(FloatArray, logs)

    def slope(self, alpha: float) -> FloatArray:
        """Return the derivative ∂log g/∂log α of each row, shape (m,), at α > 0."""
        weights = np.exp(alpha * self.others)
        weighted = weights * self.others
        # F and F² − Σf², each with its derivative
        total, total_1 = weights.sum(axis=1), weighted.sum(axis=1)
        cross = total**2 - _dot(weights, weights)
        cross_1 = 2.0 * (total * total_1 - _dot(weights, weighted))
        second = np.exp(-alpha * self.gap)
        pairs = 2.0 * total + second * cross
        pairs_1 = 2.0 * total_1 + second * (cross_1 - self.gap * cross)
        sum_1 = second * (total_1 - self.gap * total)
        logs_1 = pairs_1 / pairs - 2.0 * sum_1 / (1.0 + second * total)
        return cast(FloatArray, 1.0 + alpha * (logs_1 - self.gap))


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the row-wise dot products Σ_j a_ij b_ij, without an array of the products."""
    return cast(FloatArray, np.einsum("ij,ij->i", a, b))


def _log_gradients(s: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return log g for each of m rows and each α, shape (m, *alpha.shape)."""
    row = _TopTwo.from_scores(s)
    logs = np.stack([row.log_gradient(a) for a in alpha.flat], axis=-1)
    # In place of log 0, so that a mean over rows is finite; e to such a mean is 0.
    return np.maximum(logs, -1e60).reshape(len(s), *alpha.shape)


def _slopes(s: FloatArray, alpha: float) -> FloatArray:
    return _TopTwo.from_scores(s).slope(alpha)


def _row_optima(s: FloatArray) -> FloatArray:
    """Return the α that maximises the gradient g of each row of scores (m, n), shape (m,)."""
    from scipy.optimize import elementwise  # takes as long to load as all of attnlib

    row = _TopTwo.from_scores(s)
    gap = np.maximum(row.gap, 1e-60)
    units = _search_units(s.shape[-1])  # of α·gap
    height = np.stack([row.log_gradient(unit / gap) for unit in units], axis=-1)
    inner = height[:, 1:-1]
    peak, place = np.nonzero((inner >= height[:, :-2]) & (inner >= height[:, 2:]))

    def loss(log_unit: FloatArray, which: FloatArray) -> FloatArray:
        index = peak[which.astype(np.intp)]
        part = _TopTwo(row.gap[index], row.others[index])
        return -part.log_gradient(np.exp(log_unit) / gap[index])

    logs = np.log(units)
    search = elementwise.find_minimum(
        loss,
        (logs[place], logs[place + 1], logs[place + 2]),
        args=(np.arange(peak.size, dtype=np.float64),),
        tolerances={"xatol": 1e-8, "xrtol": 0.0, "fatol": 0.0, "frtol": 0.0},
        maxiter=200,
    )
    if not search.success.all():
        raise RuntimeError(f"the search for a row's best α failed, status {search.status}")
    # The lowest loss of each row comes last, and so stays. Only a tied row has no peak at all.
    order = np.argsort(-search.f_x, kind="stable")
    best = np.full(len(s), units[-1])
    best[peak[order]] = np.exp(search.x[order])
    return best / gap


def _search_units(n: int) -> FloatArray:
    """Return α·gap at which to search: a geometric table from PEAK to c, 2c(n − 1)e^{−c} = PEAK."""
    end = 2.0
    for _ in range(100):  # a contraction: the derivative is 1/c
        end = np.log(2.0 * (n - 1) / PEAK) + np.log(end)
    # Terms e^{−α·gap} change little over a step of 15 %, whatever the gap.
    count = 1 + int(np.ceil(np.log(end / PEAK) / np.log(1.15)))
    return np.geomspace(PEAK, end, count)


# --- maxima over rows ----------------------------------------------------------------------------


def _bracket(law: Law, n: int, **options: Any) -> float:
    """Return log α of the table's maximum of the geometric mean: the start of the secant method."""
    gaps = sampling.sample(law, n, lambda s: _TopTwo.from_scores(s).gap, **options)
    gap = float(gaps.quantile(0.5).value)
    if gap == 0.0:
        raise ValueError(f"law must have rows whose largest scores differ, got law={law!r:.80}")
    table = np.geomspace(0.05, 20.0, 24) / gap
    logs = sampling.sample(law, n, partial(_log_gradients, alpha=table), **options).mean().value
    return float(np.log(table[np.argmax(logs)]))
