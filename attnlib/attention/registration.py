"""Change the scale of models of transformers for good, in their registry of functions."""

import warnings
from typing import Any, cast

from torch import Tensor, nn

from attnlib.attention.arithmetic import scaled_arguments
from attnlib.attention.options import Options, named_policy, resolve_factor, warn_scale_replaced
from attnlib.models.attention_call import Arguments
from attnlib.models.attention_interface import (
    attend_as_default,
    attention_classes,
    fused_mask,
    is_causal_call,
    register_function,
)
from attnlib.models.torch_internals import constant_in_graphs
from attnlib.policies import Policy, ScaleFunction, own


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
    if (policy is None) == (factor is None):
        raise ValueError("register needs a policy or a factor, and not both")
    if policy is None:
        relative = resolve_factor(cast(ScaleFunction, factor), train_length)
        if isinstance(relative, Tensor):
            raise TypeError("factor must be a number or a rule: it stays with the model")
        title = relative.name if isinstance(relative, Policy) else f"times {relative:g}"
        function = _Registered(None, relative)
    else:
        if train_length is not None:
            raise ValueError("train_length is for a factor, which is not given")
        rule = named_policy("policy", policy) or own(cast(ScaleFunction, policy))
        title, function = rule.name, _Registered(rule, None)
    name = f"attnlib-{title.replace(' ', '-')}" if name is None else name
    register_function(name, function, fused_mask)
    return name


@constant_in_graphs
def _warn_of_written_out(kind: type) -> bool:
    """Warn of classes in the file of `kind` that write attention out; return whether it has any."""
    _, written_out = attention_classes(kind)
    if written_out:
        warnings.warn(
            f"{' and '.join(written_out)} in {kind.__module__} write attention out: where the "
            "model has them their scale stays",
            stacklevel=3,
        )
    return bool(written_out)


@constant_in_graphs
def _warn_not_learned(policy: Policy) -> bool:
    """Warn that the scale of a policy that learns it stays at its first value; return True."""
    warnings.warn(
        f"{policy.name} learns its scale in training, and under register it stays at its first "
        "value: in a model of your own give attend(scale=…) a parameter",
        stacklevel=3,
    )
    return True


class _Registered:
    """Compute attention as a function of the registry, at another scale.

    It is that of `policy`, or the model's own times `relative`.
    """

    def __init__(self, policy: Policy | None, relative: Policy | float | None) -> None:
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
        **named: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if named.get("cache") is not None:
            raise RuntimeError("attnlib's scales do not reach a paged cache: use another one")
        _warn_of_written_out(type(module))
        options = Options(scale=scaling)
        if self._policy is not None:
            options = Options(self._policy, normalize_qk=self._policy.applied_to == "cosine")
            if module.training and self._policy.learned:
                _warn_not_learned(self._policy)
            if scaling is not None and not options.normalize_qk:
                warn_scale_replaced(scaling, query.shape[-1], "register")
        is_causal = is_causal_call(module, query, attention_mask, is_causal)
        call = Arguments(query, key, value, attention_mask, is_causal=is_causal)
        q, key, scale, _ = scaled_arguments(call, options, self._relative, query.shape[:-1])
        return attend_as_default(
            module,
            q.to(query.dtype),
            key,
            value,
            attention_mask,
            is_causal=is_causal,
            scaling=scale,
            **named,
        )
