"""Models of transformers whose scale is another one for good."""

import warnings

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from attnlib.attention import register
from attnlib.policies import POLICIES
from experiments.compatibility import FACTOR, LENGTH, by_hand, given, mask, tiny, tokens

pytestmark = pytest.mark.filterwarnings("ignore:the model's own scale")


def padded():
    return {"input_ids": tokens(), "attention_mask": mask(padded=True)}


CAUSAL = ["Llama", "Gemma2", "GptOss", "Qwen3", "Mistral"]


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_with_a_cache_is_that_without(family, cache):
    model = tiny(family, register("ssmax"), head=True)
    options = {**padded(), "max_new_tokens": 6, "do_sample": False}
    options |= {"output_logits": True, "return_dict_in_generate": True}
    found = model.generate(cache_implementation=cache, **options)
    with by_hand(model, "policy"):
        expected = model.generate(use_cache=False, **options)
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["Llama", "GptOss"])
def test_a_compiled_model_and_one_in_half_precision_compute_the_same(family):
    torch._dynamo.reset()
    model = tiny(family, register("ssmax"), num_hidden_layers=1)
    there = mask(padded=True).bool()
    with torch.no_grad():
        expected = model(**padded())[0][there]
        compiled = torch.compile(model, backend="aot_eager")
        found = compiled(**padded())[0][there]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        half = model.bfloat16()(**padded())[0][there]
    assert (half.float() - expected).abs().mean() < 0.05 * expected.abs().mean()


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


@pytest.mark.parametrize("family", ["Gemma3Text", "GptOss", "Whisper"])
def test_a_factor_multiplies_the_models_own_scale(family):
    model = tiny(family)
    inputs = given(family, padded=False)
    with torch.no_grad():
        own = model(**inputs)[0]
        with by_hand(model, "factor"):
            expected = model(**inputs)[0]
        model.set_attn_implementation(register(factor=FACTOR))
        torch.testing.assert_close(model(**inputs)[0], expected, rtol=1e-3, atol=2e-5)
        model.set_attn_implementation(register(factor="ssmax", train_length=LENGTH))
        found = model(**inputs)[0]
        model.set_attn_implementation(
            register(factor=lambda n, d, position: np.log(n) / np.log(12))
        )
        torch.testing.assert_close(model(**inputs)[0], found)
    assert not torch.allclose(own, expected, atol=1e-2)


def test_a_factor_has_a_name_of_its_own():
    assert register(factor=1.2) == "attnlib-times-1.2"
    assert register(factor="ssmax", train_length=512) == "attnlib-ssmax-over-that-at-512-keys"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("family", ["Gemma3Text", "T5", "Granite", "Whisper"])
def test_it_says_that_it_replaces_a_scale_of_the_models_own(family):
    model = tiny(family, register("transformer"))
    with pytest.warns(UserWarning, match=r"not 1/√d .* register\(factor=…\) multiplies it"):
        model(**given(family, padded=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny("Llama", register("transformer"))(tokens())
        model.set_attn_implementation(register(factor=1.0))
        model(**given(family, padded=False))


def test_a_model_that_writes_attention_out_does_not_lose_its_mask_in_silence():
    model = tiny("Bloom", register("ssmax"))
    with pytest.raises(RuntimeError, match=r"BloomAttention has attention written out .*'eager'"):
        model(tokens())


def test_attention_written_out_beside_the_registered_is_named():
    model = tiny("LongT5", register("ssmax"))
    with pytest.warns(UserWarning, match="LongT5LocalAttention and .* their scale stays"):
        model(**given("LongT5", padded=False))


def test_what_it_does_not_take():
    with pytest.raises(ValueError, match="similar names: ssmax"):
        register("ssmaxx")
    with pytest.raises(TypeError, match="policy must be a name"):
        register(7.0)
    with pytest.raises(TypeError, match="factor must be a number or a rule"):
        register(factor=torch.ones(3))
    for arguments in ({}, {"policy": "ssmax", "factor": 1.2}):
        with pytest.raises(ValueError, match="a policy or a factor, and not both"):
            register(**arguments)
    with pytest.raises(ValueError, match="train_length is for a factor"):
        register("ssmax", train_length=512)


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
