"""Laws of one attention score, and of a row of them.

A score is the number s that the softmax sees before α under study: s = q·k/√d for dot
products, s = cos(q, k) for normalised ones. Three laws: the normal approximation, the dot product
at finite d, and the cosine.

Chapters: variance, saturation.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlog1py

from attnlib import checking
from attnlib.checking import FloatArray
from attnlib.special import (
    BesselSeries,
    log_bessel_i_normalised,
    log_bessel_k_normalised,
    log_gamma_half_step,
)

TINY = 1e-150
"""Below it α² is lost to underflow, and the first term of a series in α is exact to rounding."""


class Law(ABC):
    """The law of a row of n scores: its one-score moments and density, and samples of rows."""

    @property
    def mean(self) -> float:
        """E s = 0: all laws here are symmetric."""
        return 0.0

    @property
    @abstractmethod
    def variance(self) -> float:
        """Var s."""

    @abstractmethod
    def logpdf(self, s: ArrayLike) -> FloatArray:
        """Return log f(s), the log density of one score, elementwise."""

    def sample(self, rng: np.random.Generator, rows: int, n: int) -> FloatArray:
        """Return `rows` independent rows of `n` scores, shape (rows, n).

        Raises TypeError when `rng` is not a Generator or `rows`, `n` are not integers, ValueError
        when `rows` or `n` is below 1.
        """
        checking.generator("rng", rng)
        shape = (
            checking.integer("rows", rows, minimum=1),
            checking.integer("n", n, minimum=1),
        )
        return self._sample(rng, *shape)

    @abstractmethod
    def _sample(self, rng: np.random.Generator, rows: int, n: int) -> FloatArray: ...


@dataclass(frozen=True)
class Normal(Law):
    """Independent standard normal scores: the limit d → ∞ of `DotProduct`.

    Chapter: variance.

    >>> float(Normal().log_mgf(2.0))
    2.0
    """

    @property
    def variance(self) -> float:
        """Var s = 1."""
        return 1.0

    def log_mgf(self, alpha: ArrayLike) -> FloatArray:
        """Return κ(α) = log E e^{αs} = α²/2, elementwise in α ≥ 0.

        Exact to rounding; infinite where α² exceeds the largest float (α > 10¹⁵⁴).
        """
        a = checking.scale(alpha)
        with np.errstate(over="ignore"):
            return a * a / 2.0

    def log_mgf_ratio(self, alpha: ArrayLike) -> FloatArray:
        """Return κ(2α) − 2κ(α) = α², elementwise in α ≥ 0; exact to rounding."""
        a = checking.scale(alpha)
        with np.errstate(over="ignore"):
            return a * a

    def logpdf(self, s: ArrayLike) -> FloatArray:
        """Return log f(s) = −s²/2 − ½ log 2π, elementwise; exact to rounding."""
        x = checking.real("s", s)
        with np.errstate(over="ignore"):
            return cast(FloatArray, -0.5 * x * x - 0.5 * np.log(2.0 * np.pi))

    def _sample(self, rng: np.random.Generator, rows: int, n: int) -> FloatArray:
        return rng.standard_normal((rows, n))


@dataclass(frozen=True)
class DotProduct(Law):
    """Scores s_i = q·k_i/√d of one Gaussian query and n Gaussian keys, d ≥ 1.

    Given the query, the scores are independent N(0, |q|²/d), exactly and at any d. So a row is a
    normal row with a random radius, |q|²/d = χ²_d/d, shared by all its scores: they are
    uncorrelated but not independent, Cov(s_i², s_j²) = 2/d.

    Chapters: variance (the mixture), saturation (what a finite d changes).

    >>> law = DotProduct(64)
    >>> law.variance, float(law.log_mgf(8.0))
    (1.0, inf)
    """

    d: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", checking.integer("d", self.d, minimum=1))

    @property
    def variance(self) -> float:
        """Var s = 1: the variance d of q·k, divided by (√d)²."""
        return 1.0

    def log_mgf(self, alpha: ArrayLike) -> FloatArray:
        """Return κ(α) = −(d/2) log(1 − α²/d) of one score, elementwise in α ≥ 0.

        Infinite for α ≥ √d, where the mean does not exist. The relative error is a few units of
        rounding divided by 1 − α²/d, for α ≥ 1e-150: 1e-15 except close to the pole.
        """
        below, x = self._fraction(alpha, self._pole())
        with np.errstate(divide="ignore"):
            return cast(FloatArray, np.where(below, -0.5 * self.d * np.log1p(-x), np.inf))

    def log_mgf_ratio(self, alpha: ArrayLike) -> FloatArray:
        """Return κ(2α) − 2κ(α), elementwise in α ≥ 0; infinite for α ≥ √d/2.

        With x = α²/d it is −(d/2) log1p(−x(2 + x)/(1 − x)²), which subtracts nothing large. The
        relative error is a few units of rounding divided by 1 − 4x.
        """
        below, x = self._fraction(alpha, self._pole() / 2.0)
        lost = np.minimum(x * (2.0 + x) / (1.0 - x) ** 2, 1.0)
        with np.errstate(divide="ignore"):
            return cast(FloatArray, np.where(below, -0.5 * self.d * np.log1p(-lost), np.inf))

    def logpdf(self, s: ArrayLike) -> FloatArray:
        """Return log f(s) of one score, elementwise, with f(s) = √d h(√d s),
        h(x) = (|x|/2)^ν K_ν(|x|) / (√π Γ(ν + ½)), ν = (d − 1)/2.

        Accurate to 1e-12 relative to 1 + |value| for d ≤ 10⁶. At d = 1 the density is infinite
        at 0.
        """  # noqa: D205
        with np.errstate(over="ignore"):
            x = np.sqrt(self.d) * np.abs(checking.real("s", s))
        infinite = np.isinf(x)
        value = log_bessel_k_normalised((self.d - 1) / 2.0, np.where(infinite, 1.0, x))
        return cast(FloatArray, np.where(infinite, -np.inf, value) + 0.5 * np.log(self.d))

    def _sample(self, rng: np.random.Generator, rows: int, n: int) -> FloatArray:
        radius = np.sqrt(rng.chisquare(self.d, size=(rows, 1)) / self.d)
        return cast(FloatArray, radius * rng.standard_normal((rows, n)))

    def _pole(self) -> float:
        """Return the smallest float not below √d."""
        root = float(np.sqrt(self.d))
        return root if Fraction(root) ** 2 >= self.d else float(np.nextafter(root, np.inf))

    def _fraction(self, alpha: ArrayLike, pole: float) -> tuple[NDArray[np.bool_], FloatArray]:
        """Return where α < `pole`, and α²/d there, which rounding must not carry beyond 1."""
        a = checking.scale(alpha)
        below = a < pole
        a = np.where(below, a, 0.0)
        return below, np.minimum(a * (a / self.d), 1.0)


@dataclass(frozen=True)
class Cosine(Law):
    """Scores s_i = cos(q, k_i) of directions uniform on the sphere in d ≥ 3 dimensions.

    The scores of a row are independent, with density ∝ (1 − s²)^{(d−3)/2} on [−1, 1].

    Chapter: cosine.

    >>> Cosine(128).variance
    0.0078125
    >>> float(Cosine(3).log_mgf(2.0))  # log(sinh 2 / 2)
    0.5952...
    """

    d: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", checking.integer("d", self.d, minimum=3))

    @property
    def variance(self) -> float:
        """Var s = 1/d."""
        return 1.0 / self.d

    def log_mgf(self, alpha: ArrayLike) -> FloatArray:
        """Return κ(α) = log E e^{αs} = log ₀F₁(; d/2; α²/4), elementwise in α ≥ 0.

        ₀F₁(; d/2; α²/4) = Γ(d/2)(2/α)^{d/2−1} I_{d/2−1}(α). Relative error below 1e-12 for
        d ≤ 10⁶ and α ≤ 10¹². Up to α = 2√d it is the power series, whose terms are all positive;
        beyond, `special.log_bessel_i_normalised`.
        """
        a = checking.scale(alpha)
        return np.where(self._is_small(a), self._series(a), a - self._bessel(a).deficit)

    def log_mgf_ratio(self, alpha: ArrayLike) -> FloatArray:
        """Return κ(2α) − 2κ(α), elementwise in α ≥ 0.

        Error below 1e-12 of 1 + the value, for d ≤ 10⁶ and α ≤ 10¹². At large α the parts of κ
        that are linear in α cancel: it is 2D(α) − D(2α) with D(α) = α − κ(α).
        """
        a = checking.scale(alpha)
        with np.errstate(over="ignore"):
            double = 2.0 * a
        series = self._series(double) - 2.0 * self._series(a)
        deficit = self._bessel(a).deficit
        # Where 2α exceeds the largest float, D(2α) = D(α) + ½(d − 1) log 2 to rounding.
        doubled = np.where(
            np.isfinite(double),
            self._bessel(double).deficit,
            deficit + 0.5 * (self.d - 1) * np.log(2.0),
        )
        return np.where(self._is_small(double), series, 2.0 * deficit - doubled)

    def log_mgf_derivatives(self, alpha: ArrayLike) -> BesselSeries:
        """Return α − κ, κ', 1 − κ' and κ'' at α, elementwise in α ≥ 0.

        κ'(α) = I_{d/2}(α)/I_{d/2−1}(α) is the mean of s under the density tilted by e^{αs}, and
        κ''(α) its variance: 0 and 1/d at α = 0. Relative errors below 1e-12 of 1 + α − κ and of
        the other three, for d ≤ 10⁶ and α ≤ 10¹².
        """
        a = checking.scale(alpha)
        at = self._bessel(a)
        tiny = a < TINY
        return BesselSeries(
            np.where(tiny, a, at.deficit),
            np.where(tiny, a / self.d, at.first),
            np.where(tiny, 1.0, at.first_complement),
            np.where(tiny, 1.0 / self.d, at.second),
        )

    def _is_small(self, alpha: FloatArray) -> NDArray[np.bool_]:
        return cast(NDArray[np.bool_], alpha <= 2.0 * np.sqrt(self.d))

    def _series(self, alpha: FloatArray) -> FloatArray:
        """Return log Σ_j (α²/4)^j / (j! (d/2)_j), where α is small; the rest is not used."""
        quarter = np.where(self._is_small(alpha), alpha, 0.0) ** 2 / 4.0
        term = np.ones_like(quarter)
        total = np.zeros_like(quarter)
        for j in range(1, 31):
            term = term * (quarter / (j * (self.d / 2.0 + j - 1.0)))
            total = total + term
        return np.log1p(total)

    def _bessel(self, alpha: FloatArray) -> BesselSeries:
        """Return the Bessel form; 1 stands in for tiny α and ∞, which the caller overrules."""
        inside = (alpha >= TINY) & np.isfinite(alpha)
        return log_bessel_i_normalised(self.d / 2.0 - 1.0, np.where(inside, alpha, 1.0))

    def logpdf(self, s: ArrayLike) -> FloatArray:
        """Return log f(s), elementwise; −∞ outside [−1, 1].

        f(s) = Γ(d/2) / (√π Γ((d−1)/2)) · (1 − s²)^{(d−3)/2}, accurate to 1e-12 relative to
        1 + |value| for d ≤ 10⁶.
        """
        x = checking.real("s", s)
        normaliser = log_gamma_half_step(np.array((self.d - 1) / 2.0)) - 0.5 * np.log(np.pi)
        inside = np.abs(x) <= 1.0
        bounded = np.where(inside, x, 0.0)
        exponent = (self.d - 3) / 2.0
        # 1 − s² loses digits near ±1, and log(1 − s) + log(1 + s) loses them near 0.
        power = np.where(
            np.abs(bounded) < 0.5,
            xlog1py(exponent, -bounded * bounded),
            xlog1py(exponent, -bounded) + xlog1py(exponent, bounded),
        )
        value = normaliser + power
        return cast(FloatArray, np.where(inside, value, -np.inf))

    def _sample(self, rng: np.random.Generator, rows: int, n: int) -> FloatArray:
        along = rng.standard_normal((rows, n))
        across = rng.chisquare(self.d - 1, size=(rows, n))
        return along / np.sqrt(along**2 + across)


AnyLaw = Normal | Cosine | DotProduct


def check_law(law: AnyLaw) -> None:
    """Raise TypeError for anything but one of the three laws."""
    if not isinstance(law, AnyLaw):
        raise TypeError(f"law must be Normal(), Cosine(d) or DotProduct(d), got law={law!r}")


class ProductMoments(NamedTuple):
    """Mean and variance of a product of two independent variables."""

    mean: FloatArray
    variance: FloatArray


def product_moments(
    mean_q: ArrayLike, variance_q: ArrayLike, mean_k: ArrayLike, variance_k: ArrayLike
) -> ProductMoments:
    """Return mean and variance of q·k for independent scalars q and k, elementwise.

    E(qk) = μ_q μ_k and Var(qk) = σ_q²σ_k² + σ_q²μ_k² + μ_q²σ_k², which is
    (σ_q² + μ_q²)(σ_k² + μ_k²) − μ_q²μ_k² without its cancellation. Exact to rounding. The product
    σ_q²σ_k² alone is right only when both means are zero. Sources 001 and 004; chapter: variance.

    >>> moments = product_moments(0.0, 1.0, 0.0, 1.0)
    >>> float(moments.mean), float(moments.variance)
    (0.0, 1.0)
    """
    mq = checking.finite("mean_q", mean_q)
    vq = checking.finite("variance_q", variance_q, minimum=0.0)
    mk = checking.finite("mean_k", mean_k)
    vk = checking.finite("variance_k", variance_k, minimum=0.0)
    mq, vq, mk, vk = checking.broadcast(mean_q=mq, variance_q=vq, mean_k=mk, variance_k=vk)
    with np.errstate(over="ignore", invalid="ignore"):
        return ProductMoments(mq * mk, vq * vk + vq * mk * mk + vk * mq * mq)
