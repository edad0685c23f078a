"""Record what the audit says of each family, as released and with a fault put in.

    python -m experiments.census --audit [--part 2/4] [--again gemma4,llama4]

Each model of the census is built as there, small and without weights. Where the census puts ±1 in
the place of a product with a weight, here each row of a weight has one number, ±1, in a place of
its own: a linear map of what came before, so that implementations can be compared. The faults
are put in where the module hands q, k and its scale to a function of attention, or to a softmax,
and the audit looks for them as in any model.
"""

import inspect
import math
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial, wraps
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.auditing import Report, audit, models
from attnlib.models.attention_call import HIDDEN, MULTI_HEAD, TRANSPARENT_MULTI_HEAD
from attnlib.models.interception import LOOKS_LIKE_ATTENTION
from experiments import provenance
from experiments.census import error_line, families, run_limited
from experiments.census.watched import WithoutWeights
from experiments.records import Record, compute_missing_at, load, path_of, save

NAME = "census_audit"
SECONDS = 20
"""Of the processor, for an audit; ten times as many for a family."""
LENGTH = 32
"""No law in n is looked for."""
NOISE = torch.randn(1 << 20, generator=torch.Generator().manual_seed(2))
NORM = re.compile(r"^(q|k|qk|query|key)_?\w*norm|norm_?(q|k)$|^(q|k)_ln$|^qk_?l2", re.IGNORECASE)
"""The names of norms of queries and keys, of a latent vector (q_a_layernorm) not among them."""


class Sparse(WithoutWeights):
    """A mode in which each row of a weight has one number, ±1, in a place of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self.maps: dict[Any, tuple[int, Tensor, Tensor]] = {}

    def run_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the function with sparse weights."""
        if func is MULTI_HEAD:
            with self:
                return TRANSPARENT_MULTI_HEAD(*args, **kwargs)
        stand_in = self.replace_product(func, args, kwargs)
        return func(*args, **kwargs) if stand_in is None else stand_in

    def projected(self, given: Tensor | None, shape: Any, weight: Any) -> Tensor:
        """Return numbers of `given` with signs; for tokens, a vector of noise each."""
        by_token = given is not None and given.shape[:-1] == tuple(shape[:-1])
        if given is None or not given.is_floating_point():
            given, by_token = NOISE[: shape[-1]] if given is None else given, False
        outputs = shape[-1] if by_token else math.prod(shape)
        inputs = given.shape[-1] if by_token else given.numel()
        of_weight = () if weight is None else (weight.data_ptr(), tuple(weight.shape))
        key = of_weight, outputs, inputs
        if key not in self.maps:
            draw = torch.Generator().manual_seed(len(self.maps))
            places = torch.randint(inputs, (outputs,), generator=draw)
            signs = torch.randint(2, (outputs,), generator=draw) * 2.0 - 1.0
            self.maps[key] = len(self.maps), places, signs
        number, places, signs = self.maps[key]
        if not given.is_floating_point():
            rows = given.long()[..., None] * 1009 + torch.arange(shape[-1]) + 7919 * number
            return NOISE[rows % len(NOISE)]
        mixed = given[..., places] if by_token else given.flatten()[places].reshape(shape)
        return mixed * (signs if by_token else signs.reshape(shape)).to(given.dtype)


@contextmanager
def use_sparse_weights(model: nn.Module) -> Iterator[None]:
    """Use sparse weights while the model runs, and only then."""
    mode, stack = Sparse(model), ExitStack()

    def start(*_: Any) -> None:
        stack.enter_context(mode)

    with (
        model.register_forward_pre_hook(start),
        model.register_forward_hook(lambda *_: stack.close(), always_call=True),
    ):
        yield


@contextmanager
def cache_kernels() -> Iterator[None]:
    """Ask each function of attention once, at its first use: faults change its arguments."""
    ask, known = models._audit_kernels, dict[Any, Any]()
    functions = models._implementations

    def ask_once(call: models.ObservedCall, length: int) -> Any:
        options = tuple(call.options), call.options.get("softcap")
        key = type(call.module), call.size, call.scaling, options
        return known.get(key) or known.setdefault(key, ask(call, length))

    def first_function(module: Any) -> Any:
        return dict([next(iter(functions(module).items()))])

    once = mock.patch.object(models, "_audit_kernels", ask_once)
    with once, mock.patch.object(models, "_implementations", first_function):
        yield


class Place(NamedTuple):
    """A layer of attention that the audit has seen."""

    model: Any
    inputs: dict[str, Any]
    name: str
    module: nn.Module


@cache_kernels()
def audit_family(family: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the audit's answers on each model of a family, and on each fault."""
    released, places = [], []
    for model, inputs in runnable_modules(family):
        answer, report = run_audit(model, inputs)
        released.append({"model": type(model).__name__, **answer})
        modules = dict(model.named_modules())
        names = [name.partition(" (")[0] for name in (report.parts if report else ())]
        names = ["" if name == "the module" else name for name in names]
        places += [Place(model, inputs, name, modules[name]) for name in names if name in modules]
    return {"released": released, "faults": audit_faults(places, rows)}


def runnable_modules(family: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield models, or layers, that show each kind of attention of a family, and their inputs."""
    for file in families.files(family):
        kinds = {kind.__name__: kind for kind in families.attention_of(file)}
        missing = set(kinds)
        configs_done: set[Any] = set()
        for kind in families.models_of(file):
            if kind.config_class in configs_done or (configs_done and not missing):
                continue
            with suppress(Exception):
                for part, inputs in runnable_parts(families.build_model(kind)):
                    has = {type(module).__name__ for module in part.modules()}
                    if kinds and not any(map(LOOKS_LIKE_ATTENTION.search, has)):
                        continue
                    configs_done.add(kind.config_class)
                    missing -= has
                    yield part, inputs
        for name in sorted(missing):
            for layer, call in families.build_layers(kinds[name], file):
                layer_inputs = randomise(getattr(call, "keywords", {}))
                if can_run(layer, layer_inputs):
                    yield layer, layer_inputs
                    break


def runnable_parts(model: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the model, or the parts of it that run, with their inputs."""
    names = {module: name for name, module in model.named_modules()}
    ran: list[str] = []
    for part in families.model_parts(model):
        part.config.use_cache = False
        if any(f"{names[part]}.".startswith(prefix) for prefix in ran):
            continue
        for inputs in map(randomise, families.inputs(part)):
            # the places of the census are far apart
            if "position_ids" not in inputs and can_run(part, inputs):
                ran.append(f"{names[part]}." if names[part] else "")
                yield part, inputs
                break
        if "" in ran:
            return


def randomise(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs with random numbers in them."""
    draw = torch.Generator().manual_seed(3)

    def filled(value: Any) -> Any:  # a tuple is a rotation
        is_float = isinstance(value, Tensor) and value.is_floating_point()
        return torch.randn(value.shape, generator=draw) if is_float else value

    return {name: filled(value) for name, value in inputs.items()}


def can_run(module: nn.Module, inputs: dict[str, Any]) -> bool:
    """Return whether a module runs on these inputs."""
    with suppress(Exception), use_sparse_weights(module), torch.no_grad():
        module(**inputs)
        return True
    return False


def run_audit(model: Any, inputs: dict[str, Any]) -> tuple[dict[str, Any], Report | None]:
    """Return the audit's answer in some words, and its report."""
    start = time.process_time()
    report = None
    try:
        with limit_time(), use_sparse_weights(model):
            report = audit(model, inputs, length=LENGTH)
        words = {True: "passed", False: "findings", None: "not known"}
        answer: dict[str, Any] = {"is": words[report.passed]}
        answer["codes"] = sorted({f"{finding.code} {finding.where}" for finding in report.findings})
        lines = [str(finding) for finding in report.findings] or list(report.unknown)
        answer["lines"] = [line[:200] for line in lines[:4]]
    except TimeoutError:
        answer = {"is": "too long", "lines": [f"more than {SECONDS} s"]}
    except Exception as error:
        refused = isinstance(error, RuntimeError | ValueError)
        ours = refused and "/attnlib/" in traceback.extract_tb(error.__traceback__)[-1].filename
        line = error_line(type(error).__name__, error, 200)
        answer = {"is": "refused" if ours else "traceback", "lines": [line]}
    return {**answer, "seconds": round(time.process_time() - start, 2)}, report


@contextmanager
def limit_time() -> Iterator[None]:
    """Raise TimeoutError in the context after SECONDS of the processor."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# --- faults ---------------------------------------------------------------------------------------


def audit_faults(places: list[Place], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the audit's answer on each fault that the family can have."""
    answers: dict[str, Any] = {}
    if places:
        answers["doubled"] = audit_wrong_scale(places[-1], 2.0)
    for place in reversed(places):
        kind = type(place.module).__name__
        of_kind = [row for row in rows if row["kind"] == kind]
        times = {row["d"]: row["d"] ** -0.5 / row["scale"] for row in of_kind}
        if any(abs(factor - 1.0) > 5e-3 for factor in times.values()) and "1/√d" not in answers:
            answers["1/√d"] = audit_wrong_scale(place, times)
        normed = of_kind and all("norm" in row and set(row["norm"]) != {"no"} for row in of_kind)
        if normed and "no norm" not in answers:
            answers["no norm"] = audit_without_norm(place)
    return answers


def audit_wrong_scale(place: Place, times: dict[int, float] | float) -> dict[str, Any]:
    """Audit the model while one layer multiplies q·k by so much more, for each d."""
    with multiply_scale(place.module, times) as by:
        answer, _ = run_audit(place.model, place.inputs)
    return add_layer(answer, place, by=by)


def audit_without_norm(place: Place) -> dict[str, Any]:
    """Audit the model while one layer leaves out its norms of q and k."""
    module = place.module
    norms = {name: part for name, part in module.named_children() if NORM.search(name)}
    if not norms:
        return {"is": "not put in", "lines": ["the norm is no module"], "layer": place.name}
    for name in norms:
        setattr(module, name, AsItIs())
    try:
        answer, _ = run_audit(place.model, place.inputs)
    finally:
        for name, part in norms.items():
            setattr(module, name, part)
    return add_layer(answer, place, norms=sorted(norms))


def add_layer(answer: dict[str, Any], place: Place, **more: Any) -> dict[str, Any]:
    """Return the answer with the layer and its class, and whether a finding names the layer."""
    named = any(place.name in code for code in answer.get("codes", ()))
    kind = type(place.module).__name__
    return {**answer, "named": named, "layer": place.name, "kind": kind, **more}


class AsItIs(nn.Module):
    """Takes the place of a norm, and returns its input."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        """Return the input."""
        return x


@contextmanager
def multiply_scale(module: nn.Module, times: dict[int, float] | float) -> Iterator[list[str]]:
    """Multiply the scale that a module hands over, or the logits of its softmax, while it runs.

    Yields a list of the place where that was done, and the factor.
    """
    from transformers import AttentionInterface

    asks = "get_interface(" in inspect.getsource(type(module))
    running: list[bool] = []
    place_and_factor: list[str] = []
    hooks: list[Any] = [
        module.register_forward_pre_hook(lambda *_: running.append(True)),
        module.register_forward_hook(lambda *_: running.clear(), always_call=True),
    ]
    get = AttentionInterface.get_interface

    def use_factor(where: str, d: int = 0) -> float:
        """Note where the scale is multiplied, end the module's turn, and return the factor."""
        running.clear()
        by = times.get(d, next(iter(times.values()))) if isinstance(times, dict) else times
        place_and_factor[:] = [where, f"{by:.4g}"]
        return by

    def wrong_scale(where: str, query: Tensor, own: float | None) -> float:
        d = query.shape[-1]
        return (d**-0.5 if own is None else own) * use_factor(where, d)

    def get_scaled(registry: Any, *names: Any, **named: Any) -> Any:
        """Return the registered function of attention, called with the wrong scale."""
        function = get(registry, *names, **named)

        def called(part: Any, query: Tensor, *args: Any, scaling: Any = None, **rest: Any) -> Any:
            scaling = wrong_scale("scaling", query, scaling)
            return function(part, query, *args, scaling=scaling, **rest)

        return called if running else function

    def scale_logits(softmax: Callable[..., Any]) -> Callable[..., Any]:
        """Return a softmax that multiplies logits first."""

        @wraps(softmax)  # modes go by its name
        def called(*args: Any, **named: Any) -> Any:
            logits, *others = args or (named.pop("input"),)
            axis = named.get("dim", others[0] if others else -1)
            written_out = running and not asks
            if written_out and logits.dim() > 2 and axis in (-1, logits.dim() - 1):
                logits = torch.where(logits > HIDDEN, logits * use_factor("softmax"), logits)
            return softmax(logits, *others, **named)

        return called

    def scale_fused(fused: Callable[..., Any]) -> Callable[..., Any]:
        """Return fused attention with the wrong scale."""

        @wraps(fused)
        def called(query: Tensor, *args: Any, scale: float | None = None, **named: Any) -> Any:
            scale = wrong_scale("fused", query, scale) if running else scale
            return fused(query, *args, scale=scale, **named)

        return called

    fused = functional.scaled_dot_product_attention
    patches: list[tuple[Any, str, Any]] = [
        (AttentionInterface, "get_interface", get_scaled),
        *((owner, "softmax", scale_logits(owner.softmax)) for owner in (torch, Tensor, functional)),
        (functional, "scaled_dot_product_attention", scale_fused(fused)),
    ]
    with ExitStack() as stack:
        for context in (*hooks, *(mock.patch.object(*patch) for patch in patches)):
            stack.enter_context(context)
        yield place_and_factor


def audit_in_process(family: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Audit a family in a process of its own, in limited time and memory."""
    answers = run_limited(10 * SECONDS, audit_family, family, rows)
    if isinstance(answers, str):
        answers = {"released": [{"is": "too long", "lines": [answers]}], "faults": {}}
    return {**answers, "commit": provenance.commit()}


def record_audits(part: str = "1/1", again: str = "") -> Record:
    """Record the families of a part, K of N, that are not recorded yet, and some once more.

    Families that are done stay as they are when code has changed: each has the commit that it was
    done with.
    """
    number, parts = map(int, part.split("/"))
    rows = {entry.key["family"]: entry.result["rows"] for entry in load("census").entries}
    path = path_of(NAME)
    previous = load(path) if path.exists() else None
    if previous:
        kept = [entry for entry in previous.entries if entry.key["family"] not in again.split(",")]
        made_before = {name: value for name, value in previous.made.items() if name != "commit"}
        previous = previous._replace(entries=tuple(kept), made=made_before)
        save(path, previous)
    before = {entry.key["family"] for entry in previous.entries} if previous else set()
    wanted = [name for name in rows if rows[name]]
    made = provenance.made("numpy", "scipy", "torch", "transformers", threads=1)
    del made["commit"]
    record = compute_missing_at(
        path,
        [
            ({"family": name}, partial(audit_in_process, name, rows[name]))
            for i, name in enumerate(wanted)
            if i % parts == number - 1 or name in before
        ],
        command="python -m experiments.census --audit",
        settings={"length": LENGTH, "seconds": SECONDS},
        made=made,
    )
    save(path, record._replace(made={**made, "commit": provenance.commit()}))
    return load(path)
