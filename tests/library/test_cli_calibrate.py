"""attnlib calibrate: verdicts for a model in a folder, and going on from what was kept."""

import json

import pytest
import torch
from typer.testing import CliRunner

from attnlib.cli import app
from tests.library.foreign import save_tokenizer

CIRCLE = "to be or not that is the question whether tis nobler in mind suffer"
WORDS = CIRCLE.split()


def run(*arguments):
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small Llama that has learned that words come in a circle, and a tokenizer of words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "max_position_embeddings": 64}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=save_tokenizer(path, WORDS)))
    ids = torch.arange(1, len(WORDS) + 1).repeat(4)[None, :40]
    steps = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(10):
        steps.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        steps.step()
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(WORDS[i % len(WORDS)] for i in range(400)))
    return path


def test_a_verdict_for_each_length_then_the_heads(folder, text, tmp_path):
    result = run(folder, "--text", text, "--lengths", "16,32", "--memory", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("at 16: ×")
    assert lines[1].startswith("at 32: ×")
    assert "Of 4 heads" in result.stdout
    assert all(len(line) <= 100 for line in lines)


def test_json_has_every_head_and_a_run_goes_on_from_what_it_has_kept(folder, text, tmp_path):
    kept = tmp_path / "kept"
    options = ("--text", text, "--lengths", 16, "--per", "layer", "--memory", kept, "--json")
    first = run(folder, *options)
    [verdict] = json.loads(first.stdout)
    assert len(verdict["heads"]) == 4
    assert verdict["fit"]["per"] == "layer"
    whole = kept.read_text()
    kept.write_text(whole[: len(whole) // 2])  # as if it had been killed on the way
    assert run(folder, *options).stdout == first.stdout
    assert sorted(kept.read_text().splitlines()) == sorted(whole.splitlines())


def test_the_model_is_saved_with_its_factors_or_not_at_all(folder, text, tmp_path):
    from transformers import AutoModelForCausalLM

    target = tmp_path / "changed"
    options = ("--text", text, "--lengths", 32, "--memory", tmp_path / "kept", "--apply", target)
    result = run(folder, *options)
    if "leave it" in result.stdout:
        assert result.exit_code == 1
        assert not target.exists()
        return
    assert result.exit_code == 0, result.output
    before, after = (AutoModelForCausalLM.from_pretrained(path) for path in (folder, target))
    rows = [model.model.layers[0].self_attn.q_proj.weight for model in (before, after)]
    ratio = (rows[1] / rows[0]).mean().item()
    assert f"×{ratio:.2f}" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--lengths", "200"), "the text must hold 4 windows of 200 tokens"),
        (("--lengths", "16;32"), "--lengths must be numbers"),
        (("--lengths", "16", "--law", "nothing"), "law must be"),
        (("--lengths", "1"), "length must be from 2"),
        (("--apply", __file__), "--apply must be a folder or not be there, got the file"),
    ],
)
def test_what_is_wrong_is_one_line(options, message, folder, text, tmp_path):
    result = run(folder, "--text", text, "--memory", tmp_path / "kept", *options)
    assert result.exit_code
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
