"""Audit audit_tensors q, k, v and output in a file: find the softmax that explains them."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attnlib import _checking
from attnlib._checking import FloatArray
from attnlib.extras import extra_packages
from attnlib.policies import POLICIES, Policy, own

with extra_packages("probe"):
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load
    from torch import Tensor

    from attnlib.attention.options import named_policy
    from attnlib.auditing.explained import explain
    from attnlib.auditing.report import Report, Scale, shown
    from attnlib.auditing.response import checked_cap
    from attnlib.auditing.scales import agree, known_mistakes


def audit_tensors(
    file: str | Path,
    *,
    expected: Any = None,
    dtype: torch.dtype | None = None,
    cap: float | None = None,
    window: int | None = None,
    sink: float | None = None,
) -> Report:
    """Explain the q, k, v and output in a file by a softmax, or report that none does.

    - `file`: the path of a safetensors file. The axes of its tensors are (tokens, heads, size) or
      (batch, heads, tokens, size).
    - `expected`: the intended scale, as for `audit`.
    - `dtype`: the coarsest type in the computation, by default that of the tensors.
    - `cap`, `window`, `sink`: the intended soft cap, number of keys and logit of the sink; by
      default none.

    Returns a `Report`. Raises ValueError for another file or other shapes, ValueError or TypeError
    for intentions that cannot be. Chapter: audit.
    """
    if cap is not None and checked_cap(cap) == math.inf:
        cap = None
    if window is not None:
        window = _checking.integer("window", window, minimum=1)
    if sink is not None:
        sink = _checking.finite_number("sink", sink, -math.inf)
    tensors = _load_recording(Path(file))
    eps = max(torch.finfo(dtype or t.dtype).eps for t in tensors)
    q, k, v, output = arrays_by_head(tensors)
    report, fit = Report(verbose=True), explain(q, k, v, output, eps, window)
    if fit is None:
        n = k.shape[1]
        for count in {n, _visible_count(q, k, v, output, expected)} - {window or n}:
            if other := explain(q, k, v, output, eps, count if count < n else None):
                wanted, actual = (
                    f"{x} keys" if x and x < n else "all keys" for x in (window, count)
                )
                report.add("window", wanted, actual, f"of {n}, times {shown(other.scale)}")
                return report
        if _shapes_fit(swapped := [t.transpose(-3, -2) for t in tensors]):
            q, k, v, output = arrays_by_head(swapped)
            if explain(q, k, v, output, eps, window):
                axes = "tokens, heads, size", "heads, tokens, size"
                if tensors[0].ndim == 4:
                    axes = f"batch, {axes[1]}", f"batch, {axes[0]}"
                report.add("layout", *axes, evidence="transposed, they are those of a softmax")
                return report
        forms = "one multiplier of q·k or the cosine, causal or not, a cap, a sink"
        report.add("softmax", "a softmax", "no softmax of these explains this", forms)
        return report
    applied_to = "cosine" if fit.cosine else "dot product"
    (scale, low, high), n = (np.array([end]) for end in fit.scale), np.array([float(k.shape[1])])
    report.scale = Scale(applied_to, n, n - 1.0, scale, low, high, "one for all rows")
    none = f"none seen: logits have the size {fit.logit:.3g}"
    report.facts = {
        "causal": "unknown: one query" if q.shape[1] == 1 else "yes" if fit.causal else "no",
        "soft cap": none if fit.cap is None else shown(fit.cap),
        "sink": f"a logit of {', '.join(map(shown, fit.sink))}" if fit.sink else "none seen",
        "not explained": f"{fit.residual:.1g} of the output",
    }
    if expected is None:
        report.unknown.append(f"found {shown(fit.scale)} times the {applied_to}")
    else:
        for code, target, intervals in (
            ("cap", cap, [] if fit.cap is None else [fit.cap]),
            ("sink", sink, fit.sink or []),
        ):
            right = [target is not None and bool(agree(target, x.low, x.high)) for x in intervals]
            if not all(right) or (target is not None and not intervals):
                text = "none: it was not declared" if target is None else f"{target:g}"
                report.add(code, text, ", ".join(map(shown, intervals)) or "none seen")
        policy = intended_policy(expected)
        right_scale = policy.scale(n, q.shape[-1])[0]
        if policy.applied_to != applied_to:
            report.add("cosine", f"a scale of the {policy.applied_to}", f"of the {applied_to}")
        elif not agree(right_scale, low, high).all():
            why = f"{scale[0] / right_scale:.4g} times what was meant"
            why += known_mistakes(scale[0], right_scale, q.shape[-1])
            report.add("scale", f"{right_scale:.4g}", shown(fit.scale), why)
    return report


def _visible_count(
    q: FloatArray, k: FloatArray, v: FloatArray, output: FloatArray, expected: Any
) -> int:
    """Return how many keys up to its own the last query sees, if its scale is as expected.

    The answer is the number of keys whose output is nearest to the recorded one, in one head.
    """
    n, d = k.shape[1], q.shape[-1]
    logits = float(intended_policy(expected).scale(n, d)) * (k[0, ::-1] @ q[0, -1])
    weights = np.exp(logits - logits.max())[:, None]
    by_count = np.cumsum(weights * v[0, ::-1], axis=0) / np.cumsum(weights, axis=0)
    return int(np.abs(by_count - output[0, -1]).max(axis=-1).argmin()) + 1


def _load_recording(path: Path) -> list[Tensor]:
    """Return q, k, v and output of a file; ValueError where their shapes do not fit together."""
    tensors = list(load_tensors(path, "q", "k", "v", "output").values())
    if not _shapes_fit(tensors):
        swapped_fit = all(t.ndim > 2 for t in tensors) and _shapes_fit(
            [t.transpose(-3, -2) for t in tensors]
        )
        hint = ": transposed they fit, tokens and heads change places" if swapped_fit else ""
        shapes = ", ".join(map(str, (tuple(t.shape) for t in tensors)))
        raise ValueError(
            f"{path}: q and output must be (tokens, heads, size) or (batch, heads, tokens, size), "
            f"k and v alike with as many tokens or more, got q, k, v, output of {shapes}{hint}"
        )
    if not all(bool(t.isfinite().all()) for t in tensors):
        raise ValueError(f"{path}: q, k, v and output must be finite")
    for name, tensor in zip("qkv", tensors, strict=False):
        if not tensor.any():
            raise ValueError(
                f"{path}: {name} must not be 0 as a whole: no scale shows in its output"
            )
    return tensors


def _shapes_fit(tensors: list[Tensor]) -> bool:
    """Return whether the shapes of q, k, v and output are those of one attention."""
    q, k, v, output = tensors
    heads, tokens = (-2, -3) if q.ndim == 3 else (-3, -2)
    if q.ndim not in (3, 4) or not k.ndim == v.ndim == q.ndim == output.ndim:
        return False
    return (
        all(t.numel() for t in tensors)
        and q.shape[-1] == k.shape[-1]
        and q.shape[heads] % k.shape[heads] == 0
        and k.shape[:-1] == v.shape[:-1]
        and q.shape[tokens] <= k.shape[tokens]
        and output.shape == (*q.shape[:-1], v.shape[-1])
        and (q.ndim == 3 or len(q) == len(k))
    )


def load_tensors(path: Path, *names: str) -> dict[str, Tensor]:
    """Return tensors of a file by name; ValueError where one is missing or not of floats."""
    try:
        tensors = load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} is no file of safetensors: {error}") from error
    for name in names:
        if name not in tensors:
            present = ", ".join(tensors) or "none"
            raise ValueError(f"{path} must have the tensors {', '.join(names)}, has {present}")
        if not tensors[name].is_floating_point():
            raise ValueError(f"{path}: {name} must be of floats, got {tensors[name].dtype}")
    return {name: tensors[name] for name in names}


def arrays_by_head(tensors: list[Tensor]) -> Iterator[FloatArray]:
    """Yield tensors of a file as arrays (heads, tokens, size); a batch has more heads."""
    for t in tensors:
        yield (t.transpose(0, 1) if t.ndim == 3 else t.flatten(0, 1)).double().numpy()


def intended_policy(expected: Any) -> Policy:
    """Return a policy for a number, a policy, its name or a function, by default 1/√d."""
    if isinstance(expected, float | int):
        return replace(POLICIES["transformer"], rule=lambda _: expected)
    return named_policy("expected", expected or "transformer") or own(expected)
