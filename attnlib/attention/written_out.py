"""Record attention that writes its softmax out: from the product q·k to the weights.

A record starts at each matrix product of three axes or more whose keys are computed, not learned.
What is done to that product, elementwise, in place or to its shape, is added. A softmax over the
last axis of what has a record is a call of attention: a router's logits and a classifier's come
from a learned matrix and have none. The record can be run again with the product times t, where
biases, caps and masks stay as they are. It holds no intermediate result, only what was computed
without the product: queries, keys, masks.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.weak import WeakTensorKeyDictionary

from attnlib.interception import (
    HIDDEN,
    MODULE_CALL,
    OPERATOR,
    custom_operator,
    in_graph,
    is_traced,
    is_transformed,
)
from attnlib.projections import HEADS

PRODUCTS = re.compile("__r?matmul__|matmul|linalg_matmul|bmm|baddbmm_?|einsum")
PLAIN = ("matmul", "__matmul__", "bmm")
SOFTMAXES = ("softmax", "_softmax", "special_softmax")
COMPOSED = re.compile("softmin|(?!log).*_softmax")
"""Functions that make weights of logits inside, where they cannot be changed."""
CONTRACTIONS = re.compile(
    f"{PRODUCTS.pattern}|(_?sparse_)?(add)?(mm|mv)|addbmm|tensordot|inner|linear|(linalg_)?(vec)?dot"
)
"""Functions that may average values with weights."""
KERNELS = re.compile("(?!flex_).*(attention|attn).*")
OPERANDS = ("input", "batch1", "batch2", "mat2", "other")
"""The names of a product's operands as keywords, in their order."""
ENDS = re.compile(
    "linear|conv.d|.*_norm|embedding|.*_loss|cross_entropy|grad|scaled_.*|(linalg_)?(svd|eigh?|qr)"
)
"""Functions whose results have no record."""
IN_PLACE = re.compile(".*[^_]_|__setitem__|__i(add|sub|mul|truediv|div|pow|and|or)__")
EXCHANGES = re.compile("transpose|permute|mT|T|swap.*|move.*|flip|roll|gather|index_select|take.*")
SCALES = re.compile("(__r?i?)?(mul|truediv|div|multiply|divide)_*")
RESHAPES = re.compile("view.*|reshape.*|.*flatten|.*squeeze")
KEEPS = re.compile(
    f"{RESHAPES.pattern}|{EXCHANGES.pattern}|(__r?i?)?(add|sub|masked_fill)_*|where|to|float|double|"
    "half|bfloat16|type.*|contiguous|__setitem__|cat|stack|pad|expand.*|dropout|clone|"
    "(__)?getitem(__)?"
)
"""Functions that leave the number that multiplies the product as it is."""
BROADCASTS = re.compile(
    f"{SCALES.pattern}|(__r?i?)?(add|sub|masked_fill)_*|where|to|float|double|half|bfloat16|clone"
)
"""Functions that change each logit by itself."""
SUMS = re.compile("(__r?i?)?(add|sub)_*")
JOINS = re.compile(f"{SUMS.pattern}|cat|concat|concatenate|[hv]?stack|where|__setitem__")
SQUARES = re.compile("square|(__)?pow(__)?|norm|linalg_(vector_)?norm")
FILLS = re.compile("__setitem__|masked_fill_*|where")
AFTER = re.compile(
    f"{RESHAPES.pattern}|to|float|double|half|bfloat16|type.*|contiguous|clone|expand.*|.*dropout.*|"
    "detach_?|data"
)
"""Functions that leave weights as the softmax has made them."""
EXPONENTIALS = re.compile("exp2?_?|expm1_?|__rpow__")
MIXES = re.compile("mul_?|multiply|__r?mul__")
"""Functions that multiply entry by entry."""
ONE = "its softmax is of one activation without known keys, as in a synthesizer"
MEMORY = "its keys or scores are of a learned matrix, as in attention over a memory"
LEARNED = "its softmax is of learned logits without keys, as in a random synthesizer"
RANDOM = re.compile(
    "bernoulli_?|rrelu_?|multinomial|poisson|normal_?|(log_normal|uniform|exponential)_"
)
"""Functions that draw other numbers each time."""
FACTS = re.compile(
    "shape|dtype|device|layout|ndim|dim|size|numel|stride|is_.*|requires_grad|__len__"
)
"""Functions that describe a tensor and return none."""
ALIASES = re.compile(
    "data|__set__|data_ptr|numpy|__array__|.*storage|.*dlpack.*|__cuda_array_interface__"
)
"""Functions that give access to a tensor's memory, where a write does not change its version."""
REPEATS = re.compile(
    f"{KEEPS.pattern}|{SCALES.pattern}|{PRODUCTS.pattern}|{EXPONENTIALS.pattern}|tanh_?|sigmoid_?|"
    "clamp.*|relu.*|softplus|abs_?|neg_?|pow_?|sqrt_?|log_?|log1p_?|tri[lu]_?|max|min|amax|amin"
)
"""Functions that are known to return the same for the same arguments."""
DIFFER = "its logits are not what the functions that made them give again"
BESIDE = "its logits are also used beside their softmax, where no factor reaches"
ONE_KEY = "a softmax over one key alone has nothing to weigh: give the model more tokens"
TWO = "its logits are made of two products"
DISTANCE = "squared lengths are added to its logits, as in attention by distances"
NO_SOFTMAX = "no softmax stands between its two products, as in linear attention"
SAME = re.compile(f"{RESHAPES.pattern}|{EXCHANGES.pattern}|masked_fill_*|to|float|contiguous")
NESTS = (list, tuple, dict)
"""Types of arguments that hold others."""
LONGEST = 64
"""The most functions in a row that a record follows; a result beyond them has none."""

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

    def run(self, times: float | Tensor | None, made: dict["Step", Any]) -> Any:
        """Run the step again, the product times `times`, and return its result; `made` keeps it."""
        if self in made:
            return made[self]
        args, kwargs = (
            _mapped(given, lambda x: x.run(times, made) if isinstance(x, Step) else x)
            for given in (self.args, self.kwargs)
        )
        multiplied = self.product is None and times is not None
        if multiplied and self.name.startswith("baddbmm"):
            args = args[0].clone(), (args[1] * times).to(args[1].dtype), *args[2:]
        elif IN_PLACE.fullmatch(self.name):
            args = args[0].clone(), *args[1:]
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
        start, small = self.product or self, True
        if start is self and not self.name.startswith("baddbmm"):
            return None
        path, step = [], self
        while step is not start and small:
            path.append(step)
            [step, *others] = _flat((step.args, step.kwargs), Step)
            small = not others and BROADCASTS.fullmatch(path[-1].name) is not None
        if not small or start.name.startswith("baddbmm"):
            result: Tensor = self.run(0.0, {})
            return result
        result = _flat(start.args, Tensor)[0].new_zeros(()).expand((1,) * len(self.shape))
        for step in reversed(path):
            args, kwargs = (
                _mapped(given, partial(_instead, result)) for given in (step.args, step.kwargs)
            )
            function = step.function
            if IN_PLACE.fullmatch(step.name):  # there the result has the shape of the product
                inside = step.name.startswith("__i")
                name = step.name.replace("__i", "__") if inside else step.name.rstrip("_")
                function = getattr(Tensor, name)
            result = function(*args, **kwargs)
        return result

    def exchanged(self) -> "Step | None":
        """Return the record of (k @ q.mT).mT, also times or plus numbers, as that of q @ k.mT.

        None where another function stands between the product and the exchange.
        """
        function, tensors, steps = self.function, *(_flat(self.args, x) for x in (Tensor, Step))
        if self.name in PLAIN and self.product is None:
            k, q = tensors
            step = replace(self, args=(q.mT, k.mT), learned=_is_learned(k) or k.ndim < 3)
            step.function = lambda q, k: function(k.mT, q.mT).mT
            return step
        numbers = all(x.numel() == 1 for x in _flat((self.args, self.kwargs), Tensor))
        if len(steps) != 1 or not numbers or not BROADCASTS.fullmatch(self.name):
            return None
        inner = steps[0].exchanged()
        if inner is None:
            return None
        given = _mapped(self.args, lambda x: inner if x is steps[0] else x)
        return replace(self, args=given, product=inner.product or inner)

    def scale(self) -> float:
        """Return the number that multiplies the product; NaN where it is not one number."""
        if self.product is None:
            return float(self.kwargs.get("alpha", 1.0)) if self.name.startswith("baddbmm") else 1.0
        [before, *others] = _flat((self.args, self.kwargs), Step)
        if others or (FILLS.fullmatch(self.name) and not self._hides()):
            return math.nan
        own: float = before.scale()
        if SUMS.fullmatch(self.name):
            first = next(iter(self.args), self.kwargs.get("input")) is before
            negative = "sub" in self.name and ("rsub" in self.name or not first)
            return own * (1.0 if first else self.kwargs.get("alpha", 1.0)) * (-1.0) ** negative
        if not SCALES.fullmatch(self.name):
            return own if KEEPS.fullmatch(self.name) else math.nan
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
        start = self.product or self
        whole = self.shape.numel() >= start.shape.numel()
        if self.learned or start.dimension < 2 or not whole:  # d = 1: of positions
            return ""
        if any(EXPONENTIALS.fullmatch(step.name) for step in self._path()):
            return "it makes its weights of exp and a sum"
        if self.lost:
            return ""
        return NO_SOFTMAX if self.is_plain() else "its weights are no softmax of its logits"

    def is_plain(self) -> bool:
        """Return whether the product is only scaled, reshaped, added to or filled in so far."""
        names = [step.name for step in self._path()]
        return all(KEEPS.fullmatch(name) or SCALES.fullmatch(name) for name in names)

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
            rounding = math.sqrt(torch.finfo(made[self.product or self].dtype).eps)
            return torch.allclose(
                again.to(logits.dtype), logits, rounding, rounding, equal_nan=True
            )

    def head_axis(self, heads: int) -> int:
        """Return the axis of the heads, counted from the end: −3 unless another is found.

        The letters of an einsum may show −2, say. It is −4 where the first of three axes joins
        heads and batch, heads first.
        """
        start = self.product or self
        if len(self.shape) == 3 and heads and start.heads == heads:
            return -4
        if start.name != "einsum" or not self.ordered or start.shape != self.shape:
            return -3
        first, second, output = _letters(start.args[0])
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
                ahead += _flat((step.args, step.kwargs), Step)
        return path

    def keys(self) -> slice:
        """Return the slice of columns that are keys, without a sink's; all where unknown."""
        before = 0
        width = (self.product or self).shape[-1]
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
        if self.lost or any(_version(tensor) != number for tensor, number in self.versions):
            return self.lost or "what its logits are computed from is written over on the way"
        before = (step.problem() for step in _flat((self.args, self.kwargs), Step))
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
        return self.step.product or self.step

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
        pair: tuple[Any, Any] = (None, None)
        if start.name == "einsum":
            first, second, output = _letters(start.args[0])
            left, right = _flat(start.args, Tensor)
            if output[-1] in first:
                first, second, left, right = second, first, right, left
            summed = "".join(sorted((set(first) & set(second)) - set(output)))
            pair = (
                _ordered(left, first, output[:-1], summed),
                _ordered(right, second, output[:-2] + output[-1], summed),
            )
        elif "r" not in start.name:
            left, right = _flat(start.args, Tensor)[-2:]
            pair = left, right.mT
        q, k = pair
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
        queries: Tensor = _flat(self.start.args, Tensor)[0] if operands is None else operands[0]
        return queries


class Weights(NamedTuple):
    """Hold the record of a call's weights, from its softmax to their product with values."""

    valued: Valued
    shape: torch.Size
    changed: bool
    version: int
    columns: bool = False  # whether a query has a column of weights, not a row


class Mark(NamedTuple):
    """Hold what is known of a tensor without a record, which may lead to weights."""

    kind: str  # one of ORDER: "products" are entry by entry, "scores" of activations
    module: nn.Module | None = None
    why: str = ""
    sure: bool = False  # whether its scores are of two activations
    heads: int = 0  # size of the first of two axes that its first one joins
    size: int = 0  # d of the vectors that are squared or multiplied


ORDER = ("folded", "learned", "products", "squares", "one", "samples", "scores", "weights")
"""Kinds of marks: of several arguments the last counts."""


class Recorder:
    """Record matrix products in one thread, and find the softmaxes of logits made of them.

    `running` returns the running modules, the inmost last. `changes`: logits are to be changed,
    and weights made in a torch.autograd.Function are out of reach. `made` gets each function's
    tensors and its result.
    """

    def __init__(
        self,
        running: Callable[[], Sequence[nn.Module]],
        *,
        changes: bool = True,
        made: Callable[[list[Tensor], Any], None] = lambda tensors, result: None,
    ) -> None:
        self.running, self.changes, self.made = running, changes, made
        self.kept: Any = WeakTensorKeyDictionary()  # steps with versions, Weights, or Marks
        self.compared: set[Any] = set()  # kinds of modules, with the functions behind a product
        self.one_key = False  # whether a softmax had one entry
        self.aliased = True  # whether logits can have been written into unseen
        self.unreached: dict[nn.Module | None, str] = {}
        """Modules whose attention is seen and cannot be run again, and why."""
        self.hints: dict[nn.Module | None, str] = {}
        """Modules that may attend in a way that is not followed, and why."""
        self.reached: set[nn.Module | None] = set()
        self.paths: dict[nn.Module | None, str] = {}
        """The names of noted modules in the outmost one that ran."""

    def call(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        change: Callable[[WrittenOut], Tensor | None],
    ) -> Any:
        """Return a function's result, and record it; `change` may give a softmax other logits."""
        name = getattr(function, "__name__", "")
        if name == "__get__":  # of an attribute
            name = getattr(function.__self__, "__name__", "")
        name = name.partition(".")[0]  # of an overload of torch.ops
        if FACTS.fullmatch(name):
            return function(*args, **kwargs)
        self.aliased = self.aliased or ALIASES.fullmatch(name) is not None
        if isinstance(function, torch.ScriptMethod):
            self._scripted(function)
        elif KERNELS.fullmatch(name) and function is not OPERATOR and not in_graph():
            self.note(f"it calls {name}, another kernel")
        elif (operator := custom_operator(function, args)) and not in_graph():
            self.note(f"it calls {operator}, a kernel of its own that may be attention", hint=True)
        if PRODUCTS.fullmatch(name):
            kwargs = {**kwargs}
            args = (*args, *(kwargs.pop(operand) for operand in OPERANDS if operand in kwargs))
        tensors = _flat((args, kwargs), Tensor)
        if name.endswith("_as"):
            del tensors[1:]  # the other tensor has a shape alone
        kept = {id(x): entry for x in tensors if (entry := self._of(x)) is not None}
        call = None
        softmax = name in SOFTMAXES or COMPOSED.fullmatch(name) is not None
        if softmax and kept:
            call = self._attention(name, *args, **kwargs)
        if call is not None:
            self.reached.add(call.module)
            logits = change(call)
            if logits is not None:
                args, kwargs = (logits, *args[1:]), {**kwargs}
                kwargs.pop("input", None)
        result = function(*args, **kwargs)
        if call is not None:
            self.kept[result] = Weights(call.valued, call.layout.shape, False, _version(result))
        elif softmax and _of_one(result, *args[1:2], **kwargs):
            self.one_key = True
        elif softmax and tensors and isinstance(result, Tensor):
            self.kept[result] = self._other_weights(tensors[0], kept.get(id(tensors[0])))
        elif kept or not name.startswith("__get"):
            self._follow(function, name, args, kwargs, result, tensors, kept)
        self.made(tensors, result)
        return result

    def note(self, why: str, module: Any = NotImplemented, *, hint: bool = False) -> None:
        """Note why a module, by default the inmost, is out of reach, or (`hint`) may be."""
        module = self._module() if module is NotImplemented else module
        (self.hints if hint else self.unreached).setdefault(module, why)
        if module not in self.paths:
            outmost = next(iter(self.running()), None)
            named = () if outmost is None else outmost.named_modules()
            self.paths[module] = next((path for path, part in named if part is module), "")

    def path(self, module: nn.Module | None) -> str:
        """Return the name of a noted module in its model, and its class; "a function" for None."""
        if module is None:
            return "a function"
        return f"{self.paths[module] or 'the model'} ({type(module).__name__})"

    def lines(self, shown: Callable[[Any], str], *, hints: bool = False) -> list[str]:
        """Return a line for each reason and its modules, by `shown`: of `unreached` or `hints`."""
        by_reason: dict[str, list[str]] = {}
        known = self.reached.union(self.unreached)
        for module, why in (self.hints if hints else self.unreached).items():
            if why != NO_SOFTMAX or module not in known:
                by_reason.setdefault(why, []).append(shown(module))
        return [f"{', '.join(modules)}: {why}" for why, modules in by_reason.items()]

    def fixed(self, query: Tensor, mask: Any) -> str:
        """Return why a factor on `query` would not reach all logits, `mask` included; or ""."""
        if query.is_nested:
            return "its queries are a nested tensor"
        step = self._of(mask)  # of other products of queries
        if isinstance(step, Mark) and mask.shape[-2:-1] == query.shape[-2:-1]:
            return TWO if (step.kind, step.size) == ("scores", query.shape[-1]) else ""
        of_vectors = isinstance(step, Step) and (step.product or step).dimension == query.shape[-1]
        return TWO if of_vectors and step.is_plain() else ""

    def _scripted(self, method: Any) -> None:
        """Note the inmost module, if this torch.jit method attends: no call inside it is seen."""
        inlined = method.graph.copy()
        torch._C._jit_pass_inline(inlined)
        graph = str(inlined)
        kernel = "aten::scaled_dot_product_attention" in graph
        if kernel or (_IN_GRAPH.search(graph) and _PRODUCT_IN_GRAPH.search(graph)):
            self.note("its attention is inside a module of torch.jit")

    def _attention(
        self, name: str, input: Any = None, dim: Any = None, *_: Any, **__: Any
    ) -> WrittenOut | None:
        """Return the call whose softmax this is; None if it is none, or out of reach (noted)."""
        step = self._of(input)
        if not isinstance(step, Step) or step.learned or input.ndim < 3:
            return None
        running, module = self.running(), self._module()
        why = step.problem()
        if name not in SOFTMAXES:
            why = why or f"its weights are made by {name}"
        elif dim not in (-1, input.ndim - 1):
            why = f"its softmax is over axis {dim}; it must be over the last, with logits q @ k.mT"
        elif self.changes and not torch.is_grad_enabled():
            operands = _flat((step.product or step).args, Tensor)
            asking = any(x.requires_grad and not _is_learned(x) for x in operands)
            if asking and not _recomputed():
                why = why or (
                    "its weights have no gradient of autograd's: they are made in a "
                    "torch.autograd.Function or under torch.no_grad"
                )
        functions = frozenset(operation.name for operation in step._path())
        way = type(module), functions
        known = way in self.compared and all(map(REPEATS.fullmatch, functions))
        if not why and (self.aliased or not known or input.is_inference()):
            why = "" if step.repeats(input) else DIFFER
            self.compared.add(way)
            self.aliased = False
        start = step.product or step
        start.weighs = True
        why = why or (BESIDE if start.beside else "")
        if why:
            self.note(why)
            return None
        heads = number_of_heads(running)
        layout = Layout(input.shape, heads, step.head_axis(heads))
        return WrittenOut(input, step, module, layout)

    def _module(self) -> nn.Module | None:
        """Return the inmost module that runs and is not an nn.Softmax."""
        modules = (module for module in reversed(self.running()) if type(module) is not nn.Softmax)
        return next(modules, None)

    def _other_weights(self, logits: Tensor, known: Any) -> Mark:
        """Return the mark of a softmax that is no recorded call; `known` is its logits' own."""
        why = "its softmax is not of a product with three axes or more of queries and keys"
        why += ", or not in a form that is followed"
        sure = False
        if isinstance(known, Step) and known.learned:
            why = MEMORY
        elif isinstance(known, Step) or (isinstance(known, Mark) and known.kind == "scores"):
            sure = True
        elif isinstance(known, Mark) and known.kind == "one":
            why = ONE
        elif _is_learned(logits) or (isinstance(known, Mark) and known.kind == "learned"):
            why = LEARNED
        return Mark("weights", self._module(), why, sure)

    def _averages(
        self, name: str, args: Any, tensors: list[Tensor], result: Any, kept: dict[int, Any]
    ) -> bool:
        """Return whether weights that no recorded call has made average values, which is noted.

        Those of a router or of one learned query do not count: they have no row for each query.
        """
        noted = False
        pair = tensors[:2] if name == "linear" else tensors[-2:]
        for place, (weights, values) in enumerate((pair, pair[::-1])):
            mark, other = kept.get(id(weights)), kept.get(id(values))
            if isinstance(mark, Step):
                weighted = isinstance(other, Mark) and other.kind == "weights"
                why = "" if weighted or _is_learned(values) else mark.as_weights()
                if why:
                    self.note(why, hint=why == NO_SOFTMAX)
                    noted = why != NO_SOFTMAX
                continue
            if not isinstance(mark, Mark) or not mark.why:
                continue
            why = mark.why
            if not CONTRACTIONS.fullmatch(name):
                rows, keys = values.shape[-3:-1] if values.ndim > 3 else (0, 0)
                entries = values.ndim == weights.ndim > 3 and weights.shape[-1] == 1 == rows
                entries = entries and weights.shape[-3] > 1 and keys == weights.shape[-2]
                entries = entries or (isinstance(other, Mark) and other.kind == "samples")
                averages = entries or (mark.sure and result.numel() > weights.numel())
            elif name == "linear" and place == 0 and weights.ndim > 2 and _is_learned(values):
                averages, why = True, why if mark.sure else MEMORY
            elif isinstance(other, Step) and not other.learned:
                averages = False  # it averages a product itself: linear attention
            else:
                averages = mark.sure or _has_rows(name, args, weights, values, place)
            if averages:
                self.note(why, mark.module, hint=why in (ONE, MEMORY, LEARNED))
                noted = True
        return noted

    def _mark(
        self, name: str, args: Any, tensors: list[Tensor], result: Any, marks: list[Mark]
    ) -> None:
        """Mark the result of a function whose arguments have no record, by its name and `marks`."""
        before = max(marks, key=lambda mark: ORDER.index(mark.kind), default=None)
        learned = len(tensors) < 2 or any(_is_learned(x) or x.numel() == 1 for x in tensors[-2:])
        mixes = MIXES.fullmatch(name) and not learned and result.ndim > 2
        mark = None
        followed = before is not None and before.kind not in ("folded", "products", "one")
        by_head = mixes and any(x.shape[-2:].numel() == 1 for x in tensors)
        itself = len(tensors) > 1 and tensors[0] is tensors[-1] and MIXES.fullmatch(name)
        if name == "linear" or name.startswith("conv"):
            mark = Mark("one")
        elif name == "grid_sample":
            mark = Mark("samples")
        elif (SQUARES.fullmatch(name) or itself) and not followed:
            size = tensors[0].shape[-1] if "norm" in name and tensors[0].ndim > 2 else 0
            mark = Mark("squares", size=size)
        elif CONTRACTIONS.fullmatch(name):
            mark = None if learned else Mark("scores", size=_summed(name, args, tensors))
            mark = Mark("learned") if all(map(_is_learned, tensors)) else mark
        elif before is not None and before.kind == "scores" and by_head:
            mark = before
        elif before is None or (mixes and before.kind != "weights"):
            mark = Mark("products") if mixes else None
        elif before.kind == "products":
            mark = before if SCALES.fullmatch(name) else None
            if name in ("sum", "mean"):
                mark = Mark("scores", size=tensors[0].numel() // max(1, result.numel()))
        elif followed and KEEPS.fullmatch(name):
            mark = before
        elif before.kind == "squares" and name in ("sum", "mean"):
            mark = before._replace(size=tensors[0].shape[-1])
        elif before.kind == "squares":
            mark = before if SCALES.fullmatch(name) or SQUARES.fullmatch(name) else None
        elif isinstance(result, Tensor) and result.numel() == tensors[0].numel():
            mark = before
            if before.kind == "scores" and EXPONENTIALS.fullmatch(name):
                mark = Mark("scores", self._module(), "it makes its weights of exp and a sum", True)
            elif before.kind == "one" and not (SAME.fullmatch(name) or SCALES.fullmatch(name)):
                mark = None
        if RESHAPES.fullmatch(name) or name in ("contiguous", "clone"):
            heads = _first_of_two(tensors[0], result) or (0 if mark is None else mark.heads)
            mark = (mark or Mark("folded"))._replace(heads=heads) if mark or heads else None
        if mark is not None:
            for part in result if isinstance(result, list | tuple) else [result]:
                if isinstance(part, Tensor):
                    self.kept[part] = mark

    def _of(self, x: Any) -> Any:
        """Return a tensor's record or mark, or None; one written into meanwhile counts as lost."""
        entry = self.kept.get(x) if isinstance(x, Tensor) else None
        if isinstance(entry, Weights) and entry.version != _version(x):
            return entry._replace(changed=True)
        if type(entry) is not tuple:
            return entry
        step, version = entry
        if _version(x) != version:
            why = "its logits are written into through another view"
            first = step.product or step
            learned = step.learned
            return Step(None, "", (), {}, first, lost=why, shape=step.shape, learned=learned)
        return step

    def _follow(
        self,
        function: Any,
        name: str,
        args: Any,
        kwargs: Any,
        result: Any,
        tensors: list[Tensor],
        kept: dict[int, Any],
    ) -> None:
        """Record or mark a function's result; `kept` has what is known of its arguments, by id."""
        known = {i: entry for i, entry in kept.items() if isinstance(entry, Step)}
        is_product = PRODUCTS.fullmatch(name) is not None
        if known and self.changes and not is_product and _joins(result, tensors, known):
            step = max(known.values(), key=lambda step: step.shape.numel())
            start = step.product or step
            start.beside = True
            if start.weighs:
                self.note(BESIDE)
        if len(known) < len(kept) and self._weighs(name, args, kwargs, tensors, result, kept):
            return
        contraction = is_product or CONTRACTIONS.fullmatch(name)
        meets = kept and len(tensors) > 1 and (contraction or MIXES.fullmatch(name))
        if meets and self._averages(name, args, tensors, result, kept):
            return
        dimension, learned = _dimension(name, args, result) if is_product else (0, False)
        if name == "einsum" and sum(x.ndim > 2 and not _is_learned(x) for x in tensors) > 2:
            self.note(NO_SOFTMAX, hint=True)
        if not (dimension or known):
            marks = [entry for entry in kept.values() if isinstance(entry, Mark)]
            self._mark(name, args, tensors, result, marks)
            return
        fused = self.fixed(tensors[-2], args[0]) if name.startswith("baddbmm") else ""
        if dimension:
            known = {}
        # Masks and indices that another product chooses stay as they are.
        numbers = [x for x in tensors if x.is_floating_point() or x.is_complex()]
        starts = {known[id(x)].product or known[id(x)] for x in numbers if id(x) in known}
        known = {i: x for i, x in known.items() if not starts or (x.product or x) in starts}
        before = max(known.values(), key=lambda step: step.shape.numel(), default=None)
        longest = max((step.length for step in known.values()), default=-1)
        if longest >= LONGEST or name.endswith("_like") or name.startswith("new_"):
            return
        given, named = (_mapped(x, lambda x: known.get(id(x), x)) for x in (args, kwargs))
        named.pop("out", None)
        learned = learned or any(step.learned for step in known.values())
        step = Step(function, name, given, named, length=longest + 1, dimension=dimension)
        step.learned = learned
        step.lost = fused
        marked = [(x, mark) for x in tensors if isinstance(mark := kept.get(id(x)), Mark)]
        step.heads = next(filter(None, (mark.heads for _, mark in marked)), 0)
        written = args[0] if IN_PLACE.fullmatch(name) else None
        result = result if written is None else written
        if before is not None:
            step.product = before.product or before
            others = {
                mark.kind
                for x, mark in marked
                if mark.size == step.product.dimension
                and (mark.kind == "squares" or x.shape[-2:-1] == before.shape[-2:-1])
            }
            lost = next((entry.lost for entry in known.values() if entry.lost), "")
            mixed = any((entry.product or entry) is not step.product for entry in known.values())
            if mixed:
                step.learned = all(entry.learned for entry in known.values())
            if is_product or ENDS.fullmatch(name):
                if not isinstance(result, Tensor) or result.ndim < 4 or learned:
                    return
                if not set(step.product.shape[-2:]) <= set(result.shape):
                    return
                step.lost = lost or f"its logits go through {name} before the softmax"
            elif lost:
                step.lost = lost
            elif mixed or ("scores" in others and JOINS.fullmatch(name)):
                step.lost = TWO
            elif "squares" in others and SUMS.fullmatch(name):
                step.lost = DISTANCE
            elif RANDOM.fullmatch(name) or ("dropout" in name and _drops(*args, **kwargs)):
                step.lost = "its logits are drawn or dropped at random"
            elif written is not None and id(written) not in known:
                step.lost = "its logits are put together in place"
        if before is not None and _exchanges(name, tensors[0], result):
            exchanged = before.exchanged()
            step, before = (step, before) if exchanged is None else (exchanged, None)
        step.versions = [(x, _version(x)) for x in _flat((step.args, step.kwargs), Tensor)]
        device = tensors[0].device.type
        step.autocast = device, torch.is_autocast_enabled(device)
        several = isinstance(result, list | tuple)
        for i, part in enumerate(result if several else [result]):
            if isinstance(part, Tensor):
                entry = step
                if several:
                    entry = Step(getitem, "getitem", (step, i), {}, step.product, step.length)
                    entry.learned = step.learned
                entry.shape = part.shape
                if before is not None:
                    same = before.shape[:-1] == entry.shape[:-1] and not EXCHANGES.fullmatch(name)
                    rows = before.shape[-1:] == entry.shape[-1:] and RESHAPES.fullmatch(name)
                    entry.ordered = before.ordered and bool(same or rows)
                self.kept[part] = entry, _version(part)

    def _weighs(
        self,
        name: str,
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
        result: Any,
        kept: dict[int, Any],
    ) -> bool:
        """Return whether a function takes weights; follow them to their product with values."""
        source = next((entry for entry in kept.values() if isinstance(entry, Weights)), None)
        if name == "__setitem__" and kept.get(id(args[0])) is source:
            result = args[0]
        if source is None or not isinstance(result, Tensor):
            return source is not None
        valued, shape, changed, _, columns = source
        if not PRODUCTS.fullmatch(name):
            dropped = "dropout" in name and _drops(*args, **kwargs)
            if tensors[0].shape == shape and _exchanges(name, tensors[0], result):
                self.kept[result] = source._replace(columns=not columns, version=_version(result))
            elif columns:
                if result.shape == tensors[0].shape and AFTER.fullmatch(name) and not dropped:
                    self.kept[result] = source._replace(version=_version(result))
            elif result.numel() == shape.numel() and not EXCHANGES.fullmatch(name):
                valued = partial(_dropped, valued) if dropped else valued
                changed = changed or not AFTER.fullmatch(name)
                self.kept[result] = Weights(valued, shape, changed, _version(result))
            return True
        pair, place = tensors, int(columns)
        first, second, output = _letters(args[0]) if name == "einsum" else ("", "", "")
        if first:
            place = int(kept.get(id(tensors[0])) is not source)
            if place:
                pair, first, second = pair[::-1], second, first
            if columns:
                pair, first = [pair[0].mT, pair[1]], first[:-2] + first[:-3:-1]
        elif columns:
            pair, result = [x.mT for x in reversed(tensors)], result.mT
        if len(pair) == 2 and kept.get(id(tensors[place])) is source:
            weights: Any = pair[0]
            values: Any = pair[1]
            if name == "einsum":
                if first[-1:] in output or first[-1:] not in second:  # heads that talk
                    return True
                size = "".join(sorted(set(output) - set(first)))
                values = _ordered(values, second, first[:-2] + first[-1:], size)
                result = _ordered(result, output, first[:-1], size)
            if values is None or result is None or weights.shape[-2:] != shape[-2:]:
                return True
            if weights.shape != shape:  # heads are flattened behind the softmax
                if values.shape[:-2].numel() != shape[:-2].numel():
                    return True
                values, result = (x.reshape(*shape[:-2], *x.shape[-2:]) for x in (values, result))
            valued(values, result, changed)
        return True


def running_modules() -> list[nn.Module]:
    """Return the modules whose methods run in this thread, the inmost last."""
    frames: list[Any] = [sys._getframe(1)]
    while frames[-1].f_back is not None:
        frames.append(frames[-1].f_back)
    # Reading f_locals keeps what a frame holds, so those that hold logits are left alone.
    calls = (i for i, frame in enumerate(frames) if frame.f_code is MODULE_CALL)
    modules = (frame.f_locals.get("self") for frame in reversed(frames[next(calls, 0) :]))
    return list(dict.fromkeys(module for module in modules if isinstance(module, nn.Module)))


_IN_GRAPH = re.compile(r"aten::_?(log_)?softmax|aten::exp\(")
_PRODUCT_IN_GRAPH = re.compile("aten::(matmul|bmm|baddbmm|einsum)")


def number_of_heads(running: Sequence[nn.Module]) -> int:
    """Return the number of heads of the inmost module that states one, or 0."""
    numbers = (getattr(module, name, 0) for module in reversed(running) for name in HEADS)
    return next((number for number in numbers if isinstance(number, int) and number > 0), 0)


def _recomputed() -> bool:
    """Return whether a torch.utils.checkpoint, which runs its pass again, is running."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not _CHECKPOINT:
        frame = frame.f_back
    return frame is not None


_CHECKPOINT = CheckpointFunction.forward.__code__


def _dimension(name: str, args: Any, result: Any) -> tuple[int, bool]:
    """Return d of a product of queries and keys, else 0, and whether keys are learned."""
    operands = _flat(args, Tensor)[-2:]
    if not isinstance(result, Tensor) or result.ndim < 3 or len(operands) < 2:
        return 0, False
    if result.shape[-1] == 1:  # values, averaged with one row of weights
        return 0, False
    rows, columns = operands[::-1] if name == "__rmatmul__" else operands
    if name != "einsum" and min(rows.ndim, columns.ndim) < 2:  # scores of one query
        return 0, False
    if name == "einsum":
        first, second, output = _letters(args[0])
        own = [letter for letter in output if (letter in first) != (letter in second)]
        if len({letter in first for letter in own}) < 2:
            return 0, False
        if own[-1] in first:
            rows, columns = columns, rows
    return _summed(name, args, operands), _is_learned(columns) or columns.ndim < 3


def _summed(name: str, args: Any, operands: list[Tensor]) -> int:
    """Return the size of the vectors that a product sums over, or 0."""
    if name != "einsum":
        return operands[-1 if name == "__rmatmul__" else -2].shape[-1]
    first, second, output = _letters(args[0])
    summed = (set(first) & set(second)) - set(output)
    sizes = dict(zip(reversed(first), reversed(operands[0].shape), strict=False))
    return math.prod(sizes.get(letter, 1) for letter in summed) if summed else 0


def _exchanges(name: str, x: Tensor, result: Tensor) -> bool:
    """Return whether a function has exchanged the last two axes of `x`."""
    if not EXCHANGES.fullmatch(name) or result.ndim < 2:
        return False
    return result.mT.shape == x.shape and result.mT.stride() == x.stride()


def _first_of_two(x: Tensor, result: Any) -> int:
    """Return the size of the first axis, if a function joins it and the second into one; else 0.

    Two axes of one size are told apart only if they were exchanged before.
    """
    if x.ndim != 4 or not isinstance(result, Tensor) or is_transformed(x) or x.is_nested:
        return 0
    first, second = x.shape[:2]
    if first == second:
        exchanged = x.layout is torch.strided and 0 < x.stride(0) < x.stride(1)
        return first if exchanged and len(result) in (first, first * second) else 0
    return first if result.ndim == 3 and len(result) == first * second else 0


def _joins(result: Any, tensors: list[Tensor], known: dict[int, Step]) -> bool:
    """Return whether numbers made of logits, one for each query, are joined to other vectors."""
    if not isinstance(result, Tensor) or result.shape[-1:] <= (1,):
        return False
    numbers = [x for x in tensors if id(x) in known]
    return (
        all(x.shape[-1:] == (1,) and x.is_floating_point() for x in numbers)
        and all((step.product or step).shape[-1:] != (1,) for step in known.values())
        and any(x.shape[-1:] == result.shape[-1:] for x in tensors if id(x) not in known)
    )


def _is_learned(x: Tensor) -> bool:
    return isinstance(x, nn.Parameter) or isinstance(x._base, nn.Parameter)


def _has_rows(name: str, args: Any, weights: Tensor, values: Tensor, place: int) -> bool:
    """Return whether several rows of weights, the operand at `place`, average the same values."""
    if name == "einsum":
        own, others, output = _letters(args[0])
        own, others = (others, own) if place else (own, others)
        sizes = dict(zip(reversed(own), reversed(weights.shape), strict=False))
        rows = (set(own) & set(output)) - set(others)
        summed = (set(own) & set(others)) - set(output)
        return bool(summed) and any(sizes.get(letter, 1) > 1 for letter in rows)
    if weights.ndim < 2 or (place and weights.ndim < values.ndim):  # a layer made of a softmax
        return False
    return weights.shape[-1 if place else -2] > 1


def _letters(equation: Any) -> tuple[str, str, str]:
    """Return the letters of an einsum's two operands and its result; three "" for another form."""
    inputs, _, output = str(equation).replace(" ", "").replace("...", ".").partition("->")
    first, comma, second = inputs.partition(",")
    return (first, second, output) if comma and "," not in second else ("", "", "")


def _ordered(x: Tensor, letters: str, to: str, last: str) -> Tensor | None:
    """Return `x`, whose axes torch.einsum calls `letters`, with the axes `to`, then `last` as one.

    Axes of `to` that it lacks have the size 1. None where the letters do not fit.
    """
    present = "".join(letter for letter in to if letter in letters)
    missing = [i for i, letter in enumerate(to) if letter not in letters]
    if sorted(present + last) != sorted(letters) or ("." in to and missing) or not last:
        return None
    x = torch.einsum(f"{letters}->{present}{last}".replace(".", "..."), x)
    x = x.flatten(-len(last))
    for i in missing:
        x = x.unsqueeze(i)
    return x


def _of_one(result: Any, dim: Any = None, **named: Any) -> bool:
    """Return whether the softmax over axis `dim` has one entry, as for a cache's first token."""
    dim = named.get("dim", dim)
    return isinstance(result, Tensor) and isinstance(dim, int) and result.shape[dim] == 1


def _instead(result: Tensor, x: Any) -> Any:
    return result if isinstance(x, Step) else x


def _dropped(valued: Valued, values: Tensor, _: Any, changed: bool) -> None:
    valued(values, None, changed)


def _drops(_: Any = None, p: float = 0.5, training: bool = True, *__: Any, **named: Any) -> bool:
    return p > 0.0 and bool(named.get("train", training))


def _version(tensor: Tensor) -> int:
    with suppress(RuntimeError):  # under inference_mode none is counted
        return tensor._version
    return 0


def _mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested arguments with `change` applied to each entry."""
    if isinstance(x, dict):
        return {name: _mapped(value, change) for name, value in x.items()}
    if isinstance(x, list | tuple) and not isinstance(x, torch.Size):
        parts = [_mapped(item, change) for item in x]
        return parts if isinstance(x, list) else tuple(parts)
    return change(x)


def _flat(x: Any, kind: type[Any]) -> list[Any]:
    """Return the entries of type `kind` in nested arguments, in their order."""
    items = []
    for item in x.values() if isinstance(x, dict) else x:
        if isinstance(item, kind):
            items.append(item)
        elif isinstance(item, NESTS) and item:
            items += _flat(item, kind)
    return items
