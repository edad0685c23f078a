"""Generated command lines: each answers, or says in one line what is wrong; never NaN.

A usual run tries some hundred, a slow one ten thousand.
"""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner

from attnlib import criteria, freezing, retrieval
from attnlib.cli import app
from tests.library.test_any_input import try_all

HOW_MANY = pytest.mark.parametrize("many", [100, pytest.param(10_000, marks=pytest.mark.slow)])

# A command line holds no NUL, and bytes that are not UTF-8 as lone surrogates.
words = st.text(st.characters(exclude_characters="\0"), max_size=8) | st.sampled_from(
    ["", "-", "--", "nan", "inf", "1e9", "0x10", "\n", "\udcff", "~", "/", ".", "é"]
)
whole = st.integers(-3, 5000) | st.integers(0, 70).map(lambda e: 2**e) | st.integers()
numbers = whole.map(str) | words | st.floats().map(str)
flags = st.lists(st.sampled_from(["--causal", "--json", "--help", "--no"]), max_size=2)


def run(arguments):
    """Run a command, and return what it prints if it succeeds."""
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    assert not re.search(r"\bnan\b", result.stdout, re.IGNORECASE), result.stdout
    assert "Infinity" not in result.stdout
    if result.exit_code == 0:
        return result.stdout
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    *warnings, error = result.stderr.splitlines()
    assert error.startswith("Error: "), result.stderr
    assert all(line.startswith("Warning: ") for line in warnings)
    return None


@st.composite
def of_scale(draw):
    arguments = ["scale"]
    for name, values in (("--n", numbers), ("--d", numbers)):
        if draw(st.integers(0, 20)):
            arguments += [name, draw(st.integers(2, 600).map(str) | values)]
    if draw(st.booleans()):
        laws = st.sampled_from(["normal", "cosine", "dot-product"])
        arguments += ["--law", draw(laws | words)]
    if not draw(st.integers(0, 2)):
        strengths = st.floats(0.0, 1.0).map(str) | numbers
        arguments += [draw(st.sampled_from(["--gap", "--theta", "--cosine"])), draw(strengths)]
    return [*arguments, *draw(flags)]


def check_scale(arguments):
    printed = run(arguments)
    if printed is None or "--json" not in arguments or "--help" in arguments:
        return
    answer = json.loads(printed)
    n, d = answer["n"], answer["d"]
    assert n >= 2
    assert d >= 1
    known = {one["name"]: one for one in answer["policies"]}
    assert known["transformer"]["scale"] == pytest.approx(d**-0.5, rel=1e-15)
    assert known["chiang_cholak"]["alpha"] == pytest.approx(math.log(n), rel=1e-14)
    for one in [*answer["criteria"], *answer["policies"]]:
        assert one["scale"] is None or 0.0 <= one["scale"] < math.inf, one
        assert (one["scale"] is None) == (one["alpha"] is None)


@HOW_MANY
def test_scale(many, monkeypatch):
    def frozen(law, keys, *_):  # in place of a simulation and of integrals of a second
        return float(freezing.critical_alpha(keys, law)), 0.0

    monkeypatch.setattr(criteria, "_typical", frozen)

    def reach(law, needle, *, policy, **_):
        return float(retrieval.mean_gap(law, needle)) * np.arange(len(policy))

    monkeypatch.setattr(criteria, "same_entropy", lambda law, n: frozen(law, n)[0])
    monkeypatch.setattr(retrieval, "reach", reach)
    monkeypatch.setattr(retrieval, "_root_of_slope", lambda law, needle, n: float(n))
    try_all(many, of_scale(), check_scale)


def paths(folder):
    names = words | st.sampled_from(["text.txt", "empty.txt", "bytes.bin", "config.json", "../x"])
    return names.map(lambda name: f"{folder}/{name}") | words


@st.composite
def of_others(draw, folder):
    """Return a command line of the other commands; none that trains, fetches or takes long."""
    path = paths(folder)
    command = draw(st.sampled_from(["probe", "audit", ""]) | words)
    if command == "probe":
        arguments = [draw(path | words), "--text", draw(path)]
        arguments += draw(st.just([]) | numbers.map(lambda number: ["--tokens", number]))
    else:
        arguments = draw(st.lists(words, max_size=3))
    return [command, *arguments, *draw(flags)]


def check(arguments):
    run(arguments)


@HOW_MANY
def test_the_other_commands(many, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("to be or not to be")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "bytes.bin").write_bytes(bytes(range(256)))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 1e9}')
    try_all(many, of_others(tmp_path), check)
