"""Audit any module: the arguments of PyTorch's attention, or its logits before a softmax.

PyTorch's function is taken at its word: its scale is an argument. Where attention is written out,
the logits are differentiated by the product of q and k that they were made of.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlib.auditing.meant import NO_NORM, cap_meant, meant_by, norm_is_meant
from attnlib.auditing.projected import SAME, Before, Outputs, before_attention, outputs_of
from attnlib.auditing.report import OF_MODELS, Report, Scale
from attnlib.auditing.scales import AGREES, agree, reason
from attnlib.models.attention_call import ATTENTION, HIDDEN, MULTI_HEAD, Arguments
from attnlib.models.interception import LOOKS_LIKE_ATTENTION, ModuleTracker
from attnlib.models.softmax_record import queries_and_keys
from attnlib.models.torch_internals import FAST_PATH_OFF
from attnlib.policies import Policy

PRODUCTS = {"matmul", "__matmul__", "bmm", "einsum", "baddbmm"}
REMEMBERED = 8
"""Products that a softmax may be of."""
EXACT = 1e-3
"""Derivatives that differ by less are one number."""

Target = float | Policy | None
"""What should multiply q·k, None where that is not known."""

NOTHING = Before()
UNEVEN = "what multiplies q·k is not one number"


class Seen(NamedTuple):
    """Hold a call of attention, with its scale and what was done to q and k."""

    module: nn.Module
    d: int
    keys: int
    scale: float
    """What multiplies q·k in the call and, as far as projections show it, before."""
    doubt: str = ""
    """What is unknown about the scale, or ""."""
    before: Before = NOTHING
    capped: bool = False
    """Whether a tanh is between the products and the softmax."""


class Product(NamedTuple):
    """Hold a product of two tensors that may be q and k."""

    q: Tensor
    k: Tensor
    added: Tensor
    """Zeros that were added to it, by which logits are differentiated."""
    factor: float
    """What multiplies q·k in the product itself."""


class _Watch(ModuleTracker):
    """A mode that notes the scale of each call of attention.

    From a product to the softmax derivatives are kept: what is added to q·k does not change them.
    """

    def __init__(self, model: nn.Module, outputs: Outputs) -> None:
        super().__init__(model)
        self.outputs = outputs
        self.products: list[Product] = []
        self.depth = 0  # of the module in which derivatives are kept
        self.found: dict[str, Seen] = {}

    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of PyTorch, and note its scale if it is attention."""
        result = func(*args, **kwargs)
        if self.running:
            result = self.follow(func, args, kwargs, result)
        given = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        self.note_made(given, result)
        return result

    def follow(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Note a call of attention, and return a product's result with derivatives by it."""
        name = getattr(func, "__name__", "")
        if func is MULTI_HEAD:  # PyTorch's own divides by √d in each of its ways
            _, key, _, width, heads, *_ = args
            d = width // heads
            self.note(Seen(self.running[-1], d, len(key), d**-0.5))
        elif func in ATTENTION:
            given = Arguments(*args, **kwargs)
            d = given.query.shape[-1]
            own = d**-0.5 if given.scale is None else float(given.scale)
            self.observed(given.query, given.key, own, "")
        elif name in PRODUCTS and isinstance(result, Tensor):
            return self.product(name, args, kwargs, result)
        elif name == "softmax" and self.products:
            self.softmax(kwargs.get("input", args[0] if args else None))
            return result.detach()
        return result

    def product(self, name: str, args: Any, kwargs: dict[str, Any], result: Tensor) -> Tensor:
        """Remember a product of two tensors; return it so that logits have derivatives by it."""
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if len(tensors) < 2 or result.dim() < 3 or not result.is_floating_point():
            return result
        q, k = queries_and_keys(name, args, tensors) or tensors[-2:]
        looks = [bool(LOOKS_LIKE_ATTENTION.search(type(value).__name__)) for value in self.running]
        self.depth = looks.index(True) + 1 if any(looks) else len(self.running)
        torch.set_grad_enabled(True)
        added = torch.zeros_like(result, requires_grad=True)
        product = Product(q.detach(), k.detach(), added, kwargs.get("alpha", 1.0))
        self.products = [*self.products[1 - REMEMBERED :], product]
        return result.detach() + added

    def leave_module(self, module: nn.Module, *more: Any) -> None:
        """Note that a module has ended, and no longer keep derivatives after attention."""
        super().leave_module(module, *more)
        if len(self.running) < self.depth:
            self.depth = 0
            torch.set_grad_enabled(False)

    def softmax(self, logits: Any) -> None:
        """Differentiate logits by the products behind them, and note the call with its scale."""
        products, self.products = self.products, []
        if not isinstance(logits, Tensor) or not logits.requires_grad or logits.dim() < 3:
            return
        signs = _balanced(logits.detach() > HIDDEN)
        total = (logits.double().where(signs != 0.0, 0.0) * signs).sum()
        slopes = torch.autograd.grad(total, [entry.added for entry in products], allow_unused=True)
        torch.set_grad_enabled(False)
        used = [
            (product, slope.double().flatten())
            for product, slope in zip(products, slopes, strict=True)
            if slope is not None and slope.any()
        ]
        if not used:
            return
        befores = [self.before(product.q, product.k) for product, _ in used]
        chosen = next((i for i, entry in enumerate(befores) if entry.times is not None), 0)
        product, each = used[chosen]  # the others are of q and of positions
        signed = each * signs.flatten() if len(each) == signs.numel() else each.abs()
        scale = _one_number(signed) or _one_number(each.abs())  # of other axes
        doubt = "" if scale else UNEVEN
        scale = scale or float(each[each != 0.0].abs().median())
        self.observed(product.q, product.k, scale * product.factor, doubt, _has_tanh(logits))

    def before(self, q: Tensor, k: Tensor) -> Before:
        """Return what was done to q and k before attention: their factors and norms."""
        if q.dim() != k.dim() or q.dim() not in (3, 4):
            return NOTHING
        return before_attention(self.owner(), q, _unrepeated(k), self.outputs)

    def observed(
        self, q: Tensor, k: Tensor, scale: float, doubt: str, capped: bool = False
    ) -> None:
        """Note a call with its queries and keys, (…, tokens, d)."""
        before, sizes = self.before(q, k), (q.shape[-1], k.shape[-2])
        times = before.times
        doubt = doubt or ("" if times else "what multiplies q or k before attention is unknown")
        self.note(Seen(self.owner(), *sizes, scale * (times or 1.0), doubt, before, capped))

    def note(self, seen: Seen) -> None:
        """Note a call under the name of its module."""
        name, number = self.count_call(seen.module)
        name = f"{name} ({number + 1})" if number else name
        self.found[name or "the module"] = seen


def _has_tanh(logits: Tensor) -> bool:
    """Return whether a tanh is among what has been done to logits."""
    steps = [logits.grad_fn]
    while steps:
        step = steps.pop()
        if step is not None:
            if step.name() == "TanhBackward0":
                return True
            steps += [before for before, _ in step.next_functions]
    return False


def _balanced(seen: Tensor) -> Tensor:
    """Return 1 and −1 in turn for visible keys, so that what a row's keys share cancels."""
    order = seen.cumsum(-1)
    odd_one = (order == order[..., -1:]) & (order % 2 == 1) & (order > 1)
    return torch.where(seen & ~odd_one, 2.0 * (order % 2) - 1.0, 0.0).double()


def _one_number(each: Tensor) -> float | None:
    """Return the common value of all entries that are not 0, if there is one."""
    each = each[each != 0.0]
    middle = float(each.median())
    return middle if bool(((each / middle - 1.0).abs() < EXACT).all()) else None


def _unrepeated(k: Tensor) -> Tensor:
    """Return keys without the copies that make one head for each of the queries."""
    if k.dim() == 3:
        return k
    changes = int((k[:, 1:] != k[:, :-1]).flatten(2).any(-1).any(0).sum())
    return k[:, :: max(1, k.shape[1] // (changes + 1))]


def audit_module(model: nn.Module, run: Callable[[], Any], expected: Target) -> Report:
    """Compare each call's scale with the intended one and its kind's; RuntimeError if no call."""
    report = Report(facts=dict(OF_MODELS))
    with outputs_of(model) as outputs:
        watch = _Watch(model, outputs)
        with torch.no_grad(), FAST_PATH_OFF, watch.at_work():
            run()
    if not watch.found:
        raise RuntimeError(
            f"{type(model).__name__} calls no attention of PyTorch's and takes no softmax of q·k: "
            "audit its attention as a callable"
        )
    for part in watch.silent_modules():
        report.facts[part] = "looks like attention, and was not seen"
    kinds: dict[Any, dict[str, float]] = {}
    for name, seen in watch.found.items():
        value, keys = np.array([seen.scale]), np.array([float(seen.keys)])
        ends = value * (1.0 - EXACT / 10), value * (1.0 + EXACT / 10)
        law = seen.doubt or "as it is called"
        scale = Scale("dot product", keys, keys - 1.0, value, *ends, law)
        report.parts[name] = Report(scale)
        target, source = intended(report, name, seen.module, seen.d, seen.before, expected)
        cap = cap_meant(seen.module)
        if cap is not None and not seen.capped:
            report.add("cap", f"a soft cap of {cap:g}", "none", "the configuration", where=name)
        if seen.doubt:
            target, source = None, seen.doubt
        compare_scale(report, name, scale._replace(low=value, high=value), seen.d, target, source)
        if target is None and seen.doubt != UNEVEN:
            kinds.setdefault((kind_of(seen.module), seen.doubt), {})[name] = seen.scale
    compare_layers(report, kinds)
    return report


def intended(
    report: Report, name: str, module: nn.Module, d: int, before: Before, expected: Target
) -> tuple[Target, str]:
    """Return what should multiply q·k in a call, and its source; report a norm that is missing."""
    if before.kept and norm_is_meant(module):
        report.add("norm", f"{before.kept} normalised", "no norm", NO_NORM, where=name)
    return meant_by(module, d, before.turned) if expected is None else (expected, "expected")


def compare_scale(
    report: Report, name: str, scale: Scale, d: int, target: Target, source: str, kernel: str = ""
) -> None:
    """Compare the scale of a call, in all rows, with the intended one, if that is known."""
    if target is None:
        found = f"{name}: found {scale.value[-1]:.4g} ({source})"
        report.unknown += [found] if found not in report.unknown else []
        return
    wanted = np.full(scale.keys.shape, target)
    if isinstance(target, Policy):
        wanted = target.scale(n=scale.keys, d=d, position=scale.position)
    wrong = np.flatnonzero(~agree(wanted, scale.low, scale.high))
    if wrong.size:
        row, value = int(wrong[-1]), float(scale.value[wrong[-1]])
        text = f"{value / wanted[row]:.4g} times what was meant{reason(value, wanted[row], d)}"
        text += f", {kernel}" if kernel else ""
        if not np.isclose(scale.value, value, rtol=SAME).all():
            text += f" at n = {scale.keys[row]:g}: {scale.law}"
        report.add("scale", f"{wanted[row]:.4g} ({source})", f"{value:.4g}", text, where=name)


def kind_of(module: nn.Module) -> Any:
    """Return a layer's kind, its class and parameters' shapes: one kind should have one scale."""
    return type(module), tuple(part.shape for part in module.parameters())


def compare_layers(report: Report, kinds: dict[Any, dict[str, float]]) -> None:
    """Add a finding for each scale that is not that of most layers of its kind."""
    for scales in kinds.values():
        usual, _ = Counter(float(f"{scale:.3g}") for scale in scales.values()).most_common(1)[0]
        for name, scale in scales.items():
            if not np.isclose(scale, usual, rtol=AGREES):
                text = f"{usual:.4g}, as in other layers"
                report.add("layers", text, f"{scale:.4g}", f"of {len(scales)} layers", where=name)
