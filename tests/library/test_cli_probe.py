"""attnlib probe: a model in a folder, a text, and every way in which they can be wrong."""

import json
import sys

import pytest
import torch
from typer.testing import CliRunner

from attnlib.cli import app
from attnlib.probing import RANDOM, probe

TEXT = "to be or not to be that is the question " * 8


def run(*arguments):
    return CliRunner().invoke(app, ["probe", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT-2 of 2 layers and 2 heads with random weights, and a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["?", *dict.fromkeys(TEXT.split())])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path_factory.mktemp("model")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(path)
    config = GPT2Config(
        vocab_size=len(words),
        n_positions=32,
        n_embd=8,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    GPT2Model(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return path


def test_it_prints_the_report(folder, text):
    result = run(folder, "--text", text)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("32 tokens of ")  # what the model can read
    assert "h.0.attn" in result.output
    assert RANDOM in result.output


def test_json_is_the_report_of_the_model_on_the_text(folder, text):
    from transformers import AutoModel, AutoTokenizer

    result = run(folder, "--text", text, "--tokens", 9, "--json")
    model = AutoModel.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")["input_ids"][:, :9]
    with torch.no_grad(), probe(model) as report:
        model(ids)
    assert json.loads(result.stdout) == json.loads(report.to_json())
    assert [head["rows"] for head in json.loads(result.stdout)["heads"]] == [8] * 4


def refused(message, *arguments, status=2):
    result = run(*arguments)
    assert result.exit_code == status
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Error: ")
    assert message in line, line


def test_what_cannot_be_read_or_loaded_is_one_line(folder, text, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused("missing.txt cannot be read", folder, "--text", tmp_path / "missing.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    refused("binary cannot be read", folder, "--text", tmp_path / "binary")
    (tmp_path / "short").write_text("question")
    refused("at least 2 tokens, got 1", folder, "--text", tmp_path / "short")
    refused("cannot be loaded", tmp_path, "--text", text)
    refused("nobody/nothing cannot be loaded", "nobody/nothing", "--text", text)
    refused("--tokens", folder, "--text", text, "--tokens", 1)
    refused("--text", folder)


@pytest.mark.parametrize("missing", ["transformers", "torch"])
def test_what_is_not_installed_is_said(missing, folder, text, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "attnlib.probing")
    refused(f'{missing} is missing; pip install "attnlib[probe]"', folder, "--text", text, status=1)


def test_a_model_without_what_can_be_seen(folder, text, monkeypatch):
    from transformers import GPT2Model

    def written_out(self, input_ids):
        return torch.softmax(input_ids.float(), -1)

    monkeypatch.setattr(GPT2Model, "forward", written_out)
    refused("no attention in GPT2Model", folder, "--text", text, status=1)


def test_two_tokens_are_enough(folder, tmp_path):
    (tmp_path / "two.txt").write_text(" ".join(TEXT.split()[:2]))
    result = run(folder, "--text", tmp_path / "two.txt")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("2 tokens of ")
