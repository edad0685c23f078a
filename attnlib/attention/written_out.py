"""Record attention that writes its softmax out: from the product q·k to the weights.

A record starts at each matrix product of three axes or more whose keys are computed, not learned.
What is done to that product, elementwise, in place or to its shape, is added. A softmax over the
last axis of what has a record is a call of attention: a router's logits and a classifier's come
from a learned matrix and have none. `record` holds what is recorded, `functions` the names of
functions.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.weak import WeakTensorKeyDictionary

from attnlib.attention.functions import OPERANDS, kinds_of
from attnlib.attention.record import (
    NO_SOFTMAX,
    Layout,
    Mark,
    Step,
    Valued,
    Weights,
    WrittenOut,
    entries_of,
    is_learned,
    letters_of,
    map_nested,
    version_of,
    with_axes,
)
from attnlib.interception import (
    MODULE_CALL,
    OPERATOR,
    custom_operator,
    in_graph,
    is_transformed,
)
from attnlib.projections import HEADS

ONE = "its softmax is of one activation without known keys, as in a synthesizer"
MEMORY = "its keys or scores are of a learned matrix, as in attention over a memory"
LEARNED = "its softmax is of learned logits without keys, as in a random synthesizer"
DIFFER = "its logits are not what the functions that made them give again"
BESIDE = "its logits are also used beside their softmax, where no factor reaches"
ONE_KEY = "a softmax over one key alone has nothing to weigh: give the model more tokens"
TWO = "its logits are made of two products"
DISTANCE = "squared lengths are added to its logits, as in attention by distances"
LONGEST = 64
"""The most functions in a row that a record follows; a result beyond them has none."""
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
        self.kept: Any = WeakTensorKeyDictionary()  # a Step, Weights or a Mark, with the version
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
        kinds = kinds_of(name)
        if "fact" in kinds:
            return function(*args, **kwargs)
        self.aliased = self.aliased or "alias" in kinds
        if isinstance(function, torch.ScriptMethod):
            self._scripted(function)
        elif "kernel" in kinds and function is not OPERATOR and not in_graph():
            self.note(f"it calls {name}, another kernel")
        elif (operator := custom_operator(function, args)) and not in_graph():
            self.note(f"it calls {operator}, a kernel of its own that may be attention", hint=True)
        if "product" in kinds:
            kwargs = {**kwargs}
            args = (*args, *(kwargs.pop(operand) for operand in OPERANDS if operand in kwargs))
        tensors = entries_of((args, kwargs), Tensor)
        if name.endswith("_as"):
            del tensors[1:]  # the other tensor has a shape alone
        kept = {id(x): entry for x in tensors if (entry := self.known(x)) is not None}
        call = None
        softmax = "softmax" in kinds or "composed softmax" in kinds
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
            self._keep(result, Weights(call.valued, call.layout.shape, False))
        elif softmax and _of_one(result, *args[1:2], **kwargs):
            self.one_key = True
        elif softmax and tensors and isinstance(result, Tensor):
            self._keep(result, self._other_weights(tensors[0], kept.get(id(tensors[0]))))
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
        step = self.known(mask)  # of other products of queries
        if isinstance(step, Mark) and mask.shape[-2:-1] == query.shape[-2:-1]:
            return TWO if (step.kind, step.size) == ("scores", query.shape[-1]) else ""
        of_vectors = isinstance(step, Step) and step.start.dimension == query.shape[-1]
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
        step = self.known(input)
        if not isinstance(step, Step) or step.learned or input.ndim < 3:
            return None
        running, module = self.running(), self._module()
        why = step.problem()
        if "softmax" not in kinds_of(name):
            why = why or f"its weights are made by {name}"
        elif dim not in (-1, input.ndim - 1):
            why = f"its softmax is over axis {dim}; it must be over the last, with logits q @ k.mT"
        elif self.changes and not torch.is_grad_enabled():
            operands = entries_of(step.start.args, Tensor)
            asking = any(x.requires_grad and not is_learned(x) for x in operands)
            if asking and not _recomputed():
                why = why or (
                    "its weights have no gradient of autograd's: they are made in a "
                    "torch.autograd.Function or under torch.no_grad"
                )
        operations = step._path()
        way = type(module), frozenset(operation.name for operation in operations)
        known = way in self.compared and all("repeats" in each.kinds for each in operations)
        if not why and (self.aliased or not known or input.is_inference()):
            why = "" if step.repeats(input) else DIFFER
            self.compared.add(way)
            self.aliased = False
        start = step.start
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
        elif is_learned(logits) or (isinstance(known, Mark) and known.kind == "learned"):
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
                why = "" if weighted or is_learned(values) else mark.as_weights()
                if why:
                    self.note(why, hint=why == NO_SOFTMAX)
                    noted = why != NO_SOFTMAX
                continue
            if not isinstance(mark, Mark) or not mark.why:
                continue
            why = mark.why
            if "contraction" not in kinds_of(name):
                rows, keys = values.shape[-3:-1] if values.ndim > 3 else (0, 0)
                entries = values.ndim == weights.ndim > 3 and weights.shape[-1] == 1 == rows
                entries = entries and weights.shape[-3] > 1 and keys == weights.shape[-2]
                entries = entries or (isinstance(other, Mark) and other.kind == "samples")
                averages = entries or (mark.sure and result.numel() > weights.numel())
            elif name == "linear" and place == 0 and weights.ndim > 2 and is_learned(values):
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
        kinds = kinds_of(name)
        before = max(marks, key=lambda mark: ORDER.index(mark.kind), default=None)
        learned = len(tensors) < 2 or any(is_learned(x) or x.numel() == 1 for x in tensors[-2:])
        mixes = "mix" in kinds and not learned and result.ndim > 2
        mark = None
        followed = before is not None and before.kind not in ("folded", "products", "one")
        by_head = mixes and any(x.shape[-2:].numel() == 1 for x in tensors)
        itself = len(tensors) > 1 and tensors[0] is tensors[-1] and "mix" in kinds
        if name == "linear" or name.startswith("conv"):
            mark = Mark("one")
        elif name == "grid_sample":
            mark = Mark("samples")
        elif ("square" in kinds or itself) and not followed:
            size = tensors[0].shape[-1] if "norm" in name and tensors[0].ndim > 2 else 0
            mark = Mark("squares", size=size)
        elif "contraction" in kinds:
            mark = None if learned else Mark("scores", size=_summed(name, args, tensors))
            mark = Mark("learned") if all(map(is_learned, tensors)) else mark
        elif before is not None and before.kind == "scores" and by_head:
            mark = before
        elif before is None or (mixes and before.kind != "weights"):
            mark = Mark("products") if mixes else None
        elif before.kind == "products":
            mark = before if "scale" in kinds else None
            if name in ("sum", "mean"):
                mark = Mark("scores", size=tensors[0].numel() // max(1, result.numel()))
        elif followed and "keeps scale" in kinds:
            mark = before
        elif before.kind == "squares" and name in ("sum", "mean"):
            mark = before._replace(size=tensors[0].shape[-1])
        elif before.kind == "squares":
            mark = before if "scale" in kinds or "square" in kinds else None
        elif isinstance(result, Tensor) and result.numel() == tensors[0].numel():
            mark = before
            if before.kind == "scores" and "exponential" in kinds:
                mark = Mark("scores", self._module(), "it makes its weights of exp and a sum", True)
            elif before.kind == "one" and not ("same" in kinds or "scale" in kinds):
                mark = None
        if "reshape" in kinds or name in ("contiguous", "clone"):
            heads = _first_of_two(tensors[0], result) or (0 if mark is None else mark.heads)
            mark = (mark or Mark("folded"))._replace(heads=heads) if mark or heads else None
        if mark is not None:
            for part in result if isinstance(result, list | tuple) else [result]:
                if isinstance(part, Tensor):
                    self._keep(part, mark)

    def _keep(self, x: Tensor, entry: Step | Weights | Mark) -> None:
        """Keep a tensor's record or mark, for as long as the tensor lives."""
        self.kept[x] = entry, version_of(x)

    def known(self, x: Any) -> Any:
        """Return a tensor's record or mark, or None; one written into meanwhile counts as lost."""
        entry, version = self.kept.get(x, (None, 0)) if isinstance(x, Tensor) else (None, 0)
        if entry is None or isinstance(entry, Mark) or version == version_of(x):
            return entry
        if isinstance(entry, Weights):
            return entry._replace(changed=True)
        why = "its logits are written into through another view"
        shape, learned = entry.shape, entry.learned
        return Step(None, "", (), {}, entry.start, lost=why, shape=shape, learned=learned)

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
        kinds = kinds_of(name)
        known = {i: entry for i, entry in kept.items() if isinstance(entry, Step)}
        is_product = "product" in kinds
        if known and self.changes and not is_product and _joins(result, tensors, known):
            step = max(known.values(), key=lambda step: step.shape.numel())
            start = step.start
            start.beside = True
            if start.weighs:
                self.note(BESIDE)
        if len(known) < len(kept) and self._weighs(name, args, kwargs, tensors, result, kept):
            return
        contraction = is_product or "contraction" in kinds
        meets = kept and len(tensors) > 1 and (contraction or "mix" in kinds)
        if meets and self._averages(name, args, tensors, result, kept):
            return
        dimension, learned = _dimension(name, args, result) if is_product else (0, False)
        if name == "einsum" and sum(x.ndim > 2 and not is_learned(x) for x in tensors) > 2:
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
        starts = {known[id(x)].start for x in numbers if id(x) in known}
        known = {i: x for i, x in known.items() if not starts or x.start in starts}
        before = max(known.values(), key=lambda step: step.shape.numel(), default=None)
        longest = max((step.length for step in known.values()), default=-1)
        if longest >= LONGEST or name.endswith("_like") or name.startswith("new_"):
            return
        given, named = (map_nested(x, lambda x: known.get(id(x), x)) for x in (args, kwargs))
        named.pop("out", None)
        learned = learned or any(step.learned for step in known.values())
        step = Step(function, name, given, named, length=longest + 1, dimension=dimension)
        step.learned = learned
        step.lost = fused
        marked = [(x, mark) for x in tensors if isinstance(mark := kept.get(id(x)), Mark)]
        step.heads = next(filter(None, (mark.heads for _, mark in marked)), 0)
        written = args[0] if "in place" in kinds else None
        result = result if written is None else written
        if before is not None:
            step.product = before.start
            others = {
                mark.kind
                for x, mark in marked
                if mark.size == step.product.dimension
                and (mark.kind == "squares" or x.shape[-2:-1] == before.shape[-2:-1])
            }
            lost = next((entry.lost for entry in known.values() if entry.lost), "")
            mixed = any(entry.start is not step.product for entry in known.values())
            if mixed:
                step.learned = all(entry.learned for entry in known.values())
            if is_product or "end" in kinds:
                if not isinstance(result, Tensor) or result.ndim < 4 or learned:
                    return
                if not set(step.product.shape[-2:]) <= set(result.shape):
                    return
                step.lost = lost or f"its logits go through {name} before the softmax"
            elif lost:
                step.lost = lost
            elif mixed or ("scores" in others and "join" in kinds):
                step.lost = TWO
            elif "squares" in others and "sum" in kinds:
                step.lost = DISTANCE
            elif "random" in kinds or ("dropout" in name and _drops(*args, **kwargs)):
                step.lost = "its logits are drawn or dropped at random"
            elif written is not None and id(written) not in known:
                step.lost = "its logits are put together in place"
        if before is not None and _exchanges(name, tensors[0], result):
            exchanged = before.exchanged()
            step, before = (step, before) if exchanged is None else (exchanged, None)
        step.versions = [(x, version_of(x)) for x in entries_of((step.args, step.kwargs), Tensor)]
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
                    same = before.shape[:-1] == entry.shape[:-1] and "exchange" not in kinds
                    rows = before.shape[-1:] == entry.shape[-1:] and "reshape" in kinds
                    entry.ordered = before.ordered and bool(same or rows)
                self._keep(part, entry)

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
        valued, shape, changed, columns = source
        kinds = kinds_of(name)
        if "product" not in kinds:
            dropped = "dropout" in name and _drops(*args, **kwargs)
            if tensors[0].shape == shape and _exchanges(name, tensors[0], result):
                self._keep(result, source._replace(columns=not columns))
            elif columns:
                if result.shape == tensors[0].shape and "keeps weights" in kinds and not dropped:
                    self._keep(result, source)
            elif result.numel() == shape.numel() and "exchange" not in kinds:
                valued = partial(_dropped, valued) if dropped else valued
                changed = changed or "keeps weights" not in kinds
                self._keep(result, Weights(valued, shape, changed))
            return True
        if len(tensors) != 2:
            return True
        weights, values = tensors
        first, second, output = letters_of(name, args, tensors)
        if kept.get(id(weights)) is not source:
            weights, values, first, second = values, weights, second, first
        if columns:
            weights, first = weights.mT, first[:-2] + first[-1:] + first[-2:-1]
        if first[-1:] in output or first[-1:] not in second:  # heads that talk
            return True
        size = "".join(sorted(set(output) - set(first)))
        averaged = with_axes(values, second, first[:-2] + first[-1:], size)
        output_rows = with_axes(result, output, first[:-1], size)
        if averaged is None or output_rows is None or weights.shape[-2:] != shape[-2:]:
            return True
        if weights.shape != shape:  # heads are flattened behind the softmax
            if averaged.shape[:-2].numel() != shape[:-2].numel():
                return True
            averaged, output_rows = (
                x.reshape(*shape[:-2], *x.shape[-2:]) for x in (averaged, output_rows)
            )
        valued(averaged, output_rows, changed)
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
    operands = entries_of(args, Tensor)[-2:]
    if not isinstance(result, Tensor) or result.ndim < 3 or len(operands) < 2:
        return 0, False
    if result.shape[-1] == 1:  # values, averaged with one row of weights
        return 0, False
    first, second, output = letters_of(name, args, operands)
    own = [letter for letter in output if (letter in first) != (letter in second)]
    if len({letter in first for letter in own}) < 2:  # scores of one query
        return 0, False
    columns = operands[own[-1] not in first]
    return _summed(name, args, operands), is_learned(columns) or columns.ndim < 3


def _summed(name: str, args: Any, operands: list[Tensor]) -> int:
    """Return the size of the vectors that a product sums over, or 0."""
    first, second, output = letters_of(name, args, operands)
    summed = (set(first) & set(second)) - set(output)
    sizes = dict(zip(reversed(first), reversed(operands[-2].shape), strict=False))
    return math.prod(sizes.get(letter, 1) for letter in summed) if summed else 0


def _exchanges(name: str, x: Tensor, result: Tensor) -> bool:
    """Return whether a function has exchanged the last two axes of `x`."""
    if "exchange" not in kinds_of(name) or result.ndim < 2:
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
        and all(step.start.shape[-1:] != (1,) for step in known.values())
        and any(x.shape[-1:] == result.shape[-1:] for x in tensors if id(x) not in known)
    )


def _has_rows(name: str, args: Any, weights: Tensor, values: Tensor, place: int) -> bool:
    """Return whether several rows of weights, the operand at `place`, average the same values."""
    layer = weights.ndim < 2 or (place and weights.ndim < values.ndim)  # made of a softmax
    if layer and name != "einsum":
        return False
    own, others, output = letters_of(name, args, [values, weights] if place else [weights, values])
    own, others = (others, own) if place else (own, others)
    sizes = dict(zip(reversed(own), reversed(weights.shape), strict=False))
    rows = (set(own) & set(output)) - set(others)
    summed = (set(own) & set(others)) - set(output)
    return bool(summed) and any(sizes.get(letter, 1) > 1 for letter in rows)


def _of_one(result: Any, dim: Any = None, **named: Any) -> bool:
    """Return whether the softmax over axis `dim` has one entry, as for a cache's first token."""
    dim = named.get("dim", dim)
    return isinstance(result, Tensor) and isinstance(dim, int) and result.shape[dim] == 1


def _dropped(valued: Valued, values: Tensor, _: Any, changed: bool) -> None:
    valued(values, None, changed)


def _drops(_: Any = None, p: float = 0.5, training: bool = True, *__: Any, **named: Any) -> bool:
    return p > 0.0 and bool(named.get("train", training))
