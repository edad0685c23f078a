"""Attention at any scale, on PyTorch's fused kernels.

- `attend`: scaled_dot_product_attention under a policy or an α of your choice, with a post-scale;
- `Attention`: the same as a module with heads and projections;
- `rescale`: a context in which somebody else's model runs at another scale.

The logits are α q·k/√d, so that α = 1 is PyTorch's default, or α cos(q, k) with normalised queries
and keys. One α for all queries goes into the kernel's own `scale`; one for each query multiplies
the queries. So every kernel can be used, and no matrix of scores is kept. Numbers in half precision
are multiplied in float32 and rounded once.

Chapter: policies.
"""

import difflib
import math
import operator
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import lru_cache
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.bias import CausalBias
from torch.overrides import TorchFunctionMode

from attnlib import checking, exact
from attnlib.checking import FloatArray
from attnlib.interception import MULTI_HEAD, MULTI_HEAD_FROM_INSIDE, seen_from_inside
from attnlib.policies import POLICIES, Policy
from attnlib.scores import Cosine, DotProduct

__all__ = ["Attention", "attend", "rescale"]

Factor = float | Tensor
"""A number for all queries, or a tensor with one for each, which broadcasts to (…, L)."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    policy: str | Policy | None = None,
    alpha: ArrayLike | Tensor | None = None,
    post_scale: ArrayLike | Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    normalize_qk: bool = False,
    enable_gqa: bool = False,
) -> Tensor:
    """Return c · softmax(α q·k/√d) v, or c · softmax(α cos(q, k)) v with `normalize_qk`.

    q: (…, L, d), k: (…, S, d), v: (…, S, dᵥ), result: (…, L, dᵥ); these, `attn_mask`, `is_causal`,
    `dropout_p` and `enable_gqa` as in torch.nn.functional.scaled_dot_product_attention. A query
    that sees no key gets zeros.

    The scale is one of:

    - `policy`, a name in `attnlib.policies.POLICIES` or a Policy. Its n is the number of keys that
      the query sees: S; under `is_causal` position + 1, at most S; under a mask those where it is
      True, or, in a mask of numbers, above the lowest of its type. Its position is n − 1. For a
      policy of dot products at one n for all queries pass `alpha=policy.alpha(n, d)`.
    - `alpha`, a number α ≥ 0, or one for each query that broadcasts to q.shape[:-1]: of shape (L,),
      (heads, 1) and so on. A tensor may be learned, and its numbers are not checked.
    - neither: α = 1, bitwise PyTorch's result.

    `post_scale` is the factor c: a number, one for each query as for `alpha`, or "exact", for
    `attnlib.exact.post_scale` at the α and n of each row, with random q and k in d dimensions
    (DotProduct(d), with `normalize_qk` Cosine(d)); it wants a policy or a single number as α. Its
    first call at a length takes 0.2 s at 4096 causal rows, some seconds if α varies with n.

    `normalize_qk` divides q and k by their lengths; vectors of zeros stay. torch.compile makes one
    graph of it, and lengths may vary.

    Raises ValueError or TypeError, with the reason, for: `policy` and `alpha` together; `is_causal`
    and `attn_mask` together; a policy for cosines without `normalize_qk`, one for dot products with
    it, and `normalize_qk` without a scale; "exact" with an α for each query; shapes, types,
    devices and numbers of heads that do not fit; numbers that are negative, infinite or NaN.
    Chapter: policies.

    >>> q = k = v = torch.eye(2)
    >>> attend(q, k, v, alpha=0.0)
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    >>> attend(q, k, v, policy="chiang_cholak", is_causal=True)  # α = log n: log 1, log 2
    tensor([[1.0000, 0.0000],
            [0.3799, 0.6201]])
    """
    options = _Options(policy, alpha, post_scale, normalize_qk)
    kernel = functional.scaled_dot_product_attention
    if _ENTERED.modes:
        options, kernel = _ENTERED.modes[-1].changed(options), _UNSEEN
    return _attend(q, k, v, attn_mask, dropout_p, is_causal, enable_gqa, options, kernel)


class _Options(NamedTuple):
    policy: str | Policy | None = None
    alpha: ArrayLike | Tensor | None = None
    post_scale: ArrayLike | Tensor | None = None
    normalize_qk: bool = False


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    enable_gqa: bool,
    options: _Options,
    kernel: Callable[..., Tensor],
) -> Tensor:
    """Return what `attend` does, by a name of scaled_dot_product_attention."""
    scale, factor = _checked_options(options)
    shape = _checked_shape(q, k, v, attn_mask, is_causal, enable_gqa)
    dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
    normalize_qk = options.normalize_qk

    def by_rows(quantity: str) -> Tensor:
        return _by_rows(quantity, scale, q, k, attn_mask, is_causal, normalize_qk, wide)

    kernel_scale = unit = 1.0 if normalize_qk else 1.0 / math.sqrt(q.shape[-1])
    by_query: Tensor | None = None
    if isinstance(scale, Tensor):
        by_query = _fitting("alpha", scale, shape, wide, q.device)
    elif isinstance(scale, float):
        kernel_scale = scale * unit
    elif scale.family == "dimension":
        kernel_scale = _scale_of_dimension(scale, operator.index(q.shape[-1]))
    else:
        by_query = by_rows("alpha")
    if isinstance(factor, Tensor):
        factor = _fitting("post_scale", factor, shape, wide, q.device)
    elif factor == "exact":
        factor = by_rows("post_scale")

    if normalize_qk:
        q = functional.normalize(q.to(wide), dim=-1)
        k = functional.normalize(k.to(wide), dim=-1).to(k.dtype)
    if by_query is not None:
        q = q * by_query.unsqueeze(-1)
    output = kernel(
        q.to(dtype),
        k,
        v,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        is_causal=is_causal,
        scale=kernel_scale,
        enable_gqa=enable_gqa,
    )
    if isinstance(factor, Tensor):
        return (output * factor.unsqueeze(-1)).to(output.dtype)
    return output if factor == 1.0 else output * factor


# --- which scale ----------------------------------------------------------------------------------


def _checked_options(options: _Options) -> tuple[Policy | Factor, Factor | Literal["exact"]]:
    """Return the policy or α, and c; both numbers are 1 where nothing is said."""
    policy, alpha, post_scale, normalize_qk = options
    checking.flag("normalize_qk", normalize_qk)
    if policy is not None and alpha is not None:
        raise ValueError("policy and alpha both say what the scale is: give one of them")
    if policy is None and alpha is None and normalize_qk:
        raise ValueError(
            "normalize_qk needs a policy for cosines or an alpha: cosines have no usual scale"
        )
    scale: Policy | Factor = 1.0
    if policy is not None:
        scale = _checked_policy(policy, normalize_qk)
    elif alpha is not None:
        scale = _checked_factor("alpha", alpha)
    if isinstance(post_scale, str):
        if post_scale != "exact":
            raise ValueError(
                f"post_scale must be 'exact' or a number, got post_scale={post_scale!r:.80}"
            )
        if isinstance(scale, Tensor):
            raise ValueError(
                "post_scale='exact' needs a policy or a single number as alpha; for an alpha for "
                "each query pass the factors, from attnlib.exact.post_scale(law, alpha, n)"
            )
        return scale, "exact"
    return scale, 1.0 if post_scale is None else _checked_factor("post_scale", post_scale)


def _checked_policy(policy: str | Policy, normalize_qk: bool) -> Policy:
    if not isinstance(policy, str | Policy):
        raise TypeError(
            "policy must be a name in attnlib.policies.POLICIES or a Policy, "
            f"got policy={policy!r:.80}"
        )
    rule = POLICIES.get(policy) if isinstance(policy, str) else policy
    if rule is None:
        similar = difflib.get_close_matches(str(policy), POLICIES, n=3, cutoff=0.0)
        raise ValueError(
            "policy must be a name in attnlib.policies.POLICIES or a Policy, "
            f"got policy={policy!r:.80}; similar names: {', '.join(similar)}"
        )
    if rule.applied_to == "cosine" and not normalize_qk:
        raise ValueError(
            f"the policy {rule.name} multiplies cosines, not q·k: pass normalize_qk=True with it"
        )
    if rule.applied_to == "dot product" and normalize_qk:
        raise ValueError(
            f"the policy {rule.name} multiplies q·k, not cosines: it cannot go with normalize_qk"
        )
    return rule


def _checked_factor(name: str, value: ArrayLike | Tensor) -> Factor:
    if isinstance(value, Tensor):
        if value.is_complex() or value.dtype == torch.bool:
            raise TypeError(f"{name} must be real numbers, got a tensor of {value.dtype}")
        return value
    # Without NumPy for a plain number, which the compiler may follow.
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if plain and 0.0 <= cast(float, value) <= sys.float_info.max:
        return float(cast(float, value))
    array = checking.finite(name, cast(ArrayLike, value), minimum=0.0)
    return float(array) if array.ndim == 0 else torch.from_numpy(array)


def _fitting(
    name: str, factor: Tensor, shape: torch.Size, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return a factor for queries of the shape (…, L)."""
    if not _broadcasts(factor.shape, shape):
        raise ValueError(
            f"{name} must be one number or broadcast to the queries' shape {tuple(shape)}, "
            f"got shape {tuple(factor.shape)}"
        )
    return factor.to(device, dtype)


# --- scales as functions of shapes ----------------------------------------------------------------


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _scale_of_dimension(policy: Policy, d: int) -> float:
    """Return the scale of a policy that is a function of d alone."""
    return float(policy.scale(1.0, d))


def _by_rows(
    quantity: str,
    scale: Policy | Factor,
    q: Tensor,
    k: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    cosine: bool,
    dtype: torch.dtype,
) -> Tensor:
    """Return the policy's α, or the exact c, for the number of keys that each query sees."""
    visible = "causal" if is_causal else "all" if attn_mask is None else "masked"
    token, alpha = (_token(scale), 1.0) if isinstance(scale, Policy) else ("", cast(float, scale))
    lengths = q.shape[-2], k.shape[-2]
    numbers: Tensor = _numbers_of_rows(
        quantity, token, alpha, q.shape[-1], cosine, visible, *lengths, dtype, q.device
    )
    return numbers if attn_mask is None else numbers[_count(attn_mask, k.shape[-2])]


def _count(attn_mask: Tensor, keys: int) -> Tensor:
    """Return the number of keys that each query sees."""
    if attn_mask.dtype != torch.bool:
        attn_mask = attn_mask > torch.finfo(attn_mask.dtype).min
    return attn_mask.expand(*attn_mask.shape[:-1], keys).sum(-1)


_TOKENS = {policy: name for name, policy in POLICIES.items()}
_RULES = dict(POLICIES)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _token(policy: Policy) -> str:
    """Return a word for the policy: an operator of PyTorch takes words."""
    token = _TOKENS.setdefault(policy, f"{policy.name} {len(_TOKENS)}")
    _RULES[token] = policy
    return token


# An operator of its own: the compiler need not follow NumPy, and lengths may vary. It copies from
# the CPU, which a CUDA graph cannot record.
@torch.library.custom_op(
    "attnlib::numbers_of_rows", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,)
)
def _numbers_of_rows(
    quantity: str,
    policy: str,
    alpha: float,
    d: int,
    cosine: bool,
    visible: str,
    queries: int,
    keys: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return `_numbers` as a tensor."""
    numbers = _numbers(quantity, policy, alpha, d, cosine, visible, queries, keys)
    return torch.tensor(numbers, dtype=dtype, device=device)


@_numbers_of_rows.register_fake
def _(
    quantity: str,
    policy: str,
    alpha: float,
    d: int,
    cosine: bool,
    visible: str,
    queries: int,
    keys: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    size = {"all": 1, "causal": queries, "masked": keys + 1}[visible]
    return torch.empty(size, dtype=dtype, device=device)


@lru_cache(maxsize=32)
def _numbers(
    quantity: str,
    policy: str,
    alpha: float,
    d: int,
    cosine: bool,
    visible: str,
    queries: int,
    keys: int,
) -> FloatArray:
    """Return α or c for all queries ("all"), for each ("causal"), or for 0 to `keys` keys."""
    if visible == "all":
        n = np.full(1, float(keys))
    elif visible == "causal":
        n = np.minimum(np.arange(1.0, queries + 1.0), keys)
    else:
        n = np.arange(keys + 1.0)
    n = np.maximum(n, 1.0)  # a query without a key gets zeros, whatever they are multiplied by
    scale = np.full(n.shape, alpha)
    if policy:
        unit = 1.0 if cosine else 1.0 / math.sqrt(d)
        scale = _RULES[policy].scale(n, d) / unit
    if quantity == "alpha":
        return scale
    return exact.post_scale(Cosine(d) if cosine else DotProduct(d), scale, n)


# --- shapes and types -----------------------------------------------------------------------------


def _checked_shape(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
) -> torch.Size:
    """Return the shape (…, L) of the queries."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got a {type(tensor).__name__}")
        if tensor.is_nested:
            raise TypeError(f"{name} must not be a nested tensor: pad it and pass a mask")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must have a real floating type, got {tensor.dtype}")
        if tensor.ndim < 2 or tensor.shape[-1] == 0:
            raise ValueError(
                f"{name} must have two axes or more, the last not empty, "
                f"got shape {tuple(tensor.shape)}"
            )
    if not (q.device == k.device == v.device):
        raise ValueError(
            f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}"
        )
    same_type = q.dtype == k.dtype == v.dtype
    if not same_type and not torch.is_autocast_enabled(q.device.type):
        raise TypeError(f"q, k and v must have one type, got {q.dtype}, {k.dtype} and {v.dtype}")
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same last axis, got {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have the same number of keys, got {shapes}")
    leading = _leading(q, k, v, enable_gqa)
    if leading is None:
        hint = "; the heads of k and v must divide those of q" if enable_gqa else ""
        if not enable_gqa and _leading(q, k, v, True) is not None:
            hint = "; enable_gqa=True shares each head of k and v among several of q"
        raise ValueError(f"the leading axes of q, k and v must broadcast, got {shapes}{hint}")
    checking.flag("is_causal", is_causal)
    if attn_mask is not None:
        if is_causal:
            raise ValueError(
                "is_causal and attn_mask both say which keys are seen: put both into attn_mask"
            )
        if not isinstance(attn_mask, Tensor) or isinstance(attn_mask, CausalBias):
            raise TypeError(
                f"attn_mask must be a plain tensor, got a {type(attn_mask).__name__}: pass a mask "
                "of booleans, or is_causal=True"
            )
        if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
            raise TypeError(
                f"attn_mask must be booleans or floating numbers, got {attn_mask.dtype}"
            )
        full = torch.Size((*leading, q.shape[-2], k.shape[-2]))
        if attn_mask.ndim < 2 or not _broadcasts(attn_mask.shape, full):
            raise ValueError(
                f"attn_mask must have two axes or more and broadcast to {tuple(full)}, "
                f"got shape {tuple(attn_mask.shape)}"
            )
    return torch.Size((*leading, q.shape[-2]))


def _leading(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> torch.Size | None:
    """Return the shape that the leading axes of q, k and v broadcast to, or None."""
    of_q, of_k, of_v = q.shape[:-2], k.shape[:-2], v.shape[:-2]
    heads = torch.Size()
    if enable_gqa:
        if not (of_q and of_k and of_v) or not of_k[-1] or of_k[-1] != of_v[-1]:
            return None
        if of_q[-1] % of_k[-1]:
            return None
        heads, of_q, of_k, of_v = of_q[-1:], of_q[:-1], of_k[:-1], of_v[:-1]
    try:
        common = torch.broadcast_shapes(of_q, of_k, of_v)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    return torch.Size((*common, *heads))


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    """Return whether the shape broadcasts to the target without enlarging it."""
    if len(shape) > len(target):
        return False
    return all(
        size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )


# --- a module -------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Attention with several heads, to itself or to a context, at any scale: `attend` in a module.

    x: (…, L, width), context: (…, S, context_width), by default x; result: (…, L, width).

    `policy`, `alpha`, `post_scale`, `normalize_qk` and `dropout_p` (in training) as in `attend`;
    the queries there have the shape (…, heads, L). A Parameter is learned, another tensor becomes a
    buffer: `alpha=nn.Parameter(torch.full((heads, 1), 10.0))` is a scale learned by each head.
    `key_value_heads`, by default `heads`, share a head of keys and values among several of queries.
    Without `head_size` it is width / heads.

    Raises ValueError or TypeError as `attend`, for sizes that are not whole numbers from 1 on, for
    a width that is no multiple of `heads` where it has to be, and for `key_value_heads` that do not
    divide `heads`. Chapter: policies.

    >>> attention = Attention(width=32, heads=4, key_value_heads=2, policy="ssmax")
    >>> attention(torch.zeros(2, 10, 32), is_causal=True).shape
    torch.Size([2, 10, 32])
    """

    alpha: ArrayLike | Tensor | None
    post_scale: ArrayLike | Tensor | None

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_value_heads: int | None = None,
        head_size: int | None = None,
        context_width: int | None = None,
        bias: bool = True,
        policy: str | Policy | None = None,
        alpha: ArrayLike | Tensor | None = None,
        post_scale: ArrayLike | Tensor | None = None,
        normalize_qk: bool = False,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        _checked_options(_Options(policy, alpha, post_scale, normalize_qk))
        width = checking.integer("width", width, minimum=1)
        heads = checking.integer("heads", heads, minimum=1)
        shared = heads if key_value_heads is None else key_value_heads
        shared = checking.integer("key_value_heads", shared, minimum=1)
        if heads % shared:
            raise ValueError(
                f"key_value_heads must divide heads={heads}, got key_value_heads={shared}"
            )
        if head_size is None:
            if width % heads:
                raise ValueError(
                    f"width must be a multiple of heads={heads} unless head_size is given, "
                    f"got width={width}"
                )
            head_size = width // heads
        self.head_size = checking.integer("head_size", head_size, minimum=1)
        source = width if context_width is None else context_width
        source = checking.integer("context_width", source, minimum=1)
        self.query = nn.Linear(width, heads * self.head_size, bias=bias)
        self.key = nn.Linear(source, shared * self.head_size, bias=bias)
        self.value = nn.Linear(source, shared * self.head_size, bias=bias)
        self.output = nn.Linear(heads * self.head_size, width, bias=bias)
        self.enable_gqa = shared != heads
        self.policy = policy
        self.normalize_qk = normalize_qk
        self.dropout_p = dropout_p
        for name, value in (("alpha", alpha), ("post_scale", post_scale)):
            if value is not None and not isinstance(value, str | Tensor):
                value = _checked_factor(name, value)
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the attention of x to the context; `attn_mask` broadcasts to (…, heads, L, S)."""
        context = x if context is None else context
        z = attend(
            self._heads(self.query(x)),
            self._heads(self.key(context)),
            self._heads(self.value(context)),
            policy=self.policy,
            alpha=self.alpha,
            post_scale=self.post_scale,
            attn_mask=attn_mask,
            is_causal=is_causal,
            dropout_p=self.dropout_p if self.training else 0.0,
            normalize_qk=self.normalize_qk,
            enable_gqa=self.enable_gqa,
        )
        return cast(Tensor, self.output(z.transpose(-3, -2).flatten(-2)))

    def _heads(self, x: Tensor) -> Tensor:
        heads = x.shape[-1] // self.head_size
        return x.view(*x.shape[:-1], heads, self.head_size).transpose(-3, -2)


# --- somebody else's model ------------------------------------------------------------------------


def rescale(
    policy: str | Policy | None = None,
    *,
    alpha: ArrayLike | Tensor | None = None,
    post_scale: ArrayLike | Tensor | None = None,
    normalize_qk: bool = False,
) -> "_Context":
    """Return a context in which every scaled_dot_product_attention call runs at another scale.

    What would this model do under that policy? Nothing in the model is touched. The arguments as in
    `attend`, and they replace the scale that the model passes; with `post_scale` alone the model's
    own scale stays. n is the number of keys that a query sees in the call at hand, a cache
    included. Also a decorator of functions.

    It reaches every way to that function in this thread: from torch.nn.functional, an import of
    the name, nn.MultiheadAttention and the modules made of it, torch.ops.aten, and models under
    torch.compile, which are compiled once more for the context (within a compiled function the
    context breaks the graph). What a model does to q before the call, it still does. Of nested
    contexts the innermost counts. Run the backward pass inside too where activations are recomputed
    in it.

    It cannot reach attention that is written out or uses another kernel. So the context warns at
    its end if it has seen no call, and nn.MultiheadAttention with need_weights=True, which is
    written out, is refused (RuntimeError). The shortcut of nn.TransformerEncoder in inference
    passes around the function too, and is off meanwhile (torch.backends.mha, in all threads).

    Raises as `attend`, here or in the model's call; ValueError where there is nothing to change.
    Chapter: policies.

    >>> model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> x = torch.ones(1, 3, 8)
    >>> with rescale("transformer"):
    ...     same = model(x)
    >>> torch.testing.assert_close(same, model(x))
    """
    if policy is None and alpha is None and post_scale is None and not normalize_qk:
        raise ValueError("rescale needs a policy, an alpha or a post_scale: nothing would change")
    options = _Options(policy, alpha, post_scale, normalize_qk)
    _checked_options(options)
    return _Context(options)


class _Context(ContextDecorator):
    """What `rescale` returns. It can be entered again, within itself and in several threads."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def __enter__(self) -> Self:
        mode = _Rescaled(self._options)
        _ENTERED.modes.append(mode)
        _FAST_PATH.close()
        mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        mode = _ENTERED.modes.pop()
        mode.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        _FAST_PATH.open()
        if mode.calls == 0 and error is None:
            warnings.warn(
                "rescale has seen no call of scaled_dot_product_attention in this thread, so it "
                "has changed nothing; a model of transformers wants attn_implementation='sdpa'",
                stacklevel=2,
            )


class _Entered(threading.local):
    """The contexts that this thread is in, the innermost last."""

    def __init__(self) -> None:
        self.modes: list[_Rescaled] = []


class _FastPath:
    """The switch of PyTorch's shortcut, off from the first context's start to the last one's end.

    Outside torch.compile the mode alone keeps models off the shortcut, inside it does not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts = 0
        self._before = True

    def close(self) -> None:
        with self._lock:
            if self._contexts == 0:
                self._before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self._contexts += 1

    def open(self) -> None:
        with self._lock:
            self._contexts -= 1
            if self._contexts == 0:
                torch.backends.mha.set_fastpath_enabled(self._before)


_ENTERED = _Entered()
_FAST_PATH = _FastPath()


_SEEN_FROM_INSIDE = [
    (MULTI_HEAD, MULTI_HEAD_FROM_INSIDE),
    # The backward pass may compute activations anew.
    *(
        (function, seen_from_inside(function))
        for function in (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
    ),
]


# A name of scaled_dot_product_attention that no context takes for a model's: graphs in which it is
# already called at the right scale may run inside the context too.
_UNSEEN = torch.ops.aten.scaled_dot_product_attention


class _Rescaled(TorchFunctionMode):
    """Hands a model's calls of scaled_dot_product_attention to `_attend`."""

    def __init__(self, options: _Options) -> None:
        super().__init__()
        self.options = options
        self.calls = 0

    def changed(self, options: _Options) -> _Options:
        """Return the options of a call, as far as the context leaves them."""
        self.calls += 1
        post_scale = self.options.post_scale
        if post_scale is None:
            post_scale = options.post_scale
        if self.options.policy is None and self.options.alpha is None:
            return options._replace(post_scale=post_scale)
        return self.options._replace(post_scale=post_scale)

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention or func is _UNSEEN.default:
            return self.attend(*args, **kwargs)
        for function, inside in _SEEN_FROM_INSIDE:
            if func is function:
                before = self.calls
                with self:
                    result = inside(*args, **kwargs)
                if func is MULTI_HEAD and self.calls == before:
                    raise RuntimeError(
                        "nn.MultiheadAttention writes attention out with need_weights=True, where "
                        "rescale cannot reach it: pass need_weights=False"
                    )
                return result
        return func(*args, **kwargs)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Return attention at this context's scale; the arguments are PyTorch's."""
        own = _Options() if scale is None else _Options(alpha=scale * math.sqrt(query.shape[-1]))
        options = self.changed(own)
        return _attend(
            query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, options, _UNSEEN
        )


def is_rescaled() -> bool:
    """Return whether this thread is inside a `rescale` context."""
    return bool(_ENTERED.modes)
