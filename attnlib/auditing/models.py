"""Audit a model: compare every call of attention with its configuration.

In models of transformers each attention module hands its queries, keys and values to a function of
a registry. Here one is put in that notes what it is handed, and each distinct call is then audited
as a callable, eager and fused, or in the registered implementation that is in use. What the
module itself multiplies q by shows in the length of q beside that of its projection or norm.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlib.auditing.callables import CallableAudit
from attnlib.auditing.meant import cap_meant, temperature_meant
from attnlib.auditing.modules import (
    Target,
    audit_module,
    compare_layers,
    compare_scale,
    intended,
    kind_of,
)
from attnlib.auditing.projected import SAME, Before, Outputs, before_attention, by_token, outputs_of
from attnlib.auditing.report import OF_MODELS, Report
from attnlib.auditing.response import Size, Subject
from attnlib.auditing.scales import Expected
from attnlib.models.attention_interface import eager_attention, mask_of_numbers
from attnlib.policies import Policy

NAME = "attnlib-audit"
IMPLEMENTATIONS = ("sdpa", "eager")
"""What is compared beside what is in use; others are compiled, which takes minutes."""

FEW_HEADS = 2
"""Of keys are asked where that can be: the others go the same way."""
OPTIONS = ("softcap", "s_aux")
BEFORE = "what multiplies q or k before attention"


class ObservedCall(NamedTuple):
    """Hold the arguments that a module hands to attention."""

    module: nn.Module
    size: Size
    scaling: float | None
    options: dict[str, Any]
    before: Before
    temperature: tuple[Tensor, Tensor | None] | None
    """What each query should be multiplied by, and what it is, None if unknown; or None."""
    masked: bool
    dtype: torch.dtype
    device: str


def observed_calls(model: Any, run: Callable[[], object]) -> dict[str, ObservedCall]:
    """Run the model once and return what each of its modules hands to attention, by name."""
    names = {module: name for name, module in model.named_modules()}
    observed: dict[str, ObservedCall] = {}
    outputs: Outputs = {}

    def note(module: nn.Module, query: Tensor, key: Tensor, mask: Any, rest: Any) -> None:
        target = temperature_meant(module, query.shape[2], key.shape[2])
        wanted = torch.ones(1) if target is None else torch.tensor(target)
        before = before_attention(module, query / wanted.to(query)[:, None], key, outputs)
        applied = wanted if before.times else by_token(module, query, outputs)
        observed[names[module]] = ObservedCall(
            module,
            Size(query.shape[1], key.shape[1], query.shape[3]),
            rest.get("scaling"),
            {name: rest[name] for name in OPTIONS if rest.get(name) is not None},
            before,
            None if target is None else (wanted, applied),
            mask is not None,
            query.dtype,
            str(query.device),
        )

    with _in_place(model, note=note), torch.no_grad(), outputs_of(model, outputs):
        run()
    return observed


@contextmanager
def _in_place(
    model: Any,
    note: Callable[..., None] = lambda *call: None,
    change: Callable[[Tensor], Tensor] = lambda output: output,
) -> Iterator[None]:
    """Give what a model hands to attention to `note`, and its output to `change`, in the context.

    `note` gets the module, queries, keys, the mask and a dictionary of the rest.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import eager_mask, sdpa_mask

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,  # some hand it by name
        **rest: Any,
    ) -> Any:
        note(module, query, key, attention_mask, rest)
        kernel, *_ = _implementations(module).values()
        output, *others = kernel(module, query, key, value, attention_mask, **rest)
        return change(output), *others

    was = model.config._attn_implementation
    AttentionInterface.register(NAME, attention)
    # some models change the mask, and want it as they have it
    AttentionMaskInterface.register(NAME, eager_mask if was == "eager" else sdpa_mask)
    try:
        model.set_attn_implementation(NAME)
        yield
    finally:
        model.set_attn_implementation(was)
        AttentionInterface.register(NAME, sdpa_attention_forward)  # which keeps no model alive


def _implementations(module: Any) -> dict[str, Callable[..., Any]]:
    """Return the eager attention of the module's file and the fused one, or another in use."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    in_use = module.config._attn_implementation
    if in_use not in (None, NAME, *IMPLEMENTATIONS):
        return {in_use: ALL_ATTENTION_FUNCTIONS[in_use]}
    eager = eager_attention(type(module))
    written_out = {} if eager is None else {"eager": partial(_eager, eager)}
    return {**written_out, "sdpa": sdpa_attention_forward}


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
    causal = rest.pop("is_causal", getattr(module, "is_causal", False))
    mask = mask_of_numbers(mask, causal, query, key)
    if mask is None:  # some add what they get
        mask = query.new_zeros(1, 1, query.shape[2], key.shape[2])
    return function(module, query, key, value, mask, **rest)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread inside the context: small tensors are slower in several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def audit_model(model: nn.Module, run: Callable[[], Any], expected: Target, length: int) -> Report:
    """Audit each distinct call; without a finding or an intended policy compare implementations."""
    report = Report(facts=dict(OF_MODELS))
    observed = observed_calls(model, run)
    if not observed:
        return audit_module(model, run, expected)
    audited: dict[Any, dict[str, Report]] = {}
    kinds: dict[Any, dict[str, float]] = {}
    for name, call in observed.items():
        d, times = call.size.dimension, call.before.times or 1.0
        options = *call.options, call.options.get("softcap"), cap_meant(call.module)
        key = type(call.module), call.size, call.scaling, options
        if key not in audited:
            audited[key] = _by_kernel(call, length)
        wanted, source = intended(report, name, call.module, d, call.before, expected)
        if getattr(call.module, "sinks", None) is not None:
            sinks = call.options.get("s_aux")
            if sinks is None or bool((sinks < -50.0).all()):  # no weight
                report.add("sink", "sinks with weight", "none", "what is handed", where=name)
        if call.temperature is not None:
            _compare_temperature(report, name, *call.temperature)
        elif call.before.times is None:
            report.facts[BEFORE] = report.facts.get(BEFORE, "unknown in") + f" {name}"
        for kernel, part in audited[key].items():
            if (scale := part.scale) is not None:
                value, low, high = (times * end for end in (scale.value, scale.low, scale.high))
                scale = scale._replace(value=value, low=low, high=high)
                compare_scale(report, name, scale, d, wanted, source, kernel)
            report.findings += [
                finding._replace(where=f"{name}, {kernel}")
                for finding in part.findings
                if call.masked or finding.code not in ("mask", "hidden")  # where it hands none
            ]
        report.parts[name] = part = next(iter(audited[key].values()))
        if wanted is None and part.scale:
            kind = kind_of(call.module), call.size, call.before.turned
            kinds.setdefault(kind, {})[name] = times * float(part.scale.value[-1])
    compare_layers(report, kinds)
    if not isinstance(expected, Policy) and not report.findings:  # else outputs differ by them
        parts = (part for parts in audited.values() for part in parts.values())
        _kernels(report, model, run, max(part.rounding for part in parts))
    return report


def _compare_temperature(report: Report, name: str, wanted: Tensor, applied: Tensor | None) -> None:
    """Compare by what the queries of a layer are multiplied with the intended temperature."""
    if applied is None or bool((wanted == 1.0).all()):
        why = "it begins at more tokens" if applied is not None else "q is not its projection"
        report.facts["temperature of q"] = f"unknown in {name}: {why}"
        return
    report.facts.setdefault("temperature of q", f"{applied.min():.4g} to {applied.max():.4g}")
    worst = int((applied.cpu() / wanted).log().abs().argmax())
    right, wrong = float(wanted[worst]), float(applied[worst])
    if not math.isclose(right, wrong, rel_tol=SAME):
        text = f"q times {right:.4g} at token {worst + 1}"
        report.add("law", text, f"{wrong:.4g}", "its temperature by position", where=name)


def _by_kernel(call: ObservedCall, length: int) -> dict[str, Report]:
    """Return the reports of a module's attention, one for each implementation."""
    cap = cap_meant(call.module) or call.options.get("softcap")
    expected = Expected(
        None,
        cap=math.inf if cap is None else float(cap),
        sink="s_aux" in call.options,
        one_size=True,
    )
    heads, key_heads, d = call.size
    fewer = min(key_heads, FEW_HEADS)
    options = {**call.options, "scaling": call.scaling, "is_causal": False, "dropout": 0.0}

    def asked(function: Callable[..., Any], size: Size) -> Report:
        def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
            output: Tensor = function(call.module, q, k, v, attn_mask, **options)[0]
            return output.transpose(1, 2)

        subject = Subject(attention, size, call.dtype, call.device)
        return CallableAudit(subject, expected, length).run()

    reports = {}
    for kernel, function in _implementations(call.module).items():
        if kernel == "sdpa" and call.options:
            continue  # transformers refuses it
        try:
            reports[kernel] = asked(function, Size(heads // key_heads * fewer, fewer, d))
        except ValueError:  # it wants as many as there are
            reports[kernel] = asked(function, call.size)
    return reports


def _rounded(model: Any, run: Callable[[], Any], by: float) -> Tensor:
    """Return the model's output with attention rounded at random by this relative error."""
    noise = torch.Generator().manual_seed(0)

    def change(output: Tensor) -> Tensor:
        signs = torch.randn(output.shape, generator=noise).to(output)
        return output * (1.0 + by * signs)

    with _in_place(model, change=change), torch.no_grad():
        return _first_output(run)


def _first_output(run: Callable[[], Any]) -> Tensor:
    """Return the first tensor of real numbers that a run gives."""
    tensors = (leaf for leaf in tree_leaves(run()) if isinstance(leaf, Tensor))
    return next(x for x in tensors if x.is_floating_point() and x.numel() > 1)


def _kernels(report: Report, model: Any, run: Callable[[], Any], rounding: float) -> None:
    """Compare the model's output in each implementation, up to the rounding of attention."""
    was = model.config._attn_implementation
    outputs: dict[str, Tensor] = {}
    try:
        for name in dict.fromkeys((*IMPLEMENTATIONS, was)):
            try:
                model.set_attn_implementation(name)
                # transformers warns of its own ways to call flex attention
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outputs[name] = _first_output(run)
            except Exception as error:  # of the model, of transformers or of a compiler
                report.facts[name] = f"refused: {' '.join(str(error).split()):.80}"
    finally:
        model.set_attn_implementation(was)
    if not outputs:
        return
    first, *others = outputs
    spread = float(outputs[first].double().std())
    eps = torch.finfo(outputs[first].dtype).eps
    for name in others:
        apart = float((outputs[first].double() - outputs[name].double()).abs().max()) / spread
        report.facts[f"{name} beside {first}"] = f"{apart:.1g} of the output's spread apart"
        if not apart < 1e4 * eps:
            steps = (0.0, max(eps, rounding))
            exact, rounded = (_rounded(model, run, by) for by in steps)
            moved = float((exact.double() - rounded.double()).abs().max()) / spread
            report.facts["unstable"] = f"rounding alone moves the output by {moved:.1g}"
            if apart < 100.0 * moved:
                continue
            report.add("kernels", "the same output", f"{apart:.1g} apart", f"{first} and {name}")
