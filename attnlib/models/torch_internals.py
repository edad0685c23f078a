"""Hold private names of PyTorch, and what keeps its compiler and its fast path out of the way.

Almost all private names of PyTorch that attnlib uses are here.
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
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function
from torch.utils._pytree import tree_leaves

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

MODULE_CALL = nn.Module._call_impl.__code__
"""The code object of the method in which a module runs its forward."""

hidden_from_modes = torch._C.DisableTorchFunction
"""A context in which no mode sees a call."""

is_transformed = torch._C._functorch.is_functorch_wrapped_tensor
"""A function: whether a tensor is one of torch.func's."""

level_of_transforms = torch._C._functorch.maybe_current_level
"""A function: how many of torch.func's transforms run, None for none."""

TRANSFORMED = "it runs under torch.func (vmap, grad); call the model outside of it"


def in_backward_pass() -> bool:
    """Return whether a backward pass is running, which may compute activations again."""
    return bool(torch._C._current_graph_task_id() != -1)


def in_trace() -> bool:
    """Return whether torch.jit.trace is running."""
    return torch._C._get_tracing_state() is not None


def is_compiled(model: nn.Module) -> bool:
    """Return whether `model` is the wrapper that torch.compile returns."""
    return hasattr(model, "_orig_mod")


def in_graph() -> bool:
    """Return whether code that torch.compile generated (FX or Inductor) is on the call stack."""
    frame: Any = sys._getframe(1) if "torch._dynamo" in sys.modules else None
    while frame is not None:
        from_fx = frame.f_code.co_filename.startswith("<eval_with_key>")
        if from_fx or frame.f_globals.get("__name__") == "torch._inductor.output_code":
            return True
        frame = frame.f_back
    return False


def uncompiled(model: Any) -> Any:
    """Return the model inside the wrapper of torch.compile; anything else unchanged."""
    return model._orig_mod if isinstance(model, nn.Module) and is_compiled(model) else model


@contextmanager
def eagerly(*, load: bool = False) -> Iterator[None]:
    """Run compiled functions as they are written inside the context: a graph cannot be observed.

    Does nothing if the compiler is not loaded; `load` loads it, which takes 1 s. Raises
    RuntimeError inside a graph.
    """
    if not load and "torch._dynamo" not in sys.modules:
        yield
        return
    stance = None
    if not torch.compiler.is_compiling():  # in a graph it is forbidden to ask
        with suppress(RuntimeError):  # in a function that a graph calls
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
    """Run the compiled parts of a model, if it has some, as they are written inside the context."""
    if not any(is_compiled(part) or part._compiled_call_impl for part in model.modules()):
        yield
        return
    with eagerly(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global")
        yield


def keyword_arguments() -> dict[str, Any]:
    """Return a module's keyword arguments; call it only in a global forward pre-hook.

    PyTorch hands that hook only the positional arguments; the frame that calls the hook has both.
    """
    return sys._getframe(2).f_locals.get("kwargs") or {}


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
    """Return `function`, whose own frames the compiler skips, though it traces it in a graph.

    A mode gets a new getter of an attribute at each access. Compiled code tells getters apart by
    their address in memory, and would take a new one at the same address for the old.
    """
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, strategy)
    return function


def constant_in_graphs(function: F) -> F:
    """Return `function`, marked so that the compiler treats its result as a constant.

    torch.compiler.assume_constant_result does this, but loads the compiler, which takes a second.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def cached_in_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Return `function` with a cache, constant to the compiler, which would warn of a cache."""
    cached: Callable[..., T] = cache(function)

    @wraps(function)
    def constant(*args: P.args, **kwargs: P.kwargs) -> T:
        return cached(*args, **kwargs)

    return constant_in_graphs(constant)


_OF_PYTORCH = re.compile("(aten|prims?|inductor|quantized.*|_?c10d.*|torchvision)[.]")


def custom_operator(function: Any, args: tuple[Any, ...]) -> str:
    """Return "namespace::name" of an operator that may be another's attention, else "".

    It is not PyTorch's own, and two of its tensors with 3 or 4 axes have a last axis of one size.
    """
    operator = isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
    if not operator or _OF_PYTORCH.match(str(function)):
        return ""
    tensors = (x for x in tree_leaves(args) if isinstance(x, Tensor) and x.is_floating_point())
    sizes = Counter(x.shape[-1] for x in tensors if x.ndim in (3, 4))
    namespace, name, *_ = str(function).split(".")
    return f"{namespace}::{name}" if max(sizes.values(), default=0) > 1 else ""


def without_torch_function(function: Any) -> Any:
    """Return a copy of a function of PyTorch whose inner calls a mode sees.

    A mode gets the original as one call, and gets it again each time that the mode calls it.
    """
    names = dict(function.__globals__)
    for check in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        names[check] = lambda *tensors: False
    transparent = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    transparent.__kwdefaults__ = function.__kwdefaults__
    return transparent


class SharedContext:
    """Keep a change in force, for all threads, while any `with` on this object is open.

    `change` returns a context that makes the change and undoes it.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[None]]) -> None:
        self._change, self._lock, self._count = change, threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._count == 0:
                self._context = self._change()
                self._context.__enter__()
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._context.__exit__(None, None, None)


@contextmanager
def _fast_path_off() -> Iterator[None]:
    """Turn PyTorch's fast path off inside the context."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


FAST_PATH_OFF = SharedContext(_fast_path_off)
"""A context in which no model takes PyTorch's fast path. A mode alone does this too, but not
under torch.compile."""


@contextmanager
def _scripts_seen() -> Iterator[None]:
    """Hand calls of functions and methods of torch.jit to modes, inside the context."""

    def seen(original: Any) -> Any:
        def call(script: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch._C._is_torch_function_mode_enabled():
                return original(script, *args, **kwargs)
            return handle_torch_function(script, (), *args, **kwargs)

        return call

    types_of_scripts: tuple[Any, ...] = torch.jit.ScriptFunction, torch.ScriptMethod
    originals = [kind.__call__ for kind in types_of_scripts]
    for kind, original in zip(types_of_scripts, originals, strict=True):
        kind.__call__ = seen(original)
    yield
    for kind, original in zip(types_of_scripts, originals, strict=True):
        kind.__call__ = original


SCRIPTS_SEEN = SharedContext(_scripts_seen)
"""A context in which modes get the calls of functions of torch.jit, in all threads."""
