"""Wrap callables of NumPy's or JAX's arrays as functions of tensors."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

ARRAYS = ("torch", "numpy", "jax")


def of_tensors(function: Callable[..., Any], arrays: str) -> Callable[..., Any]:
    """Wrap a function of `arrays`, "numpy" or "jax", as one of tensors; "torch" changes nothing.

    Tensors become arrays of their dtype; TypeError where `arrays` lacks it. The result, or the
    first of a tuple of results, becomes a tensor on the CPU; what is no array stays as it is.
    """
    if arrays == "torch":
        return function
    if arrays == "jax":
        namespace: Any = import_module("jax.numpy")  # whoever has its arrays has it
    else:
        namespace = np

    def given(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        name = str(value.dtype).removeprefix("torch.")
        wide = value.detach().cpu()
        wide = wide.float() if wide.dtype in (torch.bfloat16, torch.float16) else wide
        try:
            array = namespace.asarray(wide.numpy(), dtype=name)
        except TypeError as error:
            raise TypeError(f"{arrays} has no {name}: give another dtype") from error
        if str(array.dtype) != name:
            raise TypeError(f"{arrays} makes {array.dtype} of {name}: give another dtype")
        return array

    @wraps(function)
    def called(*values: Any, **options: Any) -> Any:
        named = {name: given(value) for name, value in options.items()}
        answer = function(*map(given, values), **named)
        answer = answer[0] if isinstance(answer, tuple) else answer
        kind = str(getattr(answer, "dtype", ""))
        if not hasattr(torch, kind) or not hasattr(answer, "__array__"):
            return answer  # what is no array is refused like any other answer
        wide = np.asarray(answer, dtype=np.float64 if kind == "float64" else np.float32)
        return torch.from_numpy(wide.copy()).to(getattr(torch, kind))

    return called
