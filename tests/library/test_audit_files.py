"""An engine that is asked by files, recorded tensors, and callables of other arrays."""

import shutil
import sys
import types

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from attnlib.auditing import audit, engine_files, recorded_tensors
from attnlib.cli import app

SIZES = ["--d", 32, "--heads", 4, "--kv-heads", 2, "--length", 64]


def attention(q, k, v, times=1.0, cap=None, sink=None, causal=True, window=None, block=1, levels=0):
    """Attend in llama.cpp's shapes, (n, heads, d), with NumPy alone."""
    if levels:  # of each token's keys and values
        k, v = (
            np.round(x / scale) * scale
            for x in (k, v)
            for scale in [np.abs(x).max(-1, keepdims=True).clip(1e-9) / levels]
        )
    k, v = (part.repeat(q.shape[1] // part.shape[1], axis=1) for part in (k, v))
    logits = np.einsum("qhd,khd->hqk", q, k) * np.float32(times / q.shape[-1] ** 0.5)
    if cap:
        logits = cap * np.tanh(logits / cap)
    m, n = logits.shape[1:]
    if causal:
        logits = np.where(np.tri(m, n, 0 if causal == "first" else n - m) > 0, logits, -np.inf)
    if window:
        logits = np.where(np.tril(np.ones((m, n)), n - m - window) > 0, -np.inf, logits)
    zeros = -n % block  # keys of a block that are not there, counted as zeros
    logits, v = (
        np.pad(logits, [(0, 0), (0, 0), (0, zeros)]),
        np.pad(v, [(0, zeros), (0, 0), (0, 0)]),
    )
    largest = logits.max(axis=-1, keepdims=True)
    largest = largest if sink is None else np.maximum(largest, np.float32(sink))
    weights = np.exp(logits - largest)
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - largest)
    output = np.einsum("hqk,khd->qhd", (weights / total).astype(v.dtype), v)
    return np.ascontiguousarray(output)


def engine(folder, skip=(), **fault):
    for path in folder.glob("????.safetensors"):
        given = load_file(path)
        if given["q"].shape[-1] not in skip:
            out = attention(**given, **fault)
            save_file({"output": out}, path.with_suffix(".output.safetensors"))


def run(*arguments):
    result = CliRunner().invoke(app, ["audit", *map(str, arguments)])
    return result.exit_code, result.output + str(result.exception or "")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "questions"
    assert run("--write", folder, *SIZES)[0] == 0
    return folder


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "questions")


@pytest.mark.parametrize(
    ("fault", "declared", "rounds", "status", "words"),
    [
        ({}, ["transformer"], 1, 0, "passed: nothing found"),
        ({"causal": False}, ["transformer", "--no-causal"], 1, 0, "passed: nothing found"),
        ({"causal": False}, ["transformer"], 1, 1, "expected the keys up to its own, found all"),
        ({"causal": "first"}, ["transformer"], 3, 1, "found 1 key (one query of a cache)"),
        ({"block": 32}, ["transformer"], 3, 1, "zeros counted to the end of blocks of 32"),
        ({"times": 2.0}, ["transformer"], 2, 1, "expected 0.1768, found 0.3536"),
        ({"cap": 30.0}, ["transformer", "--cap", 50], 1, 1, "expected a soft cap of 50, found 30"),
        ({"cap": 50.0}, ["transformer", "--cap", 50], 1, 0, "passed: nothing found"),
        ({"sink": 1.5}, ["0.1767767", "--sink", 1.5], 1, 0, "passed: nothing found"),
    ],
)
def test_an_engine_is_judged_by_its_answers(folder, fault, declared, rounds, status, words):
    command = "--read", folder, "--expected", *declared
    engine(folder, **fault)
    for _ in range(rounds - 1):
        assert run(*command)[0] == 4
        engine(folder, **fault)
    code, output = run(*command)
    assert (code, words in output) == (status, True), output


@pytest.mark.parametrize("number", [0.0, np.nan])
def test_an_answer_of_zeros_or_nan_and_a_scale_that_is_not_given_do_not_pass(folder, number):
    engine(folder)
    code, output = run("--read", folder)
    assert (code, "--expected is not given" in output) == (3, True), output
    path = folder / "0006.output.safetensors"
    save_file({"output": load_file(path)["output"] * np.float32(number)}, path)
    code, output = run("--read", folder, "--expected", "transformer")
    assert (code, "0006.safetensors" in output) == (1, True), output


def test_answers_and_tensors_that_nothing_explains_are_named(folder, tmp_path):
    engine(folder)
    path = folder / "0001.output.safetensors"
    save_file({"output": load_file(path)["output"] * np.float32(np.nan)}, path)
    code, output = run("--read", folder)
    assert (code, "0001.output.safetensors: output must be finite" in output) == (2, True), output
    for name in "qkv":
        record(tmp_path / "file")
        tensors = load_file(tmp_path / "file")
        save_file({**tensors, name: 0.0 * tensors[name]}, tmp_path / "file")
        code, output = run("--tensors", tmp_path / "file")
        assert (code, f"{name} must not be 0" in output) == (2, True), output


def test_what_is_meant_is_kept_with_the_questions(tmp_path):
    folder = tmp_path / "questions"
    assert run("--write", folder, *SIZES, "--cap", 50, "--sink", 1.5)[0] == 0
    assert "--expected transformer --cap 50.0 --sink 1.5" in (folder / "README.md").read_text()
    engine(folder, cap=50.0, sink=1.5)
    code, output = run("--read", folder, "--expected", "transformer")
    assert code == 0, output


def test_what_is_meant_may_be_a_function(tmp_path):
    def twice(n, d, position):
        return 2.0 / d**0.5 + 0.0 * n

    folder = tmp_path / "questions"
    engine_files.write_questions(folder, d=32, length=64, expected=twice)
    engine(folder, times=2.0)
    assert engine_files.audit_answers(folder, expected=twice).passed
    file = folder / "0001.safetensors"
    whole = load_file(file) | load_file(file.with_suffix(".output.safetensors"))
    save_file(whole, tmp_path / "whole.safetensors")
    assert recorded_tensors.audit_tensors(tmp_path / "whole.safetensors", expected=twice).passed


@pytest.mark.parametrize(("kept", "status"), [(["--kv-dtype", "int8"], 0), ([], 1)])
def test_a_cache_of_8_bits_passes_where_it_is_declared(tmp_path, kept, status):
    folder = tmp_path / "questions"
    assert run("--write", folder, *SIZES, *kept)[0] == 0
    code = 4
    while code == 4:
        engine(folder, levels=127)
        code, output = run("--read", folder, "--expected", "transformer")
    assert code == status, output


def test_a_package_that_is_missing_is_no_finding(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, output = run("a_model")
    assert (code, "transformers is missing" in output) == (2, True)


def record(path, dtype=np.float32, output=None, **kind):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((20, h, 32)).astype(dtype) for h in (4, 2, 2))
    q = q * dtype(3)
    out = attention(q, k, v, **kind).astype(dtype) if output is None else output(q, k, v)
    save_file({"q": q, "k": k, "v": v, "output": out}, path)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({}, ["scale: 0.1767", "causal: yes", "soft cap: none seen", "sink: none seen"]),
        ({"causal": False, "dtype": np.float16}, ["0.17", "causal: no", "soft cap: none seen"]),
        ({"times": 2.0, "cap": 50.0}, ["scale: 0.3536", "causal: yes", "soft cap: 50 ±"]),
        ({"sink": 1.5}, ["scale: 0.17", "causal: yes", "sink: a logit of 1.5 ±"]),
    ],
)
def test_recorded_tensors_are_explained(tmp_path, kind, words):
    record(tmp_path / "file", **kind)
    status, output = run("--tensors", tmp_path / "file")
    assert status == 3
    assert all(word in output for word in words), output


@pytest.mark.parametrize(
    ("kind", "declared", "words"),
    [
        ({"window": 8}, ["--window", 8], "passed"),
        ({"window": 9}, ["--window", 8], "window: expected 8 keys, found 9 keys"),
        ({"window": 7}, [], "window: expected all keys, found 7 keys"),
        ({}, ["--window", 8], "window: expected 8 keys, found all keys"),
        ({"cap": 5.0}, ["--cap", 5], "passed"),
        ({"cap": 5.0}, ["--cap", 7], "cap: expected 7, found 5 ± "),
        ({"cap": 5.0}, [], "cap: expected none: it was not declared, found 5 ± "),
        ({"sink": 1.5}, ["--sink", 1.5], "passed"),
        ({"sink": 1.5}, ["--sink", 0.5], "sink: expected 0.5, found 1.5 ± "),
        ({}, ["--sink", 0.5], "sink: expected 0.5, found none seen"),
    ],
)
def test_what_is_meant_of_recorded_tensors_is_compared(tmp_path, kind, declared, words):
    record(tmp_path / "file", **kind)
    status, output = run("--tensors", tmp_path / "file", "--expected", "transformer", *declared)
    assert (status, words in output) == (int(words != "passed"), True), output


@pytest.mark.parametrize(
    "intent", [("--cap", -1), ("--cap", 0), ("--window", -1), ("--window", 0), ("--sink", "nan")]
)
@pytest.mark.parametrize("mode", ["--tensors", "--write"])
def test_what_cannot_be_meant_is_refused_by_name(tmp_path, mode, intent):
    record(tmp_path / "file")
    subject = tmp_path / ("file" if mode == "--tensors" else "questions")
    status, output = run(mode, subject, *intent)
    name, number = intent
    assert (status, f"got {name[2:]}={number}" in output) == (2, True), output
    assert not (tmp_path / "questions").exists()


def heads_first(q, k, v):
    return attention(*(part[0].swapaxes(0, 1) for part in (q, k, v))).swapaxes(0, 1)[None]


@pytest.mark.parametrize("arrays", ["numpy", "jax"])
def test_callables_of_other_arrays_are_asked(monkeypatch, arrays):
    if arrays == "jax":  # in its place a module with the one function that is called
        stub = types.SimpleNamespace(asarray=np.asarray)
        monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(numpy=stub))
        monkeypatch.setitem(sys.modules, "jax.numpy", stub)
    asked = {"heads": 4, "key_heads": 2, "length": 64, "arrays": arrays}
    assert audit(heads_first, d=32, expected="transformer", **asked).passed
    (finding,) = audit(heads_first, d=32, expected=1.0, **asked).findings
    assert finding.code == "scale"
