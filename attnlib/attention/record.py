"""Hold the record of logits that were made of a product of queries and keys, to the weights.

The record can be run again with the product times t, where biases, caps and masks stay as they are.
It holds no intermediate result, only what was computed without the product: queries, keys, masks.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnlib.attention import functions
from attnlib.interception import HIDDEN, is_traced, is_transformed

NO_SOFTMAX = "no softmax stands between its two products, as in linear attention"

Valued = Callable[[Tensor, Tensor | None, bool], None]
"""A function of the values, the output (None under dropout), and whether weights were changed."""


@dataclass(eq=False)
class Step:
    """Hold a recorded function call; in its arguments steps stand for their results."""

    function: Any
    name: str
    args: Any
    kwargs: Any
    product: "Step | None" = None  # where the record starts; None for itself
    length: int = 0
    dimension: int = 0  # d of the product
    shape: torch.Size = field(default_factory=torch.Size)
    ordered: bool = True  # whether the rows are those of the product, in their order
    lost: str = ""  # why it cannot be run again
    learned: bool = False  # whether the columns of the product are learned
    heads: int = 0  # of its operands, if they come before the sequences in the first axis
    weighs: bool = False  # whether a softmax of the product has been taken
    beside: bool = False  # whether the product reaches outputs without a softmax
    autocast: tuple[str, bool] | None = None
    versions: list[tuple[Tensor, int]] = field(default_factory=list)

    @property
    def kinds(self) -> tuple[functions.Kind, ...]:
        """The kinds of its function."""
        return functions.kinds_of(self.name)

    @property
    def start(self) -> "Step":
        """The step of the product, where the record starts."""
        return self.product or self

    def run(self, times: float | Tensor | None, made: dict["Step", Any]) -> Any:
        """Run the step again, the product times `times`, and return its result; `made` keeps it."""
        if self in made:
            return made[self]
        args, kwargs = (
            map_nested(given, lambda x: x.run(times, made) if isinstance(x, Step) else x)
            for given in (self.args, self.kwargs)
        )
        multiplied = self.product is None and times is not None
        if multiplied and self.name.startswith("baddbmm"):
            args = args[0].clone(), (args[1] * times).to(args[1].dtype), *args[2:]
        elif "in place" in self.kinds:
            written = args[0]
            if "by entry" in self.kinds:  # in `bias` it has a smaller shape than the result
                shapes = (x.shape for x in entries_of((args, kwargs), Tensor))
                written = written.expand(np.broadcast_shapes(*shapes))
            args = written.clone(), *args[1:]
        device, cast = self.autocast or ("cpu", torch.is_autocast_enabled("cpu"))
        as_it_was = torch.is_autocast_enabled(device) == cast
        with nullcontext() if as_it_was else torch.autocast(device, enabled=cast):
            made[self] = result = self.function(*args, **kwargs)
        if multiplied and not self.name.startswith("baddbmm"):
            made[self] = (result * times).to(result.dtype)
        elif self.name == "__setitem__":
            made[self] = args[0]
        return made[self]

    def bias(self) -> Tensor | None:
        """Return what is added to the product on the way; None if the logits are the product."""
        start = self.start
        fused = start.name.startswith("baddbmm")
        if start is self and not fused:
            return None
        small = all(
            "by entry" in step.kinds and len(entries_of((step.args, step.kwargs), Step)) == 1
            for step in self._path()
        )
        nothing = entries_of(start.args, Tensor)[0].new_zeros(()).expand((1,) * len(self.shape))
        known = {start: nothing} if small and not fused else {}
        result: Tensor = self.run(0.0, known)
        return result

    def exchanged(self) -> "Step | None":
        """Return the record of (k @ q.mT).mT, also times or plus numbers, as that of q @ k.mT.

        None where another function stands between the product and the exchange.
        """
        function, tensors, steps = (
            self.function,
            *(entries_of(self.args, x) for x in (Tensor, Step)),
        )
        if self.name in functions.PLAIN and self.product is None:
            k, q = tensors
            step = replace(self, args=(q.mT, k.mT), learned=is_learned(k) or k.ndim < 3)
            step.function = lambda q, k: function(k.mT, q.mT).mT
            return step
        numbers = all(x.numel() == 1 for x in entries_of((self.args, self.kwargs), Tensor))
        if len(steps) != 1 or not numbers or "by entry" not in self.kinds:
            return None
        inner = steps[0].exchanged()
        if inner is None:
            return None
        given = map_nested(self.args, lambda x: inner if x is steps[0] else x)
        return replace(self, args=given, product=inner.start)

    def scale(self) -> float:
        """Return the number that multiplies the product; NaN where it is not one number."""
        if self.product is None:
            return float(self.kwargs.get("alpha", 1.0)) if self.name.startswith("baddbmm") else 1.0
        [before, *others] = entries_of((self.args, self.kwargs), Step)
        if others or ("fill" in self.kinds and not self._hides()):
            return math.nan
        own: float = before.scale()
        if "sum" in self.kinds:
            first = next(iter(self.args), self.kwargs.get("input")) is before
            negative = "sub" in self.name and ("rsub" in self.name or not first)
            return own * (1.0 if first else self.kwargs.get("alpha", 1.0)) * (-1.0) ** negative
        if "scale" not in self.kinds:
            return own if "keeps scale" in self.kinds else math.nan
        number = next((x for x in self.args if x is not before), math.nan)
        if isinstance(number, Tensor):
            number = number.item() if number.numel() == 1 else math.nan
        return own / number if "div" in self.name else own * number

    def _hides(self) -> bool:
        """Return whether the function fills in numbers of −10⁴ or less, which hide keys."""
        values = [x for x in self.args if not isinstance(x, Step)][-1:]
        value = self.kwargs.get("value", *values)
        return bool((value <= HIDDEN).all() if isinstance(value, Tensor) else value <= HIDDEN)

    def as_weights(self) -> str:
        """Return how weights are made of this without a softmax, or "" if it cannot be weights."""
        start = self.start
        whole = self.shape.numel() >= start.shape.numel()
        if self.learned or start.dimension < 2 or not whole:  # d = 1: of positions
            return ""
        if any("exponential" in step.kinds for step in self._path()):
            return "it makes its weights of exp and a sum"
        if self.lost:
            return ""
        return NO_SOFTMAX if self.is_plain() else "its weights are no softmax of its logits"

    def is_plain(self) -> bool:
        """Return whether the product is only scaled, reshaped, added to or filled in so far."""
        return all("keeps scale" in x.kinds or "scale" in x.kinds for x in self._path())

    def repeats(self, logits: Tensor) -> bool:
        """Return whether running the record again gives these logits, up to rounding.

        True where there are no numbers to compare (torch.func, traces, meta). No gradient is taken,
        so that a checkpoint's second run, which need not ask, saves the same tensors.
        """
        if is_transformed(logits) or is_traced() or logits.is_meta:
            return True
        made: dict[Step, Any] = {}
        with torch.no_grad():
            again, logits = self.run(None, made), logits.detach()
            if again.shape != logits.shape or torch.equal(again, logits):  # which is fast
                return bool(again.shape == logits.shape)
            rounding = math.sqrt(torch.finfo(made[self.start].dtype).eps)
            return torch.allclose(
                again.to(logits.dtype), logits, rounding, rounding, equal_nan=True
            )

    def head_axis(self, heads: int) -> int:
        """Return the axis of the heads, counted from the end: −3 unless another is found.

        The letters of an einsum may show −2, say. It is −4 where the first of three axes joins
        heads and batch, heads first.
        """
        start = self.start
        if len(self.shape) == 3 and heads and start.heads == heads:
            return -4
        if not self.ordered or start.shape != self.shape:
            return -3
        first, second, output = letters_of(start.name, start.args, entries_of(start.args, Tensor))
        common = [i - len(output) for i, x in enumerate(output) if x in first and x in second]
        named = [i for i in common if output[i] == "h"]
        return next(iter(named), -2 if -2 in common else -3)

    def _path(self) -> set["Step"]:
        """Return the steps that follow the product, up to and including this one."""
        path: set[Step] = set()
        ahead = [self]
        while ahead:
            step = ahead.pop()
            if step.product is not None and step not in path:
                path.add(step)
                ahead += entries_of((step.args, step.kwargs), Step)
        return path

    def keys(self) -> slice:
        """Return the slice of columns that are keys, without a sink's; all where unknown."""
        before = 0
        width = self.start.shape[-1]
        for step in self._path() if self.ordered and width < self.shape[-1] else ():
            if step.name == "pad":
                before += (*step.args, step.kwargs.get("pad"))[1][0]
            elif step.name in ("cat", "concat", "concatenate"):
                for part in (*step.args, step.kwargs.get("tensors"))[0]:
                    if isinstance(part, Step):
                        break
                    before += part.shape[-1]
        return slice(before, before + width) if before + width <= self.shape[-1] else slice(None)

    def problem(self) -> str:
        """Return why the record cannot be run again, or ""."""
        if self.lost or any(version_of(tensor) != number for tensor, number in self.versions):
            return self.lost or "what its logits are computed from is written over on the way"
        before = (step.problem() for step in entries_of((self.args, self.kwargs), Step))
        return next(filter(None, before), "")


class Layout(NamedTuple):
    """Hold the shape of logits, and the number of heads that modules state, 0 if none does."""

    shape: torch.Size
    heads: int
    axis: int = -3
    """The axis of the heads, such as −2 in (batch, queries, heads, keys)."""

    def by_head(self, x: Tensor) -> Tensor:
        """Return `x`, with the axes of `shape` but for the last two, as (…, heads, queries, keys).

        Heads flattened into the batch come apart where their number is known; else they are one.
        """
        *leading, _, _ = self.shape
        if self.axis != -3:
            if len(leading) == 1:
                x = x.expand(*leading, *x.shape[-2:]).reshape(self.heads, -1, *x.shape[-2:])
            return x.movedim(self.axis, -3)
        if self.heads and len(leading) == 1 and leading[0] % self.heads == 0:
            return x.expand(*leading, *x.shape[-2:]).reshape(-1, self.heads, *x.shape[-2:])
        if self.heads and leading[-1] != self.heads:
            x = x.expand(*leading, *x.shape[-2:])
            for count in range(2, len(leading)):  # never with the sequences of the batch
                if math.prod(leading[-count:]) == self.heads:
                    return x.reshape(*leading[:-count], self.heads, *x.shape[-2:])
        return x.unsqueeze(-3) if len(leading) == 1 else x

    def doubt(self, batch: int) -> str:
        """Return how a batch of that size is split into heads, if this is uncertain; else ""."""
        *leading, _, _ = self.shape
        last, heads = leading[-1], self.heads
        sequences_last = not heads and last == batch != leading[0]
        if self.axis != -3 or (len(leading) == 2 and heads in (0, last) and not sequences_last):
            return ""
        if len(leading) > 1:
            within = [i for i in leading[1:] if i == heads]
            if len(within) == 1 == [last].count(heads) or math.prod(leading[1:]) == heads:
                return ""
            return f"the last of the axes {tuple(leading)} counts as its heads"
        matrices = f"{last} matrices of weights, of a batch of {batch}, count as"
        if not heads and last != batch:
            return f"{matrices} one head: no num_heads tells how many are in the batch"
        if heads and last % heads:
            return f"{matrices} one head, where num_heads is {heads}"
        if heads > 1 and last == batch:
            return f"{matrices} {heads} heads of {last // heads} sequences"
        return ""


@dataclass(eq=False)
class WrittenOut:
    """Hold a call of attention that writes its softmax out: its logits and their history."""

    logits: Tensor
    step: Step
    module: nn.Module | None  # the inmost that runs, but for nn.Softmax
    layout: Layout
    valued: Valued = lambda values, output, changed: None

    @property
    def start(self) -> Step:
        """The step of the product of queries and keys."""
        return self.step.start

    def seen(self) -> Tensor:
        """Return whether each query sees each key, (…, heads, queries, keys)."""
        # With the logit that it was added to, a mask of −10⁴ is above that.
        return self.layout.by_head(self.logits.detach()[..., self.step.keys()] > HIDDEN / 2.0)

    def again(self, times: float | Tensor) -> Tensor:
        """Return the logits, computed again with the product times `times`.

        `times` is one number, or broadcasts to (…, heads, queries). Raises ValueError for several
        numbers where axes are exchanged between the product and the softmax.
        """
        if isinstance(times, Tensor):
            if times.numel() > 1:
                rows = self.layout.by_head(self.logits.detach()[..., :1])
                times = times.unsqueeze(-1).expand(rows.shape)
                times = times.movedim(-3, self.layout.axis)
            shape = *self.start.shape[:-1], 1
            if times.numel() > 1 and not (self.step.ordered and times.numel() == math.prod(shape)):
                raise ValueError(
                    f"{type(self.module).__name__} exchanges axes between its product and its "
                    "softmax, where its logits can be multiplied by one number for all, not by "
                    "one for each head or query"
                )
            times = times.reshape(shape if times.numel() > 1 else ())
        result: Tensor = self.step.run(times, {})
        return result

    def operands(self) -> tuple[Tensor, Tensor] | None:
        """Return queries and keys, (…, heads, length, d); None where `obstacle` says why not."""
        start, shape = self.start, self.layout.shape
        left, right = entries_of(start.args, Tensor)[-2:]
        first, second, output = letters_of(start.name, start.args, [left, right])
        if output[-1] in first:
            first, second, left, right = second, first, right, left
        summed = "".join(sorted((set(first) & set(second)) - set(output)))
        q = with_axes(left, first, output[:-1], summed)
        k = with_axes(right, second, output[:-2] + output[-1], summed)
        if q is None or k is None or not self.step.ordered or k.shape[-2] != shape[-1]:
            return None
        q, k = (x.expand(*start.shape[:-2], *x.shape[-2:]) for x in (q, k))
        if start.shape[:-2].numel() != shape[:-2].numel():  # heads are among the rows
            return None
        return self.layout.by_head(q.reshape(*shape[:-1], -1)), self.layout.by_head(
            k.reshape(*shape[:-2], *k.shape[-2:])
        )

    def obstacle(self) -> str:
        """Return why `operands` is None; to be asked only where it is."""
        if self.step.ordered and self.start.shape[-1] < self.layout.shape[-1]:
            return "its logits have more columns than keys, as with a sink"
        if not self.step.ordered:
            return "its logits have their axes exchanged or joined before the softmax"
        return "its queries and keys have an order of axes that is not known"

    def queries(self) -> Tensor:
        """Return the queries, (…, heads, queries, d); if unknown, the product's first operand."""
        operands = self.operands()
        queries: Tensor = (
            entries_of(self.start.args, Tensor)[0] if operands is None else operands[0]
        )
        return queries


class Weights(NamedTuple):
    """Hold the record of a call's weights, from its softmax to their product with values."""

    valued: Valued
    shape: torch.Size
    changed: bool
    columns: bool = False  # whether a query has a column of weights, not a row


class Mark(NamedTuple):
    """Hold what is known of a tensor without a record, which may lead to weights."""

    kind: str  # one of ORDER: "products" are entry by entry, "scores" of activations
    module: nn.Module | None = None
    why: str = ""
    sure: bool = False  # whether its scores are of two activations
    heads: int = 0  # size of the first of two axes that its first one joins
    size: int = 0  # d of the vectors that are squared or multiplied


def is_learned(x: Tensor) -> bool:
    """Return whether a tensor is a parameter or a view of one."""
    return isinstance(x, nn.Parameter) or isinstance(x._base, nn.Parameter)


def letters_of(name: str, args: Any, tensors: list[Tensor]) -> tuple[str, str, str]:
    """Return the letters that torch.einsum has for a product's two operands and its result.

    "." stands for all other axes. Three "" for an einsum of another form.
    """
    if name == "einsum":
        inputs, _, output = str(args[0]).replace(" ", "").replace("...", ".").partition("->")
        first, comma, second = inputs.partition(",")
        return (first, second, output) if comma and "," not in second else ("", "", "")
    left, right = tensors[-2:]
    exchanged = name == "__rmatmul__"
    if exchanged:
        left, right = right, left
    rows, columns = (".j" if left.ndim == 1 else ".ij"), (".j" if right.ndim == 1 else ".jk")
    output = "".join(dict.fromkeys(letter for letter in rows + columns if letter != "j"))
    return (columns, rows, output) if exchanged else (rows, columns, output)


def with_axes(x: Tensor, letters: str, to: str, last: str) -> Tensor | None:
    """Return `x`, whose axes torch.einsum calls `letters`, with the axes `to`, then `last` as one.

    Axes of `to` that it lacks have the size 1. None where the letters do not fit.
    """
    present = "".join(letter for letter in to if letter in letters)
    missing = [i for i, letter in enumerate(to) if letter not in letters]
    if sorted(present + last) != sorted(letters) or ("." in to and missing) or not last:
        return None
    if letters != present + last:  # `x` itself may be known by a record
        x = torch.einsum(f"{letters}->{present}{last}".replace(".", "..."), x)
    x = x.flatten(-len(last))
    for i in missing:
        x = x.unsqueeze(i)
    return x


def version_of(tensor: Tensor) -> int:
    """Return how many writes into a tensor PyTorch has counted; 0 where it counts none."""
    with suppress(RuntimeError):  # under inference_mode none is counted
        return tensor._version
    return 0


def map_nested(x: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested arguments with `change` applied to each entry."""
    if isinstance(x, dict):
        return {name: map_nested(value, change) for name, value in x.items()}
    if isinstance(x, list | tuple) and not isinstance(x, torch.Size):
        parts = [map_nested(item, change) for item in x]
        return parts if isinstance(x, list) else tuple(parts)
    return change(x)


def entries_of(x: Any, kind: type[Any]) -> list[Any]:
    """Return the entries of type `kind` in nested arguments, in their order."""
    items = []
    for item in x.values() if isinstance(x, dict) else x:
        if isinstance(item, kind):
            items.append(item)
        elif isinstance(item, functions.NESTS) and item:
            items += entries_of(item, kind)
    return items
