"""Intercept PyTorch's attention: for contexts that watch or change a foreign model.

A TorchFunctionMode gets every call of scaled_dot_product_attention in its thread, whatever name it
was imported under. But it does not see inside a function of PyTorch that is written in Python, and
under a mode models leave PyTorch's fast path. Almost all private names of PyTorch that attnlib uses
are here.
"""

import re
import sys
import threading
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

MODULE_CALL = nn.Module._call_impl.__code__
"""The code in which a module runs its forward."""

hidden_from_modes = torch._C.DisableTorchFunction
"""A context in which no mode sees a call."""

is_transformed = torch._C._functorch.is_functorch_wrapped_tensor
"""Whether a tensor is one of torch.func's."""

level_of_transforms = torch._C._functorch.maybe_current_level
"""How many of torch.func's transforms run, None for none."""

TRANSFORMED = "it runs under torch.func (vmap, grad); call the model outside of it"


def in_backward_pass() -> bool:
    """Return whether a backward pass is running; it may compute activations again."""
    return bool(torch._C._current_graph_task_id() != -1)


def is_traced() -> bool:
    """Return whether torch.jit.trace is at work."""
    return torch._C._get_tracing_state() is not None


def is_compiled(model: nn.Module) -> bool:
    """Return whether `model` is the wrapper that torch.compile returns."""
    return hasattr(model, "_orig_mod")


def in_graph() -> bool:
    """Return whether code that torch.compile generated (FX or Inductor) is on the call stack."""
    frame: Any = sys._getframe(1) if "torch._dynamo" in sys.modules else None
    while frame is not None:
        functions = frame.f_code.co_filename.startswith("<eval_with_key>")
        if functions or frame.f_globals.get("__name__") == "torch._inductor.output_code":
            return True
        frame = frame.f_back
    return False


def uncompiled(model: Any) -> Any:
    """Return the model inside the wrapper of torch.compile; anything else unchanged."""
    return model._orig_mod if isinstance(model, nn.Module) and is_compiled(model) else model


@contextmanager
def eagerly(*, load: bool = False) -> Iterator[None]:
    """Run compiled code as it is written, inside the context: a graph cannot be observed.

    Does nothing if no compiler is loaded; `load` loads it (1 s). Raises RuntimeError in a graph.
    """
    if not load and "torch._dynamo" not in sys.modules:
        yield
        return
    stance = None
    if not torch.compiler.is_compiling():  # in a graph it is forbidden to ask
        with suppress(RuntimeError):  # in what a graph calls beside it
            stance = torch.compiler.set_stance("force_eager")
    if stance is None:
        raise RuntimeError(
            "this is inside of what torch.compile has compiled, which cannot be seen into: enter "
            "it outside, and give a Monitor what torch.compile has returned, or use its callback"
        )
    with stance:
        yield


@contextmanager
def parts_eagerly(model: nn.Module) -> Iterator[None]:
    """Run the compiled parts of a model, if any, as they are written, inside the context."""
    if not any(is_compiled(part) or part._compiled_call_impl for part in model.modules()):
        yield
        return
    with eagerly(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global")
        yield


def named_arguments() -> dict[str, Any]:
    """Return a module's keyword arguments; call it only in a global forward pre-hook.

    PyTorch hands that hook the positional ones alone; the frame that calls the hook has these.
    """
    return sys._getframe(2).f_locals.get("kwargs") or {}


LOOKS_LIKE_ATTENTION = re.compile("attention|attn", re.IGNORECASE)
"""Found in the names of classes that look like attention."""


def check_model(model: Any) -> None:
    """Raise TypeError unless `model` is an nn.Module, and RuntimeError if it is compiled."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got a {type(model).__name__}")
    if is_compiled(model):
        raise RuntimeError(
            "model is compiled, and a graph cannot be seen into: take the model that was given to "
            "torch.compile"
        )


def not_compiled(function: F) -> F:
    """Make the compiler skip a function's own frames, but trace it in a graph; return it.

    PyTorch makes the getter of an attribute anew each time a mode gets it. A compiled frame tells
    getters apart by their address in memory, and would take the next one there for the last.
    """
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, strategy)
    return function


class Mode(TorchFunctionMode):
    """Hand each call of a function of PyTorch to the method `called`, inside the context."""

    @not_compiled
    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        as_written = getattr(func, "_torchdynamo_inline", None)  # of a function of torch.jit
        if as_written is not None:
            with self:
                return as_written(*args, **kwargs or {})
        return self.called(func, args, kwargs or {})

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of PyTorch and return its result; a subclass may return another."""
        return func(*args, **kwargs)


class ModuleTracker(Mode):
    """Track which modules of a model run in this thread, inside the context `at_work`.

    Raises as `check_model`.
    """

    counts_by_run = True
    """Whether calls are counted from 0 again each time the model is called."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        check_model(model)
        self.model_name = type(model).__name__
        self.names = {id(module): name for name, module in model.named_modules()}
        self.kinds = {  # a scripted module has an original name
            name: getattr(module, "original_name", type(module).__name__)
            for name, module in model.named_modules()
        }
        self.thread = threading.get_ident()
        self.running: list[nn.Module] = []  # the inmost last
        self.calls: Counter[str] = Counter()  # of attention, by module, in this run of the model
        self.ran: dict[str, None] = {}  # names of modules that look like attention, in order
        self.seen: dict[str, None] = {}  # of those that made a call
        self.forwards = {
            code: name
            for name, module in model.named_modules()
            if (code := getattr(vars(type(module)).get("forward"), "__code__", None))
        }
        self.unexplained: set[str] = set()  # of those with a tensor of unknown origin
        self.made: Any = WeakTensorKeyDictionary()  # in the modules that look like attention
        self.constants = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
        self.looking: list[str] = []  # names of running modules that look like attention
        self.batch = 0  # size of what the model is called with
        self.elsewhere: dict[str, nn.Module] = {}  # modules that ran in another thread

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Watch the modules and functions that this thread runs, inside the context."""
        with (
            torch_module.register_module_forward_pre_hook(self.enter_module),
            torch_module.register_module_forward_hook(self.leave_module, always_call=True),
            SCRIPTS_SEEN,
            self,
        ):
            yield

    def belongs(self, module: Any) -> bool:
        """Return whether `module` is the model's and runs in this thread or a backward pass.

        False while torch.compile traces. A module of the model in another thread is noted.
        """
        if torch.compiler.is_compiling():  # first: a graph cannot hold what follows
            return False
        here = threading.get_ident() == self.thread or in_backward_pass()
        if id(module) in self.names and not here:
            self.elsewhere[self.names[id(module)]] = module
        return id(module) in self.names and here

    def enter_module(
        self, module: nn.Module, args: Any, named: dict[str, Any] | None = None
    ) -> None:
        """Note that a module starts; without `named`, read its keywords from the caller's frame."""
        if not self.belongs(module):
            return
        named = named_arguments() if named is None else named
        if not self.running:
            if self.counts_by_run:
                self.calls.clear()
            with hidden_from_modes():
                given = (x for x in tree_leaves((args, named)) if isinstance(x, Tensor) and x.ndim)
                self.batch = next((x.shape[0] for x in given), 0)
        self.running.append(module)
        name = self.names[id(module)]
        if LOOKS_LIKE_ATTENTION.search(self.kinds[name]):
            self.ran[name] = None
            self.looking.append(name)
            for tensor in tree_leaves((args, named)):
                if isinstance(tensor, Tensor):
                    self.made[tensor] = True

    def leave_module(self, module: nn.Module, *_: Any) -> None:
        """Note that a module has ended."""
        if self.belongs(module) and self.running:
            name = self.names[id(self.running.pop())]
            if self.looking[-1:] == [name]:
                self.looking.pop()

    def note_made(self, tensors: list[Tensor], result: Any) -> None:
        """Note results, and arguments of unknown origin, in modules that look like attention."""
        if self.looking:
            if any(x not in self.made and id(x) not in self.constants for x in tensors):
                self.unexplained.update(self.looking)
            for tensor in tree_leaves(result):
                if isinstance(tensor, Tensor):
                    self.made[tensor] = True

    def called_directly(self) -> str:
        """Return the class name of a module whose `forward` the inmost calls directly, or ""."""
        module = self.running[-1]
        own = [
            getattr(vars(kind).get("forward"), "__code__", None) for kind in type(module).__mro__
        ]
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code is not MODULE_CALL:
            name = self.forwards.get(frame.f_code)
            if name is not None and frame.f_code not in own:
                return self.kinds[name]
            frame = frame.f_back
        return ""

    def owner(self) -> nn.Module:
        """Return the inmost running module that is not PyTorch's own, or else the inmost."""
        for module in reversed(self.running):
            if not type(module).__module__.startswith("torch.nn."):
                return module
        return self.running[-1]

    def count_call(self, module: nn.Module) -> tuple[str, int]:
        """Count a module's call of attention; return its name and its earlier calls in this run."""
        name = self.names[id(module)]
        number = self.calls[name]
        self.calls[name] += 1
        self.seen[name] = None
        return name, number

    def shown(self, module: nn.Module | None) -> str:
        """Return "name (Class)" of a module, None for the model; `silent` then leaves it out."""
        name = "" if module is None else self.names[id(module)]
        self.seen[name] = None
        return f"{name or 'the model'} ({self.kinds[name]})"

    def silent(self) -> list[str]:
        """Return "name (Class)" of inmost modules that look like attention but made no call.

        Each ran, and got a tensor that no observed function made, as from a foreign kernel.
        """
        around_a_call = {part for name in self.seen for part in around(name)}
        silent = [
            name
            for name in self.ran
            if name in self.unexplained
            and name not in around_a_call
            and not any(part in self.seen and part in self.ran for part in around(name))
        ]
        inmost = [name for name in silent if not any(name in around(other)[1:] for other in silent)]
        return [f"{name or 'the model'} ({self.kinds[name]})" for name in inmost]

    def in_threads(self) -> list[str]:
        """Return a line for each outmost module that ran in another thread."""
        ran, why = self.elsewhere, "it ran in another thread, where it is not seen"
        parts = [part for name, part in ran.items() if ran.keys().isdisjoint(around(name)[1:])]
        return [f"{self.shown(part)}: {why}" for part in parts]


def around(name: str) -> list[str]:
    """Return a module's name and those of the modules around it, out to the model's, ""."""
    parts = name.split(".") if name else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]


def sdpa_hint(model: nn.Module) -> str:
    """Return a hint that makes a model of transformers observable, or "" if it needs none."""
    parts: list[Any] = [part for part in model.modules() if hasattr(part, "_supports_sdpa")]
    for part in parts:
        if not part._supports_sdpa:
            return (
                f"{type(part).__name__} refuses that function: attn_implementation='eager' writes "
                "its softmax out, which can be seen"
            )
    if all(part.config._attn_implementation == "sdpa" for part in parts):
        return ""
    return "a model of transformers wants attn_implementation='sdpa'"


def constant_in_graphs(function: F) -> F:
    """Mark a function whose result the compiler may treat as a constant; return it.

    torch.compiler.assume_constant_result does this, and loads the compiler, which takes a second.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def cached_in_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function with a cache, which the compiler takes for constant: it warns of caches."""
    cached: Callable[..., T] = cache(function)

    @wraps(function)
    def constant(*args: P.args, **kwargs: P.kwargs) -> T:
        return cached(*args, **kwargs)

    return constant_in_graphs(constant)


OPERATOR = torch.ops.aten.scaled_dot_product_attention

ATTENTION = (functional.scaled_dot_product_attention, OPERATOR, OPERATOR.default)
"""What a mode gets for a call of attention. The arguments are the same."""


_OF_PYTORCH = re.compile("(aten|prims?|inductor|quantized.*|_?c10d.*|torchvision)[.]")


def custom_operator(function: Any, args: tuple[Any, ...]) -> str:
    """Return "namespace::name" of an operator that may be a foreign attention, else "".

    It is not PyTorch's own, and two of its tensors, of 3 or 4 dimensions, have one last size.
    """
    operator = isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
    if not operator or _OF_PYTORCH.match(str(function)):
        return ""
    tensors = (x for x in tree_leaves(args) if isinstance(x, Tensor) and x.is_floating_point())
    sizes = Counter(x.shape[-1] for x in tensors if x.ndim in (3, 4))
    namespace, name, *_ = str(function).split(".")
    return f"{namespace}::{name}" if max(sizes.values(), default=0) > 1 else ""


class Arguments(NamedTuple):
    """Hold the arguments of scaled_dot_product_attention, as PyTorch names them."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def without_torch_function(function: Any) -> Any:
    """Return a copy of a function of PyTorch of which a mode sees the calls inside.

    The original is handed to a mode whole, and again each time that the mode calls it.
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

MULTI_HEAD_ALONE = without_torch_function(MULTI_HEAD)
"""The same function; called within a mode, it shows that mode its call of attention."""

HIDDEN = -1e4
"""A number in a mask that hides a key, and so do lower ones. Its weight is 0 in every precision."""


def causal_bias(mask: Any, queries: int, keys: int) -> int | None:
    """Return how many keys before its own the first query sees; None unless a CausalBias.

    The class is known by its name: to import torch.nn.attention.bias loads the compiler.
    """
    if type(mask).__name__ != "CausalBias":
        return None
    return keys - queries if mask.variant.name == "LOWER_RIGHT" else 0


def count_visible(mask: Tensor, keys: int) -> Tensor:
    """Return how many keys of a mask each query sees: those True, or, in numbers, above −10⁴."""
    visible = mask if mask.dtype == torch.bool else mask > HIDDEN
    return visible.expand(*mask.shape[:-1], keys).sum(-1)


class Shared:
    """Keep a change in force, for all threads, while any `with` on this object is open."""

    def __init__(self, change: Callable[[], AbstractContextManager[None]]) -> None:
        self._change, self._lock, self._count = change, threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._count == 0:
                self._made = self._change()
                self._made.__enter__()
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._made.__exit__(None, None, None)


@contextmanager
def _fast_path_off() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


FAST_PATH_OFF = Shared(_fast_path_off)
"""Inside it no model takes PyTorch's fast path; in torch.compile a mode alone would allow it."""


@contextmanager
def _scripts_seen() -> Iterator[None]:
    def seen(original: Any) -> Any:
        def call(script: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch._C._is_torch_function_mode_enabled():
                return original(script, *args, **kwargs)
            return handle_torch_function(script, (), *args, **kwargs)

        return call

    kinds: tuple[Any, ...] = torch.jit.ScriptFunction, torch.ScriptMethod
    before = [kind.__call__ for kind in kinds]
    for kind, original in zip(kinds, before, strict=True):
        kind.__call__ = seen(original)
    yield
    for kind, original in zip(kinds, before, strict=True):
        kind.__call__ = original


SCRIPTS_SEEN = Shared(_scripts_seen)
"""Inside it a mode gets the calls of what torch.jit has compiled, in all threads."""
