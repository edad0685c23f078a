"""Proofs by computer algebra: each function returns an identity, and sympy decides about it.

Chapters: variance (moments), jacobian (the matrix, its row sums, the L1 identity), normal (the
closed form), cosine (the Bessel form), exact and freezing (integration by parts, the convexity of
log Z, near-ties), policies (scales in use that are one rule in different words).
"""

from dataclasses import dataclass
from typing import Any

from attnlib import checking
from attnlib.extras import brought_by

with brought_by("symbolic"):
    import sympy
    from sympy.stats import E, Normal, variance

MU_Q, MU_K = sympy.symbols("mu_q mu_k", real=True)
SIGMA_Q, SIGMA_K = sympy.symbols("sigma_q sigma_k", positive=True)
ALPHA, KEYS = sympy.symbols("alpha n", positive=True)
DIMENSION, LENGTH = sympy.symbols("d L", positive=True)  # of q and k; of the texts in training


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


def normal_mgf() -> Identity:
    """Return E e^{αs} = e^{α²/2} for s ~ N(0, 1), integrated by sympy. Source 000; chapter: normal.

    >>> normal_mgf().proved
    True
    """
    s = sympy.Symbol("s", real=True)
    density = sympy.exp(-(s**2) / 2) / sympy.sqrt(2 * sympy.pi)
    mean = sympy.integrate(sympy.exp(ALPHA * s) * density, (s, -sympy.oo, sympy.oo))
    return Identity(mean, sympy.exp(ALPHA**2 / 2))


def annealed_stationarity() -> Identity:
    """Return n d/dα [α(1 − e^{α²}/n)] = n − (1 + 2α²)e^{α²}. Source 000; chapter: normal.

    >>> annealed_stationarity().proved
    True
    """
    objective = ALPHA * (1 - sympy.exp(ALPHA**2) / KEYS)
    return Identity(KEYS * objective.diff(ALPHA), KEYS - (1 + 2 * ALPHA**2) * sympy.exp(ALPHA**2))


def lambert_solution() -> Identity:
    """Return (1 + 2α²)e^{α²} = n for α² = W(n√e/2) − ½.

    W is entered by its definition: w = W(x) means we^w = x, so n = 2we^w/√e. Chapter: normal.

    >>> lambert_solution().proved
    True
    """
    w = sympy.Symbol("w", positive=True)
    square = w - sympy.Rational(1, 2)
    keys = 2 * w * sympy.exp(w) / sympy.sqrt(sympy.E)
    return Identity((1 + 2 * square) * sympy.exp(square), keys)


def cosine_moment() -> Identity:
    """Return E s^{2j}/(2j)! = 1/(4^j j! (d/2)_j) for the cosine law, for every d and j.

    The left side is the ratio of Beta integrals ∫ s^{2j}(1 − s²)^{(d−3)/2} ds, in Γ functions.
    Summed with α^{2j} over j it gives E e^{αs} = ₀F₁(; d/2; α²/4), the Bessel form.
    Chapter: cosine.

    >>> cosine_moment().proved
    True
    """
    d = sympy.Symbol("d", positive=True)
    j = sympy.Symbol("j", integer=True, nonnegative=True)
    half = sympy.Rational(1, 2)
    moment = (
        sympy.gamma(j + half) * sympy.gamma(d / 2) / (sympy.gamma(half) * sympy.gamma(j + d / 2))
    )
    coefficient = 1 / (4**j * sympy.factorial(j) * sympy.rf(d / 2, j))
    ratio = (moment / sympy.factorial(2 * j) / coefficient).rewrite(sympy.gamma)
    return Identity(sympy.simplify(sympy.gammasimp(ratio)), sympy.Integer(1))


def cosine_mgf(d: int) -> Identity:
    """Return E e^{αs} of the cosine law in its elementary form, for d = 3, 5 or 7.

    sinh α/α, 3(α cosh α − sinh α)/α³ and 15((α² + 3) sinh α − 3α cosh α)/α⁵. The left side is
    integrated by sympy over the density ∝ (1 − s²)^{(d−3)/2}. Chapter: cosine. Raises ValueError
    for another d.

    >>> cosine_mgf(3).proved
    True
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
    """Return whether sympy reduces ₀F₁(; d/2; α²/4) to elementary functions. Chapter: cosine.

    >>> cosine_mgf_is_elementary(3), cosine_mgf_is_elementary(4)
    (True, False)
    """
    half = sympy.Rational(checking.integer("d", d, minimum=3), 2)
    reduced = sympy.hyperexpand(sympy.hyper([], [half], ALPHA**2 / 4))
    return not reduced.rewrite(sympy.exp).has(sympy.besseli)


def integration_by_parts_step() -> Identity:
    """Return (fφ)' = (f' − sf)φ for any smooth f and the standard normal density φ.

    Integrated over s, where fφ vanishes at ±∞, it is Gaussian integration by parts:
    E s f(s) = E f'(s). Given the other scores of a row, f may be any function of one of them.
    Chapters: exact, freezing.

    >>> integration_by_parts_step().proved
    True
    """
    s = sympy.Symbol("s", real=True)
    f = sympy.Function("f")(s)
    density = sympy.exp(-(s**2) / 2) / sympy.sqrt(2 * sympy.pi)
    return Identity((f * density).diff(s), (f.diff(s) - s * f) * density)


def softmax_integration_by_parts(n: int) -> Identity:
    """Return Σ_i (s_i p_i − αp_i(1 − p_i))φ(s) = −Σ_i ∂/∂s_i [p_i φ(s)], φ the density of a row.

    The right side is a divergence of a field that vanishes at infinity, so it integrates to 0:
    E Σ s_i p_i = α(1 − E Σp²), the mean gradient, for n independent N(0, 1) scores. Chapters:
    exact, freezing.

    >>> softmax_integration_by_parts(2).proved
    True
    """
    s, p = softmax(n)
    density = sympy.exp(-s.dot(s) / 2) / (2 * sympy.pi) ** sympy.Rational(s.rows, 2)
    difference = sum(x * q - ALPHA * q * (1 - q) for x, q in zip(s, p, strict=True))
    divergence = sum((q * density).diff(x) for x, q in zip(s, p, strict=True))
    return Identity(difference * density, -divergence)


def log_partition_slope(n: int) -> Identity:
    """Return d log Z/dα = Σ p_i s_i for Z = Σ e^{αs_i}. Chapters: exact, freezing.

    >>> log_partition_slope(2).proved
    True
    """
    s, p = softmax(n)
    return Identity(_log_partition(s).diff(ALPHA), p.dot(s))


def log_partition_curvature(n: int) -> Identity:
    """Return d² log Z/dα² = ½ Σ_ij p_i p_j (s_i − s_j)²: never negative, so log Z is convex.

    Chapters: exact, freezing.

    >>> log_partition_curvature(2).proved
    True
    """
    s, p = softmax(n)
    pairs = sum(p[i] * p[j] * (s[i] - s[j]) ** 2 for i in range(s.rows) for j in range(s.rows))
    return Identity(_log_partition(s).diff(ALPHA, 2), pairs / 2)


def log_partition_curvature_of_any_row() -> Identity:
    """Return (log Z)'' = Z''/Z − (Z'/Z)² for any Z(α).

    For Z = Σ e^{αs_i} the ratios are Σ p_i s_i² and Σ p_i s_i, so for every n this is the variance
    of s under p. Chapters: exact, freezing.

    >>> log_partition_curvature_of_any_row().proved
    True
    """
    z = sympy.Function("Z", positive=True)(ALPHA)
    variance_of_score = z.diff(ALPHA, 2) / z - (z.diff(ALPHA) / z) ** 2
    return Identity(sympy.log(z).diff(ALPHA, 2), variance_of_score)


def near_tie_gradient() -> Identity:
    """Return ∫₀^∞ α(1 − Σp²) dδ = 1 for two scores a gap δ apart, at every α.

    At large α only rows whose two largest scores nearly tie have a gradient. Times the density of
    the gap at 0, this is the limit of the mean gradient. Chapters: exact, freezing.

    >>> near_tie_gradient().proved
    True
    """
    _, p = softmax(2)
    return Identity(_over_gaps(ALPHA * (1 - p.dot(p))), sympy.Integer(1))


def near_tie_frobenius() -> Identity:
    """Return ∫₀^∞ ‖J‖_F² dδ = α/3 for two scores a gap δ apart, J their softmax's Jacobian.

    Half the line, and four equal squares α²p²(1 − p)²: 4α · ½ · 1/6. Times the density of the gap
    of the two largest scores at 0, this is how E ‖J‖_F² grows at large α. Chapters: exact,
    freezing.

    >>> near_tie_frobenius().proved
    True
    """
    s, p = softmax(2)
    return Identity(_over_gaps(sum(entry**2 for entry in p.jacobian(s))), ALPHA / 3)


def expected_maximum_step() -> Identity:
    """Return (fF^{n−1})' = −s f F^{n−1} + (n − 1)f²F^{n−2}, f and F the normal density and its law.

    Integrated, times n: E max s_i = n(n − 1)∫f²F^{n−2} ds. The right side is the density at 0 of
    the gap between the two largest scores. Chapters: exact, freezing.

    >>> expected_maximum_step().proved
    True
    """
    s = sympy.Symbol("s", real=True)
    f = sympy.exp(-(s**2) / 2) / sympy.sqrt(2 * sympy.pi)
    below = (1 + sympy.erf(s / sympy.sqrt(2))) / 2
    right = -s * f * below ** (KEYS - 1) + (KEYS - 1) * f**2 * below ** (KEYS - 2)
    return Identity((f * below ** (KEYS - 1)).diff(s), right)


def longrope_is_a_log_length() -> Identity:
    """Return √(1 + log s/log L)² = log(sL)/log L: LongRoPE's factors on q and k, multiplied.

    With n = sL keys it is log_L n, the rule of Qwen and, with L = 512, of entropy invariance.
    Chapter: policies.

    >>> longrope_is_a_log_length().proved
    True
    """
    extension = sympy.Symbol("s", positive=True)
    factor = sympy.sqrt(1 + sympy.log(extension) / sympy.log(LENGTH))
    return Identity(factor**2, sympy.log(extension * LENGTH) / sympy.log(LENGTH))


def entropy_invariance() -> Identity:
    """Return κ log n/d = log_512(n)/√d for κ = √d/log 512. Chapter: policies.

    >>> entropy_invariance().proved
    True
    """
    kappa = sympy.sqrt(DIMENSION) / sympy.log(512)
    right = sympy.log(KEYS, 512) / sympy.sqrt(DIMENSION)
    return Identity(kappa * sympy.log(KEYS) / DIMENSION, right)


def factors_on_both_sides(d: int) -> Identity:
    """Return (mq)·(mk) = m² q·k for vectors of length d and m = c log s + 1.

    YaRN multiplies q and k; DeepSeek multiplies the scale by the square. Chapter: policies.

    >>> factors_on_both_sides(2).proved
    True
    """
    q, k = _vectors(d)
    coefficient, extension = sympy.symbols("c s", positive=True)
    factor = coefficient * sympy.log(extension) + 1
    return Identity((factor * q).dot(factor * k), factor**2 * q.dot(k))


def power_of_the_length(n: int) -> Identity:
    """Return n^{sz_i}/Σ_j n^{sz_j} = softmax(s log(n) z)_i: Scalable-Softmax is a scale.

    For `n` logits z, with a symbol in the place of the number n. Chapter: policies.

    >>> power_of_the_length(2).proved
    True
    """
    z, p = softmax(n)
    learned = sympy.Symbol("s", positive=True)
    powers = z.applyfunc(lambda logit: KEYS ** (learned * logit))
    return Identity(powers / sum(powers), p.subs(ALPHA, learned * sympy.log(KEYS)))


def shift_changes_nothing(n: int) -> Identity:
    """Return softmax(α(s − c)) = softmax(αs): a number taken from all scores drops out.

    So exp(z − s log n), normalised, is no scaling by log n. Chapter: policies.

    >>> shift_changes_nothing(2).proved
    True
    """
    s, p = softmax(n)
    shift = sympy.Symbol("c", real=True)
    return Identity(p.subs({score: score - shift for score in s}, simultaneous=True), p)


def infoscale_in_many_dimensions() -> Identity:
    """Return lim √(1 − n^{−2/d})/√(1 − L^{−2/d}) = √(log n/log L) as d → ∞.

    The limit is taken by sympy. Chapter: policies.

    >>> infoscale_in_many_dimensions().proved
    True
    """
    inverse = sympy.Symbol("u", positive=True)
    limit = sympy.limit(sympy.sqrt(_infoscale_square(1 / inverse)), inverse, 0, "+")
    return Identity(limit, sympy.sqrt(sympy.log(KEYS) / sympy.log(LENGTH)))


def infoscale_first_correction() -> Identity:
    """Return lim d(r² − 1) = log L − log n as d → ∞, r the ratio of InfoScale to √(log n/log L).

    So r ≈ 1 − log(n/L)/(2d): the root of log n is InfoScale for log n ≪ d. Chapter: policies.

    >>> infoscale_first_correction().proved
    True
    """
    inverse = sympy.Symbol("u", positive=True)
    excess = _infoscale_square(1 / inverse) * sympy.log(LENGTH) / sympy.log(KEYS) - 1
    limit = sympy.limit(excess / inverse, inverse, 0, "+")
    return Identity(limit, sympy.log(LENGTH) - sympy.log(KEYS))


def t5_initialisation() -> Identity:
    """Return the variance of an unscaled score of T5 at its start: that of a scaled one, 1.

    A query is a sum over the width D of inputs of variance 1 times weights of variance 1/(Dd); a
    score sums d products. Chapter: policies.

    >>> t5_initialisation().proved
    True
    """
    width = sympy.Symbol("D", positive=True)
    query = width / (width * DIMENSION)
    return Identity(DIMENSION * query, DIMENSION * (1 / sympy.sqrt(DIMENSION)) ** 2)


def mup_against_the_root() -> Identity:
    """Return m/d = (1/√d)·√(d₀/d) for m = √d₀: the Transformer's scale at d₀, and smaller beyond.

    m = 8 belongs to d₀ = 64. Chapter: policies.

    >>> mup_against_the_root().proved
    True
    """
    base = sympy.Symbol("d_0", positive=True)
    right = sympy.sqrt(base / DIMENSION) / sympy.sqrt(DIMENSION)
    return Identity(sympy.sqrt(base) / DIMENSION, right)


def normalised_dot_product(d: int) -> Identity:
    """Return q'·k'/√d = √d cos(q, k) for q' and k' brought to length √d.

    QK norm at unit gain, with the Transformer's scale. Chapter: policies.

    >>> normalised_dot_product(2).proved
    True
    """
    q, k = _vectors(d)
    root = sympy.sqrt(d)
    lengths = sympy.sqrt(q.dot(q)), sympy.sqrt(k.dot(k))
    left = (root / lengths[0] * q).dot(root / lengths[1] * k) / root
    return Identity(left, root * q.dot(k) / (lengths[0] * lengths[1]))


def _log_partition(s: Any) -> Any:
    return sympy.log(sum((ALPHA * s).applyfunc(sympy.exp)))


def _over_gaps(quantity: Any) -> Any:
    """Return the integral over s_1 − s_2 = δ from 0 to ∞ of a function of two scores."""
    s, _ = softmax(2)
    w = sympy.Symbol("w", positive=True)  # e^{αδ}
    at_gap = sympy.simplify(quantity.subs({s[0]: sympy.log(w) / ALPHA, s[1]: 0}))
    return sympy.integrate(at_gap / (ALPHA * w), (w, 1, sympy.oo))


def _independent_normals() -> tuple[Any, Any]:
    return (Normal("q", MU_Q, SIGMA_Q), Normal("k", MU_K, SIGMA_K))


def _vectors(d: int) -> tuple[Any, Any]:
    count = checking.integer("d", d, minimum=1)
    return tuple(sympy.Matrix(sympy.symbols(f"{name}1:{count + 1}", real=True)) for name in "qk")


def _infoscale_square(dimension: Any) -> Any:
    return (1 - KEYS ** (-2 / dimension)) / (1 - LENGTH ** (-2 / dimension))
