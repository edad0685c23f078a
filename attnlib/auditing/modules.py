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

from attnlib.auditing.meant import NO_NORM, meant_cap, meant_scale, norm_is_meant
from attnlib.auditing.projected import SAME, Outputs, Preparation, keep_outputs, preparation_of
from attnlib.auditing.report import OF_MODELS, Report, Scale
from attnlib.auditing.scales import TOLERANCE, agree, known_mistakes
from attnlib.models.attention_call import ATTENTION, HIDDEN, MULTI_HEAD, Arguments
from attnlib.models.interception import LOOKS_LIKE_ATTENTION, ModuleTracker
from attnlib.models.softmax_record import queries_and_keys
from attnlib.models.torch_internals import FAST_PATH_OFF
from attnlib.policies import Policy

PRODUCTS = {"matmul", "__matmul__", "bmm", "einsum", "baddbmm"}
REMEMBERED = 8
"""The number of latest products that a softmax may be of."""
SAME_DERIVATIVE = 1e-3
"""Derivatives that differ by less are one number."""

Target = float | Policy | None
"""What should multiply q·k, None where that is not known."""

UNCHANGED = Preparation()
UNEVEN = "what multiplies q·k is not one number"


class ScaledCall(NamedTuple):
    """Hold a call of attention: its scale, and what was done to q and k before."""

    module: nn.Module
    d: int
    keys: int
    scale: float
    """What multiplies q·k in the call and, as far as projections show it, before."""
    doubt: str = ""
    """What is unknown about the scale, or ""."""
    preparation: Preparation = UNCHANGED
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


class _ScaleWatch(ModuleTracker):
    """Note the scale of each call of attention that a model makes.

    Gradients are recorded from a product to its softmax: terms added to q·k do not change them.
    """

    def __init__(self, model: nn.Module, outputs: Outputs) -> None:
        super().__init__(model)
        self.outputs = outputs
        self.products: list[Product] = []
        self.gradient_depth = 0  # of the module in which gradients are recorded
        self.scaled_calls: dict[str, ScaledCall] = {}

    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of PyTorch, and note its scale if it is attention."""
        result = func(*args, **kwargs)
        if self.running:
            result = self.follow(func, args, kwargs, result)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self.note_made(tensors, result)
        return result

    def follow(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Note a call of attention, or return a product's result so that it has derivatives."""
        name = getattr(func, "__name__", "")
        if func is MULTI_HEAD:  # PyTorch's own divides by √d in each of its ways
            _, key, _, width, heads, *_ = args
            d = width // heads
            self.note_call(ScaledCall(self.running[-1], d, len(key), d**-0.5))
        elif func in ATTENTION:
            arguments = Arguments(*args, **kwargs)
            d = arguments.query.shape[-1]
            scale = d**-0.5 if arguments.scale is None else float(arguments.scale)
            self.note_scale(arguments.query, arguments.key, scale, "")
        elif name in PRODUCTS and isinstance(result, Tensor):
            return self.track_product(name, args, kwargs, result)
        elif name == "softmax" and self.products:
            self.note_softmax(kwargs.get("input", args[0] if args else None))
            return result.detach()
        return result

    def track_product(self, name: str, args: Any, kwargs: dict[str, Any], result: Tensor) -> Tensor:
        """Remember a product of two tensors; return it so that logits have derivatives by it."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if len(tensors) < 2 or result.dim() < 3 or not result.is_floating_point():
            return result
        q, k = queries_and_keys(name, args, tensors) or tensors[-2:]
        names = [type(module).__name__ for module in self.running]
        depths = (i for i, name in enumerate(names, 1) if LOOKS_LIKE_ATTENTION.search(name))
        self.gradient_depth = next(depths, len(names))
        torch.set_grad_enabled(True)
        added = torch.zeros_like(result, requires_grad=True)
        product = Product(q.detach(), k.detach(), added, kwargs.get("alpha", 1.0))
        self.products = [*self.products[1 - REMEMBERED :], product]
        return result.detach() + added

    def leave_module(self, module: nn.Module, *more: Any) -> None:
        """Note that a module has ended, and stop recording gradients after attention."""
        super().leave_module(module, *more)
        if len(self.running) < self.gradient_depth:
            self.gradient_depth = 0
            torch.set_grad_enabled(False)

    def note_softmax(self, logits: Any) -> None:
        """Differentiate logits by the products behind them, and note the call with its scale."""
        products, self.products = self.products, []
        if not isinstance(logits, Tensor) or not logits.requires_grad or logits.dim() < 3:
            return
        signs = _alternating_signs(logits.detach() > HIDDEN)
        total = (logits.double().where(signs != 0.0, 0.0) * signs).sum()
        added = [product.added for product in products]
        derivatives = torch.autograd.grad(total, added, allow_unused=True)
        torch.set_grad_enabled(False)
        used = [
            (product, derivative.double().flatten())
            for product, derivative in zip(products, derivatives, strict=True)
            if derivative is not None and derivative.any()
        ]
        if not used:
            return
        preparations = [self.preparation(product.q, product.k) for product, _ in used]
        known = (i for i, entry in enumerate(preparations) if entry.factor is not None)
        product, scales = used[next(known, 0)]  # the others are of q and of positions
        signed = scales * signs.flatten() if len(scales) == signs.numel() else scales.abs()
        scale = _common_value(signed) or _common_value(scales.abs())  # of other axes
        doubt = "" if scale else UNEVEN
        scale = scale or float(scales[scales != 0.0].abs().median())
        self.note_scale(product.q, product.k, scale * product.factor, doubt, _has_tanh(logits))

    def preparation(self, q: Tensor, k: Tensor) -> Preparation:
        """Return what the owner did to q and k between their projections and attention."""
        if q.dim() != k.dim() or q.dim() not in (3, 4):
            return UNCHANGED
        return preparation_of(self.owner(), q, _without_copies(k), self.outputs)

    def note_scale(
        self, q: Tensor, k: Tensor, scale: float, doubt: str, capped: bool = False
    ) -> None:
        """Note a call with q and k, (…, tokens, d), and the number that multiplies q·k in it."""
        preparation, sizes = self.preparation(q, k), (q.shape[-1], k.shape[-2])
        factor = preparation.factor
        doubt = doubt or ("" if factor else "what multiplies q or k before attention is unknown")
        scale *= factor or 1.0
        self.note_call(ScaledCall(self.owner(), *sizes, scale, doubt, preparation, capped))

    def note_call(self, call: ScaledCall) -> None:
        """Note a call under the name of its module, numbered from the second on."""
        name, number = self.count_call(call.module)
        name = f"{name} ({number + 1})" if number else name
        self.scaled_calls[name or "the module"] = call


def _has_tanh(logits: Tensor) -> bool:
    """Return whether a tanh is among the steps that made the logits."""
    steps = [logits.grad_fn]
    while steps:
        step = steps.pop()
        if step is not None:
            if step.name() == "TanhBackward0":
                return True
            steps += [earlier for earlier, _ in step.next_functions]
    return False


def _alternating_signs(visible: Tensor) -> Tensor:
    """Return 1 and −1 in turn for a row's visible keys, 0 elsewhere: terms of a whole row cancel.

    The last of an odd number of keys has 0 too, unless it is alone.
    """
    order = visible.cumsum(-1)
    odd_one = (order == order[..., -1:]) & (order % 2 == 1) & (order > 1)
    return torch.where(visible & ~odd_one, 2.0 * (order % 2) - 1.0, 0.0).double()


def _common_value(numbers: Tensor) -> float | None:
    """Return the median of the entries that are not 0, if all are equal up to rounding."""
    numbers = numbers[numbers != 0.0]
    middle = float(numbers.median())
    return middle if bool(((numbers / middle - 1.0).abs() < SAME_DERIVATIVE).all()) else None


def _without_copies(k: Tensor) -> Tensor:
    """Return keys (batch, heads, tokens, d) without copies of heads for queries that share one."""
    if k.dim() == 3:
        return k
    changes = int((k[:, 1:] != k[:, :-1]).flatten(2).any(-1).any(0).sum())
    return k[:, :: max(1, k.shape[1] // (changes + 1))]


def audit_module(model: nn.Module, run: Callable[[], Any], expected: Target) -> Report:
    """Compare the scale of each call that `run` makes with the intended one and with its kind's.

    Raises RuntimeError if there is no call.
    """
    report = Report(facts=dict(OF_MODELS))
    with keep_outputs(model) as outputs:
        watch = _ScaleWatch(model, outputs)
        with torch.no_grad(), FAST_PATH_OFF, watch.at_work():
            run()
    if not watch.scaled_calls:
        raise RuntimeError(
            f"{type(model).__name__} calls no attention of PyTorch's and takes no softmax of q·k: "
            "audit its attention as a callable"
        )
    for part in watch.silent_modules():
        report.facts[part] = "looks like attention, and was not seen"
    scales: dict[Any, dict[str, float]] = {}
    for name, call in watch.scaled_calls.items():
        value, keys = np.array([call.scale]), np.array([float(call.keys)])
        ends = value * (1.0 - SAME_DERIVATIVE / 10), value * (1.0 + SAME_DERIVATIVE / 10)
        law = call.doubt or "as it is called"
        scale = Scale("dot product", keys, keys - 1.0, value, *ends, law)
        report.parts[name] = Report(scale)
        module, preparation = call.module, call.preparation
        target, source = target_of_call(report, name, module, call.d, preparation, expected)
        cap = meant_cap(call.module)
        if cap is not None and not call.capped:
            report.add("cap", f"a soft cap of {cap:g}", "none", "the configuration", where=name)
        if call.doubt:
            target, source = None, call.doubt
        compare_scale(report, name, scale._replace(low=value, high=value), call.d, target, source)
        if target is None and call.doubt != UNEVEN:
            scales.setdefault((layer_kind(call.module), call.doubt), {})[name] = call.scale
    compare_layers(report, scales)
    return report


def target_of_call(
    report: Report, name: str, module: nn.Module, d: int, preparation: Preparation, expected: Target
) -> tuple[Target, str]:
    """Return what should multiply q·k in a call, and its source; report a norm that is missing."""
    if preparation.unnormed and norm_is_meant(module):
        report.add("norm", f"{preparation.unnormed} normalised", "no norm", NO_NORM, where=name)
    return (
        meant_scale(module, d, preparation.rotated) if expected is None else (expected, "expected")
    )


def compare_scale(
    report: Report, name: str, scale: Scale, d: int, target: Target, source: str, kernel: str = ""
) -> None:
    """Compare the scale of a call, in all rows, with the intended one from `source`, if known."""
    if target is None:
        text = f"{name}: found {scale.value[-1]:.4g} ({source})"
        report.unknown += [text] if text not in report.unknown else []
        return
    wanted = np.full(scale.keys.shape, target)
    if isinstance(target, Policy):
        wanted = target.scale(n=scale.keys, d=d, position=scale.position)
    wrong = np.flatnonzero(~agree(wanted, scale.low, scale.high))
    if wrong.size:
        row, value = int(wrong[-1]), float(scale.value[wrong[-1]])
        text = f"{value / wanted[row]:.4g} times what was meant"
        text += known_mistakes(value, wanted[row], d)
        text += f", {kernel}" if kernel else ""
        if not np.isclose(scale.value, value, rtol=SAME).all():
            text += f" at n = {scale.keys[row]:g}: {scale.law}"
        report.add("scale", f"{wanted[row]:.4g} ({source})", f"{value:.4g}", text, where=name)


def layer_kind(module: nn.Module) -> Any:
    """Return a layer's class and its parameters' shapes: such layers should have one scale."""
    return type(module), tuple(part.shape for part in module.parameters())


def compare_layers(report: Report, scales_by_kind: dict[Any, dict[str, float]]) -> None:
    """Add a finding for each layer's scale that is not that of most layers of its kind."""
    for scales in scales_by_kind.values():
        usual, _ = Counter(float(f"{scale:.3g}") for scale in scales.values()).most_common(1)[0]
        for name, scale in scales.items():
            if not np.isclose(scale, usual, rtol=TOLERANCE):
                text = f"{usual:.4g}, as in other layers"
                report.add("layers", text, f"{scale:.4g}", f"of {len(scales)} layers", where=name)
