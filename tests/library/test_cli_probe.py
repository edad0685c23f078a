"""attnlib probe: a model in a folder, a text, and every way in which they can be wrong."""

import json
import pickle
import shutil

import pytest
import torch
from typer.testing import CliRunner

from attnlib.cli import app
from attnlib.probing import probe
from tests.library.foreign import save_tokenizer

TEXT = "to be or not to be that is the question " * 8


def run(*arguments):
    return CliRunner().invoke(app, ["probe", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT-2 of 2 layers and 2 heads with random weights, and a tokenizer of words."""
    from transformers import GPT2Config, GPT2Model

    path = tmp_path_factory.mktemp("model")
    sizes = {"n_positions": 32, "n_embd": 8, "n_layer": 2, "n_head": 2}
    sizes["vocab_size"] = save_tokenizer(path, TEXT.split())
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    GPT2Model(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return path


def test_json_is_the_report_of_the_model_on_the_text(folder, text):
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")["input_ids"][:, :9]
    result = run(folder, "--text", text, "--tokens", 9, "--json")
    with torch.no_grad(), probe(model) as report:
        model(ids)
    assert json.loads(result.stdout) == json.loads(report.to_json())
    assert [head["rows"] for head in json.loads(result.stdout)["heads"]] == [8] * 4


def refused(message, *arguments):
    result = run(*arguments)
    assert result.exit_code == 2
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
    (tmp_path / "short").write_text("to be")
    assert run(folder, "--text", tmp_path / "short").output.startswith("2 tokens of ")
    (tmp_path / "short").write_text("to see")
    assert "Warning: 50% of the tokens of" in run(folder, "--text", tmp_path / "short").output
    refused("cannot be loaded", tmp_path, "--text", text)
    empty = tmp_path / "empty"
    empty.mkdir()
    refused("(1) a `tokenizers` library", empty, "--text", text)
    refused("nobody/nothing cannot be loaded", "nobody/nothing", "--text", text)
    refused("device type", folder, "--text", text, "--device", "tpu")


@pytest.fixture
def altered(folder, tmp_path):
    """Return a function that copies the model with other numbers in its configuration."""

    def copy(**settings):
        path = tmp_path / "model"
        shutil.copytree(folder, path)
        config = path / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))
        return path

    return copy


class Marks:
    """What leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


OWN_CODE = """
open({marker!r}, "w").close()
from transformers import GPT2Config, GPT2Model

class Config(GPT2Config):
    model_type = "own"

class Model(GPT2Model):
    config_class = Config
"""


def test_a_models_own_code_runs_only_if_it_is_trusted(altered, text, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf"))
    marker = tmp_path / "marker"
    own = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    path = altered(model_type="own", auto_map=own)
    (path / "own.py").write_text(OWN_CODE.format(marker=str(marker)))
    result = CliRunner().invoke(app, ["probe", str(path), "--text", str(text)], input="y\n" * 9)
    assert not marker.exists()
    assert (result.exit_code, result.stdout) == (2, "")  # nothing is asked either
    assert "code of its own, which is not run; --trust-remote-code" in result.stderr
    assert result.stderr.count("\n") == 1
    assert run(path, "--text", text, "--trust-remote-code").exit_code == 0
    assert marker.exists()


def test_a_tokenizers_own_code_does_not_run(altered, text, tmp_path):
    marker, path = tmp_path / "marker", altered()
    file = path / "tokenizer_config.json"
    settings = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "own.T"]}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    (path / "own.py").write_text(OWN_CODE.format(marker=str(marker)))
    assert run(path, "--text", text).exit_code == 0  # tokenizer.json is all that it needs
    (path / "tokenizer.json").unlink()
    refused("cannot be loaded", path, "--text", text)
    assert not marker.exists()


def test_weights_are_opened_as_numbers_only(altered, folder, text, tmp_path):
    from safetensors.torch import load_file

    marker, path = tmp_path / "marker", altered()
    (path / "model.safetensors").unlink()
    weights = path / "pytorch_model.bin"
    torch.save({"wte.weight": Marks(marker)}, weights)
    refused("its weights are a pickle of more than tensors, or broken", path, "--text", text)
    weights.write_bytes(pickle.dumps(Marks(marker)))
    refused("its weights are a pickle of more than tensors, or broken", path, "--text", text)
    assert not marker.exists()
    torch.save(load_file(folder / "model.safetensors"), weights)
    same = [run(model, "--text", text, "--json").stdout for model in (path, folder)]
    assert same[0] == same[1]


def test_the_audit_of_a_model_says_what_multiplies_and_exits_with_1_on_a_finding(folder):
    right = CliRunner().invoke(app, ["audit", str(folder)])
    assert right.exit_code == 0, right.output
    passed, *_, scale = right.stdout.splitlines()
    assert passed.startswith("passed: nothing found; ")
    assert scale.startswith("scale: 0.5 ")  # 1/√4
    facts = CliRunner().invoke(app, ["audit", str(folder), "--facts"])
    assert "in h.0.attn, h.1.attn" in facts.stdout
    wrong = CliRunner().invoke(app, ["audit", str(folder), "--expected", "0.25", "--json"])
    assert wrong.exit_code == 1
    table = json.loads(wrong.stdout)
    assert {finding["where"] for finding in table["findings"]} == {"h.0.attn", "h.1.attn"}
    assert all(finding["found"] == "0.5" for finding in table["findings"])
