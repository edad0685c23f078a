"""Check the tools on a device against the CPU's float64, and time them there.

Each check makes the same numbers twice from inputs rounded to one type: on the device in that type,
and on the CPU in float64. Its error is the largest ‖a − b‖/‖b‖ of their arrays, and of a fit the
distance of log t from what is known.
"""

import json
import math
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnlib import _files
from attnlib.attention import attend, register, rescale
from attnlib.auditing import audit
from attnlib.calibration import fit_scales, scale_gradient
from attnlib.models.torch_internals import eagerly
from attnlib.probing import Monitor, probe
from experiments.lab.descent import Descent, descend, on_own_stream
from experiments.lab.model import Config, Transformer, loss, written_out
from experiments.provenance import processor
from experiments.records import Fields

KERNELS = {
    "default": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
LIMITS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}
"""The largest error that rounding explains; TF32 in place of float32 exceeds it."""
FITTED = {"float32": 0.01, "float16": 0.05, "bfloat16": 0.1}
"""The same in log t of a fit."""
COLUMNS = ("alpha", "collision_probability", "entropy", "log_sum_exp", "value_std", "output_std")
D = 64


class UnavailableError(Exception):
    """A check needs something that is not there; the message says what."""


class Place(NamedTuple):
    """The device and type in which a check computes, and the length of its texts."""

    device: str
    dtype: torch.dtype
    rounded: torch.dtype
    """The type to which all inputs were rounded before."""
    length: int
    kernel: str = "default"
    compiled: bool = False

    def put(self, tensor: Tensor) -> Tensor:
        """Return a tensor, rounded, in the type and on the device."""
        return tensor.to(self.rounded).to(self.device, self.dtype)

    def draw(self, *shape: int, seed: int = 0) -> Tensor:
        """Return normal numbers of a shape."""
        return self.put(torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)))

    def tokens(self, seed: int = 0) -> Tensor:
        """Return two texts of random bytes, (2, length + 1)."""
        drawn = np.random.default_rng(seed).integers(0, 256, (2, self.length + 1))
        return torch.from_numpy(drawn).to(self.device)

    def decoder(self, **changes: Any) -> Transformer:
        """Return a decoder of random parameters."""
        sizes = {"width": 2 * D, "depth": 2, "sequence": self.length, "positions": "rotary"}
        model = Transformer(Config(**{**sizes, "alpha": 2.0, **changes}), 0, torch.float64)
        return model.to(self.rounded).to(self.device, self.dtype)

    def compile_function(self, function: Any) -> Any:
        """Return a function or module, compiled if the place is."""
        return torch.compile(function) if self.compiled else function

    def with_kernel(self) -> AbstractContextManager[Any]:
        """Return a context in which attention uses the kernel."""
        backend = KERNELS[self.kernel]
        return nullcontext() if backend is None else sdpa_kernel(backend)


Numbers = list[Any]
Tool = Callable[[Place], Numbers]


# --- the tools ------------------------------------------------------------------------------------


def attend_numbers(place: Place) -> Numbers:
    """Return outputs and gradients of `attend`: a policy, and cosines with the exact factor."""
    numbers: Numbers = []
    policy: dict[str, Any] = {"policy": "ssmax", "is_causal": True}
    cosines: dict[str, Any] = {"scale": 16.0, "normalize_qk": True, "post_scale": "exact"}
    run = place.compile_function(attend)
    for options in (policy, cosines):
        q, k, v, weights = (place.draw(1, 4, place.length, D, seed=i) for i in range(4))
        leaves = [t.requires_grad_() for t in (q, k, v)]
        output = run(*leaves, **options)
        numbers += [output, *torch.autograd.grad(output, leaves, weights)]
    return numbers


def rescale_numbers(place: Place) -> Numbers:
    """Return the logits of a decoder under `rescale`, and the gradient of a matrix."""
    model, tokens = place.decoder(), place.tokens()
    with rescale(factor="ssmax", train_length=place.length // 4):
        logits = place.compile_function(model)(tokens[:, :-1])
        mean_loss = loss(logits.double(), tokens[:, 1:])
        return [logits, *torch.autograd.grad(mean_loss, [model.token.weight])]


def register_numbers(place: Place) -> Numbers:
    """Return the logits of a model of transformers under `register`."""
    if find_spec("transformers") is None:
        raise UnavailableError("transformers is not installed")
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 2 * D, "intermediate_size": 2 * D, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()
    model.set_attn_implementation(register(factor="ssmax", train_length=place.length // 4))
    model = model.to(place.rounded).to(place.device, place.dtype)
    with torch.no_grad():
        return [model(place.tokens()).logits]


def probe_numbers(place: Place) -> Numbers:
    """Return the columns that the probe measures of the heads."""
    model, tokens = place.decoder(), place.tokens()
    with torch.no_grad(), probe(model, theory=False) as report:
        model(tokens)
    heads = json.loads(report.to_json())["heads"]
    return [np.array([head[name] for head in heads]) for name in COLUMNS]


def monitor_numbers(place: Place) -> Numbers:
    """Return the columns that a Monitor measures in the first of two training steps."""
    if find_spec("pandas") is None:
        raise UnavailableError("pandas is not installed")
    model, tokens = place.decoder(), place.tokens()
    run = place.compile_function(model)
    with Monitor(run, every=2, on_alarm=lambda alarm: None) as monitor:
        for _ in range(2):
            torch.autograd.backward(byte_loss(run, tokens))
    return [monitor.tables[0][name].to_numpy() for name in COLUMNS]


def audit_numbers(place: Place) -> Numbers:
    """Return the scale that an audit finds; AssertionError if it misses a wrong scale."""
    options: dict[str, Any] = {"d": D, "length": 128, "dtype": place.dtype, "device": place.device}
    report = audit(functional.scaled_dot_product_attention, **options)
    wrong = audit(functional.scaled_dot_product_attention, expected=0.15, **options)
    codes = [finding.code for finding in wrong.findings]
    if not report.passed or codes != ["scale"] or report.scale is None:
        raise AssertionError(f"found {report.findings}, and {codes} where the scale is wrong")
    return [report.scale.value[-1:]]


def scale_gradients(place: Place) -> Numbers:
    """Return the scale gradient of each head, of three texts."""
    texts = [place.tokens(seed) for seed in range(3)]
    return [scale_gradient(place.decoder(), texts, byte_loss).value]


def fit_numbers(place: Place) -> Numbers:
    """Return 1 + log t of a decoder, fitted to one that has twice its logits."""
    teacher = place.decoder()

    def of_teacher(model: nn.Module, text: Tensor) -> Tensor:
        """Return the cross-entropy of the model under the teacher's probabilities."""
        with torch.no_grad():
            weights = teacher(text).double().softmax(-1)
        return functional.cross_entropy(model(text).double().flatten(0, 1), weights.flatten(0, 1))

    texts = [place.tokens(seed) for seed in range(5)]
    fit = fit_scales(place.decoder(alpha=1.0), texts[:3], texts[3:], loss=of_teacher)
    return [1.0 + np.log(fit.factor(place.length)[0, :1])]


def step_losses(place: Place) -> Numbers:
    """Return the losses of some training steps, with warm-up, decay and clipping."""
    if place.dtype in (torch.float16, torch.bfloat16):
        raise UnavailableError("parameters of half precision cannot take a small step")
    model, descent = place.decoder(), Descent(steps=8, warmup=2, weight_decay=0.1, clip=1.0)
    graphs = place.device != "cpu"
    texts = [(place.tokens(seed),) for seed in range(descent.steps)]
    with on_own_stream(graphs):
        steps = descend(model, descent, texts, lambda m, t: byte_loss(m, *t), graphs=graphs)
        return [torch.stack([value.clone() for _, _, value in steps]).cpu()]


def byte_loss(model: Callable[..., Tensor], text: Tensor) -> Tensor:
    """Return the loss of a text, in nats a byte."""
    return loss(model(text[:, :-1]).double(), text[:, 1:])


TOOLS: dict[str, Tool] = {
    "attend": attend_numbers,
    "rescale": rescale_numbers,
    "register": register_numbers,
    "probe": probe_numbers,
    "Monitor": monitor_numbers,
    "audit": audit_numbers,
    "scale_gradient": scale_gradients,
    "fit_scales": fit_numbers,
    "steps": step_losses,
}
COMPILED = ("attend", "rescale", "Monitor")
"""The tools that are also tried on compiled functions and models."""


class Check(NamedTuple):
    """A tool in a type, on a kernel."""

    tool: str
    dtype: str
    kernel: str
    compiled: bool = False

    def error(self, device: str, length: int) -> float:
        """Return the largest relative distance from the CPU's float64; ∞ for NaN."""
        dtype = getattr(torch, self.dtype)
        place = Place(device, dtype, dtype, length, self.kernel, self.compiled)
        if self.compiled:
            torch._dynamo.reset()
        with place.with_kernel():
            numbers = map(_to_array, TOOLS[self.tool](place))
        errors = [
            np.linalg.norm(array - exact) / np.linalg.norm(exact)
            for array, exact in zip(numbers, _exact_numbers(self.tool, dtype, length), strict=True)
        ]
        return float(np.nan_to_num(max(errors), nan=math.inf))

    @property
    def limit(self) -> float:
        """Return the error that rounding explains."""
        return (FITTED if self.tool == "fit_scales" else LIMITS)[self.dtype]

    def answer(self, device: str, length: int) -> Fields:
        """Return the error, at most 1e9, its limit, and whether the check passed."""
        error = self.error(device, length)
        return {"error": min(error, 1e9), "limit": self.limit, "passed": error <= self.limit}


def _to_array(numbers: Any) -> Any:
    """Return numbers as an array on the CPU, in float64 if they are a tensor."""
    return numbers.detach().double().cpu().numpy() if isinstance(numbers, Tensor) else numbers


@cache
def _exact_numbers(tool: str, rounded: torch.dtype, length: int) -> Numbers:
    """Return the numbers of a tool in float64 on the CPU, from inputs of the rounded type."""
    if tool == "fit_scales":  # known, and slow to fit in float64
        return [np.array([1.0 + math.log(2.0)])]
    place = Place("cpu", torch.float64, rounded, length, "math")
    with place.with_kernel():
        return list(map(_to_array, TOOLS[tool](place)))


def planned_checks(device: str) -> list[Check]:
    """Return all checks: first those of the default, last those that compile."""
    kernels = ["math"] if device == "cpu" else list(KERNELS)
    checks = [
        Check(tool, dtype, kernel)
        for kernel in kernels
        for dtype in LIMITS
        for tool in TOOLS
        if not (kernel == "flash" and dtype == "float32")  # it has none
        and not (tool == "audit" and kernel != kernels[0])  # its heads are of sizes not all take
        and not (device == "cpu" and dtype == "float16")
    ]
    compiled = [
        check._replace(compiled=True)
        for check in checks
        if check.tool in COMPILED
        and (check.kernel == kernels[0] or (check.tool, check.dtype) == ("attend", "bfloat16"))
    ]
    return checks + sorted(compiled, key=lambda check: check.dtype != "bfloat16")


# --- what they cost -------------------------------------------------------------------------------


def milliseconds(device: str, run: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call, after a first one that is not counted."""
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return median(times[1:])


def timed_comparisons(device: str, length: int, width: int) -> dict[str, Callable[[], Fields]]:
    """Return functions that time our code and what it is compared with, by the names of both."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    place = Place(device, dtype, dtype, length)
    repeats = 1 if device == "cpu" else 9
    timed = partial(milliseconds, device, repeats=repeats)

    def both(ours: Callable[[], object], theirs: Callable[[], object]) -> Fields:
        """Return the times of both, in milliseconds."""
        return {"ours": timed(ours), "theirs": timed(theirs)}

    def attention() -> Fields:
        shape = (1, 8, 4 * length, D)
        q, k, v = (place.draw(*shape, seed=i).requires_grad_() for i in range(3))

        def attend_and_back(function: Callable[..., Tensor], **options: Any) -> None:
            torch.autograd.backward(function(q, k, v, is_causal=True, **options).sum())

        bare = partial(attend_and_back, functional.scaled_dot_product_attention)
        return both(partial(attend_and_back, attend, policy="ssmax"), bare)

    model = place.decoder(width=width, depth=8 if width > 2 * D else 2)
    tokens = place.tokens()

    def forward() -> None:
        with torch.no_grad():
            model(tokens[:, :-1])

    def under_probe() -> None:
        with probe(model, theory=False):
            forward()

    def training_step() -> None:
        torch.autograd.backward(byte_loss(model, tokens))

    def against_written_out() -> Fields:
        with mock.patch.object(functional, "scaled_dot_product_attention", written_out):
            theirs = timed(training_step)
        return {"ours": timed(training_step), "theirs": theirs}

    def against_compiled() -> Fields:
        for block in model.blocks:
            block.compile()
        ours = timed(training_step)
        with eagerly():
            return {"ours": ours, "theirs": timed(training_step)}

    return {
        "attend with a policy, gradients | bare attention": attention,
        "forward under probe | forward": partial(both, under_probe, forward),
        "scale_gradient | forward and backward": partial(
            both, partial(scale_gradient, model, [tokens], byte_loss), training_step
        ),
        "a step of the laboratory | attention written out": against_written_out,
        "a step with compiled blocks | not compiled": against_compiled,
    }


# --- the command ----------------------------------------------------------------------------------


def run_missing(file: Path, device: str, end: float, say: Callable[[str], None]) -> None:
    """Check and time what the file does not have yet, until time.monotonic() is `end`.

    Failed checks are tried again.
    """
    at_length = (64, 2 * D) if device == "cpu" else (1024, 512)
    on = processor() if device == "cpu" else torch.cuda.get_device_name(device)
    before = latest_lines(file)
    work: list[tuple[Fields, Callable[[], Fields]]] = [
        (check._asdict(), partial(check.answer, device, at_length[0]))
        for check in planned_checks(device)
    ]
    work += [
        ({"cost": name}, measure) for name, measure in timed_comparisons(device, *at_length).items()
    ]
    work.sort(key=lambda item: item[0].get("compiled", False))  # what is compiled takes longest
    for fields, measure in work:
        about = {**fields, "on": device}
        line = before.get(_key(about), {})
        if line.get("passed") or "ours" in line:
            continue
        label = ", ".join(map(str, about.values()))
        if time.monotonic() > end:
            say(f"not begun, no time is left: {label}")
            return
        start = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = measure()
        except UnavailableError as error:
            answer = {"missing": str(error)}
        except Exception as error:  # whatever a device does, the others are tried
            answer = {"failure": f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]}
        seconds = round(time.monotonic() - start, 2)
        made = f"{on}, PyTorch {torch.__version__}"
        _files.append(file, {**about, "device": made, "seconds": seconds, **answer})
        say(f"{label}: {answer}, {seconds} s")


def latest_lines(file: Path) -> dict[str, Fields]:
    """Return the last line of each check and comparison in a file."""
    return {_key(line): line for line in _files.lines(file)}


def _key(line: Fields) -> str:
    """Return the fields that tell a check or comparison from the others, as text."""
    return json.dumps([line.get(name) for name in (*Check._fields, "cost", "on")])
