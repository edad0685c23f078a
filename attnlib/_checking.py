"""Check arguments: every error names the argument, its value and what is allowed.

This module imports no other module of attnlib.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

LARGEST_INTEGER = 2**53
"""Beyond it a float64 no longer holds every integer."""


def real(name: str, value: ArrayLike) -> FloatArray:
    """Return `value` as a float64 array of the same shape.

    Raises TypeError for anything but real numbers, ValueError for a NaN and lines of other lengths.

    >>> real("s", [1, 2])
    array([1., 2.])
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(
            f"{name} must be a rectangular array, got {name}={_short(value)}"
        ) from None
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} must be real numbers, got {name}={_short(value)} of type {array.dtype}"
        )
    with np.errstate(over="ignore"):  # long doubles beyond float64 become infinite
        array = array.astype(np.float64)
    if np.isnan(array).any():
        raise ValueError(f"{name} must not contain NaN, got {name}={_short(value)}")
    return array


def finite(name: str, value: ArrayLike, *, minimum: float = -np.inf) -> FloatArray:
    """Return `value` as float64; TypeError unless real, ValueError unless finite, ≥ `minimum`.

    >>> finite("alpha", 2, minimum=0.0)
    array(2.)
    """
    array = real(name, value)
    kind = "finite" if minimum == -np.inf else f"finite and at least {minimum:g}"
    require(name, array, np.isfinite(array) & (array >= minimum), kind)
    return array


def require(name: str, array: FloatArray, allowed: ArrayLike, kind: str) -> None:
    """Raise ValueError, with the first number that is not `allowed`, unless all are of a kind."""
    wrong = ~np.asarray(allowed)
    if wrong.any():
        raise ValueError(f"{name} must be {kind}, got {name}={array[wrong].flat[0]:g}")


def number(name: str, value: ArrayLike) -> float:
    """Return `value` as a float; TypeError unless real, ValueError unless single and not NaN."""
    array = real(name, value)
    if array.ndim:
        raise ValueError(f"{name} must be a single number, got {name}={_short(value)}")
    return float(array)


def finite_number(name: str, value: Any, minimum: float) -> float:
    """Return `value` as a float; raises as `finite`, and ValueError unless it is single."""
    return float(finite(name, number(name, value), minimum=minimum))


def positive(name: str, value: Any) -> float:
    """Return `value` as a float; TypeError unless real, ValueError unless single, finite and > 0.

    >>> positive("learning_rate", 1)
    1.0
    """
    result = number(name, value)
    require(name, np.asarray(result), 0.0 < result < np.inf, "a finite number above 0")
    return result


def flag(name: str, value: Any) -> bool:
    """Return `value`; TypeError unless it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {name}={_short(value)}")
    return value


def instance(name: str, value: Any, kind: type | UnionType) -> None:
    """Raise TypeError unless `value` is an instance of `kind`."""
    if not isinstance(value, kind):
        allowed = kind.__name__ if isinstance(kind, type) else kind
        raise TypeError(f"{name} must be of {allowed}, got {name}={_short(value)}")


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Return `value`; TypeError unless it is a string, ValueError unless it is in `allowed`.

    >>> choice("mask", "causal", ["causal", "none"])
    'causal'
    """
    words = ", ".join(map(repr, allowed))
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {words}, got {name}={_short(value)}")
    if value not in allowed:
        raise ValueError(f"{name} must be one of {words}, got {name}={_short(value)}")
    return value


def alpha(value: ArrayLike) -> FloatArray:
    """Return the inverse temperature α ≥ 0 as float64; raises as `finite`."""
    return finite("alpha", value, minimum=0.0)


def keys(n: ArrayLike) -> FloatArray:
    """Return the number of keys n ≥ 1 as float64; raises as `finite`."""
    return finite("n", n, minimum=1.0)


def whole_keys(n: ArrayLike) -> FloatArray:
    """Return n as float64; TypeError unless real, ValueError unless whole, from 1 to 2⁵³."""
    counts = keys(n)
    whole = (counts == np.floor(counts)) & (counts <= LARGEST_INTEGER)
    require("n", counts, whole, "whole numbers from 1 to 2**53")
    return counts


def integer(name: str, value: Any, *, minimum: int, maximum: int = LARGEST_INTEGER) -> int:
    """Return `value` as an int; TypeError unless integer, ValueError below or above the limits.

    >>> integer("d", 64, minimum=1)
    64
    """
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an integer, got {name}={_short(value)} of type {type(value).__name__}"
        ) from None
    if not minimum <= number <= maximum:
        raise ValueError(f"{name} must be from {minimum} to {maximum}, got {name}={_short(number)}")
    return number


def batches(name: str, value: Any) -> list[Any]:
    """Return the batches of an iterable as a list; TypeError for a single batch or no iterable.

    >>> batches("train", "text")
    Traceback (most recent call last):
    TypeError: train must be a list of batches, each as the loss takes it, got one str: give [batch]
    """
    if (
        isinstance(value, str | Mapping)
        or hasattr(value, "shape")
        or not isinstance(value, Iterable)
    ):
        shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        raise TypeError(
            f"{name} must be a list of batches, each as the loss takes it, got one "
            f"{type(value).__name__}{shape}: give [batch]"
        )
    return list(value)


def generator(name: str, value: Any) -> np.random.Generator:
    """Return `value`; TypeError unless it is a numpy.random.Generator."""
    if not isinstance(value, np.random.Generator):
        raise TypeError(
            f"{name} must be a numpy.random.Generator, for example numpy.random.default_rng(0), "
            f"got {name}={_short(value)}"
        )
    return value


def rows(name: str, array: FloatArray) -> FloatArray:
    """Return `array`; ValueError unless it has a last axis with one number or more."""
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(
            f"{name} must hold one number or more along its last axis, got shape {array.shape}"
        )
    return array


def broadcast(**arrays: FloatArray) -> tuple[FloatArray, ...]:
    """Return the arrays broadcast against each other; a ValueError names them by their keywords.

    >>> [a.shape for a in broadcast(alpha=np.zeros(3), n=np.zeros((2, 1)))]
    [(2, 3), (2, 3)]
    """
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = " and ".join(str(array.shape) for array in arrays.values())
        raise ValueError(f"{' and '.join(arrays)} must broadcast, got shapes {shapes}") from None


def _short(value: Any) -> str:
    """Return the repr of `value` on one line, cut to 80 characters."""
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        return f"{'-' if value < 0 else ''}an integer of {value.bit_length()} bits"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more digits than Python prints
        text = f"a {type(value).__name__} of integers too long to print"
    return text if len(text) <= 80 else text[:77] + "..."
