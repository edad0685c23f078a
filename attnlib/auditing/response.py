"""Call the attention that is audited, with queries and keys of chosen products.

Values that are unit vectors make the output the weights of groups of keys. Two keys then show the
scale: with a key of content x among keys of content 0, the logarithm of its weight over theirs
grows by the multiplier of q·k times q·x, whatever else the row sees.
"""

import inspect
import math
from collections.abc import Callable
from copy import copy
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlib import _checking
from attnlib._checking import FloatArray

Attention = Callable[..., Any]

ARRAYS = ("torch", "numpy", "jax")
"""What an attention may take and return."""

QUESTION_DIGITS = 5
"""Binary digits of the products that are asked: answers that differ by rounding ask the same."""

NO_WEIGHT = 1e-36
"""A weight that is not above this is that of a hidden key: a large sink leaves small ones."""

LEAST_SUM = 0.9
"""Weights of a row that add up to less, by this of another row's sum, do not by rounding."""

MASK_NAMES = ("attn_mask", "attention_mask", "mask", "bias", "attn_bias")
"""What a mask or a bias is called in signatures, the first that is there."""
CAUSAL_NAMES = ("is_causal", "causal")
GROUPED_NAMES = ("enable_gqa",)
INT4: torch.dtype = getattr(torch, "int4")  # noqa: B009  which its stubs lack
INTEGERS = {torch.int8: 127, INT4: 7}
"""Types of whole numbers in which keys and values are kept, and their largest."""
FUSED = torch.nn.functional.scaled_dot_product_attention


class Interval(NamedTuple):
    """Hold a measured number: its best value, and the two between which it lies."""

    value: float
    low: float
    high: float


def round_binary(number: Any, digits: int = QUESTION_DIGITS) -> Any:
    """Return the nearest number or array of so many binary digits; 2x and −x are rounded alike."""
    mantissa, exponent = np.frexp(np.asarray(number, dtype=np.float64))
    return np.ldexp(np.round(mantissa * 2.0**digits), exponent - digits)


def interval_over_heads(value: FloatArray, error: FloatArray | float) -> Interval:
    """Return the median of the heads' numbers, in an interval of all with their errors."""
    low, high = float((value - error).min()), float((value + error).max())
    return Interval(float(np.median(value)), low, high)


def checked_cap(cap: Any) -> float:
    """Return the bound of a soft cap; ValueError or TypeError unless above 0, or math.inf."""
    number = _checking.number("cap", cap)
    _checking.require("cap", np.asarray(number), number > 0.0, "above 0, or infinite for none")
    return number


class Size(NamedTuple):
    """Hold the number of heads of queries and of keys, and the dimension d of each head."""

    heads: int
    key_heads: int
    dimension: int


class Subject:
    """Call an attention (q, k, v, …) → output with tensors, and return its answers in float64.

    `size` and `dtype` are those of its arguments, `eps` is the relative error of its numbers.
    """

    def __init__(self, function: Attention, size: Size, dtype: torch.dtype, device: str) -> None:
        self.function = function
        self.size = size
        self.dtype = dtype
        self.device = device
        self.mask_dtype = torch.float32 if dtype.itemsize == 1 else dtype  # of numbers in them
        self.eps = float(torch.finfo(dtype).eps)
        self.stored: torch.dtype | None = dtype if dtype.itemsize == 1 else None
        try:
            names = set(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # those of TorchScript and C++ have none
            schema = getattr(function, "schema", None)
            names = {argument.name for argument in schema.arguments} if schema else set()
            if getattr(function, "func", function) is FUSED:
                names = {"attn_mask", "is_causal", "enable_gqa"}
        self.mask_name, self.causal_name, self.grouped_name = (
            next((name for name in usual if name in names), None)
            for usual in (MASK_NAMES, CAUSAL_NAMES, GROUPED_NAMES)
        )
        self.options: dict[str, Any] = {}  # further arguments of every call
        self.value_size = size.dimension
        self.stored_error = 0.0  # of a product, by how keys are stored
        self.weights_error = 0.0  # of a weight, where a kernel rounds them to 8 bits
        self.bias_slopes: FloatArray = np.zeros(1)  # of a bias by distance, in each head
        self.pattern: Callable[[int], np.ndarray] | None = None  # which of n keys each query sees
        self.is_causal = False  # found out by asking: whether it is causal by itself,
        self.normalises = False  # and whether q and k are brought to length 1
        self.anomalies: dict[str, str] = {}
        """What answers had that no softmax has, with the question: see `note_anomaly`."""

    def store_in(self, stored: torch.dtype | None) -> None:
        """Set the type in which the attention keeps keys and values, and the errors that follow.

        A type of 16 bits or more sets `eps`. Under one of 8 bits or fewer, questions have products
        of many numbers at once, and `stored_error` is the largest error of their sum.
        """
        if stored is not None and stored.itemsize > 1:
            self.eps = max(self.eps, float(torch.finfo(stored).eps))
            return
        self.stored = stored or self.stored
        if stored is not None and stored != self.dtype:
            self.stored_error = sum_error(stored, self.size.dimension)
        if self.dtype.itemsize == 1:
            q, k = equal_keys(self, 2, 2)
            self.eps = float(torch.finfo(self.call(self.to_arguments(q, k, k)).dtype).eps)

    def resized(self, *, d: int | None = None, values: int | None = None) -> "Subject":
        """Return this subject with heads of size `d`, or with values of size `values`."""
        other = copy(self)
        other.size = self.size._replace(dimension=d or self.size.dimension)
        other.value_size = values or other.size.dimension
        return other

    def with_options(self, **options: Any) -> "Subject":
        """Return this subject with further arguments in every call."""
        other = copy(self)
        other.options = {**self.options, **options}
        return other

    def with_mask(self, mask: Tensor) -> "Subject":
        """Return this subject with a mask in every call."""
        return self.with_options(**{str(self.mask_name): mask})

    def last_query_alone(self) -> "Subject":
        """Return this subject, called with the last query only; its row stands in all rows."""
        other = copy(self)

        def answer_to_last(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
            return self.call([q[:, :, -1:], k, v]).expand(-1, -1, q.shape[-2], -1)

        other.function = answer_to_last
        return other

    def visible_counts(self, rows: list[int], length: int) -> FloatArray:
        """Return how many of `length` keys each of these rows sees, (rows,)."""
        if self.pattern is not None:
            return np.asarray(self.pattern(length)[rows].sum(axis=-1), dtype=np.float64)
        return np.array([row + 1.0 if self.is_causal else float(length) for row in rows])

    def to_arguments(self, *tensors: Tensor) -> list[Tensor]:
        """Return tensors (heads, tokens, size) as the callable gets them, with an axis before."""
        return [t[None].to(self.dtype).to(self.device) for t in tensors]

    @torch.no_grad()
    def output(self, q: Tensor, k: Tensor, v: Tensor) -> FloatArray:
        """Return the answer, (heads, queries, size of v), in float64.

        q, k and v have the axes (heads, tokens, size) and float64. Raises ValueError, in one line,
        where the callable raises, or its answer is not a tensor or has another shape.
        """
        output = self.call(self.to_arguments(q, k, v))[0].double().cpu().numpy()
        if not self.options:
            self.note_anomaly(q, v, output)
        return output

    def note_anomaly(self, q: Tensor, v: Tensor, output: FloatArray) -> None:
        """Note an answer that is not finite, is 0 as a whole, or has a row of a smaller sum.

        Where all values add up to one number, rows with the query of the last one should add up to
        as much as one another.
        """
        value_sums = v.sum(dim=-1)
        question = f"{q.shape[-2]} queries of {v.shape[-2]} keys"
        question = getattr(self.function, "question", question)  # the name of a file
        if not np.isfinite(output).all():
            self.anomalies.setdefault("NaN", question)
        elif not output.any():
            self.anomalies.setdefault("0", question)
        elif value_sums.min() == value_sums.max():
            same = (q == q[:, -1:]).all(dim=-1).numpy()
            sums = np.where(same, output.sum(axis=-1), np.nan)
            least = LEAST_SUM if self.stored is None else LEAST_SUM / 2.0
            wrong_heads = np.nanmin(sums, axis=-1) < least * np.nanmax(sums, axis=-1)
            if wrong_heads.any():
                of_head = sums[wrong_heads.argmax()]
                share, row = np.nanmin(of_head) / np.nanmax(of_head), np.nanargmin(of_head)
                self.anomalies.setdefault(f"{share:.2g} in row {row}", question)

    def call(self, arguments: list[Tensor]) -> Tensor:
        """Return the answer to q, k, v, all (1, heads, tokens, size). Raises as `output` does."""
        (q, _, v), options = arguments, self.options
        if self.grouped_name and self.size.heads != self.size.key_heads:
            options = {self.grouped_name: True, **options}
        try:
            answer = self.function(*arguments, **options)
        except Exception as error:
            message = " ".join(str(error).split())
            raise ValueError(
                f"the callable raises {type(error).__name__} for q, k and v of the shapes "
                f"{', '.join(str(tuple(t.shape)) for t in arguments)}: {message:.200}"
            ) from error
        answer = answer[0] if isinstance(answer, tuple) and answer else answer
        wanted = (*q.shape[:3], v.shape[-1])
        if not isinstance(answer, Tensor) or answer.shape != wanted:
            got = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            got = "an empty tuple" if isinstance(answer, tuple) and not answer else got
            raise ValueError(f"the callable must return a tensor of shape {wanted}, got {got}")
        return answer

    def weights(self, q: Tensor, k: Tensor, groups: Tensor) -> FloatArray:
        """Return the weight of each group of keys, (heads, queries, number of groups).

        `groups` has the group of each key, a number below the size of v.
        """
        v = torch.nn.functional.one_hot(groups, self.value_size).double()
        v = v.expand(self.size.key_heads, -1, -1)
        return self.output(q, k, v)[..., : int(groups.max()) + 1]


def accept_tensors(function: Callable[..., Any], arrays: str) -> Callable[..., Any]:
    """Return a function of `arrays`, "numpy" or "jax", as one of tensors; "torch" is unchanged.

    Tensors become arrays of their dtype; TypeError where `arrays` lacks it. The result, or the
    first of a tuple of results, becomes a tensor on the CPU; what is no array stays as it is.
    """
    if arrays == "torch":
        return function
    if arrays == "jax":
        namespace: Any = import_module("jax.numpy")  # whoever has its arrays has it
    else:
        namespace = np

    def to_array(argument: Any) -> Any:
        if not isinstance(argument, Tensor):
            return argument
        name = str(argument.dtype).removeprefix("torch.")
        tensor = argument.detach().cpu()
        tensor = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
        try:
            array = namespace.asarray(tensor.numpy(), dtype=name)
        except TypeError as error:
            raise TypeError(f"{arrays} has no {name}: give another dtype") from error
        if str(array.dtype) != name:
            raise TypeError(f"{arrays} makes {array.dtype} of {name}: give another dtype")
        return array

    @wraps(function)
    def of_tensors(*arguments: Any, **options: Any) -> Any:
        named = {name: to_array(option) for name, option in options.items()}
        answer = function(*map(to_array, arguments), **named)
        answer = answer[0] if isinstance(answer, tuple) and answer else answer
        dtype = str(getattr(answer, "dtype", ""))
        if not hasattr(torch, dtype) or not hasattr(answer, "__array__"):
            return answer  # what is no array is refused like any other answer
        array = np.asarray(answer, dtype=np.float64 if dtype == "float64" else np.float32)
        return torch.from_numpy(array.copy()).to(getattr(torch, dtype))

    return of_tensors


def keys_of_product(
    subject: Subject,
    queries: int,
    keys: int,
    special: Tensor,
    x: float,
    *,
    shift: float = 0.0,
    stretch: tuple[float, float] = (1.0, 1.0),
    along: int = 0,
    lengthen: float = 1.0,
    separate: bool = False,
    even: bool = False,
) -> tuple[Tensor, Tensor, FloatArray]:
    """Return queries of length √d, keys of chosen products with them, and the products.

    q is (heads, queries, d), k (key heads, keys, d), rounded to the subject's type. The third has
    q·k, or cos(q, k) where the subject normalises them, of each key numbered in `special`, less
    that of ordinary keys.

    Keys have the component `shift` along the query, special keys `shift` + x, both of a few binary
    digits; what is left of their length, √d or 2|shift| if that is more, lies at a right angle. The
    query has the component `along` only. `stretch` multiplies q and k, `lengthen` special keys.
    With `separate`, and where keys are kept in 8 bits or fewer, `shift` and x have components of
    their own. `even` then gives those of q one size, which such types keep exactly, and x is
    approximate.
    """
    heads, key_heads, d = subject.size
    root = math.sqrt(d)
    x, shift = float(round_binary(x)), float(round_binary(shift))
    if separate or subject.stored is not None:
        even = even and not subject.normalises
        q, k = _many_components(subject, queries, keys, special, x, shift, along, even)
    else:
        length = max(root, 2.0 * abs(shift))
        q = torch.zeros(heads, queries, d, dtype=torch.float64)
        q[..., along] = root
        k = torch.zeros(key_heads, keys, d, dtype=torch.float64)
        component = torch.full((keys,), shift, dtype=torch.float64)
        component[special] = shift + x
        k[..., along] = component
        k[..., (along + 3) % d] = (length**2 - component**2).clamp(min=0.0).sqrt()
    k[:, special] *= lengthen
    stretched = (q * stretch[0], k * stretch[1])
    q, k = (t.to(subject.dtype).double() for t in stretched)  # as the callable gets them
    product = torch.einsum("d,md->m", q[0, 0], k[0])
    if subject.normalises:
        product = product / (q[0, 0].norm() * k[0].norm(dim=-1))
    ordinary = torch.ones(keys, dtype=torch.bool)
    ordinary[special] = False
    reference = int(ordinary.nonzero()[0]) if bool(ordinary.any()) else int(special[0])
    return q, k, (product[special] - product[reference]).numpy()


def log_spaced(count: int) -> Tensor:
    """Return rising numbers between 1 and 2, evenly spaced in their logarithm."""
    return torch.exp2((torch.arange(count, dtype=torch.float64) + 0.5) / count)


def component_counts(d: int) -> tuple[int, int]:
    """Return how many of d components hold x in special keys, and how many all keys' shift."""
    shared = max(1, min(15, d // 4))
    return min(48, d - 1 - shared), shared


def sum_error(stored: torch.dtype, d: int) -> float:
    """Return the largest relative error of the sum of a key's numbers, kept in the type `stored`.

    The numbers are from 1 to 2, and the scales those that map the type's largest number to 2 to 16,
    in 4 bits, where a few numbers have a scale of their own, to 2 to 4.
    """
    numbers = log_spaced(component_counts(d)[0])
    largest = INTEGERS.get(stored) or torch.finfo(stored).max
    octaves = 1.0 if stored == INT4 else 3.0
    scale = torch.exp2(torch.linspace(1.0, 1.0 + octaves, 257, dtype=torch.float64))[:, None]
    kept = numbers / scale * largest
    kept = kept.round() if stored in INTEGERS else kept.float().to(stored).double()
    kept *= scale / largest
    return float((kept.sum(-1) / numbers.sum() - 1.0).abs().max())


def _many_components(
    subject: Subject,
    queries: int,
    keys: int,
    special: Tensor,
    x: float,
    shift: float,
    along: int,
    even: bool,
) -> tuple[Tensor, Tensor]:
    """Return q and k where x and `shift` have many components each: `keys_of_product`, separate.

    Those of keys have sizes from 1 to 2, so that the size of q alone makes products large.
    """
    heads, key_heads, d = subject.size
    varying, shared = component_counts(d)
    sizes = [abs(x) or 1.0, abs(shift) or 1.0]
    if even:
        if x and shift:
            both = varying + shared
            varying = round(both * abs(x) / (abs(x) + abs(shift)))
            varying = min(max(varying, 4), both - 4)
            shared = both - varying
            sizes[0] = abs(shift) * float(log_spaced(varying).sum() / log_spaced(shared).sum())
        else:  # the other has no part in the product
            ratio = float(log_spaced(shared).sum() / log_spaced(varying).sum())
            sizes = [shift / ratio or x or 1.0, x * ratio or shift or ratio]
            sizes = [abs(size) for size in sizes]
    order = (along + torch.arange(d)) % d
    q = torch.zeros(heads, queries, d, dtype=torch.float64)
    k = torch.zeros(key_heads, keys, d, dtype=torch.float64)
    k[..., order[varying + shared :]] = 2.0
    for components, size, q_size, key_indices in (
        (order[:varying], x, sizes[0], special),
        (order[varying : varying + shared], shift, sizes[1], torch.arange(keys)),
    ):
        numbers = log_spaced(len(components))
        if subject.stored is None:
            numbers = torch.from_numpy(round_binary(numbers))  # exact in 16 bits
        digits = QUESTION_DIGITS if subject.stored is None else 3  # exact in 8 bits
        component = q_size * math.sqrt(d) / float(numbers.sum())
        q[..., components] = float(round_binary(component, digits))
        k[:, key_indices[:, None], components] = numbers * np.sign(size)
    return q, k


def equal_keys(
    subject: Subject, queries: int, keys: int, shift: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return queries and equal keys, (heads, tokens, d), with the component `shift` along them."""
    return keys_of_product(subject, queries, keys, torch.tensor([0]), 0.0, shift=shift)[:2]


def row_sums(subject: Subject, q: Tensor, k: Tensor, factor: float = 1.0) -> FloatArray:
    """Return the sum of each row's weights, (heads, queries).

    All keys have one value, with components of several sizes, which `factor` multiplies.
    """
    value = factor * log_spaced(subject.value_size).to(subject.dtype).double()
    v = value.expand(subject.size.key_heads, k.shape[1], -1)
    return np.asarray(subject.output(q, k, v).sum(axis=-1) / float(value.sum()))


def log_odds(subject: Subject, q: Tensor, k: Tensor, rows: Tensor, special: Tensor) -> FloatArray:
    """Return log(weight of a row's special key / weight of its ordinary keys), (heads, rows).

    Row rows[i] has the special key special[i]; those of other rows count for neither.
    """
    groups = torch.full((k.shape[-2],), len(special))
    groups[special] = torch.arange(len(special))
    weights = subject.weights(q, k, groups)[:, rows.numpy()]
    of_special = weights[:, np.arange(len(rows)), np.arange(len(special))]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(of_special) - np.log(weights[..., len(special)]))
