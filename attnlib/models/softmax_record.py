"""Hold the record of logits: the function calls from a product of queries and keys to its softmax.

The record can be run again with the product times t; biases, caps and masks then stay as they are.
It holds no intermediate results, only the tensors that do not depend on the product, such as
queries, keys and masks.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnlib.models import function_kinds
from attnlib.models.attention_call import HIDDEN
from attnlib.models.torch_internals import in_trace, is_transformed

NO_SOFTMAX = "no softmax stands between its two products, as in linear attention"

OnValues = Callable[[Tensor, Tensor | None, bool], None]
"""A function that gets the values that weights average, the output, and whether the weights were
changed after the softmax. The output is None under dropout."""


@dataclass(eq=False)
class Step:
    """Hold a recorded function call. In its arguments a step stands for its result."""

    function: Any
    name: str
    args: Any
    kwargs: Any
    product: "Step | None" = None  # where the record starts; None if here
    length: int = 0  # number of steps since the product
    dimension: int = 0  # d of the product
    shape: torch.Size = field(default_factory=torch.Size)
    ordered: bool = True  # whether its rows are the product's, in their order
    why_lost: str = ""  # why it cannot be run again
    learned: bool = False  # whether the columns of the product are learned
    heads: int = 0  # number of heads that stand before the sequences in the operands' first axis
    softmax_taken: bool = False  # whether a softmax of the product has been taken
    used_beside: bool = False  # whether the product reaches outputs without a softmax
    autocast: tuple[str, bool] | None = None  # device type, and whether it was on
    versions: list[tuple[Tensor, int]] = field(default_factory=list)  # of the arguments

    @property
    def kinds(self) -> tuple[function_kinds.Kind, ...]:
        """The kinds of its function."""
        return function_kinds.kinds_of(self.name)

    @property
    def start(self) -> "Step":
        """The step of the product, where the record starts."""
        return self.product or self

    def run(self, times: float | Tensor | None, results: dict["Step", Any]) -> Any:
        """Run the record again up to this step, and return its result.

        `times` multiplies the product, None leaves it. `results` keeps each step's result; the
        steps that it has are not run.
        """
        if self in results:
            return results[self]
        args, kwargs = (
            map_nested(nested, lambda x: x.run(times, results) if isinstance(x, Step) else x)
            for nested in (self.args, self.kwargs)
        )
        multiplied = self.product is None and times is not None
        if multiplied and self.name.startswith("baddbmm"):
            args = args[0].clone(), (args[1] * times).to(args[1].dtype), *args[2:]
        elif "in place" in self.kinds:
            target = args[0]
            if "by entry" in self.kinds:  # in `bias` it has a smaller shape than the result
                shapes = (x.shape for x in entries_of((args, kwargs), Tensor))
                target = target.expand(np.broadcast_shapes(*shapes))
            args = target.clone(), *args[1:]
        device, enabled = self.autocast or ("cpu", torch.is_autocast_enabled("cpu"))
        unchanged = torch.is_autocast_enabled(device) == enabled
        with nullcontext() if unchanged else torch.autocast(device, enabled=enabled):
            results[self] = result = self.function(*args, **kwargs)
        if multiplied and not self.name.startswith("baddbmm"):
            results[self] = (result * times).to(result.dtype)
        elif self.name == "__setitem__":
            results[self] = args[0]
        return results[self]

    def bias(self) -> Tensor | None:
        """Return the sum of all that is added to the product, by running it times 0.

        It broadcasts to the logits. None if the logits are the product.
        """
        start = self.start
        fused = start.name.startswith("baddbmm")
        if start is self and not fused:
            return None
        by_entry = all(
            "by entry" in step.kinds and len(entries_of((step.args, step.kwargs), Step)) == 1
            for step in self._path()
        )
        zero = entries_of(start.args, Tensor)[0].new_zeros(()).expand((1,) * len(self.shape))
        result: Tensor = self.run(0.0, {start: zero} if by_entry and not fused else {})
        return result

    def exchanged(self) -> "Step | None":
        """Return this record of k @ q.mT, to be exchanged next, as the record of q @ k.mT.

        The product may be multiplied and added to by single numbers. None after other functions.
        """
        function, tensors, steps = (
            self.function,
            *(entries_of(self.args, x) for x in (Tensor, Step)),
        )
        if self.name in function_kinds.PLAIN_PRODUCTS and self.product is None:
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
        args = map_nested(self.args, lambda x: inner if x is steps[0] else x)
        return replace(self, args=args, product=inner.start)

    def scale(self) -> float:
        """Return the one number by which the product is multiplied; NaN if there is none."""
        if self.product is None:
            return float(self.kwargs.get("alpha", 1.0)) if self.name.startswith("baddbmm") else 1.0
        [previous, *others] = entries_of((self.args, self.kwargs), Step)
        if others or ("fill" in self.kinds and not self._hides()):
            return math.nan
        scale: float = previous.scale()
        if "sum" in self.kinds:
            first = next(iter(self.args), self.kwargs.get("input")) is previous
            negative = "sub" in self.name and ("rsub" in self.name or not first)
            return scale * (1.0 if first else self.kwargs.get("alpha", 1.0)) * (-1.0) ** negative
        if "scale" not in self.kinds:
            return scale if "keeps scale" in self.kinds else math.nan
        number = next((x for x in self.args if x is not previous), math.nan)
        if isinstance(number, Tensor):
            number = number.item() if number.numel() == 1 else math.nan
        return scale / number if "div" in self.name else scale * number

    def _hides(self) -> bool:
        """Return whether the function fills in numbers of −10⁴ or less, which hide keys."""
        last = [x for x in self.args if not isinstance(x, Step)][-1:]
        filled = self.kwargs.get("value", *last)
        return bool((filled <= HIDDEN).all() if isinstance(filled, Tensor) else filled <= HIDDEN)

    def other_normalisation(self) -> str:
        """Return a phrase on weights made of this without a softmax; "" if it cannot be weights."""
        start = self.start
        reduced = self.shape.numel() < start.shape.numel()
        if self.learned or start.dimension < 2 or reduced:  # d = 1: of positions
            return ""
        if any("exponential" in step.kinds for step in self._path()):
            return "it makes its weights of exp and a sum"
        if self.why_lost:
            return ""
        return NO_SOFTMAX if self.is_plain() else "its weights are no softmax of its logits"

    def is_plain(self) -> bool:
        """Return whether the product has only been scaled, reshaped, added to or filled in."""
        return all("keeps scale" in step.kinds or "scale" in step.kinds for step in self._path())

    def reproduces(self, logits: Tensor) -> bool:
        """Return whether the record, run again, gives these logits up to rounding.

        True where there are no numbers to compare: under torch.func, in traces, on the device meta.
        No gradient is recorded: a checkpoint's second run, which may skip this comparison, must
        save the same tensors as its first.
        """
        if is_transformed(logits) or in_trace() or logits.is_meta:
            return True
        results: dict[Step, Any] = {}
        with torch.no_grad():
            again, logits = self.run(None, results), logits.detach()
            if again.shape != logits.shape or torch.equal(again, logits):  # which is fast
                return bool(again.shape == logits.shape)
            rounding = math.sqrt(torch.finfo(results[self.start].dtype).eps)
            return torch.allclose(
                again.to(logits.dtype), logits, rounding, rounding, equal_nan=True
            )

    def head_axis(self, heads: int) -> int:
        """Return the axis of the heads in the logits, counted from the end; −3 unless known better.

        An einsum's letters may show another, such as −2. It is −4 where the first of three axes
        joins heads and batch, heads first. `heads` is their number, 0 if unknown.
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

    def key_columns(self) -> slice:
        """Return the columns of the logits that belong to keys, not to a sink; all if unknown."""
        before = 0  # number of columns of sinks before the keys
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
        if self.why_lost or any(version_of(tensor) != number for tensor, number in self.versions):
            return self.why_lost or "what its logits are computed from is written over on the way"
        problems = (step.problem() for step in entries_of((self.args, self.kwargs), Step))
        return next(filter(None, problems), "")


class Layout(NamedTuple):
    """Hold the shape of logits, and the number of heads that modules state, 0 if none does."""

    shape: torch.Size
    heads: int
    axis: int = -3
    """The axis of the heads, such as −2 in (batch, queries, heads, keys)."""

    def by_head(self, x: Tensor) -> Tensor:
        """Return `x`, whose leading axes are those of `shape`, as (…, heads, rows, columns).

        Heads that are flattened into the batch are split off if their number is known; if not, the
        batch counts as one head.
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
        """Return a sentence on how a batch of that size is split into heads; "" if that is sure."""
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
    on_values: OnValues = lambda values, output, changed: None

    @property
    def start(self) -> Step:
        """The step of the product of queries and keys."""
        return self.step.start

    def visible_keys(self) -> Tensor:
        """Return whether each query sees each key, bool (…, heads, queries, keys)."""
        logits = self.logits.detach()[..., self.step.key_columns()]
        # A mask of −10⁴ plus the logit that it was added to may be above −10⁴.
        return self.layout.by_head(logits > HIDDEN / 2.0)

    def logits_times(self, times: float | Tensor) -> Tensor:
        """Compute the logits again with the product multiplied by `times`.

        `times` is one number, or broadcasts to (…, heads, queries). Raises ValueError for several
        numbers if axes are exchanged between the product and the softmax.
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
        """Return queries and keys, (…, heads, length, d); None if unknown: `obstacle` has why."""
        start, shape = self.start, self.layout.shape
        pair = queries_and_keys(start.name, start.args, entries_of(start.args, Tensor))
        if pair is None or not self.step.ordered or pair[1].shape[-2] != shape[-1]:
            return None
        q, k = (x.expand(*start.shape[:-2], *x.shape[-2:]) for x in pair)
        if start.shape[:-2].numel() != shape[:-2].numel():  # heads are among the rows
            return None
        return self.layout.by_head(q.reshape(*shape[:-1], -1)), self.layout.by_head(
            k.reshape(*shape[:-2], *k.shape[-2:])
        )

    def obstacle(self) -> str:
        """Return the reason why `operands` is None; call it only then."""
        if self.step.ordered and self.start.shape[-1] < self.layout.shape[-1]:
            return "its logits have more columns than keys, as with a sink"
        if not self.step.ordered:
            return "its logits have their axes exchanged or joined before the softmax"
        return "its queries and keys have an order of axes that is not known"

    def queries(self) -> Tensor:
        """Return the queries, (…, heads, queries, d); if unknown, the product's first operand."""
        first: Tensor
        first, *_ = self.operands() or entries_of(self.start.args, Tensor)
        return first


class Weights(NamedTuple):
    """Hold the record of a call's weights, from its softmax to their product with values."""

    on_values: OnValues
    shape: torch.Size  # of the softmax
    changed: bool  # whether a function has changed their numbers since
    columns: bool = False  # whether a query has a column of weights, not a row


class Mark(NamedTuple):
    """Hold what is known of a tensor that has no record but may become weights."""

    kind: str  # one of MARK_ORDER: "products" are entry by entry, "scores" of activations
    module: nn.Module | None = None  # the module that made it
    why: str = ""  # the reason why its attention would be out of reach
    sure: bool = False  # whether its scores are of two activations
    heads: int = 0  # size of the first of two axes that its first one joins
    size: int = 0  # d of the vectors that were squared or multiplied


def is_learned(x: Tensor) -> bool:
    """Return whether a tensor is a parameter or a view of one."""
    return isinstance(x, nn.Parameter) or isinstance(x._base, nn.Parameter)


def letters_of(name: str, args: Any, tensors: list[Tensor]) -> tuple[str, str, str]:
    """Return the axes of a product's two operands and its result, as letters of torch.einsum.

    "." stands for all other axes. Three "" for an einsum without two operands and an arrow.
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


def queries_and_keys(name: str, args: Any, tensors: list[Tensor]) -> tuple[Tensor, Tensor] | None:
    """Return the operands of a product, (…, rows, d) and (…, columns, d); None if not known."""
    left, right = tensors[-2:]
    first, second, output = letters_of(name, args, [left, right])
    if output[-1:] in first:
        first, second, left, right = second, first, right, left
    summed = "".join(sorted((set(first) & set(second)) - set(output)))
    q = with_axes(left, first, output[:-1], summed)
    k = with_axes(right, second, output[:-2] + output[-1:], summed)
    return None if q is None or k is None else (q, k)


def with_axes(x: Tensor, letters: str, leading: str, last: str) -> Tensor | None:
    """Return `x`, whose axes are `letters`, with the axes `leading` and then `last` joined to one.

    Axes of `leading` that `x` lacks have the size 1. None if `x` has axes beside these.
    """
    present = "".join(letter for letter in leading if letter in letters)
    missing = [i for i, letter in enumerate(leading) if letter not in letters]
    if sorted(present + last) != sorted(letters) or ("." in leading and missing) or not last:
        return None
    if letters != present + last:  # `x` itself may be known by a record
        x = torch.einsum(f"{letters}->{present}{last}".replace(".", "..."), x)
    x = x.flatten(-len(last))
    for i in missing:
        x = x.unsqueeze(i)
    return x


def version_of(tensor: Tensor) -> int:
    """Return the number of writes into a tensor that PyTorch has counted; 0 if it counts none."""
    with suppress(RuntimeError):  # under inference_mode none is counted
        return tensor._version
    return 0


def map_nested(nested: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested arguments with `change` applied to each entry."""
    if isinstance(nested, dict):
        return {name: map_nested(entry, change) for name, entry in nested.items()}
    if isinstance(nested, list | tuple) and not isinstance(nested, torch.Size):
        entries = [map_nested(entry, change) for entry in nested]
        return entries if isinstance(nested, list) else tuple(entries)
    return change(nested)


def entries_of(nested: Any, kind: type[Any]) -> list[Any]:
    """Return the entries of type `kind` in nested arguments, in their order."""
    entries = []
    for entry in nested.values() if isinstance(nested, dict) else nested:
        if isinstance(entry, kind):
            entries.append(entry)
        elif isinstance(entry, function_kinds.CONTAINERS) and entry:
            entries += entries_of(entry, kind)
    return entries
