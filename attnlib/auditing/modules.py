"""The audit of any module: what it hands to PyTorch's attention, or writes out before a softmax.

PyTorch's function is taken at its word: its scale is an argument. Where attention is written out,
the logits are held against the product of q and k that they were made of.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnlib.auditing.meant import meant_by
from attnlib.auditing.projected import Outputs, multiplied_before, outputs_of
from attnlib.auditing.report import Report, Scale
from attnlib.interception import (
    ATTENTION,
    FAST_PATH_OFF,
    HIDDEN,
    MULTI_HEAD,
    Arguments,
    Watching,
)
from attnlib.policies import Policy

PRODUCTS = {"matmul", "__matmul__", "bmm", "einsum", "baddbmm"}
REMEMBERED = 8
"""Products that a softmax may be of."""
EXACT = 1e-3
"""Logits that are farther from a multiple of q·k have something added."""
SAME = 5e-3


class Seen(NamedTuple):
    """A call of attention."""

    module: nn.Module
    d: int
    keys: int
    scale: float
    """What multiplies q·k in the call and, as far as projections tell it, before."""
    doubt: str
    """What is not known of it, or ""."""


class _Watch(Watching):
    """A mode that notes the scale of each call of attention."""

    def __init__(self, model: nn.Module, outputs: Outputs) -> None:
        super().__init__(model)
        self.outputs = outputs
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        self.found: dict[str, Seen] = {}

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the function returns."""
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if not self.running:
            return result
        if func is MULTI_HEAD:  # PyTorch's own divides by √d in each of its ways
            key, width, heads = (args[1], args[3], args[4])
            self.note(width // heads, len(key), (width // heads) ** -0.5, "")
        elif func in ATTENTION:
            given = Arguments(*args, **kwargs)
            d = given.query.shape[-1]
            own = d**-0.5 if given.scale is None else float(given.scale)
            self.observed(given.query, given.key, own, "")
        elif name in PRODUCTS and isinstance(result, Tensor):
            tensors = [one for one in args if isinstance(one, Tensor)]
            if len(tensors) >= 2 and result.dim() > 2:
                q, k = tensors[-2:]
                if name == "einsum":
                    q, k = _in_order(args[0], q, k)
                else:
                    k = k.transpose(-2, -1)
                self.products = [*self.products[1 - REMEMBERED :], (q, k, result.detach().clone())]
        elif name == "softmax" and result.dim() > 2:
            logits = kwargs.get("input", args[0] if args else None)
            for q, k, product in reversed(self.products):
                if isinstance(logits, Tensor) and product.shape == logits.shape:
                    slope, off = _slope(logits.detach(), product)
                    self.observed(q, k, slope, "" if off < EXACT else "something is added to q·k")
                    self.products = []
                    break
        return result

    def observed(self, q: Tensor, k: Tensor, scale: float, doubt: str) -> None:
        """Note a call with its queries and keys, (…, tokens, d)."""
        before = None
        if q.dim() == k.dim() == 3:  # the heads of one text
            q, k = q[None], k[None]
        if q.dim() == k.dim() == 4:
            before = multiplied_before(self.running[-1], q, _unrepeated(k), self.outputs)
        doubt = doubt or ("" if before else "what multiplies q or k before attention is unknown")
        self.note(q.shape[-1], k.shape[-2], scale * (before or 1.0), doubt)

    def note(self, d: int, keys: int, scale: float, doubt: str) -> None:
        """Note a call under the name of its module."""
        name, number = self.count_call(self.running[-1])
        name = f"{name} ({number + 1})" if number else name
        self.found[name or "the module"] = Seen(self.running[-1], d, keys, scale, doubt)


def _in_order(equation: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k of an einsum with axes in the order of the logits, and d last, if it tells."""
    text = equation if isinstance(equation, str) else ""
    left, right, out = [*text.replace("->", ",").replace(" ", "").split(","), "", ""][:3]
    summed = set(left) & set(right) - set(out)
    if "." in text or len(summed) != 1 or len(out) < 3:
        return q, k
    (d,) = summed
    for_q, for_k = out[:-1] + d, out[:-2] + out[-1] + d
    if set(for_q) != set(left) or set(for_k) != set(right):
        return q, k
    return q.permute(*map(left.index, for_q)), k.permute(*map(right.index, for_k))


def _unrepeated(k: Tensor) -> Tensor:
    """Return keys without the copies that make one head for each of the queries."""
    changes = int((k[:, 1:] != k[:, :-1]).flatten(2).any(-1).any(0).sum())
    return k[:, :: max(1, k.shape[1] // (changes + 1))]


def _slope(logits: Tensor, product: Tensor) -> tuple[float, float]:
    """Return by what q·k was multiplied, from differences in rows, and how far logits are off."""
    seen = logits > HIDDEN
    count = seen.sum(-1, keepdim=True).clamp(min=1)
    y, x = (
        torch.where(seen, part.double(), 0.0)
        - torch.where(seen, part.double(), 0.0).sum(-1, True) / count
        for part in (logits, product)
    )
    y, x = (torch.where(seen, part, 0.0) for part in (y, x))
    slope = float((x * y).sum() / (x * x).sum().clamp(min=1e-300))
    return slope, float((y - slope * x).abs().max() / y.abs().max().clamp(min=1e-300))


def audit_module(
    model: nn.Module, run: Callable[[], Any], expected: float | Policy | None
) -> Report:
    """Hold the scale of each call against what is meant, and layers of one kind together."""
    report = Report()
    with outputs_of(model) as outputs:
        watch = _Watch(model, outputs)
        with torch.no_grad(), FAST_PATH_OFF, watch.at_work():
            run()
    if not watch.found:
        raise RuntimeError(
            f"{type(model).__name__} calls no attention of PyTorch's and takes no softmax of q·k: "
            "audit its attention as a callable"
        )
    for part in watch.silent():
        report.facts[part] = "looks like attention, and was not seen"
    kinds: dict[Any, dict[str, float]] = {}
    for name, seen in watch.found.items():
        value, keys = np.array([seen.scale]), np.array([float(seen.keys)])
        ends = value * (1.0 - EXACT / 10), value * (1.0 + EXACT / 10)
        law = seen.doubt or "as it is called"
        report.parts[name] = Report(Scale("dot product", keys, keys - 1.0, value, *ends, law))
        meant, said = expected, "expected"
        if meant is None:
            meant, said = meant_by(seen.module, seen.d)
        if isinstance(meant, Policy):
            meant = float(meant.scale(n=seen.keys, d=seen.d, position=seen.keys - 1.0))
        if meant is None or seen.doubt:
            report.unknown.append(f"{name}: found {seen.scale:.4g} ({seen.doubt or said})")
            kinds.setdefault((type(seen.module), seen.d, seen.doubt), {})[name] = seen.scale
        elif not np.isclose(seen.scale, meant, rtol=SAME):
            times = f"{seen.scale / meant:.4g} times what was meant"
            report.add("scale", f"{meant:.4g} ({said})", f"{seen.scale:.4g}", times, where=name)
    for scales in kinds.values():
        usual, _ = Counter(float(f"{scale:.3g}") for scale in scales.values()).most_common(1)[0]
        for name, scale in scales.items():
            if not np.isclose(scale, usual, rtol=SAME):
                told = f"{usual:.4g}, as in other layers"
                report.add("layers", told, f"{scale:.4g}", f"of {len(scales)} layers", where=name)
    return report
