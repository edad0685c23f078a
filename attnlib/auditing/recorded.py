"""Audit by files: questions that an engine in any language answers, and recorded tensors.

`write` asks a softmax that does what is intended, and saves the questions. `read` asks the answers
in the folder. It adds each question that is missing, so that the engine can answer it before the
next `read`: an engine that does what is intended needs one round, others two or three.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from attnlib import _checking, _files
from attnlib._checking import FloatArray
from attnlib.extras import extra_packages
from attnlib.policies import POLICIES, Policy, own

with extra_packages("probe"):
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load, save
    from torch import Tensor

    from attnlib.attention.options import named_policy
    from attnlib.auditing import audit
    from attnlib.auditing.explained import Softmax, explain
    from attnlib.auditing.report import Report, Scale, shown
    from attnlib.auditing.scales import agree, reason

ANSWER = ".output.safetensors"
SETTINGS = "audit.json"
LARGE_SINK = 10.0
"""A logit with which all questions are asked that a sink needs."""
STATED = ("expected", "cap", "window", "sink")
"""What options of the command state."""
README = """\
# Questions to an attention

Each NNNN.safetensors has q, of shape (queries, {heads}, size), and k and v, (keys, {key_heads}, \
size).
The size is that of a head, mostly {d}. All are {dtype}.
For each, compute your attention as it is in the engine, with its scale, {mask}, but
without turning q and k by position. Queries that are fewer than keys are the last ones.
Write the output, (queries, {heads}, size of v), as "output" into NNNN.output.safetensors.
Answer all with as many queries as keys and the size {d}. Of the others, leave out what the engine
cannot take, such as other sizes of heads: the report names it.
Then run: attnlib audit --read THIS_FOLDER {options}
It may add questions. Then answer those too, and run it again.
Not asked: masks as arguments, gradients, equal answers twice, more than {length} keys.
"""


class UnansweredError(Exception):
    """Signal that the engine has to answer further questions first."""


class Answers:
    """Answer from an engine's files, as a callable, and keep new questions."""

    def __init__(self, folder: Path, length: int, stand_in: Callable[..., Tensor]) -> None:
        self.folder, self.length, self.stand_in = folder, length, stand_in
        questions = [p for p in sorted(folder.glob("*.safetensors")) if ANSWER not in p.name]
        self.names = {sha256(path.read_bytes()).digest(): path.name for path in questions}
        self.new: dict[bytes, bytes] = {}
        self.refused: set[str] = set()
        self.question = ""  # the last one, by which an audit names an answer

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the engine's filed answer, the stand-in's if new; ValueError if it is missing."""
        if k.shape[-2] > self.length:
            raise ValueError(f"files do not ask more than {self.length} keys")
        content = save(dict(zip("qkv", _as_filed(q, k, v), strict=True)))
        name = self.names.get(digest := sha256(content).digest())
        if name is None:
            self.new[digest] = content
            return self.stand_in(q, k, v)
        answer = self.folder / _answer(name)
        if not answer.exists():
            self.refused.add(name)
            raise ValueError(f"{answer} is missing")
        self.question = name
        return _output(answer, *_as_filed(q, v)).transpose(0, 1)[None]

    def save(self) -> list[str]:
        """Write the new questions, and return the names of their files."""
        first = len(self.names) + 1
        named = {f"{i:04}.safetensors": c for i, c in enumerate(self.new.values(), first)}
        for name, content in named.items():
            _files.replace(self.folder / name, content)
        return list(named)


def write(
    folder: str | Path,
    *,
    d: int,
    heads: int = 2,
    key_heads: int | None = None,
    length: int = 256,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    causal: bool = True,
    **intent: Any,
) -> int:
    """Write the questions of an audit into a new folder, with a README.

    - `folder`: the path of the folder, which must be empty or not exist.
    - `d`, `heads`, `key_heads`, `dtype`, `kv_dtype`: as for `audit`.
    - `length`: the largest number of keys, 64 or more, by default 256.
    - `causal`: whether queries see keys up to their own only, by default True.
    - `intent`: arguments of `audit` that state the intention, by default 1/√d. Numbers and names
      are kept for `read`, which may state another intention and then adds questions.

    Returns the number of questions. Raises ValueError where the folder is not empty.
    Chapter: audit.
    """
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{folder} must be an empty folder or not be there")
    length = _checking.integer("length", length, minimum=64)
    size: dict[str, Any] = {"d": d, "heads": heads, "key_heads": key_heads or heads}
    asked = Answers(path, length, _as_meant(True, intent))
    sink = intent.get("sink")
    sinks = [sink] if sink else [sink, LARGE_SINK]
    for itself, sink in product((True, False), sinks):
        case = intent | {"sink": sink}
        asked.stand_in = _as_meant(itself, case)
        seen = _seen_keys(itself, intent)
        audit(asked, **size, length=length, dtype=dtype, kv_dtype=kv_dtype, **seen, **case)
    others, asked.new = asked.new, {}
    asked(*_probe(size, dtype))
    asked.new |= others
    settings = {**size, "length": length}
    for name, kind in (("dtype", dtype), ("kv_dtype", kv_dtype)):
        settings[name] = None if kind is None else str(kind).removeprefix("torch.")
    plain = {name: x for name, x in intent.items() if isinstance(x, int | float | str)}
    settings |= {"causal": causal, "meant": plain}
    _files.replace(path / SETTINGS, json.dumps(settings).encode())
    names = asked.save()
    settings["mask"] = "with its causal mask" if causal else "where each query sees all keys"
    stated = {"expected": "transformer", **plain}
    options = (f"--{name} {x}" for name, x in stated.items() if name in STATED)
    settings["options"] = " ".join(options)
    _files.replace(path / "README.md", README.format(**settings).encode())
    return len(names)


def read(folder: str | Path, **intent: Any) -> Report:
    """Audit the answers in a folder that `write` made, and return the report.

    - `folder`: the path of the folder.
    - `intent`: arguments of `audit` that state the intention, by default those of `write`.

    Raises UnansweredError where it had to add questions, and ValueError for a folder without
    answers and for a file that does not answer. Chapter: audit.
    """
    path = Path(folder)
    try:
        settings = json.loads((path / SETTINGS).read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} has no {SETTINGS}: it must be from --write") from error
    for name in ("dtype", "kv_dtype"):
        settings[name] = settings[name] and getattr(torch, settings[name])
    intent = settings.pop("meant") | {name: x for name, x in intent.items() if x is not None}
    intent |= _seen_keys(intent.pop("causal", settings.pop("causal")), intent)
    asked = Answers(path, settings["length"], _as_meant(True, intent))
    answered = [name for name in asked.names.values() if (path / _answer(name)).exists()]
    if not answered:
        raise ValueError(f"{folder} has no answer: write 0001{ANSWER} and so on, see its README.md")
    for name in answered:  # all before any is judged
        question = load((path / name).read_bytes())
        _output(path / _answer(name), question["q"], question["v"])
    asked.stand_in = _like_it(path, intent) or asked.stand_in
    report = audit(asked, **settings, **intent)
    if asked.new:
        names = asked.save()
        more = f"{names[0]} to {names[-1]}"
        raise UnansweredError(f"{folder} has new questions: answer {more}, and read again")
    unasked = f"masks, gradients, the same twice, over {asked.length} keys"
    window = report.facts.get("not asked")
    report.facts["not asked"] = f"{unasked}, {window}" if window else unasked
    if "expected" not in intent and report.scale is not None:
        report.unknown.append(f"found {report.scale}, and --expected is not given")
    for place, finding in enumerate(report.findings):
        if finding.code == "bias" and "declares it" in finding.evidence:
            why = "nearer keys of equal ones; files take no bias: leave it out of the answers"
            report.findings[place] = finding._replace(evidence=why)
    if asked.refused:
        report.facts["not answered"] = f"the questions {', '.join(sorted(asked.refused))}"
    return report


def _seen_keys(causal: bool, intent: dict[str, Any]) -> dict[str, Any]:
    """Return which keys are meant to be seen: queries that are fewer are the last ones."""
    aligned = {"causal_from": "last"} if causal else {}
    return aligned if intent.get("window") is not None else {"causal": causal, **aligned}


def recorded(
    file: str | Path,
    *,
    expected: Any = None,
    dtype: torch.dtype | None = None,
    cap: float | None = None,
    window: int | None = None,
    sink: float | None = None,
) -> Report:
    """Explain the q, k, v and output in a file by a softmax, or report that none does.

    - `file`: the path of a safetensors file. The axes of its tensors are (tokens, heads, size) or
      (batch, heads, tokens, size).
    - `expected`: the intended scale, as for `audit`.
    - `dtype`: the coarsest type in the computation, by default that of the tensors.
    - `cap`, `window`, `sink`: the intended soft cap, number of keys and logit of the sink; by
      default none.

    Returns a `Report`. Raises ValueError for another file or other shapes. Chapter: audit.
    """
    given = _recorded(Path(file))
    eps = max(torch.finfo(dtype or t.dtype).eps for t in given)
    q, k, v, output = _by_head(given)
    report, fit = Report(verbose=True), explain(q, k, v, output, eps, window)
    if fit is None:
        n = k.shape[1]
        for seen in {n, _seen(q, k, v, output, expected)} - {window or n}:
            if other := explain(q, k, v, output, eps, seen if seen < n else None):
                target, keys = (f"{x} keys" if x and x < n else "all keys" for x in (window, seen))
                report.add("window", target, keys, f"of {n}, times {shown(other.scale)}")
                return report
        if _fit_together(swapped := [t.transpose(-3, -2) for t in given]):
            q, k, v, output = _by_head(swapped)
            if explain(q, k, v, output, eps, window):
                axes = "tokens, heads, size", "heads, tokens, size"
                if given[0].ndim == 4:
                    axes = f"batch, {axes[1]}", f"batch, {axes[0]}"
                report.add("layout", *axes, evidence="transposed, they are those of a softmax")
                return report
        kinds = "one multiplier of q·k or the cosine, causal or not, a cap, a sink"
        report.add("softmax", "a softmax", "no softmax of these explains this", kinds)
        return report
    of = "cosine" if fit.cosine else "dot product"
    (scale, low, high), n = (np.array([end]) for end in fit.scale), np.array([float(k.shape[1])])
    report.scale = Scale(of, n, n - 1.0, scale, low, high, "one for all rows")
    none = f"none seen: logits have the size {fit.logit:.3g}"
    report.facts = {
        "causal": "unknown: one query" if q.shape[1] == 1 else "yes" if fit.causal else "no",
        "soft cap": none if fit.cap is None else shown(fit.cap),
        "sink": f"a logit of {', '.join(map(shown, fit.sink))}" if fit.sink else "none seen",
        "not explained": f"{fit.residual:.1g} of the output",
    }
    if expected is None:
        report.unknown.append(f"found {shown(fit.scale)} times the {of}")
    else:
        for code, wanted, ends in (
            ("cap", cap, [] if fit.cap is None else [fit.cap]),
            ("sink", sink, fit.sink or []),
        ):
            right = [wanted is not None and bool(agree(wanted, x.low, x.high)) for x in ends]
            if not all(right) or (wanted is not None and not ends):
                none = "none: it was not declared" if wanted is None else f"{wanted:g}"
                report.add(code, none, ", ".join(map(shown, ends)) or "none seen")
        policy = _policy(expected)
        wanted = policy.scale(n, q.shape[-1])[0]
        if policy.applied_to != of:
            report.add("cosine", f"a scale of the {policy.applied_to}", f"of the {of}")
        elif not agree(wanted, low, high).all():
            why = f"{scale[0] / wanted:.4g} times what was meant"
            why += reason(scale[0], wanted, q.shape[-1])
            report.add("scale", f"{wanted:.4g}", shown(fit.scale), why)
    return report


def _seen(q: FloatArray, k: FloatArray, v: FloatArray, output: FloatArray, expected: Any) -> int:
    """Return how many keys up to its own the last query sees, if its scale is as expected."""
    n, d = k.shape[1], q.shape[-1]
    logits = float(_policy(expected).scale(n, d)) * (k[0, ::-1] @ q[0, -1])
    weights = np.exp(logits - logits.max())[:, None]
    nearer = np.cumsum(weights * v[0, ::-1], axis=0) / np.cumsum(weights, axis=0)
    return int(np.abs(nearer - output[0, -1]).max(axis=-1).argmin()) + 1


def _probe(size: dict[str, Any], dtype: torch.dtype) -> list[Tensor]:
    """Return random q, k and v: by the answer the next stand-in is chosen."""
    random = torch.Generator().manual_seed(0)
    heads = size["heads"], size["key_heads"], size["key_heads"]
    q, k, v = (torch.randn(1, h, 24, size["d"], generator=random) for h in heads)
    return [t.to(dtype) for t in (2.0 * q, k, v)]


def _policy(expected: Any) -> Policy:
    """Return the intended policy, by default 1/√d."""
    if isinstance(expected, float | int):
        return replace(POLICIES["transformer"], rule=lambda _: expected)
    return named_policy("expected", expected or "transformer") or own(expected)


def _stand_in(kind: Softmax, rule: Callable[..., Any], *more: Any) -> Callable[..., Tensor]:
    """Return an attention of tensors with a rule for the scale, a cap and a sink."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        m, n = q.shape[-2], k.shape[-2]
        place = np.arange(n - m, n, dtype=float)
        seen = place + 1.0 if kind.causal else np.full(m, float(n))
        scale = np.reshape(rule(seen, q.shape[-1], place), (-1, 1))
        given = (t[0].detach().double().numpy() for t in (q, k, v))
        return torch.from_numpy(kind.output(*given, scale, *more))[None].to(q.dtype)

    return attention


def _as_meant(causal: bool, intent: dict[str, Any]) -> Callable[..., Tensor]:
    """Return an attention that does what is intended."""
    policy, sink = _policy(intent.get("expected")), intent.get("sink")
    kind = Softmax(policy.applied_to == "cosine", causal, intent.get("window"))
    sink = None if sink is None or sink is False else 0.0 if sink is True else sink
    return _stand_in(kind, policy.scale, intent.get("cap"), sink)


def _like_it(folder: Path, intent: dict[str, Any]) -> Callable[..., Tensor] | None:
    """Return a softmax that explains the engine's first answer; None where there is none."""
    name = "0001.safetensors"
    if not (folder / _answer(name)).exists():
        return None
    given = _loaded(folder / name, "q", "k", "v") | _loaded(folder / _answer(name), "output")
    eps = torch.finfo(given["q"].dtype).eps
    q, k, v, output = _by_head([*given.values()])
    fit = explain(q, k, v, output, eps)
    if fit is None:
        return _law_like(q, k, v, output, eps)
    policy, times = _policy(intent.get("expected")), 1.0
    kind = Softmax(fit.cosine, fit.causal, intent.get("window"))
    if fit.cosine == (policy.applied_to == "cosine"):
        times = fit.scale.value / float(policy.scale(24, q.shape[-1]))
    else:
        policy = _policy(fit.scale.value)
    cap = None if fit.cap is None else fit.cap.value
    sink = None if fit.sink is None else [interval.value for interval in fit.sink]
    return _stand_in(kind, lambda *at: times * policy.scale(*at), cap, sink)


def _law_like(
    q: FloatArray, k: FloatArray, v: FloatArray, output: FloatArray, eps: float
) -> Callable[..., Tensor] | None:
    """Return a causal softmax whose scale is a line in log n, through two rows of the answer."""
    few, many = (
        explain(q[:, n - 1 : n], k[:, :n], v[:, :n], output[:, n - 1 : n], eps) for n in (8, 24)
    )
    if few is None or many is None or few.cosine != many.cosine:
        return None
    start, slope = few.scale.value, (many.scale.value - few.scale.value) / math.log(3.0)
    kind = Softmax(few.cosine, causal=True)
    return _stand_in(kind, lambda n, d, at: start + slope * np.log(n / 8.0))


def _as_filed(*tensors: Tensor) -> list[Tensor]:
    """Return tensors of the axes (1, heads, tokens, size) as (tokens, heads, size)."""
    return [t[0].detach().transpose(0, 1).contiguous() for t in tensors]


def _by_head(given: list[Tensor]) -> Iterator[FloatArray]:
    """Return tensors of a file as arrays of the axes (heads, tokens, size)."""
    for t in given:
        yield (t.transpose(0, 1) if t.ndim == 3 else t.flatten(0, 1)).double().numpy()


def _answer(name: str) -> str:
    return name.removesuffix(".safetensors") + ANSWER


def _loaded(path: Path, *names: str) -> dict[str, Tensor]:
    """Return tensors of a file by name. Raises ValueError where one is missing or not of floats."""
    try:
        tensors = load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} is no file of safetensors: {error}") from error
    for name in names:
        if name not in tensors:
            has = ", ".join(tensors) or "none"
            raise ValueError(f"{path} must have the tensors {', '.join(names)}, has {has}")
        if not tensors[name].is_floating_point():
            raise ValueError(f"{path}: {name} must be of floats, got {tensors[name].dtype}")
    return {name: tensors[name] for name in names}


def _output(path: Path, q: Tensor, v: Tensor) -> Tensor:
    """Return the answer to a question of the axes (tokens, heads, size)."""
    output = _loaded(path, "output")["output"]
    wanted = (*q.shape[:2], v.shape[-1])
    if output.shape != wanted:
        meaning = "(queries, heads, size of v)"
        raise ValueError(f"{path}: output must be {wanted}, {meaning}, got {tuple(output.shape)}")
    if torch.finfo(output.dtype).eps > torch.finfo(q.dtype).eps:
        had = f"as q, {q.dtype}, or finer, got {output.dtype}: or ask with --dtype"
        raise ValueError(f"{path}: output must be {had}")
    return output


def _fit_together(given: list[Tensor]) -> bool:
    """Return whether the shapes of q, k, v and output are those of one attention."""
    q, k, v, output = given
    heads, tokens = (-2, -3) if q.ndim == 3 else (-3, -2)
    if q.ndim not in (3, 4) or not k.ndim == v.ndim == q.ndim == output.ndim:
        return False
    return (
        all(t.numel() for t in given)
        and q.shape[-1] == k.shape[-1]
        and q.shape[heads] % k.shape[heads] == 0
        and k.shape[:-1] == v.shape[:-1]
        and q.shape[tokens] <= k.shape[tokens]
        and output.shape == (*q.shape[:-1], v.shape[-1])
        and (q.ndim == 3 or len(q) == len(k))
    )


def _recorded(path: Path) -> list[Tensor]:
    """Return q, k, v and output, whose shapes fit together."""
    given = list(_loaded(path, "q", "k", "v", "output").values())
    if not _fit_together(given):
        turned = all(t.ndim > 2 for t in given) and _fit_together(
            [t.transpose(-3, -2) for t in given]
        )
        hint = ": transposed they fit, tokens and heads change places" if turned else ""
        shapes = ", ".join(map(str, (tuple(t.shape) for t in given)))
        raise ValueError(
            f"{path}: q and output must be (tokens, heads, size) or (batch, heads, tokens, size), "
            f"k and v alike with as many tokens or more, got q, k, v, output of {shapes}{hint}"
        )
    if not all(bool(t.isfinite().all()) for t in given):
        raise ValueError(f"{path}: q, k, v and output must be finite")
    return given
