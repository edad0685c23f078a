"""Measure which number multiplies the scores of an attention, and compare it with the intended one.

    report = audit(my_attention, d=128, expected="yarn")
    report.passed, report.findings, report.scale

- `audit` asks an attention and returns a `Report`.
- `assert_scale` fails a test where an audit has findings.

`response` chooses queries, keys and values whose outputs show one property. `visible`, `rounding`
and `questions` measure one property each, `backward` gradients. `scales` and `callables` compare
the answers with the intended attention, `models` audits the calls of a model against its
configuration, and `report` shows the result. `engine_files` asks an engine by files,
`recorded_tensors` explains the tensors of one file.

Chapter: audit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from attnlib import _checking
from attnlib.extras import extra_packages
from attnlib.policies import Policy, ScaleFunction, own

with extra_packages("torch"):
    import torch
    from torch import Tensor, nn

    from attnlib.attention.options import named_policy
    from attnlib.auditing.callables import CallableAudit
    from attnlib.auditing.models import audit_model
    from attnlib.auditing.modules import audit_module
    from attnlib.auditing.report import CODES, Finding, Report, Scale
    from attnlib.auditing.response import (
        ARRAYS,
        INTEGERS,
        Size,
        Subject,
        accept_tensors,
        checked_cap,
    )
    from attnlib.auditing.scales import Expected

__all__ = ["CODES", "Finding", "Report", "Scale", "assert_scale", "audit"]


def audit(
    attention: Callable[..., Any] | nn.Module,
    inputs: Tensor | Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    d: int | None = None,
    expected: float | str | Policy | ScaleFunction | None = None,
    heads: int = 2,
    key_heads: int | None = None,
    cap: float | None = None,
    cosine: bool | None = None,
    causal: bool | None = None,
    window: int | tuple[int, int] | None = None,
    first_keys: int = 0,
    chunk: int | None = None,
    pattern: Callable[[int], Any] | None = None,
    sink: bool | float | Sequence[float] | None = None,
    slopes: float | Sequence[float] | None = None,
    bias: bool = False,
    top_k: int | None = None,
    true_hides: bool = False,
    nan_rows: bool = False,
    factor: float = 1.0,
    causal_from: str | None = None,
    rotates: bool = False,
    length: int = 1024,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    device: str = "cpu",
    arrays: str = "torch",
    verbose: bool = False,
) -> Report:
    """Measure from its outputs alone what an attention does, and compare it with what is intended.

    - `attention`: a function of q (1, heads, tokens, d), k and v (1, key_heads, tokens, d) that
      returns (1, heads, tokens, d), or a tuple that begins with that; or with `inputs` a model.
      Where its signature has a mask (attn_mask, attention_mask, mask, bias), is_causal or
      enable_gqa, these are asked too.
    - `inputs`: the arguments with which a model runs: a tensor, a mapping or a sequence. See below.
    - `d`, `heads`, `key_heads`: the size of a head, 4 or more, which a function needs; how many
      heads of queries, by default 2; and of keys, by default as many.
    - `expected`: the number that should multiply q·k or the cosine: a number, a policy or its name,
      or a function of n, d and the position.
    - `length`: the largest n that is asked, for laws in n and windows; 32 or more, by default 1024.
    - `dtype`, `kv_dtype`, `device`: the tensors' type, by default float32; a coarser one in which
      the attention keeps keys and values (float8, int8, int4, or 16 bits, in which it may compute),
      by default none; and where they are, by default "cpu".
    - `arrays`: "torch" (the default), "numpy" or "jax": what the attention takes and returns.
      Gradients are asked of tensors only.
    - `verbose`: True prints the facts of the report too.

    Further properties that a function should have, for `attention` without `inputs`. What is not so
    is a finding:

    - `cap`: the bound of a soft cap, math.inf for none.
    - `cosine`: whether the scale multiplies a cosine.
    - `causal`: whether queries see keys up to their own without an argument for it.
    - `causal_from`: the key, "first" or "last", to which queries are aligned that are fewer than
      keys: with `causal`, by default the last.
    - `window`: how many keys a query sees, its own among them, or a tuple of this and how many
      after it.
    - `first_keys`: how many at the beginning it sees besides (attention sinks of StreamingLLM).
    - `chunk`: the number of keys of a chunk, where queries see only their own chunk (Llama 4).
    - `pattern`: in place of these, which keys each query sees, as a function of n that returns (n,
      n) booleans: of a prefix, blocks or documents. The rows of fewer queries are the last.
    - `sink`: whether weights add up to less than 1, or the logit of what takes the rest, a number
      or one a head.
    - `slopes`: by how much a key's logit is lower with each place farther (ALiBi), a number or one
      a head.
    - `bias`: whether it adds numbers of its own by position (T5), which are not asked.
    - `top_k`: how many keys their contents choose.
    - `true_hides`: whether True in a mask hides a key, as in nn.MultiheadAttention.
    - `nan_rows`: whether rows which a mask hides whole may be NaN.
    - `factor`: the factor on the output, by default 1.
    - `rotates`: whether it turns q and k by position. Then only a query's own key is asked.

    Where `expected` is given, a cap, a window or a sink that is not given is a finding too; without
    it these may be as they are. Further findings are a scale at 80, 96, 129 or 144 dimensions that
    belongs to a padded size; another scale for one or some queries of a cache, for values of
    another size, or with an argument that hides keys; and gradients with respect to q, k, v, and
    the parameters of a module, that are not those of the forward pass.

    With `inputs` each call of attention of a model of transformers is audited, eager and fused, or
    in an implementation that was registered and is in use, against `expected`. Without that the
    model's configuration, or else the census of transformers' families, gives the intended scale,
    but never the module. Where neither does, `passed` is None. Then the implementations are
    compared on the inputs, unless `expected` is a policy or there is a finding. Of any other
    module, and where a model writes its attention out, the scale of each call is computed from the
    arguments of PyTorch's attention, or of a softmax, and also compared with that of other layers.
    Norms of q and k that a family has and a layer lacks are a finding.

    Returns a `Report`. Its numbers have intervals, from the rounding of `dtype`, the rows and the
    heads. An audit of a function takes some 470 calls and less than 2 s at d = 128 and 1024 keys on
    two cores.

    What is not noticed: what shows only at other lengths or shapes; scales that differ from the
    intended one by less than 0.5 %, or by less than rounding; and in models what is added to the
    scores, masks, and a scale in the weights of projections.

    Raises ValueError or TypeError for arguments that cannot be, and ValueError in one line where
    the attention raises, returns another shape, or not the same twice; RuntimeError for a model
    whose attention cannot be reached. Chapter: audit.

    >>> def missing(q, k, v):
    ...     return torch.softmax(q @ k.mT, dim=-1) @ v
    >>> print(*audit(missing, d=64, expected=1 / 8).findings)
    scale: expected 0.125, found 1 ± 0.0001 (8 times what was meant: scores are not scaled)
    """
    length = _checking.integer("length", length, minimum=32)
    scale: float | Policy | None = None
    if isinstance(expected, float | int):
        scale = _checking.number("expected", expected)
    elif expected is not None:
        if isinstance(expected, str):
            with suppress(ValueError):
                float(expected)
                raise TypeError(f"expected must be a number, not its text: expected={expected!r}")
        rule = named_policy("expected", expected)
        scale = rule or _as_policy(cast(ScaleFunction, expected), bool(cosine))
    if inputs is not None:
        _checking.instance("attention", attention, nn.Module)
        model = cast(nn.Module, attention)
        options = inputs if isinstance(inputs, Mapping) else {}
        tensors = () if options else (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        run = partial(model, *tensors, **options)
        if hasattr(model, "set_attn_implementation"):
            report = audit_model(model, run, scale, length)
        else:
            report = audit_module(model, run, scale)
        report.verbose = verbose
        return report
    size = _checked_size(d, heads, key_heads)
    _checking.instance("dtype", dtype, torch.dtype)
    if not dtype.is_floating_point:
        raise TypeError(f"dtype must be one of real numbers, got dtype={dtype}")
    if kv_dtype is not None:
        _checking.instance("kv_dtype", kv_dtype, torch.dtype)
        if not kv_dtype.is_floating_point and kv_dtype not in INTEGERS:
            allowed = "one of real numbers, torch.int8 or torch.int4"
            raise TypeError(f"kv_dtype must be {allowed}, got kv_dtype={kv_dtype}")
    if not callable(attention):
        raise TypeError(f"attention must be callable, got a {type(attention).__name__}")
    if causal_from is not None:
        _checking.choice("causal_from", causal_from, ("first", "last"))
    if sink is not None and not isinstance(sink, bool):
        sink = _by_head("sink", sink, heads)
    # What is not said is not meant where a scale is, and else may be as it is.
    no_cap, no_sink = (None, None) if scale is None else (math.inf, False)
    no_window = no_cap if pattern is None else None
    given: Any = window
    if isinstance(given, tuple) and len(given) != 2:
        allowed = "a number of keys, or a tuple of this and how many after its own"
        raise ValueError(f"window must be {allowed}, got window={window!r:.80}")
    past, ahead = window if isinstance(window, tuple) else (window, None)
    ahead = None if ahead is None else _checking.integer("window", ahead, minimum=0)
    if past == 1 and ahead:  # the last query sees one key: it is asked from behind
        attention, (past, ahead) = _reverse_tokens(attention), (ahead + 1, 0)
    if chunk is not None:
        past = _checking.integer("chunk", chunk, minimum=2)
    if pattern is not None:
        others = causal, window, chunk, first_keys or None
        if any(other is not None for other in others):
            raise ValueError("pattern must be given without causal, window, chunk and first_keys")
        pattern = _checked_pattern(pattern)
    target = Expected(
        scale,
        cap=no_cap if cap is None else checked_cap(cap),
        cosine=cosine,
        causal=causal,
        window=no_window if past is None else _checking.integer("window", past, minimum=1),
        chunk=chunk,
        first_keys=_checking.integer("first_keys", first_keys, minimum=0),
        ahead=ahead,
        sink=no_sink if sink is None else sink,
        slopes=None if slopes is None else _by_head("slopes", slopes, heads),
        bias=_checking.flag("bias", bias),
        top_k=None if top_k is None else _checking.integer("top_k", top_k, minimum=2),
        true_hides=_checking.flag("true_hides", true_hides),
        nan_rows=_checking.flag("nan_rows", nan_rows),
        factor=_checking.positive("factor", factor),
        causal_from=causal_from,
        pattern=pattern,
        rotates=_checking.flag("rotates", rotates),
    )
    arrays = _checking.choice("arrays", arrays, ARRAYS)
    subject = Subject(accept_tensors(attention, arrays), size, dtype, device)
    subject.store_in(kv_dtype)
    report = CallableAudit(subject, target, length).run()
    report.verbose = verbose
    return report


def _reverse_tokens(attention: Callable[..., Any]) -> Callable[..., Any]:
    """Return the attention of tokens in reverse order: keys ahead become past ones."""

    def reversed_attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
        answer = attention(*(t.flip(-2) for t in (q, k, v)))
        answer = answer[0] if isinstance(answer, tuple) and answer else answer
        return answer.flip(-2) if isinstance(answer, Tensor) else answer

    return reversed_attention


def _as_policy(function: ScaleFunction, cosine: bool) -> Policy:
    """Return an expected function as a policy; TypeError where it does not take arrays."""
    policy = own(function, "cosine" if cosine else "dot product")
    if policy.name == "<lambda>":
        policy = replace(policy, name="the function of n, d and position")
    try:
        policy.alpha([2, 8], 64)
    except TypeError as error:
        raise TypeError(
            "expected must be a function of arrays n, d and position, such as "
            f"lambda n, d, position: np.log(n) / d**0.5; it raised: {error}"
        ) from error
    return policy


def _checked_pattern(pattern: Callable[[int], Any]) -> Callable[[int], np.ndarray]:
    """Return a pattern whose answers are checked: ValueError where one is not (n, n) booleans."""

    def checked_pattern(n: int) -> np.ndarray:
        visible = np.asarray(pattern(n))
        if visible.shape != (n, n) or visible.dtype != bool:
            got = f"{visible.dtype} of shape {visible.shape}"
            raise ValueError(f"pattern({n}) must be booleans of shape ({n}, {n}), got {got}")
        return visible

    return checked_pattern


def _by_head(name: str, numbers: float | Sequence[float], heads: int) -> tuple[float, ...]:
    """Return one number, or one for each head, as a tuple; ValueError for another count.

    Also raises as `_checking.finite`.
    """
    by_head = tuple(map(float, np.atleast_1d(_checking.finite(name, numbers))))
    if len(by_head) not in (1, heads):
        raise ValueError(f"{name} must be a number or {heads}, one a head, got {len(by_head)}")
    return by_head


def _checked_size(d: int | None, heads: int, key_heads: int | None) -> Size:
    """Return the numbers of heads and the dimension of one, checked; without d a TypeError."""
    if d is None:
        raise TypeError(
            "d, the size of q and k, must be given for a callable; a model is audited with inputs"
        )
    heads = _checking.integer("heads", heads, minimum=1)
    if key_heads is None:
        key_heads = heads
    key_heads = _checking.integer("key_heads", key_heads, minimum=1)
    if heads % key_heads:
        raise ValueError(f"key_heads must divide heads={heads}, got key_heads={key_heads}")
    return Size(heads, key_heads, _checking.integer("d", d, minimum=4))


def assert_scale(
    attention: Callable[..., Any],
    *,
    expected: float | str | Policy | ScaleFunction,
    **arguments: Any,
) -> None:
    """Raise AssertionError with the report where an audit has findings: a test in one line.

    - `attention`: as for `audit`.
    - `expected`: the intended scale, as for `audit`. It must be given: without it nothing would be
      tested.
    - `arguments`: the other arguments of `audit`.

    Returns None. Raises the other errors of `audit` too. Chapter: audit.

    >>> from torch.nn.functional import scaled_dot_product_attention
    >>> assert_scale(scaled_dot_product_attention, d=64, expected=1 / 8)
    """
    report = audit(attention, expected=expected, **arguments)
    if report.findings:
        raise AssertionError(f"\n{report}")
