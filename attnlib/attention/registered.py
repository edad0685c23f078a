"""Change the scale of models of transformers for good, by the registry of attention functions."""

import inspect
import math
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib._checking import FloatArray
from attnlib.attention.by_query import each_query
from attnlib.attention.options import named_policy, resolve_factor, warn_scale_replaced
from attnlib.extras import extra_packages
from attnlib.interception import LOOKS_LIKE_ATTENTION, cached_in_graphs, constant_in_graphs
from attnlib.policies import Policy, ScaleFunction, own

EAGER = re.compile(r"get_interface\(\s*[\w.]+,\s*(\w+)")


def register(
    policy: str | Policy | ScaleFunction | None = None,
    *,
    factor: str | Policy | ScaleFunction | float | None = None,
    train_length: float | None = None,
    name: str | None = None,
) -> str:
    """Register a rule for the scale in transformers, and return its name for a model.

    `model.set_attn_implementation(name)` then changes the model for good: in training, in
    generation with a cache, under torch.compile.

    - `policy`: the rule that replaces the model's own scale: a name, a Policy or a function, as in
      `attend`. The logits are σ q·k, with σ for the n keys that each query sees: those of a cache
      are counted, those that padding or a sliding window hides are not. With a policy for cosines q
      and k are divided by their lengths.
    - `factor`, `train_length`: what multiplies the model's own scale instead, as in `rescale`: a
      number or a rule.
    - `name`: the name in the registry, by default "attnlib-" and the name of the policy or
      function, or "times" and a number. Registering a name again replaces what it stood for.

    Give exactly one of `policy` and `factor`.

    Returns the name, a str. Soft caps, sinks and biases of positions stay as they are, and come
    after the scale. A factor that differs by query multiplies q in float32, rounded once. q goes
    to the function that the model would use: PyTorch's fused kernel, or where the model refuses
    that (Gemma 2, GPT-OSS) its own eager function, whose memory grows with n².

    A saved model does not keep the name of its attention function. After loading it has
    transformers' default: `from_pretrained(folder, attn_implementation=register(…))` sets the scale
    again.

    Warns with a UserWarning, in the model's call, where a policy replaces a scale that is not 1/√d;
    in the first call in training where the policy learns its scale, which here stays at its first
    value; and where some classes beside the model's write attention out, with their names. Where a
    model does not ask the registry, `set_attn_implementation` itself logs it.

    Raises ValueError without exactly one of `policy` and `factor`, and for a `train_length` without
    a factor; TypeError for a factor that is an array; the errors of `attend` for the policy;
    ModuleNotFoundError without transformers 5. The model's call raises RuntimeError for what cannot
    be reached: a paged cache, and a model that refuses the fused kernel and has no eager function.
    Chapter: scaling_rules.

    >>> register(factor="ssmax", train_length=1024)  # for a trained model: its own scale there
    'attnlib-ssmax-over-that-at-1024-keys'
    >>> register("ssmax")  # in place of its own
    'attnlib-ssmax'
    """
    with extra_packages("probe"):
        from transformers import AttentionInterface, AttentionMaskInterface

    if (policy is None) == (factor is None):
        raise ValueError("register needs a policy or a factor, and not both")
    if policy is None:
        relative = resolve_factor(cast(ScaleFunction, factor), train_length)
        if isinstance(relative, Tensor):
            raise TypeError("factor must be a number or a rule: it stays with the model")
        rule = relative if isinstance(relative, Policy) else own(partial(_constant, relative))
        title = rule.name if isinstance(relative, Policy) else f"times {relative:g}"
    else:
        if train_length is not None:
            raise ValueError("train_length is for a factor, which is not given")
        rule = named_policy("policy", policy) or own(cast(ScaleFunction, policy))
        title = rule.name
    name = f"attnlib-{title.replace(' ', '-')}" if name is None else name
    AttentionInterface.register(name, _Registered(rule, policy is None))
    AttentionMaskInterface.register(name, _mask)
    return name


def _constant(factor: float, n: FloatArray, d: FloatArray, position: FloatArray) -> float:
    return factor


def _mask(*arguments: Any, config: Any, **named: Any) -> Tensor | None:
    """Return the fused kernel's mask; raise for a model that asks the registry for masks alone."""
    from transformers.masking_utils import sdpa_mask

    asking, written_out = _parts(type(config))
    if written_out and not asking:
        raise RuntimeError(
            f"{written_out[0]} has attention written out and does not ask the registry, so attnlib "
            "cannot change its scale: make the model with attn_implementation='eager'"
        )
    mask: Tensor | None = sdpa_mask(*arguments, config=config, **named)
    return mask


@cached_in_graphs
def _parts(kind: type) -> tuple[list[str], list[str]]:
    """Return the classes beside `kind` that ask the registry, and those that write attention out.

    Their file is that of `kind`, or of the model of a configuration; outside transformers none.
    """
    asking: list[str] = []
    written_out: list[str] = []
    file = kind.__module__.replace("configuration_", "modeling_")
    if not file.startswith("transformers.models.") or file not in sys.modules:
        return asking, written_out
    for name, part in vars(sys.modules[file]).items():
        if isinstance(part, type) and issubclass(part, nn.Module) and part.__module__ == file:
            source = inspect.getsource(part)
            if "ALL_ATTENTION_FUNCTIONS" in source:
                asking.append(name)
            elif LOOKS_LIKE_ATTENTION.search(name) and "softmax(" in source:
                written_out.append(name)
    return asking, written_out


@constant_in_graphs
def _name_written_out(kind: type) -> bool:
    """Warn of classes beside `kind` that write attention out, and return whether there are any."""
    written_out = _parts(kind)[1]
    if written_out:
        warnings.warn(
            f"{' and '.join(written_out)} in {kind.__module__} write attention out: where the "
            "model has them their scale stays",
            stacklevel=3,
        )
    return bool(written_out)


@constant_in_graphs
def _name_not_learned(policy: Policy) -> bool:
    """Warn that the scale of a policy that learns it stays at its first value; return True."""
    warnings.warn(
        f"{policy.name} learns its scale in training, and under register it stays at its first "
        "value: in a model of your own give attend(scale=…) a parameter",
        stacklevel=3,
    )
    return True


class _Registered:
    """Compute attention for transformers at a policy's scale; `relative` multiplies the model's."""

    def __init__(self, policy: Policy, relative: bool) -> None:
        self._policy, self._relative = policy, relative

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **rest: Any,
    ) -> tuple[Tensor, Tensor | None]:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        if rest.get("cache") is not None:
            raise RuntimeError("attnlib's scales do not reach a paged cache: use another one")
        _name_written_out(type(module))
        if module.training and self._policy.learned and not self._relative:
            _name_not_learned(self._policy)
        wide = torch.promote_types(query.dtype, torch.float32)
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        is_causal = attention_mask is None and query.shape[2] > 1 and is_causal
        of_cosines = self._policy.applied_to == "cosine"
        q = query.to(wide)
        if of_cosines:
            q = functional.normalize(q, dim=-1)
            key = functional.normalize(key.to(wide), dim=-1).to(key.dtype)
        rows = query, key, attention_mask, is_causal
        # What α is relative to is 1/√d, and 1 for cosines; it goes into the kernel's own scale.
        unit = 1.0 if of_cosines else 1.0 / math.sqrt(query.shape[-1])
        if self._relative:
            unit = unit if scaling is None else scaling
        elif scaling is not None and not of_cosines:
            warn_scale_replaced(scaling, query.shape[-1], "register")
        alpha = each_query("alpha", self._policy, *rows, of_cosines or self._relative)
        if isinstance(alpha, Tensor):
            q = q * alpha.unsqueeze(-1)
        else:
            unit *= alpha
        query = q.to(query.dtype)
        if rest.get("softcap") is None and rest.get("s_aux") is None and _fused(type(module)):
            function: Callable[..., Any] = sdpa_attention_forward
        else:
            eager = eager_attention(type(module))
            if eager is None:
                raise RuntimeError(
                    f"{type(module).__name__} refuses scaled_dot_product_attention, and "
                    f"{type(module).__module__} has no eager_attention_forward: attnlib cannot "
                    "change its scale"
                )
            function = eager
            attention_mask = mask_of_numbers(attention_mask, is_causal, query, key)
        options = {**rest, "scaling": unit, "is_causal": is_causal}
        result: tuple[Tensor, Tensor | None] = function(
            module, query, key, value, attention_mask, **options
        )
        return result


@cached_in_graphs
def _fused(kind: type[nn.Module]) -> bool:
    """Return whether all models in the file of `kind` support scaled_dot_product_attention."""
    from transformers import PreTrainedModel

    file = kind.__module__
    members = vars(sys.modules[file]).values()
    models: list[Any] = [
        model for model in members if isinstance(model, type) and issubclass(model, PreTrainedModel)
    ]
    return all(model._supports_sdpa for model in models if model.__module__ == file)


def eager_attention(kind: type[nn.Module]) -> Callable[..., Any] | None:
    """Return the eager attention function in the file of a module's class; None if it has none."""
    return getattr(sys.modules[kind.__module__], _eager_name(kind), None)


@cached_in_graphs
def _eager_name(kind: type) -> str:
    """Return the name that `kind` hands to get_interface, else "eager_attention_forward"."""
    named = None
    with suppress(OSError, TypeError):  # there is no source
        named = EAGER.search(inspect.getsource(kind))
    return named[1] if named else "eager_attention_forward"


def mask_of_numbers(
    mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor
) -> Tensor | None:
    """Return what eager attention adds to the logits; None with neither mask nor causality."""
    if mask is None and is_causal:
        square = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool)
        mask = square.tril()[None, None]
    if mask is None or mask.dtype != torch.bool:
        return mask
    hidden = torch.finfo(query.dtype).min
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, hidden)
