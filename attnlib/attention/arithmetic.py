"""Compute a call of attention at any scale."""

import math
import operator
import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional

from attnlib.attention.by_query import check_range, numbers_by_query, scale_of_dimension
from attnlib.attention.options import Factor, Options, broadcasts, shape_of_queries, validate
from attnlib.models.attention_call import OPERATOR, Arguments
from attnlib.models.softmax_record import WrittenOut
from attnlib.policies import Policy, ScaleFunction

RAW_SDPA = OPERATOR
"""A name of scaled_dot_product_attention whose calls no `rescale` context changes: they have the
right scale already, also in a graph that runs inside a context."""


class _ContextStack(threading.local):
    """Hold the `rescale` contexts that this thread is in, the innermost last."""

    def __init__(self) -> None:
        self.modes: list[Any] = []


ACTIVE_CONTEXTS = _ContextStack()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    policy: str | Policy | ScaleFunction | None = None,
    alpha: ArrayLike | Tensor | None = None,
    scale: ArrayLike | Tensor | None = None,
    post_scale: ArrayLike | Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    normalize_qk: bool = False,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention at any scale: c · softmax(σ q·k) v, with PyTorch's fused kernels.

    - `q`, `k`, `v`: tensors of the shapes (…, L, d), (…, S, d) and (…, S, dᵥ). A query that sees
      no key gets zeros.
    - `policy`: the rule for σ: a name in `attnlib.policies.POLICIES`, a Policy, or a function of n,
      d and the position as for `attnlib.policies.own`. Its n is the number of keys that the query
      sees: S; under `is_causal` position + 1, at most S; under a mask the number of keys where it
      is True, or, in a mask of numbers, above −10⁴. Its position is n − 1. For a policy of dot
      products at one n for all queries pass `alpha=policy.alpha(n, d)`.
    - `alpha`: α, the standard deviation of the logits for q and k of independent entries with mean
      0 and variance 1: σ = α/√d. A number α ≥ 0, or one for each query that broadcasts to
      q.shape[:-1]: of shape (L,), (heads, 1) and so on. A tensor may be learned, and its numbers
      are not checked.
    - `scale`: σ itself, in the forms of `alpha`. With `normalize_qk` it multiplies the cosine.
    - `post_scale`: the factor c on the output, by default 1: a number, one for each query as for
      `alpha`, or "exact", for `attnlib.exact.post_scale` at the scale and n of each row, with
      random q and k in d dimensions (DotProduct(d), with `normalize_qk` Cosine(d)). "exact" needs a
      policy or a single number as scale. The first call at a length takes 0.2 s for 4096 causal
      rows, and some seconds if α varies with n.
    - `attn_mask`, `is_causal`, `dropout_p`, `enable_gqa`: as in
      torch.nn.functional.scaled_dot_product_attention.
    - `normalize_qk`: compute c · softmax(σ cos(q, k)) v. q and k are divided by their lengths, by
      1e-12 where they are shorter: zeros stay. By default False.

    Give at most one of `policy`, `alpha` and `scale`. With none of them σ is 1/√d, and the result
    is bitwise PyTorch's.

    Returns a tensor of the shape (…, L, dᵥ). torch.compile makes one graph of the call, and lengths
    may vary.

    Logits are computed in float32, or in float64 for tensors of float64. `alpha`, `scale` and
    `post_scale` must not exceed √M, where M is the largest number of that type: 1.8e19 or 1.3e154.
    Finite tensors then give finite numbers where q·k is below √M too, and with `normalize_qk` where
    squares of lengths are below M; beyond, the result may be NaN, as PyTorch's. If a query times
    its own scale exceeds the range of float16, the query is shortened to fit, and its logits lose
    more to rounding. A query for which a mask of numbers has only the lowest number, but not −∞,
    gets a mean of v, as in PyTorch.

    Raises ValueError or TypeError, with the reason, for

    - two of `policy`, `alpha` and `scale`;
    - a policy for cosines without `normalize_qk`, or one for dot products with it;
    - `normalize_qk` with `alpha`, or without any scale;
    - "exact" with a scale for each query;
    - a scale or factor of another shape, and numbers that are negative, too large or NaN.

    Other arguments that do not fit together raise PyTorch's errors. Chapter: scaling_rules.

    >>> q = k = v = torch.eye(2)
    >>> attend(q, k, v, alpha=0.0)
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    >>> attend(q, k, v, policy="chiang_cholak", is_causal=True)  # α = log n: log 1, log 2
    tensor([[1.0000, 0.0000],
            [0.3799, 0.6201]])
    """
    options = Options(policy, alpha, scale, post_scale, normalize_qk)
    call = Arguments(q, k, v, attn_mask, dropout_p, is_causal, None, enable_gqa)
    if ACTIVE_CONTEXTS.modes:
        return cast(Tensor, ACTIVE_CONTEXTS.modes[-1].rescaled(call, options))
    return scaled_attention(call, options, functional.scaled_dot_product_attention)


def scaled_attention(
    call: Arguments,
    options: Options,
    kernel: Callable[..., Tensor],
    relative: Policy | Factor | None = None,
) -> Tensor:
    """Return the output of a call under its options, (…, L, dᵥ), computed by `kernel`.

    `kernel` takes the arguments of scaled_dot_product_attention. `relative` multiplies the scale of
    `options`. Without keys the output is 0. Raises as `attend`.
    """
    shape = shape_of_queries(call)
    q, k, kernel_scale, factor = scaled_arguments(call, options, relative, shape)
    v, mask, dtype = call.value, call.attn_mask, call.query.dtype
    if k.shape[-2] == 0:  # PyTorch adds 0 · Σq, which is NaN where half precision overflows
        nothing = v.new_zeros(q.shape[-1], v.shape[-1])
        output = (call.query @ nothing).expand(*shape, -1)
    else:
        output = kernel(
            *(q.to(dtype), k, v),
            attn_mask=mask,
            dropout_p=float(call.dropout_p),
            is_causal=call.is_causal,
            scale=kernel_scale,
            enable_gqa=call.enable_gqa,
        )
    if isinstance(factor, Tensor):
        return (output * factor.unsqueeze(-1)).to(output.dtype)
    return output if factor == 1.0 else output * factor


def scaled_arguments(
    call: Arguments, options: Options, relative: Policy | Factor | None, shape: torch.Size
) -> tuple[Tensor, Tensor, float, Factor]:
    """Return the kernel's queries, keys and scale, and the factor on its output.

    Queries are in float32 or wider. `shape` is (…, L), as `shape_of_queries` returns it.
    """
    scale, factor = validate(options)
    q, k, normalize_qk = call.query, call.key, options.normalize_qk
    d, wide = q.shape[-1], torch.promote_types(q.dtype, torch.float32)
    rows = q, k, call.attn_mask, call.is_causal, normalize_qk

    def fit(name: str, factor: Factor) -> Factor:
        return _fit(name, factor, getattr(options, name, factor), shape, wide, q.device)

    by_alpha = options.scale is None and not normalize_qk
    kernel_scale = 1.0 / math.sqrt(d) if by_alpha else 1.0
    per_query: Factor = 1.0
    if not isinstance(scale, Policy):
        per_query = fit("alpha" if options.scale is None else "scale", scale)
    elif not scale.depends_on_n:
        kernel_scale = scale_of_dimension(scale, operator.index(d))
        check_range("policy", kernel_scale, wide)
    else:
        per_query = numbers_by_query("alpha", scale, *rows)
    if isinstance(relative, Policy):
        # It is a plain number: as for cosines it is not divided by 1/√d.
        relative = numbers_by_query("alpha", relative, *rows[:4], True)
    if isinstance(per_query, float):
        kernel_scale, per_query = kernel_scale * per_query, 1.0
    if isinstance(relative, Tensor):
        per_query = per_query * fit("factor", relative)
    elif relative is not None:
        kernel_scale *= relative
        check_range("factor", kernel_scale, wide)
    if factor != "exact":
        factor = fit("post_scale", factor)
    else:
        if isinstance(scale, float) and not (by_alpha or normalize_qk):
            scale = scale * math.sqrt(d)  # the law's scores are q·k/√d
        factor = numbers_by_query("post_scale", cast(Policy | float, scale), *rows)

    if normalize_qk:
        q = functional.normalize(q.to(wide), dim=-1)
        k = functional.normalize(k.to(wide), dim=-1).to(k.dtype)
    if isinstance(per_query, Tensor):
        q = q * per_query.unsqueeze(-1)
        if call.query.dtype == torch.float16 and options.policy is None:
            q = _shorten_to_half(q)
    if kernel_scale < torch.finfo(wide).tiny:  # a kernel multiplies the −∞ of is_causal by it
        q, kernel_scale = q * 0.0, 1.0
    return q, k, kernel_scale, factor


def factors_by_query(relative: Policy | Factor, call: WrittenOut) -> Factor:
    """Return the numbers of `relative` for a softmax written out.

    They are one number, or a tensor that broadcasts to (…, heads, queries).
    """
    wide = torch.promote_types(call.logits.dtype, torch.float32)
    if isinstance(relative, float):  # no keys need be counted
        return _fit("factor", relative, relative, call.layout.shape, wide, call.logits.device)
    visible = call.visible_keys()
    if isinstance(relative, Policy):
        empty = call.logits.new_empty(1, 1)
        q, k = (empty.expand(length, call.start.dimension) for length in visible.shape[-2:])
        relative = numbers_by_query("alpha", relative, q, k, visible, False, True)
    return _fit("factor", relative, relative, visible.shape[:-1], wide, visible.device)


def _shorten_to_half(q: Tensor) -> Tensor:
    """Return the queries, those beyond the range of float16 shortened to fit it."""
    beyond = q.detach().abs().amax(dim=-1, keepdim=True) / torch.finfo(torch.float16).max
    return q / beyond.clamp(min=1.0)


def _fit(
    name: str,
    factor: Factor,
    given: Any,
    shape: torch.Size,
    dtype: torch.dtype,
    device: torch.device,
) -> Factor:
    """Return `factor`, a tensor in `dtype` on `device`; ValueError if too large or of a bad shape.

    `given` is the argument `name` as the user passed it: a tensor's numbers are not checked.
    """
    if isinstance(factor, float):
        check_range(name, factor, dtype)
        return factor
    if not isinstance(given, Tensor) and np.size(given) and not torch.compiler.is_compiling():
        check_range(name, float(np.max(given)), dtype)
    if factor.is_meta and device.type != "meta":
        raise ValueError(f"{name} must hold numbers, got a tensor on the device meta")
    if not broadcasts(factor.shape, shape):
        raise ValueError(
            f"{name} must be one number or broadcast to the queries' shape {tuple(shape)}, "
            f"got shape {tuple(factor.shape)}"
        )
    return factor.to(device, dtype)
