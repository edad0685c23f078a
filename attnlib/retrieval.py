"""Something to find: rows in which one key is meant, the needle, and what its weight is.

One key of a row of n is the needle. The other n − 1 scores have the law's density f, the needle's
score s_* a law of its own:

- `Tilted(theta)`: f(s)e^{θs}/E e^{θs}. Normal scores have it about θ; for dot products it is so
  given the query, which is a key about (θ/√d)q; for cosines it is von Mises and Fisher's law.
- `Fixed(gap)`: the score is exactly that.

P = e^{αs_*}/Z is the weight that the softmax gives the needle. With independent Gumbel variables X,
φ(u) = E exp(−e^{αs−u}) and A_k(u) = E[e^{k(αs−u)} exp(−e^{αs−u})] as in `exact`, and φ_*, A_k^* the
same for the needle,

    E P^k = 1/Γ(k) ∫ A_k^* φ^{n−1} du,          E(1 − P) = (n−1) ∫ A_1 φ_* φ^{n−2} du,
    E Σp² = ∫ (A_2^* φ^{n−1} + (n−1) A_2 φ_* φ^{n−2}) du,    E[−log P] = ∫ φ_* (1 − φ^{n−1}) du,

the last as the difference of two means: of the largest αs + X of all, and of the needle's. All
terms are positive: what is tiny is as accurate as the rest. A sink, a further key of logit b,
multiplies φ^{n−1} by exp(−e^{b−u}); of K needles φ_*^K has the joint weight.

Accuracy: relative error below 1e-10 for α from 0 to 100/σ (σ² the variance of a score), n up to
10¹², θ up to 30σ⁻¹ and gaps from 0 to 30σ, and below 1e-8 for a law of your own. For dot products
what is below 1e-6 is accurate to 1e-16. Every function broadcasts over α, n and the needle's
parameter; n counts the needle. It raises ValueError or TypeError for arguments as `exact` does, a
needle that is none, a θ that is negative, above 10⁴/σ, or beyond which E e^{θs} is infinite, a gap
beyond 10⁴σ, or beyond 1 for cosines. Chapter: needle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logit, logsumexp

from attnlib import checking, exact, quadrature, rows, scores
from attnlib.checking import FloatArray
from attnlib.policies import POLICIES, Policy
from attnlib.quadrature import Averages, Kernel, Rule
from attnlib.sampling import Estimate
from attnlib.scores import Law

COARSE = 64
"""Points at which an integrand is looked at, to see where it is."""

LOWEST_LOG = -1e3
"""Logarithms of φ below it are raised to it: e to it is 0, and so are all powers."""

RAREST = 700.0
"""Means below e^{−RAREST} may come out as 0."""

LONGEST_LOG, LONGEST_LOG_OF_RULES = 700.0, 100.0
"""Logarithms of the largest numbers of keys of `reach`: at a fixed α, and by a rule."""

STEP_OF_RULES, STEP_OF_SCALES = 0.5, 0.25
"""Steps of log n and of log α in looking for where a rule loses the needle."""

LEAST_SCALE = 0.02
"""The least ασ of that table: below it a rule is taken as of this one, and no needle is found."""

MARGIN = 0.05
"""How far the table's log E P/(1 − E P) may be off: nearer to ½, the exact one decides."""

ENOUGH = 1e-8
"""The share of a query's length that a mean over lengths may leave out."""


@dataclass(frozen=True, eq=False)
class Tilted:
    """A needle whose score has the density f(s)e^{θs}/E e^{θs}, θ ≥ 0: at θ = 0 a key as any other.

    Given a row, the probability that a key is the needle is softmax(θs): its logits are θ times the
    scores. Raises ValueError or TypeError for θ negative, infinite, NaN or no number. Chapter:
    needle.

    >>> Tilted(4)
    Tilted(theta=4.0)
    """

    theta: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "theta", _plain(checking.finite("theta", self.theta, minimum=0.0)))


@dataclass(frozen=True, eq=False)
class Fixed:
    """A needle whose score is exactly `gap`: so far above 0. The needle of the simplest estimates.

    Raises ValueError or TypeError for a gap that is infinite, NaN or no number. Chapter: needle.

    >>> Fixed(6)
    Fixed(gap=6.0)
    """

    gap: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", _plain(checking.finite("gap", self.gap)))


Needle = Tilted | Fixed


def weight(
    law: Law,
    needle: Needle,
    alpha: ArrayLike,
    n: ArrayLike,
    *,
    sinks: ArrayLike = (),
    needles: int = 1,
) -> FloatArray:
    """Return E P, the mean weight of the needle; 1 at n = 1 and 1/n at α = 0.

    `sinks` are logits of further keys, which α does not multiply and n does not count; with
    `needles` of the n keys independent needles, P is their joint weight. At α = θ a tilted needle
    has E P = `collision_probability`. As α → ∞ it tends to `accuracy`. Accuracy, range and errors
    as the module says, ValueError for more needles than keys. Chapter: needle.

    >>> float(weight(scores.Normal(), Tilted(4.0), 4.0, 512))
    0.7431...
    """
    return _expectation(law, needle, alpha, n, _beside(_WEIGHT, sinks, needles), 1.0)


def gradient(law: Law, needle: Needle, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return α E(1 − P), the mean of −∂L/∂s_* for the loss L = −log P: how much there is to learn.

    Computed without the subtraction. At α = θ it is α(1 − E Σp²), the mean gradient of such rows.
    Accuracy, range and errors as the module says. Chapter: needle.

    >>> float(gradient(scores.Normal(), Tilted(9.0), 9.0, 512))
    0.0001...
    """
    missed = _expectation(law, needle, alpha, n, _MISSED, 0.0)
    return checking.alpha(alpha) * missed


def moment(law: Law, needle: Needle, alpha: ArrayLike, n: ArrayLike, order: float) -> FloatArray:
    """Return E P^k for a real order k from 1 to 16; n^{−k} at α = 0.

    Accuracy, range and errors as the module says, and ValueError for another order. Chapter:
    needle.

    >>> float(moment(scores.Normal(), Tilted(1.0), 0.0, 10, order=3.0))
    0.001
    """
    k = checking.number("order", order)
    if not 1.0 <= k <= exact.LARGEST_ORDER:
        raise ValueError(f"order must be from 1 to {exact.LARGEST_ORDER:g}, got order={k:g}")
    quantity = _Quantity(
        lambda block: np.exp(k * block.exponent - block.power - gammaln(k)), _weight, order=k
    )
    return _expectation(law, needle, alpha, n, quantity, 1.0)


def collision_probability(law: Law, needle: Needle, alpha: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return E Y = E Σp² of rows with a needle; 1 at n = 1 and 1/n at α = 0.

    At α = θ a tilted needle has E Y = E P: the weights are calibrated. Accuracy, range and errors
    as the module says. Chapter: needle.

    >>> float(collision_probability(scores.Normal(), Tilted(4.0), 4.0, 512))
    0.7431...
    """
    return _expectation(law, needle, alpha, n, _SQUARES, 1.0)


def loss(
    law: Law,
    needle: Needle,
    alpha: ArrayLike,
    n: ArrayLike,
    *,
    sinks: ArrayLike = (),
    needles: int = 1,
) -> FloatArray:
    """Return E[−log P], the mean loss in nats; 0 at n = 1 and log n at α = 0.

    Convex in α; for a tilted needle its minimum is at α = θ, for every n. `sinks` and `needles` as
    in `weight`. Accuracy, range and errors as the module says. Chapter: needle.

    >>> [round(float(x), 4) for x in loss(scores.Normal(), Tilted(4.0), [3.0, 4.0, 5.0], 512)]
    [0.7695, 0.7047, 0.7356]
    """
    return _expectation(law, needle, alpha, n, _beside(_LOSS, sinks, needles), 0.0)


def accuracy(law: Law, needle: Needle, n: ArrayLike) -> FloatArray:
    """Return P(the needle has the largest score) = E F(s_*)^{n−1}, F the distribution function.

    Of keys with the same score each is the largest with the same chance, so that this is the limit
    of `weight` as α → ∞. Accuracy, range and errors as the module says. Chapter: needle.

    >>> float(accuracy(scores.Normal(), Fixed(0.0), 3))
    0.25
    """
    keys, strengths = checking.broadcast(n=checking.whole_keys(n), needle=_checked(law, needle))
    return _by_strength(needle, strengths, keys, partial(_first_of, law))


def information(law: Law, needle: Needle, n: ArrayLike) -> FloatArray:
    """Return log n − min E[−log P] over α, in nats: what a row tells the softmax about the needle.

    For a tilted needle that is all that it tells, the information between the scores and the
    needle's place: at most log n, and at most the divergence θκ'(θ) − κ(θ) with κ = log E e^{θs},
    θ²/2 for normal scores. Error below 1e-10 of log n; arguments and errors as `best_alpha`.
    Chapter: needle.

    >>> float(information(scores.Normal(), Tilted(1.0), 512))  # at most ½
    0.4983...
    """
    keys = checking.whole_keys(n)
    return np.log(keys) - loss(law, needle, best_alpha(law, needle, keys), keys)


def best_alpha(law: Law, needle: Needle, n: ArrayLike) -> FloatArray:
    """Return the α of the least mean loss E[−log P].

    For a tilted needle it is θ, whatever n and the law. For a fixed one it is the root of the
    slope, to 1e-9: 0 if the gap is not above the mean score, or n = 1; ∞ if no score is above it.
    Errors as the module says, and ValueError for an α above 10⁴/σ. Chapter: needle.

    >>> best_alpha(scores.Normal(), Tilted([1.0, 4.0]), 512)
    array([1., 4.])
    >>> best_alpha(scores.Normal(), Fixed(4.0), [512, 10**12])  # few keys of 512 come near it
    array([7.9599..., 4.0...])
    """
    keys, strengths = checking.broadcast(n=checking.whole_keys(n), needle=_checked(law, needle))
    if isinstance(needle, Tilted):
        return strengths.copy()

    def best(one: Needle, n: FloatArray) -> FloatArray:
        return np.array([_root_of_slope(law, one, keys) for keys in n])

    return _by_strength(needle, strengths, keys, best)


def least_alpha(gap: ArrayLike, n: ArrayLike) -> FloatArray:
    """Return α₋ = Δ − √(Δ² − 2 log n), from which on a needle at the gap Δ outweighs n normal keys.

    The smaller root of αΔ = log n + α²/2, where e^{αΔ} is the mean of Σ e^{αs}. Near log n/Δ for
    few keys, Δ where Δ = √(2 log n), and infinite beyond. Exact to rounding. Raises ValueError or
    TypeError for a gap that is not positive, n below 1, and what is infinite, NaN or not a number.
    Chapter: reach.

    >>> least_alpha(6.0, [1, 512, 10**9])
    array([0.        , 1.1499...,        inf])
    """
    distance, keys = checking.finite("gap", gap), checking.keys(n)
    if (distance <= 0.0).any():
        raise ValueError(f"gap must be above 0, got gap={distance[distance <= 0.0][0]:g}")
    distance, keys = checking.broadcast(gap=distance, n=keys)
    log_n = np.log(keys)
    left = 1.0 - 2.0 * (log_n / distance) / distance
    root = distance * np.sqrt(np.maximum(left, 0.0))
    return np.where(left >= 0.0, 2.0 * log_n / (distance + root), np.inf)


def mean_gap(law: Law, needle: Needle) -> FloatArray:
    """Return E s_* − E s, how far above the other keys the needle is: θσ² for small θ.

    θ for normal scores and for dot products. Errors as the module says. Chapter: needle.

    >>> float(mean_gap(scores.Cosine(128), Tilted(80.0)))
    0.4815...
    """
    strengths = _checked(law, needle)
    if isinstance(needle, Fixed):
        return strengths - law.mean
    law, factors, shares = _independent(law, 0.0)

    def of_tilted(one: Needle, _: FloatArray) -> FloatArray:
        rules = [_rule(_given_factor(one, r), law, 0.0, 0.0, 0.0) for r in factors]
        means = [r * (rule.weights @ rule.scores) for r, rule in zip(factors, rules, strict=True)]
        return np.array([shares @ means - law.mean])

    return _by_strength(needle, strengths, np.zeros(strengths.shape), of_tilted)


def reach(
    law: Law,
    needle: Needle,
    alpha: ArrayLike | None = None,
    *,
    policy: str | Policy | Sequence[str | Policy] | None = None,
    d: int | None = None,
    sinks: ArrayLike = (),
    needles: int = 1,
    roughly: bool = False,
) -> FloatArray:
    """Return the largest n at which the needle keeps half of the weight, E P ≥ ½.

    At a fixed α, or by a rule in n: a policy or its name, or several for a last axis, with
    α = `Policy.alpha(n, d)`/σ, the query at the last position, and d that of the law if it has one.
    By a rule the weight may come and go: n is the last up to e¹⁰⁰; `roughly`, the last up to 2⁵³
    within a percent, many times as fast. 0 where the needle has less from the start; infinite where
    it has half to the end, which at a fixed α is e⁷⁰⁰. `sinks` and `needles` as in `weight`.
    Broadcasts over α and the needle's parameter. Errors as the module says, and TypeError without
    exactly one of alpha and policy. Chapter: reach.

    >>> float(reach(scores.Normal(), Fixed(4.0), 4.0))
    5344.0
    >>> float(reach(scores.Normal(), Fixed(4.0), policy="transformer", d=128))
    34.0
    """
    if (alpha is None) == (policy is None):
        raise TypeError("alpha or policy must be given, and not both")
    strengths, quantity = _checked(law, needle), _beside(_WEIGHT, sinks, needles)
    if policy is None:
        if d is not None:
            raise TypeError(f"d must be left out where alpha is given, got d={d!r:.80}")
        scale, strengths = checking.broadcast(
            alpha=_scale(law, cast(ArrayLike, alpha)), needle=strengths
        )

        def at_scales(one: Needle, alphas: FloatArray) -> FloatArray:  # there E P only falls with n
            return np.array([_reach(law, quantity, one, float(a)) for a in alphas])

        return _by_strength(needle, strengths, scale, at_scales)
    several = isinstance(policy, Sequence) and not isinstance(policy, str)
    rules = [_policy(one) for one in (cast(Sequence[Any], policy) if several else [policy])]
    size = checking.integer("d", getattr(law, "d", None) if d is None else d, minimum=1)
    by_rules = np.empty((*strengths.shape, len(rules)))
    for place, strength in np.ndenumerate(strengths):
        one = type(needle)(float(strength))
        by_rules[place] = _reach_by_rules(law, quantity, one, rules, size, roughly)
    return by_rules if several else by_rules[..., 0]


def sample(law: Law, needle: Needle, rng: np.random.Generator, rows: int, n: int) -> FloatArray:
    """Return `rows` independent rows of n scores, shape (rows, n), with the needle at index 0.

    A tilted needle, and a factor that all scores of a row share, are drawn from the points of the
    rules of quadrature, 10⁻² standard deviations apart or nearer: means of what is smooth are those
    of the law. Errors as the module says and as `Law.sample`, and ValueError for a needle of
    several strengths. Chapter: needle.

    >>> row = sample(scores.Normal(), Fixed(4.0), np.random.default_rng(0), rows=1, n=3)
    >>> row
    array([[ 4.        , -0.13210486,  0.64042265]])
    """
    checking.number("needle", _checked(law, needle))
    law, factors, shares = _independent(law, 100.0)
    drawn = law.sample(rng, rows, n)
    which = rng.choice(len(factors), size=rows, p=shares)
    for i in np.unique(which):
        here, one = which == i, _given_factor(needle, factors[i])
        rule = _rule(one, law, 100.0 / float(np.sqrt(law.variance)), float(np.log(n)), 0.0)
        drawn[here, 0] = rng.choice(rule.scores, size=int(here.sum()), p=rule.weights)
    return np.take(factors, which)[:, None] * drawn


# --- needles --------------------------------------------------------------------------------------


def _plain(array: FloatArray) -> FloatArray | float:
    return array if array.ndim else float(array)


def _strength(needle: Needle) -> Any:
    return needle.theta if isinstance(needle, Tilted) else needle.gap


def _given_factor(needle: Needle, factor: float) -> Needle:
    """Return the needle among scores divided by a factor that all of a row have."""
    one = isinstance(needle, Tilted)
    return Tilted(_strength(needle) * factor) if one else Fixed(_strength(needle) / factor)


def _rule(needle: Needle, law: Law, alpha: float, log_n: float, further: float) -> Rule:
    if isinstance(needle, Tilted):
        return law.tilted_rule(_strength(needle), alpha, log_n, further)
    return Rule(np.array([_strength(needle)]), np.ones(1), 1.0)


def _rarity(needle: Needle, law: Law, alpha: float) -> float:
    """Return Chernoff's exponent of a key that comes before the needle: log E e^{a(s − s_*)}."""
    strength = _strength(needle)
    if isinstance(needle, Tilted):
        a = min(alpha, strength / 2.0)
        whole, one, other = law.log_mgf([strength, a, strength - a])
        return float(np.clip(whole - one - other, 0.0, RAREST))
    unit = float(np.sqrt(law.variance))
    several = alpha * 2.0 ** -np.arange(np.ceil(np.log2(max(alpha * unit, 64.0))))
    return float(np.clip((several * strength - law.log_mgf(several)).max(), 0.0, RAREST))


# --- arguments ------------------------------------------------------------------------------------


def _checked(law: Law, needle: Needle) -> FloatArray:
    """Return θ or the gap, which the law must allow."""
    scores.check_law(law)
    checking.instance("needle", needle, Needle)
    strengths, spread = np.asarray(_strength(needle)), float(np.sqrt(law.variance))
    if isinstance(needle, Tilted):
        name, largest = "theta", exact.LARGEST_SCALE / spread
        if strengths.size:
            top = np.minimum(strengths.max(), largest)
            if not np.isfinite(_independent(law, 0.0)[0].log_mgf(top)):
                raise ValueError(
                    f"theta must be one for which E e^(theta s) is finite for {law!r:.80}, "
                    f"got theta={strengths.max():g}"
                )
    else:
        name = "gap"
        largest = 1.0 if law.applied_to == "cosine" else exact.LARGEST_SCALE * spread
    wrong = np.abs(strengths) > largest
    if wrong.any():
        raise ValueError(
            f"{name} must be at most {largest:g} for {law!r:.80}, "
            f"got {name}={strengths[wrong][0]:g}"
        )
    return strengths


def _scale(law: Law, alpha: ArrayLike) -> FloatArray:
    scale = checking.alpha(alpha)
    largest = exact.LARGEST_SCALE / np.sqrt(law.variance)
    if (scale > largest).any():
        raise ValueError(
            f"alpha must be at most {largest:g} for {law!r:.80}, got alpha={scale.max():g}; "
            "accuracy has the limit of the weight"
        )
    return scale


def _policy(policy: Any) -> Policy:
    found = policy if isinstance(policy, Policy) else POLICIES.get(str(policy))
    if found is None:
        kind = ValueError if isinstance(policy, str) else TypeError
        raise kind(f"policy must be a Policy or a name in POLICIES, got policy={policy!r:.80}")
    return found


def _independent(law: Law, log_n: float) -> tuple[Law, list[float], FloatArray]:
    """Return the law of a row but for a factor, the factors, and their shares."""
    law, (factors, shares, _) = law.mixture(log_n) or (law, Rule(np.ones(1), np.ones(1)))
    return law, list(map(float, factors)), shares


def _by_strength(
    needle: Needle,
    strengths: FloatArray,
    others: FloatArray,
    function: Callable[[Needle, FloatArray], FloatArray],
) -> FloatArray:
    """Return function(needle, different values of the others) for each needle, of one shape."""
    result = np.empty(strengths.shape)
    for strength in np.unique(strengths):
        here = strengths == strength
        values, place = np.unique(others[here], return_inverse=True)
        result[here] = function(type(needle)(float(strength)), values)[place]
    return result


# --- the integrals --------------------------------------------------------------------------------


class _Row(NamedTuple):
    """What an integrand is made of, over u; `others` is a column of the numbers of other keys."""

    log_others: FloatArray  # log φ
    inner_others: FloatArray  # E kernel
    log_needle: FloatArray
    inner_needle: FloatArray
    log_sink: FloatArray  # −e^{b−u}
    others: FloatArray
    needles: int


class _Quantity(NamedTuple):
    """An expectation: the kernel to average at each u, and the integrand."""

    kernel: Kernel
    integrand: Callable[[_Row], FloatArray]
    rare: bool = False  # it may be as small as the chance that a key comes before the needle
    order: float = 1.0
    sink: float = -np.inf  # b
    needles: int = 1


def _beside(quantity: _Quantity, sinks: ArrayLike, needles: int) -> _Quantity:
    """Return the quantity with other needles, and the one sink that does what these do together."""
    logits, count = checking.finite("sinks", sinks), checking.integer("needles", needles, minimum=1)
    sink = float(logsumexp(logits)) if logits.size else -np.inf
    return quantity._replace(sink=sink, needles=count)


def _weight(row: _Row) -> FloatArray:
    rest = row.others * row.log_others + (row.needles - 1.0) * row.log_needle + row.log_sink
    return row.needles * row.inner_needle * np.exp(rest)


def _one_of_the_others(row: _Row) -> FloatArray:
    one_less = np.maximum(row.others - 1.0, 0.0) * row.log_others
    return row.others * row.inner_others * np.exp(one_less + row.log_needle)


def _loss(row: _Row) -> FloatArray:
    kept = row.others * row.log_others + row.log_sink
    return -np.expm1(kept) * np.exp(row.needles * row.log_needle)


_WEIGHT = _Quantity(quadrature.first, _weight)
_MISSED = _Quantity(quadrature.first, _one_of_the_others, rare=True)
_LOSS = _Quantity(lambda block: block.gumbel, _loss, rare=True)


_SQUARES = _Quantity(
    lambda block: block.power * quadrature.first(block),
    lambda row: _weight(row) + _one_of_the_others(row),
    order=2.0,
)


def _expectation(
    law: Law, needle: Needle, alpha: ArrayLike, n: ArrayLike, quantity: _Quantity, certain: float
) -> FloatArray:
    """Return the quantity at each α, n and strength; `certain` where there are needles only."""
    strengths = _checked(law, needle)
    scale, keys, strengths = checking.broadcast(
        alpha=_scale(law, alpha), n=checking.whole_keys(n), needle=strengths
    )
    needles = quantity.needles
    if (keys < needles).any():
        raise ValueError(f"needles must be at most n, got needles={needles} and n={keys.min():g}")
    result = np.full(scale.shape, certain)
    uncertain = (keys > needles) | (quantity.sink > -np.inf)
    for a in np.unique(scale[uncertain]):
        here = uncertain & (scale == a)
        at_scale = partial(_averaged, law, alpha=float(a), quantity=quantity)
        result[here] = _by_strength(needle, strengths[here], keys[here], at_scale)
    return result


def _averaged(
    law: Law, needle: Needle, keys: FloatArray, alpha: float, quantity: _Quantity, every: int = 1
) -> FloatArray:
    """Return the quantity at each n, averaged over a factor of all scores if there is one.

    With `every` above 1 fewer factors: those that are not too rare, at so many times the step.
    """
    law, factors, shares = _independent(law, float(np.log(keys.max())))
    if every > 1 and len(factors) > 1:
        kept = np.flatnonzero(shares > ENOUGH)[::every]
        factors, shares = [factors[i] for i in kept], shares[kept] / shares[kept].sum()
    parts = [_integral(law, _given_factor(needle, r), keys, alpha * r, quantity) for r in factors]
    return np.tensordot(shares, parts, 1)


def _integral(
    law: Law, needle: Needle, keys: FloatArray, alpha: float, quantity: _Quantity
) -> FloatArray:
    """Return the quantity at each n, for independent scores."""
    log_n = float(np.log(keys.max()))
    rare = _rarity(needle, law, alpha) if quantity.rare else 0.0
    further = 2.0 * rare + min(rare, quadrature.DEPTH)  # where the one before it may be
    # E P^k may be as small as n^{−k}, of rows as rare.
    higher = 2.0 * (quantity.order - 1.0) * log_n + (quantity.order > 1.0) * quadrature.DEPTH
    # Kernels of high order are narrow.
    finer = 1.0 + max(quantity.order - 2.0, 0.0) / 14.0
    fine = alpha * finer
    rules = [law.rule(fine, log_n), _rule(needle, law, fine, log_n, further + higher)]
    # How smooth the integrand is depends on n, and not on how far the tail is followed.
    smoothness = [max((rule.smoothness or 1.0) / finer, 1.0) for rule in rules]
    if further > 0.0:
        rules[0] = law.rule(fine, log_n + further / 2.0)
    # Further below u scores add less than e^{−DEPTH}/n to 1 − φ, and to the needle's weight.
    reach = quadrature.DEPTH + log_n
    of_others, of_needle = Averages(rules[0], alpha, reach + rare), Averages(rules[1], alpha, reach)
    others, sink = (keys - quantity.needles)[:, None], quantity.sink

    def row(u: FloatArray) -> _Row:
        log_others, inner_others = of_others(u, quantity.kernel)
        log_needle, inner_needle = of_needle(u, quantity.kernel)
        return _Row(
            np.maximum(log_others, LOWEST_LOG),
            inner_others,
            np.maximum(log_needle, LOWEST_LOG),
            inner_needle,
            -np.exp(np.minimum(sink - u, 7.0)),
            others,
            quantity.needles,
        )

    (low_others, top_others), (low_needle, top_needle) = of_others.ends, of_needle.ends
    # What is narrow has its place: at a sink, at a fixed needle, at a level of a discrete law.
    marks = np.concatenate([of_others.edges, of_needle.edges, [sink] if sink > -np.inf else []])
    lowest = min(low_others, low_needle, marks.min() - quadrature.ABOVE)
    top_others = min(float(law.log_mgf(alpha)), top_others) + log_n
    highest = max(top_others, top_needle, sink) + quadrature.DEPTH + rare
    near = np.add.outer(marks, [-5.0, -2.0, 0.0, 2.0, 5.0, 10.0, 20.0, 40.0]).ravel()
    coarse = np.unique(np.append(np.linspace(lowest, highest, COARSE), near))
    heights = np.abs(quantity.integrand(row(coarse)))
    tops = heights.max(axis=-1, keepdims=True)
    kept = np.flatnonzero((heights > np.exp(-quadrature.DEPTH) * tops).any(axis=0))
    if not kept.size:
        return np.zeros(keys.shape)
    left, right = coarse[max(kept[0] - 1, 0)], coarse[min(kept[-1] + 1, coarse.size - 1)]
    smooth = 1.0 if sink > -np.inf else min(smoothness)
    step = quadrature.STEP * smooth / finer

    def summed(u: FloatArray, lengths: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the integrals, and how high each integrand is."""
        whole, rows = row(u), max(1, exact.BLOCK // u.size)
        found, reached = np.empty(keys.size), np.empty((keys.size, 1))
        for i in range(0, keys.size, rows):
            part = quantity.integrand(whole._replace(others=others[i : i + rows]))
            found[i : i + rows] = part @ lengths
            reached[i : i + rows] = np.abs(part).max(axis=-1, keepdims=True)
        return found, reached

    if not (smooth == 1.0 and right - left > step * exact.LONGEST):
        u = step * np.arange(np.floor(left / step), np.ceil(right / step) + 1.0)
        return summed(u, np.full(u.size, step))[0]

    def log_density(u: FloatArray) -> FloatArray:  # for few keys and for many
        each = np.abs(quantity.integrand(row(u.ravel()))) / np.where(tops > 0.0, tops, 1.0)
        return np.asarray(np.log(each.sum(axis=0)).reshape(u.shape))

    landmarks = np.append(marks, alpha * np.asarray(law.landmarks))
    spread = alpha * float(np.sqrt(law.variance))
    while True:
        # Near e^{−DEPTH} the averages end, at their reach.
        panels = quadrature.panels(log_density, landmarks, spread, depth=quadrature.DEPTH - 10.0)
        found, reached = summed(panels.scores.ravel(), np.exp(panels.log_weights).ravel())
        # An integrand that is higher than it looked would hide those of other n.
        if keys.size == 1 or not (reached > 8.0 * tops).any():
            return found
        tops = np.maximum(tops, reached)


# --- the largest score, the best scale, the reach -------------------------------------------------


def _first_of(law: Law, needle: Needle, n: FloatArray) -> FloatArray:
    """Return the probability of the largest score at each n; ties are shared."""
    log_n = float(np.log(n.max()))
    independent, factors, shares = _independent(law, log_n)
    if independent is not law:
        parts = [_first_of(independent, _given_factor(needle, r), n) for r in factors]
        return np.tensordot(shares, parts, 1)
    strength, tilted = _strength(needle), isinstance(needle, Tilted)
    weights, above, ties = law.tilted_ranks(strength, log_n) if tilted else law.ranks(strength)
    with np.errstate(divide="ignore"):
        log_below = np.maximum(np.log1p(-above), LOWEST_LOG)
        log_others = np.log1p(-np.minimum(ties / np.maximum(1.0 - above, 1e-300), 1.0))
    keys = n[:, None]
    ties = np.broadcast_to(ties, (n.size, ties.size))
    shared = -np.expm1(keys * np.maximum(log_others, LOWEST_LOG)) * (1.0 - above)
    # (F^n − (F − p)^n)/(np) for a tie of probability p, F^{n−1} without
    ratio = np.divide(shared, keys * ties, out=np.ones_like(shared), where=ties > 0.0)
    chances = np.exp((keys - 1.0) * log_below) * ratio
    return np.asarray(chances @ weights)


def _root_of_slope(law: Law, needle: Needle, n: float) -> float:
    """Return where the loss with a fixed needle has no slope: E Σ p (s − gap) = 0."""
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    gap, spread = float(_strength(needle)), float(np.sqrt(law.variance))
    if n == 1.0 or gap <= law.mean:
        return 0.0
    if _independent(law, 0.0)[0] is law and not law.ranks(gap).above.any():
        return float(np.inf)

    def slope(alpha: float) -> float:
        level = alpha * gap  # the same for each factor of a mixture
        quantity = _Quantity(
            lambda block: (block.alpha * block.scores - level) * quadrature.first(block),
            _one_of_the_others,
            rare=True,
        )
        return float(_averaged(law, needle, np.array([n]), alpha, quantity)[0])

    high = 1.0 / spread
    while slope(high) <= 0.0:
        high *= 2.0
        if high > exact.LARGEST_SCALE / spread:
            raise ValueError(f"gap must be smaller: its α is above {high / 2.0:g}, got gap={gap:g}")
    low = high / 2.0
    while slope(low) > 0.0:
        low /= 2.0
    return float(brentq(slope, low, high, xtol=1e-300, rtol=1e-12))


def _excess(law: Law, quantity: _Quantity, needle: Needle, alpha: float, log_n: float) -> float:
    """Return E P − ½ at any n ≥ 1, whole or not."""
    keys = np.array([np.exp(log_n)])
    return float(_averaged(law, needle, keys, alpha, quantity)[0]) - 0.5 * (1.0 - 1e-13)


def _reach(law: Law, quantity: _Quantity, needle: Needle, alpha: float) -> float:
    excess = partial(_excess, law, quantity, needle, alpha)
    low = float(np.log(quantity.needles))
    if excess(low) < 0.0:
        return 0.0
    high = low + 1.0
    while excess(high) >= 0.0:
        if high >= LONGEST_LOG:
            return float(np.inf)
        low, high = high, min(2.0 * high, LONGEST_LOG)
    return _last_whole(excess, low, high)


def _reach_by_rules(
    law: Law, quantity: _Quantity, needle: Needle, rules: list[Policy], d: int, roughly: bool
) -> FloatArray:
    """Return the reach by each rule: where an interpolated E P is last ½, and then exactly."""
    from scipy.interpolate import RectBivariateSpline  # takes long to load

    spread, count = float(np.sqrt(law.variance)), quantity.needles
    longest, largest = (36.7, 50.0) if roughly else (LONGEST_LOG_OF_RULES, exact.LARGEST_SCALE)

    def scales(rule: Policy, n: ArrayLike) -> FloatArray:
        return np.asarray(np.minimum(rule.alpha(n, d), largest) / spread)

    def others(log_n: FloatArray) -> FloatArray:
        return np.asarray(np.log(np.exp(log_n) - count))

    grid = np.arange(np.log(count + 1.0), longest + STEP_OF_RULES, STEP_OF_RULES)
    # A needle below m others weighs 1/(1 + m) at most, whatever α: with n times the chance of
    # another to be above it, x, in the mean (1 − e^{−x})/x, and so below 1/2K from x = 2K on.
    possible = _first_of(law, needle, np.exp(grid) - (count - 1.0)) >= np.exp(-2.0 * count)
    grid = grid[: max(int(np.count_nonzero(possible)), 3) + 1]
    keys = np.unique(np.round(np.exp(np.arange(grid[0], grid[-1], STEP_OF_RULES / 16.0))))
    log_keys = np.log(keys)
    logs = [np.log(np.maximum(scales(rule, keys), LEAST_SCALE / spread)) for rule in rules]
    steps = np.ceil((np.max(logs) - np.min(logs)) / STEP_OF_SCALES)
    nodes = np.min(logs) + STEP_OF_SCALES * np.arange(np.maximum(steps, 3.0) + 1.0)
    plane = [_averaged(law, needle, np.exp(grid), a, quantity, every=2) for a in np.exp(nodes)]
    smooth = logit(np.clip(plane, 1e-9, 1.0 - 1e-9)) + others(grid)
    interpolated = RectBivariateSpline(nodes, grid, smooth)

    def reached(rule: Policy, log_scales: FloatArray) -> float:
        @cache
        def excess(log_n: float) -> float:
            alpha = float(scales(rule, np.exp(log_n)))
            return _excess(law, quantity, needle, alpha, log_n)

        about = interpolated.ev(log_scales, log_keys) - others(log_keys)
        if roughly:
            last = int(np.flatnonzero(about > -1e-4).max(initial=-1))
            if 0 <= last < keys.size - 1:
                part = max(about[last], 0.0) / (about[last] - about[last + 1])
                return float(np.floor(keys[last] * (keys[last + 1] / keys[last]) ** part))
        else:
            near = np.flatnonzero(about > -MARGIN)[::-1]
            last = next((i for i in near if excess(log_keys[i]) >= 0.0), -1)
            while 0 <= last < keys.size - 1 and excess(log_keys[last + 1]) >= 0.0:
                last += 1
            if 0 <= last < keys.size - 1:
                return _last_whole(excess, log_keys[last], log_keys[last + 1])
        if last < 0:
            return float(count) if excess(float(np.log(count))) >= 0.0 else 0.0
        return float(np.inf)

    return np.array([reached(*one) for one in zip(rules, logs, strict=True)])


def _last_whole(excess: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    n = np.exp(brentq(excess, low, high, xtol=1e-13))
    return float(np.floor(n * (1.0 + 1e-11)))


LARGEST_FACTOR = 1e3
"""The largest factor that `calibration` looks for, and one over the least."""


class Calibration(NamedTuple):
    """How the logits of a head stand to what its needle wants."""

    ratio: Estimate
    """E[(1 − P)ℓ_*]/E[(1 − P)m], logits counted from the plain mean of the others: 1 if right."""
    best_factor: Estimate
    """t*, the factor of all logits that has the least mean loss."""


def calibration(
    logits: ArrayLike, needle: int = 0, *, texts: ArrayLike | None = None
) -> Calibration:
    """Return what the logits of measured rows, (rows, keys), say of a head's scale.

    P is the weight on the key `needle`, ℓ_* its logit, and m the mean of the others under their own
    softmax. The mean loss with all logits times t has the derivative −E[(1 − P_t)(ℓ_* − m_t)],
    which increases, so t* = 1 if and only if E[(1 − P)(ℓ_* − m)] = 0: for every n and every noise.
    Rows that are won count for nothing. Choose rows by what does not look at P, or both numbers are
    biased. Standard errors are between rows, or between `texts`, a number for each row that says
    which text it is of; by linearisation, for eight texts or more. t* is 0 or infinite, with an
    error of NaN, where it is beyond 10⁻³ to 10³.

    Raises ValueError or TypeError for logits that are not finite or not of shape (rows, keys) with
    two of each or more, a needle that is no place of a key, and texts of another length. Chapter:
    needle.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(4000, 64)) + 3.0 * np.eye(1, 64)  # a needle of strength 3
    >>> found = calibration(2.0 * scores)  # under α = 2
    >>> round(float(found.best_factor.value), 1)
    1.5
    """
    ell = checking.finite("logits", logits)
    if ell.ndim != 2 or min(ell.shape) < 2:
        raise ValueError(f"logits must be of shape (rows, keys), two or more, got {ell.shape}")
    at = checking.integer("needle", needle, minimum=0, maximum=ell.shape[1] - 1)
    groups = np.arange(len(ell)) if texts is None else np.unique(texts, return_inverse=True)[1]
    if groups.shape != ell.shape[:1] or groups.max() < 1:
        raise ValueError(
            f"texts must name two or more texts, one for each of {len(ell)} rows, got {texts!r:.80}"
        )
    ell = ell - (ell.sum(axis=1) - ell[:, at])[:, None] / (ell.shape[1] - 1)
    meant = ell[:, at]

    def pull(t: float) -> tuple[FloatArray, FloatArray]:
        """Return (1 − P)ℓ_* and (1 − P)m of each row."""
        p = rows.softmax(ell, t)
        lost = np.delete(p, at, axis=1).sum(axis=1)
        return lost * meant, (p * ell).sum(axis=1) - p[:, at] * meant

    def error(of_rows: FloatArray) -> float:
        """Return the standard error of a mean over rows that is 0."""
        sums = np.bincount(groups, of_rows)
        return float(np.sqrt(np.square(sums).sum() * sums.size / (sums.size - 1.0)) / len(ell))

    gap, mean = pull(1.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # others that are all alike
        ratio = gap.mean() / mean.mean()
        ratio_error = error(gap - ratio * mean) / abs(mean.mean())

    def slope(log_t: float) -> float:
        gap, mean = pull(float(np.exp(log_t)))
        return float((mean - gap).mean())

    end = float(np.log(LARGEST_FACTOR))
    if slope(-end) >= 0.0 or slope(end) <= 0.0:
        beyond = 0.0 if slope(-end) >= 0.0 else np.inf
        return Calibration(Estimate(ratio, ratio_error), Estimate(beyond, np.nan))
    from scipy.optimize import brentq  # takes as long to load as all of attnlib

    best = float(np.exp(brentq(slope, -end, end)))
    p = rows.softmax(ell, best)
    curvature = ((p * ell**2).sum(axis=1) - (p * ell).sum(axis=1) ** 2).mean()
    gap, mean = pull(best)
    best_error = error(gap - mean) / curvature
    return Calibration(Estimate(ratio, ratio_error), Estimate(best, best_error))
