"""Tell by the name of a function of PyTorch what it does to logits and weights."""

import re
from typing import Literal

from attnlib.models.torch_internals import cached_in_graphs

PLAIN_PRODUCTS = ("matmul", "__matmul__", "bmm")
OPERAND_KEYWORDS = ("input", "batch1", "batch2", "mat2", "other")
"""The keywords of a product's operands, in their order."""
CONTAINERS = (list, tuple, dict)
"""Types of arguments that hold other arguments."""

Kind = Literal[
    "product", "softmax", "composed softmax", "contraction", "kernel", "end", "in place", "same",
    "exchange", "scale", "reshape", "keeps scale", "by entry", "sum", "join", "square", "fill",
    "keeps weights", "exponential", "mix", "random", "fact", "alias", "repeats",
]  # fmt: skip

_PRODUCTS = "__r?matmul__|matmul|linalg_matmul|bmm|baddbmm_?|einsum"
_EXCHANGES = "transpose|permute|mT|T|swap.*|move.*|flip|roll|gather|index_select|take.*"
_SCALES = "(__r?i?)?(mul|truediv|div|multiply|divide)_*"
_RESHAPES = "view.*|reshape.*|.*flatten|.*squeeze"
_SUMS = "(__r?i?)?(add|sub)_*"
_EXPONENTIALS = "exp2?_?|expm1_?|__rpow__"
_KEEPS = (
    f"{_RESHAPES}|{_EXCHANGES}|(__r?i?)?(add|sub|masked_fill)_*|where|to|float|double|half|bfloat16|"
    "type.*|contiguous|__setitem__|cat|stack|pad|expand.*|dropout|clone|(__)?getitem(__)?"
)

PATTERNS: dict[Kind, str] = {
    "product": _PRODUCTS,
    "softmax": "softmax|_softmax|special_softmax",
    # It makes weights of logits inside, where they cannot be changed.
    "composed softmax": "softmin|(?!log).*_softmax",
    # It may average values with weights.
    "contraction": (
        f"{_PRODUCTS}|(_?sparse_)?(add)?(mm|mv)|addbmm|tensordot|inner|linear|(linalg_)?(vec)?dot"
    ),
    "kernel": "(?!flex_).*(attention|attn).*",
    # Its result has no record.
    "end": (
        "linear|conv.d|.*_norm|embedding|.*_loss|cross_entropy|grad|scaled_.*|"
        "(linalg_)?(svd|eigh?|qr)"
    ),
    "in place": ".*[^_]_|__setitem__|__i(add|sub|mul|truediv|div|pow|and|or)__",
    "exchange": _EXCHANGES,
    "scale": _SCALES,
    "reshape": _RESHAPES,
    # It leaves the number that multiplies the product as it is.
    "keeps scale": _KEEPS,
    # It changes each logit by itself.
    "by entry": (
        f"{_SCALES}|(__r?i?)?(add|sub|masked_fill)_*|where|to|float|double|half|bfloat16|clone"
    ),
    "sum": _SUMS,
    "join": f"{_SUMS}|cat|concat|concatenate|[hv]?stack|where|__setitem__",
    "square": "square|(__)?pow(__)?|norm|linalg_(vector_)?norm",
    "fill": "__setitem__|masked_fill_*|where",
    # It leaves weights as the softmax has made them.
    "keeps weights": (
        f"{_RESHAPES}|to|float|double|half|bfloat16|type.*|contiguous|clone|expand.*|.*dropout.*|"
        "detach_?|data"
    ),
    "exponential": _EXPONENTIALS,
    # It multiplies entry by entry.
    "mix": "mul_?|multiply|__r?mul__",
    # It draws other numbers each time.
    "random": "bernoulli_?|rrelu_?|multinomial|poisson|normal_?|(log_normal|uniform|exponential)_",
    # It describes a tensor and returns none.
    "fact": "shape|dtype|device|layout|ndim|dim|size|numel|stride|is_.*|requires_grad|__len__",
    # It gives access to a tensor's memory, where a write does not change its version.
    "alias": (
        "data|__set__|data_ptr|numpy|__array__|.*storage|.*dlpack.*|__cuda_array_interface__"
    ),
    # It is known to return the same for the same arguments.
    "repeats": (
        f"{_KEEPS}|{_SCALES}|{_PRODUCTS}|{_EXPONENTIALS}|tanh_?|sigmoid_?|clamp.*|relu.*|softplus|"
        "abs_?|neg_?|pow_?|sqrt_?|log_?|log1p_?|tri[lu]_?|max|min|amax|amin"
    ),
    "same": f"{_RESHAPES}|{_EXCHANGES}|masked_fill_*|to|float|contiguous",
}


@cached_in_graphs
def kinds_of(name: str) -> tuple[Kind, ...]:
    """Return the kinds of a function of this name: those whose pattern is the whole name."""
    return tuple(kind for kind, pattern in PATTERNS.items() if re.fullmatch(pattern, name))
