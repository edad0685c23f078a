"""Models of transformers whose scale is another one for good."""

import pytest
import torch
import transformers
from torch import nn

from attnlib.attention import register
from attnlib.policies import POLICIES

LENGTH = 12
SMALL = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def by_hand(policy):
    """Return a function of attention that is written out in float64, key by key."""

    def attention(module, query, key, value, mask, scaling=None, **rest):
        groups = query.shape[1] // key.shape[1]
        q, k, v = query.double(), key.double(), value.double()
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
        visible = torch.ones(q.shape[0], q.shape[1], q.shape[2], k.shape[2], dtype=torch.bool)
        if mask is not None:
            visible = visible & mask
        elif q.shape[2] > 1 and rest.get("is_causal", getattr(module, "is_causal", True)):
            visible = visible.tril()
        n = visible.sum(-1, keepdim=True)
        scale = torch.from_numpy(POLICIES[policy].scale(n.clamp(min=1).numpy(), q.shape[-1]))
        logits = (q @ k.mT) * scale
        if rest.get("softcap"):
            logits = rest["softcap"] * torch.tanh(logits / rest["softcap"])
        if rest.get("position_bias") is not None:
            logits = logits + rest["position_bias"]
        weights = logits.exp() * visible
        total = weights.sum(-1, keepdim=True)
        if rest.get("s_aux") is not None:
            total = total + rest["s_aux"].double().exp()[:, None, None]
        output = (weights / total.clamp(min=1e-300)) @ v
        return output.transpose(1, 2).to(query.dtype), None

    return attention


FAMILIES = {
    "Llama": {},
    "Mistral": {"sliding_window": 5},
    "Qwen2": {},
    "Qwen3": {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
    "Gemma2": {"sliding_window": 4, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16},
    "Gemma3Text": {"sliding_window": 4, "query_pre_attn_scalar": 16},
    "GptOss": {
        "sliding_window": 4,
        "num_local_experts": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    },
    "Granite": {"attention_multiplier": 0.5},
    "Olmo2": {},
    "Phi3": {},
    "Cohere2": {"sliding_window": 4},
    "Starcoder2": {},
    "GPTNeoX": {},
    "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "GPT2": {},
    "Bert": {},
    "Albert": {"embedding_size": 16},
    "Roberta": {},
    "ModernBert": {"local_attention": 6},
    "SmolLM3": {},
}


def tiny(family, attention="eager", **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **FAMILIES[family], **options})
    return (
        getattr(transformers, f"{family}Model")
        ._from_config(config, attn_implementation=attention)
        .eval()
    )


def tokens(rows=2):
    return torch.randint(3, 60, (rows, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def hand():
    """Register attention by hand under a name of its own."""
    transformers.AttentionInterface.register("by-hand", by_hand("ssmax"))
    transformers.AttentionMaskInterface.register("by-hand", transformers.masking_utils.sdpa_mask)
    yield "by-hand"
    del transformers.AttentionInterface._global_mapping["by-hand"]
    del transformers.AttentionMaskInterface._global_mapping["by-hand"]


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_computes_what_is_written_out_by_hand(family, padded, hand):
    model = tiny(family)
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    if padded:
        mask[1, : LENGTH - 7] = 0
    with torch.no_grad():
        own = model(tokens(), attention_mask=mask)[0]
        model.set_attn_implementation(hand)
        expected = model(tokens(), attention_mask=mask)[0]
        model.set_attn_implementation(register("ssmax"))
        found = model(tokens(), attention_mask=mask)[0]
    seen = mask.bool()
    torch.testing.assert_close(found[seen], expected[seen], rtol=1e-3, atol=2e-5)
    assert not torch.allclose(own[seen], expected[seen], rtol=1e-2, atol=1e-2)


CAUSAL = ["Llama", "Gemma2", "GptOss", "Qwen3", "Mistral"]


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_with_a_cache_is_that_without(family, cache, hand):
    torch.manual_seed(0)
    model = causal(family, register("ssmax"))
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, :5] = 0
    options = {"max_new_tokens": 6, "do_sample": False, "attention_mask": mask}
    options |= {"output_logits": True, "return_dict_in_generate": True}
    found = model.generate(tokens(), cache_implementation=cache, **options)
    model.set_attn_implementation(hand)
    expected = model.generate(tokens(), use_cache=False, **options)
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-3, atol=1e-4)


def causal(family, attention):
    torch.manual_seed(0)
    config = tiny(family).config
    kind = getattr(transformers, family.removesuffix("Text") + "ForCausalLM")
    return kind._from_config(config, attn_implementation=attention).eval()


@pytest.mark.parametrize("family", ["Llama", "GptOss"])
def test_a_compiled_model_and_one_in_half_precision_compute_the_same(family):
    torch._dynamo.reset()
    model = tiny(family, register("ssmax"), num_hidden_layers=1)
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, :5] = 0
    with torch.no_grad():
        expected = model(tokens(), attention_mask=mask)[0][mask.bool()]
        compiled = torch.compile(model, backend="aot_eager")
        found = compiled(tokens(), attention_mask=mask)[0][mask.bool()]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        half = model.bfloat16()(tokens(), attention_mask=mask)[0][mask.bool()]
    assert (half.float() - expected).abs().mean() < 0.05 * expected.abs().mean()


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "GptOss"])
def test_gradients_are_those_of_attention_by_hand_also_when_it_is_computed_twice(family, hand):
    def gradients(attention, twice):
        model = tiny(family, attention).train()
        if twice:
            model.activation_checkpointing_enable()
        model(tokens())[0].square().mean().backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    expected = gradients(hand, False)
    for twice in (False, True):
        found = gradients(register("ssmax"), twice)
        assert found.keys() == expected.keys()
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-5)


def test_a_policy_for_cosines_normalises_queries_and_keys():
    model = tiny("Llama")
    cosines = POLICIES["swin_v2"].with_constants()
    name = register(cosines, name="attnlib-of-cosines")
    assert name == "attnlib-of-cosines"
    with torch.no_grad():
        model.set_attn_implementation(name)
        expected = model(tokens())[0]
        for layer in model.layers:  # a longer query and a shorter key have the same cosine
            layer.self_attn.q_proj.weight.mul_(3.0)
            layer.self_attn.k_proj.weight.mul_(0.25)
        torch.testing.assert_close(model(tokens())[0], expected)


def test_a_function_is_a_policy():
    def mine(n, d, position):
        return POLICIES["ssmax"].scale(n, d)

    model = tiny("Llama")
    with torch.no_grad():
        model.set_attn_implementation(register("ssmax"))
        expected = model(tokens())[0]
        assert register(mine) == "attnlib-mine"
        model.set_attn_implementation("attnlib-mine")
        assert torch.equal(model(tokens())[0], expected)


def test_what_it_does_not_take():
    with pytest.raises(ValueError, match="similar names: ssmax"):
        register("ssmaxx")
    with pytest.raises(TypeError, match="policy must be a name"):
        register(7.0)


class Refusing(transformers.PreTrainedModel):
    """A model that refuses the fused kernel."""

    _supports_sdpa = False


class Attention(nn.Module):
    """In the same file, which has no eager function."""


def test_what_it_cannot_reach_it_refuses():
    q = torch.ones(1, 1, 3, 4)
    function = transformers.AttentionInterface()[register("ssmax")]
    with pytest.raises(RuntimeError, match=r"Attention refuses .* cannot change its scale"):
        function(Attention(), q, q, q)
    with pytest.raises(RuntimeError, match="paged cache"):
        function(Attention(), q, q, q, cache=object())
