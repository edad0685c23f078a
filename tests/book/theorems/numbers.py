"""Numbers for the letters of the formulas: rows, and means over them by quadrature."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import roots_genlaguerre, roots_jacobi

Array = NDArray[np.float64]
Axis = tuple[Array, Array]  # points and their weights, which sum to 1
Mean = Callable[[Any], float]


@cache
def normal(points: int = 40) -> Axis:
    """Return N(0, 1)."""
    x, w = np.polynomial.hermite_e.hermegauss(points)
    return x, w / w.sum()


@cache
def cosine(d: int, points: int = 40) -> Axis:
    """Return the first coordinate of a random direction in d dimensions."""
    x, w = roots_jacobi(points, (d - 3) / 2, (d - 3) / 2)
    return x, w / w.sum()


@cache
def chi_square(d: int, points: int = 40) -> Axis:
    """Return the sum of the squares of d normal numbers."""
    x, w = roots_genlaguerre(points, d / 2 - 1)
    return 2 * x, w / w.sum()


def discrete(values: Sequence[float], weights: Sequence[float] | None = None) -> Axis:
    """Return a law of a few values, equally probable unless `weights` says otherwise."""
    x = np.asarray(values, dtype=float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=float)
    return x, w / w.sum()


COIN = discrete([-1.0, 1.0])


def independent(*axes: Axis) -> tuple[list[Array], Mean]:
    """Return independent numbers as flat arrays over all their joint values, and the mean."""
    grids = np.meshgrid(*(x for x, _ in axes), indexing="ij")
    weights = np.ones(1)
    for _, w in axes:
        weights = np.outer(weights, w).ravel()
    return [grid.ravel() for grid in grids], lambda value: float(np.sum(weights * value))


def of_row(s: Sequence[Any], alpha: float) -> dict[str, Any]:
    """Return the letters of a row of scores s_i, each a number, or an array over many rows."""
    powers = [np.exp(alpha * score) for score in s]
    total = sum(powers)
    p = [power / total for power in powers]
    n = len(s)
    return {
        "s": list(s),
        "p": p,
        "n": n,
        "Z": total,
        "Y": sum(weight**2 for weight in p),
        r"\alpha": alpha,
        "i in": range(n),
        "j in": range(n),
        "i": 0,
        "j": 1,
    }


def itself(value: Any) -> Any:
    """Stand for E where the letters are means already."""
    return value


def variance(mean: Mean) -> Mean:
    """Return Var for a mean."""
    return lambda value: mean(value * value) - mean(value) ** 2


def slope(function: Callable[[float], Any], at: float, step: float = 1e-4) -> Any:
    """Return a derivative to about ten digits, by differences of fourth order."""
    near = function(at + step) - function(at - step)
    far = function(at + 2 * step) - function(at - 2 * step)
    return (8 * near - far) / (12 * step)


def highest(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return where a function is largest between two ends, and how large."""
    optimum = minimize_scalar(
        lambda x: -function(x), bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    return float(optimum.x), -float(optimum.fun)


def jacobian(function: Callable[[Array], Array], at: Array, step: float = 1e-3) -> Array:
    """Return the matrix of the derivatives of a function of several numbers."""

    def along(index: int) -> Any:
        unit = np.eye(len(at))[index]
        return slope(lambda x: function(at + x * unit), 0.0, step)

    return np.stack([along(index) for index in range(len(at))], axis=-1)


@cache
def some_rows() -> tuple[Array, ...]:
    """Return a few rows of scores of 2 to 6 keys."""
    generator = np.random.default_rng(7)
    return tuple(generator.standard_normal(n) for n in (2, 3, 6))
