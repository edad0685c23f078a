"""Proofs by computer algebra: each function returns an identity, and sympy decides about it.

Chapters: variance (moments), jacobian (the matrix, its row sums, the L1 identity).
"""

from dataclasses import dataclass
from typing import Any

import sympy
from sympy.stats import E, Normal, variance

from attnlib import checking

MU_Q, MU_K = sympy.symbols("mu_q mu_k", real=True)
SIGMA_Q, SIGMA_K = sympy.symbols("sigma_q sigma_k", positive=True)
ALPHA = sympy.Symbol("alpha", positive=True)


@dataclass(frozen=True)
class Identity:
    """A statement left = right, to be proved by simplifying the difference to zero."""

    left: Any
    right: Any

    @property
    def residual(self) -> Any:
        """left − right, simplified; matrices entry by entry."""
        return sympy.simplify(self.left - self.right)

    @property
    def proved(self) -> bool:
        """Whether the residual simplifies to zero."""
        residual = self.residual
        return bool(residual.is_zero_matrix if hasattr(residual, "shape") else residual == 0)

    def _repr_latex_(self) -> str:
        return f"${sympy.latex(self.left)} = {sympy.latex(self.right)}$"


def product_mean() -> Identity:
    """Return E(qk) = μ_q μ_k for independent q ~ N(μ_q, σ_q²), k ~ N(μ_k, σ_k²).

    The left side is integrated over the normal laws by sympy. Source 004; chapter: variance.

    >>> product_mean().proved
    True
    """
    q, k = _independent_normals()
    return Identity(E(q * k), MU_Q * MU_K)


def product_variance() -> Identity:
    """Return Var(qk) = (σ_q² + μ_q²)(σ_k² + μ_k²) − μ_q²μ_k² for independent normal q and k.

    The left side is integrated over the normal laws by sympy. Source 004; chapter: variance.

    >>> product_variance().proved
    True
    """
    q, k = _independent_normals()
    right = (SIGMA_Q**2 + MU_Q**2) * (SIGMA_K**2 + MU_K**2) - MU_Q**2 * MU_K**2
    return Identity(variance(q * k), right)


def product_variance_of_any_law() -> Identity:
    """Return the same variance from moments alone: E(q²)E(k²) − (E q · E k)².

    Independence gives E(q²k²) = E(q²)E(k²), and E(q²) = σ_q² + μ_q² for every law with these
    moments. Chapter: variance.

    >>> product_variance_of_any_law().proved
    True
    """
    second_q, second_k = SIGMA_Q**2 + MU_Q**2, SIGMA_K**2 + MU_K**2
    expanded = SIGMA_Q**2 * SIGMA_K**2 + SIGMA_Q**2 * MU_K**2 + MU_Q**2 * SIGMA_K**2
    return Identity(second_q * second_k - (MU_Q * MU_K) ** 2, expanded)


def softmax(n: int) -> tuple[Any, Any]:
    """Return the symbols s_1 … s_n and p_i = e^{αs_i}/Σ_j e^{αs_j} as column matrices."""
    count = checking.integer("n", n, minimum=1)
    s = sympy.Matrix(sympy.symbols(f"s1:{count + 1}", real=True))
    weights = (ALPHA * s).applyfunc(sympy.exp)
    return s, weights / sum(weights)


def jacobian(n: int) -> Identity:
    """Return ∂p_i/∂s_j = α(p_i δ_ij − p_i p_j) as n × n matrices, for small n.

    The left side is differentiated by sympy. Sources 000 and 004; chapter: jacobian.

    >>> jacobian(2).proved
    True
    """
    s, p = softmax(n)
    return Identity(p.jacobian(s), ALPHA * (sympy.diag(*p) - p * p.T))


def jacobian_row_sums(n: int) -> Identity:
    """Return Σ_j ∂p_i/∂s_j = 0 for every i: a shift of all scores changes nothing.

    Chapter: jacobian.

    >>> jacobian_row_sums(2).proved
    True
    """
    s, p = softmax(n)
    return Identity(p.jacobian(s) * sympy.ones(n, 1), sympy.zeros(n, 1))


def l1_identity(n: int) -> Identity:
    """Return ½ Σ_ij |∂p_i/∂s_j| = α(1 − Σp²).

    The weights w_i = e^{αs_i} are positive symbols, so sympy resolves the absolute values:
    ∂p_i/∂s_j = α w_j ∂p_i/∂w_j. Source 000; chapter: jacobian.

    >>> l1_identity(2).proved
    True
    """
    count = checking.integer("n", n, minimum=1)
    w = sympy.Matrix(sympy.symbols(f"w1:{count + 1}", positive=True))
    p = w / sum(w)
    derivative = (ALPHA * p.jacobian(w) * sympy.diag(*w)).applyfunc(sympy.factor)
    left = sum(derivative.applyfunc(sympy.Abs)) / 2
    return Identity(left, ALPHA * (1 - sum(p.applyfunc(lambda entry: entry**2))))


def _independent_normals() -> tuple[Any, Any]:
    return (Normal("q", MU_Q, SIGMA_Q), Normal("k", MU_K, SIGMA_K))
