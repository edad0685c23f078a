"""What is meant: by the configuration, by the census of families, and never by what is audited."""

import math

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from attnlib import cli
from attnlib.auditing import audit, modules
from experiments.census import meant
from experiments.compatibility import SMALL, tiny

IDS = torch.randint(3, 60, (2, 12), generator=torch.Generator().manual_seed(0))
OF_THIS_YEAR = {
    "Gemma4Text": {"hidden_size_per_layer_input": 0, "sliding_window": 4, "global_head_dim": 16},
    "Gemma3nText": {
        "sliding_window": 4,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 60,
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.0, 0.0],
        "laurel_rank": 4,
    },
    "EmbeddingGemma2Text": {"sliding_window": 4},
    "InklingText": {"sliding_window": 4},
    "Afmoe": {  # hands its mask by name
        "sliding_window": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
}


YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 1e4,
}


def made(family, **settings):
    import transformers

    torch.manual_seed(0)
    settings = {**SMALL, **OF_THIS_YEAR.get(family, {}), **settings}
    config = getattr(transformers, f"{family}Config")(**settings)
    kind = getattr(transformers, f"{family}Model")
    return kind._from_config(config, attn_implementation="eager").eval()


def test_the_file_is_what_the_census_says():
    assert meant.PATH.read_text("utf-8") == meant.toml_text()


@pytest.mark.parametrize("family", OF_THIS_YEAR)
def test_a_scale_that_is_not_one_over_root_d_is_known_and_its_fault_found(family):
    model = made(family)
    report = audit(model, IDS, length=64)
    assert report.passed, report
    part = next(module for module in model.modules() if hasattr(module, "scaling"))
    right, d = part.scaling, part.head_dim
    part.scaling = d**-0.5 if right != d**-0.5 else 1.0
    findings = audit(model, IDS, length=64).findings
    assert {finding.code for finding in findings} == {"scale"}
    assert {finding.where for finding in findings} == {"layers.0.self_attn"}
    assert float(findings[0].expected.split()[0]) == pytest.approx(right, rel=1e-3)


@pytest.mark.parametrize(
    ("family", "settings", "left_out"),
    [
        ("Qwen3", {}, ["q_norm"]),
        ("Qwen3", {}, ["q_norm", "k_norm"]),
        ("StableLm", {"qk_layernorm": True}, ["q_layernorm"]),
    ],
)
def test_a_norm_that_is_left_out_is_found(family, settings, left_out):
    model = made(family, **settings)
    assert audit(model, IDS, length=64).passed
    for name in left_out:
        setattr(model.layers[1].self_attn, name, nn.Identity())
    (finding,) = audit(model, IDS, length=64).findings
    assert (finding.code, finding.where) == ("norm", "layers.1.self_attn")
    named = " and ".join(name[0] for name in left_out)
    assert finding.expected == f"{named} normalised"


@pytest.mark.filterwarnings("ignore:.* weights are not in the files")  # those of a decoder
@pytest.mark.parametrize("family", ["Gemma2", "T5Encoder"])
def test_a_folder_of_a_model_without_fused_attention_or_decoder_is_audited(family, tmp_path):
    import transformers

    if family == "T5Encoder":
        config = transformers.T5Config(**SMALL, d_kv=8, d_ff=48)
        transformers.T5EncoderModel(config).save_pretrained(tmp_path)
    else:
        made(family).save_pretrained(tmp_path)
    result = CliRunner().invoke(cli.app, ["audit", str(tmp_path)])
    assert result.exit_code == 0, result.output


def test_yarns_factor_is_meant_where_a_layer_rotates():
    model = made("SmolLM3", rope_parameters=YARN, no_rope_layers=[1, 0])
    assert audit(model, IDS, length=64).passed
    model.rotary_emb.attention_scaling = 1.0
    (finding, *same) = audit(model, IDS, length=64).findings
    assert {entry.where for entry in (finding, *same)} == {"layers.0.self_attn"}
    assert finding.evidence.startswith("0.6853 times what was meant")  # 1/(.1 log 8 + 1)²


def test_llama_4s_temperature_is_meant_where_no_layer_rotates():
    settings = {
        "num_local_experts": 2,
        "intermediate_size_mlp": 48,
        "attention_chunk_size": 4,
        "no_rope_layers": [1, 0],
        "attn_scale": 0.5,
        "floor_scale": 4,
    }
    report = audit(model := made("Llama4Text", **settings), IDS, length=64)
    assert report.passed, report
    attention = model.layers[1].self_attn
    for name, value in (("attn_temperature_tuning", False), ("attn_scale", 0.1)):
        right = getattr(attention, name)
        setattr(attention, name, value)
        (finding,) = audit(model, IDS, length=64).findings
        setattr(attention, name, right)
        assert (finding.code, finding.where) == ("law", "layers.1.self_attn")
        last = 1.0 + 0.5 * math.log(1.0 + 12 // 4)
        assert finding.expected == f"q times {last:.4g} at token 12"
    unreached = audit(made("Llama4Text", **{**settings, "floor_scale": 64}), IDS, length=64)
    assert unreached.facts["temperature of q"].startswith("unknown")


def test_ministrals_temperature_is_meant_in_every_layer(monkeypatch):
    rotary = {"llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 4}
    rotary |= {"rope_type": "default", "rope_theta": 1e4}
    model = made("Ministral3", rope_parameters=rotary)
    assert audit(model, IDS, length=64).passed
    module = "transformers.models.ministral3.modeling_ministral3"
    monkeypatch.setattr(f"{module}.get_llama_4_attn_scale", lambda *_: torch.ones(()))
    findings = audit(model, IDS, length=64).findings
    wanted = 1.0 + 0.5 * math.log(1.0 + 11 // 4)
    assert len(findings) == len(model.layers)
    assert all(one.expected.startswith(f"q times {wanted:.4g} at token") for one in findings)


def test_a_model_of_an_unknown_family_neither_passes_nor_fails(monkeypatch):
    model = tiny("Llama")
    monkeypatch.setattr(modules, "meant_scale", lambda *_: (None, "nobody says it"))
    report = audit(model, IDS, length=64)
    assert report.passed is None
    assert report.findings == []
    first = str(report).splitlines()[0]
    expected = f"found {8**-0.5:.4g} (nobody says it)"
    assert first == f"not known what is meant: layers.0.self_attn: {expected}"
    assert audit(model, IDS, expected=8**-0.5, length=64).passed
    assert audit(model, IDS, expected=1.0, length=64).passed is False
    monkeypatch.setattr(cli.model, "load_model", lambda *_, **__: (None, model))
    result = CliRunner().invoke(cli.app, ["audit", "of nobody"])
    assert result.exit_code == cli.audit.NOT_KNOWN, result.output


def test_a_passing_report_of_a_model_has_three_lines():
    passed, unasked, scale = lines = str(audit(tiny("Llama"), IDS, length=64)).splitlines()
    assert passed.startswith("passed: nothing found; ")
    assert unasked == "not asked: a scale in the weights of projections"
    assert scale == "scale: 0.3536 ± 0.0001 times q·k, the same for every n, in 2 calls"
    assert max(map(len, lines)) < 100
    verbose = str(audit(tiny("Llama"), IDS, length=64, verbose=True)).splitlines()
    assert verbose[1].endswith("in layers.0.self_attn, layers.1.self_attn")
    assert verbose[2].startswith("a scale in the weights of projections: unknown")
    assert verbose[3].startswith("eager beside sdpa: ")


@pytest.mark.parametrize("option", ["scale_attn_by_inverse_layer_idx", "scale_attn_weights"])
def test_settings_of_gpt2_say_what_is_meant(option):
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_embd": 32, "n_head": 2, "n_layer": 2, "vocab_size": 99, "n_positions": 64}
    value = option != "scale_attn_weights"
    model = GPT2Model(GPT2Config(**sizes, **{option: value})).eval()
    assert audit(model, torch.arange(16)[None]).passed
    setattr(model.config, option, not value)
    assert not audit(model, torch.arange(16)[None]).passed


def test_where_layers_differ_each_is_read_from_its_own_configuration():
    from transformers import LlamaConfig, LlamaModel

    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "vocab_size": 99}
    layers = {1: {"query_pre_attn_scalar": 16.0}}
    config = LlamaConfig(
        **sizes, intermediate_size=64, query_pre_attn_scalar=64.0, per_layer_config=layers
    )
    report = audit(LlamaModel(config).eval(), torch.arange(8)[None], length=32)
    assert {x.where for x in report.findings} == {"layers.0.self_attn"}  # 1/8 intended, 1/4 used
