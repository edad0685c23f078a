"""Measure the attention of any model that calls PyTorch's scaled_dot_product_attention.

    with probe(model) as report:
        model(x)
    print(report)

The report has one line for each layer and head: how sharp attention is, how much gradient passes,
and what the exact theory says of random scores of the same size. `DEFINITIONS` says what each
column is.

Method: the scores of a block of queries are computed once more from q and k, in float32 or wider,
and what is kept of a row are a few sums: memory is linear in the number of keys. Everything is
relative to the second largest logit of the row, the largest set apart, so that 1 − Σp² keeps its
digits where attention is nearly one-hot.

Chapter: probe.
"""

import json
import math
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.special import chdtrc, chdtri
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.bias import CausalBias, CausalVariant
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode

from attnlib import attention, exact, freezing
from attnlib.checking import FloatArray
from attnlib.interception import ATTENTION, MULTI_HEAD, MULTI_HEAD_FROM_INSIDE
from attnlib.scores import DotProduct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DEFINITIONS", "Report", "probe"]

DEFINITIONS = {
    "layer": "name of the module that attends",
    "call": "0 for its first call in a run of the model, 1 for the second, …",
    "head": "head of the queries, from 0",
    "rows": "rows measured (one for each query), over all calls; those that see fewer than two "
    "keys are left out of everything",
    "keys": "n, the number of keys that a row sees: mean over the rows",
    "dimension": "d, the length of a query",
    "scale": "what multiplies q·k",
    "score_std": "standard deviation of q·k/√d over the keys of a row, n − 1 in its denominator: "
    "root of the mean of its square over the rows",
    "alpha": "effective α, the standard deviation of the logits over the keys of a row, likewise; "
    "logits are scale · q·k, plus what a mask adds",
    "critical_alpha": "√(2 log n), where rows of random scores freeze: mean over the rows",
    "alpha_to_critical": "standard deviation of the row's logits / √(2 log n): mean over the rows",
    "frozen": "share of the rows where that is 1 or more",
    "random_frozen": "the same for random scores",
    "collision_probability": "Y = Σp²: mean over the rows",
    "random_collision_probability": "the same for random scores",
    "effective_keys": "1/Y, of the mean Y",
    "random_effective_keys": "the same for random scores",
    "entropy": "−Σ p log p, in nats: mean over the rows",
    "random_entropy": "the same for random scores",
    "gradient": "g = α(1 − Y), half the sum of |∂p/∂s| for scores in units of their standard "
    "deviation, with the head's α: mean over the rows",
    "random_gradient": "the same for random scores",
    "gradient_median": "median of g",
    "gradient_mean_log": "mean of log g",
    "gradient_share": "mean g / its limit for random scores as α → ∞",
    "value_std": "standard deviation of the values: over the keys that are seen, root of the "
    "mean square of the components",
    "output_std": "standard deviation of the outputs z = Σ p v: root of the mean of "
    "(z − v̄)² + s²/N over rows and components, for N values of mean v̄ and variance s²; for "
    "values that are independent of the weights its square is s² · E Y on average",
    "random_output_std": "value_std · √(E Y) for random scores",
}
"""The columns of `Report.table`."""

RANDOM = (
    "Random scores: the exact mean for independent normal q and k in d dimensions, at the head's α "
    "and the rows' n."
)

BLOCK = {"cpu": 2**19}
"""How many scores are worked on at a time: what fits the cache."""
BLOCK_ELSEWHERE = 2**24

HIDDEN = -1e4
"""A mask's number that hides a key. Its weight is 0 in every precision."""

FAR = 1e30
"""How far hidden keys and the largest logit are moved down. With FLOOR their weights are 0."""
FLOOR = -80.0
"""Logits are cut here below the second largest: exp is slow where its result is below 1e-38."""

NODES = 24
"""Numbers of keys at which the theory is computed; between them it is interpolated."""

LOOKS_LIKE_ATTENTION = re.compile("attention|attn", re.IGNORECASE)
NAMES_SHOWN = 3


@contextmanager
def probe(model: nn.Module) -> Iterator["Report"]:
    """Measure every scaled_dot_product_attention call of the model inside the context.

    Nothing in the model is touched; outputs, gradients and random numbers are bitwise those of a
    run without it. Several runs count together. It sees the function under every name, in this
    thread, in nn.MultiheadAttention and the modules made of it (training and evaluation, the
    fast path included), and in models of transformers with attn_implementation="sdpa". Masks of
    every kind, is_causal, grouped queries and scales are honoured: a number of −10⁴ or less in a
    mask hides a key, others add to the logits. The weights are those before dropout. The leading
    axes of q but the last are sequences, the last is the heads.

    It takes about as long as the attention itself, and memory linear in the number of keys: 28
    bytes a row and head are kept.

    What it cannot see, attention that is written out, another kernel or a graph of torch.compile,
    it names: in a UserWarning at its end, or a RuntimeError if it has seen no call at all. Queries
    that are padding are rows too, unless the mask leaves them no key. To measure a model under
    another scale, enter `attnlib.attention.rescale` inside (RuntimeError the other way round).
    TypeError if `model` is not a module. Chapter: probe.

    >>> layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
    >>> with probe(layer) as report:
    ...     output = layer(torch.zeros(2, 10, 64))
    >>> report.table()[["layer", "head", "rows", "collision_probability"]]
           layer  head  rows  collision_probability
    0  self_attn     0    20                    0.1
    1  self_attn     1    20                    0.1
    2  self_attn     2    20                    0.1
    3  self_attn     3    20                    0.1
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got a {type(model).__name__}")
    if attention.is_rescaled():
        raise RuntimeError(
            "probe would measure the scale before rescale changes it: enter probe first, "
            "with probe(model) as report, rescale(...)"
        )
    if hasattr(model, "_orig_mod"):
        raise RuntimeError(
            "model is compiled, and a graph cannot be seen into: probe and run the model that was "
            "given to torch.compile"
        )
    observer = _Observer(model)
    with _watched_modules(observer), _FAST_PATH.kept(), observer:
        yield observer.report
    observer.finish()


# --- what the model does --------------------------------------------------------------------------


class _Observer(TorchFunctionMode):
    """Measures each call of attention on the way, and keeps account of what it could not."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.report = Report()
        self.model_name = type(model).__name__
        self.names = {id(module): name for name, module in model.named_modules()}
        self.kinds = {  # a scripted module has an original name
            name: getattr(module, "original_name", type(module).__name__)
            for name, module in model.named_modules()
        }
        self.thread = threading.get_ident()
        self.running: list[nn.Module] = []
        self.calls: Counter[str] = Counter()
        self.ran: dict[str, None] = {}  # names of modules that look like attention, in order
        self.seen: dict[str, None] = {}
        self.unmeasured: dict[str, str] = {}
        self.compiled = False

    # Modules as they run

    def belongs(self, module: nn.Module) -> bool:
        return id(module) in self.names and threading.get_ident() == self.thread

    def enter_module(self, module: nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling() or not self.belongs(module):
            return
        if not self.running:
            self.calls.clear()
        self.running.append(module)
        name = self.names[id(module)]
        if LOOKS_LIKE_ATTENTION.search(self.kinds[name]):
            self.ran[name] = None

    def leave_module(self, module: nn.Module, *_: Any) -> None:
        if not torch.compiler.is_compiling() and self.belongs(module) and self.running:
            self.running.pop()

    # Functions as they are called

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            self.compiled = True
            return func(*args, **kwargs)
        # A backward pass that computes activations again runs the model a second time.
        if not self.running or torch._C._current_graph_task_id() != -1:
            return func(*args, **kwargs)
        if func is MULTI_HEAD:
            return self.multi_head(*args, **kwargs)
        result = func(*args, **kwargs)
        if func in ATTENTION:
            self.attention(result, *args, **kwargs)
        elif func in _FAST:
            self.fast(func, args, kwargs)
        return result

    def multi_head(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and measure its attention."""
        before = self.calls.total()
        with self:
            result = MULTI_HEAD_FROM_INSIDE(*args, **kwargs)
        if self.calls.total() == before:
            # need_weights=True writes attention out. Without, the same attention is a call.
            kwargs = {**kwargs, "need_weights": False, "training": False}
            with torch.no_grad(), self:
                MULTI_HEAD_FROM_INSIDE(*args, **kwargs)
        return result

    def attention(
        self,
        result: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        """Measure a call of scaled_dot_product_attention; the arguments are PyTorch's."""
        call = _Call(query, key, value, attn_mask, is_causal, scale, enable_gqa)
        module = self.running[-1]
        self.record(module, [call], None if dropout_p > 0.0 else result)

    def fast(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Measure the attention in a kernel of PyTorch's fast path."""
        given = {**dict(zip(_FAST[function], args, strict=False)), **kwargs}
        for module in self.running[-1].modules():
            if getattr(module, "in_proj_weight", None) is given["qkv_weight"]:
                self.record(module, _fast_calls(given), None)

    def record(self, module: nn.Module, calls: list["_Call"], output: Tensor | None) -> None:
        """Measure what is one call of the module."""
        name = self.names[id(module)]
        number = self.calls[name]
        self.calls[name] += 1
        self.seen[name] = None
        reason = _why_not(calls[0].query, calls[0].key)
        if reason:
            self.unmeasured[name] = reason
            return
        for call in calls:
            self.report.add(name or self.model_name, number, _measure(call, output))

    # What is said at the end

    def finish(self) -> None:
        """Name what was not seen: a warning, or an error if nothing was seen at all."""
        lines = [f"{name or self.model_name}: {why}" for name, why in self.unmeasured.items()]
        if self.compiled:
            lines.append(
                "a part is compiled, and a graph cannot be seen into: run it under "
                "torch.compiler.set_stance('force_eager')"
            )
        silent = self.silent()
        if silent:
            kinds = [f"{name or 'the model'} ({self.kinds[name]})" for name in silent[:NAMES_SHOWN]]
            more = len(silent) - len(kinds)
            lines.append(
                f"{', '.join(kinds)}{f' and {more} more' if more else ''} ran without calling "
                "scaled_dot_product_attention: attention that is written out or uses another "
                "kernel cannot be seen; a model of transformers wants attn_implementation='sdpa'"
            )
        if self.report.empty:
            if not lines:
                lines.append(
                    "call the model itself inside the context, in the same thread; parts that are "
                    "compiled or exported cannot be seen"
                )
            raise RuntimeError(
                f"probe has measured no attention in {self.model_name}. {'; '.join(lines)}"
            )
        if lines:
            warnings.warn(f"not measured: {'; '.join(lines)}", stacklevel=4)

    def silent(self) -> list[str]:
        """Return the modules that look like attention, ran, and made no call, the inmost ones."""

        def inside(name: str, other: str) -> bool:
            return name == other or other == "" or name.startswith(f"{other}.")

        without = [
            name
            for name in self.ran
            if not any(
                inside(seen, name) or (inside(name, seen) and seen in self.ran)
                for seen in self.seen
            )
        ]
        return [
            name
            for name in without
            if not any(inside(other, name) and other != name for other in without)
        ]


def _why_not(query: Tensor, key: Tensor) -> str:
    """Return why a call cannot be measured, or nothing."""
    if torch._C._get_tracing_state() is not None:
        return "it is being traced"
    if type(query) not in (Tensor, nn.Parameter):
        return f"its queries are a {type(query).__name__}"
    if torch._C._functorch.is_functorch_wrapped_tensor(query):
        return "it runs under torch.func (vmap, grad); call the model outside of it"
    if query.is_nested:
        return "its queries are a nested tensor"
    if query.numel() == 0 or key.numel() == 0:
        return "it has no queries or no keys"
    if query.is_meta:
        return "its queries are on the meta device and have no numbers"
    if query.device.type == "mps":
        return "its device has no double precision"
    return ""


@contextmanager
def _watched_modules(observer: _Observer) -> Iterator[None]:
    """Tell the observer which module runs. Hooks of the modules would switch the fast path off."""
    hooks = [
        torch_module.register_module_forward_pre_hook(observer.enter_module),
        torch_module.register_module_forward_hook(observer.leave_module, always_call=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _FastPath:
    """Lets models take PyTorch's fast path, which they leave where they see a mode.

    They ask torch.overrides.has_torch_function. While a probe is entered, its mode does not count.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probes = 0
        self._asked: Callable[..., bool] = torch.overrides.has_torch_function

    def _without_probes(self, tensors: Any) -> bool:
        mode = torch.overrides._get_current_function_mode()  # type: ignore[no-untyped-call]
        if not isinstance(mode, _Observer):
            return self._asked(tensors)
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        try:
            return self._without_probes(tensors)
        finally:
            mode.__enter__()  # type: ignore[no-untyped-call]

    @contextmanager
    def kept(self) -> Iterator[None]:
        with self._lock:
            if self._probes == 0:
                self._asked = torch.overrides.has_torch_function
                torch.overrides.has_torch_function = self._without_probes  # type: ignore[assignment]
            self._probes += 1
        try:
            yield
        finally:
            with self._lock:
                self._probes -= 1
                if self._probes == 0:
                    torch.overrides.has_torch_function = self._asked


_FAST_PATH = _FastPath()

_FAST = {
    torch._native_multi_head_attention: (
        *("query", "key", "value", "embed_dim", "num_heads", "qkv_weight", "qkv_bias"),
        *("proj_weight", "proj_bias", "mask", "need_weights", "average_attn_weights", "mask_type"),
    ),
    torch._transformer_encoder_layer_fwd: (
        *("query", "embed_dim", "num_heads", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias"),
        *("use_gelu", "norm_first", "eps", "norm_weight_1", "norm_bias_1"),
        *("norm_weight_2", "norm_bias_2", "ffn_weight_1", "ffn_bias_1", "ffn_weight_2"),
        *("ffn_bias_2", "mask", "mask_type"),
    ),
}
"""The kernels of the fast path, self-attention both, and the names of their arguments."""


@torch.no_grad()
def _fast_calls(given: dict[str, Any]) -> list["_Call"]:
    """Return the calls of attention, one or one for each sequence, in a kernel of the fast path."""
    x, mask = given["query"], given.get("mask")
    calls = []
    with torch._C.DisableTorchFunction():
        if mask is not None:  # a mask of numbers too hides what is not 0
            mask = ~mask.bool()
            if given["mask_type"] == 1:
                mask = mask[:, None, None, :]
        for sequences in [one.unsqueeze(0) for one in x.unbind()] if x.is_nested else [x]:
            if given.get("norm_first"):
                norm = given["norm_weight_1"], given["norm_bias_1"], given["eps"]
                sequences = functional.layer_norm(sequences, sequences.shape[-1:], *norm)
            packed = functional.linear(sequences, given["qkv_weight"], given["qkv_bias"])
            heads = packed.view(*packed.shape[:-1], 3, given["num_heads"], -1)
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            calls.append(_Call(q, k, v, mask))
    return calls


# --- what a call does -----------------------------------------------------------------------------


class _Call(NamedTuple):
    """The arguments of a call."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


class _Rows(NamedTuple):
    """What is kept of rows: arrays of the shape (sequences, heads, queries)."""

    keys: FloatArray
    score_variance: FloatArray
    variance: FloatArray  # of the logits
    collision_probability: FloatArray
    entropy: FloatArray
    log_complement: FloatArray  # log(1 − Y)
    output_square: FloatArray


class _Measured(NamedTuple):
    """What is kept of a call."""

    rows: _Rows
    value_variance: FloatArray  # (sequences, heads)
    dimension: int
    scale: float


@torch.no_grad()
def _measure(call: _Call, output: Tensor | None) -> _Measured:
    """Return the statistics of a call. Without `output`, what it returned, that is computed too."""
    device = call.query.device.type
    # Autocast rounds all but double precision before the call.
    rounded = call.query.dtype
    if torch.is_autocast_enabled(device) and rounded != torch.float64:
        rounded = torch.get_autocast_dtype(device)
    with torch._C.DisableTorchFunction(), torch.autocast(device, enabled=False):
        wide = torch.promote_types(rounded, torch.float32)
        q, k, v = (t.to(rounded).to(wide) for t in call[:3])
        if call.enable_gqa:
            k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
        leading = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        heads, dimension = leading[-1] if leading else 1, q.shape[-1]
        scale = 1.0 / math.sqrt(dimension) if call.scale is None else float(call.scale)

        masks: list[Tensor | None] = [None]
        past = 0 if call.is_causal else None
        if isinstance(call.mask, CausalBias):
            lower = call.mask.variant == CausalVariant.LOWER_RIGHT
            past = k.shape[-2] - q.shape[-2] if lower else 0
        elif call.mask is not None:
            full = call.mask.expand(*leading[:-1], heads, q.shape[-2], k.shape[-2])
            masks = [full[index] for index in np.ndindex(*leading[:-1])]

        def by_sequence(t: Tensor) -> Tensor:
            # Without a mask all sequences are alike, and are worked on as if they were heads.
            return t.expand(*leading, *t.shape[-2:]).reshape(len(masks), -1, *t.shape[-2:])

        q, k, v = map(by_sequence, (q, k, v))
        z = [None] * len(masks) if output is None else by_sequence(output.to(wide))
        found = [
            _sequence(q[i], k[i], v[i], z[i], mask, past, scale) for i, mask in enumerate(masks)
        ]
        rows, variances = (torch.cat(parts, dim=-2) for parts in zip(*found, strict=True))
    arrays = rows.reshape(rows.shape[0], -1, heads, rows.shape[-1]).float().cpu().numpy()
    variance = variances.reshape(-1, heads).cpu().numpy()
    return _Measured(_Rows(*arrays), variance, dimension, scale)


def _sequence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    z: Tensor | None,
    mask: Tensor | None,
    past: int | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the fields of _Rows, (7, heads, queries), and the values' variance, (heads, 1).

    q, k, v, z: (heads, queries or keys, size); mask: (heads, queries, keys). With `past`, query i
    sees the keys up to past + i.
    """
    heads, queries, dimension = q.shape
    keys = k.shape[-2]
    # A shift of all keys shifts all logits of a row: it changes nothing but rounding errors.
    k = (k - k.mean(dim=-2, keepdim=True)).mT
    q = q / math.sqrt(dimension)
    factor = scale * math.sqrt(dimension)
    factor = 1.0 if math.isclose(factor, 1.0, rel_tol=1e-12) else factor
    sums = q.new_empty((len(_Sums._fields), heads, queries))
    computed = q.new_empty((heads, queries, v.shape[-1]))
    seen = torch.zeros((heads, keys), dtype=torch.bool, device=q.device)
    if mask is None:
        seen[:, : keys if past is None else max(0, queries + past)] = True
    block = BLOCK.get(q.device.type, BLOCK_ELSEWHERE)
    several = max(1, block // max(1, queries * keys))
    at_once = queries if several > 1 else max(1, block // max(1, keys))
    for first in range(0, heads, several):
        for start in range(0, queries, at_once):
            here = slice(first, first + several), slice(start, start + at_once)
            stop = keys if past is None else max(1, min(keys, start + at_once + past))
            visible, bias = _seen_by(mask, past, here, stop, q)
            if mask is not None and visible is not None:
                seen[here[0]] |= visible.any(dim=-2)
            scores = torch.matmul(q[here], k[here[0], :, :stop])
            found, weights, chosen = _sums(scores, factor, visible, bias)
            sums[:, *here] = torch.stack(found)
            if z is None:
                values = v[here[0], :stop]
                share = torch.sigmoid(found.second - found.largest - found.peak.log())
                first_value = values.take_along_dim(chosen, dim=-2)
                computed[here] = torch.lerp(first_value, weights @ values, share.unsqueeze(-1))

    counted = seen.to(v.dtype).unsqueeze(-1)
    number = counted.sum(dim=-2, keepdim=True)
    mean = (v * counted).sum(dim=-2, keepdim=True) / number
    squares = (((v - mean) * counted) ** 2).sum(dim=-2).mean(dim=-1, keepdim=True).double()
    variance = squares / (number[..., 0] - 1.0).clamp(min=1.0)
    output = computed if z is None else z
    output_square = (output - mean).square().mean(dim=-1) + variance / number[..., 0]
    return torch.stack([*_from_sums(_Sums(*sums.double())), output_square.double()]), variance


def _seen_by(
    mask: Tensor | None,
    past: int | None,
    here: tuple[slice, slice],
    keys: int,
    q: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Return which keys the queries of a block see, and what the mask adds to their logits."""
    if mask is not None:
        block = mask[here]
        if block.dtype == torch.bool:
            return block, None
        bias = block.to(q.dtype)
        return bias > HIDDEN, bias.clamp(min=HIDDEN)
    if past is None:
        return None, None
    query = torch.arange(q.shape[-2], device=q.device)[here[1], None]
    return (torch.arange(keys, device=q.device) <= query + past)[None], None


class _Sums(NamedTuple):
    """What is computed of each row while its scores are at hand, the largest logit set apart."""

    number: Tensor  # of the keys that are seen
    score_total: Tensor
    score_length: Tensor  # Euclidean, of the row
    logit_total: Tensor
    logit_length: Tensor
    largest: Tensor
    second: Tensor
    peak: Tensor  # largest of the weights that the other logits have among themselves
    length: Tensor  # Euclidean, of those weights
    weighted: Tensor  # mean of the other logits with those weights


def _sums(
    scores: Tensor, factor: float, visible: Tensor | None, bias: Tensor | None
) -> tuple[_Sums, Tensor, Tensor]:
    """Return the sums, the weights of all keys but that of the largest logit, and which that is.

    scores: (…, rows, keys), written over.
    """
    number = scores.new_full((1,), scores.shape[-1])
    shown = None if visible is None else visible.to(scores.dtype)
    if shown is not None:
        number = shown.sum(dim=-1)
        scores *= shown
    total, length = scores.sum(dim=-1), torch.linalg.vector_norm(scores, dim=-1)
    logits = scores if factor == 1.0 else scores.mul_(factor)
    logit_total, logit_length = factor * total, abs(factor) * length
    if bias is not None and shown is not None:
        logits += bias * shown
        logit_total, logit_length = logits.sum(dim=-1), torch.linalg.vector_norm(logits, dim=-1)
    if shown is not None:
        logits += (shown - 1.0) * FAR

    chosen = _argmax(logits).unsqueeze(-1)
    largest = logits.gather(-1, chosen).squeeze(-1)
    logits.scatter_(-1, chosen, -FAR)
    second = logits.amax(dim=-1)
    weights = torch.softmax(logits, dim=-1)
    sums = _Sums(
        number.expand(total.shape),
        total,
        length,
        logit_total,
        logit_length,
        largest,
        second,
        weights.amax(dim=-1),
        torch.linalg.vector_norm(weights, dim=-1),
        torch.linalg.vecdot(weights, logits),
    )
    return sums, weights, chosen


def _argmax(numbers: Tensor) -> Tensor:
    """Return argmax along the last axis: on a CPU NumPy's, which takes a tenth of the time."""
    if numbers.device.type == "cpu":
        return torch.from_numpy(np.argmax(numbers.numpy(), axis=-1))
    return numbers.argmax(dim=-1)


def _from_sums(sums: _Sums) -> tuple[Tensor, ...]:
    """Return the first six fields of _Rows, from sums in double precision.

    With ε = e^{s₂ − s₁} for the two largest logits, the others have the weights ε f_i in units of
    the largest; F = Σ f = 1/peak.
    """
    gap = sums.largest - sums.second
    epsilon = torch.exp(-gap)
    total = 1.0 / sums.peak
    squares = (total * sums.length) ** 2
    normaliser = 1.0 + epsilon * total
    collision_probability = (1.0 + epsilon**2 * squares) / normaliser**2
    below = total * (gap + sums.second - sums.weighted)  # Σ f (s₁ − s_i)
    entropy = torch.log(normaliser) + epsilon * below / normaliser
    pairs = 2.0 * total + epsilon * (total**2 - squares)
    log_complement = torch.log(pairs) - gap - 2.0 * torch.log(normaliser)
    return (
        sums.number,
        _variance(sums.score_total, sums.score_length, sums.number),
        _variance(sums.logit_total, sums.logit_length, sums.number),
        collision_probability,
        entropy,
        log_complement,
    )


def _variance(total: Tensor, length: Tensor, number: Tensor) -> Tensor:
    """Return the unbiased variance of numbers of this sum and Euclidean length."""
    spread = length**2 - total**2 / number.clamp(min=1.0)
    return spread.clamp(min=0.0) / (number - 1.0).clamp(min=1.0)


# --- the report -----------------------------------------------------------------------------------


class Report:
    """What `probe` has measured: a table, a figure, JSON, and a summary when printed."""

    def __init__(self) -> None:
        self._measured: dict[tuple[str, int, int, int], list[_Measured]] = {}
        self._written: list[dict[str, Any]] = []

    @property
    def definitions(self) -> dict[str, str]:
        """What each column of the table is, and what random scores are."""
        return {**DEFINITIONS, "random": RANDOM}

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return not self._measured

    def add(self, layer: str, call: int, measured: _Measured) -> None:
        """Add a call of attention, number `call` of that layer in a run of the model."""
        heads = measured.value_variance.shape[-1]
        key = layer, call, heads, measured.dimension
        self._measured.setdefault(key, []).append(measured)
        self._written = []

    def table(self) -> Any:
        """Return a pandas DataFrame, one row for each layer and head, in the order of the calls.

        Its columns are those of `DEFINITIONS`. NaN stands for a mean over no rows, and for random
        scores at an α above 10⁴.
        """
        import pandas as pd

        return pd.DataFrame(self._lines(), columns=list(DEFINITIONS))

    def rows(self) -> Any:
        """Return a pandas DataFrame, one row for each row of attention that sees two keys or more.

        Columns: layer, call, head, sequence, query, keys (n), alpha (standard deviation of its own
        logits), collision_probability, entropy, gradient (with the head's α).
        """
        import pandas as pd

        parts = [
            pd.DataFrame(
                {
                    "layer": head.layer,
                    "call": head.call,
                    "head": head.head,
                    "sequence": head.sequence,
                    "query": head.query,
                    "keys": head.rows.keys.astype(np.int64),
                    "alpha": np.sqrt(head.rows.variance),
                    "collision_probability": head.rows.collision_probability,
                    "entropy": head.rows.entropy,
                    "gradient": head.alpha * np.exp(head.rows.log_complement),
                }
            )
            for head in self._heads()
        ]
        return pd.concat(parts, ignore_index=True)

    def to_json(self) -> str:
        """Return the definitions and the table as JSON; null where a number is not finite."""
        heads = [
            {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in line.items()
            }
            for line in self._lines()
        ]
        content = {"definitions": self.definitions, "heads": heads}
        return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)

    def plot(self) -> "Figure":
        """Return a figure: each head's effective number of keys, and that of random scores.

        Across, α in units of the critical one. A head on the line does what random scores of its
        size would do; the thin line shows how far from it the head is.
        """
        import matplotlib.pyplot as plt

        lines = self._lines()
        layers = list(dict.fromkeys((line["layer"], line["call"]) for line in lines))
        colors = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(layers)))
        figure, axes = plt.subplots()
        axes.axvline(1.0, color="0.6", linewidth=0.8, linestyle=":")
        for line in lines:
            x = line["alpha"] / line["critical_alpha"]
            ends = line["random_effective_keys"], line["effective_keys"]
            color = colors[layers.index((line["layer"], line["call"]))]
            axes.plot([x, x], ends, "-", color=color, linewidth=0.8)
            axes.plot(x, ends[1], "o", color=color)
        for random, heads in _theories(self._heads()).items():
            alphas = [head.alpha for head in heads if 0.0 < head.alpha < exact.LARGEST_SCALE]
            if alphas:
                grid = np.geomspace(min(0.3, *alphas), max(1.0, *alphas), 30)
                keys = random.columns(grid)["random_effective_keys"]
                axes.plot(grid / random.critical_alpha, keys, "k-", linewidth=1.2)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="effective α / critical α",
            ylabel="effective number of keys 1/Y",
        )
        return figure

    def __repr__(self) -> str:
        layers: dict[str, list[dict[str, Any]]] = {}
        for line in self._lines():
            name = line["layer"] if not line["call"] else f"{line['layer']} {line['call']}"
            layers.setdefault(name, []).append(line)
        text = [
            "Means over the heads of a layer; on the right of a number that of random scores.",
            "",
            f"{'layer':20}{'α':>6}{'α_c':>6}{'frozen':>10}{'keys 1/Y':>14}{'entropy':>12}"
            f"{'gradient':>12}{'output std':>14}",
        ]
        for name, lines in layers.items():

            def of(column: str, lines: list[dict[str, Any]] = lines) -> float:
                return _mean(np.array([line[column] for line in lines]))

            def both(column: str, spec: str, of: Callable[[str], float] = of) -> str:
                return f"{of(column):{spec}}{of(f'random_{column}'):{spec}}"

            text.append(
                f"{name if len(name) < 20 else '…' + name[-18:]:20}"
                f"{of('alpha'):6.2f}{of('critical_alpha'):6.2f}{both('frozen', '5.2f')}"
                f"{both('effective_keys', '7.1f')}{both('entropy', '6.2f')}"
                f"{both('gradient', '6.2f')}{both('output_std', '7.3f')}"
            )
        text.append("")
        shown = ("alpha", "critical_alpha", "frozen", "effective_keys", "entropy", "gradient")
        text += [f"{name}: {DEFINITIONS[name]}" for name in (*shown, "output_std")]
        return "\n".join([*text, RANDOM])

    def _heads(self) -> list["_Head"]:
        return [
            _head(layer, call, head, dimension, calls)
            for (layer, call, heads, dimension), calls in self._measured.items()
            for head in range(heads)
        ]

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines of the table; the theory takes a second, so they are kept."""
        if not self._written:
            heads = self._heads()
            lines = {}
            for random, alike in _theories(heads).items():
                columns = random.columns(np.array([head.alpha for head in alike]))
                for i, head in enumerate(alike):
                    expected = {name: float(column[i]) for name, column in columns.items()}
                    lines[head.place] = _line(head, random, expected)
            self._written = [lines[head.place] for head in heads]
        return self._written


class _Head(NamedTuple):
    """A head, with the rows that see two keys or more: one array for each field of `rows`."""

    layer: str
    call: int
    head: int
    dimension: int
    scale: float
    alpha: float
    value_std: float
    sequence: NDArray[np.int64]
    query: NDArray[np.int64]
    rows: _Rows

    @property
    def place(self) -> tuple[str, int, int, int]:
        return self.layer, self.call, self.head, self.dimension


def _head(layer: str, call: int, head: int, dimension: int, calls: list[_Measured]) -> _Head:
    fields = [
        np.concatenate([part[:, head].ravel() for part in parts])
        for parts in zip(*(one.rows for one in calls), strict=True)
    ]
    counted = fields[0] >= 2.0
    rows = _Rows(*(field[counted].astype(np.float64) for field in fields))
    lengths = [one.rows.keys.shape[-1] for one in calls for _ in one.rows.keys]
    sequence = np.repeat(np.arange(len(lengths)), lengths)[counted]
    query = np.concatenate([np.arange(length) for length in lengths])[counted]
    variances = np.concatenate([one.value_variance[:, head] for one in calls])
    with np.errstate(invalid="ignore"):
        return _Head(
            layer,
            call,
            head,
            dimension,
            calls[-1].scale,
            alpha=_root_mean(rows.variance),
            value_std=_root_mean(variances[sequence]),
            sequence=sequence,
            query=query,
            rows=rows,
        )


def _mean(numbers: FloatArray | NDArray[np.bool_]) -> float:
    return float(numbers.mean()) if numbers.size else math.nan


def _root_mean(squares: FloatArray) -> float:
    return math.sqrt(_mean(squares))


def _line(head: _Head, random: "_RandomScores", expected: dict[str, float]) -> dict[str, Any]:
    """Return a line of the table."""
    rows, alpha = head.rows, head.alpha
    relative = np.sqrt(rows.variance) / freezing.critical_alpha(rows.keys)
    complement = np.exp(rows.log_complement)
    collision_probability = _mean(rows.collision_probability)
    line = {
        "layer": head.layer,
        "call": head.call,
        "head": head.head,
        "rows": rows.keys.size,
        "keys": _mean(rows.keys),
        "dimension": head.dimension,
        "scale": head.scale,
        "score_std": _root_mean(rows.score_variance),
        "alpha": alpha,
        "critical_alpha": random.critical_alpha,
        "alpha_to_critical": _mean(relative),
        "frozen": _mean(relative >= 1.0),
        "collision_probability": collision_probability,
        "effective_keys": 1.0 / collision_probability,
        "entropy": _mean(rows.entropy),
        "gradient": alpha * _mean(complement),
        "gradient_median": alpha * float(np.median(complement)) if complement.size else math.nan,
        "gradient_mean_log": _mean(rows.log_complement) + (math.log(alpha) if alpha else -math.inf),
        "gradient_share": alpha * _mean(complement) / random.gradient_limit,
        "value_std": head.value_std,
        "output_std": _root_mean(rows.output_square),
        **expected,
        "random_output_std": head.value_std * math.sqrt(expected["random_collision_probability"]),
    }
    return {name: line[name] for name in DEFINITIONS}


# --- random scores --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RandomScores:
    """The theory for rows of scores in d dimensions: `counts` rows of n keys, for each n."""

    dimension: int
    n: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def critical_alpha(self) -> float:
        """The mean of √(2 log n)."""
        return float(self._mean(freezing.critical_alpha(self.n)))

    @property
    def gradient_limit(self) -> float:
        """The mean of the gradient's limit as α → ∞."""
        nodes = self._nodes(NODES)
        limits = exact.gradient_limit(DotProduct(self.dimension), nodes)
        return float(self._mean(self._between(nodes, limits)))

    def columns(self, alphas: FloatArray) -> dict[str, FloatArray]:
        """Return the columns that the theory fills, one number for each α."""
        names = [name for name in DEFINITIONS if name.startswith("random_")]
        columns = {name: np.full(alphas.shape, math.nan) for name in names}
        usable = alphas <= exact.LARGEST_SCALE
        if self.n and usable.any():
            alpha = alphas[usable]
            law, nodes = DotProduct(self.dimension), self._nodes(NODES)
            by_n = alpha[:, None], nodes
            logs = np.log(exact.collision_probability(law, *by_n))
            collision_probability = self._mean(np.exp(self._between(nodes, logs)))
            found = {
                "random_frozen": self._mean(self._frozen(alpha)),
                "random_collision_probability": collision_probability,
                "random_effective_keys": 1.0 / collision_probability,
                "random_entropy": self._mean(self._between(nodes, exact.entropy(law, *by_n))),
                "random_gradient": alpha * (1.0 - collision_probability),
            }
            for name, values in found.items():
                columns[name][usable] = values
        return columns

    def _frozen(self, alpha: FloatArray) -> FloatArray:
        """Return P(α r √(χ²/(n − 1)) ≥ √(2 log n)), with n − 1 degrees of freedom, r² ~ χ²_d/d."""
        nodes = self._nodes(3 * NODES)
        shares = (np.arange(64) + 0.5) / 64
        lengths = alpha[:, None, None] ** 2 * chdtri(self.dimension, shares) / self.dimension
        threshold = ((nodes - 1.0) * 2.0 * np.log(nodes))[:, None]
        with np.errstate(divide="ignore"):
            probability = chdtrc(nodes[:, None] - 1.0, threshold / lengths).mean(axis=-1)
        return self._between(nodes, probability)

    def _nodes(self, count: int) -> FloatArray:
        """Return about `count` of the numbers of keys, the smallest and the largest included."""
        n = np.array(self.n)
        return n if n.size <= count else np.unique(np.round(np.geomspace(n[0], n[-1], count)))

    def _between(self, nodes: FloatArray, values: FloatArray) -> FloatArray:
        """Return the values at every n from those at the nodes; the last axis is n."""
        if nodes.size == len(self.n):
            return values
        return cast(FloatArray, CubicSpline(np.log(nodes), values, axis=-1)(np.log(self.n)))

    def _mean(self, values: FloatArray) -> FloatArray:
        """Return the mean over the rows of what is given for each n, on the last axis."""
        if not self.n:
            return np.full(values.shape[:-1], math.nan)
        return np.average(values, axis=-1, weights=self.counts)


def _theories(heads: Sequence[_Head]) -> dict[_RandomScores, list[_Head]]:
    """Return the heads by the theory of their rows."""
    theories: dict[_RandomScores, list[_Head]] = {}
    for head in heads:
        n, counts = np.unique(head.rows.keys, return_counts=True)
        random = _RandomScores(head.dimension, tuple(n.tolist()), tuple(counts.tolist()))
        theories.setdefault(random, []).append(head)
    return theories
