"""Audit a model: compare every call of attention with its configuration.

In models of transformers each attention module hands its queries, keys and values to a function of
a registry. Here one is put in that notes what it is handed, and each distinct call is then audited
as a callable, eager and fused, or in the registered implementation that is in use. What the
module itself multiplies q by shows in the length of q beside that of its projection or norm.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlib.auditing.callables import CallableAudit
from attnlib.auditing.meant import meant_cap, meant_temperature
from attnlib.auditing.modules import (
    Target,
    audit_module,
    compare_layers,
    compare_scale,
    layer_kind,
    target_of_call,
)
from attnlib.auditing.projected import (
    SAME,
    Outputs,
    Preparation,
    factors_by_token,
    keep_outputs,
    preparation_of,
)
from attnlib.auditing.report import OF_MODELS, Report
from attnlib.auditing.response import Size, Subject
from attnlib.auditing.scales import Expected
from attnlib.models.attention_interface import (
    eager_attention,
    function_of,
    mask_of_numbers,
    replaced_function,
)
from attnlib.policies import Policy

NAME = "attnlib-audit"
IMPLEMENTATIONS = ("sdpa", "eager")
"""Compared beside the one in use; others are compiled, which takes minutes."""

FEW_HEADS = 2
"""Heads of keys that are asked where that can be: the others go the same way."""
OPTIONS = ("softcap", "s_aux")
FACTOR_BEFORE = "what multiplies q or k before attention"


class ObservedCall(NamedTuple):
    """Hold the arguments that a module hands to attention."""

    module: nn.Module
    size: Size
    scaling: float | None
    options: dict[str, Any]
    preparation: Preparation
    temperature: tuple[Tensor, Tensor | None] | None
    """By what each query should be multiplied, and is, None if unknown; None where by nothing."""
    masked: bool
    dtype: torch.dtype
    device: str


def observed_calls(model: Any, run: Callable[[], object]) -> dict[str, ObservedCall]:
    """Run the model once and return the arguments that its modules hand to attention, by name."""
    names = {module: name for name, module in model.named_modules()}
    observed: dict[str, ObservedCall] = {}
    outputs: Outputs = {}

    def note(module: nn.Module, query: Tensor, key: Tensor, mask: Any, options: Any) -> None:
        meant = meant_temperature(module, query.shape[2], key.shape[2])
        wanted = torch.ones(1) if meant is None else torch.tensor(meant)
        plain_query = query / wanted.to(query)[:, None]
        preparation = preparation_of(module, plain_query, key, outputs)
        applied = wanted if preparation.factor else factors_by_token(module, query, outputs)
        observed[names[module]] = ObservedCall(
            module,
            Size(query.shape[1], key.shape[1], query.shape[3]),
            options.get("scaling"),
            {name: options[name] for name in OPTIONS if options.get(name) is not None},
            preparation,
            None if meant is None else (wanted, applied),
            mask is not None,
            query.dtype,
            str(query.device),
        )

    with _intercept_attention(model, note=note), torch.no_grad(), keep_outputs(model, outputs):
        run()
    return observed


def _intercept_attention(
    model: Any,
    note: Callable[..., None] = lambda *call: None,
    change: Callable[[Tensor], Tensor] = lambda output: output,
) -> AbstractContextManager[None]:
    """Return a context in which `note` is called before attention, and `change` with its output.

    `note` gets the module, queries, keys, the mask and a dictionary of the other arguments.
    """

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,  # some hand it by name
        **options: Any,
    ) -> Any:
        note(module, query, key, attention_mask, options)
        kernel, *_ = _implementations(module).values()
        output, *others = kernel(module, query, key, value, attention_mask, **options)
        return change(output), *others

    return replaced_function(model, NAME, attention)


def _implementations(module: Any) -> dict[str, Callable[..., Any]]:
    """Return the eager attention of the module's file and the fused one, or only another in use."""
    in_use = module.config._attn_implementation
    if in_use not in (None, NAME, *IMPLEMENTATIONS):
        return {in_use: function_of(in_use, module)}
    eager = eager_attention(type(module))
    written_out = {} if eager is None else {"eager": partial(_call_eager, eager)}
    return {**written_out, "sdpa": function_of("sdpa", module)}


def _call_eager(
    function: Callable[..., Any],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **options: Any,
) -> Any:
    """Call eager attention with a mask of numbers, which it adds."""
    causal = options.pop("is_causal", getattr(module, "is_causal", False))
    mask = mask_of_numbers(mask, causal, query, key)
    if mask is None:  # some add what they get
        mask = query.new_zeros(1, 1, query.shape[2], key.shape[2])
    return function(module, query, key, value, mask, **options)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread inside the context: small tensors are slower in several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def audit_model(model: nn.Module, run: Callable[[], Any], expected: Target, length: int) -> Report:
    """Audit each distinct call of attention that a model of transformers makes in `run`.

    Without a finding or an intended policy, by which outputs differ, compare implementations too.
    """
    report = Report(facts=dict(OF_MODELS))
    observed = observed_calls(model, run)
    if not observed:
        return audit_module(model, run, expected)
    audited: dict[Any, dict[str, Report]] = {}
    scales: dict[Any, dict[str, float]] = {}
    for name, call in observed.items():
        d, factor = call.size.dimension, call.preparation.factor or 1.0
        options = *call.options, call.options.get("softcap"), meant_cap(call.module)
        key = type(call.module), call.size, call.scaling, options
        if key not in audited:
            audited[key] = _audit_kernels(call, length)
        wanted, source = target_of_call(report, name, call.module, d, call.preparation, expected)
        if getattr(call.module, "sinks", None) is not None:
            sinks = call.options.get("s_aux")
            if sinks is None or bool((sinks < -50.0).all()):  # no weight
                report.add("sink", "sinks with weight", "none", "what is handed", where=name)
        if call.temperature is not None:
            _compare_temperature(report, name, *call.temperature)
        elif call.preparation.factor is None:
            report.facts[FACTOR_BEFORE] = report.facts.get(FACTOR_BEFORE, "unknown in") + f" {name}"
        for kernel, part in audited[key].items():
            if (scale := part.scale) is not None:
                value, low, high = (factor * end for end in (scale.value, scale.low, scale.high))
                scale = scale._replace(value=value, low=low, high=high)
                compare_scale(report, name, scale, d, wanted, source, kernel)
            report.findings += [
                finding._replace(where=f"{name}, {kernel}")
                for finding in part.findings
                if call.masked or finding.code not in ("mask", "hidden")  # where it hands none
            ]
        report.parts[name] = part = next(iter(audited[key].values()))
        if wanted is None and part.scale:
            kind = layer_kind(call.module), call.size, call.preparation.rotated
            scales.setdefault(kind, {})[name] = factor * float(part.scale.value[-1])
    compare_layers(report, scales)
    if not isinstance(expected, Policy) and not report.findings:
        parts = (part for parts in audited.values() for part in parts.values())
        _compare_kernels(report, model, run, max(part.rounding for part in parts))
    return report


def _compare_temperature(report: Report, name: str, wanted: Tensor, applied: Tensor | None) -> None:
    """Compare the factors on the queries of a layer, (tokens,), with the intended temperature."""
    if applied is None or bool((wanted == 1.0).all()):
        why = "it begins at more tokens" if applied is not None else "q is not its projection"
        report.facts["temperature of q"] = f"unknown in {name}: {why}"
        return
    report.facts.setdefault("temperature of q", f"{applied.min():.4g} to {applied.max():.4g}")
    worst = int((applied.cpu() / wanted).log().abs().argmax())
    right, actual = float(wanted[worst]), float(applied[worst])
    if not math.isclose(right, actual, rel_tol=SAME):
        text = f"q times {right:.4g} at token {worst + 1}"
        report.add("law", text, f"{actual:.4g}", "its temperature by position", where=name)


def _audit_kernels(call: ObservedCall, length: int) -> dict[str, Report]:
    """Return the reports of a module's attention, one for each implementation."""
    cap = meant_cap(call.module) or call.options.get("softcap")
    expected = Expected(
        None,
        cap=math.inf if cap is None else float(cap),
        sink="s_aux" in call.options,
        one_size=True,
    )
    heads, key_heads, d = call.size
    fewer = min(key_heads, FEW_HEADS)
    options = {**call.options, "scaling": call.scaling, "is_causal": False, "dropout": 0.0}

    def audit_with(function: Callable[..., Any], size: Size) -> Report:
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
            reports[kernel] = audit_with(function, Size(heads // key_heads * fewer, fewer, d))
        except ValueError:  # it wants as many as there are
            reports[kernel] = audit_with(function, call.size)
    return reports


def _output_rounded(model: Any, run: Callable[[], Any], error: float) -> Tensor:
    """Return the model's output with attention changed at random by this relative error."""
    random = torch.Generator().manual_seed(0)

    def change(output: Tensor) -> Tensor:
        noise = torch.randn(output.shape, generator=random).to(output)
        return output * (1.0 + error * noise)

    with _intercept_attention(model, change=change), torch.no_grad():
        return _first_output(run)


def _first_output(run: Callable[[], Any]) -> Tensor:
    """Return the first tensor of real numbers that a run gives."""
    tensors = (leaf for leaf in tree_leaves(run()) if isinstance(leaf, Tensor))
    return next(x for x in tensors if x.is_floating_point() and x.numel() > 1)


def _compare_kernels(report: Report, model: Any, run: Callable[[], Any], rounding: float) -> None:
    """Compare the model's outputs in all implementations, up to `rounding` of attention."""
    in_use = model.config._attn_implementation
    outputs: dict[str, Tensor] = {}
    try:
        for name in dict.fromkeys((*IMPLEMENTATIONS, in_use)):
            try:
                model.set_attn_implementation(name)
                # transformers warns of its own ways to call flex attention
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outputs[name] = _first_output(run)
            except Exception as error:  # of the model, of transformers or of a compiler
                report.facts[name] = f"refused: {' '.join(str(error).split()):.80}"
    finally:
        model.set_attn_implementation(in_use)
    if not outputs:
        return
    first, *others = outputs
    deviation = float(outputs[first].double().std())
    eps = torch.finfo(outputs[first].dtype).eps
    for name in others:
        change = outputs[first].double() - outputs[name].double()
        difference = float(change.abs().max()) / deviation
        report.facts[f"{name} beside {first}"] = f"{difference:.1g} of the output's spread apart"
        if not difference < 1e4 * eps:
            errors = (0.0, max(eps, rounding))
            exact, rounded = (_output_rounded(model, run, error) for error in errors)
            moved = float((exact.double() - rounded.double()).abs().max()) / deviation
            report.facts["unstable"] = f"rounding alone moves the output by {moved:.1g}"
            if difference < 100.0 * moved:
                continue
            text = f"{difference:.1g} apart"
            report.add("kernels", "the same output", text, f"{first} and {name}")
