"""The audit of a model: every call of attention, against what its configuration says.

In models of transformers each attention module hands its queries, keys and values to a function of
a registry. Here one is put in that notes what it is handed, and each distinct call is then audited
as a callable, in every implementation that the model has. What multiplies q before that, in the
module itself, shows in the length of q beside that of what its projection or norm gave.
"""

import math
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from attnlib.auditing.callables import Meant, audit_callable, finding
from attnlib.auditing.report import Report
from attnlib.auditing.response import Size, Subject

NAME = "attnlib-audit"
IMPLEMENTATIONS = ("sdpa", "eager", "flex_attention")

QUERIES = ("q_norm", "q_layernorm", "query_layernorm", "q_proj", "q_b_proj", "query", "q")
KEYS = ("k_norm", "k_layernorm", "key_layernorm", "k_proj", "key", "k")
FUSED = ("c_attn", "query_key_value", "qkv_proj", "Wqkv", "qkv", "attn_qkv")
"""What the modules are called whose outputs are the queries and keys, the last of them first."""
OPTIONS = ("softcap", "s_aux")
SAME = 1e-2
"""Ratios of lengths that differ by less are one number."""


class Noted(NamedTuple):
    """What a module hands to attention."""

    module: nn.Module
    size: Size
    scaling: float | None
    options: dict[str, Any]
    before: float | None
    """What q·k was multiplied by before; None where that cannot be told."""


def calls_of(model: nn.Module, run: Callable[[], object]) -> dict[str, Noted]:
    """Run the model once and return what each of its modules hands to attention, by name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    names = {module: name for name, module in model.named_modules()}
    noted: dict[str, Noted] = {}
    given: dict[nn.Module, Tensor] = {}

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        **rest: Any,
    ) -> Any:
        size = Size(query.shape[1], key.shape[1], query.shape[3])
        options = {name: rest[name] for name in OPTIONS if rest.get(name) is not None}
        before = multiplied_before(module, query, key, given)
        noted[names[module]] = Noted(module, size, rest.get("scaling"), options, before)
        return _implementations(module)[0](module, query, key, value, mask, **rest)

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    was = cast(Any, model).config._attn_implementation
    change = cast(Any, model).set_attn_implementation
    hooks = [
        module.register_forward_hook(lambda one, _, output: given.__setitem__(one, output))
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in (*QUERIES, *KEYS, *FUSED)
    ]
    try:
        change(NAME)
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
        change(was)
        AttentionInterface.register(NAME, sdpa_attention_forward)  # which keeps no model alive
    return noted


def multiplied_before(
    module: nn.Module, query: Tensor, key: Tensor, given: dict[nn.Module, Tensor]
) -> float | None:
    """Return |q| |k| over the same of what was projected: a rotation leaves lengths alone.

    query, key: (batch, heads, tokens, d). None where no projection fits, or the ratio varies.
    """

    def of(names: tuple[str, ...]) -> Tensor | None:
        parts = (getattr(module, name, None) for name in names)
        return next((given[part] for part in parts if part in given), None)

    def ratio(tensor: Tensor, projected: Tensor) -> float | None:
        batch, heads, tokens, d = tensor.shape
        if projected.shape != (batch, heads, tokens, d):
            projected = projected.reshape(batch, tokens, heads, d).transpose(1, 2)
        found = tensor.double().norm(dim=-1) / projected.double().norm(dim=-1)
        middle = float(found.median())
        return middle if bool(((found / middle - 1.0).abs() < SAME).all()) else None

    batch, heads, tokens, d = query.shape
    key_heads = key.shape[1]
    q, k, fused = of(QUERIES), of(KEYS), of(FUSED)
    pairs = [] if q is None or k is None else [(q, k)]
    if fused is not None and fused.numel() == batch * tokens * (heads + 2 * key_heads) * d:
        flat = fused.reshape(batch, tokens, heads + 2 * key_heads, d)
        pairs.append((flat[:, :, :heads], flat[:, :, heads : heads + key_heads]))
        if heads == key_heads:  # q, k and v of a head side by side
            by_head = fused.reshape(batch, tokens, heads, 3, d)
            pairs.append((by_head[:, :, :, 0], by_head[:, :, :, 1]))
    for q, k in pairs:
        if q.numel() == query.numel() and k.numel() == key.numel():
            both = ratio(query, q), ratio(key, k)
            if both[0] is not None and both[1] is not None:
                return both[0] * both[1]
    return None


def _implementations(module: nn.Module) -> list[Callable[..., Any]]:
    """Return the eager attention of the module's file, if there is one, and the fused one."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    return [one for one in (eager and partial(_eager, eager), sdpa_attention_forward) if one]


def _eager(
    function: Callable[..., Any],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **rest: Any,
) -> Any:
    """Call eager attention, whose masks are numbers that are added."""
    if mask is None and rest.pop("is_causal", getattr(module, "is_causal", False)):
        mask = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()[None, None]
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -math.inf)
    return function(module, query, key, value, mask, **rest)


def meant_by(module: nn.Module, config: Any, d: int) -> tuple[float, str]:
    """Return what should multiply q·k by the configuration, and where it says so."""
    rotated = _by_rotation(config) ** 2
    for name, power in (("query_pre_attn_scalar", -0.5), ("attention_multiplier", 1.0)):
        number = getattr(config, name, None)
        if number is not None:
            return rotated * float(number) ** power, name
    if hasattr(config, "d_kv"):
        return 1.0, "the family of T5 does not scale"
    return rotated * d**-0.5, "1/√d, d the head size"


def _by_rotation(config: Any) -> float:
    """Return what the rotation multiplies q and k by: YaRN's factor and LongRoPE's, or 1.

    That of YaRN is .1 m log f + 1, f the factor by which the context grows, or a ratio of two; that
    of LongRoPE √(1 + log f / log n₀), n₀ the context before. Latent attention (DeepSeek), of which
    a part is rotated, has the lower of the two in its scale instead.
    """
    rotary = getattr(config, "rope_parameters", None) or {}
    if rotary.get("attention_factor") is not None:
        return float(rotary["attention_factor"])
    kind, before = rotary.get("rope_type"), rotary.get("original_max_position_embeddings")
    if kind == "yarn":
        grown = math.log(max(rotary["factor"], 1.0))
        over, under = (rotary.get(name) for name in ("mscale", "mscale_all_dim"))
        if getattr(config, "kv_lora_rank", None):
            return float(0.1 * (under or 0.0) * grown + 1.0)
        if over and under:
            return float((0.1 * over * grown + 1.0) / (0.1 * under * grown + 1.0))
        return 0.1 * grown + 1.0
    if kind == "longrope" and before:
        grown = rotary.get("factor") or config.max_position_embeddings / before
        return math.sqrt(1.0 + math.log(grown) / math.log(before)) if grown > 1.0 else 1.0
    return 1.0


def audit_model(
    model: nn.Module, run: Callable[[], Any], expected: float | None, length: int
) -> Report:
    """Audit every distinct call of attention of a model of transformers."""
    report = Report()
    noted = calls_of(model, run)
    if not noted:
        raise RuntimeError(
            f"{type(model).__name__} hands no queries and keys to the registry of attention "
            "functions of transformers: audit its attention as a callable"
        )
    audited: dict[Any, list[Report]] = {}
    for name, one in noted.items():
        wanted, said = meant_by(one.module, one.module.config, one.size.dimension)
        if expected is not None:
            wanted, said = expected, "expected"
        key = (
            type(one.module),
            one.size,
            one.scaling,
            tuple(one.options),
            one.options.get("softcap"),
        )
        if key not in audited:
            audited[key] = _by_kernel(one, length)
        before = 1.0 if one.before is None else one.before
        for part in audited[key]:
            kernel = part.facts["kernel"]
            scale = part.scale
            if scale is None:
                continue
            found = [before * float(end[-1]) for end in (scale.value, scale.low, scale.high)]
            if one.before is None:
                report.facts[name] = "what multiplies q or k before attention is unknown"
            low, high = found[1] * (1 - SAME / 2), found[2] * (1 + SAME / 2)
            if not low <= wanted <= high:
                finding(
                    report, "scale", f"{wanted:.4g} ({said})", f"{found[0]:.4g}",
                    f"{found[0] / wanted:.4g} times what was meant, {kernel}", where=name,
                )  # fmt: skip
            for other in part.findings:
                report.findings.append(other._replace(where=f"{name}, {kernel}"))
        report.parts[name] = audited[key][0]
    _kernels(report, model, run)
    return report


def _by_kernel(one: Noted, length: int) -> list[Report]:
    """Return the reports of a module's attention, one for each implementation."""
    reports = []
    cap = one.options.get("softcap")
    meant = Meant(
        None,
        math.inf if cap is None else float(cap),
        None,
        "s_aux" in one.options,
        1.0,
        None,
        False,
    )
    for function in _implementations(one.module):
        kernel = "eager" if isinstance(function, partial) else "sdpa"
        if kernel == "sdpa" and one.options:
            continue  # transformers refuses it

        def attention(
            q: Tensor,
            k: Tensor,
            v: Tensor,
            attn_mask: Tensor | None = None,
            function: Any = function,
        ) -> Tensor:
            options = {**one.options, "scaling": one.scaling, "is_causal": False, "dropout": 0.0}
            found = function(one.module, q, k, v, attn_mask, **options)[0]
            return cast(Tensor, found.transpose(1, 2))

        kind = next(one.module.parameters())
        part = audit_callable(
            Subject(attention, one.size, kind.dtype, str(kind.device)), meant, length
        )
        part.facts["kernel"] = kernel
        reports.append(part)
    return reports


def _kernels(report: Report, model: nn.Module, run: Callable[[], Any]) -> None:
    """Compare what the model gives in each implementation that it takes."""
    was = cast(Any, model).config._attn_implementation
    change = cast(Any, model).set_attn_implementation
    outputs: dict[str, Tensor] = {}
    try:
        for name in IMPLEMENTATIONS:
            try:
                change(name)
                # transformers warns of its own ways to call flex attention
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outputs[name] = run()[0].double()
            except Exception as error:  # of the model, of transformers or of a compiler
                report.facts[name] = f"refused: {' '.join(str(error).split()):.80}"
    finally:
        change(was)
    if not outputs:
        return
    first, *others = outputs
    spread = float(outputs[first].std())
    eps = torch.finfo(next(model.parameters()).dtype).eps
    for name in others:
        apart = float((outputs[first] - outputs[name]).abs().max()) / spread
        report.facts[f"{name} beside {first}"] = f"{apart:.1g} of the output's spread apart"
        if not apart < 1e4 * eps:
            finding(report, "kernels", f"what {first} gives", f"{apart:.1g} apart", name)
