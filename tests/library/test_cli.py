"""The command line."""

import json
import math

import pytest
from typer.testing import CliRunner

from attnlib import criteria
from attnlib.cli import app
from attnlib.policies import POLICIES
from attnlib.scores import Cosine, DotProduct, Normal

SCALE = ("scale", "--n", "600", "--d", "64")


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


@pytest.mark.parametrize(
    ("law", "name", "causal"),
    [
        (Normal(), "normal", False),
        (Cosine(64), "cosine", False),
        (DotProduct(64), "dot-product", False),
        (DotProduct(64), "dot-product", True),
    ],
)
def test_scale_as_json_is_what_the_library_says(law, name, causal):
    written = run(
        *SCALE, "--law", name, "--all", "--json", *(["--causal"] if causal else [])
    ).output
    answer = json.loads(written)
    assert (answer["n"], answer["d"], answer["law"], answer["causal"]) == (600, 64, name, causal)
    assert answer["effective_keys"] == criteria.effective_keys(600, causal=causal)
    std, factor = math.sqrt(law.variance), 1.0 if name == "cosine" else 1.0 / 8.0
    expected = criteria.all_criteria(law, 600, causal=causal)
    for line, criterion in zip(answer["criteria"], expected, strict=True):
        assert (line["name"], line["meaning"]) == (criterion.name, criterion.meaning)
        assert line["applied_to"] == law.applied_to
        if criterion.alpha is None:
            assert line["scale"] is line["alpha"] is None
            continue
        assert line["alpha"] == pytest.approx(criterion.alpha * std, rel=1e-14)
        assert line["scale"] == pytest.approx(criterion.alpha * factor, rel=1e-14)
    for line, policy in zip(answer["policies"], POLICIES.values(), strict=True):
        assert line["scale"] == policy.scale(600, 64)
        assert line["alpha"] == policy.alpha(600, 64)
        for name in ("name", "applied_to", "learned", "meaning"):
            assert line[name] == getattr(policy, name)


def test_one_policy_by_name():
    lines = (result := run("policies", "yarn", "--d", "64")).output.splitlines()
    assert result.exit_code == 0
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("train_length = 4096: ") for line in lines)
    answer = json.loads(run("policies", "yarn", "--d", "64", "--json").output)
    assert answer["constants"] == POLICIES["yarn"].constants
    for line, numbers in zip(lines[-3:], answer["numbers"], strict=True):
        n, scale, alpha = map(float, line.split())
        assert n == numbers["n"]
        assert scale == pytest.approx(numbers["scale"], rel=1e-3)
        assert alpha == pytest.approx(float(POLICIES["yarn"].alpha(n, 64)), rel=1e-3)


def test_scale_prints_every_criterion_and_policy_and_says_how_to_use_it():
    result = run(*SCALE, "--all")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    for entry in (*criteria.all_criteria(DotProduct(64), 600), *POLICIES.values()):
        star = "*" if getattr(entry, "learned", False) else ""
        (place,) = (i for i, line in enumerate(lines) if line.split()[:1] == [entry.name + star])
        assert " ".join(entry.meaning.split()[:2]) in lines[place + 1]
    assert "    functional.scaled_dot_product_attention(q, k, v, scale=0.125" in result.output
    assert '    rule = attention.register(factor="ssmax", train_length=600)' in result.output
    few = run("scale", "--n", "100", "--d", "64", "--law", "cosine", "--all").output
    assert "none" in few  # too few keys for the entropy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scale", "--n", "64"), "Missing option '--d'"),
        (("scale", "--n", "1", "--d", "64"), "n must be from 2 to 1099511627776, got n=1"),
        (("scale", "--n", "64", "--d", "2", "--law", "cosine"), "d must be from 3"),
        ((*SCALE, "--law", "uniform"), "'normal', 'cosine', 'dot-product'"),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_wrong_input_gets_one_line_and_status_two(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
