"""Compute the weight of a needle: the one key of a row that the query has to find.

One key of a row of n is the needle. The other n − 1 scores have the density f of the law, and the
needle's score s_* has a distribution of its own:

- `Tilted(theta)`: the density f(s)e^{θs}/E e^{θs}. Normal scores have it about θ; for dot products
  this holds given the query, with a key about (θ/√d)q; for cosines it is the distribution of von
  Mises and Fisher.
- `Fixed(gap)`: the score is exactly `gap`.

Arguments that the functions share:

- `law`: the distribution of the other scores, a `Law` with standard deviation σ;
- `needle`: a `Tilted` with θ from 0 to 10⁴/σ, or a `Fixed` with a gap within 10⁴σ, for cosines
  within 1;
- `alpha`: α from 0 to 10⁴/σ;
- `n`: the number of keys, the needle included, whole numbers from 1 to 2⁵³.

They broadcast against each other, the needle by its parameter, and arrays of float64 are returned.
ValueError or TypeError is raised for other arguments, and for a θ at which E e^{θs} is infinite.

Accuracy: relative error below 1e-10 for α up to 100/σ, n up to 10¹², θ up to 30σ⁻¹ and gaps from 0
to 30σ, and below 1e-8 for a law of your own. For dot products, results below 1e-6 have absolute
errors up to 1e-16 instead.

Mathematics: P = e^{αs_*}/Z is the weight that the softmax gives the needle. With independent Gumbel
variables X, φ(u) = E exp(−e^{αs−u}) and A_k(u) = E[e^{k(αs−u)} exp(−e^{αs−u})] as in `exact`, and
φ_*, A_k^* the same for the needle,

    E P^k = 1/Γ(k) ∫ A_k^* φ^{n−1} du,
    E Σp² = ∫ (A_2^* φ^{n−1} + (n−1) A_2 φ_* φ^{n−2}) du,    E[−log P] = ∫ φ_* (1 − φ^{n−1}) du,

the last as the difference of two means: that of the largest αs + X of all keys, and that of the
needle's. All terms are positive, so tiny results are as accurate as others. A sink, a further key
of logit b, multiplies φ^{n−1} by exp(−e^{b−u}).

Chapter: retrieval.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from attnlib import _checking, _gumbel, exact, scores
from attnlib._checking import FloatArray
from attnlib._gumbel import IntegrandInputs, RowFunctional, gumbel_density
from attnlib._numerics import quadrature
from attnlib._numerics.quadrature import OUTWARD, Nodes, UnderflowError
from attnlib._roots import root
from attnlib.policies import Policy, find_policy
from attnlib.scores import Law

RAREST = 700.0
"""Means below e^{−RAREST} may come out as 0."""

LONGEST_LOG, LONGEST_LOG_OF_RULES = 700.0, 100.0
"""Logarithms of the largest numbers of keys of `reach`: at a fixed α, and by a rule."""

HALF = 0.5 * (1.0 - 1e-13)
"""The weight that a needle keeps, to rounding."""


@dataclass(frozen=True, eq=False)
class Tilted:
    """Describe a needle of score density f(s)e^{θs}/E e^{θs}, f that of the other scores.

    - `theta`: θ ≥ 0, a number or an array; at θ = 0 the needle is like any other key.

    Given a row, the probability that a key is the needle is softmax(θs): its logits are θ times the
    scores. Raises ValueError or TypeError for a θ that is negative, infinite, NaN or not a number.
    Chapter: retrieval.

    >>> Tilted(4)
    Tilted(theta=4.0)
    """

    theta: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "theta", _unwrap_scalar(_checking.finite("theta", self.theta, minimum=0.0))
        )


@dataclass(frozen=True, eq=False)
class Fixed:
    """Describe a needle whose score is exactly `gap`, as the simplest estimates assume.

    - `gap`: the score, a number or an array: the distance to 0, the mean of most laws.

    Raises ValueError or TypeError for a gap that is infinite, NaN or not a number.
    Chapter: retrieval.

    >>> Fixed(6)
    Fixed(gap=6.0)
    """

    gap: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", _unwrap_scalar(_checking.finite("gap", self.gap)))


Needle = Tilted | Fixed


def weight(
    law: Law,
    needle: Needle,
    alpha: ArrayLike,
    n: ArrayLike,
    *,
    sinks: ArrayLike = (),
) -> FloatArray:
    """Return the mean softmax weight of the needle, E P; without sinks 1 at n = 1, 1/n at α = 0.

    - `sinks`: the logits of further keys, in every row the same ones, which α does not multiply and
      n does not count; a number or an array, by default none.

    At α = θ a tilted needle has E P = `collision_probability`. As α → ∞ the weight tends to
    `accuracy`. The other arguments, accuracy and errors are as the module says. Chapter: retrieval.

    >>> float(weight(scores.Normal(), Tilted(4.0), 4.0, 512))
    0.7431...
    """
    return _compute_expectation(law, needle, alpha, n, _add_sinks(_WEIGHT, sinks), 1.0)


def collision_probability(law: Law, needle: Needle, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the mean collision probability E Y = E Σp² of rows with a needle; 1 at n = 1.

    At α = θ a tilted needle has E Y = E P: the weights are calibrated. Arguments, accuracy and
    errors are as the module says. Chapter: retrieval.

    >>> float(collision_probability(scores.Normal(), Tilted(4.0), 4.0, 512))
    0.7431...
    """
    return _compute_expectation(law, needle, alpha, n, _SQUARES, 1.0)


def loss(law: Law, needle: Needle, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return the mean loss E[−log P], P the needle's weight, in nats; 0 at n = 1, log n at α = 0.

    It is convex in α; for a tilted needle its minimum is at α = θ, for every n. Arguments, accuracy
    and errors are as the module says. Chapter: retrieval.

    >>> [round(float(x), 4) for x in loss(scores.Normal(), Tilted(4.0), [3.0, 4.0, 5.0], 512)]
    [0.7695, 0.7047, 0.7356]
    """
    return _compute_expectation(law, needle, alpha, n, _LOSS, 0.0)


def accuracy(law: Law, needle: Needle, n: ArrayLike) -> FloatArray:
    """Return the probability that the needle has the largest score of n, E F(s_*)^{n−1}.

    F is the distribution function of the other scores, s_* the needle's score. It is the limit of
    `weight` as α → ∞. Arguments, relative error, errors: as the module says. Chapter: retrieval.

    >>> float(accuracy(scores.Normal(), Fixed(0.0), 3))
    0.25
    """
    keys, strengths = _checking.broadcast(n=_checking.whole_keys(n), needle=_check(law, needle))

    def compute(strength: float, counts: FloatArray) -> FloatArray:
        return _compute_accuracy(law, type(needle)(strength), counts)

    return quadrature.groupwise(compute, keys, strengths)


def best_alpha(law: Law, needle: Needle, n: ArrayLike) -> FloatArray:
    """Return the α that minimises the mean loss E[−log P], P the softmax weight of the needle.

    - For a tilted needle it is θ, whatever n and the law.
    - For a fixed needle it is the α at which the slope of the loss is 0, to 1e-9. At gaps below
      1e-5σ it is accurate to half the gap over σ, times the law's skewness. It is 0 where n = 1 or
      the gap does not exceed the mean score, and ∞ where no score can exceed the gap.

    Arguments and errors are as the module says; a result above 10⁴/σ raises ValueError.
    Chapter: retrieval.

    >>> best_alpha(scores.Normal(), Tilted([1.0, 4.0]), 512)
    array([1., 4.])
    >>> best_alpha(scores.Normal(), Fixed(4.0), [512, 10**12])  # few keys of 512 come near it
    array([7.9599..., 4.0...])
    """
    keys, strengths = _checking.broadcast(n=_checking.whole_keys(n), needle=_check(law, needle))
    if isinstance(needle, Tilted):
        return strengths.copy()

    def best(strength: float, counts: FloatArray) -> FloatArray:
        return np.array([_root_of_slope(law, Fixed(strength), count) for count in counts])

    return quadrature.groupwise(best, keys, strengths)


def least_alpha(gap: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return α₋ = Δ − √(Δ² − 2 log n), the least α at which a needle outweighs n normal keys.

    - `gap`: Δ > 0, the score of the needle.
    - `n`: the number of standard normal keys beside it, from 1 on.

    They broadcast, and an array of float64 is returned. It is the smaller root of αΔ = log n +
    α²/2, at which e^{αΔ} equals the mean of Σ e^{αs}. It is near log n/Δ for few keys, equals Δ at
    n = e^{Δ²/2}, and is infinite for more. It is exact to rounding. Raises ValueError or TypeError
    for a gap that is not positive, n below 1, and anything infinite, NaN or not a number. Chapter:
    retrieval_range.

    >>> least_alpha(6.0, [1, 512, 10**9])
    array([0.        , 1.1499...,        inf])
    """
    distance, keys = _checking.finite("gap", gap), _checking.keys(n)
    _checking.require("gap", distance, distance > 0.0, "above 0")
    distance, keys = _checking.broadcast(gap=distance, n=keys)
    log_n = np.log(keys)
    with np.errstate(over="ignore"):  # of tiny gaps, which are not enough
        left = 1.0 - 2.0 * (log_n / distance) / distance
        root = distance * np.sqrt(np.maximum(left, 0.0))
        return np.where(left >= 0.0, 2.0 * log_n / (distance + root), np.inf)


def reach(
    law: Law,
    needle: Needle,
    alpha: ArrayLike | None = None,
    *,
    policy: str | Policy | None = None,
    d: int | None = None,
    sinks: ArrayLike = (),
) -> FloatArray:
    """Return the largest n at which the needle keeps half of the softmax weight, E P ≥ ½.

    - `law`, `needle`: as the module says.
    - `alpha`: a fixed α, a number or an array.
    - `policy`, `d`: instead of α a rule in n, a policy or its name, with α = `Policy.alpha(n, d)`/σ
      for the query at the last position. d is by default that of the law, if it has one.
    - `sinks`: as in `weight`.

    Under a policy E P may fall below ½ and rise again: the last n ≤ e¹⁰⁰ with E P ≥ ½ is returned,
    for every rule that is monotone in n, by jumps (llama_4) or smoothly. Of a rule of your own that
    goes up and down again within ¼ in log n, the n before it may be returned. A policy's α counts
    as 10⁴/σ at most. The result is 0 where no n has E P ≥ ½, as with a large sink, and infinite
    where E P ≥ ½ up to e¹⁰⁰, or up to e⁷⁰⁰ at a fixed α.
    α and the needle's parameter broadcast. Errors are as the module says, and a TypeError without
    exactly one of `alpha` and `policy`, for `d` beside `alpha`, and for a policy without any d.
    Chapter: retrieval_range.

    >>> float(reach(scores.Normal(), Fixed(4.0), 4.0))
    5344.0
    >>> float(reach(scores.Normal(), Fixed(4.0), policy="transformer", d=128))
    34.0
    """
    if (alpha is None) == (policy is None):
        raise TypeError("alpha or policy must be given, and not both")
    strengths, quantity = _check(law, needle), _add_sinks(_WEIGHT, sinks)
    if policy is None:
        if d is not None:
            raise TypeError(f"d must be left out where alpha is given, got d={d!r:.80}")
        scale, strengths = _checking.broadcast(
            alpha=exact.checked_scale(law, cast(ArrayLike, alpha)), needle=strengths
        )

        def reached(strength: float, alphas: FloatArray) -> FloatArray:  # E P only falls with n
            single = type(needle)(strength)
            return np.array([_reach(law, quantity, single, float(a)) for a in alphas])

        return quadrature.groupwise(reached, scale, strengths)
    _checking.instance("policy", policy, str | Policy)
    rule = find_policy(policy) if isinstance(policy, str) else policy
    size = _checking.integer("d", getattr(law, "d", None) if d is None else d, minimum=1)
    return quadrature.elementwise(
        lambda strength: _reach_by_rule(law, quantity, type(needle)(strength), rule, size),
        strengths,
    )


# --- needles --------------------------------------------------------------------------------------


def _unwrap_scalar(array: FloatArray) -> FloatArray | float:
    return array if array.ndim else float(array)


def _strength(needle: Needle) -> Any:
    return needle.theta if isinstance(needle, Tilted) else needle.gap


def _divide_scores(needle: Needle, factor: float) -> Needle:
    """Return the needle for scores divided by `factor`: θ times it, or the gap over it."""
    tilted = isinstance(needle, Tilted)
    return Tilted(_strength(needle) * factor) if tilted else Fixed(_strength(needle) / factor)


def _rarity(needle: Needle, law: Law, alpha: float) -> float:
    """Return r where e^{−r} = E e^{a(s − s_*)} bounds the chance that a key beats the needle."""
    strength = _strength(needle)
    if isinstance(needle, Tilted):
        a = min(alpha, strength / 2.0)
        norm, other_key, needle_key = law.log_mgf([strength, a, strength - a])
        return float(np.clip(norm - other_key - needle_key, 0.0, RAREST))
    rarity = 0.0
    for a in alpha * 2.0 ** -np.arange(np.ceil(np.log2(max(alpha * law.spread, 64.0)))):
        with suppress(UnderflowError):  # another a bounds it too
            rarity = max(rarity, float(a * strength - law.log_mgf(a)))
    return min(rarity, RAREST)


# --- arguments ------------------------------------------------------------------------------------


def _check(law: Law, needle: Needle) -> FloatArray:
    """Return the needle's θ or gap as an array; ValueError where the law does not allow it."""
    scores.check_law(law)
    _checking.instance("needle", needle, Needle)
    strengths, spread = np.asarray(_strength(needle)), law.spread
    if isinstance(needle, Tilted):
        name, largest = "theta", exact.LARGEST_SCALE / spread
        independent, *_ = _split_mixture(law, 0.0)
        mean = independent.log_mgf(np.minimum(strengths, largest))
        kind = f"one for which E e^(theta s) is finite for {law!r:.80}"
        _checking.require(name, strengths, np.isfinite(mean), kind)
    else:
        name = "gap"
        largest = 1.0 if law.applied_to == "cosine" else exact.LARGEST_SCALE * spread
    kind = f"at most {largest:g} for {law!r:.80}"
    _checking.require(name, strengths, np.abs(strengths) <= largest, kind)
    return strengths


def _split_mixture(law: Law, log_n: float) -> tuple[Law, list[float], FloatArray]:
    """Return a law of independent scores, and values and weights of the factor they share."""
    law, (factors, shares, _) = law.mixture(log_n) or (law, Nodes(np.ones(1), np.ones(1)))
    return law, list(map(float, factors)), shares


# --- the integrals --------------------------------------------------------------------------------


def _add_sinks(quantity: RowFunctional, sinks: ArrayLike) -> RowFunctional:
    """Return the expectation with a sink of logit log Σ e^b, which stands for sinks of logits b."""
    logits = _checking.finite("sinks", sinks)
    return quantity._replace(sink=float(logsumexp(logits)) if logits.size else -np.inf)


def _weight(row: IntegrandInputs) -> FloatArray:
    return row.needle_inner * np.exp(row.log_power() + row.log_sink)


def _other_key_squared(row: IntegrandInputs) -> FloatArray:
    return row.keys * row.inner * np.exp(row.log_power(1.0) + row.needle_log_cdf)


def _loss(row: IntegrandInputs) -> FloatArray:
    return -np.expm1(row.log_power()) * np.exp(row.needle_log_cdf)


_WEIGHT = RowFunctional(gumbel_density, _weight)
_LOSS = RowFunctional(lambda block: block.gumbel, _loss, rare=True)
_SQUARES = RowFunctional(
    lambda block: block.power * gumbel_density(block),
    lambda row: _weight(row) + _other_key_squared(row),
)


def _compute_expectation(
    law: Law,
    needle: Needle,
    alpha: ArrayLike,
    n: ArrayLike,
    quantity: RowFunctional,
    certain: float,
) -> FloatArray:
    """Return the expectation at each α, n and strength; `certain` where the needle is alone."""
    strengths = _check(law, needle)
    scale, keys, strengths = _checking.broadcast(
        alpha=exact.checked_scale(law, alpha), n=_checking.whole_keys(n), needle=strengths
    )
    result = np.full(scale.shape, certain)
    uncertain = (keys > 1.0) | (quantity.sink > -np.inf)
    which = (keys[uncertain], strengths[uncertain], scale[uncertain])
    result[uncertain] = _expectation_by_row(law, needle, quantity, *which)
    return result


def _expectation_by_row(
    law: Law,
    needle: Needle,
    quantity: RowFunctional,
    n: FloatArray,
    strengths: FloatArray,
    alphas: FloatArray,
) -> FloatArray:
    """Return the expectation of `quantity` for each (n, strength, α), entries of three arrays.

    The arrays have one shape. `needle` gives only its type.
    """

    def at_scale(strength: float, alpha: float, counts: FloatArray) -> FloatArray:
        return _average_over_factor(law, type(needle)(strength), counts, alpha, quantity)

    return quadrature.groupwise(at_scale, n, strengths, alphas)


def _average_over_factor(
    law: Law, needle: Needle, keys: FloatArray, alpha: float, quantity: RowFunctional
) -> FloatArray:
    """Return the expectation at each n, averaged over the scores' common factor if there is one."""
    law, factors, shares = _split_mixture(law, float(np.log(keys.max())))
    parts = [_integrate(law, _divide_scores(needle, r), keys, alpha * r, quantity) for r in factors]
    return np.tensordot(shares, parts, 1)


def _integrate(
    law: Law, needle: Needle, keys: FloatArray, alpha: float, quantity: RowFunctional
) -> FloatArray:
    rarity = _rarity(needle, law, alpha) if quantity.rare else 0.0

    def nodes(scale: float, log_n: float, further: float) -> Nodes:
        if isinstance(needle, Tilted):
            return law.quadrature_nodes(scale, log_n, tilt=_strength(needle), further=further)
        return Nodes(np.array([_strength(needle)]), np.ones(1))

    single = _gumbel.Needle(nodes, rarity)
    return _gumbel.Maximum(law, alpha, keys - 1.0, quantity, single).integral()


# --- the largest score, the best scale, the reach -------------------------------------------------


def _compute_accuracy(law: Law, needle: Needle, n: FloatArray) -> FloatArray:
    """Return the probability that the needle has the largest score, at each n; ties are shared."""
    log_n = float(np.log(n.max()))
    independent, factors, shares = _split_mixture(law, log_n)
    if independent is not law:
        parts = [_compute_accuracy(independent, _divide_scores(needle, r), n) for r in factors]
        return np.tensordot(shares, parts, 1)
    if isinstance(needle, Tilted):
        return _tilted_accuracy(law, _strength(needle), n)
    return np.exp((n - 1.0) * np.log1p(-law.tail(_strength(needle))))


def _tilted_accuracy(law: Law, theta: float, n: FloatArray) -> FloatArray:
    """Return P(a score of density f(s)e^{θs}/E e^{θs} is the largest of n), for each n."""
    depth = quadrature.DEPTH + 2.0 * float(np.log(n.max()))
    panels = law.panels(theta, depth=depth, fractions=quadrature.TOWARDS_AN_END)
    log_below = np.log1p(-quadrature.tail_at_points(panels)).ravel()
    logs = (panels.log_weights + panels.log_density + theta * panels.scores).ravel()
    weights = np.exp(logs - logs.max())
    below = np.exp((n[:, None] - 1.0) * log_below)
    return cast(FloatArray, below @ (weights / weights.sum()))


def _root_of_slope(law: Law, needle: Needle, n: float) -> float:
    """Return the α that minimises the loss with a fixed needle: the root of E Σ p (s − gap) = 0."""
    gap, spread = float(_strength(needle)), law.spread
    if n == 1.0 or gap <= law.mean:
        return 0.0
    if gap - law.mean < 1e-5 * spread:  # so small that the best α is linear in the gap
        return (gap - law.mean) / law.variance * n / (n - 1.0)
    if _split_mixture(law, 0.0)[0] is law:
        if np.isneginf(law.logpdf(gap + spread * OUTWARD)).all():
            return float(np.inf)
        if law.tail(gap) < np.exp(-RAREST):
            raise ValueError(f"gap must be smaller: hardly any score is above it, got gap={gap:g}")

    def slope(log_alpha: float) -> float:
        alpha = float(np.exp(log_alpha))
        level = alpha * gap  # the same for each factor of a mixture
        quantity = RowFunctional(
            lambda block: (block.alpha * block.scores - level) * gumbel_density(block),
            _other_key_squared,
            rare=True,
        )
        return float(_average_over_factor(law, needle, np.array([n]), alpha, quantity)[0])

    most = exact.LARGEST_SCALE / spread
    end = float(np.log(most))
    best = root(slope, -float(np.log(spread)), -np.inf, end, xtol=1e-12)
    if best == end:
        raise ValueError(f"gap must be smaller: its α is above {most:g}, got gap={gap:g}")
    return float(np.exp(best))


def _reach(
    law: Law, quantity: RowFunctional, needle: Needle, alpha: float, start: float = 0.0
) -> float:
    """Return the largest n at which the needle keeps half of the weight, under a fixed α.

    The search begins at log n = `start`.
    """

    def lacking(log_n: float) -> float:
        keys = np.array([np.exp(log_n)])
        return HALF - float(_average_over_factor(law, needle, keys, alpha, quantity)[0])

    if lacking(0.0) > 0.0:
        return 0.0
    log_n = root(lacking, start, 0.0, LONGEST_LOG, xtol=1e-13)
    return float(np.floor(np.exp(log_n) * (1.0 + 1e-11))) if log_n < LONGEST_LOG else float(np.inf)


def _reach_by_rule(
    law: Law, quantity: RowFunctional, needle: Needle, rule: Policy, d: int
) -> float:
    """Return the last n at which the needle keeps half of the weight under a policy's α(n).

    Between neighbours n < m of a list of n no weight exceeds E P at n by more than L|log α(m)/α(n)|
    if the rule is monotone there: E P falls with n at a fixed α. L bounds |∂E P/∂log α|. With P =
    1/(1 + x + z), x = Σ e^{α(s_i − s_*)} and z = e^{b − αs_*} of the sink, x' = x(log x − H) with H
    the entropy of the terms, at most log n, and z' = z(log z − b). So |P'| = P²|x' + z'| is at most
    ¼ max(log n, |b|) + 2 max x|log x|/(1 + x)², and the last is 0.2239.
    """
    spread = law.spread

    def scale_and_weight(keys: FloatArray) -> tuple[FloatArray, FloatArray]:
        scale = np.minimum(rule.alpha(keys, d), exact.LARGEST_SCALE) / spread
        strengths = np.full(keys.size, _strength(needle))
        return scale, _expectation_by_row(law, needle, quantity, keys, strengths, scale)

    grid = np.arange(0.0, LONGEST_LOG_OF_RULES, 0.25)
    # A needle below m others weighs 1/(1 + m) at most, whatever α: with n times the chance of
    # another to be above it, x, in the mean (1 − e^{−x})/x, and so below ½ from x = 2 on.
    possible = _compute_accuracy(law, needle, np.exp(grid)) >= np.exp(-2.0)
    keys = np.unique(np.round(np.exp(grid[: int(np.count_nonzero(possible)) + 1])))
    scales, weights = scale_and_weight(keys)
    steepest = abs(quantity.sink) if quantity.sink > -np.inf else 0.0
    while True:
        last = int(np.flatnonzero(weights >= HALF).max(initial=-1))
        with np.errstate(divide="ignore", invalid="ignore"):  # of α = 0
            growth = np.abs(np.log(scales[1:] / scales[:-1]))
        bound = weights[:-1] + (np.maximum(np.log(keys[:-1]), steepest) / 4.0 + 0.45) * growth
        wide = np.diff(keys) > np.maximum(1.0, 1e-13 * keys[:-1])
        wide[: max(last, 0)] = False
        places = 1 + np.flatnonzero(wide & (bound >= HALF) & (growth > 0.0))
        if not places.size:
            break
        middle = np.floor((keys[places - 1] + keys[places]) / 2.0)
        middle_scales, middle_weights = scale_and_weight(middle)
        keys = np.insert(keys, places, middle)
        scales = np.insert(scales, places, middle_scales)
        weights = np.insert(weights, places, middle_weights)
    if last < 0:
        return 0.0
    if last == keys.size - 1:
        return float(np.inf)
    if scales[last] == scales[last + 1]:
        start = float(np.log(keys[last + 1]))
        return _reach(law, quantity, needle, float(scales[last]), start)
    return float(keys[last])
