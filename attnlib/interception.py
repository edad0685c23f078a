"""Where PyTorch's attention can be seen: for contexts that watch or change a foreign model.

A TorchFunctionMode gets every call of scaled_dot_product_attention in its thread, whatever name it
was imported under. But a function of PyTorch that is written in Python it gets whole.
"""

import types
from typing import Any

import torch
from torch.nn import functional

_OPERATOR = torch.ops.aten.scaled_dot_product_attention

ATTENTION = (functional.scaled_dot_product_attention, _OPERATOR, _OPERATOR.default)
"""What a mode gets for a call of attention. The arguments are the same."""


def seen_from_inside(function: Any) -> Any:
    """Return a copy of a function of PyTorch that hands itself to no mode.

    A mode that gets such a function whole does not see what it calls, and when it calls it again
    it gets it again.
    """
    names = dict(function.__globals__)
    for check in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        names[check] = lambda *tensors: False
    copy = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


MULTI_HEAD = functional.multi_head_attention_forward
"""What nn.MultiheadAttention calls."""

MULTI_HEAD_FROM_INSIDE = seen_from_inside(MULTI_HEAD)
"""The same function; called within a mode, it shows that mode its call of attention."""
