"""Check the arguments of a call of attention: those that state its scale, and its shapes."""

import math
import sys
import warnings
from typing import Literal, NamedTuple, cast

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlib import _checking
from attnlib.models.attention_call import Arguments
from attnlib.policies import Policy, ScaleFunction, find_policy, own

Factor = float | Tensor
"""A number for all queries, or a tensor with one for each, which broadcasts to (…, L)."""


class Options(NamedTuple):
    """Hold the arguments of `attnlib.attention.attend` that set the scale; none by default."""

    policy: str | Policy | ScaleFunction | None = None
    alpha: ArrayLike | Tensor | None = None
    scale: ArrayLike | Tensor | None = None
    post_scale: ArrayLike | Tensor | None = None
    normalize_qk: bool = False

    def scale_names(self) -> list[str]:
        """Return the names of those of `policy`, `alpha` and `scale` that are given."""
        scales = {"policy": self.policy, "alpha": self.alpha, "scale": self.scale}
        return [name for name, scale in scales.items() if scale is not None]


def validate(options: Options) -> tuple[Policy | Factor, Factor | Literal["exact"]]:
    """Return the scale and the factor on the output that `options` state, checked.

    The scale is a policy, α or, if options.scale is given, σ; by default α = 1. The factor is
    numbers, by default 1, or "exact". Raises as `attend`.
    """
    policy, alpha, scale, post_scale, normalize_qk = options
    _checking.flag("normalize_qk", normalize_qk)
    names = options.scale_names()
    if len(names) > 1:
        raise ValueError(f"{' and '.join(names)} say what the scale is: give one of them")
    if normalize_qk and policy is None and scale is None:
        raise ValueError(
            "normalize_qk needs a policy for cosines or a scale, which multiplies the cosine; "
            "alpha is for q·k"
        )
    chosen: Policy | Factor = 1.0
    if policy is not None:
        chosen = checked_policy(policy, normalize_qk)
    elif alpha is not None:
        chosen = checked_factor("alpha", alpha)
    elif scale is not None:
        chosen = checked_factor("scale", scale)
    if not isinstance(post_scale, str):
        return chosen, 1.0 if post_scale is None else checked_factor("post_scale", post_scale)
    if post_scale != "exact":
        raise ValueError(
            f"post_scale must be 'exact' or a number, got post_scale={post_scale!r:.80}"
        )
    if isinstance(chosen, Tensor):
        raise ValueError(
            "post_scale='exact' needs a policy or a single number as alpha or scale; for one "
            "for each query pass the factors, from attnlib.exact.post_scale(law, alpha, n)"
        )
    return chosen, "exact"


def named_policy(name: str, policy: str | Policy | ScaleFunction) -> Policy | None:
    """Return a policy given as itself or by its name; None for a function of your own.

    `name` is that of the argument. Raises ValueError for an unknown name, TypeError for others.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str):
        return find_policy(policy, name)
    if callable(policy):
        return None
    raise TypeError(
        f"{name} must be a name in attnlib.policies.POLICIES, a Policy or a function of n, d and "
        f"position, got {name}={policy!r:.80}"
    )


def checked_policy(
    policy: str | Policy | ScaleFunction, normalize_qk: bool, called: str = "normalize_qk"
) -> Policy:
    """Return the policy given, named or made of a function, checked against `normalize_qk`.

    Raises ValueError unless it is for cosines exactly if that is True; the message calls the
    argument `called`. Also raises as `named_policy`.
    """
    product: Literal["cosine", "dot product"] = "cosine" if normalize_qk else "dot product"
    rule = named_policy("policy", policy) or own(cast(ScaleFunction, policy), product)
    if rule.applied_to == product:
        return rule
    if normalize_qk:
        raise ValueError(
            f"the policy {rule.name} multiplies q·k, not cosines: it cannot go with {called}"
        )
    raise ValueError(
        f"the policy {rule.name} multiplies cosines, not q·k: pass {called}=True with it"
    )


def checked_factor(name: str, numbers: ArrayLike | Tensor) -> Factor:
    """Return numbers ≥ 0 as a float or a tensor; TypeError or ValueError for others.

    Of a tensor only the type is checked, not its numbers.
    """
    if isinstance(numbers, Tensor):
        if numbers.is_complex() or numbers.dtype == torch.bool:
            raise TypeError(f"{name} must be real numbers, got a tensor of {numbers.dtype}")
        return numbers
    # Without NumPy for a plain number, which the compiler may follow.
    plain = isinstance(numbers, int | float) and not isinstance(numbers, bool)
    if plain and 0.0 <= cast(float, numbers) <= sys.float_info.max:
        return float(cast(float, numbers))
    array = _checking.finite(name, cast(ArrayLike, numbers), minimum=0.0)
    return float(array) if array.ndim == 0 else torch.from_numpy(array)


def warn_scale_replaced(scale: float, d: int, tool: str) -> None:
    """Warn that `tool` replaces the model's `scale`, unless it is 1/√d to 0.1 %; not in a graph."""
    if torch.compiler.is_compiling() or math.isclose(scale * math.sqrt(d), 1.0, rel_tol=1e-3):
        return
    warnings.warn(
        f"the model's own scale is {scale:.3g}, not 1/√d = {d**-0.5:.3g}, and {tool} replaces it: "
        f"{tool}(factor=…) multiplies it",
        stacklevel=3,
    )


def resolve_factor(
    factor: str | Policy | ScaleFunction | ArrayLike | Tensor, train_length: float | None
) -> Policy | Factor:
    """Return a factor on the scale: numbers, or a policy.

    A policy or a function is divided by its value at `train_length` keys, if given. Raises
    ValueError for a policy without `train_length` and for numbers with it.
    """
    if not isinstance(factor, str | Policy) and not callable(factor):
        if train_length is not None:
            raise ValueError("train_length is for a factor that is a rule, got a number")
        return checked_factor("factor", factor)
    rule = named_policy("factor", factor)
    if train_length is not None:
        return (rule or own(cast(ScaleFunction, factor))).relative(train_length)
    if rule is not None:
        raise ValueError(
            f"factor={rule.name!r} needs train_length: at that many keys the model keeps its scale"
        )
    return own(cast(ScaleFunction, factor))


def shape_of_queries(call: Arguments) -> torch.Size:
    """Return the shape of a call's queries after broadcasting, (…, L), without d.

    Raises ValueError if q, k, v and mask do not fit together, TypeError for a CausalBias.
    """
    q, k, v, attn_mask, *_ = call
    if type(attn_mask).__name__ == "CausalBias":  # it has no numbers to count keys by
        raise TypeError("attn_mask must be a plain tensor, got a CausalBias: pass is_causal=True")
    leading = [q.shape[:-2], k.shape[:-2], v.shape[:-2]]
    if call.enable_gqa:  # each of their heads is shared by several of q
        leading[1:] = (torch.Size((*shape[:-1], *leading[0][-1:])) for shape in leading[1:])
    common = leading[0]
    if not common == leading[1] == leading[2]:  # hardly ever: it takes ten times as long
        try:
            common = torch.broadcast_shapes(*leading)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise ValueError(
                f"q {(*q.shape,)}, k {(*k.shape,)}, v {(*v.shape,)} must broadcast before their "
                "last two axes; heads that share keys are (batch, heads, n, d) with enable_gqa=True"
            ) from error
    shape = torch.Size((*common, q.shape[-2]))
    if attn_mask is not None and not broadcasts(attn_mask.shape, (*shape, k.shape[-2])):
        target, mask_shape = (*shape, k.shape[-2]), tuple(attn_mask.shape)
        raise ValueError(f"attn_mask must broadcast to {target}, got shape {mask_shape}")
    return shape


def broadcasts(shape: torch.Size, target: tuple[int, ...]) -> bool:
    """Return whether the shape broadcasts to the target without enlarging it."""
    if len(shape) > len(target):
        return False
    return all(
        size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )
