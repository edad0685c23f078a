"""Proofs by computer algebra: each function returns an identity, and sympy decides about it.

Sides that are derivatives, integrals or limits are computed by sympy. `n` is how many scores a row
has, small, and `Identity.proved` is True of each.

Chapters: variance (moments), jacobian, gradient (the L1 identity), normal and cosine (moment
generating functions), scaling_rules (scales in use that are one rule in different words).
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import sympy
from sympy.stats import E, Normal, variance

from attnlib import _checking

MU_Q, MU_K = sympy.symbols("mu_q mu_k", real=True)
SIGMA_Q, SIGMA_K = sympy.symbols("sigma_q sigma_k", positive=True)
ALPHA, KEYS = sympy.symbols("alpha n", positive=True)
Q, K = Normal("q", MU_Q, SIGMA_Q), Normal("k", MU_K, SIGMA_K)
DIMENSION, LENGTH = sympy.symbols("d L", positive=True)  # of q and k; of the texts in training


@dataclass(frozen=True)
class Identity:
    """State left = right, to be proved by simplifying the difference to zero."""

    left: Any
    right: Any

    @cached_property
    def residual(self) -> Any:
        """Return left − right, simplified; matrices entry by entry."""
        return sympy.simplify(self.left - self.right)

    @property
    def proved(self) -> bool:
        """Return whether the residual simplifies to zero."""
        residual = self.residual
        return bool(residual.is_zero_matrix if hasattr(residual, "shape") else residual == 0)


class Moments(NamedTuple):
    """Hold a mean and a variance."""

    mean: float
    variance: float


def product_moments(mean: float) -> Moments:
    """Return mean and variance of qk, for independent q and k of this mean and of variance 1."""
    return Moments(mean**2, 1.0 + 2.0 * mean**2)


@cache
def product_mean() -> Identity:
    """Return E(qk) = μ_q μ_k for independent q ~ N(μ_q, σ_q²), k ~ N(μ_k, σ_k²).

    Source 004; chapter: variance.
    """
    return Identity(E(Q * K), MU_Q * MU_K)


@cache
def product_variance() -> Identity:
    """Return Var(qk) = (σ_q² + μ_q²)(σ_k² + μ_k²) − μ_q²μ_k² for independent normal q and k.

    Source 004; chapter: variance.
    """
    right = (SIGMA_Q**2 + MU_Q**2) * (SIGMA_K**2 + MU_K**2) - MU_Q**2 * MU_K**2
    return Identity(variance(Q * K), right)


@cache
def product_variance_of_any_law() -> Identity:
    """Return the same variance from moments alone: E(q²)E(k²) − (E q · E k)².

    Independence gives E(q²k²) = E(q²)E(k²), and E(q²) = σ_q² + μ_q² for every law with these
    moments. Chapter: variance.
    """
    second_q, second_k = SIGMA_Q**2 + MU_Q**2, SIGMA_K**2 + MU_K**2
    expanded = SIGMA_Q**2 * SIGMA_K**2 + SIGMA_Q**2 * MU_K**2 + MU_Q**2 * SIGMA_K**2
    return Identity(second_q * second_k - (MU_Q * MU_K) ** 2, expanded)


def softmax(n: int) -> tuple[Any, Any]:
    """Return the symbols s_1 … s_n and p_i = e^{αs_i}/Σ_j e^{αs_j} as column matrices.

    ValueError or TypeError unless `n` is an integer, 1 or more.
    """
    count = _checking.integer("n", n, minimum=1)
    s = sympy.Matrix(sympy.symbols(f"s1:{count + 1}", real=True))
    weights = (ALPHA * s).applyfunc(sympy.exp)
    return s, weights / sum(weights)


@cache
def jacobian(n: int) -> Identity:
    """Return ∂p_i/∂s_j = α(p_i δ_ij − p_i p_j) as n × n matrices, p = softmax(αs).

    Sources 000 and 004; chapter: jacobian.
    """
    s, p = softmax(n)
    return Identity(p.jacobian(s), ALPHA * (sympy.diag(*p) - p * p.T))


@cache
def l1_identity(n: int) -> Identity:
    """Return ½ Σ_ij |∂p_i/∂s_j| = α(1 − Σp²) for a row of `n` scores, p = softmax(αs).

    The weights w_i = e^{αs_i} are positive symbols, so sympy resolves the absolute values:
    ∂p_i/∂s_j = α w_j ∂p_i/∂w_j. Source 000; chapter: gradient.
    """
    count = _checking.integer("n", n, minimum=1)
    w = sympy.Matrix(sympy.symbols(f"w1:{count + 1}", positive=True))
    p = w / sum(w)
    derivative = (ALPHA * p.jacobian(w) * sympy.diag(*w)).applyfunc(sympy.factor)
    left = sum(derivative.applyfunc(sympy.Abs)) / 2
    return Identity(left, ALPHA * (1 - sum(p.applyfunc(lambda entry: entry**2))))


@cache
def normal_mgf() -> Identity:
    """Return E e^{αs} = e^{α²/2} for s ~ N(0, 1). Source 000; chapter: normal."""
    s = sympy.Symbol("s", real=True)
    density = sympy.exp(-(s**2) / 2) / sympy.sqrt(2 * sympy.pi)
    mean = sympy.integrate(sympy.exp(ALPHA * s) * density, (s, -sympy.oo, sympy.oo))
    return Identity(mean, sympy.exp(ALPHA**2 / 2))


@cache
def cosine_mgf(d: int) -> Identity:
    """Return the identity of E e^{αs}, an integral over the cosine law, and its elementary form.

    - `d`: the dimension, 3, 5 or 7; else raises ValueError.

    The density of s is ∝ (1 − s²)^{(d−3)/2}, and the forms are sinh α/α, 3(α cosh α − sinh α)/α³
    and 15((α² + 3) sinh α − 3α cosh α)/α⁵. Returns an `Identity`. Chapter: cosine.
    """
    sinh, cosh = sympy.sinh(ALPHA), sympy.cosh(ALPHA)
    forms = {
        3: sinh / ALPHA,
        5: 3 * (ALPHA * cosh - sinh) / ALPHA**3,
        7: 15 * ((ALPHA**2 + 3) * sinh - 3 * ALPHA * cosh) / ALPHA**5,
    }
    if d not in forms:
        raise ValueError(f"d must be 3, 5 or 7, got d={d!r}")
    s = sympy.Symbol("s", real=True)
    weight = sympy.expand((1 - s**2) ** ((d - 3) // 2))
    total = sympy.integrate(weight, (s, -1, 1))
    mean = sympy.integrate(weight * sympy.exp(ALPHA * s), (s, -1, 1)) / total
    return Identity(mean.rewrite(sympy.exp), forms[d].rewrite(sympy.exp))


def cosine_mgf_is_elementary(d: int) -> bool:
    """Return whether sympy reduces ₀F₁(; d/2; α²/4) to elementary functions.

    - `d`: an integer, 3 or more; else raises ValueError or TypeError.

    Chapter: cosine.

    >>> cosine_mgf_is_elementary(3), cosine_mgf_is_elementary(4)
    (True, False)
    """
    half = sympy.Rational(_checking.integer("d", d, minimum=3), 2)
    reduced = sympy.hyperexpand(sympy.hyper([], [half], ALPHA**2 / 4))
    return not reduced.rewrite(sympy.exp).has(sympy.besseli)


@cache
def rules_in_disguise(n: int = 3) -> dict[str, Identity]:
    """Return what makes rules in use one rule, for rows and vectors of `n` numbers, each by a name.

    - LongRoPE's factors on q and k, multiplied, are log(sL)/log L: with n = sL keys log_L n, the
      rule of Qwen and, with L = 512, of entropy invariance.
    - Scalable-Softmax raises n to a power where others multiply by log n.
    - InfoScale tends to √(log n/log L) as d → ∞. With r the ratio of the two, d(r² − 1) tends to
      log L − log n: the root of log n is InfoScale for log n ≪ d.
    - YaRN multiplies q and k by m = c log s + 1, DeepSeek the scale by the square.
    - T5's unscaled score has the variance 1 at its start: a query is a sum over the width D of
      inputs of variance 1 times weights of variance 1/(Dd).

    Chapters: scaling_rules, questions.

    >>> all(identity.proved for identity in rules_in_disguise(2).values())
    True
    """
    s, c, width, u = sympy.symbols("s c D u", positive=True)
    log, root = sympy.log, sympy.sqrt
    z, p = softmax(n)
    q, k = (sympy.Matrix(sympy.symbols(f"{name}1:{n + 1}", real=True)) for name in "qk")
    factor = c * log(s) + 1
    powers = z.applyfunc(lambda logit: KEYS ** (s * logit))
    square = (1 - KEYS ** (-2 * u)) / (1 - LENGTH ** (-2 * u))  # InfoScale's, for u = 1/d
    excess = (square * log(LENGTH) / log(KEYS) - 1) / u
    sides = {
        "LongRoPE is log_L n": (root(1 + log(s) / log(LENGTH)) ** 2, log(s * LENGTH) / log(LENGTH)),
        "n^(sz) is a scale s log n": (powers / sum(powers), p.subs(ALPHA, s * log(KEYS))),
        "InfoScale, d → ∞": (sympy.limit(root(square), u, 0, "+"), root(log(KEYS) / log(LENGTH))),
        "its correction 1/d": (sympy.limit(excess, u, 0, "+"), log(LENGTH) - log(KEYS)),
        "YaRN on q and k": ((factor * q).dot(factor * k), factor**2 * q.dot(k)),
        "T5 at its start is 1/√d": (DIMENSION * width / (width * DIMENSION), sympy.Integer(1)),
    }
    return {name: Identity(*both) for name, both in sides.items()}
