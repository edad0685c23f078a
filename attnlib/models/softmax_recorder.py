"""Record attention that writes its softmax out: from the product q·k to the weights.

A record starts at each matrix product of three axes or more whose keys are computed, not learned.
It goes on through functions that change that product elementwise, in place or in shape. A softmax
over the last axis of a recorded tensor is a call of attention. The logits of a router or of a
classifier come from a learned matrix and have no record. The records are in `softmax_record`; what
functions do is told by their names in `function_kinds`.
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

from attnlib.models.attention_call import OPERATOR
from attnlib.models.function_kinds import OPERAND_KEYWORDS, kinds_of
from attnlib.models.projections import HEADS, stated_number
from attnlib.models.softmax_record import (
    NO_SOFTMAX,
    Layout,
    Mark,
    OnValues,
    Step,
    Weights,
    WrittenOut,
    entries_of,
    is_learned,
    letters_of,
    map_nested,
    version_of,
    with_axes,
)
from attnlib.models.torch_internals import MODULE_CALL, custom_operator, in_graph, is_transformed

ONE = "its softmax is of one activation without known keys, as in a synthesizer"
MEMORY = "its keys or scores are of a learned matrix, as in attention over a memory"
LEARNED = "its softmax is of learned logits without keys, as in a random synthesizer"
DIFFER = "its logits are not what the functions that made them give again"
BESIDE = "its logits are also used beside their softmax, where no factor reaches"
ONE_KEY = "a softmax over one key alone has nothing to weigh: give the model more tokens"
TWO = "its logits are made of two products"
DISTANCE = "squared lengths are added to its logits, as in attention by distances"
LONGEST_RECORD = 64
"""The largest number of functions in a row in a record; a result beyond them has none."""
MARK_ORDER = ("folded", "learned", "products", "squares", "one", "samples", "scores", "weights")
"""Kinds of marks. Of several marked arguments the one whose kind is last here counts."""


class Recorder:
    """Record matrix products in one thread, and find the softmaxes of logits made of them.

    - `running`: a function that returns the running modules, the inmost last.
    - `changes`: whether logits are to be changed. Weights that are made in a
      torch.autograd.Function are then out of reach.
    - `made`: a function that gets the tensors of each call and its result.
    """

    def __init__(
        self,
        running: Callable[[], Sequence[nn.Module]],
        *,
        changes: bool = True,
        made: Callable[[list[Tensor], Any], None] = lambda tensors, result: None,
    ) -> None:
        self.running, self.changes, self.made = running, changes, made
        self.entries: Any = WeakTensorKeyDictionary()  # a Step, Weights or a Mark, with the version
        self.compared: set[Any] = set()  # types of modules, with names of functions after q·k
        self.one_key = False  # whether a softmax had one entry
        self.aliased = True  # whether a write into logits may have passed unseen
        self.unreached: dict[nn.Module | None, str] = {}
        """Modules whose attention is seen and cannot be run again, with the reason."""
        self.hints: dict[nn.Module | None, str] = {}
        """Modules that may attend in a way that is not followed, with the reason."""
        self.reached: set[nn.Module | None] = set()  # modules with a recorded call
        self.paths: dict[nn.Module | None, str] = {}
        """The names of noted modules within the outmost running one."""

    def run(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        change: Callable[[WrittenOut], Tensor | None],
    ) -> Any:
        """Run a function of PyTorch, record its result and return it.

        `change` is called with each softmax that has a record, and returns its new logits or None.
        """
        name = getattr(function, "__name__", "")
        if name == "__get__":  # of an attribute
            name = getattr(function.__self__, "__name__", "")
        name = name.partition(".")[0]  # of an overload of torch.ops
        kinds = kinds_of(name)
        if "fact" in kinds:
            return function(*args, **kwargs)
        self.aliased = self.aliased or "alias" in kinds
        if isinstance(function, torch.ScriptMethod):
            self._note_script(function)
        elif "kernel" in kinds and function is not OPERATOR and not in_graph():
            self.note(f"it calls {name}, another kernel")
        elif (operator := custom_operator(function, args)) and not in_graph():
            self.note(f"it calls {operator}, a kernel of its own that may be attention", hint=True)
        if "product" in kinds:
            kwargs = {**kwargs}
            named = [kwargs.pop(word) for word in OPERAND_KEYWORDS if word in kwargs]
            args = (*args, *named)
        tensors = entries_of((args, kwargs), Tensor)
        if name.endswith("_as"):
            del tensors[1:]  # the other tensor gives a shape alone
        entries = {id(x): entry for x in tensors if (entry := self.entry_of(x)) is not None}
        call = None
        softmax = "softmax" in kinds or "composed softmax" in kinds
        if softmax and entries:
            call = self._softmax_call(name, *args, **kwargs)
        if call is not None:
            self.reached.add(call.module)
            logits = change(call)
            if logits is not None:
                args, kwargs = (logits, *args[1:]), {**kwargs}
                kwargs.pop("input", None)
        result = function(*args, **kwargs)
        if call is not None:
            self._keep(result, Weights(call.on_values, call.layout.shape, False))
        elif softmax and _of_one(result, *args[1:2], **kwargs):
            self.one_key = True
        elif softmax and tensors and isinstance(result, Tensor):
            self._keep(result, self._mark_of_weights(tensors[0], entries.get(id(tensors[0]))))
        elif entries or not name.startswith("__get"):
            self._record_result(function, name, args, kwargs, result, tensors, entries)
        self.made(tensors, result)
        return result

    def note(self, why: str, module: Any = NotImplemented, *, hint: bool = False) -> None:
        """Note the reason `why` a module is out of reach, by default the inmost running one.

        A `hint` notes that it may be out of reach. The first reason for a module is kept.
        """
        module = self._inmost_module() if module is NotImplemented else module
        (self.hints if hint else self.unreached).setdefault(module, why)
        if module not in self.paths:
            outmost = next(iter(self.running()), None)
            named = () if outmost is None else outmost.named_modules()
            self.paths[module] = next((path for path, part in named if part is module), "")

    def label(self, module: nn.Module | None) -> str:
        """Return "name (Class)" of a noted module; "a function" for None."""
        if module is None:
            return "a function"
        return f"{self.paths[module] or 'the model'} ({type(module).__name__})"

    def report_lines(self, label: Callable[[Any], str], *, hints: bool = False) -> list[str]:
        """Return a line for each reason in `unreached` (or `hints`) with its modules' labels."""
        by_reason: dict[str, list[str]] = {}
        noted = self.reached.union(self.unreached)
        for module, why in (self.hints if hints else self.unreached).items():
            if why != NO_SOFTMAX or module not in noted:
                by_reason.setdefault(why, []).append(label(module))
        return [f"{', '.join(modules)}: {why}" for why, modules in by_reason.items()]

    def obstacle(self, query: Tensor, mask: Any) -> str:
        """Return a reason why a factor on `query` would leave a part of the logits, or "".

        Such a part is a `mask` that is itself a product of queries.
        """
        if query.is_nested:
            return "its queries are a nested tensor"
        entry = self.entry_of(mask)
        if isinstance(entry, Mark) and mask.shape[-2:-1] == query.shape[-2:-1]:
            return TWO if (entry.kind, entry.size) == ("scores", query.shape[-1]) else ""
        of_vectors = isinstance(entry, Step) and entry.start.dimension == query.shape[-1]
        return TWO if of_vectors and entry.is_plain() else ""

    def _note_script(self, method: Any) -> None:
        """Note the inmost module if this torch.jit method attends: calls inside it are not seen."""
        inlined = method.graph.copy()
        torch._C._jit_pass_inline(inlined)
        graph = str(inlined)
        kernel = "aten::scaled_dot_product_attention" in graph
        if kernel or (_IN_GRAPH.search(graph) and _PRODUCT_IN_GRAPH.search(graph)):
            self.note("its attention is inside a module of torch.jit")

    def _softmax_call(
        self, name: str, input: Any = None, dim: Any = None, *_: Any, **__: Any
    ) -> WrittenOut | None:
        """Return the call of attention of a softmax; None if it has none, or one out of reach.

        The latter is noted. Parameters are those of torch.softmax.
        """
        step = self.entry_of(input)
        if not isinstance(step, Step) or step.learned or input.ndim < 3:
            return None
        running, module = self.running(), self._inmost_module()
        why = step.problem()
        if "softmax" not in kinds_of(name):
            why = why or f"its weights are made by {name}"
        elif dim not in (-1, input.ndim - 1):
            why = f"its softmax is over axis {dim}; it must be over the last, with logits q @ k.mT"
        elif self.changes and not torch.is_grad_enabled():
            operands = entries_of(step.start.args, Tensor)
            asking = any(x.requires_grad and not is_learned(x) for x in operands)
            if asking and not _in_checkpoint():
                why = why or (
                    "its weights have no gradient of autograd's: they are made in a "
                    "torch.autograd.Function or under torch.no_grad"
                )
        path = step._path()
        names = type(module), frozenset(each.name for each in path)
        compared = names in self.compared and all("repeats" in each.kinds for each in path)
        if not why and (self.aliased or not compared or input.is_inference()):
            why = "" if step.reproduces(input) else DIFFER
            self.compared.add(names)
            self.aliased = False
        start = step.start
        start.softmax_taken = True
        why = why or (BESIDE if start.used_beside else "")
        if why:
            self.note(why)
            return None
        heads = number_of_heads(running)
        layout = Layout(input.shape, heads, step.head_axis(heads))
        return WrittenOut(input, step, module, layout)

    def _inmost_module(self) -> nn.Module | None:
        """Return the inmost running module that is not an nn.Softmax, or None."""
        modules = (module for module in reversed(self.running()) if type(module) is not nn.Softmax)
        return next(modules, None)

    def _mark_of_weights(self, logits: Tensor, entry: Any) -> Mark:
        """Return the mark of a softmax that is no recorded call; `entry` is that of its logits."""
        why = "its softmax is not of a product with three axes or more of queries and keys"
        why += ", or not in a form that is followed"
        sure = False
        if isinstance(entry, Step) and entry.learned:
            why = MEMORY
        elif isinstance(entry, Step) or (isinstance(entry, Mark) and entry.kind == "scores"):
            sure = True
        elif isinstance(entry, Mark) and entry.kind == "one":
            why = ONE
        elif is_learned(logits) or (isinstance(entry, Mark) and entry.kind == "learned"):
            why = LEARNED
        return Mark("weights", self._inmost_module(), why, sure)

    def _note_averages(
        self, name: str, args: Any, tensors: list[Tensor], result: Any, entries: dict[int, Any]
    ) -> bool:
        """Note weights of no recorded call that average values; return whether there are some.

        The weights of a router or of one learned query do not count: they have no row for each
        query.
        """
        noted = False
        pair = tensors[:2] if name == "linear" else tensors[-2:]
        for place, (weights, values) in enumerate((pair, pair[::-1])):
            mark, other = entries.get(id(weights)), entries.get(id(values))
            if isinstance(mark, Step):
                weighted = isinstance(other, Mark) and other.kind == "weights"
                why = "" if weighted or is_learned(values) else mark.other_normalisation()
                if why:
                    self.note(why, hint=why == NO_SOFTMAX)
                    noted = why != NO_SOFTMAX
                continue
            if not isinstance(mark, Mark) or not mark.why:
                continue
            why = mark.why
            if "contraction" not in kinds_of(name):
                rows, keys = values.shape[-3:-1] if values.ndim > 3 else (0, 0)
                by_entry = values.ndim == weights.ndim > 3 and weights.shape[-1] == 1 == rows
                by_entry = by_entry and weights.shape[-3] > 1 and keys == weights.shape[-2]
                by_entry = by_entry or (isinstance(other, Mark) and other.kind == "samples")
                averages = by_entry or (mark.sure and result.numel() > weights.numel())
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

    def _mark_result(
        self, name: str, args: Any, tensors: list[Tensor], result: Any, marks: list[Mark]
    ) -> None:
        """Mark the result of a function without recorded arguments, by its name and their marks."""
        kinds = kinds_of(name)
        before = max(marks, key=lambda mark: MARK_ORDER.index(mark.kind), default=None)
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
            mark = None if learned else Mark("scores", size=summed_size(name, args, tensors))
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
                why = "it makes its weights of exp and a sum"
                mark = Mark("scores", self._inmost_module(), why, sure=True)
            elif before.kind == "one" and not ("same" in kinds or "scale" in kinds):
                mark = None
        if "reshape" in kinds or name in ("contiguous", "clone"):
            heads = _joined_heads(tensors[0], result) or (0 if mark is None else mark.heads)
            mark = (mark or Mark("folded"))._replace(heads=heads) if mark or heads else None
        if mark is not None:
            for part in result if isinstance(result, list | tuple) else [result]:
                if isinstance(part, Tensor):
                    self._keep(part, mark)

    def _keep(self, x: Tensor, entry: Step | Weights | Mark) -> None:
        """Keep a tensor's record or mark, for as long as the tensor lives."""
        self.entries[x] = entry, version_of(x)

    def entry_of(self, x: Any) -> Any:
        """Return a tensor's `Step`, `Weights` or `Mark`, or None.

        After a write into the tensor through another view, its record cannot be run again.
        """
        entry, version = self.entries.get(x, (None, 0)) if isinstance(x, Tensor) else (None, 0)
        if entry is None or isinstance(entry, Mark) or version == version_of(x):
            return entry
        if isinstance(entry, Weights):
            return entry._replace(changed=True)
        why = "its logits are written into through another view"
        shape, learned = entry.shape, entry.learned
        return Step(None, "", (), {}, entry.start, why_lost=why, shape=shape, learned=learned)

    def _record_result(
        self,
        function: Any,
        name: str,
        args: Any,
        kwargs: Any,
        result: Any,
        tensors: list[Tensor],
        entries: dict[int, Any],
    ) -> None:
        """Record or mark a function's result; `entries` has the entries of its `tensors`, by id."""
        kinds = kinds_of(name)
        steps = {i: entry for i, entry in entries.items() if isinstance(entry, Step)}
        is_product = "product" in kinds
        if steps and self.changes and not is_product and _joins(result, tensors, steps):
            step = max(steps.values(), key=lambda step: step.shape.numel())
            start = step.start
            start.used_beside = True
            if start.softmax_taken:
                self.note(BESIDE)
        of_weights = len(steps) < len(entries)
        if of_weights and self._follow_weights(name, args, kwargs, tensors, result, entries):
            return
        contraction = is_product or "contraction" in kinds
        meets = entries and len(tensors) > 1 and (contraction or "mix" in kinds)
        if meets and self._note_averages(name, args, tensors, result, entries):
            return
        dimension, learned = _head_size(name, args, result) if is_product else (0, False)
        if name == "einsum" and sum(x.ndim > 2 and not is_learned(x) for x in tensors) > 2:
            self.note(NO_SOFTMAX, hint=True)
        if not (dimension or steps):
            marks = [entry for entry in entries.values() if isinstance(entry, Mark)]
            self._mark_result(name, args, tensors, result, marks)
            return
        fused = self.obstacle(tensors[-2], args[0]) if name.startswith("baddbmm") else ""
        if dimension:
            steps = {}
        # Masks and indices that another product chooses stay as they are.
        numbers = [x for x in tensors if x.is_floating_point() or x.is_complex()]
        starts = {steps[id(x)].start for x in numbers if id(x) in steps}
        steps = {i: x for i, x in steps.items() if not starts or x.start in starts}
        previous = max(steps.values(), key=lambda step: step.shape.numel(), default=None)
        longest = max((step.length for step in steps.values()), default=-1)
        if longest >= LONGEST_RECORD or name.endswith("_like") or name.startswith("new_"):
            return
        args_of_steps, named = (
            map_nested(nested, lambda x: steps.get(id(x), x)) for nested in (args, kwargs)
        )
        named.pop("out", None)
        learned = learned or any(step.learned for step in steps.values())
        step = Step(function, name, args_of_steps, named, length=longest + 1, dimension=dimension)
        step.learned = learned
        step.why_lost = fused
        marked = [(x, mark) for x in tensors if isinstance(mark := entries.get(id(x)), Mark)]
        step.heads = next(filter(None, (mark.heads for _, mark in marked)), 0)
        target = args[0] if "in place" in kinds else None
        result = result if target is None else target
        if previous is not None:
            step.product = previous.start
            mark_kinds = {
                mark.kind
                for x, mark in marked
                if mark.size == step.product.dimension
                and (mark.kind == "squares" or x.shape[-2:-1] == previous.shape[-2:-1])
            }
            why_lost = next((entry.why_lost for entry in steps.values() if entry.why_lost), "")
            mixed = any(entry.start is not step.product for entry in steps.values())
            if mixed:
                step.learned = all(entry.learned for entry in steps.values())
            if is_product or "end" in kinds:
                if not isinstance(result, Tensor) or result.ndim < 4 or learned:
                    return
                if not set(step.product.shape[-2:]) <= set(result.shape):
                    return
                step.why_lost = why_lost or f"its logits go through {name} before the softmax"
            elif why_lost:
                step.why_lost = why_lost
            elif mixed or ("scores" in mark_kinds and "join" in kinds):
                step.why_lost = TWO
            elif "squares" in mark_kinds and "sum" in kinds:
                step.why_lost = DISTANCE
            elif "random" in kinds or ("dropout" in name and _drops(*args, **kwargs)):
                step.why_lost = "its logits are drawn or dropped at random"
            elif target is not None and id(target) not in steps:
                step.why_lost = "its logits are put together in place"
        if previous is not None and _exchanges(name, tensors[0], result):
            exchanged = previous.exchanged()
            step, previous = (step, previous) if exchanged is None else (exchanged, None)
        step.versions = [(x, version_of(x)) for x in entries_of((step.args, step.kwargs), Tensor)]
        device = tensors[0].device.type
        if torch.amp.is_autocast_available(device):  # not on meta, where graphs are compiled
            step.autocast = device, torch.is_autocast_enabled(device)
        several = isinstance(result, list | tuple)
        for i, part in enumerate(result if several else [result]):
            if isinstance(part, Tensor):
                entry = step
                if several:
                    entry = Step(getitem, "getitem", (step, i), {}, step.product, step.length)
                    entry.learned = step.learned
                entry.shape = part.shape
                if previous is not None:
                    same = previous.shape[:-1] == entry.shape[:-1] and "exchange" not in kinds
                    rows = previous.shape[-1:] == entry.shape[-1:] and "reshape" in kinds
                    entry.ordered = previous.ordered and bool(same or rows)
                self._keep(part, entry)

    def _follow_weights(
        self,
        name: str,
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
        result: Any,
        entries: dict[int, Any],
    ) -> bool:
        """Follow weights to their product with values; return whether the function takes weights.

        Parameters are as in `_record_result`.
        """
        source = next((entry for entry in entries.values() if isinstance(entry, Weights)), None)
        if name == "__setitem__" and entries.get(id(args[0])) is source:
            result = args[0]
        if source is None or not isinstance(result, Tensor):
            return source is not None
        on_values, shape, changed, columns = source
        kinds = kinds_of(name)
        if "product" not in kinds:
            dropped = "dropout" in name and _drops(*args, **kwargs)
            if tensors[0].shape == shape and _exchanges(name, tensors[0], result):
                self._keep(result, source._replace(columns=not columns))
            elif columns:
                if result.shape == tensors[0].shape and "keeps weights" in kinds and not dropped:
                    self._keep(result, source)
            elif result.numel() == shape.numel() and "exchange" not in kinds:
                on_values = partial(_without_output, on_values) if dropped else on_values
                changed = changed or "keeps weights" not in kinds
                self._keep(result, Weights(on_values, shape, changed))
            return True
        if len(tensors) != 2:
            return True
        weights, values = tensors
        first, second, output = letters_of(name, args, tensors)
        if entries.get(id(weights)) is not source:
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
        on_values(averaged, output_rows, changed)
        return True


def running_modules() -> list[nn.Module]:
    """Return the modules on this thread's call stack, the inmost last."""
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
    return stated_number(HEADS, *reversed(running))


def _in_checkpoint() -> bool:
    """Return whether torch.utils.checkpoint is on the call stack; it runs the pass again later."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not _CHECKPOINT:
        frame = frame.f_back
    return frame is not None


_CHECKPOINT = CheckpointFunction.forward.__code__


def _head_size(name: str, args: Any, result: Any) -> tuple[int, bool]:
    """Return d of a product of queries and keys (0 for another) and whether keys are learned."""
    operands = entries_of(args, Tensor)[-2:]
    if not isinstance(result, Tensor) or result.ndim < 3 or len(operands) < 2:
        return 0, False
    if result.shape[-1] == 1:  # values, averaged with one row of weights
        return 0, False
    first, second, output = letters_of(name, args, operands)
    unshared = [letter for letter in output if (letter in first) != (letter in second)]
    if len({letter in first for letter in unshared}) < 2:  # scores of one query
        return 0, False
    columns = operands[unshared[-1] not in first]
    return summed_size(name, args, operands), is_learned(columns) or columns.ndim < 3


def summed_size(name: str, args: Any, operands: list[Tensor]) -> int:
    """Return the number of terms in each sum of a product, or 0 if unknown."""
    first, second, output = letters_of(name, args, operands)
    summed = (set(first) & set(second)) - set(output)
    sizes = dict(zip(reversed(first), reversed(operands[-2].shape), strict=False))
    return math.prod(sizes.get(letter, 1) for letter in summed) if summed else 0


def _exchanges(name: str, x: Tensor, result: Tensor) -> bool:
    """Return whether a function has exchanged the last two axes of `x` to make `result`."""
    if "exchange" not in kinds_of(name) or result.ndim < 2:
        return False
    return result.mT.shape == x.shape and result.mT.stride() == x.stride()


def _joined_heads(x: Tensor, result: Any) -> int:
    """Return the size of the first axis if a function joins it with the second; else 0.

    Of two axes of the same size the first is known only if they were exchanged before.
    """
    if x.ndim != 4 or not isinstance(result, Tensor) or is_transformed(x) or x.is_nested:
        return 0
    first, second = x.shape[:2]
    if first == second:
        exchanged = x.layout is torch.strided and 0 < x.stride(0) < x.stride(1)
        return first if exchanged and len(result) in (first, first * second) else 0
    return first if result.ndim == 3 and len(result) == first * second else 0


def _joins(result: Any, tensors: list[Tensor], steps: dict[int, Step]) -> bool:
    """Return whether `result` joins one number per query, made of logits, to other vectors."""
    if not isinstance(result, Tensor) or result.shape[-1:] <= (1,):
        return False
    numbers = [x for x in tensors if id(x) in steps]
    return (
        all(x.shape[-1:] == (1,) and x.is_floating_point() for x in numbers)
        and all(step.start.shape[-1:] != (1,) for step in steps.values())
        and any(x.shape[-1:] == result.shape[-1:] for x in tensors if id(x) not in steps)
    )


def _has_rows(name: str, args: Any, weights: Tensor, values: Tensor, place: int) -> bool:
    """Return whether several rows of weights average the same values; `place` is 0 or 1.

    It is the position of the weights among the product's operands.
    """
    layer = weights.ndim < 2 or (place and weights.ndim < values.ndim)  # made of a softmax
    if layer and name != "einsum":
        return False
    operands = [values, weights] if place else [weights, values]
    first, second, output = letters_of(name, args, operands)
    axes, others = (second, first) if place else (first, second)
    sizes = dict(zip(reversed(axes), reversed(weights.shape), strict=False))
    rows = (set(axes) & set(output)) - set(others)
    summed = (set(axes) & set(others)) - set(output)
    return bool(summed) and any(sizes.get(letter, 1) > 1 for letter in rows)


def _of_one(result: Any, dim: Any = None, **named: Any) -> bool:
    """Return whether a softmax is over one entry alone, as for a cache's first token."""
    dim = named.get("dim", dim)
    return isinstance(result, Tensor) and isinstance(dim, int) and result.shape[dim] == 1


def _without_output(on_values: OnValues, values: Tensor, _: Any, changed: bool) -> None:
    """Call `on_values` without the output: dropout has changed it."""
    on_values(values, None, changed)


def _drops(_: Any = None, p: float = 0.5, training: bool = True, *__: Any, **named: Any) -> bool:
    """Return whether a dropout with these arguments drops anything."""
    return p > 0.0 and bool(named.get("train", training))
