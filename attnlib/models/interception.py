"""Intercept functions of PyTorch: for contexts that watch or change the attention of a model.

A TorchFunctionMode gets every call of scaled_dot_product_attention in its thread, whatever name it
was imported under. But it does not see inside a function of PyTorch that is written in Python, and
under a mode models leave PyTorch's fast path.
"""

import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from attnlib.models.torch_internals import (
    MODULE_CALL,
    SCRIPTS_SEEN,
    check_model,
    hidden_from_modes,
    in_backward_pass,
    keyword_arguments,
    not_compiled,
)

LOOKS_LIKE_ATTENTION = re.compile("attention|attn", re.IGNORECASE)
"""A pattern that is found in the names of classes that look like attention."""


class Mode(TorchFunctionMode):
    """Hand each call of a function of PyTorch to the method `run_function` inside the context."""

    @not_compiled
    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        as_written = getattr(func, "_torchdynamo_inline", None)  # the source of one of torch.jit
        if as_written is not None:
            with self:
                return as_written(*args, **kwargs or {})
        return self.run_function(func, args, kwargs or {})

    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of PyTorch and return its result; subclasses watch or change it."""
        return func(*args, **kwargs)


class ModuleTracker(Mode):
    """Track the modules of a model that run in this thread, inside the context `at_work`.

    Raises as `check_model`.
    """

    counts_by_run = True
    """Whether calls of attention are counted from 0 again in each run of the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        check_model(model)
        self.model_name = type(model).__name__
        self.names = {id(module): name for name, module in model.named_modules()}
        self.class_names = {  # a scripted module has an original name
            name: getattr(module, "original_name", type(module).__name__)
            for name, module in model.named_modules()
        }
        self.thread = threading.get_ident()
        self.running: list[nn.Module] = []  # the inmost last
        self.calls: Counter[str] = Counter()  # of attention, by module, in this run of the model
        self.ran: dict[str, None] = {}  # names of modules that look like attention, in order
        self.seen: dict[str, None] = {}  # names of modules that made a call of attention
        self.forwards = {
            code: name
            for name, module in model.named_modules()
            if (code := getattr(vars(type(module)).get("forward"), "__code__", None))
        }
        self.unexplained: set[str] = set()  # names of those that used a tensor of unknown origin
        self.made_tensors: Any = WeakTensorKeyDictionary()  # tensors that those modules got or made
        self.constants = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
        self.running_attention: list[str] = []  # names of running modules that look like attention
        self.batch = 0  # size of the batch
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
        """Return whether `module` is the model's and runs in this thread or in a backward pass.

        False while torch.compile traces. A module of the model in another thread is noted.
        """
        if torch.compiler.is_compiling():  # first: a graph cannot hold what follows
            return False
        this_thread = threading.get_ident() == self.thread or in_backward_pass()
        if id(module) in self.names and not this_thread:
            self.elsewhere[self.names[id(module)]] = module
        return id(module) in self.names and this_thread

    def enter_module(
        self, module: nn.Module, args: Any, named: dict[str, Any] | None = None
    ) -> None:
        """Note that a module starts. `named` are its keyword arguments, None in a global hook."""
        if not self.belongs(module):
            return
        named = keyword_arguments() if named is None else named
        if not self.running:
            if self.counts_by_run:
                self.calls.clear()
            with hidden_from_modes():
                leaves = tree_leaves((args, named))
                sizes = (x.shape[0] for x in leaves if isinstance(x, Tensor) and x.ndim)
                self.batch = next(sizes, 0)
        self.running.append(module)
        name = self.names[id(module)]
        if LOOKS_LIKE_ATTENTION.search(self.class_names[name]):
            self.ran[name] = None
            self.running_attention.append(name)
            for tensor in tree_leaves((args, named)):
                if isinstance(tensor, Tensor):
                    self.made_tensors[tensor] = True

    def leave_module(self, module: nn.Module, *_: Any) -> None:
        """Note that a module has ended."""
        if self.belongs(module) and self.running:
            name = self.names[id(self.running.pop())]
            if self.running_attention[-1:] == [name]:
                self.running_attention.pop()

    def note_made(self, tensors: list[Tensor], result: Any) -> None:
        """Note a function's results, and its arguments of unknown origin, inside attention."""
        if self.running_attention:
            if any(x not in self.made_tensors and id(x) not in self.constants for x in tensors):
                self.unexplained.update(self.running_attention)
            for tensor in tree_leaves(result):
                if isinstance(tensor, Tensor):
                    self.made_tensors[tensor] = True

    def called_directly(self) -> str:
        """Return the class of a module whose `forward` the inmost one calls directly, or ""."""
        module = self.running[-1]
        inherited = [
            getattr(vars(kind).get("forward"), "__code__", None) for kind in type(module).__mro__
        ]
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code is not MODULE_CALL:
            name = self.forwards.get(frame.f_code)
            if name is not None and frame.f_code not in inherited:
                return self.class_names[name]
            frame = frame.f_back
        return ""

    def owner(self) -> nn.Module:
        """Return the inmost running module that is not PyTorch's own, or else the inmost."""
        for module in reversed(self.running):
            if not type(module).__module__.startswith("torch.nn."):
                return module
        return self.running[-1]

    def count_call(self, module: nn.Module) -> tuple[str, int]:
        """Count a module's call of attention; return its name and its number of earlier calls."""
        name = self.names[id(module)]
        number = self.calls[name]
        self.calls[name] += 1
        self.seen[name] = None
        return name, number

    def label(self, module: nn.Module | None) -> str:
        """Return "name (Class)" of a module, or of the model for None.

        It is meant for a report, so `silent_modules` then leaves the module out.
        """
        name = "" if module is None else self.names[id(module)]
        self.seen[name] = None
        return f"{name or 'the model'} ({self.class_names[name]})"

    def silent_modules(self) -> list[str]:
        """Return "name (Class)" of inmost modules that look like attention but made no call of it.

        Each ran and used a tensor that no observed function made, such as another kernel's output.
        """
        with_calls = {part for name in self.seen for part in ancestry(name)}
        silent = [
            name
            for name in self.ran
            if name in self.unexplained
            and name not in with_calls
            and not any(part in self.seen and part in self.ran for part in ancestry(name))
        ]
        inmost = [
            name for name in silent if not any(name in ancestry(other)[1:] for other in silent)
        ]
        return [f"{name or 'the model'} ({self.class_names[name]})" for name in inmost]

    def modules_elsewhere(self) -> list[str]:
        """Return a line for each outmost module that ran in another thread."""
        ran, why = self.elsewhere, "it ran in another thread, where it is not seen"
        parts = [part for name, part in ran.items() if ran.keys().isdisjoint(ancestry(name)[1:])]
        return [f"{self.label(part)}: {why}" for part in parts]


def ancestry(name: str) -> list[str]:
    """Return a module's name and those of the modules that contain it, out to the model's, ""."""
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
