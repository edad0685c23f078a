"""The command line."""

import json
import math
import os
import subprocess
import sys
from functools import cache

import pytest
from typer.testing import CliRunner

from attnlib import __version__, criteria, retrieval
from attnlib.cli import app
from attnlib.policies import POLICIES
from attnlib.scores import Cosine, DotProduct, Normal


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_what_a_pipe_gets_is_utf8_whatever_the_code_page():
    finished = subprocess.run(
        [sys.executable, "-m", "attnlib", "scale", "--help"],
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=True,
    )
    assert "α" in finished.stdout.decode("utf-8")


SCALE = ("scale", "--n", "600", "--d", "64")


@pytest.mark.parametrize(
    ("law", "name"),
    [(Normal(), "normal"), (Cosine(64), "cosine"), (DotProduct(64), "dot-product")],
)
@pytest.mark.parametrize("causal", [False, True])
def test_scale_as_json_is_what_the_library_says(law, name, causal, monkeypatch):
    once = cache(criteria.alphas)  # the same question is answered once, here and for the command
    monkeypatch.setattr(criteria, "alphas", once)
    result = run(*SCALE, "--law", name, "--json", *(["--causal"] if causal else []))
    answer = json.loads(result.output)
    assert (answer["n"], answer["d"], answer["law"], answer["causal"]) == (600, 64, name, causal)
    found = {one["name"]: one for one in answer["criteria"]}
    for criterion in once(law, 600, causal=causal, needle=None):
        one = found.pop(criterion.name)
        if criterion.alpha is None:
            assert one["scale"] is one["alpha"] is None
            continue
        std = math.sqrt(law.variance)
        assert one["alpha"] == pytest.approx(criterion.alpha * std, rel=1e-14)
        assert one["standard_error"] == pytest.approx(criterion.standard_error * std, rel=1e-14)
        factor = 1.0 if name == "cosine" else 1.0 / 8.0
        assert one["scale"] == pytest.approx(criterion.alpha * factor, rel=1e-14)
    assert not found
    assert once.cache_info().hits == 1
    assert [one["name"] for one in answer["policies"]] == list(POLICIES)
    for one in answer["policies"]:
        assert one["scale"] == POLICIES[one["name"]].scale(600, 64)
        assert one["alpha"] == POLICIES[one["name"]].alpha(600, 64)


NEEDLES = [
    (Normal(), ["--law", "normal", "--theta", "5"], retrieval.Tilted(5.0)),
    (Cosine(64), ["--cosine", "0.5"], retrieval.Fixed(0.5)),
    (DotProduct(64), ["--theta", "3", "--causal"], retrieval.Tilted(3.0)),
]


@pytest.mark.parametrize(("law", "told", "needle"), NEEDLES, ids=lambda one: str(one)[:20])
def test_a_needle_adds_two_criteria_and_how_far_each_scale_reaches(law, told, needle, monkeypatch):
    monkeypatch.setattr(criteria, "_typical", lambda *_: (3.0, 0.1))
    answer = json.loads(run(*SCALE, *told, "--json").output)
    unit = math.sqrt(law.variance)
    found = {one["name"]: one for one in answer["criteria"]}
    best = float(retrieval.best_alpha(law, needle, 600))
    assert found["finding"]["alpha"] == pytest.approx(best * unit, rel=1e-12)
    distance = float(retrieval.mean_gap(law, needle)) / unit
    least = float(retrieval.least_alpha(distance, 600))
    assert (found["least"]["alpha"] or math.inf) == pytest.approx(least, rel=1e-12)
    expected = float(retrieval.reach(law, needle, 1.0 / unit))
    assert found["variance"]["reach"] == pytest.approx(expected, rel=0.01)
    exact_in_time = () if law == DotProduct(64) else ("simcse", "ssmax", "yarn")
    for one in answer["policies"]:
        if one["name"] in exact_in_time:
            exactly = retrieval.reach(law, needle, policy=one["name"], d=64)
            assert one["reach"] == pytest.approx(float(exactly), rel=0.01), one["name"]


def test_the_reach_is_a_column_where_one_key_is_meant(monkeypatch):
    monkeypatch.setattr(criteria, "_typical", lambda *_: (3.0, 0.1))
    printed = run(*SCALE, "--law", "normal", "--gap", "9.5").output
    assert printed.count("reaches") == 2
    assert "over 2⁵³" in printed
    assert "finding" in printed
    assert "reaches" not in run(*SCALE, "--law", "normal").output


def test_scale_prints_every_criterion_and_policy_with_a_meaning(monkeypatch):
    once = cache(criteria.alphas)
    monkeypatch.setattr(criteria, "alphas", once)
    result = run(*SCALE)
    assert result.exit_code == 0
    for one in (*once(DotProduct(64), 600, causal=False, needle=None), *POLICIES.values()):
        assert one.name in result.output
        assert one.meaning.split()[0] in result.output
    assert "scale=0.2" in result.output  # α* of 600 keys, over 8
    assert "none" in run("scale", "--n", "100", "--d", "64").output  # too few for the entropy


@pytest.mark.parametrize("d", ["1", "2"])
def test_what_needs_more_dimensions_has_no_scale_in_few(d):
    result = run("scale", "--n", "64", "--d", d, "--json")
    assert result.exit_code == 0
    policies = json.loads(result.output)["policies"]
    assert [one["name"] for one in policies if one["scale"] is None] == ["gradient_cosine"]
    assert [one["name"] for one in policies if one["alpha"] is None] == ["gradient_cosine"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("scale", "--n", "x", "--d", "64"), "'--n'"),
        (("scale", "--n", "64"), "Missing option '--d'"),
        (("scale", "--n", "1", "--d", "64"), "n must be from 2 to 1099511627776, got n=1"),
        (("scale", "--n", "64", "--d", "0"), "d must be from 1"),
        (("scale", "--n", "64", "--d", "2", "--law", "cosine"), "d must be from 3"),
        ((*SCALE, "--law", "uniform"), "'normal', 'cosine', 'dot-product'"),
        ((*SCALE, "--gap", "3", "--theta", "3"), "only one can be given"),
        ((*SCALE, "--cosine", "0.5", "--law", "normal"), "--cosine is for --law cosine"),
        ((*SCALE, "--cosine", "1.5"), "'--cosine'"),
        ((*SCALE, "--theta", "-1"), "'--theta'"),
        ((*SCALE, "--theta", "1e9"), "theta must be at most 10000"),
        ((*SCALE, "--gap", "9", "--law", "cosine"), "gap must be at most 1 for Cosine(d=64)"),
        ((*SCALE, "--gap", "nan"), "gap must not contain NaN"),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_wrong_input_gets_one_line_and_status_two(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


def test_without_a_command_there_is_help():
    result = run()
    assert result.exit_code == 0
    for command in ("scale", "probe", "audit"):
        assert command in result.output
        assert run(command, "-h").exit_code == 0


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "attnlib", "--version"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout.strip().endswith(__version__)


def test_scale_as_json_is_laid_out_for_readers():
    written = run("scale", "--n", "8", "--d", "64", "--json").output
    assert written == json.dumps(json.loads(written), ensure_ascii=False, indent=2) + "\n"
    assert "α" in written


def test_scale_marks_what_is_learned_or_simulated_and_says_how_to_use_it():
    result = run("scale", "--n", "8", "--d", "64")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert sum(" ± " in line for line in lines) == 1
    for policy in POLICIES.values():
        (name,) = {line.split()[0] for line in lines if line.split()[:1] == [policy.name]} or {""}
        assert (name == "") == policy.learned, policy.name
    assert "at the last query" not in result.output
    assert "    functional.scaled_dot_product_attention(q, k, v, scale=" in result.output
    assert '    attention.attend(q, k, v, policy="ssmax", is_causal=True)' in result.output
    assert "at the last query" in run("scale", "--n", "8", "--d", "64", "--causal").output
