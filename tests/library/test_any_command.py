"""Generated command lines: each answers, or says in one line what is wrong; never NaN.

A usual run tries some hundred, a slow one ten thousand.
"""

import json
import math
import re

import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner

from attnlib import criteria, freezing
from attnlib.cli import app
from tests.library.test_any_input import try_all

# A command line holds no NUL, and bytes that are not UTF-8 as lone surrogates.
words = st.text(st.characters(exclude_characters="\0"), max_size=8) | st.sampled_from(
    ["", "-", "--", "nan", "inf", "1e9", "0x10", "\n", "\udcff", "~", "/", ".", "é"]
)
whole = st.integers(-3, 5000) | st.integers(0, 70).map(lambda e: 2**e) | st.integers()
numbers = whole.map(str) | words | st.floats().map(str)
sizes = st.integers(2, 600).map(str) | numbers
laws = st.sampled_from(["normal", "cosine", "dot-product"]) | words
flags = st.lists(st.sampled_from(["--causal", "--all", "--json", "--help", "--no"]), max_size=2)
files = words | st.sampled_from(["text.txt", "empty.txt", "bytes.bin", "config.json", "../x"])


@st.composite
def commands(draw):
    """Return a command line; none that trains, fetches or takes long."""
    command = draw(st.sampled_from(["scale", "scale", "probe", "audit", ""]) | words)
    arguments = draw(st.lists(words, max_size=3))
    if command == "scale":
        options = {"--n": sizes, "--d": sizes, "--law": laws}
        arguments = [part for name in options for part in (name, draw(options[name]))]
        arguments = arguments[draw(st.sampled_from([0, 0, 0, 1, 2])) :]
    elif command == "probe":
        arguments = [draw(files), "--text", draw(files)]
        arguments += draw(st.just([]) | numbers.map(lambda number: ["--tokens", number]))
    return [command, *arguments, *draw(flags)]


def check(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    assert not re.search(r"\bnan\b", result.stdout, re.IGNORECASE), result.stdout
    assert "Infinity" not in result.stdout
    if result.exit_code == 0:
        if arguments[0] == "scale" and "--json" in arguments and "--help" not in arguments:
            answer = json.loads(result.stdout)
            for one in [*answer["criteria"], *answer["policies"]]:
                assert one["scale"] is None or 0.0 <= one["scale"] < math.inf, one
        return
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    *warnings, error = result.stderr.splitlines()
    assert error.startswith("Error: "), result.stderr
    assert all(line.startswith("Warning: ") for line in warnings)


@pytest.mark.parametrize("many", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_command(many, monkeypatch, tmp_path):
    def frozen(law, keys):  # in place of integrals of a second
        return float(freezing.critical_alpha(keys, law))

    monkeypatch.setattr(criteria, "same_entropy", frozen)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("to be or not to be")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "bytes.bin").write_bytes(bytes(range(256)))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 1e9}')
    try_all(many, commands(), check)
