"""Measure the answers of a callable to queries, keys and values chosen for that.

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

from attnlib._checking import FloatArray

Attention = Callable[..., Any]

ARRAYS = ("torch", "numpy", "jax")
"""What an attention may take and return."""

DIGITS = 5
"""Binary digits of the products that are asked: answers that differ by rounding ask the same."""

NONE = 1e-36
"""A weight that is not above this is that of a hidden key: a large sink leaves small ones."""

SUM = 0.9
"""Weights of a row that add up to less, by this of another row's sum, do not by rounding."""

MASKS = ("attn_mask", "attention_mask", "mask", "bias", "attn_bias")
"""What a mask or a bias is called in signatures, the first that is there."""
CAUSAL = ("is_causal", "causal")
GROUPED = ("enable_gqa",)
INT4: torch.dtype = getattr(torch, "int4")  # noqa: B009  which its stubs lack
WHOLE = {torch.int8: 127, INT4: 7}
"""Types of whole numbers in which keys and values are kept, and their largest."""
FUSED = torch.nn.functional.scaled_dot_product_attention


class Interval(NamedTuple):
    """Hold a measured number: its best value, and the two between which it lies."""

    value: float
    low: float
    high: float


def near(number: Any, digits: int = DIGITS) -> Any:
    """Return the nearest number, or array, of so many binary digits; 2x and −x are exact too."""
    mantissa, exponent = np.frexp(np.asarray(number, dtype=np.float64))
    return np.ldexp(np.round(mantissa * 2.0**digits), exponent - digits)


def of_heads(value: FloatArray, error: FloatArray | float) -> Interval:
    """Return the median of numbers of several heads, in the interval that covers all."""
    low, high = float((value - error).min()), float((value + error).max())
    return Interval(float(np.median(value)), low, high)


class Size(NamedTuple):
    """Hold the size of a question: heads of queries and of keys, and the dimension d of each."""

    heads: int
    key_heads: int
    dimension: int


class Subject:
    """Call an attention (q, k, v, …) → output with tensors, and return its answers in float64."""

    def __init__(self, function: Attention, size: Size, dtype: torch.dtype, device: str) -> None:
        self.function = function
        self.size = size
        self.dtype = dtype
        self.device = device
        self.of_masks = torch.float32 if dtype.itemsize == 1 else dtype  # of numbers in them
        self.eps = float(torch.finfo(dtype).eps)
        self.stored: torch.dtype | None = dtype if dtype.itemsize == 1 else None
        try:
            known = set(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # those of TorchScript and C++ have none
            schema = getattr(function, "schema", None)
            known = {argument.name for argument in schema.arguments} if schema else set()
            if getattr(function, "func", function) is FUSED:
                known = {"attn_mask", "is_causal", "enable_gqa"}
        self.mask, self.causal, self.grouped = (
            next((name for name in names if name in known), None)
            for names in (MASKS, CAUSAL, GROUPED)
        )
        self.options: dict[str, Any] = {}  # further arguments of every call
        self.value_size = size.dimension
        self.stored_error = 0.0  # of a product, by how keys are stored
        self.weights_error = 0.0  # of a weight, where a kernel rounds them to 8 bits
        self.slopes: FloatArray = np.zeros(1)  # of a bias by distance, in each head
        self.pattern: Callable[[int], np.ndarray] | None = None  # which of n keys each query sees
        self.sees_past = False  # found out by asking: whether it is causal by itself,
        self.normalises = False  # and whether q and k are brought to length 1
        self.odd: dict[str, str] = {}
        """What answers had, with any question, that no softmax has, and where: see `noted`."""

    def keep_in(self, stored: torch.dtype | None) -> None:
        """Set the type in which keys and values are kept, and the errors that follow from it.

        Up to 8 bits products are of many numbers at once: how far off their sum may be follows
        from the type, whatever scale they are stored by. 16 bits round the weights too.
        """
        if stored is not None and stored.itemsize > 1:
            self.eps = max(self.eps, float(torch.finfo(stored).eps))
            return
        self.stored = stored or self.stored
        if stored is not None and stored != self.dtype:
            self.stored_error = sum_error(stored, self.size.dimension)
        if self.dtype.itemsize == 1:
            q, k = equal_keys(self, 2, 2)
            self.eps = float(torch.finfo(self.answer(self.tensors(q, k, k)).dtype).eps)

    def resized(self, *, d: int | None = None, values: int | None = None) -> "Subject":
        """Return this subject with other sizes of q and k, or of v."""
        other = copy(self)
        other.size = self.size._replace(dimension=d or self.size.dimension)
        other.value_size = values or other.size.dimension
        return other

    def given(self, **options: Any) -> "Subject":
        """Return this subject with further arguments in every call."""
        other = copy(self)
        other.options = {**self.options, **options}
        return other

    def masked(self, mask: Tensor) -> "Subject":
        """Return this subject with a mask in every call."""
        return self.given(**{str(self.mask): mask})

    def of_last_query(self) -> "Subject":
        """Return this subject, asked the last query alone; all rows of the answer are its row."""
        other = copy(self)

        def last(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
            return self.answer([q[:, :, -1:], k, v]).expand(-1, -1, q.shape[-2], -1)

        other.function = last
        return other

    def keys_of(self, rows: list[int], length: int) -> FloatArray:
        """Return how many of `length` keys each of these rows sees, (rows,)."""
        if self.pattern is not None:
            return np.asarray(self.pattern(length)[rows].sum(axis=-1), dtype=np.float64)
        return np.array([row + 1.0 if self.sees_past else float(length) for row in rows])

    def tensors(self, *given: Tensor) -> list[Tensor]:
        """Return tensors of the axes (heads, tokens, size) as the callable gets them."""
        return [t[None].to(self.dtype).to(self.device) for t in given]

    @torch.no_grad()
    def output(self, q: Tensor, k: Tensor, v: Tensor) -> FloatArray:
        """Return the answer, (heads, queries, size of v), in float64.

        q, k and v have the axes (heads, tokens, size) and float64. Raises ValueError, in one line,
        where the callable raises, or its answer is not a tensor or has another shape.
        """
        output = self.answer(self.tensors(q, k, v))[0].double().cpu().numpy()
        if not self.options:
            self.noted(q, v, output)
        return output

    def noted(self, q: Tensor, v: Tensor, output: FloatArray) -> None:
        """Note an answer that is not finite, 0 as a whole, or has rows of other sums.

        Rows with the query of the last one should add up to as much, where values do.
        """
        at, total = f"{q.shape[-2]} queries of {v.shape[-2]} keys", v.sum(dim=-1)
        at = getattr(self.function, "question", at)  # the name of a file
        if not np.isfinite(output).all():
            self.odd.setdefault("NaN", at)
        elif not output.any():
            self.odd.setdefault("0", at)
        elif total.min() == total.max():
            same = (q == q[:, -1:]).all(dim=-1).numpy()
            sums = np.where(same, output.sum(axis=-1), np.nan)
            least = SUM if self.stored is None else SUM / 2.0
            few = np.nanmin(sums, axis=-1) < least * np.nanmax(sums, axis=-1)
            if few.any():
                of_head = sums[few.argmax()]
                share, row = np.nanmin(of_head) / np.nanmax(of_head), np.nanargmin(of_head)
                self.odd.setdefault(f"{share:.2g} in row {row}", at)

    def answer(self, given: list[Tensor]) -> Tensor:
        """Return the answer to q, k, v of 4 axes, (1, heads, tokens, size); raises as `output`."""
        (q, _, v), options = given, self.options
        if self.grouped and self.size.heads != self.size.key_heads:
            options = {self.grouped: True, **options}
        try:
            answer = self.function(*given, **options)
        except Exception as error:
            message = " ".join(str(error).split())
            raise ValueError(
                f"the callable raises {type(error).__name__} for q, k and v of the shapes "
                f"{', '.join(str(tuple(t.shape)) for t in given)}: {message:.200}"
            ) from error
        answer = answer[0] if isinstance(answer, tuple) else answer
        wanted = (*q.shape[:3], v.shape[-1])
        if not isinstance(answer, Tensor) or answer.shape != wanted:
            got = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise ValueError(f"the callable must return a tensor of shape {wanted}, got {got}")
        return answer

    def weights(self, q: Tensor, k: Tensor, groups: Tensor) -> FloatArray:
        """Return the weight of each group of keys, (heads, queries, number of groups).

        `groups` has the group of each key, a number below the size of v.
        """
        v = torch.nn.functional.one_hot(groups, self.value_size).double()
        v = v.expand(self.size.key_heads, -1, -1)
        return self.output(q, k, v)[..., : int(groups.max()) + 1]


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


def contents(
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
    apart: bool = False,
    even: bool = False,
) -> tuple[Tensor, Tensor, FloatArray]:
    """Return queries of length √d, keys whose products with them are chosen, and these products.

    They are q·k, or cos(q, k) where the subject normalises them, of each special key, less that of
    ordinary keys.

    Keys have the component `shift` along the query, special keys `shift` + x, both of a few binary
    digits; what is left of their length, √d or 2|shift| if that is more, lies at a right angle. The
    query has the component `along` only. `stretch` multiplies q and k, `lengthen` special keys.
    With `apart`, and where keys are kept in 8 bits or fewer, `shift` and x have components of their
    own; `even` then gives those of q one size, which such types keep exactly, and x is approximate.
    """
    heads, key_heads, d = subject.size
    across = (along + 3) % d
    length = math.sqrt(d)
    x, shift = float(near(x)), float(near(shift))
    if apart or subject.stored is not None:
        even = even and not subject.normalises
        q, k = _of_many(subject, queries, keys, special, x, shift, along, even)
    else:
        room = max(length, 2.0 * abs(shift))
        q = torch.zeros(heads, queries, d, dtype=torch.float64)
        q[..., along] = length
        k = torch.zeros(key_heads, keys, d, dtype=torch.float64)
        component = torch.full((keys,), shift, dtype=torch.float64)
        component[special] = shift + x
        k[..., along] = component
        k[..., across] = (room**2 - component**2).clamp(min=0.0).sqrt()
    k[:, special] *= lengthen
    given = (q * stretch[0], k * stretch[1])
    q, k = (t.to(subject.dtype).double() for t in given)  # as the callable gets them
    product = torch.einsum("d,md->m", q[0, 0], k[0])
    if subject.normalises:
        product = product / (q[0, 0].norm() * k[0].norm(dim=-1))
    ordinary = torch.ones(keys, dtype=torch.bool)
    ordinary[special] = False
    other = int(ordinary.nonzero()[0]) if bool(ordinary.any()) else int(special[0])
    return q, k, (product[special] - product[other]).numpy()


def spread(number: int) -> Tensor:
    """Return `number` numbers from 1 to 2, evenly spaced in their logarithm, increasing."""
    return torch.exp2((torch.arange(number, dtype=torch.float64) + 0.5) / number)


def parts(d: int) -> tuple[int, int]:
    """Return how many components vary between keys, and how many hold what all keys share."""
    shared = max(1, min(15, d // 4))
    return min(48, d - 1 - shared), shared


def sum_error(stored: torch.dtype, d: int) -> float:
    """Return the largest relative error of the sum of a key's numbers, kept in the type `stored`.

    The numbers are from 1 to 2, and the scales those that map the type's largest number to 2 to 16,
    in 4 bits, where a few numbers have a scale of their own, to 2 to 4.
    """
    numbers = spread(parts(d)[0])
    largest = WHOLE.get(stored) or torch.finfo(stored).max
    octaves = 1.0 if stored == INT4 else 3.0
    scale = torch.exp2(torch.linspace(1.0, 1.0 + octaves, 257, dtype=torch.float64))[:, None]
    kept = numbers / scale * largest
    kept = kept.round() if stored in WHOLE else kept.float().to(stored).double()
    kept *= scale / largest
    return float((kept.sum(-1) / numbers.sum() - 1.0).abs().max())


def _of_many(
    subject: Subject,
    queries: int,
    keys: int,
    special: Tensor,
    x: float,
    shift: float,
    along: int,
    even: bool,
) -> tuple[Tensor, Tensor]:
    """Return the same with keys of many components from 1 to 2: q alone makes products large."""
    heads, key_heads, d = subject.size
    many, shared = parts(d)
    sizes = [abs(x) or 1.0, abs(shift) or 1.0]
    if even:
        if x and shift:
            part = round((many + shared) * abs(x) / (abs(x) + abs(shift)))
            many, shared = (part := min(max(part, 4), many + shared - 4)), many + shared - part
            sizes[0] = abs(shift) * float(spread(many).sum() / spread(shared).sum())
        else:  # the other has no part in the product
            share = float(spread(shared).sum() / spread(many).sum())
            sizes = [shift / share or x or 1.0, x * share or shift or share]
            sizes = [abs(size) for size in sizes]
    order = (along + torch.arange(d)) % d
    q = torch.zeros(heads, queries, d, dtype=torch.float64)
    k = torch.zeros(key_heads, keys, d, dtype=torch.float64)
    k[..., order[many + shared :]] = 2.0
    for at, size, of_q, which in (
        (order[:many], x, sizes[0], special),
        (order[many : many + shared], shift, sizes[1], torch.arange(keys)),
    ):
        numbers = spread(len(at))
        if subject.stored is None:
            numbers = torch.from_numpy(near(numbers))  # exact in 16 bits
        digits = DIGITS if subject.stored is None else 3  # exact in 8 bits
        q[..., at] = float(near(of_q * math.sqrt(d) / float(numbers.sum()), digits))
        k[:, which[:, None], at] = numbers * np.sign(size)
    return q, k


def equal_keys(
    subject: Subject, queries: int, keys: int, shift: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return queries and keys, the keys all the same: (heads, tokens, d)."""
    return contents(subject, queries, keys, torch.tensor([0]), 0.0, shift=shift)[:2]


def row_sums(subject: Subject, q: Tensor, k: Tensor, times: float = 1.0) -> FloatArray:
    """Return what the weights of each row add up to, (heads, queries).

    All keys have one value of components of several sizes, which is multiplied by `times`.
    """
    value = times * spread(subject.value_size).to(subject.dtype).double()
    v = value.expand(subject.size.key_heads, k.shape[1], -1)
    return np.asarray(subject.output(q, k, v).sum(axis=-1) / float(value.sum()))


def log_odds(subject: Subject, q: Tensor, k: Tensor, rows: Tensor, special: Tensor) -> FloatArray:
    """Return log(weight of a row's special key / weight of its ordinary keys), (heads, rows).

    Row rows[i] has the special key special[i]; those of other rows count for neither.
    """
    groups = torch.full((k.shape[-2],), len(special))
    groups[special] = torch.arange(len(special))
    weights = subject.weights(q, k, groups)[:, rows.numpy()]
    own = weights[:, np.arange(len(rows)), np.arange(len(special))]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(own) - np.log(weights[..., len(special)]))
