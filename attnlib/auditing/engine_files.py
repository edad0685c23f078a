"""Audit an engine in any language by files: write questions, and audit the answers.

`write_questions` audits a softmax that does what is intended, and saves the questions.
`audit_answers` audits the answers in the folder. It adds each question that is missing, so that the
engine can answer it before the next round: an engine that does what is intended needs one, others
two or three.
"""

import json
import math
from collections.abc import Callable
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from attnlib import _checking, _files
from attnlib._checking import FloatArray
from attnlib.extras import extra_packages

with extra_packages("probe"):
    import torch
    from safetensors.torch import load, save
    from torch import Tensor

    from attnlib.auditing import audit
    from attnlib.auditing.explained import Softmax, explain
    from attnlib.auditing.recorded_tensors import arrays_by_head, intended_policy, load_tensors
    from attnlib.auditing.report import Report

ANSWER = ".output.safetensors"
SETTINGS = "audit.json"
LARGE_SINK = 10.0
"""The logit of a sink that is assumed for the questions that only a sink needs."""
COMMAND_OPTIONS = ("expected", "cap", "window", "sink")
"""Options of the command that state what is intended."""
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
    """Answer as a callable from an engine's files, and keep new questions.

    `stand_in` is the attention that answers new ones, `refused` has the questions without answer.
    """

    def __init__(self, folder: Path, length: int, stand_in: Callable[..., Tensor]) -> None:
        self.folder, self.length, self.stand_in = folder, length, stand_in
        paths = [p for p in sorted(folder.glob("*.safetensors")) if ANSWER not in p.name]
        self.names = {sha256(path.read_bytes()).digest(): path.name for path in paths}
        self.new: dict[bytes, bytes] = {}
        self.refused: set[str] = set()
        self.question = ""  # the last one, by which an audit names an answer

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the output (1, heads, queries, d_v): the engine's, or the stand-in's if new.

        Raises ValueError for more keys than `length`, and where the engine's answer is not in the
        folder.
        """
        if k.shape[-2] > self.length:
            raise ValueError(f"files do not ask more than {self.length} keys")
        content = save(dict(zip("qkv", _to_file_axes(q, k, v), strict=True)))
        name = self.names.get(digest := sha256(content).digest())
        if name is None:
            self.new[digest] = content
            return self.stand_in(q, k, v)
        answer = self.folder / _answer_name(name)
        if not answer.exists():
            self.refused.add(name)
            raise ValueError(f"{answer} is missing")
        self.question = name
        return _load_output(answer, *_to_file_axes(q, v)).transpose(0, 1)[None]

    def save(self) -> list[str]:
        """Write the new questions, and return the names of their files."""
        first = len(self.names) + 1
        by_name = {f"{i:04}.safetensors": c for i, c in enumerate(self.new.values(), first)}
        for name, content in by_name.items():
            _files.replace(self.folder / name, content)
        return list(by_name)


def write_questions(
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
      are kept for `audit_answers`, which may state another intention and then adds questions.

    Returns the number of questions. Raises ValueError where the folder is not empty.
    Chapter: audit.
    """
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{folder} must be an empty folder or not be there")
    length = _checking.integer("length", length, minimum=64)
    size: dict[str, Any] = {"d": d, "heads": heads, "key_heads": key_heads or heads}
    answers = Answers(path, length, _intended_attention(True, intent))
    sink = intent.get("sink")
    sinks = [sink] if sink else [sink, LARGE_SINK]
    for is_causal, sink in product((True, False), sinks):
        case = intent | {"sink": sink}
        answers.stand_in = _intended_attention(is_causal, case)
        seen = _causal_intent(is_causal, intent)
        audit(answers, **size, length=length, dtype=dtype, kv_dtype=kv_dtype, **seen, **case)
    other_questions, answers.new = answers.new, {}
    answers(*_random_inputs(size, dtype))  # the first question
    answers.new |= other_questions
    settings = {**size, "length": length}
    for name, given in (("dtype", dtype), ("kv_dtype", kv_dtype)):
        settings[name] = None if given is None else str(given).removeprefix("torch.")
    plain = {name: x for name, x in intent.items() if isinstance(x, int | float | str)}
    settings |= {"causal": causal, "meant": plain}
    _files.replace(path / SETTINGS, json.dumps(settings).encode())
    names = answers.save()
    settings["mask"] = "with its causal mask" if causal else "where each query sees all keys"
    stated = {"expected": "transformer", **plain}
    options = (f"--{name} {x}" for name, x in stated.items() if name in COMMAND_OPTIONS)
    settings["options"] = " ".join(options)
    _files.replace(path / "README.md", README.format(**settings).encode())
    return len(names)


def audit_answers(folder: str | Path, **intent: Any) -> Report:
    """Audit the answers in a folder that `write_questions` made, and return the report.

    - `folder`: the path of the folder.
    - `intent`: arguments of `audit` that state the intention, by default as for `write_questions`.

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
    intent |= _causal_intent(intent.pop("causal", settings.pop("causal")), intent)
    answers = Answers(path, settings["length"], _intended_attention(True, intent))
    answered = [name for name in answers.names.values() if (path / _answer_name(name)).exists()]
    if not answered:
        raise ValueError(f"{folder} has no answer: write 0001{ANSWER} and so on, see its README.md")
    for name in answered:  # all before any is judged
        question = load((path / name).read_bytes())
        _load_output(path / _answer_name(name), question["q"], question["v"])
    answers.stand_in = _explained_attention(path, intent) or answers.stand_in
    report = audit(answers, **settings, **intent)
    if answers.new:
        names = answers.save()
        more = f"{names[0]} to {names[-1]}"
        raise UnansweredError(f"{folder} has new questions: answer {more}, and read again")
    unasked = f"masks, gradients, the same twice, over {answers.length} keys"
    window = report.facts.get("not asked")
    report.facts["not asked"] = f"{unasked}, {window}" if window else unasked
    if "expected" not in intent and report.scale is not None:
        report.unknown.append(f"found {report.scale}, and --expected is not given")
    for index, finding in enumerate(report.findings):
        if finding.code == "bias" and "declares it" in finding.evidence:
            why = "nearer keys of equal ones; files take no bias: leave it out of the answers"
            report.findings[index] = finding._replace(evidence=why)
    if answers.refused:
        report.facts["not answered"] = f"the questions {', '.join(sorted(answers.refused))}"
    return report


def _causal_intent(causal: bool, intent: dict[str, Any]) -> dict[str, Any]:
    """Return `causal` and `causal_from` of `audit`: fewer queries than keys are the last ones."""
    alignment = {"causal_from": "last"} if causal else {}
    return alignment if intent.get("window") is not None else {"causal": causal, **alignment}


def _random_inputs(size: dict[str, Any], dtype: torch.dtype) -> list[Tensor]:
    """Return random q, k and v of 24 tokens: the answer decides the stand-in of the next round."""
    random = torch.Generator().manual_seed(0)
    heads = size["heads"], size["key_heads"], size["key_heads"]
    q, k, v = (torch.randn(1, h, 24, size["d"], generator=random) for h in heads)
    return [t.to(dtype) for t in (2.0 * q, k, v)]


def _attention(
    form: Softmax,
    rule: Callable[..., Any],
    cap: float | None = None,
    sink: float | list[float] | None = None,
) -> Callable[..., Tensor]:
    """Return an attention of tensors with a rule for the scale, in n, d and the position."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        m, n = q.shape[-2], k.shape[-2]
        position = np.arange(n - m, n, dtype=float)
        visible = position + 1.0 if form.causal else np.full(m, float(n))
        scale = np.reshape(rule(visible, q.shape[-1], position), (-1, 1))
        arrays = (t[0].detach().double().numpy() for t in (q, k, v))
        return torch.from_numpy(form.output(*arrays, scale, cap, sink))[None].to(q.dtype)

    return attention


def _intended_attention(causal: bool, intent: dict[str, Any]) -> Callable[..., Tensor]:
    """Return an attention that does what is intended; a sink of True has the logit 0."""
    policy, sink = intended_policy(intent.get("expected")), intent.get("sink")
    form = Softmax(policy.applied_to == "cosine", causal, intent.get("window"))
    sink = None if sink is None or sink is False else 0.0 if sink is True else sink
    cap = None if intent.get("cap") == math.inf else intent.get("cap")
    return _attention(form, policy.scale, cap, sink)


def _explained_attention(folder: Path, intent: dict[str, Any]) -> Callable[..., Tensor] | None:
    """Return an attention that explains the engine's first answer; None where none does.

    Where it scales a cosine or products as intended, its scale follows the intended law, times a
    factor.
    """
    name = "0001.safetensors"
    if not (folder / _answer_name(name)).exists():
        return None
    tensors = load_tensors(folder / name, "q", "k", "v")
    tensors |= load_tensors(folder / _answer_name(name), "output")
    eps = torch.finfo(tensors["q"].dtype).eps
    q, k, v, output = arrays_by_head([*tensors.values()])
    if not np.isfinite(output).all():
        wrong = f"{np.sum(~np.isfinite(output))} of {output.size} numbers NaN or infinite"
        raise ValueError(f"{folder / _answer_name(name)}: output must be finite, got {wrong}")
    fit = explain(q, k, v, output, eps)
    if fit is None:
        return _attention_of_law(q, k, v, output, eps)
    policy, factor = intended_policy(intent.get("expected")), 1.0
    form = Softmax(fit.cosine, fit.causal, intent.get("window"))
    if fit.cosine == (policy.applied_to == "cosine"):
        factor = fit.scale.value / float(policy.scale(24, q.shape[-1]))
    else:
        policy = intended_policy(fit.scale.value)
    cap = None if fit.cap is None else fit.cap.value
    sink = None if fit.sink is None else [interval.value for interval in fit.sink]
    return _attention(form, lambda *row: factor * policy.scale(*row), cap, sink)


def _attention_of_law(
    q: FloatArray, k: FloatArray, v: FloatArray, output: FloatArray, eps: float
) -> Callable[..., Tensor] | None:
    """Return a causal attention whose scale is a line in log n, through rows 8 and 24."""
    few, many = (
        explain(q[:, n - 1 : n], k[:, :n], v[:, :n], output[:, n - 1 : n], eps) for n in (8, 24)
    )
    if few is None or many is None or few.cosine != many.cosine:
        return None
    at_8, per_log = few.scale.value, (many.scale.value - few.scale.value) / math.log(3.0)
    form = Softmax(few.cosine, causal=True)
    return _attention(form, lambda n, d, position: at_8 + per_log * np.log(n / 8.0))


def _to_file_axes(*tensors: Tensor) -> list[Tensor]:
    """Return tensors (1, heads, tokens, size) as (tokens, heads, size)."""
    return [t[0].detach().transpose(0, 1).contiguous() for t in tensors]


def _answer_name(name: str) -> str:
    """Return the name of the file that answers a question's file."""
    return name.removesuffix(".safetensors") + ANSWER


def _load_output(path: Path, q: Tensor, v: Tensor) -> Tensor:
    """Return the output in a file that answers q and v, (tokens, heads, size)."""
    output = load_tensors(path, "output")["output"]
    wanted = (*q.shape[:2], v.shape[-1])
    if output.shape != wanted:
        meaning = "(queries, heads, size of v)"
        raise ValueError(f"{path}: output must be {wanted}, {meaning}, got {tuple(output.shape)}")
    if torch.finfo(output.dtype).eps > torch.finfo(q.dtype).eps:
        text = f"as q, {q.dtype}, or finer, got {output.dtype}: or ask with --dtype"
        raise ValueError(f"{path}: output must be {text}")
    return output
